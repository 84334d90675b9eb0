//! [`Archive`]: answers of runs that were claimed elsewhere. They are finished when they come here, and the first of a
//! key stays.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use selfsame_core::{Record, RecordId, State, StoreError, Timestamp, wire};
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::changes::PAUSE;
use super::lane::{Alone, Call, Lane, is_sent, one_for_each};
use super::rows::{self, Column, its_answer, its_checkpoint, key_columns};
use super::session::Session;
use super::trouble::{Access, Fault};
use super::{PostgresStore, SHARDS, answers, shard};

macro_rules! look_sql {
    ($ids:literal) => {
        concat!(
            "with time as materialized (select selfsame.clock() as now) select time.now, ",
            key_columns!(),
            ", a.body from time, ",
            $ids,
            " cross join lateral (select * from selfsame.keys x where x.id = g.id limit 1) k",
            its_checkpoint!(),
            its_answer!(),
        )
    };
}

const LOOK_ONE: &str = look_sql!("(values ($1::bytea)) as g(id)");
const LOOK_MANY: &str = look_sql!("unnest($1::bytea[]) as g(id)");

const ADOPT: &str = concat!(
    "with given as (select * from unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::integer[], \
     $5::bytea[], $6::bytea[], $7::smallint[], $8::bigint[], $9::bigint[], $10::bigint[], \
     $11::bigint[], $12::bytea[], $13::text[], $14::text[], $15::text[], $16::bytea[], \
     $17::bigint[], $18::bytea[]) as g(id, fingerprint, fence, attempt, attempt_id, birth, \
     recover, age_ms, left_ms, retention_ms, remember_ms, tenant, tenant_name, key, route, \
     outline, still, body))",
    include_str!("adopt.sql")
);

/// The answers of runs that were claimed elsewhere, in the tables of a store.
pub(in crate::stores) struct Archive {
    looks: [Lane<Look>; SHARDS],
    adoptions: [Lane<Adoption>; SHARDS],
    store: Arc<PostgresStore>,
}

/// What became of an answer.
pub(in crate::stores) enum Adopted {
    /// It is recorded, now or when this was asked before.
    Done,
    /// Another run's is, or was.
    Other(Box<Record>),
}

impl Archive {
    pub(in crate::stores) fn new(store: Arc<PostgresStore>) -> Self {
        let alone = Arc::new(Alone::new(store.aside.clone()));
        let for_looks = store.target.for_claims();
        Self {
            looks: std::array::from_fn(|_| Lane::start(&for_looks, alone.clone())),
            adoptions: std::array::from_fn(|_| Lane::start(&store.target, alone.clone())),
            store,
        }
    }

    pub(in crate::stores) fn store(&self) -> &PostgresStore {
        &self.store
    }

    /// What is known of `id`, and the time.
    pub(in crate::stores) async fn look(
        &self,
        id: &RecordId,
    ) -> Result<Option<(Record, Timestamp)>, StoreError> {
        self.looks[shard(id)].ask(Look(*id)).await
    }

    /// Records what a run came to whose record is so at `now`, by the clock of who has its claim.
    pub(in crate::stores) async fn adopt(
        &self,
        record: &Record,
        now: Timestamp,
    ) -> Result<Adopted, StoreError> {
        let until = Instant::now() + self.store.target.time_out;
        loop {
            let adoption = Adoption::of(record, now);
            if self.adoptions[shard(&record.id)].ask(adoption).await? {
                return Ok(Adopted::Done);
            }
            if let Some((found, at)) = self.look(&record.id).await?
                && matches!(found.state, State::Completed { .. } | State::Tombstone)
                && !found.is_expired(at)
            {
                let is_its_own = matches!(found.state, State::Completed { .. })
                    && (found.attempt_id, found.fence) == (record.attempt_id, record.fence);
                return Ok(if is_its_own { Adopted::Done } else { Adopted::Other(found.into()) });
            }
            if Instant::now() + PAUSE > until {
                return Err(Fault::not_written("others keep changing the record").error());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// What is known of a key.
struct Look(RecordId);

impl Call for Look {
    type Outcome = Option<(Record, Timestamp)>;

    fn bytes(&self) -> usize {
        RecordId::LEN
    }

    async fn make(
        session: &Session,
        calls: &[Self],
    ) -> Result<Vec<Result<Self::Outcome, StoreError>>, Fault> {
        let mut ids: Vec<_> = calls.iter().map(|Look(id)| &id.as_bytes()[..]).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = match ids[..] {
            [one] => session.query(Access::Read, LOOK_ONE, &[&one]).await?,
            _ => session.query(Access::Read, LOOK_MANY, &[&ids]).await?,
        };
        let found: HashMap<_, _> =
            found.iter().filter_map(|row| Some((rows::id_at(row, 1).ok()?, row))).collect();
        let outcome = |Look(id): &Self| {
            let Some(row) = found.get(id) else { return Ok(None) };
            let now = rows::time_at(row, 0);
            let record = rows::read(row, 1)?.whole(row.get(rows::behind(1)), now)?;
            Ok(Some((record, now)))
        };
        Ok(calls.iter().map(outcome).collect())
    }
}

/// A finished record, by how long ago and for how long yet: its moments are another clock's.
struct Adoption {
    record: Record,
    age: Duration,
    left: Duration,
    /// Its answer, encoded by its caller: the lane has enough to do.
    frame: Vec<u8>,
}

impl Adoption {
    fn of(record: &Record, now: Timestamp) -> Self {
        let State::Completed { answer, .. } = &record.state else {
            unreachable!("only what is finished is recorded here")
        };
        let frame = wire::encode_answer(&record.id, answer);
        let (age, left) = (now.since(record.created_at), record.expires_at.since(now));
        // What a run goes on from is of no use to anybody any more.
        let mut record =
            Record { state: State::Failed, checkpoint: None, ..record.clone() }.without_request();
        record.label = rows::fit_label(record.label);
        Self { record, age, left, frame }
    }
}

impl Call for Adoption {
    /// Whether it was recorded now.
    type Outcome = bool;

    fn bytes(&self) -> usize {
        self.frame.len()
    }

    async fn make(
        session: &Session,
        calls: &[Self],
    ) -> Result<Vec<Result<Self::Outcome, StoreError>>, Fault> {
        // A second one of a key finds it finished.
        let sent = one_for_each(calls, |call| call.record.id);
        let adopted = match adopt(session, &sent).await {
            Err(fault) if fault.code == Some(SqlState::CHECK_VIOLATION) => {
                // No table has room for an answer that is kept so long.
                let left: Vec<_> = sent.iter().map(|call| call.left).collect();
                answers::make_room_until(session, &left).await?;
                adopt(session, &sent).await?
            }
            other => other?,
        };
        let outcome = |call: &Self| Ok(adopted.contains(&call.record.id) && is_sent(&sent, call));
        Ok(calls.iter().map(outcome).collect())
    }
}

async fn adopt(session: &Session, calls: &[&Adoption]) -> Result<HashSet<RecordId>, Fault> {
    let columns = columns(calls);
    let params: Vec<_> = columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
    let adopted = session.query(Access::Write, ADOPT, &params).await?;
    Ok(adopted.iter().filter_map(|row| rows::id_at(row, 0).ok()).collect())
}

/// In the order in which the statement takes them.
fn columns<'a>(calls: &'a [&'a Adoption]) -> [Column<'a>; 18] {
    fn each<'a, T: ToSql + Sync + Send + 'a>(
        calls: &'a [&'a Adoption],
        value: impl Fn(&'a Adoption, &'a Record) -> T,
    ) -> Column<'a> {
        Box::new(calls.iter().map(|call| value(call, &call.record)).collect::<Vec<_>>())
    }
    [
        each(calls, |_, r| &r.id.as_bytes()[..]),
        each(calls, |_, r| r.fingerprint.to_bytes().to_vec()),
        each(calls, |_, r| r.fence.number().cast_signed()),
        each(calls, |_, r| r.attempt.cast_signed()),
        each(calls, |_, r| &r.attempt_id.as_bytes()[..]),
        each(calls, |_, r| rows::later_birth(r).map(|birth| &birth.as_bytes()[..])),
        each(calls, |_, r| i16::from(wire::recover_code(r.recover))),
        each(calls, |c, _| rows::millis(c.age)),
        each(calls, |c, _| rows::millis(c.left)),
        each(calls, |_, r| rows::millis(r.retention)),
        each(calls, |_, r| rows::millis(r.remember)),
        each(calls, |_, r| r.label.tenant.as_bytes()),
        each(calls, |_, r| r.label.tenant_name.as_deref()),
        each(calls, |_, r| r.label.key.as_str()),
        each(calls, |_, r| &*r.label.route),
        each(calls, |_, r| rows::outline(&r.id, &r.keepsake)),
        each(calls, |_, r| rows::still(r).cast_signed()),
        each(calls, |c, _| c.frame.as_slice()),
    ]
}
