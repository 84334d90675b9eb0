//! What the embedded store promises beyond the laws of every store.
#![cfg(feature = "embedded")]

mod damage;
mod expiry;
mod opening;
mod restart;
mod writing;

use std::fs;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rusqlite::Connection;
use selfsame::stores::{EmbeddedOptions, EmbeddedStore, Leases, OpenError};
use selfsame_core::conformance::SettableClock;
use selfsame_core::conformance::samples::{
    LEASE, MARGIN, REMEMBER, RETENTION, answer, ask, checkpoint, remembered, retry,
};
use selfsame_core::{
    Ask, Claimed, Count, Facts, Fenced, Find, Inspect, Lease, Recorded, Recover, State, Store,
    StoreError, StoreErrorKind, Sweep,
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

/// What an operator has: the file, and `sqlite3`.
fn sqlite(folder: &TempDir) -> Connection {
    Connection::open(folder.path().join("records.db")).expect("the file is there")
}

fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).expect("the query fits the file")
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
