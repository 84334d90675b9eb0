//! What goes wrong: opening, one record, one statement, or the connection.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use selfsame_core::{StoreError, StoreErrorKind};
use tokio_postgres::error::{Severity, SqlState};

use super::tls;

/// Why a PostgreSQL store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresOpenError {
    /// The address is none. What was written is not told: it may hold a password.
    #[error("this is not an address of PostgreSQL; write postgres://user:password@host/database")]
    Url,
    /// A parameter of the address cannot be meant.
    #[error("{text}")]
    Parameter {
        /// Which, and what it may be.
        text: &'static str,
    },
    /// A file that the address names is of no use.
    #[error("{name}={}: {cause}", path.display())]
    File {
        /// The parameter that names it.
        name: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// A schema's name is written into statements.
    #[error(
        "{schema:?} cannot be the name of the schema; write lower-case letters, digits and _, \
         and a letter first"
    )]
    Schema {
        /// The name.
        schema: String,
    },
    /// The database cannot be reached, or does not let us in.
    #[error("cannot use the database {place}: {cause}")]
    Connection {
        /// Where it is, without the password.
        place: String,
        /// What went wrong.
        cause: String,
    },
    /// The schema was written by a later version of this crate.
    #[error(
        "the schema {schema} has version {found}, this build knows up to version {known}; \
         use the newer build"
    )]
    Newer {
        /// The schema.
        schema: String,
        /// Its version.
        found: i32,
        /// The latest version this build knows.
        known: i32,
    },
    /// The schema is older than this build, and is not to be changed by it.
    #[error(
        "the schema {schema} has version {found}, this build needs version {known}; run \
         `selfsame store migrate` as the role that owns it"
    )]
    Older {
        /// The schema.
        schema: String,
        /// Its version; 0 if there is none.
        found: i32,
        /// The version it should have.
        known: i32,
    },
    /// The schema is older than this build, and cannot be changed.
    #[error(
        "the schema {schema} has version {found} and could not be brought to version {known}: \
         {cause}; run `selfsame store migrate` as the role that owns it"
    )]
    Migration {
        /// The schema.
        schema: String,
        /// Its version; 0 if there is none.
        found: i32,
        /// The version it should have.
        known: i32,
        /// What went wrong.
        cause: String,
    },
}

/// Whether a statement changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Why a statement came to nothing, to be told to each of those it was for.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    kind: StoreErrorKind,
    message: String,
    /// What the database said, if it said anything.
    pub(super) code: Option<SqlState>,
    /// Whether only this statement failed, and the connection is as good as before.
    pub(super) is_local: bool,
}

impl Fault {
    pub(super) fn not_written(message: impl Into<String>) -> Self {
        let kind = StoreErrorKind::NotWritten;
        Self { kind, message: message.into(), code: None, is_local: false }
    }

    pub(super) fn timed_out(access: Access, time_out: Duration) -> Self {
        let message = format!("the database did not answer within {time_out:?}");
        Self { kind: unheard(access), ..Self::not_written(message) }
    }

    /// A statement that the database refused changed nothing. One whose connection ended may have
    /// been committed before that.
    pub(super) fn of(error: &tokio_postgres::Error, access: Access) -> Self {
        let said = error.as_db_error();
        let ended = said.is_none_or(|said| {
            matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic) | None)
        });
        Self {
            kind: if ended { unheard(access) } else { StoreErrorKind::NotWritten },
            message: describe(error),
            code: said.map(|said| said.code().clone()),
            is_local: !ended,
        }
    }

    /// Set where a foreign key or a trigger of another table forbade the change.
    pub(super) fn is_of_another_table(&self) -> bool {
        let class_23 = |code: &SqlState| code.code().starts_with("23");
        self.code.as_ref().is_some_and(|code| class_23(code) || *code == SqlState::RAISE_EXCEPTION)
    }

    pub(super) fn error(&self) -> StoreError {
        StoreError::new(self.kind, self.message.clone())
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        fault.error()
    }
}

fn unheard(access: Access) -> StoreErrorKind {
    match access {
        Access::Read => StoreErrorKind::NotWritten,
        Access::Write => StoreErrorKind::MayHaveLanded,
    }
}

const POOLER_HINT: &str = "; is there a pooler in transaction mode in between? write \
     pooler=transaction into the address";

/// The error with its causes. The database's own words are its first line, without the detail: that
/// may quote a row.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(complaint) = tls::complaint(error) {
        return complaint;
    }
    match error.as_db_error() {
        Some(said) => {
            let lost = [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT];
            let hint = if lost.contains(said.code()) { POOLER_HINT } else { "" };
            format!("the database says: {} ({}){hint}", said.message(), said.code().code())
        }
        None => match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}
