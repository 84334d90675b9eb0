//! Records as they are, out of and into the tables.

use async_trait::async_trait;
use selfsame_core::{Record, RecordId, State, StoreError, wire};
use tokio_postgres::types::ToSql;

use super::rows::{self, Seen};
use super::trouble::Access;
use super::writes::{self, Write};
use super::{PostgresStore, answers, store, sweep};
use crate::stores::transfer::{Imported, JournalRow, Transfer};

/// Ids that are read at a time.
const PAGE: i64 = 10_000;

const IDS: &str = "select id from selfsame.keys where id > $1::bytea order by id limit $2::bigint";

/// All but the name of the process that sweeps.
const FACTS: &str = "select name, value from selfsame.facts where name <> 'sweeper' order by name";

const PHASES: &str = "select birth, ordinal, name, body from selfsame.journal \
     where id = $1::bytea and birth = $2::bytea order by ordinal";

const IMPORT_PHASE: &str = "insert into selfsame.journal (id, birth, ordinal, name, body) \
     values ($1::bytea, $2::bytea, $3::integer, $4::text, $5::bytea) on conflict do nothing";

/// Connections of other stores: those of this one are called otherwise.
const OTHERS: &str = "select count(*) from pg_stat_activity \
     where datname = current_database() and application_name = 'selfsame'";

#[async_trait]
impl Transfer for PostgresStore {
    async fn ids(&self) -> Result<Vec<RecordId>, StoreError> {
        let session = store::session(&self.look).await?;
        let (mut ids, mut after) = (Vec::new(), Vec::new());
        loop {
            let page = session.query(Access::Read, IDS, &[&after, &PAGE]).await?;
            for row in &page {
                ids.push(rows::id_at(row, 0)?);
            }
            match ids.last() {
                Some(last) if page.len() as i64 == PAGE => after = last.as_bytes().to_vec(),
                _ => return Ok(ids),
            }
        }
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        let session = store::session(&self.look).await?;
        let record = Record { label: rows::fit_label(record.label.clone()), ..record.clone() };
        // A row that is not there yet has version 0.
        let seen = Seen { id: record.id, attempt_id: record.attempt_id, version: 0 };
        let frame = match &record.state {
            State::Completed { answer, .. } => Some(wire::encode_answer(&record.id, answer)),
            _ => None,
        };
        let expires_at = record.expires_at;
        let mut write = Write::new(seen, record).with_checkpoint();
        if let Some(frame) = frame {
            let now = super::inspect::now(&session).await?;
            answers::make_room_until(&session, &[expires_at.since(now)]).await?;
            let row = answers::next_row(&session).await?;
            write = write.with_answer(answers::place(row, expires_at), frame);
        }
        match writes::import(&session, &[write]).await?.is_empty() {
            true => Ok(Imported::Known),
            false => Ok(Imported::Done),
        }
    }

    async fn facts(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let session = store::session(&self.look).await?;
        let facts = session.query(Access::Read, FACTS, &[]).await?;
        Ok(facts.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    async fn phases(&self, record: &Record) -> Result<Vec<JournalRow>, StoreError> {
        let session = store::session(&self.look).await?;
        let (id, birth) = (&record.id.as_bytes()[..], &record.birth.as_bytes()[..]);
        let found = session.query(Access::Read, PHASES, &[&id, &birth]).await?;
        let row = |row: &tokio_postgres::Row| JournalRow {
            id: record.id,
            birth: row.get(0),
            ordinal: row.get(1),
            name: row.get(2),
            body: row.get(3),
        };
        Ok(found.iter().map(row).collect())
    }

    async fn import_phase(&self, row: &JournalRow) -> Result<(), StoreError> {
        let session = store::session(&self.look).await?;
        let id = &row.id.as_bytes()[..];
        let params: [&(dyn ToSql + Sync); 5] =
            [&id, &row.birth, &row.ordinal, &row.name, &row.body];
        session.query(Access::Write, IMPORT_PHASE, &params).await?;
        Ok(())
    }

    async fn users(&self) -> Result<Option<String>, StoreError> {
        let session = store::session(&self.look).await?;
        let others: i64 = session.query(Access::Read, OTHERS, &[]).await?[0].get(0);
        if others > 0 {
            return Ok(Some(format!("{others} connections of gateways or services")));
        }
        match sweep::lead(&session).await? {
            true => Ok(None),
            false => Ok(Some("a process that removes expired records".to_owned())),
        }
    }

    async fn version(&self) -> Result<String, StoreError> {
        let session = store::session(&self.look).await?;
        let version = session.query(Access::Read, "show server_version", &[]).await?;
        Ok(format!("PostgreSQL {}", version[0].get::<_, &str>(0)))
    }
}
