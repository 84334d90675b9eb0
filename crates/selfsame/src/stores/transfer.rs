//! [`Transfer`]: records as they are, from one store into another.

use async_trait::async_trait;
use selfsame_core::{FullStore, Record, RecordId, StoreError};

/// A store whose records can be moved, in all states and with all that belongs to them. What is encrypted
/// stays so: it is bound to its record and not to its store.
///
/// Nothing here is for a store that is in use: a record that changes between being read and being written
/// elsewhere would go back in time.
#[async_trait]
pub trait Transfer: FullStore {
    /// The ids of all records, also of those that expired and were not removed yet.
    async fn ids(&self) -> Result<Vec<RecordId>, StoreError>;

    /// Stores a record as it is, unless its id is known here. Durable when this returns.
    async fn import(&self, record: &Record) -> Result<Imported, StoreError>;

    /// The values that the installation agrees on, such as its secret.
    async fn facts(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// The finished phases of a record, where the store has a journal.
    async fn phases(&self, record: &Record) -> Result<Vec<JournalRow>, StoreError>;

    /// Stores a finished phase, unless it is there.
    ///
    /// # Errors
    /// Where the store has no journal.
    async fn import_phase(&self, row: &JournalRow) -> Result<(), StoreError>;

    /// Other processes that use the store, in words; nothing where there are none. It is kept from being
    /// swept by others from now on, as far as the store can do that.
    async fn users(&self) -> Result<Option<String>, StoreError>;

    /// The version of the server, or of what is in the files.
    async fn version(&self) -> Result<String, StoreError>;
}

/// Result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// The record is stored.
    Done,
    /// A record with its id was there: nothing was changed.
    Known,
}

/// A finished phase, as the journal of a PostgreSQL store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRow {
    /// The record.
    pub id: RecordId,
    /// The life of the record.
    pub birth: Vec<u8>,
    /// The number of the phase, from 1.
    pub ordinal: i32,
    /// The name of the phase.
    pub name: String,
    /// The phase as it is kept, perhaps encrypted.
    pub body: Vec<u8>,
}
