//! [`Source`]: whom a connection is made to, which may be another one each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use redis::{Client, ConnectionInfo};

use super::address::{Dial, Place, place};
use super::sentinel::Sentinels;
use super::trouble::Fault;

/// Whom a connection is made to.
#[derive(Clone)]
pub(super) enum Source {
    /// A server.
    Server(Arc<Client>),
    /// Any server of a cluster, another one after each failure.
    Any(Arc<Guides>),
    /// Whoever is the master, as sentinels say.
    Master(Arc<Sentinels>),
}

impl Source {
    /// The next one, and what must be its [`Source::era`] for as long as it is the right one.
    pub(super) async fn client(&self) -> Result<(Client, u64), Fault> {
        match self {
            Self::Server(client) => Ok((Client::clone(client), 0)),
            Self::Any(guides) => Ok((guides.next()?, 0)),
            Self::Master(sentinels) => sentinels.master().await,
        }
    }

    /// Whoever was connected to is not the right one, or not there.
    pub(super) fn refuse(&self, info: &ConnectionInfo) {
        if let (Self::Master(sentinels), Some(place)) = (self, Place::of(info)) {
            sentinels.refuse(place);
        }
    }

    /// Where it is, or who knows, without a password.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Server(client) => place(client.get_connection_info()),
            Self::Any(guides) => guides.dial.place(&guides.seeds),
            Self::Master(sentinels) => sentinels.place(),
        }
    }

    /// Changes when another server is to be used.
    pub(super) fn era(&self) -> u64 {
        match self {
            Self::Server(_) | Self::Any(_) => 0,
            Self::Master(sentinels) => sentinels.era(),
        }
    }
}

impl From<Client> for Source {
    fn from(client: Client) -> Self {
        Self::Server(Arc::new(client))
    }
}

/// The servers of a cluster, each of which knows the others.
pub(super) struct Guides {
    dial: Dial,
    /// Those of the address.
    seeds: Vec<Place>,
    known: Mutex<Vec<Place>>,
    next: AtomicUsize,
}

impl Guides {
    pub(super) fn new(dial: Dial, seeds: Vec<Place>) -> Self {
        Self { dial, known: Mutex::new(seeds.clone()), seeds, next: AtomicUsize::new(0) }
    }

    /// These are the servers now. Those of the address are asked again when none of them is left.
    pub(super) fn note(&self, mut servers: Vec<Place>) {
        let others = self.seeds.iter().filter(|seed| !servers.contains(seed));
        let others: Vec<_> = others.cloned().collect();
        servers.extend(others);
        *self.known.lock() = servers;
    }

    pub(super) fn count(&self) -> usize {
        self.known.lock().len()
    }

    fn next(&self) -> Result<Client, Fault> {
        let place = {
            let known = self.known.lock();
            known[self.next.fetch_add(1, Ordering::Relaxed) % known.len()].clone()
        };
        call(&self.dial, &place)
    }
}

pub(super) fn call(dial: &Dial, place: &Place) -> Result<Client, Fault> {
    dial.to(place).map_err(|error| Fault::not_written(format!("{place} cannot be called: {error}")))
}
