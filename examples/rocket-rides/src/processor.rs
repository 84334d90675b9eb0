//! Whoever charges cards: a process of its own that knows a key when it sees it again.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use clap::Args;
use deadpool_postgres::{Manager, Pool};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use selfsame::BoxError;
use selfsame::phases::DerivedKey;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio_postgres::NoTls;

use crate::rides::Order;

/// What no card pays.
const FARE_MAX: i64 = 10_000;

/// How the processor is started.
#[derive(Debug, Args)]
pub struct Settings {
    /// Where charges are kept.
    #[arg(long)]
    database: String,
    /// Where it listens.
    #[arg(long, default_value = "127.0.0.1:3001")]
    listen: String,
}

/// What becomes of a charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Charge {
    /// The card paid.
    Paid {
        /// The number of the charge.
        id: i64,
    },
    /// The card does not pay.
    Declined,
}

/// The processor, as its customers see it.
#[derive(Debug, Clone)]
pub struct Processor {
    url: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Processor {
    /// The one at this address.
    pub fn at(url: &str) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { url: format!("{url}/charges"), client }
    }

    /// Charges the fare of `order`, once for each key.
    pub async fn charge(&self, key: DerivedKey, order: &Order) -> Result<Charge, BoxError> {
        let request = Request::post(&self.url)
            .header("idempotency-key", HeaderValue::from(key))
            .header("content-type", "application/json")
            .body(Full::from(serde_json::to_vec(order)?))?;
        let response = self.client.request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("the card processor says {}", response.status()).into());
        }
        Ok(serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?)
    }
}

async fn charge(
    State(charges): State<Pool>,
    headers: HeaderMap,
    Json(order): Json<Order>,
) -> Result<Json<Charge>, StatusCode> {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let key = key.ok_or(StatusCode::BAD_REQUEST)?;
    if order.fare > FARE_MAX {
        return Ok(Json(Charge::Declined));
    }
    let db = charges.get().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let sql = "insert into charges as c (key, rider, fare) values ($1, $2, $3) \
               on conflict (key) do update set times_asked = c.times_asked + 1 returning id";
    let row = db.query_one(sql, &[&key, &order.rider, &order.fare]).await;
    let row = row.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(Json(Charge::Paid { id: row.get(0) }))
}

/// Charges cards until it is killed.
pub async fn serve(settings: Settings) -> anyhow::Result<()> {
    let charges = Pool::builder(Manager::new(settings.database.parse()?, NoTls)).build()?;
    let table = "create table if not exists charges (
                   id          bigserial primary key,
                   key         text    not null unique,
                   rider       text    not null,
                   fare        bigint  not null,
                   times_asked integer not null default 1
                 )";
    charges.get().await?.batch_execute(table).await?;
    let router = Router::new().route("/charges", post(charge)).with_state(charges);
    let listener = TcpListener::bind(&settings.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}
