//! Calls touch their own rows, and wait for nobody else's.

use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{LEASE, MARGIN, answer, ask, retry};
use selfsame_core::{Claimed, Fenced, Recorded, Store};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{DATABASE, PostgresBench, SERVER, complete, run};

/// How often the table was read whole, and how many of its rows were read.
async fn reads(bench: &PostgresBench) -> (i64, i64) {
    let sql = "select seq_scan, coalesce(idx_tup_fetch, 0) from pg_stat_user_tables \
               where schemaname = $1 and relname = 'keys'";
    let row = bench.owner().await.query_one(sql, &[&bench.schema]).await.expect("it is counted");
    (row.get(0), row.get(1))
}

/// Plans are kept, and this table was known to be empty when they were made.
#[tokio::test(flavor = "multi_thread")]
async fn calls_find_their_rows_by_the_unique_index() {
    let bench = PostgresBench::new();
    let vacuum = format!("vacuum analyze {}.keys", bench.schema);
    bench.owner().await.batch_execute(&vacuum).await.expect("the owner may");
    let store = bench.store().await;
    complete(&store, &ask("first")).await;
    let loaded = (0..2000).map(|at| ask(&format!("loaded-{at}")));
    let loaded: Vec<_> = loaded.collect();
    join_all(loaded.iter().map(|ask| run(&store, ask))).await;

    let asks: Vec<_> = (0..200).map(|at| ask(&format!("k-{at}"))).collect();
    sleep(Duration::from_secs(1)).await;
    let before = reads(&bench).await;
    for alone in &asks[..20] {
        complete(&store, alone).await;
    }
    join_all(asks[20..].iter().map(|ask| complete(&store, ask))).await;
    join_all(asks.iter().map(|ask| store.claim(ask))).await;
    // The server's sessions count for themselves, and tell when they end.
    drop(store);
    sleep(Duration::from_secs(1)).await;
    let after = reads(&bench).await;
    assert_eq!(after.0, before.0, "never is the whole table read");
    let read = after.1 - before.1;
    assert!(read > 200 && read < 3_000, "{read} rows were read in 600 calls of 2,200 keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_delays_no_other_key() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    let (dead, live, done) = (ask("dead"), ask("live"), ask("done"));
    run(&store, &dead).await;
    bench.pass(LEASE + MARGIN).await;
    let lease = run(&store, &live).await;
    complete(&store, &done).await;
    let lock = format!("begin; select id from {}.keys for update", bench.schema);
    let session = SERVER.session(DATABASE, &lock);
    let is_locked = format!("select 1 from {}.keys for update nowait", bench.schema);
    while bench.owner().await.batch_execute(&is_locked).await.is_ok() {
        sleep(Duration::from_millis(10)).await;
    }

    let late_answer = answer("late");
    let completing =
        async { timeout(Duration::from_secs(4), store.complete(&lease, &late_answer)).await };
    let others = async {
        let begun = Instant::now();
        for round in 0..20 {
            let asks: Vec<_> = (0..10).map(|at| ask(&format!("other-{round}-{at}"))).collect();
            let (taken_over, _) =
                join(store.claim(&dead), join_all(asks.iter().map(|ask| complete(&store, ask))))
                    .await;
            // A row that somebody has locked is somebody's who works on it.
            assert!(matches!(taken_over, Ok(Claimed::Busy { .. })), "{taken_over:?}");
            let replay = store.claim(&retry(&done)).await.expect("a replay locks nothing");
            assert!(matches!(replay, Claimed::Replay(_)), "{replay:?}");
        }
        let taken = begun.elapsed();
        drop(session);
        taken
    };
    let (completed, taken) = join(completing, others).await;
    assert!(taken < Duration::from_secs(3), "20 rounds beside a locked row took {taken:?}");
    let recorded = completed.expect("it went on when the lock was gone").expect("the store works");
    assert!(matches!(recorded, Recorded::Until(_)), "{recorded:?}");
    let _lease = run(&store, &retry(&dead)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_text_cannot_hold_fails_nobody() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    let mut odd = ask("odd");
    odd.label.tenant_name = Some("a\0b".into());
    odd.retention = Duration::MAX;
    odd.remember = Duration::MAX;
    odd.lease = Duration::MAX;
    let lease = run(&store, &odd).await;
    let checkpoint = selfsame_core::conformance::samples::checkpoint("pa\0id");
    let saved = store.checkpoint(&lease, &checkpoint).await.expect("the store works");
    assert_eq!(saved, Fenced::Applied);
    let record = store.get(&odd.id).await.expect("readable").expect("there");
    assert_eq!(record.checkpoint, Some(checkpoint));
    let recorded = store.complete(&lease, &answer("done")).await.expect("there is room for it");
    assert!(matches!(recorded, Recorded::Until(_)));
}
