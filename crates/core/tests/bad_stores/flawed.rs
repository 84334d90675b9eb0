//! A store in memory with one [`Flaw`], or none.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use selfsame_core::conformance::{Bench, SettableClock};
use selfsame_core::{
    Answer, Ask, AttemptId, Birth, Checkpoint, Claimed, Clock, Count, Due, Erased, Facts, Fence,
    Fenced, Find, FullStore, Inspect, Lease, Record, RecordId, Recorded, Release, Replay,
    Resolution, Resolved, State, Store, StoreError, Sweep, Swept, Timestamp,
};

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    ChecksNoFence,
    IgnoresAttemptIds,
    ChecksThenInserts,
    ForgetsOnRestart,
    LocksForTheRetention,
    TakesOverBeforeComparing,
    LocksToReplay,
    FreesOnCrash,
    ExpiresOnlyBySweeping,
    SweepsByAgeAlone,
    TakesEveryoneForARival,
    KeepsTheLastAnswer,
    AnswersWithoutLooking,
    PromisesTheRetentionAnew,
    TakesEachClaimForABirth,
    ForgetsWithTheRetention,
    BuriesOnlyBySweeping,
    ShowsTheAnswersOfTombstones,
    BuriesForEver,
    RemembersWhatWasNotDone,
    KeepsTheLastRequest,
    KeepsTheRequestForGood,
    ForgetsWhatIsErased,
    ErasesWhatRuns,
    ErasesAnswersAlone,
    CancelsOnlyWhatIsLeased,
    ReleasesOnlyWhatIsClaimed,
}

/// A bench of flawed stores that say they are durable: the data outlives the handle.
pub(crate) struct FlawedBench {
    clock: Arc<SettableClock>,
    data: Arc<Mutex<Data>>,
    flaw: Option<Flaw>,
}

#[derive(Default)]
struct Data {
    records: BTreeMap<RecordId, Record>,
    facts: BTreeMap<String, Vec<u8>>,
    swept_to: Option<RecordId>,
}

struct Flawed {
    clock: Arc<SettableClock>,
    data: Arc<Mutex<Data>>,
    flaw: Option<Flaw>,
}

impl FlawedBench {
    pub(crate) fn new(flaw: Option<Flaw>) -> Self {
        Self { clock: Arc::default(), data: Arc::default(), flaw }
    }
}

#[async_trait]
impl Bench for FlawedBench {
    async fn open(&self) -> Arc<dyn FullStore> {
        let data = match self.flaw {
            Some(Flaw::ForgetsOnRestart) => Arc::default(),
            _ => self.data.clone(),
        };
        Arc::new(Flawed { clock: self.clock.clone(), data, flaw: self.flaw })
    }

    fn is_durable(&self) -> bool {
        true
    }

    async fn pass(&self, time: Duration) {
        self.clock.pass(time);
    }
}

impl Flawed {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn lock(&self) -> MutexGuard<'_, Data> {
        self.data.lock().expect("no call panics under the lock")
    }

    /// What the flaw makes of the found record and of the wish, before they meet.
    fn bend(&self, found: Option<&Record>, ask: &Ask, now: Timestamp) -> (Option<Record>, Ask) {
        let (mut found, mut ask) = (found.cloned(), ask.clone());
        match (&mut found, self.flaw) {
            (_, Some(Flaw::LocksForTheRetention)) => ask.lease = ask.retention,
            (Some(found), Some(Flaw::TakesOverBeforeComparing)) => {
                let done = matches!(found.state, State::Completed { .. });
                if !done && !found.is_leased(now) {
                    found.fingerprint = ask.fingerprint;
                }
            }
            (Some(found), Some(Flaw::ExpiresOnlyBySweeping)) => {
                found.expires_at = found.expires_at.max(now + Duration::from_secs(1));
            }
            (Some(found), Some(Flaw::KeepsTheLastRequest)) => {
                found.keepsake = ask.keepsake.clone();
            }
            (Some(found), Some(Flaw::TakesEveryoneForARival)) => {
                found.attempt_id = AttemptId::random();
            }
            (_, Some(Flaw::ForgetsWithTheRetention)) => ask.remember = Duration::ZERO,
            (Some(found), Some(Flaw::BuriesOnlyBySweeping))
                if matches!(found.state, State::Completed { .. }) =>
            {
                found.remember = Duration::ZERO;
            }
            (Some(found), Some(Flaw::BuriesForEver)) if found.state == State::Tombstone => {
                found.expires_at = now;
            }
            (Some(found), Some(Flaw::RemembersWhatWasNotDone))
                if found.state == State::Failed && found.is_expired(now) =>
            {
                found.state = State::Tombstone;
            }
            _ => {}
        }
        (found, ask)
    }

    /// What the flaw makes of what they came to.
    fn twist(&self, claimed: &mut Claimed, ask: &Ask, now: Timestamp) {
        match (claimed, self.flaw) {
            (Claimed::Run(grant), Some(Flaw::PromisesTheRetentionAnew)) => {
                grant.expires_at = now + ask.retention;
            }
            (Claimed::Replay(replay), Some(Flaw::PromisesTheRetentionAnew)) => {
                replay.expires_at = now + ask.retention;
            }
            (Claimed::Run(grant), Some(Flaw::TakesEachClaimForABirth)) => {
                grant.birth = Birth::by(ask.attempt_id);
            }
            _ => {}
        }
    }

    /// The record as a reader sees it.
    fn seen(&self, record: &Record, now: Timestamp) -> Option<Record> {
        match self.has(Flaw::ShowsTheAnswersOfTombstones) {
            true => Some(record.clone()).filter(|record| !record.is_expired(now)),
            false => record.clone().seen_at(now),
        }
    }

    fn change(&self, lease: &Lease, change: impl FnOnce(&mut Record, &Lease) -> Fenced) -> Fenced {
        let mut data = self.lock();
        let Some(record) = data.records.get_mut(&lease.id) else { return Fenced::Lost };
        let shown = self.shown(record, lease);
        change(record, &shown)
    }

    /// The lease as the flaw sees it.
    fn shown(&self, record: &Record, lease: &Lease) -> Lease {
        let Record { fence, attempt_id, .. } = *record;
        match self.flaw {
            Some(Flaw::ChecksNoFence) => Lease { fence, attempt_id, ..*lease },
            Some(Flaw::IgnoresAttemptIds) => Lease { attempt_id, ..*lease },
            _ => *lease,
        }
    }
}

#[async_trait]
impl Store for Flawed {
    fn name(&self) -> &'static str {
        "flawed"
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        if self.has(Flaw::ChecksThenInserts) {
            let found = self.lock().records.get(&ask.id).cloned();
            tokio::task::yield_now().await;
            let (claimed, next) = selfsame_core::claim(found.as_ref(), ask, self.clock.now());
            self.lock().records.extend(next.map(|next| (ask.id, next)));
            return Ok(claimed);
        }
        let mut data = self.lock();
        let now = self.clock.now();
        let (found, ask) = self.bend(data.records.get(&ask.id), ask, now);
        let (mut claimed, mut next) = selfsame_core::claim(found.as_ref(), &ask, now);
        if self.has(Flaw::LocksToReplay) && matches!(claimed, Claimed::Replay(_)) {
            next = found.map(|found| found.claimed_again(&ask, now));
        }
        self.twist(&mut claimed, &ask, now);
        data.records.extend(next.map(|next| (ask.id, next)));
        Ok(claimed)
    }

    fn answered(&self, ask: &Ask) -> Option<Replay> {
        let data = self.lock();
        let record = data.records.get(&ask.id)?;
        match &record.state {
            State::Completed { answer, .. } if self.has(Flaw::AnswersWithoutLooking) => {
                Some(Replay { answer: answer.clone(), expires_at: record.expires_at })
            }
            _ => selfsame_core::answered(record, ask, self.clock.now()),
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        let now = self.clock.now();
        Ok(self.change(lease, |record, lease| record.renew(lease, now)))
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        Ok(self.change(lease, |record, lease| record.checkpoint(lease, checkpoint.clone())))
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        let now = self.clock.now();
        let mut data = self.lock();
        let Some(record) = data.records.get_mut(&lease.id) else { return Ok(Recorded::Lost) };
        let lease = self.shown(record, lease);
        if self.has(Flaw::KeepsTheLastAnswer) && record.is_claimed_by(&lease) {
            record.state = State::Claimed { lease_until: now };
        }
        let keepsake = record.keepsake.clone();
        let recorded = record.complete(&lease, answer.clone(), now);
        if self.has(Flaw::KeepsTheRequestForGood) {
            record.keepsake = keepsake;
        }
        Ok(recorded)
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        let mut data = self.lock();
        let Some(record) = data.records.get_mut(&lease.id) else { return Ok(Fenced::Lost) };
        let lease = self.shown(record, lease);
        let is_held = matches!(record.state, State::Held { .. });
        if self.has(Flaw::ReleasesOnlyWhatIsClaimed) && is_held {
            return Ok(Fenced::Lost);
        }
        if record.is_forgotten_by(&lease, release) {
            data.records.remove(&lease.id);
            return Ok(Fenced::Applied);
        }
        let release = if self.has(Flaw::FreesOnCrash) { Release::NeverRan } else { release };
        Ok(record.release(&lease, release, self.clock.now()))
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        let mut data = self.lock();
        let Some(record) = data.records.get_mut(id) else { return Ok(Fenced::Lost) };
        if self.has(Flaw::CancelsOnlyWhatIsLeased) && !record.is_leased(self.clock.now()) {
            return Ok(Fenced::Lost);
        }
        let attempt_id = match self.flaw {
            Some(Flaw::IgnoresAttemptIds) => record.attempt_id,
            _ => attempt_id,
        };
        Ok(record.cancel(attempt_id))
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let now = self.clock.now();
        Ok(self.lock().records.get(id).and_then(|record| self.seen(record, now)))
    }
}

#[async_trait]
impl Sweep for Flawed {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        let mut data = self.lock();
        let now = self.clock.now();
        let behind = data.swept_to.map_or(Bound::Unbounded, Bound::Excluded);
        let range = data.records.range((behind, Bound::Unbounded)).take(most);
        let ids: Vec<_> = range.map(|(id, _)| *id).collect();
        let finished = ids.len() < most;
        data.swept_to = ids.last().copied().filter(|_| !finished);
        let mut swept = Swept { finished, ..Swept::default() };
        for id in ids {
            let record = data.records.get_mut(&id).expect("it was there under this lock");
            let is_old = self.has(Flaw::SweepsByAgeAlone) && now >= record.expires_at;
            match record.due(now) {
                due if is_old || due == Some(Due::Removal) => {
                    data.records.remove(&id);
                    swept.removed += 1;
                }
                Some(Due::Burial) => {
                    record.bury(now);
                    swept.buried += 1;
                }
                Some(Due::Hold) => {
                    record.settle(now);
                    swept.held.push(record.clone().without_request());
                }
                _ => {}
            }
        }
        Ok(swept)
    }
}

#[async_trait]
impl Inspect for Flawed {
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        let now = self.clock.now();
        let is_match = |record: &Record| match find {
            Find::Key(key) => record.label.key.as_str() == key,
            Find::IdPrefix(prefix) => record.id.to_string().starts_with(prefix),
            Find::Held => record.is_held(now),
            Find::Abandoned { after } => {
                record.is_abandoned(now) && after.is_none_or(|after| record.id > after)
            }
            Find::Matching { filter, after } => {
                filter.lets_through(record, now) && after.is_none_or(|after| record.id > after)
            }
        };
        let data = self.lock();
        let seen = data.records.values().filter_map(|record| self.seen(record, now));
        let found = seen.filter(is_match).take(most);
        Ok(found.map(Record::without_request).collect())
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        let now = self.clock.now();
        let mut data = self.lock();
        match data.records.get_mut(id).filter(|record| !record.is_expired(now)) {
            Some(record) => Ok(record.resolve(fence, resolution.clone(), now)),
            None => Ok(Resolved::Missing),
        }
    }

    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError> {
        let now = self.clock.now();
        let mut data = self.lock();
        let erased = ids.iter().map(|id| {
            let found = data.records.get_mut(id).filter(|record| !record.is_expired(now));
            let Some(record) = found else { return Erased::Missing };
            let before = record.clone();
            if self.has(Flaw::ErasesWhatRuns) && record.is_leased(now) {
                record.state = State::Failed;
            }
            let erased = record.erase(now);
            if self.has(Flaw::ErasesAnswersAlone) {
                record.checkpoint = before.checkpoint;
            }
            if self.has(Flaw::ForgetsWhatIsErased) && erased == Erased::Done {
                data.records.remove(id);
            }
            erased
        });
        Ok(erased.collect())
    }

    async fn count(&self) -> Result<Count, StoreError> {
        let now = self.clock.now();
        let mut count = Count::default();
        for record in self.lock().records.values().filter(|record| !record.is_expired(now)) {
            *match record.state {
                _ if record.is_tombstone(now) => &mut count.tombstone,
                State::Claimed { .. } => &mut count.claimed,
                State::Completed { .. } => &mut count.completed,
                State::Failed => &mut count.failed,
                State::Held { .. } => &mut count.held,
                State::Tombstone => &mut count.tombstone,
            } += 1;
        }
        Ok(count)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }
}

#[async_trait]
impl Facts for Flawed {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        Ok(self.lock().facts.entry(name.to_owned()).or_insert_with(|| value.to_vec()).clone())
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.lock().facts.insert(name.to_owned(), value.to_vec());
        Ok(())
    }
}
