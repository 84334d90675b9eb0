//! Runs in phases: what is finished stays so, and nothing is finished twice.

mod answers;
mod commits;
#[cfg(all(feature = "deadpool", feature = "sqlx"))]
mod drivers;
mod life;
mod pooled;

use std::error::Error;
use std::sync::Arc;

use selfsame::phases::{PhaseError, Phases};
use selfsame::stores::{MemoryStore, PostgresStore};
use selfsame::{Idempotency, Key, OnceError, Run, Sweeping};
use selfsame_core::{Find, Inspect};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use crate::support::{PostgresBench, USER, session_of};

/// A service that keeps rides in a table of its own, in the database of its keys.
pub(crate) struct Rides {
    bench: PostgresBench,
    store: Arc<PostgresStore>,
    idempotency: Idempotency,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Ride {
    id: i64,
    note: String,
}

impl Rides {
    pub(crate) async fn open() -> Self {
        let bench = PostgresBench::new();
        let store = bench.store().await;
        Self::over(bench, store).await
    }

    /// Over a store that was opened on `bench`.
    async fn over(bench: PostgresBench, store: PostgresStore) -> Self {
        let schema = &bench.schema;
        let table = format!(
            "create table if not exists {schema}.rides (
               id     bigserial primary key,
               note   text not null,
               record bytea references {schema}.keys (id) on delete set null
             );
             truncate {schema}.rides;
             grant select, insert, update on {schema}.rides to {USER};
             grant usage on sequence {schema}.rides_id_seq to {USER}"
        );
        bench.owner().await.batch_execute(&table).await.expect("the owner may");
        let store = Arc::new(store);
        let idempotency = Idempotency::open(store.clone()).await.expect("the store is there");
        // Tests sweep by hand.
        let idempotency = idempotency.sweeping(Sweeping::off());
        Self { bench, store, idempotency }
    }

    /// The table of rides.
    fn table(&self) -> String {
        format!("{}.rides", self.bench.schema)
    }

    /// The notes of all rides.
    async fn notes(&self) -> Vec<String> {
        self.column(&format!("select note from {} order by id", self.table())).await
    }

    /// The names in the journal.
    async fn journal(&self) -> Vec<String> {
        let sql = format!("select name from {}.journal order by id, ordinal", self.bench.schema);
        self.column(&sql).await
    }

    /// What operators are told of a key.
    async fn recovery_point(&self, key: &str) -> Option<String> {
        let found = self.store.find(&Find::Key(key.to_owned()), 2).await.expect("it is whole");
        assert_eq!(found.len(), 1);
        found[0].checkpoint.as_ref().map(|checkpoint| checkpoint.recovery_point.clone())
    }

    async fn column(&self, sql: &str) -> Vec<String> {
        let rows = self.bench.owner().await.query(sql, &[]).await.expect("the owner may");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Makes an attempt at the work of `key`. It ends with `work`'s result as it is.
    async fn attempt<T, F>(
        &self,
        key: &str,
        work: impl FnOnce(Phases) -> F + Send + 'static,
    ) -> Result<T, OnceError<PhaseError>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: Future<Output = Result<T, PhaseError>> + Send + 'static,
    {
        attempt_by(&self.idempotency, key, work).await
    }

    /// Another process on the same store: none takes over what it still runs itself.
    async fn another_process(&self) -> Idempotency {
        Idempotency::open(self.store.clone()).await.expect("the store works")
    }
}

/// Makes an attempt at the work of `key` in this process.
async fn attempt_by<T, F>(
    process: &Idempotency,
    key: &str,
    work: impl FnOnce(Phases) -> F + Send + 'static,
) -> Result<T, OnceError<PhaseError>>
where
    T: Serialize + DeserializeOwned + Send + 'static,
    F: Future<Output = Result<T, PhaseError>> + Send + 'static,
{
    let key = Key::parse(key.as_bytes()).expect("a key");
    let call = process.once("ride", key);
    call.run(|run: Run| async move { work(run.phases().await?).await }).await
}

/// A session of the service.
async fn db() -> Client {
    session_of(USER).await
}

/// A phase that books a ride with this note.
async fn book(run: &mut Phases, name: &str, table: &str, note: &str) -> Result<Ride, PhaseError> {
    let mut db = db().await;
    let sql = format!("insert into {table} (note, record) values ($1, $2) returning id");
    let record = run.record().to_vec();
    run.phase(name, async |phase| {
        let tx = db.transaction().await?;
        let row = tx.query_one(&sql, &[&note, &record]).await?;
        phase.commit(tx, Ride { id: row.get(0), note: note.to_owned() }).await
    })
    .await
}

/// What a worker ends with that must not go on.
fn stopped<T>() -> Result<T, PhaseError> {
    let source = "the worker is stopped here".into();
    Err(PhaseError::Failed { phase: String::new(), source })
}

/// The error of an attempt that failed.
fn failure<T: std::fmt::Debug>(attempt: Result<T, OnceError<PhaseError>>) -> PhaseError {
    match attempt {
        Err(OnceError::Failed(error)) => error,
        other => panic!("the attempt must fail, not {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_phase_is_not_run_again() {
    let rides = Rides::open().await;
    let table = rides.table();
    let first = rides.attempt::<(), _>("k", |mut run| async move {
        book(&mut run, "ride_created", &table, "first").await?;
        stopped()
    });
    assert!(matches!(failure(first.await), PhaseError::Failed { .. }));
    assert_eq!(rides.recovery_point("k").await.as_deref(), Some("ride_created"));

    let table = rides.table();
    let second = rides.attempt("k", |mut run| async move {
        assert_eq!(run.attempt(), 2);
        let ride = book(&mut run, "ride_created", &table, "second").await?;
        let note =
            run.call("charge_created", async |_key| Ok(format!("paid {}", ride.note))).await?;
        Ok((ride.note, note))
    });
    let both = ("first".to_owned(), "paid first".to_owned());
    assert_eq!(second.await.expect("it goes on"), both);
    assert_eq!(rides.notes().await, ["first"]);
    assert_eq!(rides.journal().await, ["ride_created", "charge_created"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_interrupted_is_made_again_under_the_same_key() {
    let rides = Rides::open().await;
    let mut keys = Vec::new();
    for _ in 0..2 {
        let (used, seen) = tokio::sync::oneshot::channel();
        let attempt = rides.attempt::<(), _>("k", |mut run| async move {
            run.call("charge_created", async |key| {
                used.send(key.into_string()).expect("somebody listens");
                Err("the connection to the card processor was lost".into())
            })
            .await
        });
        let error = failure(attempt.await);
        assert!(error.to_string().contains("\"charge_created\""), "{error}");
        let cause = error.source().expect("the work's own error").to_string();
        assert!(cause.contains("card processor"), "{cause}");
        keys.push(seen.await.expect("it was called"));
    }
    assert_eq!(keys[0], keys[1]);

    let charged = |mut run: Phases| async move {
        let charge: String = run.call("charge_created", async |key| Ok(key.into_string())).await?;
        let receipt: String = run.call("receipt_sent", async |key| Ok(key.into_string())).await?;
        assert_ne!(charge, receipt);
        stopped::<String>()
    };
    failure(rides.attempt("k", charged).await);
    let noted = rides.attempt("k", |mut run| async move {
        run.call::<String>("charge_created", async |_| Err("not again".into())).await
    });
    assert_eq!(noted.await.expect("it was noted"), keys[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phase_that_failed_can_be_tried_again() {
    let rides = Rides::open().await;
    let table = rides.table();
    let attempt = rides.attempt("k", |mut run| async move {
        let failed = run.phase::<Ride>("ride_created", async |_| Err("a deadlock".into())).await;
        assert!(matches!(failed, Err(PhaseError::Failed { .. })), "{failed:?}");
        book(&mut run, "ride_created", &table, "again").await
    });
    assert_eq!(attempt.await.expect("it worked").note, "again");
}

/// A ride that was booked and not finished.
async fn interrupted() -> Rides {
    let rides = Rides::open().await;
    let table = rides.table();
    let first = rides.attempt::<(), _>("k", |mut run| async move {
        book(&mut run, "ride_created", &table, "first").await?;
        stopped()
    });
    failure(first.await);
    rides
}

/// What an attempt comes to that finds "ride_created" in the journal.
async fn resumed<T, F>(
    work: impl FnOnce(Phases, String) -> F + Send + 'static,
) -> (Rides, Result<T, OnceError<PhaseError>>)
where
    T: Serialize + DeserializeOwned + Send + std::fmt::Debug + 'static,
    F: Future<Output = Result<T, PhaseError>> + Send + 'static,
{
    let rides = interrupted().await;
    let table = rides.table();
    let second = rides.attempt("k", |run| work(run, table)).await;
    (rides, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_of_other_code_is_an_error_that_names_both() {
    let (rides, second) =
        resumed(
            |mut run, table| async move { book(&mut run, "ride_booked", &table, "second").await },
        )
        .await;
    let error = failure(second).to_string();
    assert!(error.contains("\"ride_created\"") && error.contains("\"ride_booked\""), "{error}");
    assert_eq!(rides.notes().await, ["first"]);

    let (_rides, second) = resumed(|run, _| async move {
        run.finish(http::Response::new(()))?;
        Ok(())
    })
    .await;
    let error = failure(second).to_string();
    assert!(error.contains("\"ride_created\"") && error.contains("\"finish\""), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_does_not_fit_the_code_is_an_error() {
    let (_rides, second) = resumed(|mut run, _| async move {
        run.phase::<u64>("ride_created", async |_| Err("it does not run".into())).await
    })
    .await;
    let error = failure(second);
    assert!(matches!(&error, PhaseError::Unreadable { phase, .. } if phase == "ride_created"));
    assert!(error.source().expect("a cause").to_string().contains("invalid type: map"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_bounds() {
    let rides = Rides::open().await;
    let table = rides.table();
    let attempt = rides.attempt::<(), _>("k", |mut run| async move {
        book(&mut run, "ride_created", &table, "first").await?;
        let twice = book(&mut run, "ride_created", &table, "second").await;
        assert!(matches!(twice, Err(PhaseError::Duplicate { .. })), "{twice:?}");
        for name in ["", "a\nb", &"x".repeat(256)] {
            let named = book(&mut run, name, &table, "unnamed").await;
            assert!(matches!(named, Err(PhaseError::Name { .. })), "{named:?}");
        }
        let large = book(&mut run, "large", &table, &"x".repeat(64 * 1024)).await;
        assert!(matches!(large, Err(PhaseError::TooLarge { bytes, .. }) if bytes > 64 * 1024));
        for at in 1..256 {
            run.call(&format!("call {at}"), async |_| Ok(())).await?;
        }
        let more = run.call("one more", async |_| Ok(())).await;
        assert!(matches!(more, Err(PhaseError::TooMany)), "{more:?}");
        stopped()
    });
    failure(attempt.await);
    assert_eq!(rides.notes().await, ["first"], "what was refused left no row");
    let all = rides.attempt("k", |mut run| async move {
        run.phase::<Ride>("ride_created", async |_| Err("finished".into())).await?;
        for at in 1..256 {
            run.call::<()>(&format!("call {at}"), async |_| Err("finished".into())).await?;
        }
        Ok("all".to_owned())
    });
    assert_eq!(all.await.expect("the whole journal is read"), "all");
}

#[tokio::test(flavor = "multi_thread")]
async fn phases_are_asked_for_once() {
    let rides = Rides::open().await;
    let call = rides.idempotency.once("ride", Key::parse(b"k").expect("a key"));
    let attempt = call.run(|run| async move {
        let _first = run.clone().phases().await?;
        run.phases().await.map(|_| ())
    });
    assert!(matches!(failure(attempt.await), PhaseError::Begun));
}

#[tokio::test]
async fn other_stores_have_no_phases() {
    let idempotency = Idempotency::open(Arc::new(MemoryStore::new())).await.expect("it opens");
    let call = idempotency.once("ride", Key::parse(b"k").expect("a key"));
    let attempt = call.run(|run| async move { run.phases().await.map(|_| ()) }).await;
    let error = failure(attempt);
    assert!(error.to_string().contains("PostgresStore"), "{error}");
}
