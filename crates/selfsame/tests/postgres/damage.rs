//! A record that changed by itself is neither served nor run again.

use selfsame_core::conformance::samples::{ask, retry};
use selfsame_core::{Ask, Claimed, Find, Inspect, Store, StoreErrorKind, Sweep};

use crate::support::{PostgresBench, complete};

async fn damaged(sql: &str) {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    let (hit, other) = (ask("hit"), ask("other"));
    complete(&store, &hit).await;
    let id = format!("'\\x{}'", hit.id);
    let sql = sql.replace("KEYS", &format!("{}.keys", bench.schema)).replace("ID", &id);
    let sql = sql.replace("ANSWERS", &format!("{}.answers", bench.schema));
    let changed = bench.owner().await.execute(&sql, &[]).await.expect("the owner may");
    assert_eq!(changed, 1, "{sql}");
    complete(&store, &other).await;

    let error = store.claim(&retry(&hit)).await.expect_err("it is damaged");
    assert_eq!(error.kind(), StoreErrorKind::Damaged, "{sql}");
    assert!(store.get(&hit.id).await.expect_err("it is damaged").is_damaged());
    let found = store.find(&Find::IdPrefix(String::new()), 10).await.expect("others are found");
    assert_eq!(found.iter().map(|record| record.id).collect::<Vec<_>>(), [other.id]);
    store.sweep(10).await.expect("it stops no sweep");
    let replay = store.claim(&retry(&other)).await.expect("it stops no other key");
    assert!(matches!(replay, Claimed::Replay(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_column_is_noticed() {
    for column in [
        "state_at = state_at # 1",
        "expires_at = expires_at # (1::bigint << 40)",
        "created_at = created_at # 2",
        "fence = fence + 1",
        "attempt = attempt + 1",
        "version = version + 1",
        "answer_row = answer_row + 1",
        "route = 'POST /refunds'",
        "fingerprint = set_byte(fingerprint, 7, get_byte(fingerprint, 7) # 4)",
        "state = 1",
    ] {
        damaged(&format!("update KEYS set {column} where id = ID")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_answer_is_noticed() {
    for body in ["set_byte(body, 20, get_byte(body, 20) # 1)", "substr(body, 1, 30)", "''"] {
        damaged(&format!("update ANSWERS set body = {body}")).await;
    }
    damaged("delete from ANSWERS").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_does_not_mend_what_was_damaged() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    let hit: Ask = ask("hit");
    let lease = crate::support::run(&store, &hit).await;
    let sql = format!("update {}.keys set route = 'elsewhere'", bench.schema);
    bench.owner().await.execute(&sql, &[]).await.expect("the owner may");
    // The statement for completions does not read the whole row; its sum stays as wrong as it was.
    let done = selfsame_core::conformance::samples::answer("done");
    let _recorded = store.complete(&lease, &done).await.expect("it is not looked at");
    assert!(store.claim(&retry(&hit)).await.expect_err("it is damaged").is_damaged());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_only_looks_expired_is_not_taken_away() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    let hit = ask("hit");
    complete(&store, &hit).await;
    let sql = format!("update {}.keys set expires_at = expires_at - 172800000", bench.schema);
    bench.owner().await.execute(&sql, &[]).await.expect("the owner may");
    assert_eq!(store.sweep(10).await.expect("it stops no sweep").removed, 0);
    let error = store.claim(&retry(&hit)).await.expect_err("it is damaged, and not run again");
    assert!(error.is_damaged(), "{error}");
}
