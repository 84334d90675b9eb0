//! No file can be opened any more: new keys are refused, and all else goes on.
#![cfg(target_os = "linux")]

use std::env;
use std::fs::File;
use std::process::Command;

use super::expiry::eventually;
use super::*;

/// Tells a process of this test where its store is.
const FOLDER: &str = "SELFSAME_DESCRIPTORS_FOLDER";
const NAME: &str = "descriptors::without_descriptors_new_keys_are_refused_and_all_else_goes_on";

/// In a process of its own, which has few and takes them all.
#[tokio::test]
async fn without_descriptors_new_keys_are_refused_and_all_else_goes_on() {
    if let Some(folder) = env::var_os(FOLDER) {
        return serve(Path::new(&folder)).await;
    }
    let folder = folder();
    let mut process = Command::new("prlimit");
    process.arg("--nofile=128").arg(env::current_exe().expect("it runs"));
    process.args([NAME, "--exact", "--nocapture"]).env(FOLDER, folder.path());
    let done = process.output().expect("prlimit is there: this test needs util-linux");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let store = open(&folder);
    for key in ["before", "running", "after"] {
        assert!(is_replayed(&store, &ask(key)).await, "{key}");
    }
}

async fn serve(folder: &Path) {
    let store = EmbeddedStore::open(folder, EmbeddedOptions::default()).expect("it opens");
    let before = complete(&store, "before").await;
    let running = run(&store, &ask("running")).await;
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    let mut number = 0;
    let refused = loop {
        number += 1;
        match store.claim(&ask(&format!("next-{number}"))).await {
            Ok(Claimed::Run(grant)) => {
                let recorded = store.complete(&grant.lease, &answer(vec![7; 20 * 1024])).await;
                assert!(matches!(recorded, Ok(Recorded::Until(_))));
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), StoreErrorKind::NotWritten);
    assert!(refused.to_string().contains("Too many open files"), "{refused}");
    let shortage = store.health().shortage().expect("new keys are refused");
    assert!(shortage.contains("Too many open files"), "{shortage}");
    assert!(is_replayed(&store, &before).await);
    let recorded = store.complete(&running, &answer("done")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))));
    drop(taken);
    let after = ask("after");
    let lease = loop {
        match store.claim(&after).await {
            Ok(Claimed::Run(grant)) => break grant.lease,
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::NotWritten),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    eventually("new keys are taken", || store.health().shortage().is_none()).await;
    let recorded = store.complete(&lease, &answer("done")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))));
}
