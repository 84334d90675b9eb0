//! [`Transaction`]: what is asked of a transaction so that a phase can end it, and the drivers that can.

use std::future::Future;

use tokio_postgres::types::{ToSql, Type};

use crate::body::BoxError;

/// A transaction of the service's own, in the database of the [`PostgresStore`].
///
/// It must be one that the database knows: the commit of a savepoint makes nothing durable.
///
/// [`PostgresStore`]: crate::stores::PostgresStore
pub trait Transaction: Send {
    /// Runs one statement, and gives the number (`bigint`) in the last column of its row, if it has
    /// a row.
    fn number(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
    ) -> impl Future<Output = Result<Option<i64>, BoxError>> + Send;

    /// Commits. Dropped without it, the transaction is rolled back.
    fn commit(self) -> impl Future<Output = Result<(), BoxError>> + Send;
}

/// A parameter of a statement.
#[derive(Debug, Clone, Copy)]
pub enum Param<'a> {
    /// A `bytea`.
    Bytes(&'a [u8]),
    /// A `text`.
    Text(&'a str),
    /// A `bigint`.
    Number(i64),
}

impl Param<'_> {
    pub(crate) fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Text(text) => text,
            Self::Number(number) => number,
        }
    }

    fn kind(&self) -> Type {
        match self {
            Self::Bytes(_) => Type::BYTEA,
            Self::Text(_) => Type::TEXT,
            Self::Number(_) => Type::INT8,
        }
    }
}

impl Transaction for tokio_postgres::Transaction<'_> {
    async fn number(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Option<i64>, BoxError> {
        // Typed, so that no prepared statement is left behind: the session may be a pooler's.
        let typed: Vec<_> = params.iter().map(|param| (param.as_sql(), param.kind())).collect();
        match self.query_typed(sql, &typed).await?.first() {
            Some(row) => Ok(Some(row.try_get(row.len() - 1)?)),
            None => Ok(None),
        }
    }

    async fn commit(self) -> Result<(), BoxError> {
        Ok(self.commit().await?)
    }
}

#[cfg(feature = "deadpool")]
impl Transaction for deadpool_postgres::Transaction<'_> {
    async fn number(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Option<i64>, BoxError> {
        let inner: &mut tokio_postgres::Transaction<'_> = self;
        inner.number(sql, params).await
    }

    async fn commit(self) -> Result<(), BoxError> {
        Ok(self.commit().await?)
    }
}

#[cfg(feature = "sqlx")]
impl Transaction for sqlx::Transaction<'_, sqlx::Postgres> {
    async fn number(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Option<i64>, BoxError> {
        use sqlx::Row;

        // Ours: nothing that came from outside is part of it.
        let mut query = sqlx::query(sqlx::AssertSqlSafe(sql)).persistent(false);
        for param in params {
            query = match *param {
                Param::Bytes(bytes) => query.bind(bytes),
                Param::Text(text) => query.bind(text),
                Param::Number(number) => query.bind(number),
            };
        }
        match query.fetch_optional(&mut **self).await? {
            Some(row) => Ok(Some(row.try_get(row.len() - 1)?)),
            None => Ok(None),
        }
    }

    async fn commit(self) -> Result<(), BoxError> {
        Ok(self.commit().await?)
    }
}
