//! Small values under a name.

use selfsame_core::StoreError;

use super::session::Session;
use super::trouble::{Access, Fault};

/// Of many that put a value under one name, one does; all read it then.
pub(super) async fn fact_or(
    session: &Session,
    name: &str,
    value: &[u8],
) -> Result<Vec<u8>, StoreError> {
    let put = "insert into selfsame.facts (name, value) values ($1::text, $2::bytea) on conflict do nothing";
    loop {
        if let Some(known) = fact(session, name).await? {
            return Ok(known);
        }
        session.query(Access::Write, put, &[&name, &value]).await?;
    }
}

pub(super) async fn set_fact(
    session: &Session,
    name: &str,
    value: &[u8],
) -> Result<(), StoreError> {
    let set = "insert into selfsame.facts (name, value) values ($1::text, $2::bytea) \
               on conflict (name) do update set value = excluded.value";
    session.query(Access::Write, set, &[&name, &value]).await?;
    Ok(())
}

async fn fact(session: &Session, name: &str) -> Result<Option<Vec<u8>>, Fault> {
    let sql = "select value from selfsame.facts where name = $1::text";
    let found = session.query(Access::Read, sql, &[&name]).await?;
    Ok(found.first().map(|row| row.get(0)))
}
