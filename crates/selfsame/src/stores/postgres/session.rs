//! [`Session`]: one connection, with the statements that were prepared on it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Connection, Row, SimpleQueryMessage, Socket, Statement};

use super::tls::{self, Tls};
use super::trouble::{Access, Fault};
use crate::background;

/// Plans are made once and kept: making one takes longer than what it plans. They must not depend
/// on how large a table was at that moment, so all rows are found by an index.
const SETTINGS: &str = "set jit = off; set plan_cache_mode = force_generic_plan; \
     set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; \
     set default_transaction_isolation = 'read committed'";

/// What is asked of a server before it is believed.
const FACTS: &str = "select pg_is_in_recovery(), current_setting('synchronous_commit'), \
     current_setting('fsync')";

/// Where the database is, and how it is spoken to.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) tls: Tls,
    pub(super) schema: String,
    pub(super) time_out: Duration,
}

/// How far the server's own settings keep what it acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Durability {
    pub(super) synchronous_commit: bool,
    pub(super) fsync: bool,
}

pub(super) struct Session {
    client: Client,
    target: Target,
    /// By where their text stands, which is quicker to look up than the text.
    statements: Mutex<HashMap<usize, Statement>>,
    is_broken: AtomicBool,
    /// Whether it has the lock of whoever sweeps.
    leads: AtomicBool,
    pub(super) is_encrypted: bool,
    pub(super) durability: Durability,
}

impl Target {
    /// Connects to a server that takes writes.
    pub(super) async fn connect(&self) -> Result<Session, Fault> {
        within(self.time_out, Access::Read, self.connect_at_last()).await
    }

    /// The statement, for the schema that was chosen.
    pub(super) fn in_schema(&self, sql: &str) -> String {
        sql.replace("selfsame.", &format!("{}.", self.schema))
    }

    /// A connection as it comes, and whether it is encrypted.
    pub(super) async fn open(
        &self,
    ) -> Result<(Client, Connection<Socket, tls::Stream>, bool), Fault> {
        let (tls, is_encrypted) = self.tls.for_one();
        let opened = self.config.connect(tls).await;
        let (client, connection) = opened.map_err(|error| Fault::of(&error, Access::Read))?;
        Ok((client, connection, is_encrypted.load(Ordering::Relaxed)))
    }

    async fn connect_at_last(&self) -> Result<Session, Fault> {
        let fault = |error| Fault::of(&error, Access::Read);
        let (client, connection, is_encrypted) = self.open().await?;
        background::spawn(async {
            if let Err(error) = connection.await {
                tracing::warn!(%error, "a connection to the database ended");
            }
        });
        let facts = client.simple_query(FACTS).await.map_err(fault)?;
        let is = |at, value| {
            facts.iter().any(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(at) == Some(value),
                _ => false,
            })
        };
        if is(0, "t") {
            return Err(Fault::not_written(
                "the database is a standby, which takes no writes; name the primary",
            ));
        }
        let durability = Durability { synchronous_commit: !is(1, "off"), fsync: !is(2, "off") };
        // Nothing is acknowledged here that the server would lose by crashing.
        let durable =
            if durability.synchronous_commit { "" } else { "set synchronous_commit = on" };
        let patience = self.time_out.as_millis();
        let settings = format!("{SETTINGS}; set statement_timeout = {patience}; {durable}");
        client.batch_execute(&settings).await.map_err(fault)?;
        let (target, statements) = (self.clone(), Mutex::default());
        let (is_broken, leads) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Session { client, target, statements, is_broken, leads, is_encrypted, durability })
    }
}

impl Session {
    /// Whether it can be used: it is neither closed nor did it leave anything unanswered.
    pub(super) fn is_good(&self) -> bool {
        !self.client.is_closed() && !self.is_broken.load(Ordering::Relaxed)
    }

    /// Whether it has the lock of whoever sweeps.
    pub(super) fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// It has that lock, for as long as it lives.
    pub(super) fn set_leads(&self) {
        self.leads.store(true, Ordering::Relaxed);
    }

    /// The rows that a prepared statement gives. Calls at the same time travel together.
    pub(super) async fn query(
        &self,
        access: Access,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        let statement = self.prepared(sql).await?;
        self.bounded(access, self.client.query(&statement, params)).await
    }

    /// Several statements as they are written, in the schema that was chosen.
    pub(super) async fn run(&self, sql: &str) -> Result<(), Fault> {
        let sql = self.target.in_schema(sql);
        self.bounded(Access::Write, self.client.batch_execute(&sql)).await
    }

    async fn prepared(&self, sql: &'static str) -> Result<Statement, Fault> {
        let known = self.statements.lock().get(&sql.as_ptr().addr()).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let text = self.target.in_schema(sql);
        let statement = self.bounded(Access::Read, self.client.prepare(&text)).await?;
        self.statements.lock().insert(sql.as_ptr().addr(), statement.clone());
        Ok(statement)
    }

    /// After a call without an answer the connection is given up: what is behind it would wait too.
    async fn bounded<T>(
        &self,
        access: Access,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        let call = async { call.await.map_err(|error| Fault::of(&error, access)) };
        let result = within(self.target.time_out, access, call).await;
        if result.as_ref().is_err_and(|fault| !fault.is_local) {
            self.is_broken.store(true, Ordering::Relaxed);
        }
        result
    }
}

pub(super) async fn within<T>(
    time_out: Duration,
    access: Access,
    call: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(time_out, call).await {
        Ok(result) => result,
        Err(_) => Err(Fault::timed_out(access, time_out)),
    }
}
