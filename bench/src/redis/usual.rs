//! What is usually written: a pool, `GET`, `SET NX` with a short life, later `SET`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo, cmd};
use selfsame_core::{Answer, AnswerBody, Ask};
use tokio::sync::{Mutex, Semaphore};

use crate::figures::Latencies;
use crate::report::{RATE, Sample};
use crate::store::work::{ANSWER_BYTES, Keeper};
use crate::timing::Stopwatch;

/// How many connections it has.
pub(super) const POOL: usize = 64;

/// For how long a key is locked, and how long its answer is kept.
const LOCKED_MS: u64 = 30_000;
const KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// A pool. Whoever has a connection has it alone.
pub(super) struct Usual {
    free: Mutex<Vec<MultiplexedConnection>>,
    permits: Arc<Semaphore>,
}

/// The right to run.
pub(super) struct Claim {
    key: String,
    hash: Vec<u8>,
}

impl Usual {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let tcp = TcpSettings::default().set_nodelay(true);
        let client = Client::open(url.into_connection_info()?.set_tcp_settings(tcp))?;
        let mut free = Vec::with_capacity(POOL);
        for _ in 0..POOL {
            free.push(client.get_multiplexed_async_connection().await?);
        }
        Ok(Self { free: Mutex::new(free), permits: Arc::new(Semaphore::new(POOL)) })
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T> {
        let _permit = self.permits.acquire().await?;
        let mut connection = self.free.lock().await.pop().context("one for each permit")?;
        let answer = command.query_async(&mut connection).await;
        self.free.lock().await.push(connection);
        Ok(answer?)
    }

    /// One SET after the other for that `time`, over one connection.
    pub(super) async fn sets(&self, time: Duration) -> Result<Sample> {
        let value = vec![b'x'; ANSWER_BYTES];
        let (begun, mut took) = (Stopwatch::start(), Latencies::default());
        while begun.elapsed() < time {
            let key = format!("set:{}", took.len());
            let call = Stopwatch::start();
            let () = self.ask(cmd("SET").arg(key).arg(&value)).await?;
            took.add(call.elapsed());
        }
        let rate = took.len() as f64 / begun.elapsed().as_secs_f64();
        Ok(vec![(RATE, rate), ("p50 ms", took.percentile(0.5)), ("p99 ms", took.percentile(0.99))])
    }
}

impl Keeper for Usual {
    type Claim = Claim;

    async fn claim(&self, ask: &Ask) -> Result<Option<Claim>> {
        let key = format!("usual:{}", ask.id);
        let hash = ask.fingerprint.to_bytes().to_vec();
        let known: Option<Vec<u8>> = self.ask(cmd("GET").arg(&key)).await?;
        if let Some(known) = known {
            let Some(rest) = known.strip_prefix(&hash[..]) else {
                bail!("a key was replayed with what is not its own")
            };
            if rest.is_empty() {
                bail!("a key is neither free nor finished");
            }
            return Ok(None);
        }
        let mut lock = cmd("SET");
        lock.arg(&key).arg(&hash).arg("NX").arg("PX").arg(LOCKED_MS);
        let won: Option<String> = self.ask(&lock).await?;
        won.context("a key is neither free nor finished")?;
        Ok(Some(Claim { key, hash }))
    }

    async fn complete(&self, claim: Claim, answer: &Answer) -> Result<()> {
        let AnswerBody::Kept(body) = &answer.body else { bail!("an answer without a body") };
        let mut value = claim.hash;
        value.extend_from_slice(answer.status.as_str().as_bytes());
        for (name, header) in &answer.headers {
            value.extend_from_slice(name.as_str().as_bytes());
            value.extend_from_slice(header.as_bytes());
        }
        value.extend_from_slice(body);
        let mut keep = cmd("SET");
        keep.arg(&claim.key).arg(value).arg("PX").arg(KEPT_MS);
        self.ask(&keep).await
    }
}
