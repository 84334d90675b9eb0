//! The traits of a store, each call handed to the thread that does it.

use async_trait::async_trait;
use selfsame_core::{
    Answer, Ask, Checkpoint, Claimed, Count, Facts, Fence, Fenced, Find, Inspect, Lease, Record,
    RecordId, Recorded, Release, Resolution, Resolved, Store, StoreError, Sweep, Swept, Timestamp,
    wire,
};

use super::EmbeddedStore;

const PAST_ALL_IDS: [u8; RecordId::LEN + 1] = [u8::MAX; RecordId::LEN + 1];

#[async_trait]
impl Store for EmbeddedStore {
    fn name(&self) -> &'static str {
        "file"
    }

    async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        if let Some(claimed) = self.near.settled(ask, self.clock.now()) {
            return Ok(claimed);
        }
        // A key that nobody asked for lately is most likely new, and looked for in vain.
        if self.seen.knows(&ask.id)
            && let Some(claimed) = self.settled(ask).await?
        {
            return Ok(claimed);
        }
        let written = ask.clone();
        match self.writes.ask(move |ledger| ledger.claim(&written)).await {
            Ok(claimed) => {
                self.seen.remember(&ask.id);
                Ok(claimed)
            }
            // What needs no write is answered even while nothing can be written.
            Err(error) if !error.is_damaged() => {
                self.settled(ask).await.ok().flatten().ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Fenced, StoreError> {
        let lease = *lease;
        self.writes.ask(move |ledger| ledger.renew(&lease)).await
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
        let (lease, frame) = (*lease, wire::encode_answer(&lease.id, answer));
        self.writes.ask(move |ledger| ledger.complete(&lease, &frame)).await
    }

    async fn release(&self, lease: &Lease, release: Release) -> Result<Fenced, StoreError> {
        let lease = *lease;
        self.writes.ask(move |ledger| ledger.release(&lease, release)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let id = *id;
        self.reads.ask(move |snapshot| snapshot.get(&id)).await
    }
}

#[async_trait]
impl Sweep for EmbeddedStore {
    async fn sweep(&self, most: usize) -> Result<Swept, StoreError> {
        let after = self.swept_to.lock().clone();
        let stretch = self.looks.ask(move |snapshot| snapshot.walk(&after, most)).await?;
        let swept = self.writes.ask(move |ledger| ledger.sweep(&stretch.due)).await?;
        let finished = swept.finished && stretch.last.is_none();
        *self.swept_to.lock() = match stretch.last {
            Some(last) => last,
            None if finished => Vec::new(),
            // Only answers are left to be taken away.
            None => PAST_ALL_IDS.to_vec(),
        };
        Ok(Swept { finished, ..swept })
    }
}

#[async_trait]
impl Inspect for EmbeddedStore {
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        let find = find.clone();
        self.looks.ask(move |snapshot| snapshot.find(&find, most)).await
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

    async fn count(&self) -> Result<Count, StoreError> {
        self.looks.ask(|snapshot| snapshot.count()).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }
}

#[async_trait]
impl Facts for EmbeddedStore {
    async fn fact_or(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let looked = name.to_owned();
        if let Some(known) = self.reads.ask(move |snapshot| snapshot.fact(&looked)).await? {
            return Ok(known);
        }
        let (name, value) = (name.to_owned(), value.to_vec());
        self.writes.ask(move |ledger| ledger.fact_or(&name, value)).await
    }

    async fn set_fact(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.writes.ask(move |ledger| ledger.set_fact(&name, &value)).await
    }
}
