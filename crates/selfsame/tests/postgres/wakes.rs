//! Those who wait on one node for a run on another.

use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame::OnceError;
use selfsame::stores::PostgresStore;
use selfsame_test_postgres::Server;
use tokio::time::sleep;

use crate::shared_waits::{Gate, SOON, call, ended_elsewhere, node};
use crate::support::{DATABASE, PostgresBench, SERVER, USER, options};

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
    let gate = Gate::for_so_many(0);
    let keys: Vec<_> = (0..50).map(|number| format!("k-{number}")).collect();
    let runs = join_all(keys.iter().map(|key| call(&first, key, &gate, Ok("done"))));
    let waits = async {
        let many = keys.iter().cycle().take(1000);
        join_all(many.map(|key| call(&second, key, &gate, Ok("again")))).await
    };
    let looks = async {
        sleep(Duration::from_millis(1200)).await;
        let sql = format!(
            "select count(*) from pg_stat_activity where application_name = '{}'",
            bench.schema
        );
        let count = SERVER.sql(DATABASE, &sql);
        gate.open.add_permits(keys.len());
        count
    };
    let waits_and_looks = async {
        gate.until_begun(50).await;
        join(waits, looks).await
    };
    let (ran, (waited, connections)) = join(runs, waits_and_looks).await;
    assert!(ran.iter().chain(&waited).all(|(told, _)| told.as_deref().ok() == Some("done")));
    assert!(connections.parse::<usize>().expect("a number") <= 2 * 7, "{connections}");
}
