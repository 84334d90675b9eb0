//! Records as they are, out of and into the log.

use std::ops::Bound;

use async_trait::async_trait;
use selfsame_core::{Record, RecordId, StoreError, StoreErrorKind};

use super::EmbeddedStore;
use crate::stores::transfer::{Imported, JournalRow, Transfer};

#[async_trait]
impl Transfer for EmbeddedStore {
    async fn ids(&self) -> Result<Vec<RecordId>, StoreError> {
        let mut ids = Vec::new();
        let mut from = Bound::Unbounded;
        loop {
            let bite = self.looks.ask(move |records| records.ids(from)).await?;
            ids.extend(bite.found);
            match bite.next {
                Some(last) => from = Bound::Excluded(last),
                None => return Ok(ids),
            }
        }
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        let record = record.clone();
        self.writes.ask(move |ledger| ledger.import(record)).await
    }

    async fn facts(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.writes.ask(|ledger| Ok(ledger.facts())).await
    }

    async fn phases(&self, _: &Record) -> Result<Vec<JournalRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn import_phase(&self, _: &JournalRow) -> Result<(), StoreError> {
        Err(StoreError::new(StoreErrorKind::NotWritten, "a file: store has no journal of phases"))
    }

    /// The folder is locked: there are none.
    async fn users(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    async fn version(&self) -> Result<String, StoreError> {
        Ok("log format 2".to_owned())
    }
}
