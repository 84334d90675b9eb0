//! [`ConnectionLimits`]: a limit on the connections to one upstream, for all threads together.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::uri::Authority;
use parking_lot::Mutex;

/// Limits the connections to each upstream. Another configuration changes the limit and keeps the counts.
pub(crate) struct ConnectionLimits {
    max: AtomicUsize,
    open: Mutex<HashMap<Authority, Arc<AtomicUsize>>>,
}

impl ConnectionLimits {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: AtomicUsize::new(max), open: Mutex::default() })
    }

    /// Applies another limit to whatever is opened from now on.
    pub(crate) fn set(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// The limit on connections to one upstream.
    pub(crate) fn of(self: &Arc<Self>, authority: &Authority) -> ConnectionLimit {
        let open = self.open.lock().entry(authority.clone()).or_default().clone();
        ConnectionLimit { limits: self.clone(), open }
    }
}

/// Limits the connections to one upstream.
#[derive(Clone)]
pub(crate) struct ConnectionLimit {
    limits: Arc<ConnectionLimits>,
    open: Arc<AtomicUsize>,
}

impl ConnectionLimit {
    /// Counts a connection that is about to be made, unless there are as many as there may be.
    pub(super) fn acquire(&self) -> Result<ConnectionPermit, TooManyConnections> {
        let permit = ConnectionPermit(self.open.clone());
        let max = self.limits.max.load(Ordering::Relaxed);
        match permit.0.fetch_add(1, Ordering::Relaxed) < max {
            true => Ok(permit),
            false => Err(TooManyConnections { max }),
        }
    }
}

/// Counts a connection until it is dropped.
pub(crate) struct ConnectionPermit(Arc<AtomicUsize>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection was not made because there are too many.
#[derive(Debug, Clone, Copy)]
pub(super) struct TooManyConnections {
    pub(super) max: usize,
}

impl TooManyConnections {
    /// Finds out whether this is why a request was not sent.
    pub(super) fn cause_of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref() {
                return Some(*found);
            }
            cause = error.source();
        }
        None
    }
}

impl fmt::Display for TooManyConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there are {} connections to the upstream already", self.max)
    }
}

impl Error for TooManyConnections {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_upstream_has_a_limit_that_is_shared_and_may_change() {
        let limits = ConnectionLimits::new(2);
        let (api, auth) = (Authority::from_static("api:80"), Authority::from_static("auth:80"));
        let (one, other) = (limits.of(&api), limits.of(&api));
        let open = [one.acquire(), other.acquire()].map(|permit| permit.expect("a permit"));
        let refused = one.acquire().err().expect("refused");
        assert_eq!(TooManyConnections::cause_of(&refused).map(|refused| refused.max), Some(2));
        assert!(limits.of(&auth).acquire().is_ok());
        limits.set(3);
        assert!(other.acquire().is_ok());
        drop(open);
        assert_eq!(one.open.load(Ordering::Relaxed), 0);
    }
}
