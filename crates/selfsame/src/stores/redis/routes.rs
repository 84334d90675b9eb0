//! [`Routes`]: the way of a call to the server that has what it is about, wherever that is by now.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use redis::{Value, cmd};
use selfsame_core::StoreErrorKind;
use tokio::time::{Instant, sleep};

use super::address::{Address, Form};
use super::buckets::{Bucket, Buckets};
use super::cluster::Cluster;
use super::link::{Ask, Link};
use super::node::{Lane, Node};
use super::options::RedisOptions;
use super::safety::Safety;
use super::sentinel::Sentinels;
use super::source::Source;
use super::trouble::{Access, Fault, RedisOpenError, Turn};

/// How long a call waits before it asks who is the master now.
const PAUSE: Duration = Duration::from_millis(50);

/// How often a call is sent elsewhere before it waits as well: servers that disagree would send it around for ever.
const REDIRECTED_MAX: usize = 4;

/// The way to all records.
pub(super) struct Routes {
    pub(super) buckets: Buckets,
    ways: Ways,
    time_out: Duration,
    safety: Arc<Safety>,
}

/// Whether a call is sent to a server that has not got all of a slot yet.
#[derive(Clone, Copy)]
enum Turned {
    No,
    Ahead,
}

/// What a call is about, and since when.
#[derive(Clone, Copy)]
struct Errand {
    bucket: Bucket,
    lane: Lane,
    access: Access,
    begun: Instant,
}

/// The way to a bucket: a server, and how many connections to it were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Path {
    node: u64,
    connections: u64,
}

enum Ways {
    /// To one server: what it does not do, nobody does.
    Server(Arc<Node>),
    /// To whoever is the master.
    Master(Arc<Node>),
    Cluster(Box<Cluster>),
}

impl Routes {
    /// Finds the servers, and refuses those that lose records.
    pub(super) async fn open(
        address: &Address,
        options: &RedisOptions,
    ) -> Result<Self, RedisOpenError> {
        let routes = Self::new(address, options, Safety::new(options))?;
        routes.verify(&address.place()).await?;
        Ok(routes)
    }

    /// The way to servers that need not be there yet.
    pub(super) fn new(
        address: &Address,
        options: &RedisOptions,
        safety: Safety,
    ) -> Result<Self, RedisOpenError> {
        let safety = Arc::new(safety);
        let node = |source: &Source| Arc::new(Node::new(source, options, &safety));
        let (buckets, ways) = match address.form().clone() {
            Form::Server => {
                let source = Source::from(address.client()?);
                (Buckets::one(), Ways::Server(node(&source)))
            }
            Form::Sentinel { master, login } => {
                let dial = address.dial()?;
                let (places, guides) = (address.places().to_vec(), dial.by(*login));
                let source = Source::Master(Sentinels::start(places, guides, dial, master));
                (Buckets::one(), Ways::Master(node(&source)))
            }
            Form::Cluster => {
                let (dial, seeds) = (address.dial()?, address.places().to_vec());
                let cluster = Cluster::new(dial, seeds, options, safety.clone());
                (Buckets::of_a_cluster(), Ways::Cluster(Box::new(cluster)))
            }
        };
        Ok(Self { buckets, ways, time_out: options.time_out, safety })
    }

    async fn verify(&self, place: &str) -> Result<(), RedisOpenError> {
        let failed = |fault: Fault| RedisOpenError::Connection {
            place: place.to_owned(),
            cause: fault.message,
        };
        if let Ways::Cluster(cluster) = &self.ways {
            let until = Instant::now() + self.time_out;
            cluster.read_map(&self.buckets, 0, until).await.map_err(failed)?;
            for bucket in self.buckets.all() {
                cluster.master(bucket).map_err(failed)?;
            }
        }
        for master in self.masters() {
            let link = Link::new(master.source().clone(), self.time_out);
            match link.verify(&self.safety).await {
                // Another sentinel may know better.
                Err(RedisOpenError::Replica { .. } | RedisOpenError::Connection { .. })
                    if matches!(self.ways, Ways::Master(..)) =>
                {
                    link.verify(&self.safety).await?;
                }
                verified => verified?,
            }
            let mut slots = cmd("CLUSTER");
            slots.arg("SLOTS");
            if matches!(self.ways, Ways::Server(..))
                && link.ask(Access::Read, Ask::Command(&slots)).await.is_ok()
            {
                return Err(RedisOpenError::Cluster { place: place.to_owned() });
            }
        }
        Ok(())
    }

    /// What the server answers that has the bucket. In a cluster, and behind sentinels, that is asked of
    /// others in its place for as long as there is time.
    pub(super) async fn ask(
        &self,
        bucket: Bucket,
        lane: Lane,
        access: Access,
        ask: Ask<'_>,
    ) -> Result<Value, Fault> {
        if let Ways::Server(node) = &self.ways {
            let link = node.link(lane);
            return match lane.limit() {
                Some(limit) => link.ask_impatiently(limit, access, ask).await,
                None => link.ask(access, ask).await,
            };
        }
        let errand = Errand { bucket, lane, access, begun: Instant::now() };
        match self.ask_at(self.master(bucket), errand, &ask, Turned::No).await {
            Err(fault) if fault.turn.is_some() => {
                // It is rare, and its future large.
                Box::pin(self.follow(fault, errand, &ask)).await
            }
            answer => answer,
        }
    }

    /// The same for who is in a hurry, see [`Link::ask_within`].
    pub(super) async fn ask_soon(
        &self,
        bucket: Bucket,
        lane: Lane,
        access: Access,
        ask: Ask<'_>,
    ) -> Result<Value, Fault> {
        match &self.ways {
            Ways::Server(node) => node.link(lane).ask_within(self.time_out, access, ask).await,
            Ways::Master(..) | Ways::Cluster(_) => self.ask(bucket, lane, access, ask).await,
        }
    }

    /// Whether all servers are there: the connections to them are made by then, for which there is more time
    /// than for a call.
    pub(super) async fn knock(&self, time_out: Duration) -> Result<(), Fault> {
        if let Ways::Cluster(cluster) = &self.ways {
            let until = Instant::now() + time_out;
            cluster.read_map(&self.buckets, cluster.number(), until).await?;
        }
        let (masters, ping) = (self.masters(), cmd("PING"));
        let links = masters.iter().flat_map(|node| node.links());
        let knocks = links.map(|link| link.ask_within(time_out, Access::Read, Ask::Command(&ping)));
        try_join_all(knocks).await.map(drop)
    }

    async fn ask_at(
        &self,
        node: Result<Arc<Node>, Fault>,
        errand: Errand,
        ask: &Ask<'_>,
        turned: Turned,
    ) -> Result<Value, Fault> {
        let node = node?;
        let link = node.link(errand.lane);
        // A quarter of the time: if this server is gone, another one may be there by then.
        let limit = link.time_out() / 4;
        let limit = errand.lane.limit().map_or(limit, |soon| link.limit(soon, limit));
        let begun = Instant::now();
        let until = (begun + limit).min(errand.begun + link.time_out());
        let answer = match turned {
            Turned::No => link.ask_once(errand.access, ask, until).await,
            Turned::Ahead => Box::pin(link.ask_ahead(errand.access, ask, until)).await,
        };
        if errand.lane.limit().is_some() && answer.is_ok() {
            link.took(begun.elapsed());
        }
        answer
    }

    /// Goes where the answer is, or waits until it can be given.
    async fn follow(
        &self,
        mut fault: Fault,
        errand: Errand,
        ask: &Ask<'_>,
    ) -> Result<Value, Fault> {
        let mut redirected = 0;
        loop {
            let Some(turn) = fault.turn.clone() else { return Err(fault) };
            let time_out = match fault.kind {
                StoreErrorKind::MayHaveLanded => errand.access.share_of(self.time_out),
                _ => self.time_out,
            };
            let until = errand.begun + time_out;
            redirected += usize::from(turn != Turn::Later);
            if redirected > REDIRECTED_MAX {
                redirected = 0;
                sleep(PAUSE).await;
            }
            let (node, turned) = match (turn, &self.ways) {
                // Some of it may still be where it was.
                (Turn::Moving { .. }, _) if ask.is_about_many() => return Err(fault),
                (Turn::Moving { to }, Ways::Cluster(cluster)) => {
                    (cluster.server(&to), Turned::Ahead)
                }
                (Turn::Moved { slot, to }, Ways::Cluster(cluster)) => {
                    let noted = cluster.note_move(&self.buckets, slot, &to);
                    (noted.and_then(|()| self.master(errand.bucket)), Turned::No)
                }
                _ => {
                    self.wait(until).await;
                    (self.master(errand.bucket), Turned::No)
                }
            };
            // With too little time left nobody would hear the answer, nor know what became of it.
            if Instant::now() + PAUSE >= until {
                return Err(fault);
            }
            match self.ask_at(node, errand, ask, turned).await {
                Ok(answer) => return Ok(answer),
                // What is known of this try says nothing of those before.
                Err(next) => fault = next.after(fault.kind),
            }
        }
    }

    /// A little, and until somebody has asked who is the master now.
    async fn wait(&self, until: Instant) {
        let seen = match &self.ways {
            Ways::Cluster(cluster) => cluster.number(),
            Ways::Server(..) | Ways::Master(..) => 0,
        };
        sleep(PAUSE).await;
        if let Ways::Cluster(cluster) = &self.ways {
            // If nobody knows, the next try says what is wrong.
            let _read = cluster.read_map(&self.buckets, seen, until).await;
        }
    }

    /// Whether all records are on one server at a time.
    pub(super) fn is_one_server(&self) -> bool {
        !matches!(self.ways, Ways::Cluster(_))
    }

    fn master(&self, bucket: Bucket) -> Result<Arc<Node>, Fault> {
        match &self.ways {
            Ways::Server(node) | Ways::Master(node) => Ok(node.clone()),
            Ways::Cluster(cluster) => cluster.master(bucket),
        }
    }

    /// All servers that have records.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        match &self.ways {
            Ways::Server(node) | Ways::Master(node) => vec![node.clone()],
            Ways::Cluster(cluster) => cluster.masters(),
        }
    }

    /// The buckets that are on the same server, which loses them together.
    pub(super) fn buckets_beside(&self, bucket: Bucket) -> Vec<Bucket> {
        let Ok(node) = self.master(bucket) else { return Vec::new() };
        let is_there = |other: &Bucket| {
            *other != bucket && self.master(*other).is_ok_and(|other| Arc::ptr_eq(&other, &node))
        };
        self.buckets.all().filter(is_there).collect()
    }

    /// The way to a bucket as it is now. Another server may be at its end if it is not the same as before.
    pub(super) fn path(&self, bucket: Bucket) -> Option<Path> {
        let node = self.master(bucket).ok()?;
        Some(Path { node: node.number(), connections: node.connections() })
    }

    /// Makes all connections to the server that has a bucket, so that none is new later only because there is more to do.
    pub(super) async fn connect(&self, bucket: Bucket) {
        if let Ok(node) = self.master(bucket) {
            // Whatever is wrong with one of them, the next call over it tells.
            let _connected = join_all(node.links().iter().map(|link| link.connect_now())).await;
        }
    }

    /// Whom wake-ups are heard from, and over what they are sent.
    pub(super) fn bell(&self) -> (Source, Arc<Link>) {
        match &self.ways {
            Ways::Server(node) | Ways::Master(node) => (node.source().clone(), node.shared()),
            Ways::Cluster(cluster) => (Source::Any(cluster.guides()), cluster.guide()),
        }
    }
}
