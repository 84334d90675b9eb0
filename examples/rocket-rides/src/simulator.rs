//! Riders on bad networks: some hang up, some send twice, all retry until they are answered.

use std::fmt;
use std::time::Duration;

use axum::http::{Request, StatusCode};
use bytes::Bytes;
use clap::Args;
use futures_util::future::{join, join_all};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use selfsame::BoxError;
use tokio::time::{sleep, timeout};

use crate::rides::Order;

/// How long a rider waits before it asks again.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a rider waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a rider asks before it calls that a fault of ours.
const TRIES_MAX: usize = 1_000;

/// What is simulated.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Where orders are taken.
    #[arg(long, default_value = "http://127.0.0.1:3000")]
    pub service: String,
    /// How many rides are ordered.
    #[arg(long, default_value_t = 100)]
    pub rides: usize,
    /// How many riders order at a time.
    #[arg(long, default_value_t = 8)]
    pub riders: usize,
    /// What decides who has which trouble.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What was seen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Rides that were answered.
    pub rides: usize,
    /// Orders that were sent.
    pub sent: usize,
    /// Orders whose rider hung up.
    pub hung_up: usize,
    /// Retries that were answered otherwise than the first time. There must be none.
    pub differing: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rides, sent, hung_up, differing } = self;
        write!(
            f,
            "{rides} rides, {sent} orders sent, {hung_up} hung up, {differing} answered differently"
        )
    }
}

/// Orders rides until there are enough, or `is_over`. Each that was begun is seen to its end.
pub async fn simulate(settings: &Settings, is_over: impl Fn() -> bool) -> Report {
    let (each, more) = (settings.rides / settings.riders, settings.rides % settings.riders);
    let riders = (0..settings.riders).map(|number| {
        let is_over = &is_over;
        async move {
            let seed = settings.seed.wrapping_mul(1_000).wrapping_add(number as u64);
            let mut rider = Rider::new(&settings.service, seed);
            for ride in 0..each + usize::from(number < more) {
                if is_over() {
                    break;
                }
                rider.ride(&format!("rider-{}-{number}-{ride}", settings.seed)).await;
            }
            rider.report
        }
    });
    join_all(riders).await.into_iter().fold(Report::default(), |sum, report| Report {
        rides: sum.rides + report.rides,
        sent: sum.sent + report.sent,
        hung_up: sum.hung_up + report.hung_up,
        differing: sum.differing + report.differing,
    })
}

/// Orders a ride for `rider`, and retries until it is answered for good.
///
/// # Panics
///
/// If it never is.
pub async fn order_until_answered(service: &str, rider: &str) -> (StatusCode, Bytes) {
    Rider::new(service, 1).answered(rider).await
}

struct Rider {
    service: String,
    client: Client<HttpConnector, Full<Bytes>>,
    random: u64,
    report: Report,
}

impl Rider {
    fn new(service: &str, seed: u64) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { service: format!("{service}/rides"), client, random, report: Report::default() }
    }

    /// One ride, with whatever trouble comes.
    async fn ride(&mut self, rider: &str) {
        match self.random(3) {
            0 => {
                let soon = Duration::from_millis(self.random(30));
                self.report.hung_up += usize::from(timeout(soon, self.order(rider)).await.is_err());
                self.report.sent += 1;
            }
            1 => {
                let _twice = join(self.order(rider), self.order(rider)).await;
                self.report.sent += 2;
            }
            _ => {}
        }
        let first = self.answered(rider).await;
        let again = self.answered(rider).await;
        self.report.differing += usize::from(first != again);
        self.report.rides += 1;
    }

    async fn answered(&mut self, rider: &str) -> (StatusCode, Bytes) {
        for _ in 0..TRIES_MAX {
            self.report.sent += 1;
            match timeout(PATIENCE, self.order(rider)).await {
                Ok(Ok((status, body))) if is_final(status) => return (status, body),
                _ => sleep(PAUSE).await,
            }
        }
        panic!("{rider} was not answered in {TRIES_MAX} tries");
    }

    /// Sends an order, whose key is the rider's name.
    async fn order(&self, rider: &str) -> Result<(StatusCode, Bytes), BoxError> {
        let order = Order { rider: rider.to_owned(), fare: 20 };
        let request = Request::post(&self.service)
            .header("idempotency-key", rider)
            .header("content-type", "application/json")
            .body(Full::from(serde_json::to_vec(&order)?))?;
        let response = self.client.request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }
}

/// Whether a rider asks no more.
fn is_final(status: StatusCode) -> bool {
    matches!(status, StatusCode::CREATED | StatusCode::PAYMENT_REQUIRED)
}
