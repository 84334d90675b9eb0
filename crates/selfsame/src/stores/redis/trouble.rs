//! What goes wrong: opening, one call, or the connection.

use std::path::PathBuf;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use selfsame_core::{StoreError, StoreErrorKind};

use super::address::Place;

/// Why a Redis store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisOpenError {
    /// The address is none. What was written is not told: it may hold a password.
    #[error(
        "this is not an address of Redis; write redis://user:password@host:6379/0, \
         redis-cluster://user:password@host:6379,host:6379 or \
         redis-sentinel://user:password@host:26379,host:26379/MASTER/0; rediss… encrypts"
    )]
    Url,
    /// A parameter of the address is unknown.
    #[error(
        "an address of Redis has the parameter ?sslrootcert=FILE, with rediss…, and that of sentinels \
         sentinel_user and sentinel_password"
    )]
    Parameter,
    /// A file that the address names is of no use.
    #[error("sslrootcert={}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// Redis cannot be reached, or does not let us in.
    #[error("cannot use the Redis database {place}: {cause}")]
    Connection {
        /// Where it is, without the password.
        place: String,
        /// What went wrong.
        cause: String,
    },
    /// It is a replica: what is written elsewhere comes late, and nothing can be written here.
    #[error("the Redis database {place} is a replica; name its master")]
    Replica {
        /// Where it is.
        place: String,
    },
    /// It is one of a cluster: it has some of the records only.
    #[error("the Redis database {place} is a server of a cluster; write redis-cluster:")]
    Cluster {
        /// Where it is.
        place: String,
    },
    /// It would lose records, and work whose record is lost runs again.
    #[error(
        "the Redis database {place} loses records: {losses}; change that, or set accept_loss = true"
    )]
    Unsafe {
        /// Where it is.
        place: String,
        /// By which settings.
        losses: String,
    },
    /// It does not tell whether it would lose records.
    #[error(
        "the Redis database {place} does not tell this user whether it keeps records: allow {hidden}, \
         or, if you know that it keeps them, set accept_unverified = true"
    )]
    Unverified {
        /// Where it is.
        place: String,
        /// The commands that it does not let us use.
        hidden: String,
    },
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    /// It takes a new key, if the server keeps records.
    Claim,
}

impl Access {
    /// How much of the time-out a call may take of which nothing is heard: whoever claims asks once more then, and
    /// both shall fit into it.
    pub(super) fn share_of(self, time_out: Duration) -> Duration {
        match self {
            Self::Claim => time_out / 2,
            Self::Read | Self::Write => time_out,
        }
    }
}

/// Why a call came to nothing.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) kind: StoreErrorKind,
    pub(super) message: String,
    /// Whether the connection is of no use any more.
    pub(super) is_over: bool,
    /// Whether Redis does not know the script by its name.
    pub(super) is_unknown_script: bool,
    /// Whether Redis does not know the command, or not in this form.
    pub(super) is_unknown_form: bool,
    /// Set where Redis refuses writes because `maxmemory` is reached.
    pub(super) is_out_of_memory: bool,
    pub(super) turn: Option<Turn>,
}

/// Where else a call may succeed, in a cluster or behind sentinels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// A slot is there now.
    Moved { slot: u16, to: Place },
    /// A slot is on its way there, and so is what was asked for.
    Moving { to: Place },
    /// Nowhere at the moment; perhaps another server becomes the master.
    Later,
}

impl Fault {
    /// There was no connection.
    pub(super) fn not_written(message: impl Into<String>) -> Self {
        Self {
            kind: StoreErrorKind::NotWritten,
            message: message.into(),
            is_over: true,
            is_unknown_script: false,
            is_unknown_form: false,
            is_out_of_memory: false,
            turn: Some(Turn::Later),
        }
    }

    /// The server is there, and nothing is asked of it.
    pub(super) fn refused(message: impl Into<String>) -> Self {
        Self { is_over: false, turn: None, ..Self::not_written(message) }
    }

    pub(super) fn timed_out(access: Access) -> Self {
        Self { kind: unheard(access), ..Self::not_written("Redis did not answer in time") }
    }

    /// What Redis refused changed nothing: no script makes more than one write to a record, and one about several tells of
    /// each what went wrong. What was sent over a connection that ended may have been done before that.
    pub(super) fn of(error: &RedisError, access: Access) -> Self {
        let server = match error.kind() {
            ErrorKind::Server(kind) => Some(kind),
            // An error of the server's that the crate has no name for.
            ErrorKind::Extension => None,
            _ => {
                let message = format!("the connection to Redis failed: {error}");
                return Self { kind: unheard(access), ..Self::not_written(message) };
            }
        };
        // Where a server does not know the name of another, the map may tell.
        let to =
            || error.redirect_node().and_then(|(place, slot)| Some((slot, Place::parse(place)?)));
        let (is_over, turn) = match server {
            // Another server may have become the master.
            Some(
                ServerErrorKind::ReadOnly
                | ServerErrorKind::MasterDown
                | ServerErrorKind::BusyLoading,
            ) => (true, Some(Turn::Later)),
            Some(ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown) => {
                (false, Some(Turn::Later))
            }
            Some(ServerErrorKind::Moved) => {
                (false, Some(to().map_or(Turn::Later, |(slot, to)| Turn::Moved { slot, to })))
            }
            Some(ServerErrorKind::Ask) => {
                (false, Some(to().map_or(Turn::Later, |(_, to)| Turn::Moving { to })))
            }
            _ => (false, None),
        };
        Self {
            is_over,
            is_unknown_script: server == Some(ServerErrorKind::NoScript),
            is_unknown_form: server == Some(ServerErrorKind::ResponseError),
            is_out_of_memory: is_out_of_memory(error),
            turn,
            ..Self::not_written(format!("Redis says: {error}"))
        }
    }

    /// It was done, and too few replicas have it.
    pub(super) fn too_few(replicas: i64, wanted: u32) -> Self {
        let message = format!("{replicas} replicas have it, {wanted} are wanted");
        Self { kind: StoreErrorKind::MayHaveLanded, ..Self::refused(message) }
    }

    /// An answer that nothing of ours gives.
    pub(super) fn strange(access: Access) -> Self {
        Self { kind: unheard(access), ..Self::not_written("Redis gave an answer of no known form") }
    }

    /// The same after another try, of which nobody knows whether it landed.
    pub(super) fn after(self, earlier: StoreErrorKind) -> Self {
        match earlier {
            StoreErrorKind::MayHaveLanded => Self { kind: earlier, ..self },
            _ => self,
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        Self::new(fault.kind, fault.message)
    }
}

/// Tells an error for want of memory. Redis 6 quotes it in the error of a script.
fn is_out_of_memory(error: &RedisError) -> bool {
    let is_quoted = |detail: &str| detail.contains("-OOM command not allowed");
    error.code() == Some("OOM") || error.detail().is_some_and(is_quoted)
}

fn unheard(access: Access) -> StoreErrorKind {
    match access {
        Access::Read => StoreErrorKind::NotWritten,
        Access::Write | Access::Claim => StoreErrorKind::MayHaveLanded,
    }
}
