//! [`NewKeyAllowance`]: limits the new keys of a request's client.

use std::fmt;
use std::sync::Arc;

use crate::policy::Mode;

/// Limit of the new keys that one client may begin. A new key is one that the store does not know.
///
/// Requests of routes that only observe are counted apart: they take nothing from others, and are
/// not refused.
pub trait NewKeyLimit: Send + Sync {
    /// Tells if the client may begin a new key now. Counts nothing: the key may be known.
    fn has_room(&self, mode: Mode) -> bool;

    /// Counts a new key.
    fn count(&self, mode: Mode);

    /// Notes that a request is refused because its key is new, and returns the problem's detail.
    fn refuse(&self, mode: Mode) -> &'static str;
}

/// The limit of new keys for the client of one request. Put it into the request's extensions;
/// without it, new keys are not limited.
///
/// Requests whose keys are known are never refused by it. A request asks before its claim and
/// counts after it, so that requests at the same moment can exceed the limit a little.
#[derive(Clone)]
pub struct NewKeyAllowance(Arc<dyn NewKeyLimit>);

impl NewKeyAllowance {
    /// An allowance that `limit` decides.
    pub fn new(limit: Arc<dyn NewKeyLimit>) -> Self {
        Self(limit)
    }

    pub(crate) fn has_room(&self, mode: Mode) -> bool {
        self.0.has_room(mode)
    }

    pub(crate) fn count(&self, mode: Mode) {
        self.0.count(mode);
    }

    pub(crate) fn refuse(&self, mode: Mode) -> &'static str {
        self.0.refuse(mode)
    }
}

impl fmt::Debug for NewKeyAllowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKeyAllowance").finish_non_exhaustive()
    }
}
