//! The traits of a store, each call handed to the thread that does it.

use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use selfsame_core::{
    Answer, Ask, AttemptId, Checkpoint, Claimed, Count, Erased, Facts, Fence, Fenced, Filter, Find,
    Inspect, Lease, Record, RecordId, Recorded, Release, Replay, Resolution, Resolved, Store,
    StoreError, Sweep, Swept, Timestamp, wire,
};

use super::ledger::Ledger;
use super::records::Stretch;
use super::{EmbeddedStore, scrub};

/// Where the next sweep goes on: first through the records, then through old segments.
#[derive(Clone, Copy)]
pub(super) enum Cursor {
    Records {
        after: Option<RecordId>,
    },
    /// How far the oldest segment, by its number, was looked through.
    Segments {
        surveyed: Option<(u32, u64)>,
    },
}

impl Default for Cursor {
    fn default() -> Self {
        Self::Records { after: None }
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn name(&self) -> &'static str {
        "file"
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        let now = self.records.clock.now();
        if let Some(record) = self.near.find(&ask.id, now)
            && let (claimed, None) = selfsame_core::claim(Some(&*record), ask, now)
        {
            return Ok(claimed);
        }
        if self.records.index.get(&ask.id).is_some()
            && let Some(claimed) = self.settled(ask).await?
        {
            return Ok(claimed);
        }
        let written = ask.clone();
        match self.writes.ask(move |ledger| ledger.claim(&written)).await {
            // What needs no write is answered even while nothing can be written.
            Err(error) if !error.is_damaged() => {
                self.settled(ask).await.ok().flatten().ok_or(error)
            }
            written => written,
        }
    }

    fn answered(&self, ask: &Ask) -> Option<Replay> {
        let now = self.records.clock.now();
        selfsame_core::answered(&*self.near.find(&ask.id, now)?, ask, now)
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        let lease = *lease;
        // The leases of running work go before all else.
        self.writes.ask_first(move |ledger| ledger.renew(&lease)).await
    }

    async fn checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<Fenced, StoreError> {
        let (lease, checkpoint) = (*lease, checkpoint.clone());
        self.writes.ask(move |ledger| ledger.checkpoint(&lease, checkpoint)).await
    }

    async fn complete(&self, lease: &Lease, answer: &Answer) -> Result<Recorded, StoreError> {
        let (lease, frame) = (*lease, wire::encode_bare_answer(answer));
        self.writes.ask(move |ledger| ledger.complete(&lease, &frame)).await
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        let lease = *lease;
        self.writes.ask(move |ledger| ledger.release(&lease, release)).await
    }

    async fn cancel(&self, id: &RecordId, attempt_id: AttemptId) -> Result<Fenced, StoreError> {
        let id = *id;
        self.writes.ask(move |ledger| ledger.cancel(&id, attempt_id)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        // Requests with new keys beyond a limit come by the thousands: they need no reading thread.
        if self.records.index.get(id).is_none() {
            return Ok(None);
        }
        let id = *id;
        self.reads.ask(move |records| records.seen(&id)).await
    }
}

#[async_trait]
impl Sweep for EmbeddedStore {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        let cursor = *self.cursor.lock();
        let (swept, next) = match cursor {
            Cursor::Records { after } => self.sweep_records(after, most).await?,
            Cursor::Segments { surveyed } => (Swept::default(), self.tidy(surveyed).await?),
        };
        *self.cursor.lock() = next.unwrap_or_default();
        Ok(Swept { finished: next.is_none(), ..swept })
    }
}

impl EmbeddedStore {
    /// Does what is due to some records. Also tells where to go on, unless all is done.
    async fn sweep_records(
        &self,
        after: Option<RecordId>,
        most: usize,
    ) -> Result<(Swept, Option<Cursor>), StoreError> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let due = self.looks.ask(move |records| Ok(records.due(from, most))).await?;
        let Stretch { sightings, next } = due;
        let swept = self.writes.ask(move |ledger| Ok(ledger.sweep(sightings))).await?;
        let next = match next {
            Some(last) => Some(Cursor::Records { after: Some(last) }),
            None => self.tidy(None).await?,
        };
        Ok((swept, next))
    }

    /// Takes old segments away, and writes a part of one anew of which little is needed. Tells where
    /// to go on, unless all is done.
    async fn tidy(&self, surveyed: Option<(u32, u64)>) -> Result<Option<Cursor>, StoreError> {
        let removal = self.writes.ask(|ledger| {
            ledger.remove_unneeded();
            Ok(())
        });
        removal.await?;
        let survey = self.looks.ask(move |records| {
            let Some(oldest) = records.segments.oldest_if_wasteful() else { return Ok(None) };
            let from = surveyed.filter(|(number, _)| *number == oldest.number).map(|(_, at)| at);
            Ok(Some((oldest.number, records.survey(&oldest, from)?)))
        });
        let Some((number, Stretch { sightings, next })) = survey.await? else { return Ok(None) };
        let rewriting = self.writes.ask(move |ledger| {
            ledger.rewrite(sightings);
            Ok(())
        });
        rewriting.await?;
        Ok(Some(Cursor::Segments { surveyed: next.map(|at| (number, at)) }))
    }
}

impl EmbeddedStore {
    /// The records behind `after` that `filter` lets through. All must be read for that, so it is done
    /// in bites: nobody waits for long, and no time runs out.
    async fn find_matching(
        &self,
        filter: &Filter,
        mut after: Option<RecordId>,
        most: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let mut found = Vec::new();
        loop {
            let filter = filter.clone();
            let bite = self.looks.ask(move |records| records.matching(&filter, after)).await?;
            found.extend(bite.found);
            after = bite.next;
            if found.len() >= most || after.is_none() {
                found.truncate(most);
                return Ok(found);
            }
        }
    }

    /// Overwrites what the log says of records that are tombstones now. See `scrub` for why these are
    /// written once more before.
    async fn scrub(&self, ids: Arc<[RecordId]>) -> Result<(), StoreError> {
        let again = ids.clone();
        let _tombstones = self.writes.ask(move |ledger| ledger.erase(&again)).await?;
        let erased = self.looks.ask(move |records| records.erased(&ids)).await?;
        let erased = Arc::new(erased);
        // File by file: nobody waits for long, and no time runs out.
        for segment in self.records.segments.all() {
            let (erased, looked) = (erased.clone(), segment.clone());
            let words =
                self.looks.ask(move |records| records.words_about(&erased, &looked)).await?;
            if !words.is_empty() {
                let overwriting = move |_: &mut Ledger| Ok(scrub::overwrite(&segment, &words)?);
                self.writes.ask(overwriting).await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Inspect for EmbeddedStore {
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        if let Find::Matching { filter, after } = find {
            return self.find_matching(filter, *after, most).await;
        }
        let find = find.clone();
        self.looks.ask(move |records| records.find(&find, most)).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        let (id, resolution) = (*id, resolution.clone());
        self.writes.ask(move |ledger| ledger.resolve(&id, fence, resolution)).await
    }

    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError> {
        let ids: Arc<[RecordId]> = ids.into();
        let erasing = ids.clone();
        let outcomes = self.writes.ask(move |ledger| ledger.erase(&erasing)).await?;
        ids.iter().for_each(|id| self.near.forget(id));
        let outcome = ids.iter().zip(&outcomes);
        let done = outcome.filter(|(_, erased)| **erased == Erased::Done).map(|(id, _)| *id);
        let done: Arc<[RecordId]> = done.collect();
        if !done.is_empty() {
            self.scrub(done).await?;
        }
        Ok(outcomes)
    }

    async fn count(&self) -> Result<Count, StoreError> {
        self.looks.ask(|records| records.count()).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.records.clock.now())
    }
}

#[async_trait]
impl Facts for EmbeddedStore {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.writes.ask(move |ledger| ledger.fact_or(&name, value)).await
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.writes.ask(move |ledger| ledger.set_fact(&name, value)).await
    }
}
