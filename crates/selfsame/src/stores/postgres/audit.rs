//! [`AuditEntry`]: what happened to a key, as a row that outlives the key's.

use selfsame_core::{AttemptId, RecordId, StoreError, TenantTag, Timestamp};
use tokio_postgres::types::ToSql;

use super::trouble::Access;
use super::{PostgresStore, rows, store};

/// Without a conflict's target, so that the role needs no more than to insert.
const APPEND: &str = "insert into selfsame.audit \
     select entry, to_timestamp(at / 1000.0), event, record, tenant, route, key, attempt, fence, \
     status, by_whom, reason from unnest($1::bytea[], $2::bigint[], $3::text[], $4::bytea[], $5::bytea[], \
     $6::text[], $7::text[], $8::integer[], $9::bigint[], $10::integer[], \
     $11::text[], $12::text[]) as g(entry, at, event, record, tenant, route, key, attempt, \
     fence, status, by_whom, reason) \
     on conflict do nothing";

/// Something that happened to a key.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    /// Random, one for each.
    pub entry: AttemptId,
    /// When, by the clock of who saw it.
    pub at: Timestamp,
    /// What.
    pub event: &'static str,
    /// To which record.
    pub record: RecordId,
    /// Whose it is.
    pub tenant: Option<TenantTag>,
    /// The route that took it.
    pub route: Option<Box<str>>,
    /// The key, where it may be shown.
    pub key: Option<Box<str>>,
    /// Which run.
    pub attempt: Option<u32>,
    /// The fence of the claim.
    pub fence: Option<u64>,
    /// The status of the answer.
    pub status: Option<u16>,
    /// The person who decided, where one did.
    pub by: Option<Box<str>>,
    /// Their reason.
    pub reason: Option<Box<str>>,
}

impl PostgresStore {
    /// Adds rows to the table `audit`. Those that were added before, by a call of which nothing was
    /// heard, are there once.
    pub async fn append_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        fn each<'a, T: ToSql + Sync + 'a>(
            entries: &'a [AuditEntry],
            value: impl Fn(&'a AuditEntry) -> T,
        ) -> Vec<T> {
            entries.iter().map(value).collect()
        }
        let fitting =
            |text: &Option<Box<str>>| text.as_ref().map(|text| text.replace('\0', "\u{fffd}"));
        let params: [&(dyn ToSql + Sync); 12] = [
            &each(entries, |entry| &entry.entry.as_bytes()[..]),
            &each(entries, |entry| rows::time(entry.at)),
            &each(entries, |entry| entry.event),
            &each(entries, |entry| &entry.record.as_bytes()[..]),
            &each(entries, |entry| entry.tenant.as_ref().map(TenantTag::as_bytes)),
            &each(entries, |entry| fitting(&entry.route)),
            &each(entries, |entry| fitting(&entry.key)),
            &each(entries, |entry| entry.attempt.map(u32::cast_signed)),
            &each(entries, |entry| entry.fence.map(u64::cast_signed)),
            &each(entries, |entry| entry.status.map(i32::from)),
            &each(entries, |entry| fitting(&entry.by)),
            &each(entries, |entry| fitting(&entry.reason)),
        ];
        let session = store::session(&self.look).await?;
        session.query(Access::Write, APPEND, &params).await?;
        Ok(())
    }
}
