//! Renewals of many leases, in one statement and over a connection of their own.
//!
//! The leases of running work go before everything else: they never wait behind claims or completions.

use std::collections::HashSet;
use std::time::Duration;

use selfsame_core::{Fenced, Lease, RecordId, StoreError};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;

use super::lane::{Call, is_sent, make, one_for_each};
use super::link::Link;
use super::rows;
use super::session::Session;
use super::trouble::{Access, Fault};

/// Part of a lease that one try may take: others must fit into what is left of it.
const TRIES_PER_LEASE: u32 = 6;
const SHORTEST_TRY: Duration = Duration::from_millis(250);

/// The claims that still stand.
const STANDING: &str = "select k.id from unnest($1::bytea[], $2::bytea[], $3::bigint[]) \
     as g(id, attempt_id, fence) \
     cross join lateral (select x.id from selfsame.keys x where x.id = g.id \
     and x.attempt_id = g.attempt_id and x.fence = g.fence and x.state in (1, 4) limit 1) k";

/// Renews `leases`, and returns what came of each, in their order. The connection is made by the caller's
/// runtime, where it lives.
pub(super) async fn renew(link: &Link, leases: &[Lease]) -> Vec<Result<Fenced, StoreError>> {
    let shortest = leases.iter().map(|lease| lease.length).min().unwrap_or_default();
    let limit = (shortest / TRIES_PER_LEASE).max(SHORTEST_TRY);
    let failed = |fault: Fault| leases.iter().map(|_| Err(fault.error())).collect();
    let session = match timeout(limit, link.session()).await {
        Ok(Ok(session)) => session,
        Ok(Err(fault)) => return failed(fault),
        Err(_) => return failed(Fault::timed_out(Access::Read, limit)),
    };
    match timeout(limit, make(&session, leases)).await {
        Ok(outcomes) => outcomes,
        Err(_) => {
            // Its connection may be dead: the next try makes another.
            session.give_up();
            failed(Fault::timed_out(Access::Write, limit))
        }
    }
}

impl Call for Lease {
    type Outcome = Fenced;

    fn bytes(&self) -> usize {
        0
    }

    async fn make(
        session: &Session,
        leases: &[Self],
    ) -> Result<Vec<Result<Fenced, StoreError>>, Fault> {
        let sent = one_for_each(leases, |lease| lease.id);
        let columns = Columns::new(&sent);
        let renewed = columns.query(session, Access::Write, include_str!("renew.sql")).await?;
        let standing = match renewed.len() == sent.len() {
            true => HashSet::new(),
            false => columns.query(session, Access::Read, STANDING).await?,
        };
        let outcome = |lease: &Self| {
            let is_standing = standing.contains(&lease.id);
            match is_sent(&sent, lease) {
                true if renewed.contains(&lease.id) => Ok(Fenced::Applied),
                true if !is_standing => Ok(Fenced::Lost),
                // It is changed by somebody else at the moment, or another lease of its record was renewed.
                _ => Err(Fault::not_written("the record's row is locked").error()),
            }
        };
        Ok(leases.iter().map(outcome).collect())
    }
}

/// Leases as they are sent, column by column.
struct Columns<'a> {
    ids: Vec<&'a [u8]>,
    attempt_ids: Vec<&'a [u8]>,
    fences: Vec<i64>,
    lengths: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn new(leases: &[&'a Lease]) -> Self {
        Self {
            ids: leases.iter().map(|lease| &lease.id.as_bytes()[..]).collect(),
            attempt_ids: leases.iter().map(|lease| &lease.attempt_id.as_bytes()[..]).collect(),
            fences: leases.iter().map(|lease| lease.fence.number().cast_signed()).collect(),
            lengths: leases.iter().map(|lease| rows::millis(lease.length)).collect(),
        }
    }

    /// The ids of the rows that a statement about these leases gives.
    async fn query(
        &self,
        session: &Session,
        access: Access,
        sql: &'static str,
    ) -> Result<HashSet<RecordId>, Fault> {
        let all: [&(dyn ToSql + Sync); 4] =
            [&self.ids, &self.attempt_ids, &self.fences, &self.lengths];
        let params = if access == Access::Write { &all[..] } else { &all[..3] };
        let found = session.query(access, sql, params).await?;
        Ok(found.iter().filter_map(|row| rows::id_at(row, 0).ok()).collect())
    }
}
