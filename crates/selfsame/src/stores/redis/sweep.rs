//! Cleaning, some records at a time, by one process at a time.
//!
//! Redis lets go of what expired by itself, a minute later. What is left to a sweep is what Redis cannot
//! know of: dead claims to be held, answers to be buried.

use std::collections::HashSet;
use std::sync::LazyLock;

use redis::{Value, cmd, pipe};
use selfsame_core::{AttemptId, Due, RecordId, StoreError, Swept, Timestamp};

use super::buckets::{Bucket, pattern};
use super::changes::Replaced;
use super::link::Ask;
use super::node::Lane;
use super::scan::Cursor;
use super::trouble::Access;
use super::value::{Found, Head};
use super::{RedisStore, strange};
use crate::stores::durable::{CLAIMED, HELD, TOMBSTONE};

/// Who sweeps, until this long after it last did.
const SWEEPER: &str = "sweeper";
const LEAD_FOR_MS: u64 = 60_000;

/// How often Redis is asked for more in one step, where few of its keys are ours.
const SCANS_MAX: usize = 16;

/// The name of this process.
static PROCESS: LazyLock<AttemptId> = LazyLock::new(AttemptId::random);

/// Where the next step goes on.
#[derive(Default)]
pub(super) struct Spot {
    /// Where Redis goes on; nothing before it has begun.
    cursor: Option<Cursor>,
    /// What it has shown and nobody has looked at yet.
    left: Vec<RecordId>,
}

impl RedisStore {
    /// Sweeps from `spot` on, and returns where the next step goes on, unless the store ends here.
    pub(super) async fn sweep_from(
        &self,
        mut spot: Spot,
        most: usize,
    ) -> Result<(Swept, Spot), StoreError> {
        let finished = Swept { finished: true, ..Swept::default() };
        if !self.leads().await? {
            return Ok((finished, Spot::default()));
        }
        let cursor = spot.cursor.get_or_insert_with(|| Cursor::start(self));
        let pattern = pattern("");
        for _ in 0..SCANS_MAX {
            if spot.left.len() >= most {
                break;
            }
            let Some(ids) = cursor.step(self, &pattern).await? else { break };
            let known: HashSet<_> = spot.left.iter().copied().collect();
            spot.left.extend(ids.into_iter().filter(|id| !known.contains(id)));
        }
        let is_at_the_end = cursor.is_at_the_end();
        let ids: Vec<_> = spot.left.drain(..spot.left.len().min(most)).collect();
        let mut swept = self.clean(&ids).await?;
        swept.finished = spot.left.is_empty() && is_at_the_end;
        let next = if swept.finished { Spot::default() } else { spot };
        Ok((swept, next))
    }

    /// Whether it is for this process to sweep.
    async fn leads(&self) -> Result<bool, StoreError> {
        let name = &PROCESS.as_bytes()[..];
        let sweeper = self.routes.buckets.beside(Bucket::FIRST, SWEEPER);
        let ask = |ask| self.routes.ask(Bucket::FIRST, Lane::Look, Access::Read, ask);
        let mut lead = pipe();
        lead.cmd("SET").arg(&sweeper).arg(name).arg("NX").arg("PX").arg(LEAD_FOR_MS);
        lead.cmd("GET").arg(&sweeper);
        let Value::Array(answers) = ask(Ask::All(&lead)).await? else {
            return Err(strange(Access::Read));
        };
        let leads = matches!(&answers[..], [_, Value::BulkString(leader)] if leader == name);
        if leads {
            let mut prolong = cmd("PEXPIRE");
            prolong.arg(&sweeper).arg(LEAD_FOR_MS);
            ask(Ask::Command(&prolong)).await?;
        }
        Ok(leads)
    }

    /// Does what core's rules say is due, to records as they were seen, or leaves them to the next
    /// walk.
    async fn clean(&self, ids: &[RecordId]) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        let (now, heads) = self.heads(ids).await?;
        let due = heads
            .into_iter()
            .filter(|(_, head)| head.as_ref().is_none_or(|head| may_be_due(head, now)));
        let mut due: Vec<_> = due.map(|(id, _)| id).collect();
        while !due.is_empty() {
            let (now, records) = self.take_whole(&mut due).await?;
            for Found { mut record, seen } in records {
                let Some(due) = record.due(now) else { continue };
                record.bury(now);
                record.settle(now);
                let next = (due != Due::Removal).then_some(&record);
                if self.replace(&record.id, &seen, next, now).await? != Replaced::Done {
                    continue;
                }
                match due {
                    Due::Removal => swept.removed += 1,
                    Due::Burial => swept.buried += 1,
                    Due::Hold => swept.held.push(record.without_request()),
                }
            }
        }
        Ok(swept)
    }
}

/// Whether there may be something to do, as far as the head tells.
fn may_be_due(head: &Head, now: Timestamp) -> bool {
    match head.state {
        CLAIMED => head.state_at <= now,
        HELD => false,
        TOMBSTONE => head.expires_at + head.remember <= now,
        _ => head.expires_at <= now,
    }
}
