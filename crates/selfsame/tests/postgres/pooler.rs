//! Through a pooler that gives each transaction another session of the server.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use selfsame::stores::{PostgresOptions, PostgresStore};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{MARGIN, RETENTION, ask};
use selfsame_core::{FullStore, Inspect, Store, StoreError, Sweep};
use selfsame_test_postgres::{PASSWORD, Pooler};
use tokio_postgres::{Client, NoTls};

use crate::shared_waits::{SOON, ended_elsewhere, ended_within, node};
use crate::support::{DATABASE, OWNER, PostgresBench, SERVER, USER, complete, options};
use crate::wakes::until_listening;

/// Fewer than one store has connections.
pub(crate) const SESSIONS: usize = 2;

static POOLER: LazyLock<Pooler> =
    LazyLock::new(|| Pooler::start(&SERVER, &[OWNER, USER], SESSIONS));

fn url() -> String {
    format!("{}?pooler=transaction", POOLER.url(USER, DATABASE))
}

/// A schema that is reached through the pooler.
pub(crate) struct PooledBench(PostgresBench);

impl PooledBench {
    pub(crate) fn new() -> Self {
        Self(PostgresBench::new())
    }

    fn options(&self) -> PostgresOptions {
        options(&self.0.schema)
    }

    async fn store(&self) -> PostgresStore {
        self.0.owner().await;
        PostgresStore::open(&url(), self.options()).await.expect("the user may open it")
    }
}

#[async_trait]
impl Bench for PooledBench {
    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(self.store().await)
    }

    fn is_durable(&self) -> bool {
        true
    }

    async fn pass(&self, time: Duration) {
        self.0.pass(time).await;
    }
}

/// A connection of a service's own.
pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it lets us in");
    #[expect(clippy::disallowed_methods, reason = "a connection is driven by a task of its own")]
    tokio::spawn(connection);
    client
}

/// What `sql` says in each session behind `pooler`.
async fn in_all_sessions(pooler: &Pooler, sql: &str) -> Vec<String> {
    let mut held = Vec::new();
    let mut said = Vec::new();
    for _ in 0..SESSIONS {
        let client = client(&pooler.url(USER, DATABASE)).await;
        client.batch_execute("begin").await.expect("it has a session for us");
        for message in client.simple_query(sql).await.expect("it answers") {
            if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                said.push(row.get(0).unwrap_or_default().to_owned());
            }
        }
        held.push(client);
    }
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_in_the_sessions_of_others() {
    let bench = PooledBench::new();
    bench.0.owner().await;
    let pooler = Pooler::start(&SERVER, &[OWNER, USER], SESSIONS);
    let url = format!("{}?pooler=transaction", pooler.url(USER, DATABASE));
    let store = PostgresStore::open(&url, bench.options()).await.expect("the user may");
    let asks: Vec<_> = (0..50).map(|number| ask(&format!("k-{number}"))).collect();
    join_all(asks.iter().map(|ask| complete(&store, ask))).await;
    store.sweep(10).await.expect("the store works");
    for setting in ["show enable_seqscan", "show jit", "show plan_cache_mode"] {
        let said = in_all_sessions(&pooler, setting).await;
        assert!(said.iter().all(|said| said == "on" || said == "auto"), "{setting}: {said:?}");
    }
    let left = "select name from pg_prepared_statements \
                union all select 'lock' from pg_locks where locktype = 'advisory' \
                and pid = pg_backend_pid()";
    assert_eq!(in_all_sessions(&pooler, left).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_sweeps_at_a_time_without_a_lock() {
    let bench = PooledBench::new();
    let store = bench.store().await;
    complete(&store, &ask("early")).await;
    bench.pass(RETENTION + MARGIN).await;
    let schema = &bench.0.schema;
    let another = format!(
        "insert into {schema}.facts values ('sweeper', int8send({schema}.clock() + 60000) || 'it')"
    );
    bench.0.owner().await.batch_execute(&another).await.expect("the owner may");
    assert_eq!(store.sweep(10).await.expect("the store works").removed, 0);
    // It has gone without a word.
    bench.pass(Duration::from_secs(61)).await;
    assert_eq!(store.sweep(10).await.expect("the store works").removed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_finds_by_looking_what_it_cannot_hear() {
    let bench = PooledBench::new();
    let (first, second) = (node(bench.store().await).await, node(bench.store().await).await);
    // One that waited for a bell would look 2.7 s later.
    let limit = Duration::from_millis(2500);
    let (runs, waits, later) = ended_within(limit, &first, &second, Ok("by the first")).await;
    assert_eq!(runs.expect("it runs"), "by the first");
    assert_eq!(waits.expect("it waits"), "by the first");
    assert!(later < limit, "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_pooler_wake_ups_are_heard() {
    let bench = PooledBench::new();
    bench.0.owner().await;
    let options = bench.options().direct_url(SERVER.socket_url(USER, DATABASE));
    let url = POOLER.url(USER, DATABASE);
    let open = || PostgresStore::open(&url, options.clone());
    let first = node(open().await.expect("the user may")).await;
    let second = node(open().await.expect("the user may")).await;
    until_listening(&SERVER, &bench.0.schema, 2).await;
    let (runs, waits, later) = ended_elsewhere(&first, &second, Ok("by the first")).await;
    assert!(runs.is_ok() && waits.is_ok(), "{runs:?} {waits:?}");
    assert!(later < SOON, "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_can_be_made_through_a_pooler() {
    let schema = crate::support::fresh_schema();
    let url = format!("{}?pooler=transaction", POOLER.url(OWNER, DATABASE));
    let opened = join_all((0..4).map(|_| PostgresStore::open(&url, options(&schema)))).await;
    for store in opened {
        store.expect("one makes it").now().await.expect("it works");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_was_not_mentioned_is_guessed_when_it_shows() {
    let bench = PooledBench::new();
    bench.0.owner().await;
    let pooler = Pooler::start(&SERVER, &[OWNER, USER], SESSIONS);
    let url = pooler.url(USER, DATABASE);
    let store = PostgresStore::open(&url, bench.options()).await.expect("it looks like a server");
    // The pooler may change sessions at any time, so these claims may fail already.
    let mut errors = errors_of_claims(&store, "before").await;
    // Takes the session away in which the store has prepared its statements.
    let other = client(&url).await;
    other.batch_execute("begin").await.expect("it has a session for us");
    errors.extend(errors_of_claims(&store, "one").await);
    let is_guessed = |errors: &[StoreError]| {
        errors.iter().any(|error| error.to_string().contains("pooler=transaction"))
    };
    if !is_guessed(&errors) {
        // That was the other session. Now it is the only one that is left.
        let another = client(&url).await;
        another.batch_execute("begin").await.expect("it has a session for us");
        other.batch_execute("rollback").await.expect("it gives its session back");
        errors.extend(errors_of_claims(&store, "other").await);
    }
    assert!(errors.iter().all(StoreError::is_retryable), "{errors:?}");
    assert!(is_guessed(&errors), "{errors:?}");
}

/// Errors of ten claims, one after the other.
async fn errors_of_claims(store: &PostgresStore, name: &str) -> Vec<StoreError> {
    let mut errors = Vec::new();
    for number in 0..10 {
        errors.extend(store.claim(&ask(&format!("{name}-{number}"))).await.err());
    }
    errors
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_nobody_could_mend_are_refused() {
    let role = "careless";
    SERVER.sql(
        "postgres",
        &format!(
            "create role {role} login password '{PASSWORD}';
             alter role {role} set synchronous_commit = off"
        ),
    );
    let pooler = Pooler::start(&SERVER, &[role], SESSIONS);
    let url = format!("{}?pooler=transaction", pooler.url(role, DATABASE));
    let error =
        PostgresStore::open(&url, options("keys")).await.expect_err("answers would be lost");
    assert!(error.to_string().contains("synchronous_commit is off"), "{error}");
    SERVER.sql("postgres", &format!("alter role {role} reset synchronous_commit"));
    let isolation = format!("alter role {role} set default_transaction_isolation = 'serializable'");
    SERVER.sql("postgres", &isolation);
    let pooler = Pooler::start(&SERVER, &[role], SESSIONS);
    let url = format!("{}?pooler=transaction", pooler.url(role, DATABASE));
    let error = PostgresStore::open(&url, options("keys")).await.expect_err("claims would fail");
    assert!(error.to_string().contains("default_transaction_isolation"), "{error}");
}
