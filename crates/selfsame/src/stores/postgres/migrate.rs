//! The schema, brought to the version this build knows. Forward only.

use std::cmp::Ordering;

use tokio_postgres::types::ToSql;

use super::session::{Session, Target};
use super::trouble::{Access, Fault, PostgresOpenError};

/// What brings the schema from each version to the next.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001.sql"),
    include_str!("migrations/0002.sql"),
    include_str!("migrations/0003.sql"),
    include_str!("migrations/0004.sql"),
    include_str!("migrations/0005.sql"),
    include_str!("migrations/0006.sql"),
];

const KNOWN: i32 = MIGRATIONS.len() as i32;

/// By the catalogue and not by `to_regclass`, which may tell what was so before a lock was waited
/// for.
const IS_THERE: &str = "select exists (select 1 from pg_namespace where nspname = $1::text), \
     exists (select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace \
     where n.nspname = $1::text and c.relname = 'migrations')";

/// From which version to which a schema was brought; the same if there was nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The version it had; 0 if there was none.
    pub from: i32,
    /// The version it has.
    pub to: i32,
}

/// Brings the schema to the version this build knows. Where it has that version already, it may
/// belong to somebody else.
pub(super) async fn migrate(
    session: &Session,
    target: &Target,
) -> Result<Migrated, PostgresOpenError> {
    let found = version(session, target).await.map_err(|fault| target.unusable(&fault))?;
    let from = if found < KNOWN {
        upgrade(session, target).await.map_err(|fault| PostgresOpenError::Migration {
            schema: target.schema.clone(),
            found,
            known: KNOWN,
            cause: fault.error().to_string(),
        })?
    } else {
        found
    };
    check(session, target).await?;
    Ok(Migrated { from, to: KNOWN })
}

/// Whether the schema has the version this build knows.
pub(super) async fn check(session: &Session, target: &Target) -> Result<(), PostgresOpenError> {
    let found = version(session, target).await.map_err(|fault| target.unusable(&fault))?;
    let (schema, known) = (target.schema.clone(), KNOWN);
    match found.cmp(&KNOWN) {
        Ordering::Less => Err(PostgresOpenError::Older { schema, found, known }),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(PostgresOpenError::Newer { schema, found, known }),
    }
}

/// Of many that start together one does it; the others wait, and find it done. All of it is one
/// transaction, which ends with the session if it fails. Returns the version that was found.
async fn upgrade(session: &Session, target: &Target) -> Result<i32, Fault> {
    session.run("begin; select pg_advisory_xact_lock(hashtext('selfsame. migrate'))").await?;
    let (has_schema, _) = is_there(session, target).await?;
    if !has_schema {
        session.run(&format!("create schema {}", target.schema)).await?;
    }
    let found = version(session, target).await?;
    for (migration, next) in MIGRATIONS.iter().zip(1..).skip(usize::try_from(found).unwrap_or(0)) {
        session.run(migration).await?;
        let note = format!("insert into selfsame.migrations (version) values ({next})");
        session.run(&note).await?;
    }
    session.run("commit").await?;
    Ok(found)
}

/// The version the schema has; 0 if there is none.
async fn version(session: &Session, target: &Target) -> Result<i32, Fault> {
    if !is_there(session, target).await?.1 {
        return Ok(0);
    }
    let sql = "select coalesce(max(version), 0) from selfsame.migrations";
    Ok(session.query(Access::Read, sql, &[]).await?[0].get(0))
}

/// Whether the schema is there, and whether it is one of ours.
async fn is_there(session: &Session, target: &Target) -> Result<(bool, bool), Fault> {
    let params: [&(dyn ToSql + Sync); 1] = [&target.schema];
    let found = session.query(Access::Read, IS_THERE, &params).await?;
    Ok((found[0].get(0), found[0].get(1)))
}
