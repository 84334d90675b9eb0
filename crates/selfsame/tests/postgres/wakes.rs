//! Those who wait on one node for a run on another.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame::stores::PostgresStore;
use selfsame::{Idempotency, Key, OnConflict, OnceError, Policy};
use selfsame_test_postgres::Server;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::support::{DATABASE, PostgresBench, SERVER, USER, options};

/// When a waiter has last looked by itself, and long before it looks again.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2100);
/// How soon it must wake. A bell takes a few milliseconds, a look by itself a second.
pub(crate) const SOON: Duration = Duration::from_millis(250);

fn waiting() -> Policy {
    Policy::new().on_conflict(OnConflict::Wait).wait_max(Duration::from_secs(20))
}

pub(crate) async fn node(store: PostgresStore) -> Idempotency {
    Idempotency::open(Arc::new(store)).await.expect("the store works")
}

/// Waits until so many processes listen in `schema`.
pub(crate) async fn until_listening(server: &Server, schema: &str, count: usize) {
    let sql = format!(
        "select count(*) from pg_stat_activity where query like 'listen {schema};%' \
         and state = 'idle'"
    );
    while server.sql(DATABASE, &sql) != count.to_string() {
        sleep(Duration::from_millis(20)).await;
    }
}

fn key(text: &str) -> Key {
    Key::parse(text.as_bytes()).expect("a key")
}

/// A call on `node` that, if it runs, ends with `outcome` once there is a `gate` for it; and when
/// its caller was told.
async fn call(
    node: &Idempotency,
    text: &str,
    gate: &Arc<Semaphore>,
    outcome: Result<&'static str, &'static str>,
) -> (Result<String, OnceError<&'static str>>, Instant) {
    let gate = gate.clone();
    let work = move |_| async move {
        gate.acquire().await.expect("never closed").forget();
        outcome.map(str::to_owned)
    };
    let told = node.once("charge", key(text)).policy(waiting()).run(work).await;
    (told, Instant::now())
}

/// Two nodes, one of which runs `k` and ends so while the other waits; what each was told, and how
/// long after the first the second was.
pub(crate) async fn ended_elsewhere(
    first: &Idempotency,
    second: &Idempotency,
    outcome: Result<&'static str, &'static str>,
) -> (Result<String, OnceError<&'static str>>, Result<String, OnceError<&'static str>>, Duration) {
    let (gate, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(1)));
    let waits = async {
        sleep(Duration::from_millis(100)).await;
        call(second, "k", &open, Ok("by the second")).await
    };
    let ends = async {
        sleep(Duration::from_millis(100) + BETWEEN_LOOKS).await;
        gate.add_permits(1);
    };
    let (runs, (waits, ())) = join(call(first, "k", &gate, outcome), join(waits, ends)).await;
    (runs.0, waits.0, waits.1.saturating_duration_since(runs.1))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_wakes_when_the_run_ends_on_another_node() {
    let bench = PostgresBench::new();
    let (first, second) = (node(bench.store().await).await, node(bench.store().await).await);
    until_listening(&SERVER, &bench.schema, 2).await;
    let (runs, waits, later) = ended_elsewhere(&first, &second, Ok("by the first")).await;
    assert_eq!(runs.expect("it runs"), "by the first");
    assert_eq!(waits.expect("it waits"), "by the first");
    assert!(later < SOON, "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_runs_when_another_node_frees_the_key() {
    let bench = PostgresBench::new();
    let (first, second) = (node(bench.store().await).await, node(bench.store().await).await);
    until_listening(&SERVER, &bench.schema, 2).await;
    let (runs, waits, later) = ended_elsewhere(&first, &second, Err("no luck")).await;
    assert!(matches!(runs, Err(OnceError::Failed("no luck"))));
    assert_eq!(waits.expect("it runs"), "by the second");
    assert!(later < SOON, "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wake_ups_come_again_after_the_database_was_away() {
    let mut server = Server::start();
    server.sql("postgres", &format!("create database {DATABASE}"));
    let url = server.socket_url("postgres", DATABASE);
    let open = || PostgresStore::open(&url, options("keys"));
    let first = node(open().await.expect("the superuser may")).await;
    let second = node(open().await.expect("the superuser may")).await;
    until_listening(&server, "keys", 2).await;
    server.crash();
    server.start_again();
    until_listening(&server, "keys", 2).await;
    let (runs, waits, later) = ended_elsewhere(&first, &second, Ok("by the first")).await;
    assert!(runs.is_ok() && waits.is_ok(), "{runs:?} {waits:?}");
    assert!(later < SOON, "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_waiters_hold_no_connection() {
    let bench = PostgresBench::new();
    bench.owner().await;
    let url = SERVER.socket_url(USER, DATABASE);
    let url = format!("{url}?application_name={}", bench.schema);
    let open = || PostgresStore::open(&url, options(&bench.schema));
    let first = node(open().await.expect("the user may")).await;
    let second = node(open().await.expect("the user may")).await;
    let gate = Arc::new(Semaphore::new(0));
    let keys: Vec<_> = (0..50).map(|number| format!("k-{number}")).collect();
    let runs = join_all(keys.iter().map(|key| call(&first, key, &gate, Ok("done"))));
    let waits = async {
        sleep(Duration::from_millis(300)).await;
        let many = keys.iter().cycle().take(1000);
        join_all(many.map(|key| call(&second, key, &gate, Ok("again")))).await
    };
    let looks = async {
        sleep(Duration::from_millis(1500)).await;
        let sql = format!(
            "select count(*) from pg_stat_activity where application_name = '{}'",
            bench.schema
        );
        let count = SERVER.sql(DATABASE, &sql);
        gate.add_permits(keys.len());
        count
    };
    let (ran, (waited, connections)) = join(runs, join(waits, looks)).await;
    assert!(ran.iter().chain(&waited).all(|(told, _)| told.as_deref().ok() == Some("done")));
    assert!(connections.parse::<usize>().expect("a number") <= 2 * 7, "{connections}");
}
