//! [`AddressLimits`]: the share of one client address in connections and requests.
//!
//! An address is an IPv4 address or an IPv6 network of 64 bits, which is what one customer gets. What it has
//! open is counted in one [`AddressUse`], which exists for as long as anything is. A connection keeps that
//! of its peer, so that a request needs no look-up. The rate of its
//! new keys ([`NewKeyRate`]) is kept for longer, until they are paid for.
//!
//! A keyed request runs to its end even if its client leaves. It counts until its response is over *and* its
//! run has ended: [`RequestPermit`] goes with the response, [`RunPermit`] with the run.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use selfsame::{BufferAllowance, BufferExcess, BufferLimit, NewKeyAllowance};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::buffered_bytes::{BufferLimits, BufferedBytes};
use crate::config::Limits;
use crate::fair_share::BusyTime;
use crate::new_key_rate::{NewKeyLimits, NewKeyRate};

/// Gauge of the runs whose clients are gone.
pub(crate) const ABANDONED: &str = "selfsame_abandoned_requests";

/// Limit of the questions of one address that are asked at once.
const QUESTIONS_MAX: usize = 64;
/// Number of parts of the map, each with a lock of its own.
const SHARDS: usize = 32;
/// Limit of the addresses of one part that have nothing open and keys to pay for: some 100,000 of
/// all parts. Those beyond it are forgotten, so that their keys are not limited.
const UNPAID_MAX: usize = 100_000 / SHARDS;
/// Number of such addresses from which on those are looked for that have paid, once a second.
const UNPAID_FEW: usize = 64;

/// A client address, as far as clients are told apart by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ClientAddress {
    V4(Ipv4Addr),
    /// The first 64 bits of an IPv6 address.
    V6(u64),
    /// Any client of whom the headers of a trusted proxy tell two addresses.
    Unclear,
}

impl From<IpAddr> for ClientAddress {
    fn from(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip),
            IpAddr::V6(ip) => {
                let bytes = ip.octets();
                Self::V6(u64::from_be_bytes(*bytes.first_chunk().expect("16 bytes")))
            }
        }
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(ip) => ip.fmt(f),
            Self::Unclear => f.write_str("two different ones in X-Forwarded-For and Forwarded"),
            Self::V6(prefix) => write!(f, "{}/64", Ipv6Addr::from(u128::from(*prefix) << 64)),
        }
    }
}

/// Limits what one address may have open.
pub(crate) struct AddressLimits {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    max_connections: AtomicUsize,
    max_requests: AtomicUsize,
    max_abandoned: AtomicUsize,
    /// Runs of all addresses whose clients are gone.
    abandoned: AtomicUsize,
    new_keys: Arc<NewKeyLimits>,
    buffers: Arc<BufferLimits>,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<ClientAddress, Entry>,
    /// Number of entries without a use.
    unpaid: usize,
    /// Second at which those that have paid were removed.
    swept_at: u64,
}

/// State of an address: its use, and the rate of its new keys, which outlives the use.
struct Entry {
    /// None where nothing is open.
    usage: Option<Weak<AddressUse>>,
    new_keys: Arc<NewKeyRate>,
}

/// Counts what one address has open.
struct AddressUse {
    address: ClientAddress,
    connections: AtomicUsize,
    /// Requests under way, with those whose clients are gone.
    requests: AtomicUsize,
    /// Runs whose clients are gone.
    abandoned: AtomicUsize,
    /// Turns to ask the service of `[forward_auth]`, or the store what became of a key.
    questions: Semaphore,
    busy_time: Arc<BusyTime>,
    new_keys: Arc<NewKeyRate>,
    buffered: BufferedBytes,
    limits: Arc<AddressLimits>,
}

/// A limit that is reached, by the name of its setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Excess {
    pub(crate) address: ClientAddress,
    pub(crate) setting: &'static str,
    pub(crate) max: usize,
}

pub(crate) const MAX_CONNECTIONS_PER_ADDRESS: &str = "max_connections_per_address";
pub(crate) const MAX_REQUESTS_PER_ADDRESS: &str = "max_requests_per_address";
pub(crate) const MAX_ABANDONED_REQUESTS: &str = "max_abandoned_requests";

impl AddressLimits {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        let this = Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            max_connections: AtomicUsize::default(),
            max_requests: AtomicUsize::default(),
            max_abandoned: AtomicUsize::default(),
            abandoned: AtomicUsize::default(),
            new_keys: NewKeyLimits::new(limits.max_new_keys_per_address),
            buffers: BufferLimits::new(limits),
        };
        this.set(limits);
        Arc::new(this)
    }

    /// Applies other limits to whatever is opened from now on.
    pub(crate) fn set(&self, limits: &Limits) {
        self.max_connections.store(limits.max_connections_per_address, Ordering::Relaxed);
        self.max_requests.store(limits.max_requests_per_address, Ordering::Relaxed);
        self.max_abandoned.store(limits.max_abandoned_requests, Ordering::Relaxed);
        self.new_keys.set(limits.max_new_keys_per_address);
        self.buffers.set(limits);
    }

    /// Number of runs whose clients are gone.
    pub(crate) fn abandoned(&self) -> usize {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Counts a connection of `ip`, unless it has as many as it may.
    pub(crate) fn connection(self: &Arc<Self>, ip: IpAddr) -> Result<ConnectionPermit, Excess> {
        let usage = self.usage(ip.into());
        let max = self.max_connections.load(Ordering::Relaxed);
        match has_counted(&usage.connections, max) {
            true => Ok(ConnectionPermit(usage)),
            false => Err(usage.excess(MAX_CONNECTIONS_PER_ADDRESS, max)),
        }
    }

    /// Counts a request of a client, unless its address has as many as it may.
    pub(crate) fn request(
        self: &Arc<Self>,
        client: impl Into<ClientAddress>,
    ) -> Result<CountedRequest, Excess> {
        self.usage(client.into()).request()
    }

    /// The count of an address, new or as it is.
    fn usage(self: &Arc<Self>, address: ClientAddress) -> Arc<AddressUse> {
        let shard = &mut *self.shard(&address).lock();
        let entry = shard.entries.entry(address).or_insert_with(|| {
            shard.unpaid += 1;
            let new_keys = Arc::new(NewKeyRate::new(address, self.new_keys.clone()));
            Entry { usage: None, new_keys }
        });
        // Nothing may be dropped here: the last one to go locks the shard.
        if let Some(usage) = entry.usage.as_ref().and_then(Weak::upgrade) {
            return usage;
        }
        let (connections, requests, abandoned) = Default::default();
        let usage = Arc::new(AddressUse {
            address,
            connections,
            requests,
            abandoned,
            questions: Semaphore::new(QUESTIONS_MAX),
            busy_time: Arc::new(BusyTime::new(address)),
            new_keys: entry.new_keys.clone(),
            buffered: BufferedBytes::new(address, self.buffers.clone()),
            limits: self.clone(),
        });
        if entry.usage.replace(Arc::downgrade(&usage)).is_none() {
            shard.unpaid -= 1;
        }
        usage
    }

    fn shard(&self, address: &ClientAddress) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(address) % SHARDS as u64;
        &self.shards[usize::try_from(hash).expect("less than the number of parts")]
    }
}

/// Adds one to `count` unless it is `max` already.
fn has_counted(count: &AtomicUsize, max: usize) -> bool {
    let is_counted = count.fetch_add(1, Ordering::Relaxed) < max;
    if !is_counted {
        count.fetch_sub(1, Ordering::Relaxed);
    }
    is_counted
}

impl AddressUse {
    fn request(self: &Arc<Self>) -> Result<CountedRequest, Excess> {
        let max_abandoned = self.limits.max_abandoned.load(Ordering::Relaxed);
        if self.abandoned.load(Ordering::Relaxed) > 0 && self.limits.abandoned() >= max_abandoned {
            return Err(self.excess(MAX_ABANDONED_REQUESTS, max_abandoned));
        }
        let max = self.limits.max_requests.load(Ordering::Relaxed);
        match has_counted(&self.requests, max) {
            true => Ok(CountedRequest::new(self.clone())),
            false => Err(self.excess(MAX_REQUESTS_PER_ADDRESS, max)),
        }
    }

    fn excess(&self, setting: &'static str, max: usize) -> Excess {
        Excess { address: self.address, setting, max }
    }
}

/// Bytes that are held in memory keep the count of their address, like all that it has open.
impl BufferLimit for AddressUse {
    fn check(&self, bytes: usize) -> Result<(), BufferExcess> {
        self.buffered.check(bytes)
    }

    fn reserve(&self, bytes: usize) -> Result<(), BufferExcess> {
        self.buffered.reserve(bytes)
    }

    fn add(&self, bytes: usize) {
        self.buffered.add(bytes);
    }

    fn release(&self, bytes: usize) {
        self.buffered.release(bytes);
    }

    fn share(&self, data: &[u8]) {
        self.buffered.share(data);
    }

    fn unshare(&self, data: &[u8]) {
        self.buffered.unshare(data);
    }
}

impl Drop for AddressUse {
    fn drop(&mut self) {
        let now = self.limits.new_keys.now();
        let mut shard = self.limits.shard(&self.address).lock();
        // Another may have taken its place since the last permit was dropped.
        let entry = shard.entries.get_mut(&self.address);
        let is_last = |usage: &Weak<_>| usage.strong_count() == 0;
        let Some(entry) = entry.filter(|entry| entry.usage.as_ref().is_some_and(is_last)) else {
            return;
        };
        if self.new_keys.is_paid(now) {
            shard.entries.remove(&self.address);
            return;
        }
        entry.usage = None;
        shard.unpaid += 1;
        shard.sweep(now);
        if shard.unpaid > UNPAID_MAX {
            shard.entries.remove(&self.address);
            shard.unpaid -= 1;
        }
    }
}

impl Shard {
    /// Removes the addresses that have nothing open and have paid for their keys, once a second.
    fn sweep(&mut self, now: u64) {
        let second = now / 1_000_000_000;
        if self.unpaid <= UNPAID_FEW || self.swept_at == second {
            return;
        }
        self.swept_at = second;
        self.entries.retain(|_, entry| entry.usage.is_some() || !entry.new_keys.is_paid(now));
        self.unpaid = self.entries.values().filter(|entry| entry.usage.is_none()).count();
    }
}

/// Counts a connection against its address until it is dropped.
pub(crate) struct ConnectionPermit(Arc<AddressUse>);

impl ConnectionPermit {
    /// Counts a request of the connection's peer, unless it has as many as it may.
    pub(crate) fn request(&self) -> Result<CountedRequest, Excess> {
        self.0.request()
    }

    /// Time that tasks of the same address have taken lately.
    pub(crate) fn busy_time(&self) -> &Arc<BusyTime> {
        &self.0.busy_time
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a request against its address until it is dropped.
pub(crate) struct CountedRequest {
    usage: Arc<AddressUse>,
    is_abandoned: AtomicBool,
}

impl CountedRequest {
    fn new(usage: Arc<AddressUse>) -> Self {
        Self { usage, is_abandoned: AtomicBool::new(false) }
    }

    /// Allowance for new keys of the request's address; none where they are not limited.
    pub(crate) fn new_keys(&self) -> Option<NewKeyAllowance> {
        let is_off = self.usage.limits.new_keys.is_off();
        (!is_off).then(|| NewKeyAllowance::new(self.usage.new_keys.clone()))
    }

    /// Allowance for what the request and its response hold in memory.
    pub(crate) fn buffers(&self) -> BufferAllowance {
        BufferAllowance::new(self.usage.clone())
    }

    /// Permit of a request that ends if its client leaves.
    pub(crate) fn passing(self) -> RequestPermit {
        RequestPermit::Passing(self)
    }

    /// Permits of a request that may run on without its client.
    pub(crate) fn running(self) -> (RequestPermit, RunPermit) {
        let request = Arc::new(self);
        (RequestPermit::Running(ClientPermit(request.clone())), RunPermit(request))
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let usage = &self.usage;
        usage.requests.fetch_sub(1, Ordering::Relaxed);
        if *self.is_abandoned.get_mut() {
            usage.abandoned.fetch_sub(1, Ordering::Relaxed);
            usage.limits.abandoned.fetch_sub(1, Ordering::Relaxed);
            metrics::gauge!(ABANDONED).decrement(1.0);
        }
    }
}

/// Counts a request until its response is over.
#[expect(dead_code, reason = "they are held")]
pub(crate) enum RequestPermit {
    Passing(CountedRequest),
    Running(ClientPermit),
}

/// The permit of a run's client, dropped when that leaves or has its response.
pub(crate) struct ClientPermit(Arc<CountedRequest>);

impl Drop for ClientPermit {
    fn drop(&mut self) {
        // A run that ends just now counts as abandoned until this permit is gone.
        if Arc::strong_count(&self.0) > 1 {
            let usage = &self.0.usage;
            usage.abandoned.fetch_add(1, Ordering::Relaxed);
            usage.limits.abandoned.fetch_add(1, Ordering::Relaxed);
            metrics::gauge!(ABANDONED).increment(1.0);
            self.0.is_abandoned.store(true, Ordering::Relaxed);
        }
    }
}

/// Counts a request until its run has ended; found in the extensions of requests that may have a key.
#[derive(Clone)]
pub(crate) struct RunPermit(Arc<CountedRequest>);

impl RunPermit {
    /// Waits until one more question of the request's address may be asked.
    pub(crate) async fn question_turn(&self) -> SemaphorePermit<'_> {
        self.0.usage.questions.acquire().await.expect("it is never closed")
    }
}
