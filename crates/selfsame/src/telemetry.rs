//! The names of our metrics, in one place. Labels are routes and outcomes, never a key.
//!
//! What every request counts is looked up once and kept, because a look-up costs more than the
//! counting. So a recorder is to be installed before the first request.

use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use selfsame_core::{Count, Keepsake, Label, RecordId, Swept};

use crate::outcome::Served;

const OUTCOMES: usize = Served::LAST as usize + 1;

static REQUEST_SECONDS: [OnceLock<Histogram>; OUTCOMES] = [const { OnceLock::new() }; OUTCOMES];
static OVERHEAD_SECONDS: LazyLock<Histogram> =
    LazyLock::new(|| histogram!("selfsame_overhead_seconds"));
static IN_FLIGHT: LazyLock<Gauge> = LazyLock::new(|| gauge!("selfsame_in_flight"));

static NEAR_REPLAYS: LazyLock<Counter> = LazyLock::new(|| counter!("selfsame_near_replays_total"));

/// Counts the requests of one route.
pub(crate) struct Meter {
    route: Arc<str>,
    requests: [OnceLock<Counter>; OUTCOMES],
}

impl Meter {
    pub(crate) fn new(route: Arc<str>) -> Self {
        Self { route, requests: [const { OnceLock::new() }; OUTCOMES] }
    }

    pub(crate) fn served(&self, served: Served, took: Duration, ran: Option<Duration>) {
        let outcome = served.label();
        let requests = self.requests[served as usize].get_or_init(|| {
            let route = self.route.to_string();
            counter!("selfsame_requests_total", "route" => route, "outcome" => outcome)
        });
        requests.increment(1);
        let seconds = REQUEST_SECONDS[served as usize]
            .get_or_init(|| histogram!("selfsame_request_seconds", "outcome" => outcome));
        seconds.record(took);
        OVERHEAD_SECONDS.record(took.saturating_sub(ran.unwrap_or_default()));
    }
}

/// Times one kind of call to one kind of store.
pub(crate) struct StoreTimer {
    op: &'static str,
    seconds: OnceLock<Histogram>,
}

impl StoreTimer {
    pub(crate) const fn new(op: &'static str) -> Self {
        Self { op, seconds: OnceLock::new() }
    }

    pub(crate) fn took(&self, store: &'static str, took: Duration) {
        let op = self.op;
        let seconds = self
            .seconds
            .get_or_init(|| histogram!("selfsame_store_seconds", "store" => store, "op" => op));
        seconds.record(took);
    }
}

/// A replay for which the store was not asked.
pub(crate) fn near_replay() {
    NEAR_REPLAYS.increment(1);
}

/// What would have become of a request that was only observed.
pub(crate) fn observed(route: &str, served: Served) {
    let outcome = served.label();
    counter!("selfsame_observed_total", "route" => route.to_owned(), "outcome" => outcome)
        .increment(1);
}

/// A request of which cannot be said what would have become of it.
pub(crate) fn unobserved(route: &str, reason: &'static str) {
    counter!("selfsame_unobserved_total", "route" => route.to_owned(), "reason" => reason)
        .increment(1);
}

/// A retry that ran again, and was answered otherwise than it would have been.
pub(crate) fn differing_answer(route: &str) {
    counter!("selfsame_observed_differing_answers_total", "route" => route.to_owned()).increment(1);
}

/// A question about a held key, and whether its work is free to run, if that was told.
pub(crate) fn probed(route: &str, is_free: Option<bool>) {
    let told = match is_free {
        Some(true) => "not_done",
        Some(false) => "done",
        None => "unknown",
    };
    counter!("selfsame_probes_total", "route" => route.to_owned(), "told" => told).increment(1);
}

pub(crate) fn lease_expired() {
    counter!("selfsame_leases_expired_total").increment(1);
}

pub(crate) fn fenced_write() {
    counter!("selfsame_fenced_writes_total").increment(1);
}

/// Counts records that a sweep removed and reduced to tombstones.
pub(crate) fn swept(swept: &Swept) {
    counter!("selfsame_reaped_total").increment(swept.removed as u64);
    counter!("selfsame_buried_total").increment(swept.buried as u64);
}

/// The number of records in each state.
pub(crate) fn records(count: Count) {
    let Count { claimed, completed, failed, held, tombstone } = count;
    let states = [
        ("claimed", claimed),
        ("completed", completed),
        ("failed", failed),
        ("held", held),
        ("tombstone", tombstone),
    ];
    for (state, number) in states {
        gauge!("selfsame_records", "state" => state).set(number as f64);
    }
}

/// Bytes that the store takes.
pub(crate) fn store_bytes(bytes: u64) {
    gauge!("selfsame_store_bytes").set(bytes as f64);
}

/// Limit of the bytes that the store takes; infinite without one.
pub(crate) fn store_bytes_max(bytes_max: Option<u64>) {
    let bytes_max = bytes_max.map_or(f64::INFINITY, |bytes| bytes as f64);
    gauge!("selfsame_store_bytes_max").set(bytes_max);
}

/// Warns that a key is held from now on. What was only observed is nobody's business.
pub(crate) fn held(id: &RecordId, label: &Label, keepsake: Option<&Keepsake>, cause: &str) {
    if label.is_observed() {
        return;
    }
    counter!("selfsame_held_total").increment(1);
    let line = keepsake.and_then(|keepsake| keepsake.line.as_deref());
    let (method, path) = line.and_then(|line| line.split_once(' ')).unzip();
    tracing::warn!(
        record = id.short(),
        route = &*label.route,
        method,
        path,
        cause,
        "a key is held: whether its work was done is unknown, and nothing runs until that is resolved"
    );
}

/// Records that a person has had erased.
pub(crate) fn erased(records: usize) {
    counter!("selfsame_erased_total").increment(records as u64);
}

pub(crate) fn suspect_key(kind: &'static str) {
    counter!("selfsame_suspect_keys_total", "kind" => kind).increment(1);
}

pub(crate) fn damaged_record() {
    counter!("selfsame_damaged_records_total").increment(1);
}

/// For how long Redis takes no new key, because it has lost records.
#[cfg(feature = "redis")]
pub(crate) fn redis_closed(time: Duration) {
    gauge!("selfsame_redis_closed_seconds").set(time.as_secs_f64());
}

/// Sets the gauge of the time for which a store in a folder takes no key that it does not know.
#[cfg(feature = "embedded")]
pub(crate) fn store_closed(time: Duration) {
    gauge!("selfsame_store_closed_seconds").set(time.as_secs_f64());
}

/// Sets the gauges of answers and releases that wait for the store.
pub(crate) fn unlanded(answers: usize, releases: usize) {
    gauge!("selfsame_unlanded_answers").set(answers as f64);
    gauge!("selfsame_unlanded_releases").set(releases as f64);
}

/// What came of asking the cache about a claim, or of telling it something.
#[cfg(feature = "redis")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cached {
    /// It told what the claim comes to.
    Hit,
    /// It did not.
    Miss,
    /// It did not answer a call, or not in time, or nothing that can be read.
    Error,
    /// It was not asked, because it is away.
    Away,
}

#[cfg(feature = "redis")]
pub(crate) fn cached(cached: Cached) {
    static COUNTERS: [OnceLock<Counter>; 4] = [const { OnceLock::new() }; 4];
    let counter = COUNTERS[cached as usize].get_or_init(|| {
        let outcome = match cached {
            Cached::Hit => "hit",
            Cached::Miss => "miss",
            Cached::Error => "error",
            Cached::Away => "away",
        };
        counter!("selfsame_cache_total", "outcome" => outcome)
    });
    counter.increment(1);
}

/// Whether there is a cache to be asked.
#[cfg(feature = "redis")]
pub(crate) fn cache_up(is_up: bool) {
    gauge!("selfsame_cache_up").set(f64::from(u8::from(is_up)));
}

/// Counts a run for as long as it lives.
pub(crate) struct InFlight;

impl InFlight {
    pub(crate) fn begin() -> Self {
        IN_FLIGHT.increment(1.0);
        Self
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        IN_FLIGHT.decrement(1.0);
    }
}
