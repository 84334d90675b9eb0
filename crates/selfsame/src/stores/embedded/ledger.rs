//! [`Ledger`]: what the writer's thread does to records, within the transaction of a batch.
//!
//! Each change is one of core's pure ones, between a read and a write of the record's row.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Connection;
use selfsame_core::{
    Ask, Checkpoint, Claimed, Clock, Due, Fence, Fenced, Lease, Record, RecordId, Recorded,
    Release, Resolution, Resolved, State, Swept, Timestamp, wire,
};

use super::expiry::Buckets;
use super::facts::{Boot, fact, set_fact};
use super::rows::{self, Row};
use super::trouble::Trouble;
use crate::stores::columns::stand_in;

/// How many records are kept at hand for the end of their runs.
const RUNNING_MAX: usize = 16_384;

/// The write connection and what belongs to it.
pub(super) struct Ledger {
    conn: Connection,
    clock: Arc<dyn Clock>,
    boot: Boot,
    buckets: Buckets,
    /// First claims as they were written, until anything else is written about them.
    running: HashMap<RecordId, Record>,
    now: Timestamp,
}

impl Ledger {
    pub(super) fn new(
        conn: Connection,
        clock: Arc<dyn Clock>,
        boot: Boot,
    ) -> rusqlite::Result<Self> {
        let buckets = Buckets::load(&conn)?;
        let now = clock.now();
        Ok(Self { conn, clock, boot, buckets, running: HashMap::new(), now })
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.conn
    }

    /// Begins a batch, at one time for all in it.
    pub(super) fn begin(&mut self) -> rusqlite::Result<()> {
        self.now = self.clock.now();
        self.conn.prepare_cached("BEGIN")?.execute([]).map(drop)
    }

    /// Makes the batch durable. A batch that only read costs nothing here.
    pub(super) fn commit(&mut self) -> rusqlite::Result<()> {
        self.conn.prepare_cached("COMMIT")?.execute([]).map(drop)
    }

    /// Undoes the batch, as far as SQLite has not done so by itself.
    pub(super) fn roll_back(&mut self) -> rusqlite::Result<()> {
        if !self.conn.is_autocommit() {
            self.conn.execute_batch("ROLLBACK")?;
        }
        self.running.clear();
        self.buckets = Buckets::load(&self.conn)?;
        Ok(())
    }

    pub(super) fn claim(&mut self, ask: &Ask) -> Result<Claimed, Trouble> {
        // Most keys are new, and to find that out costs as much as to write them.
        if let (claimed, Some(first)) = selfsame_core::claim(None, ask, self.now)
            && rows::add(&self.conn, &first, self.boot)?
        {
            self.expect_end(first);
            return Ok(claimed);
        }
        let found = self.find(&ask.id)?;
        let found = found.map(|row| row.whole(&self.conn, self.now)).transpose()?;
        let (claimed, next) = selfsame_core::claim(found.as_ref(), ask, self.now);
        if let Some(next) = next {
            let had_checkpoint = found.is_some_and(|found| found.checkpoint.is_some());
            if had_checkpoint && next.checkpoint.is_none() {
                rows::delete_checkpoint(&self.conn, &ask.id)?;
            }
            self.save(&next, None)?;
        }
        Ok(claimed)
    }

    pub(super) fn renew(&mut self, lease: &Lease) -> Result<Fenced, Trouble> {
        let Some(Row { mut record, .. }) = self.find(&lease.id)? else { return Ok(Fenced::Lost) };
        let fenced = record.renew(lease, self.now);
        if fenced == Fenced::Applied {
            self.save(&record, None)?;
        }
        Ok(fenced)
    }

    pub(super) fn checkpoint(
        &mut self,
        lease: &Lease,
        checkpoint: Checkpoint,
    ) -> Result<Fenced, Trouble> {
        let Some(Row { mut record, .. }) = self.find(&lease.id)? else { return Ok(Fenced::Lost) };
        let fenced = record.checkpoint(lease, checkpoint);
        if fenced == Fenced::Applied {
            rows::save_checkpoint(&self.conn, &record)?;
            self.save(&record, None)?;
        }
        Ok(fenced)
    }

    /// `frame` is the answer, encoded by the caller: the writer's thread has enough to do.
    pub(super) fn complete(&mut self, lease: &Lease, frame: &[u8]) -> Result<Recorded, Trouble> {
        if let Some(recorded) = self.complete_at_hand(lease, frame)? {
            return Ok(recorded);
        }
        let Some(Row { mut record, .. }) = self.find(&lease.id)? else { return Ok(Recorded::Lost) };
        let was_complete = matches!(record.state, State::Completed { .. });
        let recorded = record.complete(lease, stand_in(), self.now);
        if recorded != Recorded::Lost && !was_complete {
            self.save(&record, Some(frame))?;
        }
        Ok(recorded)
    }

    pub(super) fn release(&mut self, lease: &Lease, release: Release) -> Result<Fenced, Trouble> {
        let Some(Row { mut record, .. }) = self.find(&lease.id)? else { return Ok(Fenced::Lost) };
        if record.is_forgotten_by(lease, release) {
            self.delete(&record)?;
            return Ok(Fenced::Applied);
        }
        let fenced = record.release(lease, release, self.now);
        if fenced == Fenced::Applied {
            self.save(&record, None)?;
        }
        Ok(fenced)
    }

    pub(super) fn resolve(
        &mut self,
        id: &RecordId,
        fence: Fence,
        resolution: Resolution,
    ) -> Result<Resolved, Trouble> {
        let found = self.find(id)?.map(|row| row.record);
        let Some(mut record) = found.filter(|record| !record.is_expired(self.now)) else {
            return Ok(Resolved::Missing);
        };
        let frame = match &resolution {
            Resolution::Complete(answer) => Some(wire::encode_answer(id, answer)),
            Resolution::Free => None,
        };
        let resolved = record.resolve(fence, resolution, self.now);
        if resolved == Resolved::Done {
            self.save(&record, frame.as_deref())?;
        }
        Ok(resolved)
    }

    /// Does what is due to `ids`, and takes away some of the answers whose time is over; finished if
    /// none are left. Whoever found them read beside the writer, so each is looked at again.
    pub(super) fn sweep(&mut self, ids: &[RecordId]) -> Result<Swept, Trouble> {
        let mut swept = Swept::default();
        for id in ids {
            let mut record = match self.find(id) {
                Ok(Some(row)) => row.record,
                Ok(None) | Err(Trouble::Damaged(_)) => continue,
                Err(trouble) => return Err(trouble),
            };
            match record.due(self.now) {
                Some(Due::Removal) => {
                    self.delete(&record)?;
                    swept.removed += 1;
                }
                Some(Due::Burial) => {
                    self.bury(record)?;
                    swept.buried += 1;
                }
                Some(Due::Hold) => {
                    record.settle(self.now);
                    self.save(&record, None)?;
                    swept.held += 1;
                }
                None => {}
            }
        }
        let is_left = self.buckets.clear_some(&self.conn, self.now)?;
        Ok(Swept { finished: !is_left, ..swept })
    }

    pub(super) fn fact_or(&mut self, name: &str, value: Vec<u8>) -> Result<Vec<u8>, Trouble> {
        match fact(&self.conn, name)? {
            Some(known) => Ok(known),
            None => {
                self.set_fact(name, &value)?;
                Ok(value)
            }
        }
    }

    pub(super) fn set_fact(&mut self, name: &str, value: &[u8]) -> Result<(), Trouble> {
        set_fact(&self.conn, name, value)?;
        Ok(())
    }

    /// Keeps nothing of the record but its row, which no longer leads to an answer: that leaves
    /// with its table.
    fn bury(&mut self, mut record: Record) -> rusqlite::Result<()> {
        if record.checkpoint.is_some() {
            rows::delete_checkpoint(&self.conn, &record.id)?;
        }
        record.bury(self.now);
        self.save(&record, None)
    }

    /// Keeps a record at hand that was just claimed: its run is about to end.
    fn expect_end(&mut self, record: Record) {
        if self.running.len() < RUNNING_MAX {
            self.running.insert(record.id, record);
        }
    }

    /// Completes a claim that is at hand, without a look at its row. Nothing if it is not, or if the
    /// row is no longer as this claim left it: somebody may have made another process write here.
    fn complete_at_hand(
        &mut self,
        lease: &Lease,
        frame: &[u8],
    ) -> rusqlite::Result<Option<Recorded>> {
        let Some(claimed) = self.running.remove(&lease.id) else { return Ok(None) };
        let mut record = claimed.clone();
        let recorded = record.complete(lease, stand_in(), self.now);
        if recorded == Recorded::Lost {
            return Ok(None);
        }
        let place = self.buckets.append(&self.conn, frame, record.expires_at, self.now)?;
        match rows::finish(&self.conn, &claimed, &record, place, self.boot)? {
            true => Ok(Some(recorded)),
            // Nothing leads to the answer that was appended; it leaves with its table.
            false => Ok(None),
        }
    }

    fn find(&self, id: &RecordId) -> Result<Option<Row>, Trouble> {
        rows::find(&self.conn, id, self.boot)
    }

    fn delete(&mut self, record: &Record) -> rusqlite::Result<()> {
        self.running.remove(&record.id);
        rows::delete(&self.conn, record)
    }

    fn save(&mut self, record: &Record, frame: Option<&[u8]>) -> rusqlite::Result<()> {
        self.running.remove(&record.id);
        let answer = match frame {
            Some(frame) => {
                Some(self.buckets.append(&self.conn, frame, record.expires_at, self.now)?)
            }
            None => None,
        };
        rows::save(&self.conn, record, answer, self.boot)
    }
}
