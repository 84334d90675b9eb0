//! Claims of many callers: one look at all keys, then one write for those that change.
//!
//! A key that is new is inserted by the same statement that looks; one whose record needs no
//! change has its answer there, and nothing is locked. What is left is changed where it is still
//! as it was seen; a key that was lost to a rival is looked at again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use selfsame_core::{Ask, Claimed, Record, RecordId, StoreError, Timestamp, wire};
use tokio_postgres::types::ToSql;

use super::lane::Call;
use super::rows::{self, Seen, its_answer, its_checkpoint, key_columns};
use super::session::Session;
use super::trouble::{Access, Fault};
use super::writes::{Write, write};

/// How often a key is looked at whose row others change or have locked. Then it is busy.
const LOOKS_MAX: usize = 4;
/// How long such a row is left alone.
const LOCKED_FOR: Duration = Duration::from_millis(100);

macro_rules! claim_sql {
    ($given:literal) => {
        concat!(
            $given,
            include_str!("claim.sql"),
            "select l.now, false, ",
            key_columns!(),
            ", a.body from looked l cross join lateral (select (l.known).*) k",
            its_checkpoint!(),
            its_answer!(),
            "where (l.known).id is not null \
             union all \
             select l.now, true, b.id, null, null, null, null, null, null, null, null, null, null, \
             null, null, null, null, null, null, null, null, null, null, null, null, null \
             from (select now from looked limit 1) l, born b"
        )
    };
}

const CLAIM_MANY: &str = claim_sql!(
    "with given as (select * from unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::smallint[], \
     $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[], $9::text[], $10::text[], $11::text[], \
     $12::bigint[]) as g(id, fingerprint, attempt_id, recover, lease_ms, retention_ms, \
     remember_ms, tenant, tenant_name, key, route, still))"
);

/// Half the time of the one for many.
const CLAIM_ONE: &str = claim_sql!(
    "with given as (select * from (values ($1::bytea, $2::bytea, $3::bytea, $4::smallint, \
     $5::bigint, $6::bigint, $7::bigint, $8::bytea, $9::text, $10::text, $11::text, $12::bigint)) \
     as g(id, fingerprint, attempt_id, recover, lease_ms, retention_ms, remember_ms, tenant, \
     tenant_name, key, route, still))"
);

const COLUMNS_AT: usize = 2;

/// What a look found under a key.
enum Found {
    /// Nothing: the first caller has claimed it now.
    Born,
    Known(Box<Record>, Seen),
    Damaged(StoreError),
}

/// A change that the first caller of a key waits for.
struct Change {
    claimed: Claimed,
    write: Write,
}

impl Call for Ask {
    type Outcome = Claimed;

    fn bytes(&self) -> usize {
        0
    }

    async fn make(
        session: &Session,
        asks: &[Self],
    ) -> Result<Vec<Result<Claimed, StoreError>>, Fault> {
        let mut round = Round::new(asks);
        for _ in 0..LOOKS_MAX {
            match round.go(session).await {
                Ok(()) if round.open.is_empty() => break,
                Ok(()) => {}
                Err(fault) if fault.is_local => return Err(fault),
                // What was claimed before the connection was lost stays claimed.
                Err(fault) => return Ok(round.outcomes(|| Err(fault.error()))),
            }
        }
        Ok(round.outcomes(|| Ok(Claimed::Busy { lease_left: LOCKED_FOR })))
    }
}

/// A batch on its way to an outcome for each of its callers.
struct Round<'a> {
    asks: &'a [Ask],
    /// Who still waits, by key, in the order they came. Sorted, so that no two batches can wait for
    /// each other's keys.
    open: BTreeMap<RecordId, VecDeque<usize>>,
    done: Vec<Option<Result<Claimed, StoreError>>>,
    now: Timestamp,
}

impl<'a> Round<'a> {
    fn new(asks: &'a [Ask]) -> Self {
        let mut open = BTreeMap::<_, VecDeque<_>>::new();
        for (at, ask) in asks.iter().enumerate() {
            open.entry(ask.id).or_default().push_back(at);
        }
        let done = asks.iter().map(|_| None).collect();
        Self { asks, open, done, now: Timestamp::default() }
    }

    async fn go(&mut self, session: &Session) -> Result<(), Fault> {
        let changes = self.look(session).await?;
        self.change(session, changes).await
    }

    /// Looks at all open keys, and tells those callers whose record needs no change.
    async fn look(&mut self, session: &Session) -> Result<Vec<Change>, Fault> {
        let first: Vec<_> = self.open.values().map(|callers| &self.asks[callers[0]]).collect();
        let (now, mut found) = look(session, &first).await?;
        self.now = now;
        let ids: Vec<_> = self.open.keys().copied().collect();
        let mut changes = Vec::new();
        for id in ids {
            match found.remove(&id) {
                Some(Found::Born) => {
                    let ask = &self.asks[self.open[&id][0]];
                    let (claimed, _) = selfsame_core::claim(None, ask, now);
                    self.tell(&id, Ok(claimed));
                    self.settle(&id, &Record::first(ask, now));
                }
                Some(Found::Known(record, seen)) => {
                    changes.extend(
                        self.settle(&id, &record).map(|(claimed, next)| Change {
                            claimed,
                            write: Write::new(seen, next),
                        }),
                    );
                }
                Some(Found::Damaged(error)) => self.refuse(&id, &error),
                None => {}
            }
        }
        Ok(changes)
    }

    /// Makes the changes. Those that came too late leave their callers waiting.
    async fn change(&mut self, session: &Session, changes: Vec<Change>) -> Result<(), Fault> {
        if changes.is_empty() {
            return Ok(());
        }
        let (claimed, writes): (Vec<_>, Vec<_>) =
            changes.into_iter().map(|change| (change.claimed, change.write)).unzip();
        let written = write(session, &writes).await?;
        for (claimed, write) in claimed.into_iter().zip(&writes) {
            let id = write.record.id;
            if written.contains(&id) {
                self.tell(&id, Ok(claimed));
                self.settle(&id, &write.record);
            }
        }
        Ok(())
    }

    /// Tells callers of `id` what their claim comes to, until one needs a change.
    fn settle(&mut self, id: &RecordId, record: &Record) -> Option<(Claimed, Record)> {
        while let Some(&at) = self.open.get(id).and_then(VecDeque::front) {
            match selfsame_core::claim(Some(record), &self.asks[at], self.now) {
                (claimed, None) => self.tell(id, Ok(claimed)),
                (claimed, Some(next)) => return Some((claimed, next)),
            }
        }
        None
    }

    fn refuse(&mut self, id: &RecordId, error: &StoreError) {
        while self.open.contains_key(id) {
            self.tell(id, Err(StoreError::new(error.kind(), error.to_string())));
        }
    }

    /// Tells the first caller of `id`.
    fn tell(&mut self, id: &RecordId, outcome: Result<Claimed, StoreError>) {
        let Some(callers) = self.open.get_mut(id) else { return };
        let first = callers.pop_front().expect("a key without callers is not open");
        self.done[first] = Some(outcome);
        if callers.is_empty() {
            self.open.remove(id);
        }
    }

    /// What each caller is told; `open` is for those who still wait.
    fn outcomes(
        self,
        open: impl Fn() -> Result<Claimed, StoreError>,
    ) -> Vec<Result<Claimed, StoreError>> {
        self.done.into_iter().map(|outcome| outcome.unwrap_or_else(&open)).collect()
    }
}

async fn look(
    session: &Session,
    asks: &[&Ask],
) -> Result<(Timestamp, HashMap<RecordId, Found>), Fault> {
    let columns = Asked::new(asks);
    let found = match asks {
        [_] => session.query(Access::Write, CLAIM_ONE, &columns.one()).await?,
        _ => session.query(Access::Write, CLAIM_MANY, &columns.many()).await?,
    };
    let mut now = Timestamp::default();
    let mut by_id = HashMap::with_capacity(found.len());
    for row in &found {
        now = Timestamp::from_millis(row.get::<_, i64>(0).cast_unsigned());
        let Ok(id) = rows::id_at(row, COLUMNS_AT) else { continue };
        by_id.insert(id, if row.get(1) { Found::Born } else { known(row, now) });
    }
    Ok((now, by_id))
}

fn known(row: &tokio_postgres::Row, now: Timestamp) -> Found {
    let read = rows::read(row, COLUMNS_AT).and_then(|read| {
        let seen = read.seen;
        Ok((read.whole(row.get(rows::behind(COLUMNS_AT)), now)?, seen))
    });
    match read {
        Ok((record, seen)) => Found::Known(Box::new(record), seen),
        Err(error) => Found::Damaged(error),
    }
}

/// What is asked, column by column.
struct Asked<'a> {
    ids: Vec<&'a [u8]>,
    fingerprints: Vec<Vec<u8>>,
    attempt_ids: Vec<&'a [u8]>,
    recovers: Vec<i16>,
    leases: Vec<i64>,
    retentions: Vec<i64>,
    remembers: Vec<i64>,
    tenants: Vec<&'a [u8]>,
    tenant_names: Vec<Option<&'a str>>,
    keys: Vec<&'a str>,
    routes: Vec<&'a str>,
    stills: Vec<i64>,
}

impl<'a> Asked<'a> {
    fn new(asks: &[&'a Ask]) -> Self {
        let still =
            |ask: &Ask| rows::still(&Record::first(ask, Timestamp::default())).cast_signed();
        Self {
            ids: asks.iter().map(|ask| &ask.id.as_bytes()[..]).collect(),
            fingerprints: asks.iter().map(|ask| ask.fingerprint.to_bytes().to_vec()).collect(),
            attempt_ids: asks.iter().map(|ask| &ask.attempt_id.as_bytes()[..]).collect(),
            recovers: asks.iter().map(|ask| wire::recover_code(ask.recover).into()).collect(),
            leases: asks.iter().map(|ask| rows::millis(ask.lease)).collect(),
            retentions: asks.iter().map(|ask| rows::millis(ask.retention)).collect(),
            remembers: asks.iter().map(|ask| rows::millis(ask.remember)).collect(),
            tenants: asks.iter().map(|ask| ask.label.tenant.as_bytes()).collect(),
            tenant_names: asks.iter().map(|ask| ask.label.tenant_name.as_deref()).collect(),
            keys: asks.iter().map(|ask| ask.label.key.as_str()).collect(),
            routes: asks.iter().map(|ask| &*ask.label.route).collect(),
            stills: asks.iter().map(|ask| still(ask)).collect(),
        }
    }

    fn many(&self) -> [&(dyn ToSql + Sync); 12] {
        [
            &self.ids,
            &self.fingerprints,
            &self.attempt_ids,
            &self.recovers,
            &self.leases,
            &self.retentions,
            &self.remembers,
            &self.tenants,
            &self.tenant_names,
            &self.keys,
            &self.routes,
            &self.stills,
        ]
    }

    fn one(&self) -> [&(dyn ToSql + Sync); 12] {
        [
            &self.ids[0],
            &self.fingerprints[0],
            &self.attempt_ids[0],
            &self.recovers[0],
            &self.leases[0],
            &self.retentions[0],
            &self.remembers[0],
            &self.tenants[0],
            &self.tenant_names[0],
            &self.keys[0],
            &self.routes[0],
            &self.stills[0],
        ]
    }
}
