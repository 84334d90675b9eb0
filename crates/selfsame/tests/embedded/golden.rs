//! Folders as they were written by each version of the format, and must be read by every later one.
//!
//! Only for a new version of the format, write another with
//! `SELFSAME_WRITE_GOLDEN=1 cargo test -p selfsame --test embedded golden`, and commit it.

use std::env;

use super::*;

const VERSIONS: [&str; 2] = ["golden-v1", "golden-v2"];

fn committed(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/embedded").join(version)
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
    fs::remove_file(folder.path().join("lock")).expect("it is there");
    let log = only_segment(&folder);
    let mut bytes = fs::read(&log).expect("it is there");
    bytes.truncate(written(&bytes) + 1);
    fs::write(log, bytes).expect("it can be written");
    copy_files(folder.path(), &committed(VERSIONS[VERSIONS.len() - 1]));
}

#[tokio::test]
async fn what_each_version_wrote_is_read() {
    if env::var_os("SELFSAME_WRITE_GOLDEN").is_some() {
        write().await;
    }
    for version in VERSIONS {
        for has_index in [true, false] {
            let folder = folder();
            copy_files(&committed(version), folder.path());
            if !has_index {
                remove_index(&folder);
            }
            assert_read(&folder).await;
        }
    }
}

async fn assert_read(folder: &TempDir) {
    let store = at(folder);
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
