//! What people see and decide: Redis knows what is unfinished, both what is finished.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures_util::future::try_join;
use selfsame_core::{
    Count, Erased, Fence, Find, Inspect, Record, RecordId, Resolution, Resolved, State, StoreError,
    Timestamp, Verdict,
};

use super::SplitStore;

impl SplitStore {
    /// Records in PostgreSQL what a person has said of a key at `fence`, if that is what Redis has.
    async fn record_decision(&self, id: &RecordId, fence: Fence) -> Result<(), StoreError> {
        let (now, found) = self.locks.known(id).await?;
        match found {
            Some(record)
                if record.fence == fence.next()
                    && matches!(record.state, State::Completed { .. }) =>
            {
                self.answers.adopt(&record, now).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Whether an answer is in PostgreSQL, of which Redis perhaps knows nothing.
    async fn is_answered(&self, id: &RecordId) -> Result<bool, StoreError> {
        let found = self.answers.look(id).await?;
        let seen = found.and_then(|(record, now)| record.seen_at(now));
        Ok(seen.is_some_and(|record| matches!(record.state, State::Completed { .. })))
    }
}

#[async_trait]
impl Inspect for SplitStore {
    /// In the order of ids. What both know is shown as Redis has it.
    async fn find(&self, find: &Find, most: usize) -> Result<Vec<Record>, StoreError> {
        let (locks, answers) =
            try_join(self.locks.find(find, most), self.answers.store().find(find, most)).await?;
        let records = answers.into_iter().chain(locks).map(|record| (record.id, record));
        let by_id: BTreeMap<_, _> = records.collect();
        Ok(by_id.into_values().take(most).collect())
    }

    async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: &Resolution,
    ) -> Result<Resolved, StoreError> {
        let is_answer = matches!(resolution.verdict, Verdict::Complete(_));
        // Its client may have that answer: nobody may give the key another one.
        if is_answer && self.is_answered(id).await? {
            return Ok(Resolved::NotHeld);
        }
        let resolved = self.locks.resolve(id, fence, resolution).await?;
        if resolved == Resolved::Missing {
            // It may be held there from a time at which claims were there, too.
            return self.answers.store().resolve(id, fence, resolution).await;
        }
        if is_answer {
            // Also where it is not held any more: this may have failed the last time.
            self.record_decision(id, fence).await?;
        }
        Ok(resolved)
    }

    /// Redis first: an answer that it knows is in PostgreSQL already, so none comes behind this.
    async fn erase(&self, ids: &[RecordId]) -> Result<Vec<Erased>, StoreError> {
        let mut erased = self.locks.erase(ids).await?;
        for (id, erased) in ids.iter().zip(&mut erased) {
            if *erased == Erased::Running {
                continue;
            }
            let kept = self.answers.store().erase(std::slice::from_ref(id)).await?;
            if *erased == Erased::Missing {
                *erased = kept[0];
            }
        }
        Ok(erased)
    }

    async fn count(&self) -> Result<Count, StoreError> {
        let (locks, answers) = try_join(self.locks.count(), self.answers.store().count()).await?;
        Ok(Count {
            claimed: locks.claimed + answers.claimed,
            failed: locks.failed + answers.failed,
            held: locks.held + answers.held,
            completed: locks.completed.max(answers.completed),
            tombstone: locks.tombstone.max(answers.tombstone),
        })
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.locks.now().await
    }
}
