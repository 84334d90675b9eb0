//! A journal lives as long as its key does, and rows that refer to the key outlive it.

use std::time::Duration;

use selfsame::phases::PhaseError;
use selfsame::{Key, Policy};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{MARGIN, RETENTION};
use selfsame_core::{Find, Inspect, Release, Store, Sweep};
use tokio::sync::oneshot;

use super::{Rides, book, db, failure, interrupted, stopped};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_new_again_has_no_journal() {
    let rides = interrupted().await;
    rides.bench.pass(RETENTION + MARGIN).await;
    let table = rides.table();
    let born_again = rides.attempt("k", |mut run| async move {
        assert_eq!(run.attempt(), 1);
        Ok(book(&mut run, "ride_created", &table, "born again").await?.note)
    });
    assert_eq!(born_again.await.expect("it is new"), "born again");
    assert_eq!(rides.notes().await, ["first", "born again"]);
    assert_eq!(rides.journal().await, ["ride_created"], "the earlier life's is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_takes_the_journal_and_frees_the_rows_that_refer_to_the_key() {
    let rides = interrupted().await;
    let referring = format!("select note from {} where record is not null", rides.table());
    assert_eq!(rides.column(&referring).await, ["first"]);
    rides.bench.pass(RETENTION + MARGIN).await;
    let swept = rides.store.sweep(100).await.expect("the store works");
    assert_eq!(swept.removed, 1, "{swept:?}");
    assert!(rides.journal().await.is_empty());
    assert_eq!(rides.notes().await, ["first"], "the ride is still there");
    assert!(rides.column(&referring).await.is_empty(), "and refers to nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_has_no_journal() {
    let rides = Rides::open().await;
    let table = rides.table();
    let policy = Policy::new().remember(RETENTION);
    let call = rides.idempotency.once("ride", Key::parse(b"k").expect("a key")).policy(policy);
    let ran = call.run(|run| async move {
        let mut run = run.phases().await?;
        Ok::<_, PhaseError>(book(&mut run, "ride_created", &table, "first").await?.note)
    });
    ran.await.expect("it ran");
    rides.bench.pass(RETENTION + MARGIN).await;
    let swept = rides.store.sweep(100).await.expect("the store works");
    assert_eq!(swept.buried, 1, "{swept:?}");
    assert!(rides.journal().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_a_finished_phase_is_not_forgotten() {
    let rides = Rides::open().await;
    let (table, store) = (rides.table(), rides.store.clone());
    let attempt = rides.attempt::<(), _>("k", |mut run| async move {
        book(&mut run, "ride_created", &table, "first").await?;
        let held = store.find(&Find::Key("k".to_owned()), 1).await.expect("it is there");
        let record = &held[0];
        let lease = selfsame_core::Lease {
            id: record.id,
            fence: record.fence,
            attempt_id: record.attempt_id,
            length: Duration::from_secs(30),
        };
        let _applied = store.release(&lease, Release::Forget).await.expect("the store works");
        stopped()
    });
    failure(attempt.await);
    assert_eq!(rides.recovery_point("k").await.as_deref(), Some("ride_created"));
    assert_eq!(rides.journal().await, ["ride_created"]);
}

/// A row that refers to the key locks it, a little. The heartbeat must not mind.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_phase_does_not_stop_its_own_heartbeat() {
    let rides = Rides::open().await;
    let (inside, is_inside) = oneshot::channel();
    let (go_on, goes_on) = oneshot::channel();
    let table = rides.table();
    let policy = Policy::new().lease(Duration::from_secs(1));
    let call = rides.idempotency.once("ride", Key::parse(b"k").expect("a key")).policy(policy);
    let long = call.run(|run| async move {
        let mut run = run.phases().await?;
        let (mut db, record) = (db().await, run.record().to_vec());
        let sql = format!("insert into {table} (note, record) values ('long', $1)");
        let phase = run.phase("ride_created", async |phase| {
            let tx = db.transaction().await?;
            tx.execute(&sql, &[&record]).await?;
            inside.send(()).expect("somebody waits");
            goes_on.await?;
            phase.commit(tx, ()).await
        });
        phase.await
    });
    let renewals = async {
        is_inside.await.expect("it comes so far");
        let until = format!("select state_at::text from {}.keys", rides.bench.schema);
        let before = rides.column(&until).await;
        for _ in 0..200 {
            if rides.column(&until).await != before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_ne!(rides.column(&until).await, before, "the lease was renewed");
        go_on.send(()).expect("the phase waits");
    };
    let (long, ()) = tokio::join!(long, renewals);
    long.expect("it is committed");
    assert_eq!(rides.notes().await, ["long"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_journal_is_an_error() {
    for damage in [
        "update JOURNAL set body = set_byte(body, 70, get_byte(body, 70) # 1)",
        "update JOURNAL set name = 'ride_booked'",
        "update JOURNAL set ordinal = 2",
        "delete from JOURNAL",
    ] {
        let rides = interrupted().await;
        let sql = damage.replace("JOURNAL", &format!("{}.journal", rides.bench.schema));
        rides.bench.owner().await.batch_execute(&sql).await.expect("the owner may");
        let attempt = rides.attempt::<(), _>("k", |_| async { stopped() });
        let error = failure(attempt.await);
        assert!(matches!(&error, PhaseError::Store(error) if error.is_damaged()), "{error:?}");
        assert_eq!(rides.notes().await, ["first"]);
    }
}
