//! Claims: a script claims a key that is new; core's rules decide about any other.

use std::time::Duration;

use redis::Value;
use selfsame_core::{Ask, Claimed, Record, StoreError, Timestamp};

use super::changes::Replaced;
use super::guard::{GUARD, Known};
use super::scripts::{CLAIM, Call};
use super::trouble::Access;
use super::value::{self, Draft, Moment};
use super::{RedisStore, strange};
use crate::stores::durable::fit;

/// How often a key is looked at that others change at the same time.
const LOOKS_MAX: usize = 8;
/// For how long such a key is busy then.
const CHANGED_FOR: Duration = Duration::from_millis(100);

/// What the script says of a key.
enum Said {
    /// It was, and is claimed since then.
    New(Timestamp, Box<Draft>),
    Known(Timestamp, Vec<u8>),
    /// Records were lost, of which this may be one.
    Refused,
}

impl RedisStore {
    pub(super) async fn claim_key(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        self.guard.check()?;
        let ask = &*fit(ask);
        for _ in 0..LOOKS_MAX {
            let (now, value) = match self.claim_new(ask).await? {
                Said::New(now, draft) => {
                    let (claimed, record) = selfsame_core::claim(None::<&Record>, ask, now);
                    self.own.remember(record.expect("a new key runs"), *draft);
                    return Ok(claimed);
                }
                Said::Known(now, value) => (now, value),
                Said::Refused => {
                    self.guard.find_out(self.routes.buckets.of(&ask.id)).await?;
                    continue;
                }
            };
            let found = value::read(&ask.id, &value)?;
            let (claimed, next) = selfsame_core::claim(Some(&found.record), ask, now);
            let Some(next) = next else { return Ok(claimed) };
            match self.replace(&ask.id, &found.seen, Some(&next), now).await? {
                Replaced::Done => return Ok(claimed),
                Replaced::Changed | Replaced::Gone => {}
            }
        }
        Ok(Claimed::Busy { lease_left: CHANGED_FOR })
    }

    async fn claim_new(&self, ask: &Ask) -> Result<Said, StoreError> {
        // Of the times only Redis can tell, the script writes the beginning of all.
        let ahead_ms = self.options.ahead();
        let record = Record::first(ask, Timestamp::from_millis(ahead_ms));
        let lives = value::lives(&record, Timestamp::from_millis(ahead_ms));
        let behind = value::behind(&record);
        let mut draft = Draft::of(record);
        let bucket = self.routes.buckets.of(&ask.id);
        let Known { id: guard, beats } = self.guard.known(bucket, ask);
        let guarded = self.routes.buckets.beside(bucket, GUARD);
        let call = Call::with(&CLAIM, &[&self.key(&ask.id), &guarded])
            .arg(draft.fields())
            .arg([draft.frame(), &behind[..]].concat())
            .millis(lives)
            .arg(guard)
            .number(beats)
            .number(ahead_ms);
        let Value::Array(said) = self.call(&ask.id, Access::Claim, call).await? else {
            return Err(strange(Access::Write));
        };
        let mut said = said.into_iter();
        let mut number = || {
            let number = redis::from_redis_value(said.next()?);
            number.ok()
        };
        let (seconds, micros) = number().zip(number()).ok_or_else(|| strange(Access::Write))?;
        let at = Moment { seconds, micros };
        let now = Timestamp::from_millis(at.as_millis() + ahead_ms);
        match said.next() {
            None => {
                draft.made(at);
                Ok(Said::New(now, Box::new(draft)))
            }
            Some(Value::BulkString(value)) => Ok(Said::Known(now, value)),
            Some(Value::Int(_)) => Ok(Said::Refused),
            Some(_) => Err(strange(Access::Write)),
        }
    }
}
