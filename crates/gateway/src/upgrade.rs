//! Connections that leave HTTP, such as those of WebSockets: their bytes are passed on both ways, and
//! nobody looks at them any more.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use selfsame::Run;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::address_limit::ConnectionPermit;
use crate::background;
use crate::fair_share::FairShare;
use crate::pace::{self, Listener};
use crate::request_head::nominations;
use crate::room::Seat;
use crate::tunnel::{self, TunnelEnd};

/// Those that have left HTTP and are still open; one of it is held by each.
#[derive(Clone)]
struct Place {
    open: TaskTracker,
    permit: Option<Arc<ConnectionPermit>>,
    share: Arc<FairShare>,
    idle_timeout: Duration,
}

/// A client's wish to go on in another protocol.
pub(crate) struct Wish {
    client: OnUpgrade,
    protocol: HeaderValue,
    place: TaskTrackerToken,
    permit: Option<Arc<ConnectionPermit>>,
    share: Arc<FairShare>,
    idle_timeout: Duration,
}

/// A tunnel's place among the requests, found in the extensions of a response that begins one.
///
/// A tunnel has a connection to its upstream, as a request has, so it counts as one until it ends.
#[derive(Clone, Default)]
pub(crate) struct TunnelSeat(Arc<OnceLock<Seat>>);

impl TunnelSeat {
    /// Gives the tunnel the seat of its request.
    pub(crate) fn set(&self, seat: Seat) {
        let is_set = self.0.set(seat).is_ok();
        debug_assert!(is_set, "a request has one seat");
    }
}

/// Notes where a connection counts, should `request` take it out of HTTP.
pub(crate) fn expect<B>(
    request: &mut Request<B>,
    open: &TaskTracker,
    permit: Option<&Arc<ConnectionPermit>>,
    share: &Arc<FairShare>,
    idle_timeout: Duration,
) {
    if request.extensions().get::<OnUpgrade>().is_some() {
        let (open, permit, share) = (open.clone(), permit.cloned(), share.clone());
        let place = Place { open, permit, share, idle_timeout };
        request.extensions_mut().insert(place);
    }
}

impl Wish {
    /// The wish of a request that only passes. Work that is claimed ends with an answer.
    pub(crate) fn of(parts: &mut Parts) -> Option<Self> {
        let client = parts.extensions.remove::<OnUpgrade>()?;
        let Place { open, permit, share, idle_timeout } = parts.extensions.remove()?;
        if parts.version != Version::HTTP_11 || parts.extensions.get::<Run>().is_some() {
            return None;
        }
        let mut protocols = parts.headers.get_all(UPGRADE).iter();
        let protocol = protocols.next().filter(|protocol| !is_http(protocol))?.clone();
        if protocols.next().is_some() || !is_nominated(&parts.headers) {
            return None;
        }
        Some(Self { client, protocol, place: open.token(), permit, share, idle_timeout })
    }

    /// Tells the upstream.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.protocol.clone());
    }

    /// Lets both ends talk, once the client has got this answer.
    pub(crate) fn fulfil<B>(self, response: &mut Response<B>) {
        let Some(server) = response.extensions_mut().remove::<OnUpgrade>() else { return };
        let Self { client, place, permit, share, idle_timeout, .. } = self;
        let busy_time = permit.as_ref().map(|permit| permit.busy_time().clone());
        let seat = TunnelSeat::default();
        response.extensions_mut().insert(seat.clone());
        let passing = async move {
            match tokio::try_join!(client, server) {
                Ok((client, server)) => {
                    let (client, server) = (TokioIo::new(client), TokioIo::new(server));
                    match tunnel::splice(client, server, idle_timeout).await {
                        TunnelEnd::Idle => pace::cut(Listener::Public, "tunnel_idle"),
                        TunnelEnd::Closed(ended) => {
                            let error = ended.err().map(tracing::field::display);
                            tracing::debug!(error, "a connection that had left HTTP ended");
                        }
                    }
                }
                Err(error) => tracing::debug!(%error, "a connection did not leave HTTP"),
            }
            drop((place, permit, seat));
        };
        // One that passes as much as it can would keep the worker from all others.
        background::spawn(share.schedule(busy_time, passing));
    }
}

/// Tells if `Connection` lists `Upgrade`. Where it does not, a proxy in front may have passed on the wish of one of
/// its clients, and would not know that the connection has left HTTP.
fn is_nominated(headers: &HeaderMap) -> bool {
    nominations(headers).any(|name| name.eq_ignore_ascii_case(b"upgrade"))
}

/// Whether another HTTP, or HTTP over TLS, is among the wishes: requests within would pass us by, with
/// their keys.
fn is_http(protocols: &HeaderValue) -> bool {
    let mut names = protocols.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    names.any(|name| {
        let name = name.to_ascii_lowercase();
        [&b"h2"[..], b"h3", b"http", b"tls"].iter().any(|http| name.starts_with(http))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_http_is_passed_on() {
        for name in ["websocket", "WebSocket", "my-protocol/2", "IRC/6.9"] {
            assert!(!is_http(&HeaderValue::from_static(name)), "{name}");
        }
        for name in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.0", "TLS/1.0, HTTP/1.1"] {
            assert!(is_http(&HeaderValue::from_static(name)), "{name}");
        }
    }
}
