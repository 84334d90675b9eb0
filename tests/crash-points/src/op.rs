//! [`Op`]: a call of the store, in a form that is written into the event log and read from it.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use selfsame_core::conformance::samples;
use selfsame_core::{
    Answer, AnswerBody, Ask, AttemptId, Checkpoint, Claimed, Erased, Fence, Fenced, Keepsake,
    Lease, Record, RecordId, Recorded, Recover, Release, Resolution, Resolved, Store, StoreError,
    Timestamp,
};
use selfsame_core::{Facts, Inspect};

use crate::body::body;

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named for the store's method")]
pub enum Verb {
    Claim,
    Renew,
    Checkpoint,
    Complete,
    Release,
    Cancel,
    Free,
    Erase,
    SetFact,
    FactOr,
}

const VERBS: [(Verb, &str); 10] = [
    (Verb::Claim, "claim"),
    (Verb::Renew, "renew"),
    (Verb::Checkpoint, "checkpoint"),
    (Verb::Complete, "complete"),
    (Verb::Release, "release"),
    (Verb::Cancel, "cancel"),
    (Verb::Free, "free"),
    (Verb::Erase, "erase"),
    (Verb::SetFact, "set-fact"),
    (Verb::FactOr, "fact-or"),
];

/// A call with its arguments. What a verb has no use for is zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// The call.
    pub verb: Verb,
    /// The key of the record, or the name of the fact.
    pub key: String,
    /// Number of the attempt, which its attempt id is made of.
    pub attempt: u64,
    /// Fence of the lease.
    pub fence: u64,
    /// Length of the lease, in milliseconds.
    pub lease: u64,
    /// Retention, in milliseconds.
    pub retention: u64,
    /// Tombstone retention, in milliseconds.
    pub remember: u64,
    /// Recovery of a claim, or kind of a release, by its index.
    pub how: u64,
    /// Tag of the body that is stored.
    pub tag: u64,
    /// Bytes of that body.
    pub len: u64,
}

/// What a record may be led to.
pub const RECOVERIES: [Recover; 3] = [Recover::Resume, Recover::Hold, Recover::Auto];

impl Op {
    /// A call without arguments.
    pub fn new(verb: Verb, key: &str) -> Self {
        let key = key.to_owned();
        let (attempt, fence, lease, retention, remember) = (0, 0, 0, 0, 0);
        Self { verb, key, attempt, fence, lease, retention, remember, how: 0, tag: 0, len: 0 }
    }

    /// A claim of another attempt, as a retry makes it.
    pub fn retry(key: &str, attempt: u64) -> Self {
        let (lease, retention) = (samples::LEASE.as_millis(), samples::RETENTION.as_millis());
        let number = |millis| u64::try_from(millis).expect("a time");
        Self {
            attempt,
            lease: number(lease),
            retention: number(retention),
            ..Self::new(Verb::Claim, key)
        }
    }

    /// Tells calls about facts from those about records.
    pub fn is_of_fact(&self) -> bool {
        matches!(self.verb, Verb::SetFact | Verb::FactOr)
    }

    /// The record that it is about.
    pub fn id(&self) -> RecordId {
        samples::ask(&self.key).id
    }

    /// The body that it stores.
    pub fn body(&self) -> bytes::Bytes {
        body(self.tag, usize::try_from(self.len).expect("bodies are in memory"))
    }

    fn ask(&self) -> Ask {
        let kept = || Keepsake { request: Some(self.body()), ..Keepsake::default() };
        Ask {
            attempt_id: attempt_id(self.attempt),
            lease: Duration::from_millis(self.lease),
            retention: Duration::from_millis(self.retention),
            remember: Duration::from_millis(self.remember),
            recover: RECOVERIES[usize::try_from(self.how).expect("an index")],
            keepsake: (self.len > 0).then(|| Box::new(kept())),
            ..samples::ask(&self.key)
        }
    }

    fn lease(&self, id: RecordId) -> Lease {
        let fence = Fence::from_number(self.fence);
        let length = Duration::from_millis(self.lease);
        Lease { id, fence, attempt_id: attempt_id(self.attempt), length }
    }

    fn release(&self) -> Release {
        Release::ALL[usize::try_from(self.how).expect("an index")]
    }

    /// What the call comes to by core's rules where the record is this one, and the record then.
    pub fn on_record(&self, found: Option<&Record>, now: Timestamp) -> (String, Option<Record>) {
        let mut record = match (self.verb, found) {
            (Verb::Claim, found) => {
                let (claimed, next) = selfsame_core::claim(found, &self.ask(), now);
                return (claim_text(&claimed), next.or_else(|| found.cloned()));
            }
            (Verb::Free | Verb::Erase, Some(record)) if !record.is_expired(now) => record.clone(),
            (Verb::Free | Verb::Erase, found) => return ("Missing".to_owned(), found.cloned()),
            (_, Some(record)) => record.clone(),
            (_, None) => return ("Lost".to_owned(), None),
        };
        let lease = self.lease(record.id);
        let outcome = match self.verb {
            Verb::Renew => format!("{:?}", record.renew(&lease, now)),
            Verb::Checkpoint => {
                let checkpoint = Checkpoint::new("point", self.body());
                format!("{:?}", record.checkpoint(&lease, checkpoint))
            }
            Verb::Complete => {
                let answer = samples::answer(self.body());
                format!("{:?}", record.complete(&lease, answer, now))
            }
            Verb::Release if record.is_forgotten_by(&lease, self.release()) => {
                return (format!("{:?}", Fenced::Applied), None);
            }
            Verb::Release => format!("{:?}", record.release(&lease, self.release(), now)),
            Verb::Cancel => format!("{:?}", record.cancel(attempt_id(self.attempt))),
            Verb::Free => {
                let fence = Fence::from_number(self.fence);
                format!("{:?}", record.resolve(fence, Resolution::free(), now))
            }
            Verb::Erase => format!("{:?}", record.erase(now)),
            Verb::Claim | Verb::SetFact | Verb::FactOr => unreachable!("handled before"),
        };
        (outcome, Some(record))
    }

    /// The same for a fact.
    pub fn on_fact(&self, found: Option<&Vec<u8>>) -> (String, Option<Vec<u8>>) {
        let value = match (self.verb, found) {
            (Verb::FactOr, Some(found)) => found.clone(),
            _ => self.body().to_vec(),
        };
        let outcome = if self.verb == Verb::FactOr { digest(&value) } else { "set".to_owned() };
        (outcome, Some(value))
    }

    /// Makes the call, and tells what it came to in the words of [`Op::on_record`].
    pub async fn on_store<S>(&self, store: &S) -> Result<String, StoreError>
    where
        S: Store + Inspect + Facts,
    {
        let id = self.id();
        let lease = self.lease(id);
        let fenced = |fenced: Fenced| format!("{fenced:?}");
        Ok(match self.verb {
            Verb::Claim => claim_text(&store.claim(&self.ask()).await?),
            Verb::Renew => fenced(store.renew(&lease).await?),
            Verb::Checkpoint => {
                let checkpoint = Checkpoint::new("point", self.body());
                fenced(store.checkpoint(&lease, &checkpoint).await?)
            }
            Verb::Complete => {
                let recorded: Recorded =
                    store.complete(&lease, &samples::answer(self.body())).await?;
                format!("{recorded:?}")
            }
            Verb::Release => fenced(store.release(&lease, self.release()).await?),
            Verb::Cancel => fenced(store.cancel(&id, attempt_id(self.attempt)).await?),
            Verb::Free => {
                let fence = Fence::from_number(self.fence);
                let resolved: Resolved = store.resolve(&id, fence, &Resolution::free()).await?;
                format!("{resolved:?}")
            }
            Verb::Erase => {
                let erased: Vec<Erased> = store.erase(&[id]).await?;
                format!("{:?}", erased[0])
            }
            Verb::SetFact => {
                store.set_fact(&self.key, &self.body()).await?;
                "set".to_owned()
            }
            Verb::FactOr => digest(&store.fact_or(&self.key, &self.body()).await?),
        })
    }

    /// Reads what [`Op`] shows as text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let verb = words.next()?;
        let verb = VERBS.iter().find(|(_, name)| *name == verb)?.0;
        let mut op = Self::new(verb, words.next()?);
        for word in words {
            let (name, value) = word.split_once('=')?;
            let value = value.parse().ok()?;
            let mut fields = op.fields();
            let field = fields.iter_mut().find(|(known, _)| *known == name)?;
            *field.1 = value;
        }
        Some(op)
    }

    fn fields(&mut self) -> [(&'static str, &mut u64); 8] {
        [
            ("attempt", &mut self.attempt),
            ("fence", &mut self.fence),
            ("lease", &mut self.lease),
            ("retention", &mut self.retention),
            ("remember", &mut self.remember),
            ("how", &mut self.how),
            ("tag", &mut self.tag),
            ("len", &mut self.len),
        ]
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = VERBS.iter().find(|(verb, _)| *verb == self.verb).expect("all have names").1;
        write!(f, "{verb} {}", self.key)?;
        for (name, value) in self.clone().fields().into_iter().filter(|(_, value)| **value != 0) {
            write!(f, " {name}={value}")?;
        }
        Ok(())
    }
}

/// The attempt id of an attempt.
pub fn attempt_id(attempt: u64) -> AttemptId {
    let mut bytes = [0xa7; AttemptId::LEN];
    bytes[..8].copy_from_slice(&attempt.to_le_bytes());
    AttemptId::from_bytes(bytes)
}

/// A short name for some bytes.
pub fn digest(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{} bytes {:016x}", bytes.len(), hasher.finish())
}

/// An answer in a few words.
pub fn answer_text(answer: &Answer) -> String {
    match &answer.body {
        AnswerBody::Kept(bytes) if answer.headers.is_empty() && answer.trailers.is_empty() => {
            format!("{} {}", answer.status.as_u16(), digest(bytes))
        }
        other => format!("another answer: {} {other:?}", answer.status),
    }
}

/// What a claim came to, as far as it follows from the record. When a dead claim is written down as
/// held, and how long a lease is left, does not.
fn claim_text(claimed: &Claimed) -> String {
    match claimed {
        Claimed::Run(grant) => format!(
            "Run fence={} attempt={} birth={:02x?} checkpoint={} took_over={} expires={:?}",
            grant.lease.fence.number(),
            grant.attempt,
            &grant.birth.as_bytes()[..8],
            grant.checkpoint.as_ref().map_or("none".to_owned(), |point| digest(&point.data)),
            grant.took_over,
            grant.expires_at,
        ),
        Claimed::Replay(replay) => {
            format!("Replay {} until {:?}", answer_text(&replay.answer), replay.expires_at)
        }
        Claimed::Busy { .. } => "Busy".to_owned(),
        Claimed::Reused => "Reused".to_owned(),
        Claimed::Held { .. } => "Held".to_owned(),
        Claimed::Expired => "Expired".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let op = Op { tag: u64::MAX, how: 2, ..Op::retry("k-1", 77) };
        assert_eq!(Op::parse(&op.to_string()), Some(op));
        assert_eq!(Op::parse("claim k-1 fence=x"), None);
    }
}
