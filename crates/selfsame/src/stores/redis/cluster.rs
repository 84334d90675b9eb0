//! [`Cluster`]: which server of a cluster has which bucket, as far as is known.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use redis::{Value, cmd};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::address::{Dial, Place};
use super::buckets::{Bucket, Buckets};
use super::link::{Ask, Link};
use super::node::Node;
use super::options::RedisOptions;
use super::safety::Safety;
use super::source::{Guides, Source, call};
use super::trouble::{Access, Fault};

/// How long one server may take to say who has what.
const PATIENCE: Duration = Duration::from_millis(300);

/// A cluster.
pub(super) struct Cluster {
    dial: Dial,
    options: RedisOptions,
    safety: Arc<Safety>,
    guides: Arc<Guides>,
    /// Leads to any server, for what any can do.
    guide: Arc<Link>,
    map: RwLock<Map>,
    /// Held by whoever reads the next map.
    reading: Mutex<()>,
}

#[derive(Default)]
struct Map {
    /// How often it was read.
    number: u64,
    nodes: HashMap<Place, Arc<Node>>,
    /// The masters, by bucket.
    masters: Vec<Option<Arc<Node>>>,
}

/// Some slots, and who has them: first of all their master.
struct Range {
    first: u16,
    last: u16,
    servers: Vec<Place>,
}

impl Cluster {
    pub(super) fn new(
        dial: Dial,
        seeds: Vec<Place>,
        options: &RedisOptions,
        safety: Arc<Safety>,
    ) -> Self {
        let guides = Arc::new(Guides::new(dial.clone(), seeds));
        let guide = Arc::new(Link::new(Source::Any(guides.clone()), options.time_out));
        let (map, reading) = (RwLock::default(), Mutex::default());
        Self { dial, options: options.clone(), safety, guides, guide, map, reading }
    }

    pub(super) fn guide(&self) -> Arc<Link> {
        self.guide.clone()
    }

    pub(super) fn guides(&self) -> Arc<Guides> {
        self.guides.clone()
    }

    /// Who has the bucket.
    pub(super) fn master(&self, bucket: Bucket) -> Result<Arc<Node>, Fault> {
        let known = self.map.read().masters.get(bucket.at()).cloned().flatten();
        known.ok_or_else(|| Fault::not_written("no server of the cluster has these records now"))
    }

    /// All who have buckets.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        let mut masters: Vec<Arc<Node>> = Vec::new();
        for master in self.map.read().masters.iter().flatten() {
            if !masters.iter().any(|known| Arc::ptr_eq(known, master)) {
                masters.push(master.clone());
            }
        }
        masters
    }

    /// The server at a place that another one has named.
    pub(super) fn server(&self, place: &Place) -> Result<Arc<Node>, Fault> {
        if let Some(node) = self.map.read().nodes.get(place) {
            return Ok(node.clone());
        }
        let mut map = self.map.write();
        self.node_in(&mut map, place)
    }

    /// A server says that a slot is elsewhere.
    pub(super) fn note_move(&self, buckets: &Buckets, slot: u16, to: &Place) -> Result<(), Fault> {
        let mut map = self.map.write();
        let node = self.node_in(&mut map, to)?;
        for bucket in buckets.all().filter(|bucket| buckets.slot(*bucket) == slot) {
            if let Some(master) = map.masters.get_mut(bucket.at()) {
                *master = Some(node.clone());
            }
        }
        Ok(())
    }

    pub(super) fn number(&self) -> u64 {
        self.map.read().number
    }

    /// Asks one server after the other who has what, unless somebody did since the map had that number.
    pub(super) async fn read_map(
        &self,
        buckets: &Buckets,
        seen: u64,
        until: Instant,
    ) -> Result<(), Fault> {
        let late = || Fault::not_written("no server of the cluster says who has what");
        let _reading = timeout_at(until, self.reading.lock()).await.map_err(|_| late())?;
        if self.number() != seen {
            return Ok(());
        }
        let mut fault = late();
        for _ in 0..self.guides.count() {
            // Another one than the last time, which may be the only one that has not heard the news.
            self.guide.leave_this();
            let until = until.min(Instant::now() + PATIENCE);
            let mut slots = cmd("CLUSTER");
            slots.arg("SLOTS");
            match self.guide.ask_once(Access::Read, &Ask::Command(&slots), until).await {
                Ok(answer) => {
                    let reached = self.guide.reached();
                    let ranges = read_ranges(&answer, reached.as_ref());
                    return self
                        .draw(buckets, &ranges.ok_or_else(|| Fault::strange(Access::Read))?);
                }
                Err(said) => fault = said,
            }
        }
        Err(fault)
    }

    fn draw(&self, buckets: &Buckets, ranges: &[Range]) -> Result<(), Fault> {
        let servers: Vec<_> = ranges.iter().flat_map(|range| range.servers.clone()).collect();
        let mut map = self.map.write();
        // Whoever still uses one of the others keeps it.
        map.nodes.retain(|place, _| servers.contains(place));
        let mut masters = Vec::new();
        for bucket in buckets.all() {
            let slot = buckets.slot(bucket);
            let range = ranges.iter().find(|range| (range.first..=range.last).contains(&slot));
            let master = range.and_then(|range| range.servers.first());
            masters.push(master.map(|place| self.node_in(&mut map, place)).transpose()?);
        }
        map.masters = masters;
        map.number += 1;
        drop(map);
        let mut places: Vec<Place> = Vec::new();
        for place in servers {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        self.guides.note(places);
        Ok(())
    }

    fn node_in(&self, map: &mut Map, place: &Place) -> Result<Arc<Node>, Fault> {
        if let Some(node) = map.nodes.get(place) {
            return Ok(node.clone());
        }
        let source = Source::from(call(&self.dial, place)?);
        let node = Arc::new(Node::new(&source, &self.options, &self.safety));
        map.nodes.insert(place.clone(), node.clone());
        Ok(node)
    }
}

/// What `CLUSTER SLOTS` says. A server that does not know its own name is where it was reached.
fn read_ranges(answer: &Value, reached: Option<&Place>) -> Option<Vec<Range>> {
    let Value::Array(ranges) = answer else { return None };
    let place = |server: &Value| {
        let Value::Array(server) = server else { return None };
        let [host, port, ..] = &server[..] else { return None };
        let host: Option<String> = redis::from_redis_value_ref(host).ok()?;
        let host = match host.as_deref() {
            Some("?") => return None,
            None | Some("") => reached?.host.clone(),
            Some(host) => host.to_owned(),
        };
        Some(Place { host, port: redis::from_redis_value_ref(port).ok()? })
    };
    let range = |range: &Value| {
        let Value::Array(range) = range else { return None };
        let [first, last, servers @ ..] = &range[..] else { return None };
        Some(Range {
            first: redis::from_redis_value_ref(first).ok()?,
            last: redis::from_redis_value_ref(last).ok()?,
            servers: servers.iter().filter_map(place).collect(),
        })
    };
    ranges.iter().map(range).collect()
}
