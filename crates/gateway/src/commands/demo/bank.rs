//! The payments API of the demo: it charges each time it is asked.
//!
//! It writes the key that came with a request into its ledger and does nothing else about it, as
//! most APIs do. What it has begun it finishes, whether or not the caller is still there.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use selfsame_core::headers::IDEMPOTENCY_KEY;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::background;

/// How long to wait for a request to arrive, or to end, before something must be wrong.
const PATIENCE: Duration = Duration::from_secs(5);
const JSON: [(http::HeaderName, &str); 1] = [(CONTENT_TYPE, "application/json")];

/// What a caller asks for.
#[derive(Debug, Deserialize)]
struct Order {
    amount: u64,
    currency: String,
}

/// Money that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Charge {
    id: String,
    amount: u64,
    currency: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl Charge {
    /// What the API answers, byte for byte.
    pub(super) fn answer_body(&self) -> String {
        self.to_json() + "\n"
    }

    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a charge is plain values")
    }
}

impl fmt::Display for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {} {}", self.id, self.amount, self.currency)?;
        match &self.key {
            Some(key) => write!(f, "  {key}"),
            None => Ok(()),
        }
    }
}

/// Everything the API remembers.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// How many charges were asked for, including those that are still being made.
    pub(super) begun: usize,
    charges: Vec<Charge>,
}

impl Ledger {
    /// The charges whose requests came with this key.
    pub(super) fn charges_for(&self, key: &str) -> Vec<Charge> {
        let is_for = |charge: &&Charge| charge.key.as_deref() == Some(key);
        self.charges.iter().filter(is_for).cloned().collect()
    }

    /// JSON with one charge a line, so that people can read it too.
    fn to_json(&self) -> String {
        let lines: Vec<String> = self.charges.iter().map(Charge::to_json).collect();
        match &*lines {
            [] => "[]\n".into(),
            lines => format!("[\n  {}\n]\n", lines.join(",\n  ")),
        }
    }
}

/// The payments API, and a look into its books.
#[derive(Clone)]
pub(super) struct Bank {
    ledger: Arc<watch::Sender<Ledger>>,
    charge_takes: Duration,
}

impl Bank {
    pub(super) fn new(charge_takes: Duration) -> Self {
        Self { ledger: Arc::new(watch::Sender::default()), charge_takes }
    }

    /// Serves on a free port of this machine, until the runtime ends.
    pub(super) async fn open(&self) -> Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/charges", post(charges))
            .route("/ledger", get(ledger))
            .with_state(self.clone());
        background::spawn(async move { axum::serve(listener, router).await });
        Ok(address)
    }

    /// The charges whose requests came with this key.
    pub(super) fn charges_for(&self, key: &str) -> Vec<Charge> {
        self.ledger.borrow().charges_for(key)
    }

    /// How many charges were asked for so far.
    pub(super) fn begun(&self) -> usize {
        self.ledger.borrow().begun
    }

    /// Waits for the ledger to be like this.
    pub(super) async fn until(&self, is_so: impl Fn(&Ledger) -> bool) -> Result<()> {
        let mut ledger = self.ledger.subscribe();
        let seen = timeout(PATIENCE, ledger.wait_for(is_so)).await;
        seen.context("the payments API waited in vain for a request")?.map(drop)?;
        Ok(())
    }

    async fn charge(&self, order: Order, key: Option<String>) -> Charge {
        self.ledger.send_modify(|ledger| ledger.begun += 1);
        tokio::time::sleep(self.charge_takes).await;
        let Order { amount, currency } = order;
        let mut charge = Charge { id: String::new(), amount, currency, key };
        self.ledger.send_modify(|ledger| {
            charge.id = format!("ch_{}", ledger.charges.len() + 1);
            ledger.charges.push(charge.clone());
        });
        charge
    }
}

async fn charges(State(bank): State<Bank>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(order) = serde_json::from_slice(&body) else {
        let text = "send an order, such as {\"amount\":20,\"currency\":\"eur\"}\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let key = headers.get(IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok()).map(str::to_owned);
    // In a task of its own: a handler is dropped when its caller hangs up, and money is not.
    let charging = background::spawn(async move { bank.charge(order, key).await });
    match charging.await {
        Ok(charge) => (StatusCode::CREATED, JSON, charge.answer_body()).into_response(),
        Err(_panicked) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn ledger(State(bank): State<Bank>) -> Response {
    (JSON, bank.ledger.borrow().to_json()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Order {
        Order { amount: 20, currency: "eur".into() }
    }

    #[tokio::test]
    async fn the_same_key_twice_is_charged_twice() {
        let bank = Bank::new(Duration::ZERO);
        let first = bank.charge(order(), Some("order-1".into())).await;
        let second = bank.charge(order(), Some("order-1".into())).await;
        bank.charge(order(), None).await;
        assert_eq!(bank.charges_for("order-1"), [first, second]);
        assert_eq!(bank.begun(), 3);
    }

    #[tokio::test]
    async fn the_ledger_is_json_with_a_charge_a_line() {
        let bank = Bank::new(Duration::ZERO);
        assert_eq!(bank.ledger.borrow().to_json(), "[]\n");
        bank.charge(order(), Some("order-1".into())).await;
        bank.charge(order(), None).await;
        let text = bank.ledger.borrow().to_json();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "[",
                r#"  {"id":"ch_1","amount":20,"currency":"eur","key":"order-1"},"#,
                r#"  {"id":"ch_2","amount":20,"currency":"eur"}"#,
                "]",
            ]
        );
        let read: Vec<serde_json::Value> = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(read.len(), 2);
    }

    #[tokio::test]
    async fn a_caller_who_hangs_up_has_paid_all_the_same() {
        let bank = Bank::new(Duration::from_millis(50));
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_KEY, http::HeaderValue::from_static("order-1"));
        let body = Bytes::from_static(br#"{"amount":20,"currency":"eur"}"#);
        let calling = background::spawn(charges(State(bank.clone()), headers, body));
        bank.until(|ledger| ledger.begun == 1).await.expect("the request arrives");
        calling.abort();
        bank.until(|ledger| ledger.charges.len() == 1).await.expect("the charge is made");
        assert_eq!(bank.charges_for("order-1").len(), 1);
    }

    #[tokio::test]
    async fn what_is_not_an_order_is_refused() {
        let bank = Bank::new(Duration::ZERO);
        let body = Bytes::from_static(b"twenty");
        let answer = charges(State(bank.clone()), HeaderMap::new(), body).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        assert_eq!(bank.begun(), 0);
    }
}
