//! [`Node`]: the connections to one server.

use std::sync::Arc;
use std::time::Duration;

use selfsame_core::RecordId;

use super::link::Link;
use super::options::RedisOptions;
use super::safety::Safety;
use super::source::Source;

/// How many connections carry calls about records: Redis reads 16 KiB of each, a dozen calls, and makes all
/// it has read durable at once.
const LINKS: usize = 8;

/// How long a step of a scan may take.
const LOOK_TIME_OUT: Duration = Duration::from_secs(60);

/// Which of the connections carries a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    /// Nothing is that of scans and facts.
    at: Option<usize>,
}

impl Lane {
    /// What is said beside the calls about records.
    pub(super) const GUARD: Self = Self { at: Some(LINKS - 1) };
    pub(super) const LOOK: Self = Self { at: None };

    /// Ids are hashes: their last byte spreads them.
    pub(super) fn of(id: &RecordId) -> Self {
        Self { at: Some(usize::from(id.as_bytes()[RecordId::LEN - 1]) % LINKS) }
    }
}

/// The connections to one server.
pub(super) struct Node {
    source: Source,
    links: [Arc<Link>; LINKS],
    look: Link,
}

impl Node {
    pub(super) fn new(source: &Source, options: &RedisOptions, safety: &Arc<Safety>) -> Self {
        let link = |time_out| Link::new(source.clone(), time_out).safe(safety.clone());
        let links = std::array::from_fn(|_| {
            Arc::new(link(options.time_out).wait_replicas(options.wait_replicas))
        });
        Self { source: source.clone(), links, look: link(LOOK_TIME_OUT.max(options.time_out)) }
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Those that carry calls about records.
    pub(super) fn links(&self) -> &[Arc<Link>] {
        &self.links
    }

    pub(super) fn link(&self, lane: Lane) -> &Link {
        match lane.at {
            Some(at) => &self.links[at],
            None => &self.look,
        }
    }

    /// One that others may have, too.
    pub(super) fn shared(&self) -> Arc<Link> {
        self.links[0].clone()
    }
}
