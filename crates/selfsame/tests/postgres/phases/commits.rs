//! A commit that comes too late, or is not acknowledged.

use std::time::Duration;

use selfsame::BoxError;
use selfsame::phases::{Param, PhaseError, Phases, Transaction};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{LEASE, MARGIN};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use super::{Ride, Rides, attempt_by, book, db, failure, stopped};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_lost_its_claim_commits_nothing() {
    let rides = Rides::open().await;
    let (inside, is_inside) = oneshot::channel();
    let (go_on, goes_on) = oneshot::channel();
    let table = rides.table();
    let stale = rides.attempt("k", |mut run| async move {
        let mut db = db().await;
        let sql = format!("insert into {table} (note) values ('stale')");
        run.phase("ride_created", async |phase| {
            let tx = db.transaction().await?;
            tx.execute(&sql, &[]).await?;
            inside.send(()).expect("somebody waits");
            goes_on.await?;
            phase.commit(tx, "stale".to_owned()).await
        })
        .await
    });
    let fresh = async {
        is_inside.await.expect("it comes so far");
        rides.bench.pass(LEASE + MARGIN).await;
        let table = rides.table();
        let other = rides.another_process().await;
        let fresh = attempt_by(&other, "k", |mut run| async move {
            Ok(book(&mut run, "ride_created", &table, "fresh").await?.note)
        });
        let fresh = fresh.await;
        go_on.send(()).expect("the other waits");
        fresh
    };
    let (stale, fresh) = tokio::join!(stale, fresh);
    assert!(matches!(failure(stale), PhaseError::Lost));
    assert_eq!(fresh.expect("it took over"), "fresh");
    assert_eq!(rides.notes().await, ["fresh"]);
    assert_eq!(rides.journal().await, ["ride_created"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_lost_its_claim_notes_no_call() {
    let rides = Rides::open().await;
    let (inside, is_inside) = oneshot::channel();
    let (go_on, goes_on) = oneshot::channel();
    let stale = rides.attempt("k", |mut run| async move {
        run.call("charge_created", async |key| {
            inside.send(key.into_string()).expect("somebody waits");
            goes_on.await?;
            Ok("stale".to_owned())
        })
        .await
    });
    let fresh = async {
        let stale_key = is_inside.await.expect("it comes so far");
        rides.bench.pass(LEASE + MARGIN).await;
        let other = rides.another_process().await;
        let fresh = attempt_by::<(), _>(&other, "k", |mut run| async move {
            let call = run.call("charge_created", async |key| Ok(key.into_string()));
            assert_eq!(call.await?, stale_key, "whoever is called knows it as the same call");
            stopped()
        });
        failure(fresh.await);
        go_on.send(()).expect("the other waits");
    };
    let (stale, ()) = tokio::join!(stale, fresh);
    assert!(matches!(failure(stale), PhaseError::Lost));
    assert_eq!(rides.journal().await, ["charge_created"]);
}

/// What becomes of a commit whose acknowledgement never comes.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Commits,
    RollsBack,
    CommitsLater,
}

/// A transaction that never hears of its own end.
struct Unheard {
    client: Client,
    fate: Fate,
}

impl Unheard {
    async fn begin(fate: Fate) -> Self {
        let client = db().await;
        client.batch_execute("begin").await.expect("it begins");
        Self { client, fate }
    }
}

impl Transaction for Unheard {
    async fn number(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Option<i64>, BoxError> {
        let params: Vec<_> = params
            .iter()
            .map(|param| -> &(dyn tokio_postgres::types::ToSql + Sync) {
                match param {
                    Param::Bytes(bytes) => bytes,
                    Param::Text(text) => text,
                    Param::Number(number) => number,
                }
            })
            .collect();
        let row = self.client.query_opt(sql, &params).await?;
        Ok(row.map(|row| row.get(row.len() - 1)))
    }

    async fn commit(self) -> Result<(), BoxError> {
        let Self { client, fate } = self;
        match fate {
            Fate::Commits => client.batch_execute("commit").await?,
            Fate::RollsBack => client.batch_execute("rollback").await?,
            Fate::CommitsLater => {
                #[expect(clippy::disallowed_methods, reason = "it plays the server's part")]
                tokio::spawn(async move {
                    sleep(Duration::from_millis(300)).await;
                    client.batch_execute("commit").await.expect("it commits");
                });
            }
        }
        Err("the connection was lost".into())
    }
}

async fn book_unheard(run: &mut Phases, table: &str, fate: Fate) -> Result<Ride, PhaseError> {
    let sql = format!("insert into {table} (note) values ('unheard') returning id");
    run.phase("ride_created", async |phase| {
        let tx = Unheard::begin(fate).await;
        let id = tx.client.query_one(&sql, &[]).await?.get(0);
        phase.commit(tx, Ride { id, note: "unheard".to_owned() }).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_not_acknowledged_is_settled_by_the_journal() {
    for fate in [Fate::Commits, Fate::CommitsLater] {
        let rides = Rides::open().await;
        let table = rides.table();
        let begun = Instant::now();
        let attempt = rides.attempt("k", move |mut run| async move {
            let ride = book_unheard(&mut run, &table, fate).await?;
            book(&mut run, "next", &table, "next").await?;
            Ok(ride.note)
        });
        assert_eq!(attempt.await.expect("it was committed"), "unheard");
        let has_waited = begun.elapsed() >= Duration::from_millis(300);
        assert!(has_waited || fate == Fate::Commits, "an open transaction is waited for");
        assert_eq!(rides.notes().await, ["unheard", "next"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_came_to_nothing_is_told_and_can_be_tried_again() {
    let rides = Rides::open().await;
    let table = rides.table();
    let attempt = rides.attempt("k", |mut run| async move {
        let error = book_unheard(&mut run, &table, Fate::RollsBack).await;
        assert!(matches!(error, Err(PhaseError::NotCommitted { .. })), "{error:?}");
        Ok(book(&mut run, "ride_created", &table, "again").await?.note)
    });
    assert_eq!(attempt.await.expect("it worked"), "again");
    assert_eq!(rides.notes().await, ["again"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_refuses_is_told() {
    let rides = Rides::open().await;
    let attempt = rides.attempt::<(), _>("k", |mut run| async move {
        let mut db = db().await;
        run.phase("ride_created", async |phase| {
            let tx = db.transaction().await?;
            let _failed = tx.execute("select 1 / 0", &[]).await;
            phase.commit(tx, ()).await
        })
        .await
    });
    let error = failure(attempt.await);
    assert!(matches!(error, PhaseError::NotCommitted { .. }), "{error:?}");
    assert!(rides.journal().await.is_empty());
}
