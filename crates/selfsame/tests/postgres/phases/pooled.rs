//! Phases of a service whose keys and whose own rows are behind a pooler in transaction mode.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use selfsame::Policy;
use selfsame::phases::{PhaseError, Phases};
use selfsame::stores::PostgresStore;
use selfsame_test_postgres::Pooler;
use tokio_postgres::types::Type;

use super::answers::{Handler, answer, assert_replays, send};
use super::{Ride, Rides, failure, stopped};
use crate::pooler::{SESSIONS, client};
use crate::support::{DATABASE, PostgresBench, SERVER, USER, options};

/// A pooler whose few sessions no other test takes.
static POOLER: LazyLock<Pooler> = LazyLock::new(|| Pooler::start(&SERVER, &[USER], SESSIONS));

async fn pooled() -> Rides {
    let bench = PostgresBench::new();
    bench.owner().await;
    let url = format!("{}?pooler=transaction", POOLER.url(USER, DATABASE));
    let options = options(&bench.schema).time_out(Duration::from_secs(60));
    let store = PostgresStore::open(&url, options).await;
    Rides::over(bench, store.expect("the user may open it")).await
}

/// A phase that books a ride with this note, in a transaction through the pooler.
async fn book(run: &mut Phases, table: &str, note: &str) -> Result<Ride, PhaseError> {
    let mut db = client(&POOLER.url(USER, DATABASE)).await;
    let sql = format!("insert into {table} (note, record) values ($1, $2) returning id");
    let record = run.record().to_vec();
    run.phase("ride_created", async |phase| {
        let tx = db.transaction().await?;
        let row = tx.query_typed(&sql, &[(&note, Type::TEXT), (&record, Type::BYTEA)]).await?;
        phase.commit(tx, Ride { id: row[0].get(0), note: note.to_owned() }).await
    })
    .await
}

/// Stops behind the phase at first, and behind the foreign effect then.
async fn ride(mut run: Phases, table: String, attempt: usize) -> Result<String, PhaseError> {
    let ride = book(&mut run, &table, &format!("attempt {attempt}")).await?;
    if attempt == 1 {
        return stopped();
    }
    let charge = run.call("charge_created", async |key| Ok(key.into_string())).await?;
    if attempt == 2 { stopped() } else { Ok(format!("{charge} for {}", ride.note)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn phases_behind_a_pooler_are_finished_once_each() {
    let rides = pooled().await;
    let all = (0..10).map(|number| {
        let (rides, key) = (&rides, format!("k-{number}"));
        async move {
            for attempt in 1..=2 {
                let table = rides.table();
                failure(rides.attempt(&key, move |run| ride(run, table, attempt)).await);
            }
            let table = rides.table();
            rides.attempt(&key, move |run| ride(run, table, 3)).await.expect("it ends")
        }
    });
    let ended = join_all(all).await;
    assert!(ended.iter().all(|note| note.ends_with(" for attempt 1")), "{ended:?}");
    assert_eq!(rides.notes().await, ["attempt 1"; 10]);
    assert_eq!(rides.journal().await.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_behind_a_pooler_is_committed_with_the_last_rows() {
    let rides = pooled().await;
    let table = rides.table();
    let handler: Handler = Arc::new(move |run| {
        let sql = format!("insert into {table} (note) values ('booked')");
        Box::pin(async move {
            let mut db = client(&POOLER.url(USER, DATABASE)).await;
            let tx = db.transaction().await.expect("it begins");
            tx.query_typed(&sql, &[]).await.expect("it is written");
            run.finish_with(tx, answer("booked")).await.expect("committed")
        })
    });
    let first = send(&rides.idempotency, Policy::new(), &handler).await;
    assert_eq!((first.status(), &first.body()[..]), (StatusCode::CREATED, &b"booked"[..]));
    assert_replays(&send(&rides.idempotency, Policy::new(), &handler).await, &first);
    assert_eq!(rides.notes().await, ["booked"]);
}
