//! Claims: a key that is new is claimed in one step; core's rules decide about any other.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use selfsame_core::{
    Ask, Claimed, Record, Release, StoreError, StoreErrorKind, Timestamp, claim as claim_by_rule,
};

use super::buckets::Bucket;
use super::changes::Replaced;
use super::guard::{GUARD, Shown};
use super::node::Lane;
use super::scripts::{CLAIM, Call};
use super::trouble::Access;
use super::value::{self, Draft, Moment};
use super::{RedisStore, link, strange};
use crate::stores::durable::fit;
use crate::stores::may_have_landed;

/// How often a key is looked at that others change at the same time.
const LOOKS_MAX: usize = 8;
/// For how long such a key is busy then.
const CHANGED_FOR: Duration = Duration::from_millis(100);

/// What is said of a key.
pub(super) enum Said {
    /// It was.
    New(Box<Made>),
    /// It is known; or it was new, and what was written of it is not as it should be.
    Known(Timestamp, Vec<u8>),
    /// Records were lost, of which this may be one, or what was written of it last.
    Doubted(Timestamp, Option<Vec<u8>>),
    /// Redis has no memory for a claim, so nothing was written or read.
    Unwritten(StoreError),
}

/// A first claim that was made.
pub(super) struct Made {
    /// When its lease begins.
    pub(super) at: Timestamp,
    /// The time as Redis told it.
    pub(super) told: Timestamp,
    pub(super) draft: Draft,
}

/// A first claim that is to be made.
pub(super) struct First {
    /// Of the times only Redis can tell; it has the beginning of all in their place, by which tests are ahead.
    pub(super) draft: Draft,
    pub(super) ahead_ms: u64,
    /// What is behind the draft's frame.
    pub(super) behind: Vec<u8>,
    /// After how long Redis may let go of it.
    pub(super) lives: Option<Duration>,
    pub(super) bucket: Bucket,
    pub(super) guard: Shown,
}

impl RedisStore {
    pub(super) async fn claim_key(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        self.guard.check()?;
        let ask = &*fit(ask);
        let bucket = self.routes.buckets.of(&ask.id);
        let mut was_doubted = false;
        for _ in 0..LOOKS_MAX {
            let (now, value, is_doubted) = match self.claim_new(ask).await? {
                Said::New(made) => {
                    let (claimed, record) = claim_by_rule(None::<&Record>, ask, made.at);
                    self.own.remember(record.expect("a new key runs"), made.draft, made.told);
                    return Ok(claimed);
                }
                Said::Known(now, value) => (now, value, false),
                Said::Doubted(now, Some(value)) => (now, value, true),
                Said::Doubted(_, None) => {
                    was_doubted = true;
                    self.guard.find_out(bucket).await?;
                    continue;
                }
                Said::Unwritten(error) => return Box::pin(self.known_or(ask, error)).await,
            };
            was_doubted = is_doubted;
            let found = value::read(&ask.id, &value)?;
            // What this one has written stays there if it is not heard of again.
            let is_own = found.record.attempt_id == ask.attempt_id;
            let heard = |error| if is_own { may_have_landed(&error) } else { error };
            let (claimed, next) = claim_by_rule(Some(&found.record), ask, now);
            let Some(next) = next else { return Ok(claimed) };
            if is_doubted && let Claimed::Run(grant) = &claimed {
                // What looks unfinished may have been finished since; not what was only just claimed for this.
                if found.record.is_forgotten_by(&grant.lease, Release::Forget) {
                    self.replace(&ask.id, &found.seen, None, now).await.map_err(heard)?;
                }
                self.guard.find_out(bucket).await?;
                continue;
            }
            let shown = self.guard.show(bucket, ask);
            match self.replace(&ask.id, &found.seen, Some(&next), now).await.map_err(heard)? {
                Replaced::Done => {
                    let runs = matches!(claimed, Claimed::Run(_));
                    if runs && !self.guard.stands(bucket, &shown, None, now) {
                        // It was written at a server of which nobody knows yet what it has lost.
                        let cancel = |record: &mut Record, _| record.cancel(ask.attempt_id);
                        let cancelled = self.change_by(Lane::of(&ask.id), &ask.id, cancel).await;
                        let _gone = cancelled.map_err(|error| may_have_landed(&error))?;
                        was_doubted = true;
                        self.guard.find_out(bucket).await?;
                        continue;
                    }
                    if runs && self.puts_back() {
                        self.runs.begin(next.attempt_id, next.without_request());
                    }
                    return Ok(claimed);
                }
                Replaced::Changed | Replaced::Gone => {}
            }
        }
        match was_doubted {
            true => Err(StoreError::new(
                StoreErrorKind::RecordsLost,
                "it is not known whether Redis has lost records: no new key until then",
            )),
            false => Ok(Claimed::Busy { lease_left: CHANGED_FOR }),
        }
    }

    /// Answers a claim by its record alone; `error` where the answer would have to be written first. A record of whatever age
    /// proves what it says, and nothing runs by it.
    async fn known_or(&self, ask: &Ask, error: StoreError) -> Result<Claimed, StoreError> {
        let Ok((now, Some(found))) = self.read(&ask.id).await else { return Err(error) };
        match claim_by_rule(Some(&found.record), ask, now) {
            (claimed, None) => Ok(claimed),
            (_, Some(_)) => Err(error),
        }
    }

    async fn claim_new(&self, ask: &Ask) -> Result<Said, StoreError> {
        if self.guard.is_verified(self.routes.buckets.of(&ask.id))
            && let Some(now) = self.at_once.time()
            && let Some(said) = self.claim_at_once(ask, now).await?
        {
            return Ok(said);
        }
        // It is rare where there is much to do, and its future large.
        Box::pin(self.claim_by_script(ask)).await
    }

    async fn claim_by_script(&self, ask: &Ask) -> Result<Said, StoreError> {
        let First { mut draft, ahead_ms, behind, lives, bucket, guard } = self.first(ask);
        let guarded = self.routes.buckets.beside(bucket, GUARD);
        let call = Call::with(&CLAIM, &[&self.key(&ask.id), &guarded])
            .arg(draft.fields())
            .arg([draft.frame(), &behind[..]].concat())
            .millis(lives)
            .arg(guard.id())
            .number(guard.beats())
            .number(ahead_ms);
        let asked_at = self.at_once.here();
        let call = Arc::new(call);
        let said = match self.ask(&ask.id, Access::Claim, link::Ask::Script(&call)).await {
            Ok(Value::Array(said)) => said,
            Err(fault) if fault.is_out_of_memory => return Ok(Said::Unwritten(fault.into())),
            Ok(_) => return Err(strange(Access::Write)),
            Err(fault) => return Err(fault.into()),
        };
        let mut said = said.into_iter();
        let mut number = || {
            let number = redis::from_redis_value(said.next()?);
            number.ok()
        };
        let (seconds, micros) = number().zip(number()).ok_or_else(|| strange(Access::Write))?;
        let at = Moment { seconds, micros };
        let told = Timestamp::from_millis(at.as_millis());
        let now = told + Duration::from_millis(ahead_ms);
        let stands = self.guard.stands(bucket, &guard, None, now);
        let said = match (said.next(), said.next()) {
            (None, _) => {
                draft.made(at);
                match stands {
                    true => {
                        self.guard.note_write(bucket, &ask.id, (draft.seen(), lives));
                        Said::New(Box::new(Made { at: now, told, draft }))
                    }
                    false => {
                        let value = [draft.seen(), draft.frame(), &behind[..]].concat();
                        Said::Doubted(now, Some(value))
                    }
                }
            }
            (Some(Value::BulkString(value)), None) if stands => Said::Known(now, value),
            (Some(Value::BulkString(value)), _) => Said::Doubted(now, Some(value)),
            (Some(Value::Int(_)), _) => Said::Doubted(now, None),
            _ => return Err(strange(Access::Write)),
        };
        self.at_once.note(&said, told, asked_at);
        Ok(said)
    }

    pub(super) fn first(&self, ask: &Ask) -> First {
        let ahead_ms = self.options.ahead();
        let begin = Timestamp::from_millis(ahead_ms);
        let record = Record::first(ask, begin);
        let (lives, behind) = (value::lives(&record, begin), value::behind(&record));
        let bucket = self.routes.buckets.of(&ask.id);
        First {
            draft: Draft::of(record),
            ahead_ms,
            behind,
            lives,
            bucket,
            guard: self.guard.show(bucket, ask),
        }
    }
}
