//! Changes of one record: read, decided by core's rules, and written if it is still as it was seen.

use std::time::Duration;

use redis::{Value, cmd, pipe};
use selfsame_core::{
    Answer, Fenced, Lease, Record, RecordId, Recorded, State, StoreError, Timestamp,
};
use tokio::time::Instant;

use super::link::Ask;
use super::node::Lane;
use super::scripts::{Call, REPLACE};
use super::trouble::{Access, Fault};
use super::value::{self, Found, Seen, millis};
use super::{RedisStore, strange};

/// Redis does nothing else while it runs a script, so a large value has one to itself.
const SHARED_BYTES_MAX: usize = 16 << 10;

/// What is to become of a record.
pub(super) enum Change<T> {
    Nothing(T),
    Write(Box<Record>, T),
    Remove(T),
}

/// What became of a record that was to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaced {
    Done,
    /// It was not as it was seen.
    Changed,
    /// There was none.
    Gone,
}

impl RedisStore {
    /// The time, and what is known of `id`.
    pub(super) async fn read(
        &self,
        id: &RecordId,
    ) -> Result<(Timestamp, Option<Found>), StoreError> {
        self.read_over(Lane::of(id), id).await
    }

    async fn read_over(
        &self,
        lane: Lane,
        id: &RecordId,
    ) -> Result<(Timestamp, Option<Found>), StoreError> {
        let mut both = pipe();
        // The time first: a moment before the look no lease was over that was not over then.
        both.cmd("TIME").cmd("GET").arg(self.key(id));
        let answer = self.ask_over(lane, id, Access::Read, Ask::All(&both)).await?;
        let Value::Array(answers) = answer else { return Err(strange(Access::Read)) };
        let [time, value] = &answers[..] else { return Err(strange(Access::Read)) };
        let now = self.time(time).ok_or_else(|| strange(Access::Read))?;
        match value {
            Value::BulkString(value) => Ok((now, Some(value::read(id, value)?))),
            Value::Nil => Ok((now, None)),
            _ => Err(strange(Access::Read)),
        }
    }

    /// Puts `next` in the place of the record that was seen so; or nothing.
    pub(super) async fn replace(
        &self,
        id: &RecordId,
        seen: &Seen,
        next: Option<&Record>,
        now: Timestamp,
    ) -> Result<Replaced, StoreError> {
        self.replace_over(Lane::of(id), (id, seen), next, now).await
    }

    async fn replace_over(
        &self,
        lane: Lane,
        (id, seen): (&RecordId, &Seen),
        next: Option<&Record>,
        now: Timestamp,
    ) -> Result<Replaced, StoreError> {
        let lives = next.and_then(|next| value::lives(next, now));
        self.put(lane, (id, seen), lives, &next.map_or(Vec::new(), value::write)).await
    }

    /// Puts a value, or nothing, in the place of the record that was seen so.
    async fn put(
        &self,
        lane: Lane,
        (id, seen): (&RecordId, &Seen),
        lives: Option<Duration>,
        value: &[u8],
    ) -> Result<Replaced, StoreError> {
        let call = Call::new(&REPLACE, &self.key(id)).arg(seen).millis(lives).arg(value);
        // In a cluster others are of other slots.
        let is_shared = self.routes.is_one_server() && value.len() <= SHARED_BYTES_MAX;
        let call = if is_shared { call.shared() } else { call };
        let bucket = self.routes.buckets.of(id);
        if value.is_empty() {
            self.guard.note_removal(bucket, id);
        }
        match self.call_over(lane, id, Access::Write, call).await? {
            Value::BulkString(said) if said == b"done" => {
                if !value.is_empty() {
                    self.guard.note_write(bucket, id, (value, lives));
                }
                Ok(Replaced::Done)
            }
            Value::BulkString(said) if said == b"changed" => Ok(Replaced::Changed),
            Value::BulkString(said) if said == b"gone" => Ok(Replaced::Gone),
            _ => Err(strange(Access::Write)),
        }
    }

    /// Changes a record as `decide` says, which sees it again if others changed it meanwhile.
    pub(super) async fn change<T>(
        &self,
        id: &RecordId,
        decide: impl Fn(Option<Record>, Timestamp) -> Change<T>,
    ) -> Result<T, StoreError> {
        self.change_over(Lane::of(id), id, decide).await
    }

    async fn change_over<T>(
        &self,
        lane: Lane,
        id: &RecordId,
        decide: impl Fn(Option<Record>, Timestamp) -> Change<T>,
    ) -> Result<T, StoreError> {
        self.own.forget(id);
        let until = Instant::now() + self.options.time_out;
        loop {
            let (now, found) = self.read_over(lane, id).await?;
            let (record, seen) = match found {
                Some(Found { record, seen }) => (Some(record), Some(seen)),
                None => (None, None),
            };
            let (next, outcome) = match (decide(record, now), &seen) {
                (Change::Nothing(outcome), _) => return Ok(outcome),
                (Change::Write(next, outcome), Some(_)) => (Some(next), outcome),
                (Change::Remove(outcome), Some(_)) => (None, outcome),
                (_, None) => unreachable!("what is not there is not changed"),
            };
            let seen = seen.expect("it was there");
            match self.replace_over(lane, (id, &seen), next.as_deref(), now).await? {
                Replaced::Done => return Ok(outcome),
                // It was to go; perhaps it did when this was sent before.
                Replaced::Gone if next.is_none() => return Ok(outcome),
                _ if Instant::now() > until => {
                    return Err(Fault::not_written("others keep changing the record").into());
                }
                _ => {}
            }
        }
    }

    /// Changes a record by one of core's rules.
    pub(super) async fn change_by(
        &self,
        lane: Lane,
        id: &RecordId,
        rule: impl Fn(&mut Record, Timestamp) -> Fenced,
    ) -> Result<Fenced, StoreError> {
        let decide = |record: Option<Record>, now| {
            let Some(mut record) = record else { return Change::Nothing(Fenced::Lost) };
            match rule(&mut record, now) {
                Fenced::Lost => Change::Nothing(Fenced::Lost),
                Fenced::Applied => Change::Write(Box::new(record), Fenced::Applied),
            }
        };
        self.change_over(lane, id, decide).await
    }

    pub(super) async fn record(
        &self,
        lease: &Lease,
        answer: &Answer,
    ) -> Result<Recorded, StoreError> {
        // What was not changed since it was claimed here need not be read.
        let lane = Lane::of(&lease.id);
        if let Some(mut own) = self.own.take(&lease.id) {
            let now = own.now(self.options.ahead());
            let recorded = own.record.complete(lease, answer.clone(), now);
            let lives = value::lives(&own.record, now);
            if matches!(recorded, Recorded::Until(_)) {
                let put = self.put(lane, (&lease.id, own.seen()), lives, &own.value()).await;
                if matches!(put, Ok(Replaced::Done)) {
                    return Ok(recorded);
                }
                if self.puts_back() {
                    self.runs.begin(lease.attempt_id, *own.record);
                }
                put?;
            }
        }
        match self.record_by_rule(lease, answer).await? {
            Recorded::Lost => Box::pin(self.record_anew(lease, answer)).await,
            recorded => Ok(recorded),
        }
    }

    /// Tells if the answer to a run is recorded though its claim was lost: somebody must notice that it was.
    pub(super) fn puts_back(&self) -> bool {
        !self.options.accept_loss && !self.options.are_answers_elsewhere
    }

    /// A claim is about to be changed: what it was is remembered until its run ends.
    pub(super) fn remember_run(&self, lease: &Lease) {
        if self.puts_back()
            && let Some(record) = self.own.take_record(&lease.id)
        {
            self.runs.begin(lease.attempt_id, record);
        }
    }

    /// Records the answer of a run whose claim was lost with others. Since then no new key is taken here, so nobody else can
    /// have claimed this one; where that is not so, it stays lost.
    async fn record_anew(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        let run = self.runs.get(&lease.attempt_id).filter(|run| run.is_claimed_by(lease));
        let Some(run) = run else { return Ok(Recorded::Lost) };
        match self.guard.find_loss(self.routes.buckets.of(&lease.id)).await {
            Ok(()) => return Ok(Recorded::Lost),
            Err(error) if error.is_of_lost_records() => {}
            Err(error) => return Err(error),
        }
        let (now, found) = self.read(&lease.id).await?;
        if found.is_some() || now >= run.expires_at {
            return Ok(Recorded::Lost);
        }
        let state = State::Claimed { lease_until: now + lease.length };
        let mut record = Record { state, ..run };
        if record.complete(lease, answer.clone(), now) == Recorded::Lost {
            return Ok(Recorded::Lost);
        }
        let mut set = cmd("SET");
        set.arg(self.key(&lease.id)).arg(value::write(&record)).arg("NX");
        if let Some(lives) = value::lives(&record, now) {
            set.arg("PX").arg(millis(lives));
        }
        self.ask(&lease.id, Access::Write, Ask::Command(&set)).await?;
        tracing::warn!(
            record = lease.id.short(),
            "Redis had lost a claim whose work is done now; its answer is recorded all the same"
        );
        self.record_by_rule(lease, answer).await
    }

    /// What may have been changed since: renewed, done before, held, or lost.
    async fn record_by_rule(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        let decide = |record: Option<Record>, now| {
            let Some(before) = record else { return Change::Nothing(Recorded::Lost) };
            let mut record = before.clone();
            let recorded = record.complete(lease, answer.clone(), now);
            match recorded {
                // Perhaps not enough replicas have it yet: they are asked behind a write only.
                Recorded::Until(_) if self.options.wait_replicas > 0 => {
                    Change::Write(Box::new(record), recorded)
                }
                Recorded::Until(_) if record != before => Change::Write(Box::new(record), recorded),
                _ => Change::Nothing(recorded),
            }
        };
        self.change(&lease.id, decide).await
    }
}
