//! What the embedded store promises beyond the laws of every store.
#![cfg(feature = "embedded")]

mod backup;
mod closed;
mod crash;
mod damage;
mod descriptors;
mod erase;
mod expiry;
mod golden;
mod leases;
mod memory;
mod opening;
mod repair;
mod restart;
#[path = "../shared/leases.rs"]
#[expect(dead_code, reason = "this store has threads of its own")]
mod shared_leases;
mod verifying;
mod writing;

use std::fs;
use std::future::ready;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use selfsame::stores::{
    EmbeddedOptions, EmbeddedStore, Leases, OpenError, RepairError, RepairOptions, Repaired,
    Transfer,
};
use selfsame_core::conformance::SettableClock;
use selfsame_core::conformance::samples::{
    LEASE, MARGIN, REMEMBER, RETENTION, answer, ask, checkpoint, remembered, retry,
};
use selfsame_core::{
    Ask, Claimed, Count, Facts, Fenced, Find, Inspect, Keepsake, Lease, Recorded, Recover, Release,
    State, Store, StoreError, StoreErrorKind, Sweep,
};
use tempfile::TempDir;

fn folder() -> TempDir {
    TempDir::new().expect("the system has a place for temporary folders")
}

fn open(folder: &TempDir) -> EmbeddedStore {
    reopen(folder, EmbeddedOptions::default())
}

fn reopen(folder: &TempDir, options: EmbeddedOptions) -> EmbeddedStore {
    EmbeddedStore::open(folder.path(), options).expect("the folder is the test's own")
}

fn refused(path: &Path) -> OpenError {
    EmbeddedStore::open(path, EmbeddedOptions::default()).expect_err("it cannot be opened")
}

/// The files of the log, the oldest first.
fn segments(folder: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.path()).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension() == Some("log".as_ref())).collect();
    paths.sort();
    paths
}

/// The log of a store that never needed a second file.
fn only_segment(folder: &TempDir) -> PathBuf {
    let mut segments = segments(folder);
    assert_eq!(segments.len(), 1);
    segments.remove(0)
}

/// Takes the index away, as if no table of it had been written before a crash.
fn remove_index(folder: &TempDir) {
    match fs::remove_dir_all(folder.path().join("index")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => panic!("{error}"),
        _ => {}
    }
}

/// A copy of a store that is open, as a crash would leave it.
fn copy_of(folder: &TempDir) -> TempDir {
    let copy = self::folder();
    copy_files(folder.path(), copy.path());
    copy
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder is the test's own");
    for entry in fs::read_dir(from).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        let copy = to.join(path.file_name().expect("a file has a name"));
        match path.is_dir() {
            true => copy_files(&path, &copy),
            false => drop(fs::copy(&path, &copy).expect("it can be copied")),
        }
    }
}

/// How many bytes of a log were written.
fn written(log: &[u8]) -> usize {
    log.iter().rposition(|byte| *byte != 0).expect("something is written") + 1
}

/// Where `bytes` are in a file.
fn position(file: &[u8], bytes: &[u8]) -> usize {
    file.windows(bytes.len()).position(|window| window == bytes).expect("it is in the file")
}

async fn run(store: &EmbeddedStore, ask: &Ask) -> Lease {
    match store.claim(ask).await.expect("the store works") {
        Claimed::Run(grant) => grant.lease,
        other => panic!("{other:?}"),
    }
}

async fn complete(store: &EmbeddedStore, key: &str) -> Ask {
    complete_with(store, key, b"done").await
}

async fn complete_with(store: &EmbeddedStore, key: &str, body: &[u8]) -> Ask {
    let ask = ask(key);
    let lease = run(store, &ask).await;
    let recorded = store.complete(&lease, &answer(body.to_vec())).await.expect("the store works");
    assert!(matches!(recorded, Recorded::Until(_)));
    ask
}

async fn is_replayed(store: &EmbeddedStore, ask: &Ask) -> bool {
    let claimed = store.claim(&retry(ask)).await.expect("the store works");
    matches!(claimed, Claimed::Replay(replay) if replay.answer == answer("done"))
}

async fn sweep_all(store: &EmbeddedStore) {
    while !store.sweep(1000).await.expect("the store works").finished {}
}
