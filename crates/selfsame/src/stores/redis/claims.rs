//! Claims: a script claims a key that is new; core's rules decide about any other.

use std::time::Duration;

use redis::Value;
use selfsame_core::{Ask, Claimed, Record, StoreError, Timestamp};

use super::changes::Replaced;
use super::guard::{GUARD, Known};
use super::scripts::{CLAIM, Call};
use super::trouble::Access;
use super::value::{self, Sums, millis};
use super::{RedisStore, strange};
use crate::stores::durable::fit;

/// How often a key is looked at that others change at the same time.
const LOOKS_MAX: usize = 8;
/// For how long such a key is busy then.
const CHANGED_FOR: Duration = Duration::from_millis(100);

/// What the script says of a key.
enum Said {
    New(Timestamp),
    Known(Timestamp, Vec<u8>),
    /// Records were lost, of which this may be one.
    Refused,
}

impl RedisStore {
    pub(super) async fn claim_key(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        self.guard.check()?;
        let ask = &fit(ask);
        for _ in 0..LOOKS_MAX {
            let (now, value) = match self.claim_new(ask).await? {
                Said::New(now) => return Ok(selfsame_core::claim(None::<&Record>, ask, now).0),
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
        // Of the times only Redis can tell, the script writes the head's.
        let record = Record::first(ask, Timestamp::default());
        let lives = value::lives(&record, Timestamp::default());
        let bucket = self.routes.buckets.of(&ask.id);
        let Known { id: guard, beats } = self.guard.known(bucket, ask);
        let call = Call::new(&CLAIM, self.key(&ask.id))
            .beside(self.routes.buckets.beside(bucket, GUARD))
            .number(self.options.ahead())
            .number(millis(ask.lease))
            .number(millis(ask.retention))
            .number(millis(ask.remember))
            .arg(*ask.attempt_id.as_bytes())
            .arg(Sums::of(&ask.label).to_bytes())
            .arg(lives.map_or(String::new(), |lives| millis(lives).to_string()))
            .arg(value::frame(&record))
            .arg(value::behind(&record))
            .arg(guard)
            .number(beats);
        let Value::Array(said) = self.call(&ask.id, Access::Claim, call).await? else {
            return Err(strange(Access::Write));
        };
        let mut said = said.into_iter();
        let time = |millis: i64| Timestamp::from_millis(millis.cast_unsigned());
        match (said.next(), said.next()) {
            (Some(Value::Int(now)), None) => Ok(Said::New(time(now))),
            (Some(Value::Int(now)), Some(Value::BulkString(value))) => {
                Ok(Said::Known(time(now), value))
            }
            (Some(Value::Int(_)), Some(Value::Int(_))) => Ok(Said::Refused),
            _ => Err(strange(Access::Write)),
        }
    }
}
