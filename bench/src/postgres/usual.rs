//! What is usually written: a pool, one table, `insert … on conflict do nothing`, later an update.

use anyhow::{Result, bail};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use selfsame_core::{Answer, AnswerBody, Ask};
use selfsame_test_postgres::Server;
use tokio_postgres::types::ToSql;
use tokio_postgres::{NoTls, Row};

use super::DATABASE;
use crate::store::work::Keeper;

/// How many connections it has.
pub(super) const POOL: usize = 16;

const TABLE: &str = "
    drop table if exists usual;
    create table usual (
      key text primary key,
      request_hash bytea not null,
      owner bytea not null,
      locked_until timestamptz,
      status smallint,
      headers text,
      body bytea,
      created_at timestamptz not null default now(),
      expires_at timestamptz not null
    )";
pub(super) const CLAIM: &str = "insert into usual (key, request_hash, owner, locked_until, expires_at) \
     values ($1, $2, $3, now() + interval '30 seconds', now() + interval '1 day') \
     on conflict (key) do nothing returning key";
const READ: &str = "select request_hash, status, headers, body from usual \
     where key = $1 and status is not null and expires_at > now()";
pub(super) const COMPLETE: &str = "update usual set status = $3, headers = $4, body = $5, \
     locked_until = null where key = $1 and owner = $2 and status is null returning key";

/// Whether a statement is parsed and planned each time, or once for each connection.
#[derive(Clone, Copy)]
pub(super) enum Statements {
    Unprepared,
    Prepared,
}

/// A pool, and how its statements are sent.
pub(super) struct Usual {
    pool: Pool,
    statements: Statements,
}

/// The right to run.
pub(super) struct Claim {
    key: String,
    owner: Vec<u8>,
}

/// Makes the table, empty.
pub(super) fn make_table(server: &Server) {
    server.sql(DATABASE, TABLE);
}

impl Usual {
    pub(super) fn connect(server: &Server, statements: Statements) -> Result<Self> {
        let config = server.url("postgres", DATABASE).parse()?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, NoTls, recycling);
        Ok(Self { pool: Pool::builder(manager).max_size(POOL).build()?, statements })
    }

    async fn query(
        &self,
        client: &Object,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        Ok(match self.statements {
            Statements::Unprepared => client.query(sql, params).await?,
            Statements::Prepared => {
                client.query(&client.prepare_cached(sql).await?, params).await?
            }
        })
    }
}

impl Keeper for Usual {
    type Claim = Claim;

    async fn claim(&self, ask: &Ask) -> Result<Option<Claim>> {
        // Keys are random, as clients make them.
        let key = ask.id.to_string();
        let owner = ask.attempt_id.as_bytes().to_vec();
        let hash = ask.fingerprint.to_bytes();
        let client = self.pool.get().await?;
        let won = self.query(&client, CLAIM, &[&key, &&hash[..], &owner]).await?;
        if !won.is_empty() {
            return Ok(Some(Claim { key, owner }));
        }
        let found = self.query(&client, READ, &[&key]).await?;
        let Some(row) = found.first() else { bail!("a key is neither free nor finished") };
        let _headers: &str = row.get(2);
        if row.get::<_, &[u8]>(0) != hash || row.get::<_, &[u8]>(3).is_empty() {
            bail!("a key was replayed with what is not its own");
        }
        Ok(None)
    }

    async fn complete(&self, claim: Claim, answer: &Answer) -> Result<()> {
        let AnswerBody::Kept(body) = &answer.body else { bail!("an answer without a body") };
        let status = answer.status.as_u16().cast_signed();
        let headers = answer.headers.iter().map(|(name, value)| {
            format!("{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes()))
        });
        let headers: String = headers.collect();
        let client = self.pool.get().await?;
        let params: [&(dyn ToSql + Sync); 5] =
            [&claim.key, &claim.owner, &status, &headers, &&body[..]];
        if self.query(&client, COMPLETE, &params).await?.is_empty() {
            bail!("a claim was lost that nobody else had");
        }
        Ok(())
    }
}
