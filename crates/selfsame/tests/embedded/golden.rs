//! A folder as it was written by the first version of the format, and must be read by every later one.
//!
//! Only for a new version of the format, write another with
//! `SELFSAME_WRITE_GOLDEN=1 cargo test -p selfsame --test embedded golden`, and commit it.

use std::env;

use super::*;

const FILES: [&str; 2] = ["facts", "records-00000001.log"];

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/embedded/golden-v1")
}

fn at(folder: &TempDir) -> EmbeddedStore {
    let clock = Arc::new(SettableClock::new());
    reopen(folder, EmbeddedOptions::default().leases(Leases::Keep).clock(clock))
}

async fn write() {
    let folder = folder();
    let store = at(&folder);
    store.set_fact("secret", b"hidden").await.expect("the store works");
    complete(&store, "completed").await;
    run(&store, &ask("claimed")).await;
    for (key, release) in
        [("failed", Release::Retry), ("held", Release::Hold), ("forgotten", Release::Forget)]
    {
        let lease = run(&store, &ask(key)).await;
        assert_eq!(store.release(&lease, release).await.ok(), Some(Fenced::Applied));
    }
    let lease = run(&store, &ask("resumed")).await;
    assert_eq!(store.checkpoint(&lease, &checkpoint("paid")).await.ok(), Some(Fenced::Applied));
    drop(store);
    fs::create_dir_all(committed()).expect("it can be made");
    for name in FILES {
        let mut bytes = fs::read(folder.path().join(name)).expect("it is there");
        bytes.truncate(written(&bytes) + 1);
        fs::write(committed().join(name), bytes).expect("it can be written");
    }
}

#[tokio::test]
async fn what_the_first_version_wrote_is_read() {
    if env::var_os("SELFSAME_WRITE_GOLDEN").is_some() {
        write().await;
    }
    let folder = folder();
    for name in FILES {
        fs::copy(committed().join(name), folder.path().join(name)).expect("it is committed");
    }
    let store = at(&folder);
    assert_eq!(store.fact_or("secret", b"another").await.expect("the store works"), b"hidden");
    assert!(is_replayed(&store, &ask("completed")).await);
    assert!(matches!(store.claim(&retry(&ask("claimed"))).await, Ok(Claimed::Busy { .. })));
    assert!(matches!(store.claim(&retry(&ask("held"))).await, Ok(Claimed::Held { .. })));
    let count = store.count().await.expect("the store works");
    assert_eq!(count, Count { claimed: 2, completed: 1, failed: 1, held: 1, tombstone: 0 });
    let resumed = store.get(&ask("resumed").id).await.expect("the store works");
    assert_eq!(resumed.and_then(|record| record.checkpoint), Some(checkpoint("paid")));
    run(&store, &ask("forgotten")).await;
}
