//! One server for all tests here, and a schema for each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use selfsame::stores::{PostgresOptions, PostgresStore};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::answer;
use selfsame_core::{Ask, Claimed, FullStore, Lease, Recorded, Store};
use selfsame_test_postgres::{PASSWORD, Server, settable_clock};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

/// The server of this test binary. Its guardian stops it.
pub(crate) static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let server = Server::start();
    make_roles(&server);
    server
});

/// Who owns the schemas, and who only uses them.
pub(crate) const OWNER: &str = "keys_owner";
pub(crate) const USER: &str = "keys_user";
pub(crate) const DATABASE: &str = "keys";

/// Makes the database, its owner, and a role that may do no more than a store must.
pub(crate) fn make_roles(server: &Server) {
    server.sql(
        "postgres",
        &format!(
            "create role {OWNER} login password '{PASSWORD}';
             create role {USER} login password '{PASSWORD}'"
        ),
    );
    server.sql("postgres", &format!("create database {DATABASE} owner {OWNER}"));
}

/// What docs/POSTGRES.md lets that role do.
pub(crate) fn grants(schema: &str) -> String {
    format!(
        "grant usage on schema {schema} to {USER};
         grant select on {schema}.migrations to {USER};
         grant select, insert, update, delete on {schema}.keys, {schema}.checkpoints to {USER};
         grant select, insert, delete on {schema}.journal to {USER};
         grant select, insert, delete on {schema}.answers to {USER};
         grant select, insert, update on {schema}.facts to {USER};
         grant insert on {schema}.audit to {USER};
         grant usage on sequence {schema}.answer_rows to {USER};
         grant execute on function {schema}.make_answers(integer[]), {schema}.drop_answers()
           to {USER};"
    )
}

/// A schema that no other test has.
pub(crate) fn fresh_schema() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn options(schema: &str) -> PostgresOptions {
    PostgresOptions::default().schema(schema)
}

/// A session of the owner.
pub(crate) async fn owner() -> Client {
    session_of(OWNER).await
}

/// A session of this role.
pub(crate) async fn session_of(role: &str) -> Client {
    session_in(DATABASE, role).await
}

async fn session_in(database: &str, role: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(&SERVER.socket_url(role, database), NoTls)
        .await
        .expect("the role may connect");
    #[expect(clippy::disallowed_methods, reason = "a connection is driven by a task of its own")]
    tokio::spawn(connection);
    client
}

/// Schemas that benches have made and need no more.
static USED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A schema in which time passes when a test says so.
pub(crate) struct PostgresBench {
    database: String,
    pub(crate) schema: String,
    is_used: bool,
    owner: OnceCell<Client>,
}

impl PostgresBench {
    pub(crate) fn new() -> Self {
        match USED.lock().expect("no panic holds it").pop() {
            Some(schema) => Self::in_database(DATABASE, schema, true),
            None => Self::unused(),
        }
    }

    /// A schema that no test used before, of whose tables no session of an earlier test is still to report what it
    /// read.
    pub(crate) fn unused() -> Self {
        Self::in_database(DATABASE, fresh_schema(), false)
    }

    /// A schema in a database of its own: open transactions of other tests keep no dead row of its tables.
    pub(crate) fn alone() -> Self {
        let schema = fresh_schema();
        SERVER.sql("postgres", &format!("create database {schema} owner {OWNER}"));
        Self::in_database(&schema, schema.clone(), false)
    }

    fn in_database(database: &str, schema: String, is_used: bool) -> Self {
        Self { database: database.to_owned(), schema, is_used, owner: OnceCell::new() }
    }

    /// A session of the owner, over a schema without records.
    pub(crate) async fn owner(&self) -> &Client {
        let prepare = || async {
            if !self.is_used {
                let url = SERVER.socket_url(OWNER, &self.database);
                let store = PostgresStore::open(&url, options(&self.schema)).await;
                drop(store.expect("the owner may make its schema"));
            }
            let owner = session_in(&self.database, OWNER).await;
            let sql = if self.is_used { emptied(&self.schema) } else { settable(&self.schema) };
            owner.batch_execute(&sql).await.expect("the owner may change its schema");
            owner
        };
        self.owner.get_or_init(prepare).await
    }

    /// The store, opened by the role that may do no more than it must.
    pub(crate) async fn store(&self) -> PostgresStore {
        self.store_named("selfsame").await
    }

    /// The same, with sessions of that name.
    pub(crate) async fn store_named(&self, name: &str) -> PostgresStore {
        self.owner().await;
        let name = name.replace(' ', "%20");
        let url = format!("{}?application_name={name}", SERVER.socket_url(USER, &self.database));
        PostgresStore::open(&url, options(&self.schema)).await.expect("the user may open it")
    }
}

impl Drop for PostgresBench {
    fn drop(&mut self) {
        if self.owner.initialized() && self.database == DATABASE {
            USED.lock().expect("no panic holds it").push(std::mem::take(&mut self.schema));
        }
    }
}

/// Gives the schema a clock that can be set, and the role that uses it its rights.
fn settable(schema: &str) -> String {
    format!("{} {}", grants(schema), settable_clock(schema, USER))
}

/// Takes all records away, once whoever swept them last has gone.
fn emptied(schema: &str) -> String {
    format!(
        "select pg_advisory_lock(hashtext('{schema}. sweep'));
         select pg_advisory_unlock(hashtext('{schema}. sweep'));
         delete from {schema}.keys;
         delete from {schema}.answers;
         delete from {schema}.checkpoints;
         delete from {schema}.journal;
         delete from {schema}.facts;
         update {schema}.shift set ms = 0"
    )
}

#[async_trait]
impl Bench for PostgresBench {
    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(self.store().await)
    }

    fn is_durable(&self) -> bool {
        true
    }

    async fn pass(&self, time: Duration) {
        let sql = selfsame_test_postgres::pass(&self.schema, time);
        self.owner().await.batch_execute(&sql).await.expect("the owner has the clock");
    }
}

/// The lease of a key that must be free to run.
pub(crate) async fn run(store: &PostgresStore, ask: &Ask) -> Lease {
    match store.claim(ask).await.expect("the store works") {
        Claimed::Run(grant) => grant.lease,
        other => panic!("the key must be free to run, not {other:?}"),
    }
}

/// Runs and completes `ask`.
pub(crate) async fn complete(store: &PostgresStore, ask: &Ask) {
    let lease = run(store, ask).await;
    let recorded = store.complete(&lease, &answer("done")).await.expect("the store works");
    assert!(matches!(recorded, Recorded::Until(_)));
}
