//! What is cleaned, and by whom.

use futures_util::future::join_all;
use selfsame::stores::PostgresStore;
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{MARGIN, RETENTION, ask, remembered, retry};
use selfsame_core::{Ask, Claimed, Store, Sweep, Swept};

use crate::support::{PostgresBench, complete, owner};

/// The days for which there are tables of answers, counted from 1970.
async fn days(bench: &PostgresBench) -> Vec<i64> {
    let sql = format!(
        "select substr(c.relname, 9)::bigint from pg_inherits i join pg_class c \
         on c.oid = i.inhrelid where i.inhparent = '{}.answers'::regclass order by 1",
        bench.schema
    );
    let days = bench.owner().await.query(&sql, &[]).await.expect("the catalogue is open");
    days.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_leave_by_the_day_and_their_days_are_made_ahead() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    complete(&store, &ask("plain")).await;
    complete(&store, &remembered("remembered")).await;
    complete(&store, &Ask { retention: RETENTION * 400, ..ask("long") }).await;
    let swept = store.sweep(100).await.expect("the store works");
    assert!(swept.finished && swept.removed == 0, "{swept:?}");
    let before = days(&bench).await;
    let today = before[0];
    for ahead in [1, 2, 3, 400] {
        assert!(before.contains(&(today + ahead)), "{before:?}");
    }

    bench.pass(RETENTION * 3).await;
    let swept = store.sweep(100).await.expect("the store works");
    assert_eq!((swept.removed, swept.buried), (1, 1), "{swept:?}");
    let after = days(&bench).await;
    assert!(after[0] >= today + 2 && after.contains(&(today + 400)), "{before:?} {after:?}");
    let claimed = store.claim(&retry(&remembered("remembered"))).await.expect("the store works");
    assert_eq!(claimed, Claimed::Expired);
    let kept = store.claim(&retry(&ask("long"))).await.expect("the store works");
    assert!(matches!(kept, Claimed::Replay(_)), "{kept:?}");
}

/// What the tables take, in bytes.
async fn bytes(bench: &PostgresBench) -> i64 {
    let sql = format!(
        "select pg_total_relation_size('{0}.keys') + (select sum(pg_total_relation_size(inhrelid)) \
         from pg_inherits where inhparent = '{0}.answers'::regclass)::bigint",
        bench.schema
    );
    bench.owner().await.query_one(&sql, &[]).await.expect("it is told").get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn days_of_churn_do_not_make_the_tables_grow() {
    const STEPS: u32 = 6;
    let bench = PostgresBench::new();
    let store = bench.store().await;
    let mut most = Vec::new();
    for day in 0..4 {
        let mut of_day = 0;
        for step in 0..STEPS {
            let asks: Vec<_> = (0..200).map(|at| ask(&format!("{day}-{step}-{at}"))).collect();
            join_all(asks.iter().map(|ask| complete(&store, ask))).await;
            bench.pass(RETENTION / STEPS).await;
            while !store.sweep(100).await.expect("the store works").finished {}
            // A real day has time for it.
            let vacuum = format!("vacuum {}.keys", bench.schema);
            bench.owner().await.batch_execute(&vacuum).await.expect("the owner may");
            of_day = of_day.max(bytes(&bench).await);
        }
        most.push(of_day);
    }
    // On the first day they fill, on the second the first records leave.
    assert!(most[3] * 10 <= most[2] * 11, "bytes, day by day: {most:?}");
}

/// Removes what expired, `most` at a time, and returns what each step removed.
async fn walk(store: &PostgresStore, most: usize) -> Vec<usize> {
    let mut removed = Vec::new();
    loop {
        let swept = store.sweep(most).await.expect("the store works");
        removed.push(swept.removed);
        if swept.finished {
            return removed;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_looks_at_no_more_than_it_may_and_a_walk_at_all() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    let asks: Vec<_> = (0..100).map(|at| ask(&format!("k-{at}"))).collect();
    join_all(asks.iter().map(|ask| complete(&store, ask))).await;
    bench.pass(RETENTION + MARGIN).await;
    let late = ask("late");
    complete(&store, &late).await;
    let removed = walk(&store, 7).await;
    assert_eq!(removed.iter().sum::<usize>(), 100, "{removed:?}");
    assert!(removed.iter().all(|step| *step <= 7), "{removed:?}");
    let kept = store.claim(&retry(&late)).await.expect("the store works");
    assert!(matches!(kept, Claimed::Replay(_)), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_has_locked_stays_and_delays_no_sweep() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    for key in ["locked", "free"] {
        complete(&store, &ask(key)).await;
    }
    bench.pass(RETENTION + MARGIN).await;
    let owner = owner().await;
    let lock = format!(
        "begin; select 1 from {}.keys where id = '\\x{}' for key share",
        bench.schema,
        ask("locked").id
    );
    owner.batch_execute(&lock).await.expect("the owner may");
    assert_eq!(walk(&store, 10).await, [1]);
    owner.batch_execute("rollback").await.expect("it lets go");
    assert_eq!(walk(&store, 10).await, [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rivals_for_one_day_make_its_table_once() {
    let bench = PostgresBench::new();
    let before = days(&bench).await;
    let sessions = join_all((0..8).map(|_| owner())).await;
    for day in 70_000..70_010 {
        let sql = format!("select {}.make_answers(array[{day}, {}])", bench.schema, day + 1);
        for made in join_all(sessions.iter().map(|session| session.batch_execute(&sql))).await {
            made.expect("one makes it, the others find it made");
        }
    }
    assert_eq!(days(&bench).await.len(), before.len() + 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_sweeps_at_a_time() {
    let bench = PostgresBench::new();
    let (first, second) = (bench.store().await, bench.store().await);
    complete(&first, &ask("early")).await;
    assert!(first.sweep(10).await.expect("the store works").finished);
    bench.pass(RETENTION + MARGIN).await;
    let nothing = Swept { finished: true, ..Swept::default() };
    assert_eq!(second.sweep(10).await.expect("the store works"), nothing);
    drop(first);
    for _ in 0..500 {
        if second.sweep(10).await.expect("the store works").removed == 1 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("nobody sweeps after whoever swept has gone");
}
