//! What is cleaned, and by whom.

use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame::stores::PostgresStore;
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{MARGIN, RETENTION, answer, ask, remembered, retry};
use selfsame_core::{Ask, Claimed, Fenced, Recorded, Release, Store, Sweep, Swept};
use tokio_postgres::types::ToSql;

use crate::support::{PostgresBench, complete, owner, run};

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
    let bench = PostgresBench::alone();
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
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody sweeps after whoever swept has gone");
}

/// The statement that deletes expired keys, as servers run it that follow a row to its new version:
/// those before 14.20, 15.15, 16.11 and 17.7.
fn expire_following_rows(schema: &str) -> String {
    let sql = include_str!("../../src/stores/postgres/expire.sql");
    let follow = sql
        .replace("select x.ctid as spot,", "select x.ctid as spot, x.id as id,")
        .replace("k.ctid = any (array(select spot ", "k.id = any (array(select id ")
        .replace("::tid[])", ")");
    assert!(!follow.contains("k.ctid"), "{follow}");
    let with_values = follow
        .replace("$1::text", "'(0,0)'")
        .replace("$2::text", "'(1000,0)'")
        .replace("$3::bigint", "1000")
        .replace("$4::boolean", "true");
    with_values.replace("selfsame.", &format!("{schema}."))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_claimed_anew_between_look_and_delete_stays() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    for key in ["first", "claimed-anew"] {
        complete(&store, &ask(key)).await;
    }
    bench.pass(RETENTION + MARGIN).await;
    let schema = &bench.schema;
    // The delete of the first row waits, with both rows looked at.
    let gate = format!("hashtext('{schema}. delete gate')");
    let trigger = format!(
        "create function {schema}.wait_to_delete() returns trigger language plpgsql as $$ begin
           perform pg_advisory_xact_lock_shared({gate}); return old;
         end $$;
         create trigger wait_to_delete before delete on {schema}.keys
           for each row execute function {schema}.wait_to_delete();
         select pg_advisory_lock({gate})"
    );
    bench.owner().await.batch_execute(&trigger).await.expect("the owner may");

    let sweeper = owner().await;
    let sql = expire_following_rows(schema);
    let (first, is_there) = (ask("first").id, format!("select 1 from {schema}.keys where id = $1"));
    let sweeping = async {
        let params: [&(dyn ToSql + Sync); 1] = [&&first.as_bytes()[..]];
        // A row stays while a transaction goes on that was there when the row was completed: another
        // test may have one.
        while !sweeper.query(&is_there, &params).await.expect("it is told").is_empty() {
            sweeper.batch_execute(&sql).await.expect("it deletes");
        }
    };
    let claiming = async {
        let waiting = format!(
            "select 1 from pg_locks where locktype = 'advisory' and not granted \
             and ((classid::bigint << 32) | objid::bigint) = {gate}::bigint"
        );
        while bench.owner().await.query(&waiting, &[]).await.expect("it is told").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let lease = run(&store, &retry(&ask("claimed-anew"))).await;
        let open = format!("select pg_advisory_unlock({gate})");
        bench.owner().await.batch_execute(&open).await.expect("the owner holds it");
        lease
    };
    let (_, lease) = join(sweeping, claiming).await;

    let drop_trigger = format!("drop function {schema}.wait_to_delete() cascade");
    bench.owner().await.batch_execute(&drop_trigger).await.expect("the owner may");
    let recorded = store.complete(&lease, &answer("second life")).await.expect("the store works");
    assert!(matches!(recorded, Recorded::Until(_)), "{recorded:?}");
}

/// A table whose rows refer to keys, dropped by whoever made it.
async fn orders(bench: &PostgresBench, constraint: &str, keys: &[&str]) -> String {
    let schema = &bench.schema;
    let rows: Vec<_> = keys.iter().map(|key| format!("('\\x{}')", ask(key).id)).collect();
    let sql = format!(
        "create table {schema}.orders (key bytea not null references {schema}.keys (id) {constraint});
         insert into {schema}.orders values {}",
        rows.join(", ")
    );
    bench.owner().await.batch_execute(&sql).await.expect("the owner may");
    format!("drop table {schema}.orders")
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_other_tables_refer_to_stay_and_stop_no_sweep() {
    for constraint in ["", "on delete set null", "deferrable initially deferred"] {
        let bench = PostgresBench::new();
        let store = bench.store().await;
        let asks: Vec<_> = (0..30).map(|at| ask(&format!("k-{at}"))).collect();
        join_all(asks.iter().map(|ask| complete(&store, ask))).await;
        complete(&store, &remembered("remembered")).await;
        let drop_orders = orders(&bench, constraint, &["k-3", "k-17"]).await;
        let before = days(&bench).await;
        bench.pass(RETENTION * 3).await;
        let removed = walk(&store, 10).await;
        assert_eq!(removed.iter().sum::<usize>(), 28, "{constraint}: {removed:?}");
        let after = days(&bench).await;
        assert!(after[0] > before[0], "old answers are dropped: {before:?} {after:?}");
        let kept = store.claim(&retry(&remembered("remembered"))).await.expect("the store works");
        assert_eq!(kept, Claimed::Expired, "it was buried");

        // One that stays is as new to who claims it.
        let lease = run(&store, &retry(&asks[3])).await;
        let recorded = store.complete(&lease, &answer("second")).await.expect("the store works");
        assert!(matches!(recorded, Recorded::Until(_)), "{recorded:?}");
        bench.owner().await.batch_execute(&drop_orders).await.expect("the owner may");
        assert_eq!(walk(&store, 10).await.iter().sum::<usize>(), 1, "{constraint}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_request_to_whose_key_a_row_refers_leaves_its_key_free() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    let lease = run(&store, &ask("denied")).await;
    let drop_orders = orders(&bench, "", &["denied"]).await;
    let released = store.release(&lease, Release::Forget).await.expect("the store works");
    assert_eq!(released, Fenced::Applied);
    run(&store, &retry(&ask("denied"))).await;
    bench.owner().await.batch_execute(&drop_orders).await.expect("the owner may");
}
