//! [`Probe`]: where a service says whether the work behind a key was done; and how often it is asked.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::{self, Write};
use std::time::Duration;

use http::Uri;
use parking_lot::Mutex;
use selfsame_core::{Key, RecordId};
use tokio::time::Instant;

/// How long after a question that was not answered the next one is asked.
const PAUSE: Duration = Duration::from_secs(5);
/// How many keys are asked about, or were just now. Whoever would be one more gets no answer yet.
const KEYS_MAX: usize = 10_000;
const KEY: &str = "{key}";

/// Where a service says whether the work behind a key was done: `GET /idempotency/{key}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    before: String,
    after: String,
}

/// It does not say where to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidProbe;

impl Probe {
    /// Reads `GET` and a path with `{key}` in it.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidProbe> {
        let path = text.strip_prefix("GET ").ok_or(InvalidProbe)?;
        let (before, after) = path.split_once(KEY).ok_or(InvalidProbe)?;
        let probe = Self { before: before.to_owned(), after: after.to_owned() };
        let is_path = before.starts_with('/') && !after.contains(['{', '}']);
        let path = probe.path("k");
        let is_sane = is_path && path.parse::<Uri>().is_ok() && !has_dot_segment(&path);
        is_sane.then_some(probe).ok_or(InvalidProbe)
    }

    /// The path to ask about `key`; nothing where somebody on the way may take it for another one. A segment
    /// of dots cannot be written in a way that everybody leaves alone.
    pub(crate) fn of(&self, key: &Key) -> Option<Uri> {
        let path = self.path(key.as_str());
        let uri = || path.parse().expect("it was tried with another key");
        (!has_dot_segment(&path)).then(uri)
    }

    fn path(&self, key: &str) -> String {
        let mut path = self.before.clone();
        for byte in key.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    path.push(char::from(byte));
                }
                _ => write!(path, "%{byte:02X}").expect("a string takes everything"),
            }
        }
        path + &self.after
    }
}

/// Tells if a path has a segment `.` or `..`, for whoever decodes it, even more than once, or takes a
/// backslash for a slash and what follows a semicolon for a parameter.
fn has_dot_segment(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let mut decoded = path.as_bytes().to_vec();
    loop {
        let is_dots = |segment: &[u8]| matches!(segment, b"." | b"..");
        let name = |segment: &[u8]| segment.split(|byte| *byte == b';').next().map(is_dots);
        if decoded.split(|byte| b"/\\".contains(byte)).any(|segment| name(segment) == Some(true)) {
            return true;
        }
        let next = decode_once(&decoded);
        if next.len() == decoded.len() {
            return false;
        }
        decoded = next;
    }
}

fn decode_once(mut text: &[u8]) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let mut decoded = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        let escaped = match text {
            [b'%', high, low, ..] => digit(high).zip(digit(low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                decoded.push((high << 4 | low) as u8);
                text = &text[3..];
            }
            None => {
                decoded.push(*first);
                text = rest;
            }
        }
    }
    decoded
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GET {}{KEY}{}", self.before, self.after)
    }
}

impl fmt::Display for InvalidProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a probe is written like \"GET /idempotency/{key}\"")
    }
}

impl std::error::Error for InvalidProbe {}

/// The keys that are being asked about, and those that were just now.
#[derive(Default)]
pub(crate) struct Probes(Mutex<HashMap<RecordId, Asked>>);

enum Asked {
    Now,
    Until(Instant),
}

/// The right to ask about a key, until it is dropped.
pub(crate) struct Asking<'a> {
    probes: &'a Probes,
    id: RecordId,
}

impl Probes {
    /// The right to ask, unless somebody has it, or has just had it.
    pub(crate) fn begin(&self, id: RecordId) -> Option<Asking<'_>> {
        let now = Instant::now();
        let is_over = |asked: &Asked| matches!(asked, Asked::Until(until) if *until <= now);
        let mut keys = self.0.lock();
        if keys.len() >= KEYS_MAX {
            keys.retain(|_, asked| !is_over(asked));
        }
        let has_room = keys.len() < KEYS_MAX;
        match keys.entry(id) {
            Entry::Occupied(mut place) if is_over(place.get()) => {
                place.insert(Asked::Now);
            }
            Entry::Vacant(place) if has_room => {
                place.insert(Asked::Now);
            }
            _ => return None,
        }
        Some(Asking { probes: self, id })
    }
}

impl Asking<'_> {
    /// It was answered: whoever comes next may ask at once.
    pub(crate) fn answered(self) {
        self.probes.0.lock().insert(self.id, Asked::Until(Instant::now()));
        std::mem::forget(self);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.probes.0.lock().insert(self.id, Asked::Until(Instant::now() + PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_so_that_it_stays_one_segment() {
        let probe = Probe::parse("GET /v1/{key}/outcome?by=key").expect("valid");
        let path = |key: &str| {
            let asked = probe.of(&Key::parse(key.as_bytes()).expect("a key"));
            asked.expect("it stays where it is").to_string()
        };
        assert_eq!(path("order-1"), "/v1/order-1/outcome?by=key");
        assert_eq!(path("a/b?c#d%"), "/v1/a%2Fb%3Fc%23d%25/outcome?by=key");
        assert_eq!(path("...a..b."), "/v1/...a..b./outcome?by=key");
        assert_eq!(probe.to_string(), "GET /v1/{key}/outcome?by=key");
    }

    #[test]
    fn no_key_leaves_the_path_of_a_probe() {
        let of = |probe: &str, key: &str| {
            let probe = Probe::parse(probe).expect("valid");
            probe.of(&Key::parse(key.as_bytes()).expect("a key"))
        };
        for key in [
            ".",
            "..",
            "%2e%2E",
            "%252e.",
            "a/../b",
            "../../admin",
            "..%2fadmin",
            "..\\admin",
            "..;/admin",
            "a/.",
        ] {
            assert_eq!(of("GET /idempotency/{key}", key), None, "{key}");
        }
        assert_eq!(of("GET /idempotency/.{key}", "."), None);
        assert!(of("GET /idempotency/a{key}", "..").is_some());
        assert!(of("GET /idempotency?key={key}", "..").is_some());
    }

    #[test]
    fn anything_else_is_no_probe() {
        for text in [
            "",
            "/a/{key}",
            "POST /a/{key}",
            "GET /a",
            "GET a/{key}",
            "GET /{key}/{key}",
            "GET /a b/{key}",
            "GET http://a/{key}",
            "GET /a/../{key}",
            "GET /a/{key}/%2e%2e",
        ] {
            assert_eq!(Probe::parse(text), Err(InvalidProbe), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_asked_about_once_at_a_time_and_again_after_a_while() {
        let probes = Probes::default();
        let id = RecordId::from_bytes([1; RecordId::LEN]);
        let asking = probes.begin(id).expect("nobody asks");
        assert!(probes.begin(id).is_none());
        drop(asking);
        assert!(probes.begin(id).is_none());
        tokio::time::advance(PAUSE).await;
        probes.begin(id).expect("it is time").answered();
        assert!(probes.begin(id).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_keys_are_kept_in_mind() {
        let probes = Probes::default();
        let id = |n: usize| {
            let mut bytes = [0; RecordId::LEN];
            bytes[..8].copy_from_slice(&n.to_be_bytes());
            RecordId::from_bytes(bytes)
        };
        (0..KEYS_MAX).for_each(|n| drop(probes.begin(id(n)).expect("there is room")));
        assert!(probes.begin(id(KEYS_MAX)).is_none());
        tokio::time::advance(PAUSE).await;
        assert!(probes.begin(id(KEYS_MAX)).is_some());
        assert_eq!(probes.0.lock().len(), 1);
    }
}
