//! Callers of a store: so many of them, each at one call at a time.

use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use selfsame_core::{
    Answer, AnswerBody, Ask, AttemptId, Claimed, Fingerprint, FullStore, Key, Label, Lease,
    RecordId, Recorded, Recover, TenantTag,
};
use tokio::task::JoinSet;

use crate::figures::Latencies;
use crate::report::{RATE, Sample};
use crate::timing::Stopwatch;

/// An answer's usual size.
pub(crate) const ANSWER_BYTES: usize = 1024;
pub(crate) const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a claim and a completion took together.
pub(crate) const PAIR_P50: &str = "pair p50 ms";
pub(crate) const PAIR_P99: &str = "pair p99 ms";
/// The longest of all claims and completions.
pub(crate) const CLAIM_MAX: &str = "longest claim ms";
pub(crate) const COMPLETE_MAX: &str = "longest complete ms";
/// How many records are replayed.
const REPLAYED: u64 = 10_000;

/// Keys that nobody has used, one after the other, the same in each run.
pub(crate) struct Keys(AtomicU64);

impl Keys {
    /// Keys from this number on.
    pub(crate) const fn from(number: u64) -> Self {
        Self(AtomicU64::new(number))
    }

    /// A wish to run under the next key.
    pub(crate) fn next(&self) -> Ask {
        ask(self.next_number())
    }

    /// Number of the next key.
    pub(crate) fn next_number(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Number of the first of a billion keys that no other process uses.
pub(crate) fn first_of_process() -> u64 {
    1_000_000_000 * u64::from(std::process::id())
}

/// A wish to run under the key of this number.
pub(crate) fn ask(number: u64) -> Ask {
    let key = format!("b3a1c2d4-{number:027}");
    Ask {
        id: RecordId::from_bytes(scattered(number)),
        fingerprint: Fingerprint::from_bytes(scattered(number)),
        attempt_id: AttemptId::random(),
        lease: LEASE,
        retention: RETENTION,
        remember: Duration::ZERO,
        recover: Recover::Auto,
        keepsake: None,
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
pub(crate) fn answer(bytes: usize) -> Answer {
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

/// Something that keeps keys and answers.
pub(crate) trait Keeper: Send + Sync + 'static {
    /// The right to run.
    type Claim: Send;

    /// The right to run, or nothing if there is an answer, which is read.
    fn claim(&self, ask: &Ask) -> impl Future<Output = Result<Option<Self::Claim>>> + Send;

    /// Keeps the answer.
    fn complete(
        &self,
        claim: Self::Claim,
        answer: &Answer,
    ) -> impl Future<Output = Result<()>> + Send;
}

impl Keeper for dyn FullStore {
    type Claim = Lease;

    async fn claim(&self, ask: &Ask) -> Result<Option<Lease>> {
        match (*self).claim(ask).await? {
            Claimed::Run(grant) => Ok(Some(grant.lease)),
            Claimed::Replay(_) => Ok(None),
            other => bail!("a key is neither free nor finished: {other:?}"),
        }
    }

    async fn complete(&self, lease: Lease, answer: &Answer) -> Result<()> {
        if (*self).complete(&lease, answer).await? == Recorded::Lost {
            bail!("a claim was lost that nobody else had");
        }
        Ok(())
    }
}

/// What one caller saw.
#[derive(Default)]
struct Seen {
    claims: Latencies,
    completions: Latencies,
    pairs: Latencies,
}

impl Seen {
    async fn pair<K: Keeper + ?Sized>(
        &mut self,
        keeper: &K,
        ask: &Ask,
        answer: &Answer,
    ) -> Result<()> {
        let begun = Stopwatch::start();
        let Some(claim) = keeper.claim(ask).await? else { bail!("a new key was not free") };
        let claimed = begun.elapsed();
        keeper.complete(claim, answer).await?;
        let completed = begun.elapsed();
        self.claims.add(claimed);
        self.completions.add(completed - claimed);
        self.pairs.add(completed);
        Ok(())
    }
}

/// Claims and completes new keys for that `time`.
pub(crate) async fn pairs<K: Keeper + ?Sized>(
    keeper: &Arc<K>,
    in_flight: usize,
    time: Duration,
) -> Result<Sample> {
    pairs_of(keeper, in_flight, time, ANSWER_BYTES).await
}

/// As [`pairs`], with answers of that size.
pub(crate) async fn pairs_of<K: Keeper + ?Sized>(
    keeper: &Arc<K>,
    in_flight: usize,
    time: Duration,
    answer_bytes: usize,
) -> Result<Sample> {
    // Each measurement has keys of its own in a store that knows those of the last one.
    // So has each process.
    static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::from(first_of_process()));
    let answer = Arc::new(answer(answer_bytes));
    let begun = Stopwatch::start();
    let mut callers = JoinSet::new();
    for _ in 0..in_flight {
        let (keeper, answer) = (keeper.clone(), answer.clone());
        callers.spawn(async move {
            let mut seen = Seen::default();
            while begun.elapsed() < time {
                seen.pair(&*keeper, &KEYS.next(), &answer).await?;
            }
            Ok(seen)
        });
    }
    let Seen { mut claims, mut completions, mut pairs } = all(callers).await?;
    Ok(vec![
        (RATE, pairs.len() as f64 / begun.elapsed().as_secs_f64()),
        ("claim p50 ms", claims.percentile(0.5)),
        ("claim p99 ms", claims.percentile(0.99)),
        ("complete p50 ms", completions.percentile(0.5)),
        ("complete p99 ms", completions.percentile(0.99)),
        (CLAIM_MAX, claims.percentile(1.0)),
        (COMPLETE_MAX, completions.percentile(1.0)),
        (PAIR_P50, pairs.percentile(0.5)),
        (PAIR_P99, pairs.percentile(0.99)),
    ])
}

/// Claims finished keys again for that `time`.
pub(crate) async fn replays<K: Keeper + ?Sized>(
    keeper: &Arc<K>,
    in_flight: usize,
    time: Duration,
) -> Result<Sample> {
    fill(keeper, 0..REPLAYED, ANSWER_BYTES).await?;
    replays_of(keeper, in_flight, time, REPLAYED).await
}

/// Claims the first `keys` keys again, which are finished, for that `time`.
pub(crate) async fn replays_of<K: Keeper + ?Sized>(
    keeper: &Arc<K>,
    in_flight: usize,
    time: Duration,
    keys: u64,
) -> Result<Sample> {
    let begun = Stopwatch::start();
    let mut callers = JoinSet::new();
    for caller in 0..in_flight as u64 {
        let keeper = keeper.clone();
        callers.spawn(async move {
            let mut seen = Seen::default();
            let mut number = caller * 7919;
            while begun.elapsed() < time {
                number += 1;
                // A prime apart: neighbours were written together.
                let ask = ask(number.wrapping_mul(1_000_003) % keys);
                let call = Stopwatch::start();
                let claimed = keeper.claim(&ask).await?;
                seen.claims.add(call.elapsed());
                if claimed.is_some() {
                    bail!("a finished key was not replayed");
                }
            }
            Ok(seen)
        });
    }
    let Seen { claims: mut latencies, .. } = all(callers).await?;
    Ok(vec![
        (RATE, latencies.len() as f64 / begun.elapsed().as_secs_f64()),
        ("p50 ms", latencies.percentile(0.5)),
        ("p99 ms", latencies.percentile(0.99)),
    ])
}

/// Completes those of the keys of these numbers that are not yet.
pub(crate) async fn fill<K: Keeper + ?Sized>(
    keeper: &Arc<K>,
    numbers: Range<u64>,
    bytes: usize,
) -> Result<()> {
    fill_for(keeper, numbers, bytes, RETENTION).await
}

/// As [`fill`], for that retention.
pub(crate) async fn fill_for<K: Keeper + ?Sized>(
    keeper: &Arc<K>,
    numbers: Range<u64>,
    bytes: usize,
    retention: Duration,
) -> Result<()> {
    let answer = Arc::new(answer(bytes));
    let keys = Arc::new(Keys::from(numbers.start));
    let mut callers = JoinSet::new();
    for _ in 0..256 {
        let (keeper, answer, keys) = (keeper.clone(), answer.clone(), keys.clone());
        callers.spawn(async move {
            loop {
                let number = keys.next_number();
                if number >= numbers.end {
                    return Ok(Seen::default());
                }
                let ask = Ask { retention, ..ask(number) };
                if let Some(claim) = keeper.claim(&ask).await? {
                    keeper.complete(claim, &answer).await?;
                }
            }
        });
    }
    all(callers).await.map(drop)
}

async fn all(mut callers: JoinSet<Result<Seen>>) -> Result<Seen> {
    let mut all = Seen::default();
    while let Some(seen) = callers.join_next().await {
        let seen = seen??;
        all.claims.extend(seen.claims);
        all.completions.extend(seen.completions);
        all.pairs.extend(seen.pairs);
    }
    Ok(all)
}
