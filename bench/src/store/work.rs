//! Callers of a store: so many of them, each at one call at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use selfsame_core::{
    Answer, AnswerBody, Ask, AttemptId, Claimed, Fingerprint, FullStore, Key, Label, RecordId,
    Recorded, Recover, TenantTag,
};
use tokio::task::JoinSet;

use crate::figures::Latencies;
use crate::report::{RATE, Sample};
use crate::timing::Stopwatch;

/// An answer's usual size.
pub(super) const ANSWER_BYTES: usize = 1024;
/// How many records are replayed.
const REPLAYED: u64 = 10_000;

/// Keys that nobody has used, one after the other, the same in each run.
pub(super) struct Keys(AtomicU64);

impl Keys {
    /// Keys from this number on.
    pub(super) const fn from(number: u64) -> Self {
        Self(AtomicU64::new(number))
    }

    /// A wish to run under the next key.
    pub(super) fn next(&self) -> Ask {
        ask(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A wish to run under the key of this number.
pub(super) fn ask(number: u64) -> Ask {
    let key = format!("b3a1c2d4-{number:027}");
    Ask {
        id: RecordId::from_bytes(scattered(number)),
        fingerprint: Fingerprint::from_bytes(scattered(number)),
        attempt_id: AttemptId::random(),
        lease: Duration::from_secs(30),
        retention: Duration::from_secs(24 * 60 * 60),
        remember: Duration::ZERO,
        recover: Recover::Auto,
        label: Label {
            tenant: TenantTag::from_bytes(scattered(7)),
            tenant_name: None,
            key: Key::parse(key.as_bytes()).expect("it is printable"),
            route: "/v1/charges".into(),
        },
    }
}

/// Bytes that look random, as hashes do.
fn scattered<const N: usize>(number: u64) -> [u8; N] {
    let mut bytes = noise(number);
    std::array::from_fn(|_| bytes.next().expect("it has no end"))
}

fn noise(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed.wrapping_mul(0xd134_2543_de82_ef95);
    std::iter::from_fn(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Some((mixed >> 56) as u8)
    })
}

/// An answer with a body of this many bytes, which no compression makes much smaller.
pub(super) fn answer(bytes: usize) -> Answer {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let body: Bytes = noise(1).take(bytes).map(|byte| letters[usize::from(byte % 64)]).collect();
    let json = HeaderValue::from_static("application/json");
    Answer {
        status: StatusCode::CREATED,
        headers: HeaderMap::from_iter([(CONTENT_TYPE, json)]),
        body: AnswerBody::Kept(body),
        trailers: HeaderMap::new(),
    }
}

/// What one caller saw.
#[derive(Default)]
struct Seen {
    first: Latencies,
    second: Latencies,
}

/// Claims and completes new keys for that `time`.
pub(super) async fn pairs(
    store: &Arc<dyn FullStore>,
    in_flight: usize,
    time: Duration,
) -> Result<Sample> {
    // Each measurement has keys of its own in a store that knows those of the last one.
    static KEYS: Keys = Keys::from(1_000_000_000);
    let answer = Arc::new(answer(ANSWER_BYTES));
    let begun = Stopwatch::start();
    let mut callers = JoinSet::new();
    for _ in 0..in_flight {
        let (store, answer) = (store.clone(), answer.clone());
        callers.spawn(async move {
            let mut seen = Seen::default();
            while begun.elapsed() < time {
                let ask = KEYS.next();
                let call = Stopwatch::start();
                let claimed = store.claim(&ask).await?;
                seen.first.add(call.elapsed());
                complete(&*store, claimed, &answer, &mut seen.second).await?;
            }
            anyhow::Ok(seen)
        });
    }
    let Seen { mut first, mut second } = all(callers).await?;
    Ok(vec![
        (RATE, second.len() as f64 / begun.elapsed().as_secs_f64()),
        ("claim p50 ms", first.percentile(0.5)),
        ("claim p99 ms", first.percentile(0.99)),
        ("complete p50 ms", second.percentile(0.5)),
        ("complete p99 ms", second.percentile(0.99)),
    ])
}

/// Claims finished keys again for that `time`.
pub(super) async fn replays(
    store: &Arc<dyn FullStore>,
    in_flight: usize,
    time: Duration,
) -> Result<Sample> {
    fill(store, REPLAYED, ANSWER_BYTES).await?;
    let begun = Stopwatch::start();
    let mut callers = JoinSet::new();
    for caller in 0..in_flight as u64 {
        let store = store.clone();
        callers.spawn(async move {
            let mut seen = Seen::default();
            let mut number = caller * 7919;
            while begun.elapsed() < time {
                number += 1;
                let ask = ask(number % REPLAYED);
                let call = Stopwatch::start();
                let claimed = store.claim(&ask).await?;
                seen.first.add(call.elapsed());
                if !matches!(claimed, Claimed::Replay(_)) {
                    bail!("a finished key was not replayed: {claimed:?}");
                }
            }
            Ok(seen)
        });
    }
    let Seen { first: mut latencies, .. } = all(callers).await?;
    Ok(vec![
        (RATE, latencies.len() as f64 / begun.elapsed().as_secs_f64()),
        ("p50 ms", latencies.percentile(0.5)),
        ("p99 ms", latencies.percentile(0.99)),
    ])
}

/// Completes the keys below this number.
pub(super) async fn fill(store: &Arc<dyn FullStore>, below: u64, bytes: usize) -> Result<()> {
    let answer = Arc::new(answer(bytes));
    let keys = Arc::new(Keys::from(0));
    let mut callers = JoinSet::new();
    for _ in 0..256 {
        let (store, answer, keys) = (store.clone(), answer.clone(), keys.clone());
        callers.spawn(async move {
            let mut seen = Seen::default();
            loop {
                let number = keys.0.fetch_add(1, Ordering::Relaxed);
                if number >= below {
                    return anyhow::Ok(seen);
                }
                let claimed = store.claim(&ask(number)).await?;
                complete(&*store, claimed, &answer, &mut seen.second).await?;
            }
        });
    }
    all(callers).await.map(drop)
}

async fn complete(
    store: &dyn FullStore,
    claimed: Claimed,
    answer: &Answer,
    took: &mut Latencies,
) -> Result<()> {
    let Claimed::Run(grant) = claimed else { bail!("a new key was not free: {claimed:?}") };
    let call = Stopwatch::start();
    let recorded = store.complete(&grant.lease, answer).await?;
    took.add(call.elapsed());
    if recorded == Recorded::Lost {
        bail!("a claim was lost that nobody else had");
    }
    Ok(())
}

async fn all(mut callers: JoinSet<Result<Seen>>) -> Result<Seen> {
    let mut all = Seen::default();
    while let Some(seen) = callers.join_next().await {
        let seen = seen??;
        all.first.extend(seen.first);
        all.second.extend(seen.second);
    }
    Ok(all)
}
