//! [`Invitation`]: what an upstream is told, so that it can save how far a run has come.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use selfsame::Run;
use selfsame_core::headers::{
    SELFSAME_CHECKPOINT_URL, SELFSAME_CLAIM, SELFSAME_DERIVED_KEY, SELFSAME_RECOVERY_POINT,
};

use super::api;
use super::claims::Claims;
use crate::config::RouteSettings;

/// How much longer than its run a claim can be shown: clocks of nodes differ.
const SLACK: Duration = Duration::from_secs(5 * 60);
/// No phase of a run has this name, so that its key is none of theirs.
const WHOLE_RUN: &str = "";

/// What an upstream is told of each run.
#[derive(Clone)]
pub(crate) struct Invitation {
    claims: Arc<Claims>,
    url: Arc<str>,
    life: Duration,
}

impl Invitation {
    /// To save under `url`.
    pub(super) fn new(claims: Arc<Claims>, url: &str) -> Self {
        Self { claims, url: format!("{url}{}", api::PATH).into(), life: SLACK }
    }

    /// The same for runs that may take as long as these settings say.
    pub(crate) fn for_runs_of(&self, settings: &RouteSettings) -> Self {
        Self { life: settings.run_timeout.saturating_add(SLACK), ..self.clone() }
    }

    /// Adds what is to be known of `run`.
    pub(crate) fn write(&self, run: &Run, headers: &mut HeaderMap) {
        let claim = self.claims.write(run.lease(), self.life);
        let derived_key = run.derived_key(WHOLE_RUN);
        let mut tell = |name: HeaderName, value: &str| {
            let value = HeaderValue::from_str(value);
            headers.insert(name, value.expect("a URL, a UUID, base64 and a name are ASCII"));
        };
        tell(SELFSAME_CHECKPOINT_URL, &format!("{}/{claim}", self.url));
        tell(SELFSAME_CLAIM, &claim);
        tell(SELFSAME_DERIVED_KEY, derived_key.as_str());
        // One that was saved by other means may have a name that no header takes.
        if let Some(point) = run.recovery_point().filter(|point| api::is_name(point)) {
            tell(SELFSAME_RECOVERY_POINT, point);
        }
    }
}
