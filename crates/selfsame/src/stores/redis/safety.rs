//! What a server keeps, and whether it says so, checked before it is used.

use redis::{Value, cmd};

use super::link::{Ask, Link};
use super::options::RedisOptions;
use super::trouble::{Access, RedisOpenError};

/// Settings by which records are kept, what they must be, and what happens else.
const SETTINGS: [(&str, &[&str], &str); 3] = [
    ("maxmemory-policy", &["noeviction"], "records vanish when memory is short"),
    ("appendonly", &["yes"], "a restart loses the records since the last snapshot, or all"),
    ("appendfsync", &["always", "everysec"], "a power cut loses what the system had not written"),
];

/// Refuses a replica, a server that loses records, and one of which nobody knows, unless that was
/// accepted.
pub(super) async fn check(
    link: &Link,
    options: &RedisOptions,
    place: &str,
) -> Result<(), RedisOpenError> {
    let place = || place.to_owned();
    let mut hidden = Vec::new();
    match told(link, &["ROLE"], place).await? {
        Some(role) if role[..] != *"master" => {
            return Err(RedisOpenError::Replica { place: place() });
        }
        Some(_) => {}
        None => hidden.push("ROLE".to_owned()),
    }
    let mut losses = Vec::new();
    for (name, safe, loss) in SETTINGS {
        match told(link, &["CONFIG", "GET", name], place).await? {
            Some(value) if safe.contains(&value.as_str()) => {
                if value == "everysec" {
                    tracing::info!("appendfsync is everysec: a power cut loses up to a second");
                }
            }
            Some(value) => losses.push(format!("{name} is {value}: {loss}")),
            None => hidden.push(format!("CONFIG GET {name}")),
        }
    }
    if !losses.is_empty() {
        let losses = losses.join("; ");
        if !options.accept_loss {
            return Err(RedisOpenError::Unsafe { place: place(), losses });
        }
        tracing::warn!(losses, "Redis loses records, which was accepted: work can run twice");
    }
    if !hidden.is_empty() && !options.accept_unverified {
        return Err(RedisOpenError::Unverified { place: place(), hidden: hidden.join(", ") });
    }
    Ok(())
}

/// What the server says, unless it does not let us ask: the first word of a role, the value of a
/// setting.
async fn told(
    link: &Link,
    words: &[&str],
    place: impl Fn() -> String,
) -> Result<Option<String>, RedisOpenError> {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    let answer = match link.ask(Access::Read, Ask::Command(&command)).await {
        Ok(answer) => answer,
        Err(fault) if fault.is_over => {
            return Err(RedisOpenError::Connection { place: place(), cause: fault.message });
        }
        Err(_) => return Ok(None),
    };
    let Value::Array(answers) = answer else { return Ok(None) };
    // A setting is told with its name.
    let at = usize::from(words.len() > 1);
    Ok(answers.get(at).and_then(|value| redis::from_redis_value_ref(value).ok()))
}
