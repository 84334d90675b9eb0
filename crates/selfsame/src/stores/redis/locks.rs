//! What a store asks that has its claims here and its answers elsewhere, too.

use redis::cmd;
use selfsame_core::{Lease, Record, RecordId, State, StoreError, Timestamp};

use super::RedisStore;
use super::link::Ask;
use super::trouble::Access;
use super::value::{self, millis};

impl RedisStore {
    /// The time, and what is known of `id`.
    pub(in crate::stores) async fn known(
        &self,
        id: &RecordId,
    ) -> Result<(Timestamp, Option<Record>), StoreError> {
        let (now, found) = self.read(id).await?;
        Ok((now, found.map(|found| found.record)))
    }

    /// The same of the record that `lease` is for, which is not read where this process has claimed it and nobody can
    /// have taken it over for a while yet.
    pub(in crate::stores) async fn known_by(
        &self,
        lease: &Lease,
    ) -> Result<(Timestamp, Option<Record>), StoreError> {
        let own = self.own.peek(&lease.id, self.options.ahead());
        let is_safe = |now: Timestamp, record: &Record| {
            record.is_claimed_by(lease) && record.is_leased(now + lease.length / 3)
        };
        match own.filter(|(now, record)| is_safe(*now, record)) {
            Some((now, record)) => Ok((now, Some(record))),
            None => self.known(&lease.id).await,
        }
    }

    /// Puts the record of a running claim back that was lost, unless something is known of it. Whoever does so looks
    /// what is there then: no two claims have the same attempt id.
    pub(in crate::stores) async fn put_back(
        &self,
        lease: &Lease,
        record: &Record,
    ) -> Result<(), StoreError> {
        let (now, found) = self.known(&lease.id).await?;
        // What expired was not lost.
        if found.is_some() || now >= record.expires_at {
            return Ok(());
        }
        let state = State::Claimed { lease_until: now + lease.length };
        let record = Record { state, ..record.clone() };
        let mut set = cmd("SET");
        set.arg(self.key(&lease.id)).arg(value::write(&record)).arg("NX");
        if let Some(lives) = value::lives(&record, now) {
            set.arg("PX").arg(millis(lives));
        }
        self.ask(&lease.id, Access::Write, Ask::Command(&set)).await?;
        tracing::warn!(record = lease.id.short(), "Redis had forgotten a claim whose work runs");
        Ok(())
    }
}
