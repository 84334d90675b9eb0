//! Failures of the upstream: what the client is told of them, and what the log says.

use bytes::Bytes;
use http::{Method, Response, Uri};
use http_body_util::{Either, Full};
use selfsame::{Dialect, LogThrottle, Outcome, Problem, ProblemDetails};
use selfsame_core::RecordId;

use super::connection_limit::TooManyConnections;
use super::{Upstream, UpstreamBody};
use crate::room::Seldom;
use crate::telemetry;

/// Failures to reach the upstream, and answers of it that were lost.
#[derive(Default)]
pub(super) struct Failures {
    unreached: LogThrottle,
    lost: LogThrottle,
    full: Seldom,
}

/// The request that a failure is about, for the log.
pub(super) struct About {
    pub(super) record: Option<RecordId>,
    pub(super) method: Method,
    pub(super) uri: Uri,
}

impl Upstream {
    pub(super) fn unreachable(
        &self,
        error: &dyn std::error::Error,
        about: About,
        dialect: &Dialect,
    ) -> Response<UpstreamBody> {
        let detail = "the service did not take the request, so it was not carried out; try again";
        let details = ProblemDetails::new(Problem::UpstreamUnreachable, detail);
        let failed = self.failures.unreached.failed();
        self.log(failed, error, about, &details, "the upstream cannot be reached");
        stand_in(dialect.response(&details), Outcome::NeverRan)
    }

    /// The response to a request that was not sent because there are too many connections.
    pub(super) fn overloaded(
        &self,
        reached: TooManyConnections,
        dialect: &Dialect,
    ) -> Response<UpstreamBody> {
        telemetry::shed("max_upstream_connections");
        if self.failures.full.is_due() {
            let (upstream, route, max) = (&self.address.authority, &*self.route, reached.max);
            tracing::warn!(
                %upstream, route, max, setting = "max_upstream_connections",
                "there are too many connections to the upstream: requests are refused"
            );
        }
        let detail =
            "too many requests are on their way to the service; this one was not sent, try again";
        let details = ProblemDetails::new(Problem::Overloaded, detail);
        stand_in(dialect.response(&details), Outcome::NeverRan)
    }

    pub(super) fn answer_lost(
        &self,
        error: &dyn std::error::Error,
        about: About,
        dialect: &Dialect,
    ) -> Response<UpstreamBody> {
        let detail = "the request was sent and its answer was lost, so it may have been carried out; \
                      without a key it cannot safely be sent again";
        let details = ProblemDetails::new(Problem::UpstreamFailed { held: true }, detail);
        let failed = self.failures.lost.failed();
        self.log(failed, error, about, &details, "the upstream's answer was lost");
        stand_in(dialect.response(&details), Outcome::AnswerLost)
    }

    /// Logs a failure: as a warning if it is `due`, with the number of those that were not.
    fn log(
        &self,
        due: Option<u64>,
        error: &dyn std::error::Error,
        About { record, method, uri }: About,
        details: &ProblemDetails,
        what: &'static str,
    ) {
        let (error, upstream) = (chain(error), &self.address.authority);
        let (route, method, path) = (&*self.route, method.as_str(), uri.path());
        let (record, instance) = (record.map(|id| id.short()), &*details.instance);
        match due {
            Some(unlogged) => tracing::warn!(
                error, %upstream, route, record, method, path, instance, unlogged, "{what}"
            ),
            None => {
                tracing::debug!(error, %upstream, route, record, method, path, instance, "{what}");
            }
        }
    }

    /// Logs that it answers again.
    pub(super) fn is_back(&self) {
        if let Some(failures) = self.failures.unreached.worked() {
            let upstream = &self.address.authority;
            tracing::info!(%upstream, failures, "the upstream can be reached again");
        }
        if let Some(failures) = self.failures.lost.worked() {
            let upstream = &self.address.authority;
            tracing::info!(%upstream, failures, "the upstream answers again");
        }
    }
}

fn stand_in(mut response: Response<Bytes>, outcome: Outcome) -> Response<UpstreamBody> {
    response.extensions_mut().insert(outcome);
    response.map(|body| Either::Right(Full::new(body)))
}

/// An error with its causes: the outer one alone often says only "client error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
