//! [`Session`]: one connection, with the statements that were sent over it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Connection, Row, SimpleQueryMessage, Socket, Statement};

use super::address;
use super::parameters;
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
     current_setting('fsync'), current_setting('full_page_writes'), \
     current_setting('default_transaction_isolation')";

/// A pooler keeps no setting for us, so those that count must be there already.
const NEEDS_COMMITS: &str = "synchronous_commit is off for this role, and behind a pooler in \
     transaction mode nobody else can set it; alter role … set synchronous_commit = on";
const NEEDS_ISOLATION: &str = "default_transaction_isolation is not \"read committed\" for this \
     role, and behind a pooler in transaction mode nobody else can set it; alter role … reset it";

/// Where the database is, and how it is spoken to.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) tls: Tls,
    pub(super) schema: String,
    pub(super) time_out: Duration,
    /// Whether a pooler gives each transaction another session of the server, so that nothing may
    /// be left in one: no setting, no lock, no prepared statement.
    pub(super) is_pooled: bool,
    /// Whether it was said already who may listen on the way.
    pub(super) is_warned_of: Arc<AtomicBool>,
}

/// How far the server's own settings keep what it acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Durability {
    pub(super) synchronous_commit: bool,
    pub(super) fsync: bool,
    pub(super) full_page_writes: bool,
}

pub(super) struct Session {
    client: Client,
    target: Target,
    /// By where their text stands, which is quicker to look up than the text.
    statements: Mutex<HashMap<usize, Known>>,
    is_broken: AtomicBool,
    /// Whether it has the lock of whoever sweeps.
    leads: AtomicBool,
    /// Whether most keys that it claimed last were new.
    meets_new_keys: AtomicBool,
    has_warned_of_references: AtomicBool,
    pub(super) durability: Durability,
}

/// A statement that was sent before.
#[derive(Clone)]
enum Known {
    /// The server has it.
    Prepared(Statement),
    /// It is sent each time, with the types of its parameters.
    Written(Arc<(String, Vec<Type>)>),
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

    /// A connection as it comes.
    pub(super) async fn open(&self) -> Result<(Client, Connection<Socket, tls::Stream>), Fault> {
        let (tls, is_encrypted) = self.tls.for_one();
        let opened = self.config.connect(tls).await;
        let opened = opened.map_err(|error| Fault::of(&error, Access::Read))?;
        self.warn_of_listeners(is_encrypted.load(Ordering::Relaxed));
        Ok(opened)
    }

    /// Says once what others on the network may do with its connections, if they can.
    fn warn_of_listeners(&self, is_encrypted: bool) {
        let is_safe = is_encrypted && self.tls.checks || address::is_on_this_machine(&self.config);
        if is_safe || self.is_warned_of.swap(true, Ordering::Relaxed) {
            return;
        }
        if is_encrypted {
            tracing::warn!(
                "the connection to the database is encrypted, but nobody checked who answers; use \
                 sslmode=verify-full"
            );
        } else {
            tracing::warn!(
                "the connection to the database is not encrypted: keys, answers and the password's \
                 proof can be read on the way; use sslmode=verify-full"
            );
        }
    }

    async fn connect_at_last(&self) -> Result<Session, Fault> {
        let fault = |error| Fault::of(&error, Access::Read);
        let (client, connection) = self.open().await?;
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
        let durability = Durability {
            synchronous_commit: !is(1, "off"),
            fsync: !is(2, "off"),
            full_page_writes: !is(3, "off"),
        };
        if self.is_pooled {
            if !durability.synchronous_commit {
                return Err(Fault::not_written(NEEDS_COMMITS));
            }
            if !is(4, "read committed") {
                return Err(Fault::not_written(NEEDS_ISOLATION));
            }
            return Ok(Session::new(client, self.clone(), durability));
        }
        // Nothing is acknowledged here that the server would lose by crashing.
        let durable =
            if durability.synchronous_commit { "" } else { "set synchronous_commit = on" };
        let patience = self.time_out.as_millis();
        let settings = format!("{SETTINGS}; set statement_timeout = {patience}; {durable}");
        client.batch_execute(&settings).await.map_err(fault)?;
        Ok(Session::new(client, self.clone(), durability))
    }
}

impl Session {
    fn new(client: Client, target: Target, durability: Durability) -> Self {
        let statements = Mutex::default();
        let (is_broken, leads) = (AtomicBool::new(false), AtomicBool::new(false));
        let meets_new_keys = AtomicBool::new(true);
        let has_warned_of_references = AtomicBool::new(false);
        Self {
            client,
            target,
            statements,
            is_broken,
            leads,
            meets_new_keys,
            has_warned_of_references,
            durability,
        }
    }

    /// Whether nothing may be left in it.
    pub(super) fn is_pooled(&self) -> bool {
        self.target.is_pooled
    }

    /// Whether it can be used: it is neither closed nor did it leave anything unanswered.
    pub(super) fn is_good(&self) -> bool {
        !self.client.is_closed() && !self.is_broken.load(Ordering::Relaxed)
    }

    /// It left something unanswered: what is behind that would wait too.
    pub(super) fn give_up(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Whether it has the lock of whoever sweeps.
    pub(super) fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// It has that lock, for as long as it lives.
    pub(super) fn set_leads(&self) {
        self.leads.store(true, Ordering::Relaxed);
    }

    /// Whether most keys that it claimed last were new.
    pub(super) fn meets_new_keys(&self) -> bool {
        self.meets_new_keys.load(Ordering::Relaxed)
    }

    /// Whether they were this time.
    pub(super) fn set_meets_new_keys(&self, meets: bool) {
        self.meets_new_keys.store(meets, Ordering::Relaxed);
    }

    /// Returns true once, for the one warning about tables that keep expired keys.
    pub(super) fn warns_of_references(&self) -> bool {
        !self.has_warned_of_references.swap(true, Ordering::Relaxed)
    }

    /// The rows that a statement gives, whose parameters are written with their types, as
    /// `$1::bigint`. Calls at the same time travel together.
    pub(super) async fn query(
        &self,
        access: Access,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        match self.known(sql).await? {
            Known::Prepared(statement) => {
                self.bounded(access, self.client.query(&statement, params)).await
            }
            Known::Written(written) => {
                let (text, types) = &*written;
                let typed: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
                self.bounded(access, self.client.query_typed(text, &typed)).await
            }
        }
    }

    /// Several statements as they are written, in the schema that was chosen.
    pub(super) async fn run(&self, sql: &str) -> Result<(), Fault> {
        let sql = self.target.in_schema(sql);
        self.bounded(Access::Write, self.client.batch_execute(&sql)).await
    }

    async fn known(&self, sql: &'static str) -> Result<Known, Fault> {
        let known = self.statements.lock().get(&sql.as_ptr().addr()).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let (text, types) = (self.target.in_schema(sql), parameters::types(sql));
        let known = if self.is_pooled() {
            Known::Written(Arc::new((text, types)))
        } else {
            let prepared = self.client.prepare_typed(&text, &types);
            Known::Prepared(self.bounded(Access::Read, prepared).await?)
        };
        self.statements.lock().insert(sql.as_ptr().addr(), known.clone());
        Ok(known)
    }

    /// After a call without an answer the connection is given up.
    async fn bounded<T>(
        &self,
        access: Access,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        let call = async { call.await.map_err(|error| Fault::of(&error, access)) };
        let result = within(self.target.time_out, access, call).await;
        if result.as_ref().is_err_and(|fault| !fault.is_local) {
            self.give_up();
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
