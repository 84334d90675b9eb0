//! The same phases in transactions of sqlx, and of deadpool's clients.

use deadpool_postgres::{Manager, Pool};
use selfsame::phases::PhaseError;
use sqlx::PgPool;
use tokio_postgres::NoTls;

use super::{Ride, Rides, failure, stopped};
use crate::support::{DATABASE, SERVER, USER};

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_sqlx_has_phases() {
    let rides = Rides::open().await;
    for attempt in 1..=2 {
        let table = rides.table();
        let ran = rides.attempt("k", move |mut run| async move {
            let pool = PgPool::connect(&SERVER.url(USER, DATABASE)).await.expect("it connects");
            let sql = format!("insert into {table} (note, record) values ($1, $2) returning id");
            let record = run.record().to_vec();
            let ride = run.phase("ride_created", async |phase| {
                let mut tx = pool.begin().await?;
                let insert = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind("sqlx").bind(record);
                let id = insert.fetch_one(&mut *tx).await?;
                phase.commit(tx, Ride { id, note: "sqlx".to_owned() }).await
            });
            let ride = ride.await?;
            if attempt == 1 { stopped() } else { Ok(ride.note) }
        });
        match ran.await {
            Ok(note) => assert_eq!((attempt, note.as_str()), (2, "sqlx")),
            error => assert!(matches!(failure(error), PhaseError::Failed { .. })),
        }
    }
    assert_eq!(rides.notes().await, ["sqlx"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_deadpool_has_phases() {
    let rides = Rides::open().await;
    for attempt in 1..=2 {
        let table = rides.table();
        let ran = rides.attempt("k", move |mut run| async move {
            let config = SERVER.url(USER, DATABASE).parse().expect("an address");
            let pool = Pool::builder(Manager::new(config, NoTls)).build().expect("it is built");
            let sql = format!("insert into {table} (note) values ($1) returning id");
            let ride = run.phase("ride_created", async |phase| {
                let mut client = pool.get().await?;
                let tx = client.transaction().await?;
                let id = tx.query_one(&sql, &[&"deadpool"]).await?.get(0);
                phase.commit(tx, Ride { id, note: "deadpool".to_owned() }).await
            });
            let ride = ride.await?;
            if attempt == 1 { stopped() } else { Ok(ride.note) }
        });
        match ran.await {
            Ok(note) => assert_eq!((attempt, note.as_str()), (2, "deadpool")),
            error => assert!(matches!(failure(error), PhaseError::Failed { .. })),
        }
    }
    assert_eq!(rides.notes().await, ["deadpool"]);
}
