//! [`Node`]: the connections to one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selfsame_core::{Lease, RecordId};

use super::link::Link;
use super::load::Load;
use super::options::RedisOptions;
use super::safety::Safety;
use super::source::Source;

/// How many connections carry calls about records, at most: Redis reads 16 KiB of each, a dozen calls, and makes all
/// it has read durable at once.
const LINKS: usize = 8;
/// As many as are worth it: calls that go over the same one share a part of what they cost.
const LINKS_MIN: usize = 2;
const CALLS_EACH: usize = 16;

/// How long a step of a scan may take.
const LOOK_TIME_OUT: Duration = Duration::from_secs(60);

/// Part of a lease after which a connection is given up over which its renewal was not answered: a second try must fit
/// into what is left of the lease.
const TRIES_PER_LEASE: u32 = 6;
const SHORTEST_TRY: Duration = Duration::from_millis(250);

/// Which of the connections carries a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lane {
    /// One for calls about records, by a number that spreads those.
    Record(u8),
    /// Renewals: the leases of running work never wait behind claims and completions.
    Renewal {
        /// Time after which a connection that does not answer is given up.
        limit: Duration,
    },
    /// What counts them, and waits for replicas as they do.
    Count,
    /// What is said beside them.
    Guard,
    /// Scans and facts.
    Look,
}

impl Lane {
    /// Ids are hashes: their last byte spreads them.
    pub(super) fn of(id: &RecordId) -> Self {
        Self::Record(id.as_bytes()[RecordId::LEN - 1])
    }

    /// Renewals of `lease`.
    pub(super) fn renewal(lease: &Lease) -> Self {
        Self::Renewal { limit: (lease.length / TRIES_PER_LEASE).max(SHORTEST_TRY) }
    }

    /// Time after which a connection that does not answer is given up, where that is not the time-out.
    pub(super) fn limit(self) -> Option<Duration> {
        match self {
            Self::Renewal { limit } => Some(limit),
            _ => None,
        }
    }
}

/// The connections to one server.
pub(super) struct Node {
    /// Its number, which no other one ever gets.
    number: u64,
    source: Source,
    links: [Arc<Link>; LINKS],
    /// How many of those are used, at least.
    links_min: usize,
    load: Arc<Load>,
    renewals: Link,
    guard: Link,
    look: Link,
}

impl Node {
    pub(super) fn new(source: &Source, options: &RedisOptions, safety: &Arc<Safety>) -> Self {
        let link = |time_out| Link::new(source.clone(), time_out).safe(safety.clone());
        let load = Arc::new(Load::default());
        let links = std::array::from_fn(|_| {
            let link = link(options.time_out).wait_replicas(options.wait_replicas);
            Arc::new(link.counted(load.clone()))
        });
        // Who waits for replicas keeps all others waiting that use the same one.
        let links_min = if options.wait_replicas > 0 { LINKS } else { LINKS_MIN };
        // Without waiting for replicas: two thirds of a lease are left when it is renewed, and the next
        // renewal tells a new master.
        let renewals = link(options.time_out);
        let guard = link(options.time_out);
        let look = link(LOOK_TIME_OUT.max(options.time_out));
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { number, source: source.clone(), links, links_min, load, renewals, guard, look }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Number of connections for calls about records that were made up to now.
    pub(super) fn connections(&self) -> u64 {
        self.links.iter().map(|link| link.connections()).sum()
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Those that carry calls about records.
    pub(super) fn links(&self) -> &[Arc<Link>] {
        &self.links
    }

    pub(super) fn link(&self, lane: Lane) -> &Link {
        match lane {
            Lane::Record(spread) => {
                let count = (self.load.calls() / CALLS_EACH).clamp(self.links_min, LINKS);
                &self.links[usize::from(spread) % count]
            }
            Lane::Renewal { .. } => &self.renewals,
            Lane::Count => &self.links[LINKS - 1],
            Lane::Guard => &self.guard,
            Lane::Look => &self.look,
        }
    }

    /// One that others may have, too.
    pub(super) fn shared(&self) -> Arc<Link> {
        self.links[0].clone()
    }
}
