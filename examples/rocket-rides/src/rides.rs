//! The service: an order is booked, charged and confirmed, each once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use clap::Args;
use deadpool_postgres::{Manager, Pool};
use metrics_exporter_prometheus::PrometheusBuilder;
use selfsame::stores::{PostgresOptions, PostgresStore};
use selfsame::{BoxError, Idempotency, KeyMode, Policy, Run};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_postgres::NoTls;

use crate::processor::{Charge, Processor};
use crate::stops;

/// How the service is started.
#[derive(Debug, Args)]
pub struct Settings {
    /// Where rides, and the keys they are ordered by, are kept.
    #[arg(long)]
    database: String,
    /// Who charges cards.
    #[arg(long, default_value = "http://127.0.0.1:3001")]
    processor: String,
    /// Where orders are taken.
    #[arg(long, default_value = "127.0.0.1:3000")]
    listen: String,
    /// After how many milliseconds without a sign of life a run is taken over.
    #[arg(long, default_value_t = 30_000)]
    lease_ms: u64,
}

/// What a rider asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// Who rides.
    pub rider: String,
    /// What it costs.
    pub fare: i64,
}

#[derive(Clone)]
struct App {
    rides: Pool,
    processor: Processor,
}

/// Started → ride_created → charge_created → finished.
async fn create_ride(
    State(app): State<App>,
    Extension(run): Extension<Run>,
    Json(order): Json<Order>,
) -> Result<Response, Failure> {
    let mut run = run.phases().await?;
    let record = run.record().to_vec();
    stops::at("started");

    let ride: i64 = run
        .phase("ride_created", async |phase| {
            let mut db = app.rides.get().await?;
            let tx = db.transaction().await?;
            let sql = "insert into rides (record, rider, fare) values ($1, $2, $3) returning id";
            let row = tx.query_one(sql, &[&record, &order.rider, &order.fare]).await?;
            stops::at("ride_created: inside");
            phase.commit(tx, row.get(0)).await
        })
        .await?;
    stops::at("ride_created: committed");

    let charge: Charge = run
        .call("charge_created", async |key| {
            stops::at("charge_created: inside");
            let charge = app.processor.charge(key, &order).await?;
            stops::at("charge_created: charged");
            Ok(charge)
        })
        .await?;
    stops::at("charge_created: noted");

    let mut db = app.rides.get().await?;
    let tx = db.transaction().await?;
    let (state, charge, answer) = match charge {
        Charge::Paid { id } => {
            let ticket = Json(json!({ "ride": ride, "charge": id }));
            ("finished", Some(id), (StatusCode::CREATED, ticket).into_response())
        }
        Charge::Declined => ("declined", None, StatusCode::PAYMENT_REQUIRED.into_response()),
    };
    let sql = "update rides set state = $2, charge = $3 where id = $1";
    tx.execute(sql, &[&ride, &state, &charge]).await?;
    stops::at("finished: inside");
    let answer = run.finish_with(tx, answer).await?;
    stops::at("finished: committed");
    Ok(answer)
}

/// What went wrong on our side: the key is free, and a retry goes on where this attempt stopped.
struct Failure(BoxError);

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        eprintln!("an attempt failed: {:#}", anyhow::Error::from_boxed(self.0));
        (StatusCode::SERVICE_UNAVAILABLE, "please try again\n").into_response()
    }
}

/// Takes orders until it is killed.
pub async fn serve(settings: Settings) -> anyhow::Result<()> {
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let store = PostgresStore::open(&settings.database, PostgresOptions::default()).await?;
    let idempotency = Idempotency::open(Arc::new(store)).await?;
    let manager = Manager::new(settings.database.parse()?, NoTls);
    let rides = Pool::builder(manager).build()?;
    make_tables(&rides).await.context("cannot make the tables")?;

    let app = App { rides, processor: Processor::at(&settings.processor) };
    let lease = Duration::from_millis(settings.lease_ms);
    let policy = Policy::new().route("POST /rides").key(KeyMode::Required).lease(lease);
    let router = Router::new()
        .route("/rides", post(create_ride).layer(idempotency.layer(policy)))
        .route("/metrics", get(async move || metrics.render()))
        .with_state(app);
    let listener = TcpListener::bind(&settings.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}

/// Of many that start together one makes them, and the others wait for it.
async fn make_tables(rides: &Pool) -> anyhow::Result<()> {
    let mut db = rides.get().await?;
    let tx = db.transaction().await?;
    tx.batch_execute("select pg_advisory_xact_lock(hashtext('rocket-rides'))").await?;
    tx.batch_execute(include_str!("schema.sql")).await?;
    Ok(tx.commit().await?)
}
