//! [`Workers`]: threads that each serve connections of their own, from the first byte to the last.
//!
//! A request stays on one thread with all that runs for it, its connection to the upstream
//! included: where threads share their tasks, waking another one is a good part of what a request
//! costs.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::address_limit::ConnectionPermit;
use crate::background;
use crate::door::Door;
use crate::fair_share::FairShare;
use crate::peer::Peer;
use crate::room::Room;
use crate::routes::{LiveRoutes, Routes};
use crate::server;
use crate::tls::Tls;

/// How many connections may be on their way to one worker.
const ARRIVING_MAX: usize = 1024;

/// The threads that serve.
pub(crate) struct Workers {
    all: Vec<Worker>,
    end: CancellationToken,
}

struct Worker {
    arriving: mpsc::Sender<Arrived>,
    /// Held once here, and once by each connection.
    place: Arc<()>,
    /// Connections that have left HTTP.
    tunnels: TaskTracker,
    routes: Arc<LiveRoutes>,
    served: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
}

/// A connection on its way to its worker.
struct Arrived {
    stream: std::net::TcpStream,
    peer: Peer,
    permit: Option<ConnectionPermit>,
    place: Arc<()>,
}

/// What a worker serves connections with.
#[derive(Clone)]
struct Serving {
    routes: Arc<LiveRoutes>,
    tls: Option<Arc<Tls>>,
    room: Arc<Room>,
    tunnels: TaskTracker,
    share: Arc<FairShare>,
}

impl Workers {
    /// Starts one for each core, with routes of its own. They take connections until `stop`.
    pub(crate) fn start(
        routes: impl Fn() -> Routes,
        tls: Option<&Arc<Tls>>,
        room: &Arc<Room>,
        stop: &CancellationToken,
    ) -> io::Result<Self> {
        let end = CancellationToken::new();
        let cores = thread::available_parallelism()?.get();
        let start = |(number, share)| {
            let routes = Arc::new(LiveRoutes::new(routes()));
            let (tls, room, tunnels) = (tls.cloned(), room.clone(), TaskTracker::new());
            let serving = Serving { routes, tls, room, tunnels, share };
            Worker::start(number, serving, stop.clone(), end.clone())
        };
        let all = (1..).zip(FairShare::for_each(cores)).map(start);
        Ok(Self { all: all.collect::<io::Result<_>>()?, end })
    }

    /// How many connections there are.
    pub(crate) fn connections(&self) -> usize {
        let of = |worker: &Worker| Arc::strong_count(&worker.place) - 1 + worker.tunnels.len();
        self.all.iter().map(of).sum()
    }

    /// Hands a connection to whoever has the fewest.
    pub(crate) async fn take(
        &self,
        stream: TcpStream,
        peer: Peer,
        permit: Option<ConnectionPermit>,
    ) -> io::Result<()> {
        let fewest = self.all.iter().min_by_key(|worker| Arc::strong_count(&worker.place));
        let worker = fewest.expect("there is at least one core");
        let (stream, place) = (stream.into_std()?, worker.place.clone());
        let arrived = Arrived { stream, peer, permit, place };
        worker.arriving.send(arrived).await.map_err(|_| io::Error::other("a worker is gone"))
    }

    /// The routes of each.
    pub(crate) fn routes(&self) -> Vec<Arc<LiveRoutes>> {
        self.all.iter().map(|worker| worker.routes.clone()).collect()
    }

    /// Waits until each connection has ended the request it was at when told to stop. Work whose
    /// client has gone goes on.
    pub(crate) async fn served(&mut self) {
        for worker in &mut self.all {
            // One that came to grief has said so.
            let _gone = (&mut worker.served).await;
        }
    }

    /// Ends whatever still goes on.
    pub(crate) fn end(self) {
        self.end.cancel();
        for worker in self.all {
            let _gone = worker.thread.join();
        }
    }
}

impl Worker {
    fn start(
        number: usize,
        serving: Serving,
        stop: CancellationToken,
        end: CancellationToken,
    ) -> io::Result<Self> {
        let (arriving, arrived) = mpsc::channel(ARRIVING_MAX);
        let (done, served) = oneshot::channel();
        let (routes, tunnels) = (serving.routes.clone(), serving.tunnels.clone());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name(format!("selfsame-worker-{number}"));
        let thread = thread.spawn(move || {
            runtime.block_on(end.run_until_cancelled(async {
                serve(arrived, serving, stop).await;
                let _gone = done.send(());
                // Work whose client has gone still runs here.
                std::future::pending::<()>().await;
            }));
            // A name that is still being resolved holds nobody up.
            runtime.shutdown_background();
        })?;
        Ok(Self { arriving, place: Arc::default(), tunnels, routes, served, thread })
    }
}

/// Serves what arrives until `stop`, then lets each connection end the request it is at.
async fn serve(mut arrived: mpsc::Receiver<Arrived>, serving: Serving, stop: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let share = serving.share.clone();
    background::spawn(async move { share.run().await });
    loop {
        let next = tokio::select! {
            next = arrived.recv() => next,
            () = stop.cancelled() => {
                arrived.close();
                arrived.recv().await
            }
        };
        let Some(Arrived { stream, peer, permit, place }) = next else { break };
        let Serving { routes, tls, room, tunnels, share } = serving.clone();
        let busy_time = permit.as_ref().map(|permit| permit.busy_time().clone());
        let permit = permit.map(Arc::new);
        let door = Door { peer, permit, routes, room, tunnels, share: share.clone() };
        let (stop, watcher) = (stop.clone(), graceful.watcher());
        background::spawn(share.schedule(busy_time, async move {
            server::connection(stream, door, tls, stop, watcher).await;
            drop(place);
        }));
    }
    graceful.shutdown().await;
    serving.tunnels.close();
    serving.tunnels.wait().await;
}
