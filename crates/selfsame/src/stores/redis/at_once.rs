//! [`AtOnce`]: first claims without a script, for which Redis takes four times as long.
//!
//! A plain `SET` claims the key if it is new. Behind it, over the same connection, the guard and the time are asked for, and
//! nothing runs before they are heard. If by then no loss is to be seen, there was none before the `SET` either: what comes of
//! it is what a script would have made of the key at that later moment. Else the claim is given back.
//!
//! Which time it is must be known beforehand. It is what Redis told within the last second, carried on by our own clock: never
//! later than it is there, and earlier by what the way takes. If the time behind the `SET` does not fit, because Redis'
//! clock was set, or this was sent for the second time, the lease is renewed before it counts.
//!
//! In a cluster, commands of one slot may be sent to different servers; and where replicas are waited for, a claim that must be
//! given back would first be waited for. There it is the script for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};
use selfsame_core::{Ask, StoreError, Timestamp};

use super::claims::{First, Made, Said};
use super::options::RedisOptions;
use super::routes::Routes;
use super::trouble::{Access, Fault};
use super::value::{Moment, millis};
use super::{RedisStore, link, strange, time};
use crate::stores::SystemClock;
use crate::stores::heard::HeardClock;

/// For how long Redis' clock is taken to go like ours: by then they are not a millisecond apart.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// How much before it is made a claim may begin: a second, and a tenth of its lease, of which each third is renewed.
const EARLY_MAX: Duration = Duration::from_secs(1);
const LEASE_PARTS: u32 = 10;

/// How many bytes the words of a claim have beside its value, at most.
const ROOM: usize = 128;

/// Whether claims need no script, and what is known of Redis' time.
pub(super) struct AtOnce {
    /// Whether the server can, as far as is known: `SET` with `NX` and `GET` needs Redis 7.
    is_possible: AtomicBool,
    clock: HeardClock,
}

impl AtOnce {
    pub(super) fn new(routes: &Routes, options: &RedisOptions) -> Self {
        let is_possible = routes.is_one_server() && options.wait_replicas == 0;
        Self {
            is_possible: AtomicBool::new(is_possible),
            clock: HeardClock::new(Arc::new(SystemClock::new())),
        }
    }

    /// The time by which a claim is made, where that needs no script.
    pub(super) fn time(&self) -> Option<Timestamp> {
        let is_possible = self.is_possible.load(Ordering::Relaxed);
        is_possible.then(|| self.clock.earliest_within(FRESH_FOR)).flatten()
    }

    /// The time of this process.
    pub(super) fn here(&self) -> Timestamp {
        self.clock.here()
    }

    /// This was said beside the time. While records are missed scripts claim, which need not give back.
    pub(super) fn note(&self, said: &Said, told: Timestamp, asked_at: Timestamp) {
        match said {
            Said::New(_) | Said::Known(..) => self.clock.tell(told, asked_at),
            Said::Doubted(..) => self.clock.forget(),
            Said::Unwritten(_) => {}
        }
    }
}

impl RedisStore {
    /// Claims a key that is new; nothing if the server cannot do that without a script.
    pub(super) async fn claim_at_once(
        &self,
        ask: &Ask,
        begins: Timestamp,
    ) -> Result<Option<Said>, StoreError> {
        let First { mut draft, ahead_ms, behind, lives, bucket, guard } = self.first(ask);
        draft.made(Moment::from_millis(begins.as_millis()));
        let value = [draft.seen(), draft.frame(), &behind[..]].concat();
        let mut set = Cmd::with_capacity(7, value.len() + ROOM);
        set.arg("SET").arg(self.key(&ask.id)).arg(&value).arg("NX").arg("GET");
        if let Some(lives) = lives {
            set.arg("PX").arg(millis(lives));
        }
        let asked_at = self.at_once.here();
        let write = link::Ask::Write(&set, self.guard.behind(bucket));
        let answers = match self.ask(&ask.id, Access::Claim, write).await {
            Ok(Value::Array(answers)) => answers,
            Err(Fault { is_unknown_form: true, .. }) => {
                self.at_once.is_possible.store(false, Ordering::Relaxed);
                return Ok(None);
            }
            Err(fault) if fault.is_out_of_memory => return Ok(Some(Said::Unwritten(fault.into()))),
            Ok(_) => return Err(strange(Access::Claim)),
            Err(fault) => return Err(fault.into()),
        };
        let told = answers.last().and_then(time).ok_or_else(|| strange(Access::Claim))?;
        let now = told + Duration::from_millis(ahead_ms);
        let said = if let [_, said, _] = &answers[..] { Some(said) } else { None };
        let is_kept = self.guard.stands(bucket, &guard, said, now);
        let (is_new, found) = match answers.into_iter().next() {
            Some(Value::Nil) => (true, value),
            Some(Value::BulkString(found)) => (false, found),
            _ => return Err(strange(Access::Claim)),
        };
        if is_new && is_kept {
            self.guard.note_write(bucket, &ask.id, (&found, lives));
        }
        let said = match is_kept {
            true if is_new && fits(begins, told, ask.lease) => {
                let at = begins + Duration::from_millis(ahead_ms);
                Said::New(Box::new(Made { at, told, draft }))
            }
            true => Said::Known(now, found),
            false => Said::Doubted(now, Some(found)),
        };
        self.at_once.note(&said, told, asked_at);
        Ok(Some(said))
    }
}

/// Whether a claim of so long a lease may begin then, of which it is known that it was made by that time.
fn fits(begins: Timestamp, made_by: Timestamp, lease: Duration) -> bool {
    begins <= made_by && made_by.since(begins) <= EARLY_MAX.min(lease / LEASE_PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_begins_no_later_than_it_is_made_and_not_much_earlier() {
        let at = Timestamp::from_millis;
        let (short, long) = (Duration::from_secs(2), Duration::from_secs(60));
        for (begins, made_by, lease, expected) in [
            (5000, 5000, short, true),
            (5001, 5000, short, false),
            (5000, 5200, short, true),
            (5000, 5201, short, false),
            (5000, 6000, long, true),
            (5000, 6001, long, false),
        ] {
            let found = fits(at(begins), at(made_by), lease);
            assert_eq!(found, expected, "{begins} {made_by} {lease:?}");
        }
    }
}
