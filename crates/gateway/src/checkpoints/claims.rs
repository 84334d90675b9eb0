//! [`Claims`]: the claim of a run, as text that an upstream can show and nobody can make up.
//!
//! It is read by every node that shares the installation's secret. That a claim still stands is not
//! for it to say: the store compares fence and attempt id, as with every write.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use selfsame::Secret;
use selfsame::stores::SystemClock;
use selfsame_core::{AttemptId, Clock, Fence, Lease, RecordId, Timestamp};

const PURPOSE: &str = "checkpoint-claim/1";
const NUMBER_LEN: usize = 8;
const TAG_LEN: usize = 32;
const SIGNED_LEN: usize = RecordId::LEN + NUMBER_LEN + AttemptId::LEN + NUMBER_LEN;

/// Writes claims, and reads those that it wrote, here or on another node.
pub(super) struct Claims {
    secret: Secret,
    clock: Box<dyn Clock>,
}

/// Why a claim is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unaccepted {
    /// It was not written by this installation.
    Forged,
    /// Its run was given up long ago.
    Expired,
}

impl Unaccepted {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Forged => "it was not written by this installation",
            Self::Expired => "its run was given up long ago",
        }
    }
}

impl Claims {
    pub(super) fn new(secret: Secret) -> Self {
        Self { secret, clock: Box::new(SystemClock::new()) }
    }

    /// The claim of the run with this lease, good for `life`.
    pub(super) fn write(&self, lease: &Lease, life: Duration) -> String {
        let until = self.clock.now() + life;
        let mut bytes = Vec::with_capacity(SIGNED_LEN + TAG_LEN);
        bytes.extend(lease.id.as_bytes());
        bytes.extend(lease.fence.number().to_be_bytes());
        bytes.extend(lease.attempt_id.as_bytes());
        bytes.extend(until.as_millis().to_be_bytes());
        bytes.extend(self.secret.tag(PURPOSE, &[&bytes]));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The lease whose claim this is. It cannot be renewed with: an upstream's word that it has
    /// come further does not replace the heartbeat.
    pub(super) fn read(&self, text: &str) -> Result<Lease, Unaccepted> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| Unaccepted::Forged)?;
        let (signed, tag) = bytes.split_last_chunk::<TAG_LEN>().ok_or(Unaccepted::Forged)?;
        if signed.len() != SIGNED_LEN || !self.secret.is_tag(PURPOSE, &[signed], tag) {
            return Err(Unaccepted::Forged);
        }
        let mut rest = signed;
        let id = RecordId::from_bytes(take(&mut rest));
        let fence = Fence::from_number(u64::from_be_bytes(take(&mut rest)));
        let attempt_id = AttemptId::from_bytes(take(&mut rest));
        let until = Timestamp::from_millis(u64::from_be_bytes(take(&mut rest)));
        if self.clock.now() >= until {
            return Err(Unaccepted::Expired);
        }
        Ok(Lease { id, fence, attempt_id, length: Duration::ZERO })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (taken, left) = rest.split_first_chunk().expect("the length was checked");
    *rest = left;
    *taken
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Clone, Default)]
    struct ByHand(Arc<AtomicU64>);

    impl Clock for ByHand {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    fn claims(secret: u8, clock: &ByHand) -> Claims {
        let secret = Secret::from_bytes(&[secret; Secret::LEN]);
        Claims { secret, clock: Box::new(clock.clone()) }
    }

    fn lease() -> Lease {
        Lease {
            id: RecordId::from_bytes([1; RecordId::LEN]),
            fence: Fence::from_number(7),
            attempt_id: AttemptId::from_bytes([2; AttemptId::LEN]),
            length: Duration::ZERO,
        }
    }

    #[test]
    fn every_node_with_the_secret_reads_a_claim_until_it_expires() {
        let clock = ByHand::default();
        let text = claims(1, &clock).write(&lease(), Duration::from_secs(1));
        assert_eq!(text.len(), 128);
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        assert_eq!(claims(1, &clock).read(&text), Ok(lease()));
        clock.0.store(999, Ordering::Relaxed);
        assert_eq!(claims(1, &clock).read(&text), Ok(lease()));
        clock.0.store(1000, Ordering::Relaxed);
        assert_eq!(claims(1, &clock).read(&text), Err(Unaccepted::Expired));
    }

    #[test]
    fn nothing_else_is_a_claim() {
        let clock = ByHand::default();
        let (ours, text) = (claims(1, &clock), claims(1, &clock).write(&lease(), Duration::MAX));
        let forged = Err(Unaccepted::Forged);
        assert_eq!(claims(2, &clock).read(&text), forged);
        for other in ["", "a", "\u{e9}", &text[1..], &text[..124], &format!("{text}AAAA")] {
            assert_eq!(ours.read(other), forged, "{other}");
        }
        for at in 0..text.len() {
            let other = if &text[at..=at] == "A" { "B" } else { "A" };
            let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            assert_eq!(ours.read(&changed), forged, "{changed}");
        }
    }
}
