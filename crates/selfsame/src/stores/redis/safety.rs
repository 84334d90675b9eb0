//! What a server keeps, and whether it says so: checked before it is used, and of each new connection.

use std::collections::HashSet;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{ConnectionInfo, RedisError, Value, pipe};

use super::address::place;
use super::options::RedisOptions;
use super::trouble::RedisOpenError;

/// Settings by which records are kept, what they must be, and what happens else.
const SETTINGS: [(&str, &[&str], &str); 3] = [
    ("maxmemory-policy", &["noeviction"], "records vanish when memory is short"),
    ("appendonly", &["yes"], "a restart loses the records since the last snapshot, or all"),
    ("appendfsync", &["always", "everysec"], "a power cut loses what the system had not written"),
];

/// What is asked of servers, and what was found out about them.
pub(super) struct Safety {
    /// Whether anything is asked at all.
    is_asked: bool,
    accept_loss: bool,
    accept_unverified: bool,
    /// What was said before need not be said of every connection.
    said: Mutex<HashSet<String>>,
}

impl Safety {
    pub(super) fn new(options: &RedisOptions) -> Self {
        Self {
            is_asked: true,
            accept_loss: options.accept_loss,
            accept_unverified: options.accept_unverified,
            said: Mutex::default(),
        }
    }

    /// Of servers that may lose all they have.
    pub(super) fn unasked() -> Self {
        Self { is_asked: false, ..Self::new(&RedisOptions::default()) }
    }

    /// Refuses a replica, a server that loses records, and one of which nobody knows, unless that was
    /// accepted.
    pub(super) async fn check(
        &self,
        connection: &mut MultiplexedConnection,
        info: &ConnectionInfo,
    ) -> Result<(), RedisOpenError> {
        if !self.is_asked {
            return Ok(());
        }
        let place = place(info);
        let checked = match told(connection).await {
            Ok(told) => self.judge(&told, &place),
            Err(error) => Err(RedisOpenError::Connection { place, cause: error.to_string() }),
        };
        if let Err(error @ (RedisOpenError::Unsafe { .. } | RedisOpenError::Unverified { .. })) =
            &checked
        {
            self.say_once(error.to_string(), |said| tracing::error!("no key is taken: {said}"));
        }
        checked
    }

    fn judge(&self, told: &[Option<String>], place: &str) -> Result<(), RedisOpenError> {
        let place = || place.to_owned();
        let (role, settings) = told.split_first().expect("one answer for each question");
        let mut hidden = Vec::new();
        match role.as_deref() {
            Some("master") => {}
            Some(_) => return Err(RedisOpenError::Replica { place: place() }),
            None => hidden.push("ROLE".to_owned()),
        }
        let mut losses = Vec::new();
        for ((name, safe, loss), value) in SETTINGS.iter().zip(settings) {
            match value.as_deref() {
                Some(value) if safe.contains(&value) => {
                    if value == "everysec" {
                        let said = "appendfsync is everysec: a power cut loses up to a second";
                        self.say_once(said.to_owned(), |said| tracing::info!("{said}"));
                    }
                }
                Some(value) => losses.push(format!("{name} is {value}: {loss}")),
                None => hidden.push(format!("CONFIG GET {name}")),
            }
        }
        if !losses.is_empty() {
            let losses = losses.join("; ");
            if !self.accept_loss {
                return Err(RedisOpenError::Unsafe { place: place(), losses });
            }
            self.say_once(losses, |losses| {
                tracing::warn!(
                    losses,
                    "Redis loses records, which was accepted: work can run twice"
                );
            });
        }
        if !hidden.is_empty() && !self.accept_unverified {
            return Err(RedisOpenError::Unverified { place: place(), hidden: hidden.join(", ") });
        }
        Ok(())
    }

    fn say_once(&self, what: String, say: impl Fn(&str)) {
        let mut said = self.said.lock();
        if !said.contains(&what) {
            say(&what);
            said.insert(what);
        }
    }
}

/// What the server says, as far as it lets us ask: the first word of its role, the values of settings.
async fn told(connection: &mut MultiplexedConnection) -> Result<Vec<Option<String>>, RedisError> {
    let mut all = pipe();
    all.cmd("ROLE");
    for (name, ..) in SETTINGS {
        all.cmd("CONFIG").arg("GET").arg(name);
    }
    let answers = connection.req_packed_commands(&all, 0, all.len()).await?;
    // A setting is told with its name.
    let words = answers.into_iter().enumerate().map(|(number, answer)| match answer {
        Value::Array(words) => {
            let word = words.get(usize::from(number > 0))?;
            redis::from_redis_value_ref(word).ok()
        }
        _ => None,
    });
    Ok(words.collect())
}
