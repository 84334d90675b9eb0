//! [`PostgresOptions`]: how a PostgreSQL store is opened.

use std::time::Duration;

/// How a [`PostgresStore`](super::PostgresStore) is opened.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    pub(super) schema: String,
    pub(super) time_out: Duration,
}

impl PostgresOptions {
    /// The schema that holds the tables; `selfsame` unless said.
    #[must_use]
    pub fn schema(self, schema: impl Into<String>) -> Self {
        Self { schema: schema.into(), ..self }
    }

    /// How long a call waits for the database; 5 s unless said.
    #[must_use]
    pub fn time_out(self, time_out: Duration) -> Self {
        Self { time_out, ..self }
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { schema: "selfsame".to_owned(), time_out: Duration::from_secs(5) }
    }
}
