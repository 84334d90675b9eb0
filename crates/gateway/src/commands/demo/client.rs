//! Who pays: one client that waits for its answers, and one that hangs up.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use selfsame_core::headers::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED};
use serde_json::Value;

/// How long a caller whose gateway was killed waits for the connection to end.
const HANG: Duration = Duration::from_secs(5);

/// One order, and the key that all its requests carry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Payment<'a> {
    pub(super) key: &'a str,
    pub(super) amount: u64,
}

impl Payment<'_> {
    fn body(&self) -> String {
        format!(r#"{{"amount":{},"currency":"eur"}}"#, self.amount)
    }
}

impl fmt::Display for Payment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pays {} eur, key {}", self.amount, self.key)
    }
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    /// Whether both say the same, byte for byte.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        let kind = |answer: &Self| answer.headers.get(CONTENT_TYPE).cloned();
        self.status == other.status && self.body == other.body && kind(self) == kind(other)
    }

    pub(super) fn is_replayed(&self) -> bool {
        self.header(&IDEMPOTENT_REPLAYED) == Some("true")
    }

    /// What the client is asked to wait before it tries again.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.header(&RETRY_AFTER)?.parse().ok().map(Duration::from_secs)
    }

    /// The name of the refusal, where it is one.
    pub(super) fn problem(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        let (_page, slug) = body.get("type")?.as_str()?.rsplit_once('#')?;
        Some(slug.to_owned())
    }

    /// The body for people.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).trim_end().to_owned()
    }

    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// The head of an answer, as far as it matters here.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if let Some(problem) = self.problem() {
            write!(f, ", {problem}")?;
        }
        if let Some(seconds) = self.header(&RETRY_AFTER) {
            write!(f, ", Retry-After: {seconds}")?;
        }
        if self.is_replayed() {
            write!(f, ", Idempotent-Replayed: true")?;
        }
        Ok(())
    }
}

/// A client that counts what it sends.
pub(super) struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    sent: Mutex<BTreeMap<String, usize>>,
}

impl Client {
    pub(super) fn new() -> Self {
        let http = legacy::Client::builder(TokioExecutor::new())
            // Each request on a connection of its own: the gateways of the story die.
            .pool_max_idle_per_host(0)
            .build_http();
        Self { http, sent: Mutex::default() }
    }

    /// How many requests carried this key.
    pub(super) fn requests_with(&self, key: &str) -> usize {
        self.sent.lock().get(key).copied().unwrap_or_default()
    }

    /// Pays, and waits for the answer.
    pub(super) async fn pay(&self, at: SocketAddr, payment: Payment<'_>) -> Result<Answer> {
        self.count(payment);
        let request = Request::post(format!("http://{at}/charges"))
            .header(IDEMPOTENCY_KEY, payment.key)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(payment.body()))?;
        let response = self.http.request(request).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    /// Sends a payment, and leaves it open whether anyone waits for the answer.
    pub(super) fn call(&self, at: SocketAddr, payment: Payment<'_>) -> Result<Call> {
        self.count(payment);
        let body = payment.body();
        let head = format!(
            "POST /charges HTTP/1.1\r\nHost: {at}\r\nIdempotency-Key: {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            payment.key,
            body.len()
        );
        let mut stream = TcpStream::connect(at)?;
        stream.write_all((head + &body).as_bytes())?;
        Ok(Call { stream })
    }

    fn count(&self, payment: Payment<'_>) {
        *self.sent.lock().entry(payment.key.to_owned()).or_default() += 1;
    }
}

/// A request that was sent, on a plain connection, and not answered yet.
pub(super) struct Call {
    stream: TcpStream,
}

impl Call {
    /// Closes the connection without having read a byte.
    pub(super) fn hang_up(self) {
        drop(self.stream);
    }

    /// Listens until the other side is gone, and says whether it was silent.
    pub(super) fn ends_in_silence(mut self) -> Result<bool> {
        self.stream.set_read_timeout(Some(HANG)).context("the connection cannot be read")?;
        let mut heard = Vec::new();
        // A process that is killed may reset its connections; that is no answer either.
        let _reset = self.stream.read_to_end(&mut heard);
        Ok(heard.is_empty())
    }
}
