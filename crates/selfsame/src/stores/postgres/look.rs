//! Many keys at once: those that are new are inserted, and the others looked at.

use std::collections::HashMap;

use selfsame_core::{Ask, Record, RecordId, StoreError, Timestamp, wire};
use tokio_postgres::types::ToSql;

use super::rows::{self, Seen, its_answer, its_checkpoint, key_columns};
use super::session::Session;
use super::trouble::{Access, Fault};

macro_rules! given_many {
    () => {
        "with given as (select * from unnest($1::bytea[], $2::bytea[], $3::bytea[], \
         $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[], $9::text[], \
         $10::text[], $11::text[], $12::bigint[], $13::bytea[], $14::bytea[]) as g(id, fingerprint, attempt_id, recover, \
         lease_ms, retention_ms, remember_ms, tenant, tenant_name, key, route, still, outline, \
         request))"
    };
}

/// Half the time of the one for many.
macro_rules! given_one {
    () => {
        "with given as (select * from (values ($1::bytea, $2::bytea, $3::bytea, $4::smallint, \
         $5::bigint, $6::bigint, $7::bigint, $8::bytea, $9::text, $10::text, $11::text, \
         $12::bigint, $13::bytea, $14::bytea)) as g(id, fingerprint, attempt_id, recover, lease_ms, retention_ms, \
         remember_ms, tenant, tenant_name, key, route, still, outline, request))"
    };
}

macro_rules! bear_sql {
    ($given:expr) => {
        concat!(
            $given,
            ", time as materialized (select selfsame.clock() as now), \
             unseen as (select time.now, g.* from time, given g) ",
            include_str!("bear.sql")
        )
    };
}

macro_rules! claim_sql {
    ($given:expr) => {
        concat!(
            $given,
            include_str!("claim.sql"),
            ", born as (",
            include_str!("bear.sql"),
            ") select l.now, false, ",
            key_columns!(),
            ", a.body from looked l cross join lateral (select (l.known).*) k",
            its_checkpoint!(),
            its_answer!(),
            "where (l.known).id is not null \
             union all \
             select b.created_at, true, b.id, null, null, null, null, null, null, null, null, null, \
             null, null, null, null, null, null, null, null, null, null, null, null, null, null, \
             null \
             from born b"
        )
    };
}

/// For one key, and for many.
type Statements = (&'static str, &'static str);

const BEAR: Statements = (bear_sql!(given_one!()), bear_sql!(given_many!()));
const CLAIM: Statements = (claim_sql!(given_one!()), claim_sql!(given_many!()));

const COLUMNS_AT: usize = 2;

/// What a look found under a key.
pub(super) enum Found {
    /// Nothing: the first caller has claimed it now.
    Born,
    Known(Box<Record>, Seen),
    Damaged(StoreError),
}

/// Claims those of the keys that are new, and tells which were and at what time. The keys are
/// sorted and all different. Of the others nothing is found out.
pub(super) async fn bear(
    session: &Session,
    asks: &[&Ask],
) -> Result<Vec<(RecordId, Timestamp)>, Fault> {
    let born = query(session, BEAR, asks).await?;
    Ok(born
        .iter()
        .filter_map(|row| Some((rows::id_at(row, 0).ok()?, rows::time_at(row, 1))))
        .collect())
}

/// Looks at the keys of `asks`, which are sorted and all different, at one time, and claims those
/// that are new.
pub(super) async fn look(
    session: &Session,
    asks: &[&Ask],
) -> Result<(Timestamp, HashMap<RecordId, Found>), Fault> {
    let found = query(session, CLAIM, asks).await?;
    let mut now = Timestamp::default();
    let mut by_id = HashMap::with_capacity(found.len());
    for row in &found {
        now = rows::time_at(row, 0);
        let Ok(id) = rows::id_at(row, COLUMNS_AT) else { continue };
        by_id.insert(id, if row.get(1) { Found::Born } else { known(row, now) });
    }
    Ok((now, by_id))
}

async fn query(
    session: &Session,
    (one, many): Statements,
    asks: &[&Ask],
) -> Result<Vec<tokio_postgres::Row>, Fault> {
    let columns = Asked::new(asks);
    match asks {
        [_] => session.query(Access::Write, one, &columns.one()).await,
        _ => session.query(Access::Write, many, &columns.many()).await,
    }
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
    outlines: Vec<Option<Vec<u8>>>,
    requests: Vec<Option<Vec<u8>>>,
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
            outlines: asks.iter().map(|ask| rows::outline(&ask.id, &ask.keepsake)).collect(),
            requests: asks.iter().map(|ask| rows::request(&ask.id, &ask.keepsake)).collect(),
        }
    }

    fn many(&self) -> [&(dyn ToSql + Sync); 14] {
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
            &self.outlines,
            &self.requests,
        ]
    }

    fn one(&self) -> [&(dyn ToSql + Sync); 14] {
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
            &self.outlines[0],
            &self.requests[0],
        ]
    }
}
