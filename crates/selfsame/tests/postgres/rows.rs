//! Calls touch their own rows, and wait for nobody else's.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame::stores::PostgresStore;
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{LEASE, MARGIN, answer, ask, retry};
use selfsame_core::{Ask, Claimed, Fenced, Recorded, Store, Sweep};
use tokio::time::{sleep, timeout};

use crate::support::{DATABASE, PostgresBench, SERVER, USER, complete, options, run};

/// Time that a call has, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the table was read whole, and how many of its rows were read.
async fn reads(bench: &PostgresBench) -> (i64, i64) {
    let sql = "select seq_scan, coalesce(idx_tup_fetch, 0) from pg_stat_user_tables \
               where schemaname = $1 and relname = 'keys'";
    let row = bench.owner().await.query_one(sql, &[&bench.schema]).await.expect("it is counted");
    (row.get(0), row.get(1))
}

/// Ends the store, and waits for its sessions: they count for themselves, and tell when they end.
async fn end(bench: &PostgresBench, store: PostgresStore, name: &str) {
    drop(store);
    let sql = "select count(*) from pg_stat_activity where application_name = $1";
    while bench.owner().await.query_one(sql, &[&name]).await.expect("it is told").get::<_, i64>(0)
        > 0
    {
        sleep(Duration::from_millis(10)).await;
    }
}

/// Plans are kept, and this table was known to be empty when they were made.
#[tokio::test(flavor = "multi_thread")]
async fn calls_find_their_rows_by_the_unique_index() {
    let bench = PostgresBench::unused();
    let vacuum = format!("vacuum analyze {}.keys", bench.schema);
    bench.owner().await.batch_execute(&vacuum).await.expect("the owner may");
    let (name, loader_name) = (format!("{} calls", bench.schema), format!("{} load", bench.schema));
    let store = bench.store_named(&name).await;
    complete(&store, &ask("first")).await;
    let few: Vec<_> = (0..10).map(|at| ask(&format!("few-{at}"))).collect();
    join_all(few.iter().map(|ask| complete(&store, ask))).await;

    let loader = bench.store_named(&loader_name).await;
    let loaded: Vec<_> = (0..2000).map(|at| ask(&format!("loaded-{at}"))).collect();
    join_all(loaded.iter().map(|ask| run(&loader, ask))).await;
    end(&bench, loader, &loader_name).await;

    let before = reads(&bench).await;
    let asks: Vec<_> = (0..200).map(|at| ask(&format!("k-{at}"))).collect();
    for alone in &asks[..20] {
        complete(&store, alone).await;
    }
    join_all(asks[20..].iter().map(|ask| complete(&store, ask))).await;
    join_all(asks.iter().map(|ask| store.claim(ask))).await;
    end(&bench, store, &name).await;
    let after = reads(&bench).await;
    assert_eq!(after.0, before.0, "never is the whole table read");
    let read = after.1 - before.1;
    assert!(read > 200 && read < 3_000, "{read} rows were read in 600 calls of 2,200 keys");
}

/// Rows that are claimed together are completed together: their pages must have room for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_completion_needs_no_new_index_entry() {
    let bench = PostgresBench::unused();
    let sql = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables \
               where schemaname = $1 and relname = 'keys'";
    let updates = async || {
        let row = bench.owner().await.query_one(sql, &[&bench.schema]).await;
        let row = row.expect("it is counted");
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    let before = updates().await;
    let name = format!("{} updates", bench.schema);
    let store = bench.store_named(&name).await;
    // The first answer of a day has its table made: what was written beside it is written again.
    complete(&store, &ask("first")).await;
    let asks: Vec<_> = (0..500).map(|at| ask(&format!("k-{at}"))).collect();
    let leases = join_all(asks.iter().map(|ask| run(&store, ask))).await;
    let done = answer("done");
    join_all(leases.iter().map(|lease| store.complete(lease, &done))).await;
    end(&bench, store, &name).await;
    let after = updates().await;
    let (all, in_place) = (after.0 - before.0, after.1 - before.1);
    assert!(all >= 500 && in_place * 10 >= all * 9, "{in_place} of {all} were made in place");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_delays_no_other_key() {
    let bench = PostgresBench::new();
    bench.owner().await;
    // The lock is held for all rounds, and a completion waits for it.
    let patient = options(&bench.schema).time_out(PATIENCE);
    let store = PostgresStore::open(&SERVER.socket_url(USER, DATABASE), patient).await;
    let store = store.expect("the user may open it");
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
    let completing = async { timeout(PATIENCE, store.complete(&lease, &late_answer)).await };
    let others = async {
        let mut rounds_ahead = 0;
        for round in 0..ROUNDS {
            rounds_ahead += u32::from(others_are_ahead(&store, round, &dead).await);
            let replay = store.claim(&retry(&done)).await.expect("a replay locks nothing");
            assert!(matches!(replay, Claimed::Replay(_)), "{replay:?}");
        }
        drop(session);
        rounds_ahead
    };
    let (completed, rounds_ahead) = join(completing, others).await;
    // Not each time: tests share the machine, and a task may be told late.
    assert!(rounds_ahead > ROUNDS / 2, "others came first in {rounds_ahead} of {ROUNDS} rounds");
    let recorded = completed.expect("it went on when the lock was gone").expect("the store works");
    assert!(matches!(recorded, Recorded::Until(_)), "{recorded:?}");
    let _lease = run(&store, &retry(&dead)).await;
}

const ROUNDS: u32 = 30;

/// Whether ten new keys, claimed together with the locked one, are claimed before it is called busy.
async fn others_are_ahead(store: &PostgresStore, round: u32, locked: &Ask) -> bool {
    let told = AtomicUsize::new(0);
    let asks: Vec<_> = (0..10).map(|at| ask(&format!("beside-{round}-{at}"))).collect();
    let others = asks.iter().map(|ask| async {
        run(store, ask).await;
        told.fetch_add(1, Ordering::SeqCst);
    });
    let locked = async {
        // A row that somebody has locked is somebody's who works on it.
        let taken_over = store.claim(locked).await;
        assert!(matches!(taken_over, Ok(Claimed::Busy { .. })), "{taken_over:?}");
        told.load(Ordering::SeqCst)
    };
    let (told_before, _) = join(locked, timeout(PATIENCE, join_all(others))).await;
    told_before == asks.len()
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

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_caller_has_one_connection_and_many_have_lanes() {
    let bench = PostgresBench::new();
    let name = format!("alone in {}", bench.schema);
    let store = bench.store_named(&name).await;
    // What goes over the one for scans and the one that listens is other than this.
    let carrying = || {
        let sql = format!(
            "select count(*) from pg_stat_activity where application_name = '{name}' \
             and query like '%.keys as k%'"
        );
        SERVER.sql(DATABASE, &sql)
    };
    for at in 0..20 {
        complete(&store, &ask(&format!("alone-{at}"))).await;
    }
    assert_eq!(carrying(), "1");
    let asks: Vec<_> = (0..50).map(|at| ask(&format!("beside-{at}"))).collect();
    join_all(asks.iter().map(|ask| complete(&store, ask))).await;
    assert_ne!(carrying(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_looks_at_each_row_where_it_lies() {
    let bench = PostgresBench::unused();
    let (name, loader_name) = (format!("{} sweep", bench.schema), format!("{} fill", bench.schema));
    let loader = bench.store_named(&loader_name).await;
    let asks: Vec<_> = (0..500).map(|at| ask(&format!("k-{at}"))).collect();
    join_all(asks.iter().map(|ask| complete(&loader, ask))).await;
    end(&bench, loader, &loader_name).await;
    let before = reads(&bench).await;
    let store = bench.store_named(&name).await;
    while !store.sweep(50).await.expect("the store works").finished {}
    end(&bench, store, &name).await;
    assert_eq!(reads(&bench).await, before, "neither the whole table is read, nor an index");
}
