//! Damage is noticed, and shuts no more than the record it is in.

use super::*;

async fn assert_shut(store: &EmbeddedStore, damaged: &Ask, what: &str) {
    let is_damaged = |error: Option<StoreError>| error.is_some_and(|error| error.is_damaged());
    let lease = Lease {
        id: damaged.id,
        fence: selfsame_core::Fence::FIRST,
        attempt_id: damaged.attempt_id,
        length: LEASE,
    };
    for _ in 0..2 {
        assert!(is_damaged(store.claim(&retry(damaged)).await.err()), "{what}");
        assert!(is_damaged(store.get(&damaged.id).await.err()), "{what}");
        assert!(is_damaged(store.renew(&lease).await.err()), "{what}");
        store.sweep(1000).await.expect("one bad record does not stop the sweep");
    }
}

#[tokio::test]
async fn a_change_in_any_column_is_noticed() {
    let columns = [
        ("fingerprint", "zeroblob(37)"),
        ("state", "3"),
        ("state_at", "state_at + 1"),
        ("fence", "fence + 1"),
        ("attempt", "attempt + 1"),
        ("attempt_id", "zeroblob(16)"),
        ("birth", "zeroblob(16)"),
        ("recover", "2"),
        ("created_at", "created_at + 1"),
        ("expires_at", "0"),
        ("retention_ms", "retention_ms + 1"),
        ("remember_ms", "remember_ms + 1"),
        ("tenant", "zeroblob(16)"),
        ("tenant_name", "NULL"),
        ("key", "'another'"),
        ("route", "route || '?'"),
        ("recovery_point", "NULL"),
        ("recovery_point", "'another'"),
        ("boot", "boot + 1"),
        ("answer_bucket", "answer_bucket + 1"),
        ("answer_row", "answer_row - 1"),
        ("sum", "sum + 1"),
    ];
    let folder = folder();
    let store = open(&folder);
    let unharmed = complete(&store, "unharmed").await;
    let mut asks = Vec::new();
    for at in 0..columns.len() {
        let ask = ask(&format!("key-{at}"));
        let lease = run(&store, &ask).await;
        assert_eq!(store.checkpoint(&lease, &checkpoint("paid")).await.ok(), Some(Fenced::Applied));
        let recorded = store.complete(&lease, &answer("done")).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))));
        asks.push(ask);
    }
    drop(store);

    for ((column, value), ask) in columns.iter().zip(&asks) {
        let sql = format!("UPDATE keys SET {column} = {value} WHERE id = ?1");
        let changed = sqlite(&folder).execute(&sql, [ask.id.as_bytes()]);
        assert_eq!(changed.expect("the file can be written"), 1);
    }

    let store = open(&folder);
    for ((column, _), ask) in columns.iter().zip(&asks) {
        assert_shut(&store, ask, column).await;
    }
    assert!(is_replayed(&store, &unharmed).await);
    let found = store.find(&Find::IdPrefix(String::new()), 100).await;
    assert_eq!(found.expect("bad records do not stop the search").len(), 1);
    complete(&store, "new").await;
}

#[tokio::test]
async fn a_flipped_bit_in_an_answer_is_noticed() {
    let folder = folder();
    let store = open(&folder);
    let unharmed = complete(&store, "unharmed").await;
    let body = b"a body to be found";
    let damaged = complete_with(&store, "damaged", body).await;
    drop(store);

    let path = folder.path().join("records.db");
    let mut file = fs::read(&path).expect("the file is there");
    let at = file.windows(body.len()).position(|bytes| bytes == body);
    file[at.expect("the log is in the file when the store is closed")] ^= 1;
    fs::write(&path, file).expect("the file can be written");

    let store = open(&folder);
    for _ in 0..2 {
        let error = store.claim(&retry(&damaged)).await.expect_err("it is never served");
        assert!(error.is_damaged(), "{error}");
    }
    assert!(is_replayed(&store, &unharmed).await);
}

#[tokio::test]
async fn a_lost_checkpoint_is_noticed() {
    let folder = folder();
    let store = open(&folder);
    let first = ask("k");
    let lease = run(&store, &first).await;
    assert_eq!(store.checkpoint(&lease, &checkpoint("paid")).await.ok(), Some(Fenced::Applied));
    sqlite(&folder).execute("DELETE FROM checkpoints", []).expect("the file can be written");
    assert_shut(&store, &first, "checkpoint").await;
}
