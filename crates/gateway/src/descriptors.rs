//! [`Descriptors`]: the process's file descriptors, and how many connections fit into them.
//!
//! A process without a free descriptor can neither accept a connection nor open a file of its store. So
//! clients and upstreams get what is left after a reserve, and never more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Limits;

/// Descriptors kept for the store, the runtimes, log files and name resolution.
const RESERVE: usize = 128;
/// Connections of one internal listener, unless descriptors are few.
const INTERNAL_CONNECTIONS_MAX: usize = 256;
/// Internal listeners: admin and checkpoints.
const INTERNAL_LISTENERS: usize = 2;

/// The limit on file descriptors, after it was raised as far as the system allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptors {
    max: usize,
}

impl Descriptors {
    /// Raises the soft limit to the hard one.
    pub(crate) fn raise() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: maximum, maximum };
        let in_force = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => maximum,
            Err(error) => {
                tracing::debug!(%error, "the limit on file descriptors stays as it was");
                current
            }
        };
        let max = in_force.and_then(|max| usize::try_from(max).ok()).unwrap_or(usize::MAX);
        Self { max }
    }

    /// Connections that an internal listener may have at once.
    pub(crate) fn internal_connections_max(self) -> usize {
        (self.max / 16).clamp(1, INTERNAL_CONNECTIONS_MAX)
    }

    /// `limits`, with as many clients and requests as fit. A request under way may need a connection to
    /// its upstream, and a tunnel, which counts as a request, has one.
    pub(crate) fn fit(self, limits: Limits) -> Limits {
        let left = self.max.saturating_sub(self.reserve());
        // Most clients of most services are idle, so they get more of what is too little for both.
        let for_requests = (left / 3).max(left.saturating_sub(limits.connections_max)).max(1);
        let requests_max = limits.requests_max.min(for_requests);
        let for_clients = left.saturating_sub(requests_max).max(1);
        let connections_max = limits.connections_max.min(for_clients);
        match limits.connections_max.saturating_add(limits.requests_max) <= left {
            true => limits,
            false => Limits {
                connections_max,
                requests_max,
                max_connections_per_address: share(
                    limits.max_connections_per_address,
                    (limits.connections_max, connections_max),
                    Limits::connections_share,
                ),
                max_requests_per_address: share(
                    limits.max_requests_per_address,
                    (limits.requests_max, requests_max),
                    Limits::requests_share,
                ),
                max_abandoned_requests: share(
                    limits.max_abandoned_requests,
                    (limits.requests_max, requests_max),
                    Limits::requests_share,
                ),
                ..limits
            },
        }
    }

    /// Warns where `limits` do not fit.
    pub(crate) fn warn_unless_fit(self, limits: Limits) {
        let fitting = self.fit(limits);
        if fitting == limits {
            return;
        }
        let needed = limits.connections_max + limits.requests_max + self.reserve();
        tracing::warn!(
            descriptors = self.max,
            needed,
            max_connections = fitting.connections_max,
            max_requests = fitting.requests_max,
            "there are too few file descriptors for limits.max_connections and limits.max_requests, so lower \
             limits count; raise the hard limit (ulimit -Hn, or LimitNOFILE= of a systemd unit), or \
             lower both settings"
        );
    }

    fn reserve(self) -> usize {
        let internal = INTERNAL_LISTENERS * self.internal_connections_max();
        internal + RESERVE.min(self.max / 2)
    }
}

/// A share of the first number, for the second one: a default follows the whole, and a number that was set
/// stays. The whole limits it anyway.
fn share(share: usize, (before, after): (usize, usize), default: fn(usize) -> usize) -> usize {
    match share == default(before) {
        true => default(after),
        false => share,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(max: usize, connections_max: usize, requests_max: usize) -> (usize, usize) {
        let limits = Limits { connections_max, requests_max, ..Limits::default() };
        let fitting = Descriptors { max }.fit(limits);
        (fitting.connections_max, fitting.requests_max)
    }

    #[test]
    fn limits_that_fit_stay_as_they_are() {
        assert_eq!(fitted(1_048_576, 20_000, 10_000), (20_000, 10_000));
        assert_eq!(fitted(usize::MAX, 1_000_000, 1_000_000), (1_000_000, 1_000_000));
        assert_eq!(fitted(1024, 600, 100), (600, 100));
    }

    #[test]
    fn clients_and_requests_share_what_the_reserve_leaves() {
        assert_eq!(fitted(1024, 20_000, 10_000), (512, 256));
        assert_eq!(fitted(1024, 20_000, 100), (668, 100));
        assert_eq!(fitted(1024, 10, 10_000), (10, 758));
        assert_eq!(fitted(64, 20_000, 10_000), (16, 8));
        assert_eq!(fitted(1, 20_000, 10_000), (1, 1));
    }

    #[test]
    fn shares_of_one_address_shrink_with_the_whole() {
        let fitting = Descriptors { max: 1024 }.fit(Limits::default());
        let shares = (fitting.max_connections_per_address, fitting.max_requests_per_address);
        assert_eq!((shares, fitting.max_abandoned_requests), ((256, 64), 64));
        // Numbers that were set are not defaults.
        let set = Limits {
            max_connections_per_address: 20_000,
            max_requests_per_address: 2,
            ..Limits::default()
        };
        let fitting = Descriptors { max: 1024 }.fit(set);
        assert_eq!(fitting.max_connections_per_address, 20_000);
        assert_eq!(fitting.max_requests_per_address, 2);
    }

    #[test]
    fn internal_listeners_have_fewer_connections_where_descriptors_are_few() {
        let of = |max| Descriptors { max }.internal_connections_max();
        assert_eq!([of(1), of(64), of(1024), of(65_536)], [1, 4, 64, 256]);
    }
}
