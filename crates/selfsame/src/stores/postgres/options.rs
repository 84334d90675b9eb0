//! [`PostgresOptions`]: how a PostgreSQL store is opened.

use std::fmt;
use std::time::Duration;

use crate::stores::durable::TIME_OUT_MAX;

/// How a [`PostgresStore`](super::PostgresStore) is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) schema: String,
    pub(super) time_out: Duration,
    pub(super) direct_url: Option<String>,
    pub(super) migrations: Migrations,
    pub(super) application_name: &'static str,
}

/// Who brings the schema up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrations {
    /// Whoever opens the store first.
    AtOpen,
    /// Somebody else, before it is opened; until then it is refused.
    Elsewhere,
}

impl PostgresOptions {
    /// The schema that holds the tables; `selfsame` unless said.
    #[must_use]
    pub fn schema(self, schema: impl Into<String>) -> Self {
        Self { schema: schema.into(), ..self }
    }

    /// How long a call waits for the database; 5 s unless said. A claim waits for half of that, because
    /// one whose answer was not heard is asked for once more.
    #[must_use]
    pub fn time_out(self, time_out: Duration) -> Self {
        Self { time_out: time_out.min(TIME_OUT_MAX), ..self }
    }

    /// The address of the same database past the pooler in transaction mode that the store's own
    /// address leads to: for wake-ups and migrations.
    #[must_use]
    pub fn direct_url(self, url: impl Into<String>) -> Self {
        Self { direct_url: Some(url.into()), ..self }
    }

    /// The name that the database shows for connections whose address has none; `selfsame` unless said.
    /// Processes that serve keep that name: a store with such connections counts as being in use.
    #[must_use]
    pub fn application_name(self, application_name: &'static str) -> Self {
        Self { application_name, ..self }
    }

    /// Who brings the schema up to date; whoever opens the store first, unless said.
    #[must_use]
    pub fn migrations(self, migrations: Migrations) -> Self {
        Self { migrations, ..self }
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        f.debug_struct("PostgresOptions")
            .field("schema", &self.schema)
            .field("time_out", &self.time_out)
            .field("migrations", &self.migrations)
            .finish_non_exhaustive()
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "selfsame".to_owned(),
            time_out: Duration::from_secs(5),
            direct_url: None,
            migrations: Migrations::AtOpen,
            application_name: "selfsame",
        }
    }
}
