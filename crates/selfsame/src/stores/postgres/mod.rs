//! [`PostgresStore`]: the durable store of many machines, tables in a PostgreSQL database.
//!
//! | connection | carries |
//! |---|---|
//! | two for claims, two for completions | calls of many callers together, sharded by record |
//! | renewals | renewals of many leases together, ahead of all that waits elsewhere |
//! | aside | lone claims and completions; checkpoints, releases, single reads, the journal |
//! | look | scans: finding, counting, sweeping |
//! | bell | wake-ups for those who wait; it listens |
//!
//! Each is made when it is first needed, the last at once, and again when it was lost. Every statement is a
//! transaction of its own. Time is the database's, by the function `clock` of the schema.

mod address;
mod answers;
#[cfg(feature = "redis")]
mod archive;
mod audit;
mod bell;
mod changes;
mod claims;
mod completions;
mod erase;
mod facts;
mod inspect;
mod journal;
mod lane;
mod link;
mod look;
mod migrate;
mod options;
mod parameters;
mod renewals;
mod resolve;
mod rows;
mod session;
mod store;
mod sweep;
mod tls;
mod transfer;
mod trouble;
mod writes;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::{Ask, RecordId};
use tokio_postgres::config::Host;

#[cfg(feature = "redis")]
pub(super) use archive::{Adopted, Archive};
pub use audit::AuditEntry;
pub(crate) use journal::{Journal, Known, Note, Standing};
pub use migrate::Migrated;
pub use options::{Migrations, PostgresOptions};
pub use trouble::PostgresOpenError;

use address::Address;
use bell::PostgresBell;
use completions::Completion;
use lane::{Alone, Lane};
use link::Link;
use session::{Durability, Target};
use sweep::Spot;
use tls::Tls;
use trouble::Fault;

/// How long a scan or a migration may take.
const LOOK_TIME_OUT: Duration = Duration::from_secs(60);

/// Records in a PostgreSQL database, which any number of processes may share.
///
/// ```no_run
/// use selfsame::stores::{PostgresOptions, PostgresStore};
///
/// # async fn open() -> Result<(), selfsame::stores::PostgresOpenError> {
/// let url = "postgres://gateway@db.internal/payments";
/// let store = PostgresStore::open(url, PostgresOptions::default()).await?;
/// # Ok(())
/// # }
/// ```
///
/// Leases outlive the process that took them: the work of another one may still be going on.
/// Dropping the store ends its connections once what they were asked for is done.
pub struct PostgresStore {
    claims: [Lane<Ask>; SHARDS],
    completions: [Lane<Completion>; SHARDS],
    renewals: Link,
    aside: Arc<Link>,
    look: Link,
    bell: Arc<PostgresBell>,
    target: Target,
    swept_to: Mutex<Spot>,
}

/// Two, so that one batch is gathered while the database makes another durable.
const SHARDS: usize = 2;

impl PostgresStore {
    /// Whether `url` can be the address of a database, there or not. No file is read.
    pub fn check_address(url: &str) -> Result<(), PostgresOpenError> {
        Address::parse(url).map(drop)
    }

    /// File with the private key that `url` names as its `sslkey`.
    pub fn client_key_file(url: &str) -> Option<PathBuf> {
        Some(Address::parse(url).ok()?.identity?.1)
    }

    /// Opens the store at `url`, and brings its schema to the version of this build, unless
    /// somebody else does that.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, PostgresOpenError> {
        let migrations = options.migrations;
        let Targets { target, direct } = Targets::new(url, options)?;
        let session = target.patient().connect().await.map_err(|fault| target.unusable(&fault))?;
        session.durability.warn();
        target.warn_of_same_names();
        match (migrations, &direct) {
            (Migrations::AtOpen, Some(direct)) => drop(bring_up_to_date(direct).await?),
            (Migrations::AtOpen, None) => drop(migrate::migrate(&session, &target).await?),
            (Migrations::Elsewhere, _) => migrate::check(&session, &target).await?,
        }
        let bell = match direct {
            Some(direct) => PostgresBell::start(direct),
            None if target.is_pooled => PostgresBell::silent(),
            None => PostgresBell::start(target.clone()),
        };
        let aside = Arc::new(Link::new(target.clone()));
        let alone = Arc::new(Alone::new(aside.clone()));
        Ok(Self {
            claims: std::array::from_fn(|_| Lane::start(&target.for_claims(), alone.clone())),
            completions: std::array::from_fn(|_| Lane::start(&target, alone.clone())),
            renewals: Link::new(target.clone()),
            aside,
            look: Link::over(target.patient(), session),
            bell: Arc::new(bell),
            target,
            swept_to: Mutex::default(),
        })
    }

    /// Brings the schema at `url` to the version of this build, and says what it did.
    pub async fn migrate(
        url: &str,
        options: PostgresOptions,
    ) -> Result<Migrated, PostgresOpenError> {
        let Targets { target, direct } = Targets::new(url, options)?;
        bring_up_to_date(&direct.unwrap_or(target)).await
    }
}

async fn bring_up_to_date(target: &Target) -> Result<Migrated, PostgresOpenError> {
    let session = target.patient().connect().await.map_err(|fault| target.unusable(&fault))?;
    migrate::migrate(&session, target).await
}

/// Where a store sends what, and the way past a pooler.
struct Targets {
    target: Target,
    direct: Option<Target>,
}

impl Targets {
    fn new(url: &str, options: PostgresOptions) -> Result<Self, PostgresOpenError> {
        let mut target = Target::new(url, &options)?;
        let direct = options.direct_url.as_deref().map(|url| Target::new(url, &options));
        let direct = direct.transpose()?;
        // What else would there be a way past?
        target.is_pooled |= direct.is_some();
        if direct.as_ref().is_some_and(|direct| direct.is_pooled) {
            return Err(PostgresOpenError::Parameter { text: "a direct_url has no pooler" });
        }
        Ok(Self { target, direct })
    }
}

/// Which of the connections for many serves `id`. Ids are hashes: their last byte spreads them.
fn shard(id: &RecordId) -> usize {
    usize::from(id.as_bytes()[RecordId::LEN - 1]) % SHARDS
}

impl Target {
    fn new(url: &str, options: &PostgresOptions) -> Result<Self, PostgresOpenError> {
        let (schema, time_out) = (options.schema.clone(), options.time_out);
        let address = Address::parse(url)?;
        let tls = Tls::new(&address)?;
        let (mut config, is_pooled) = (address.config, address.is_pooled);
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !schema.starts_with(|c: char| c.is_ascii_lowercase()) || !schema.chars().all(fits) {
            return Err(PostgresOpenError::Schema { schema });
        }
        if config.get_application_name().is_none() {
            config.application_name(options.application_name);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(time_out);
        }
        let is_warned_of = Arc::default();
        Ok(Self { config, tls, schema, time_out, is_pooled, is_warned_of })
    }

    /// The same, for what may take longer.
    fn patient(&self) -> Self {
        Self { time_out: LOOK_TIME_OUT.max(self.time_out), ..self.clone() }
    }

    /// The same, for calls that are made once more where no answer was heard: both fit into the
    /// time-out.
    fn for_claims(&self) -> Self {
        Self { time_out: self.time_out / 2, ..self.clone() }
    }

    /// Warns of a role that is called like the schema: `"$user"`, the first entry of PostgreSQL's default
    /// `search_path`, then names our schema, and what that role creates without naming one lands in it.
    fn warn_of_same_names(&self) {
        if self.config.get_user() == Some(&*self.schema) {
            tracing::warn!(
                schema = self.schema,
                "the database role has the name of the schema that holds keys: tables that it creates \
                 without naming a schema land there; use a role of another name"
            );
        }
    }

    /// Where the database is, without its password.
    fn place(&self) -> String {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        });
        let hosts: Vec<_> = hosts.collect();
        format!("{} at {}", self.config.get_dbname().unwrap_or("(unnamed)"), hosts.join(", "))
    }

    fn unusable(&self, fault: &Fault) -> PostgresOpenError {
        let cause = fault.error().to_string();
        PostgresOpenError::Connection { place: self.place(), cause }
    }
}

impl Durability {
    fn warn(self) {
        if !self.fsync {
            tracing::warn!(
                "fsync is off in the database: if its machine fails, answers are lost and work \
                 runs twice; switch it on"
            );
        }
        if !self.full_page_writes {
            tracing::warn!(
                "full_page_writes is off in the database: unless its disk never tears a page, a \
                 crash of its machine damages records; switch it on"
            );
        }
        if !self.synchronous_commit {
            tracing::warn!(
                "synchronous_commit is off in the database; it is on in the connections of this \
                 store, because answers would be lost and work would run twice"
            );
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStore({})", self.target.place())
    }
}
