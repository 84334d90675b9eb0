//! [`Node`]: the connections to one server.

use std::sync::Arc;
use std::time::Duration;

use selfsame_core::RecordId;

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

/// Which of the connections carries a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lane {
    /// One for calls about records, by a number that spreads those.
    Record(u8),
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
}

/// The connections to one server.
pub(super) struct Node {
    source: Source,
    links: [Arc<Link>; LINKS],
    /// How many of those are used, at least.
    links_min: usize,
    load: Arc<Load>,
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
        let look = link(LOOK_TIME_OUT.max(options.time_out));
        Self { source: source.clone(), links, links_min, load, look }
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
            Lane::Guard => &self.links[LINKS - 1],
            Lane::Look => &self.look,
        }
    }

    /// One that others may have, too.
    pub(super) fn shared(&self) -> Arc<Link> {
        self.links[0].clone()
    }
}
