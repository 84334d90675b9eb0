//! Connections to an upstream that speaks HTTP/2, and proof that a request never began there.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use selfsame::BoxError;
use tokio::time::{Instant, timeout};
use tower_service::Service;

use super::connection_limit::TooManyConnections;
use super::tls::Connector;
use super::{Answered, Forwarded, Outgoing, Outward, POOL_IDLE, PROBE_AFTER};
use crate::{background, config};

/// How many requests go over one connection before another is opened: what servers are asked to
/// allow at the least (RFC 9113, 6.5.2), so that none waits for a slow one to end.
const STREAMS_MAX: usize = 100;
/// How many connections there may be. Past that, requests share what the upstream allows.
const CONNECTIONS_MAX: usize = 32;
/// How large an answer's head may be: one that is larger is lost.
const HEAD_BYTES_MAX: u32 = 256 * 1024;
/// How often a request is tried that the connection gave back unsent, because it was closing.
const TRIES: usize = 3;
/// How long what was sent may stay without the other system's acknowledgement.
#[cfg(target_os = "linux")]
const UNHEARD_MAX: Duration = Duration::from_secs(30);

/// The connections to the upstream.
pub(super) struct Connections {
    connector: Connector,
    address: Uri,
    connect_timeout: Duration,
    open: Mutex<Vec<Connection>>,
    /// Whoever connects: the others find its connection.
    connecting: tokio::sync::Mutex<()>,
}

struct Connection {
    seat: Seat,
    used_at: Instant,
}

/// A way to send requests over a connection.
#[derive(Clone)]
struct Seat {
    sender: SendRequest<Noted>,
    /// Held once by the connection, and once by each request that is under way.
    slot: Slot,
    /// Whether the upstream refused the connection after all.
    turned_away: Arc<AtomicBool>,
}

/// A request's place on a connection, until its answer is read or dropped.
pub(super) type Slot = Arc<()>;

impl Connections {
    pub(super) fn new(address: &config::Upstream, outward: &Outward) -> Self {
        let mut connector = HttpConnector::new();
        // Not HTTP/2's own pings: gRPC servers close a connection that sends more than one in five
        // minutes, and its requests with it.
        connector.set_keepalive(Some(PROBE_AFTER));
        connector.set_keepalive_interval(Some(PROBE_AFTER / 3));
        connector.set_keepalive_retries(Some(3));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(UNHEARD_MAX));
        let connector = outward.connector(connector, address);
        let connect_timeout = outward.connect_timeout;
        let address = Uri::builder()
            .scheme(address.scheme())
            .authority(address.authority.clone())
            .path_and_query("/")
            .build()
            .expect("an authority makes an address");
        let (open, connecting) = Default::default();
        Self { connector, address, connect_timeout, open, connecting }
    }

    pub(super) async fn forward(self: &Arc<Self>, request: Request<Outgoing>) -> Forwarded {
        let begun = Arc::new(AtomicBool::new(false));
        let mut request = request.map(|body| Noted { body, begun: begun.clone() });
        let mut tries = 0;
        loop {
            let Seat { mut sender, slot, turned_away } = match self.seat().await {
                Ok(found) => found,
                Err(error) => return Forwarded::NeverSent(error),
            };
            tries += 1;
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => {
                    return Forwarded::Answered(
                        response.map(|body| Answered::new(body, Some(slot))),
                    );
                }
                Err(error) => error,
            };
            match error.take_message() {
                // It was still in the queue when its connection closed.
                Some(unsent) if tries < TRIES => request = unsent,
                Some(_) => return Forwarded::NeverSent(error.into_error().into()),
                None if turned_away.load(Ordering::Relaxed) => {
                    return Forwarded::NeverSent(error.into_error().into());
                }
                None => return judged(error.into_error(), &begun),
            }
        }
    }

    /// A connection with room for a request more.
    async fn seat(self: &Arc<Self>) -> Result<Seat, BoxError> {
        if let Some(found) = self.with_room() {
            return Ok(found);
        }
        let this = self.clone();
        // On a task of its own, because others wait for the connection too: this request may have to wait
        // for its turn, and it ends when its client leaves.
        background::spawn(async move { this.connect().await }).await?
    }

    /// A connection with room, a new one if need be.
    async fn connect(&self) -> Result<Seat, BoxError> {
        let connecting = timeout(self.connect_timeout, self.connecting.lock());
        let _turn = connecting.await.map_err(|_| "others wait for a connection too")?;
        if let Some(found) = self.with_room() {
            return Ok(found);
        }
        let stream = match self.connector.clone().call(self.address.clone()).await {
            // Requests share the connections that there are.
            Err(error) if TooManyConnections::cause_of(&*error).is_some() => {
                return self.least_used(usize::MAX).ok_or(error);
            }
            connected => connected?,
        };
        let turned_away = stream.inner().turned_away();
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .max_header_list_size(HEAD_BYTES_MAX)
            .handshake(stream)
            .await?;
        background::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the upstream ended early");
            }
        });
        let seat = Seat { sender, slot: Slot::default(), turned_away };
        self.open.lock().push(Connection { seat: seat.clone(), used_at: Instant::now() });
        Ok(seat)
    }

    fn with_room(&self) -> Option<Seat> {
        let is_full = {
            let mut open = self.open.lock();
            open.retain(|connection| !connection.seat.sender.is_closed() && !connection.is_stale());
            open.len() >= CONNECTIONS_MAX
        };
        self.least_used(if is_full { usize::MAX } else { STREAMS_MAX })
    }

    /// The connection with the fewest requests, if those are less than `streams_max`.
    fn least_used(&self, streams_max: usize) -> Option<Seat> {
        let mut open = self.open.lock();
        let least = open.iter_mut().min_by_key(|connection| connection.under_way())?;
        if least.under_way() >= streams_max {
            return None;
        }
        least.used_at = Instant::now();
        Some(least.seat.clone())
    }
}

impl Connection {
    fn under_way(&self) -> usize {
        Arc::strong_count(&self.seat.slot) - 1
    }

    /// Whether it has been unused for so long that the upstream may be about to close it.
    fn is_stale(&self) -> bool {
        self.under_way() == 0 && self.used_at.elapsed() > POOL_IDLE
    }
}

/// How a forward ended whose body was `begun` or not.
fn judged(error: hyper::Error, begun: &AtomicBool) -> Forwarded {
    let never_began = match refusal(&error) {
        Some(Refusal::Stream) => true,
        // hyper reports a `GOAWAY` whatever the stream for a request that it is just about to send:
        // of such a one nothing is known. Its body is not begun by then.
        Some(Refusal::GoAway) => begun.load(Ordering::Relaxed),
        None => false,
    };
    match never_began {
        true => Forwarded::NeverSent(error.into()),
        false => Forwarded::AnswerLost(error.into()),
    }
}

/// How an upstream says that it did not begin a request and never will (RFC 9113, 8.7).
enum Refusal {
    /// By refusing its stream.
    Stream,
    /// By going away, with an earlier stream as its last.
    GoAway,
}

fn refusal(error: &hyper::Error) -> Option<Refusal> {
    let mut cause = error.source();
    let error = loop {
        match cause?.downcast_ref::<h2::Error>() {
            Some(error) => break error,
            None => cause = cause?.source(),
        }
    };
    match error.reason() {
        _ if !error.is_remote() => None,
        _ if error.is_go_away() => Some(Refusal::GoAway),
        Some(h2::Reason::REFUSED_STREAM) if error.is_reset() => Some(Refusal::Stream),
        _ => None,
    }
}

/// A body that notes whether it was begun.
struct Noted {
    body: Outgoing,
    begun: Arc<AtomicBool>,
}

impl Body for Noted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.begun.store(true, Ordering::Relaxed);
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::config::Protocol;
    use crate::upstream::ConnectionLimits;

    #[tokio::test]
    async fn a_request_that_waits_for_its_turn_does_not_keep_others_from_connecting() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let authority = listener.local_addr().expect("bound").to_string();
        let authority = authority.parse().expect("a host and a port");
        let address =
            config::Upstream { protocol: Protocol::Http2, is_encrypted: false, authority };
        let (failures, connections) = (Arc::default(), ConnectionLimits::new(10));
        let connect_timeout = Duration::from_secs(5);
        let outward = Outward { connect_timeout, failures, connections, tls: None };
        let connections = Arc::new(Connections::new(&address, &outward));

        // Begins to connect, and is not polled any more.
        let mut first = Box::pin(connections.seat());
        tokio::select! {
            biased;
            _ = &mut first => unreachable!("a connection takes a while"),
            () = ready(()) => {}
        }
        assert!(connections.seat().await.is_ok());
        assert_eq!(connections.open.lock().len(), 1, "they share it");
        assert!(first.await.is_ok());
    }
}
