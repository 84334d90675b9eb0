//! [`Abandoned`]: a request that was left without an outcome, run again without its client.
//!
//! It goes the way of every request, with the identity of its record in place of a credential's. The
//! claim decides who runs: any number of nodes may try, and its client may come back at any moment.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};
use http_body::Body;
use selfsame_core::{
    Ask, AttemptId, KeptRequest, Record, RecordId, Release, State, StoreError, Timestamp, wire,
};
use tower_service::Service;

use crate::Idempotency;
use crate::body::{BoxError, RequestBody};
use crate::delivery::Reply;
use crate::engine::{Engine, Seen};
use crate::outcome::Served;
use crate::policy::Policy;
use crate::seal::Kind;
use crate::service::{IdempotencyService, Work};
use crate::steps::{self, Apart, Asked, ClaimContext, Settled};

/// The longest pause between two runs, unless the first is longer.
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

/// How a route's abandoned requests are driven to an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completing {
    /// How long after a request was abandoned it is run again. Each run doubles that, up to an hour.
    pub after: Duration,
    /// How many runs more there may be before a person decides. Those that clients ask for count.
    pub attempts: u32,
    /// The headers that are kept of a request besides those without which it would be another.
    pub headers: Vec<HeaderName>,
}

impl Default for Completing {
    fn default() -> Self {
        Self { after: Duration::from_secs(5 * 60), attempts: 5, headers: Vec::new() }
    }
}

impl Completing {
    /// How long `record` is left alone. Spread by its id, so that what was abandoned in one moment
    /// does not come back in one.
    fn pause(&self, record: &Record) -> Duration {
        let doublings = record.attempt.saturating_sub(1).min(20);
        let pause = self.after.saturating_mul(1 << doublings).min(PAUSE_MAX.max(self.after));
        let at = record.attempt as usize % RecordId::LEN;
        pause.saturating_add(pause / 1024 * u32::from(record.id.as_bytes()[at]))
    }
}

/// A request that was left without an outcome.
#[derive(Debug)]
pub struct Abandoned {
    record: Record,
    request: KeptRequest,
    now: Timestamp,
}

/// What became of an abandoned request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Nothing: its time has not come, or it is not to be run.
    Left,
    /// It has an answer now.
    Completed,
    /// It has none, and may be tried again.
    Unfinished,
    /// A person decides now.
    Held,
}

impl Idempotency {
    /// The request that the record `id` keeps, if it was left without an outcome.
    ///
    /// # Errors
    /// The store's; among them, that the request cannot be opened.
    pub async fn abandoned(&self, id: &RecordId) -> Result<Option<Abandoned>, StoreError> {
        let engine = self.engine();
        let now = engine.people.now().await?;
        let found = engine.store.get(id).await?.filter(|record| record.is_abandoned(now));
        let Some(record) = found else { return Ok(None) };
        let Some(sealed) = record.kept_request() else { return Ok(None) };
        let opened = engine.seal.open(id, Kind::Request, sealed)?;
        let request = wire::decode_request(&opened)?;
        Ok(Some(Abandoned { record: record.without_request(), request, now }))
    }
}

impl Abandoned {
    /// The request without its body, to find out which route takes it.
    pub fn head(&self) -> Option<Request<()>> {
        let KeptRequest { method, target, headers, .. } = &self.request;
        let mut request = Request::builder().method(method).uri(target).body(()).ok()?;
        *request.headers_mut() = headers.clone();
        Some(request)
    }

    /// Whether it waits for a person, unless the service can be asked.
    pub fn is_held(&self) -> bool {
        self.record.is_held(self.now)
    }

    /// Whether it may be run, or asked about, now.
    fn is_due(&self, completing: &Completing, policy: &Policy) -> bool {
        let is_allowed = !self.is_held() || policy.probe.is_some();
        let left_at = self.record.left_at().unwrap_or(self.now);
        is_allowed && self.now >= left_at + completing.pause(&self.record)
    }

    fn ask(&self, policy: &Policy) -> Ask {
        Ask {
            id: self.record.id,
            fingerprint: self.record.fingerprint,
            attempt_id: AttemptId::random(),
            lease: policy.lease,
            retention: policy.retention,
            remember: policy.remember,
            recover: policy.recover,
            label: self.record.label.clone(),
            keepsake: None,
        }
    }
}

impl<S> IdempotencyService<S> {
    /// Runs an abandoned request of this route, if it is time; or, after too many runs, leaves it to a
    /// person. What is begun ends even if nobody waits here.
    pub async fn see_to<B, R>(&self, abandoned: Abandoned) -> Ending
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Send,
        B: Body<Data = Bytes> + Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let (engine, policy) = (&self.route.engine, &self.route.policy);
        let due = policy.completing.as_ref().filter(|how| abandoned.is_due(how, policy));
        let (Some(completing), Some(head)) = (due, abandoned.head()) else { return Ending::Left };
        let mut ask = abandoned.ask(policy);
        if abandoned.record.attempt > completing.attempts {
            return match abandoned.record.state {
                State::Held { .. } => Ending::Left,
                _ => hold(engine, &mut ask, policy).await,
            };
        }
        let dialect = policy.dialect.to_sender_of(head.headers());
        let (parts, ()) = head.into_parts();
        let body = RequestBody::<B>::whole(abandoned.request.body, HeaderMap::new());
        let request = Apart { parts: Box::new(parts), body };
        let id = ask.id;
        let asked = Asked { ask, request, preferred_wait: None, is_shared: true };
        let (inner, route) = (self.inner.clone(), self.route.clone());
        let work = Work { inner, asked, route, dialect, is_abandoned: true };
        let reply = match engine.see_through(work.begin()).await {
            Seen::Done(reply) => Some(reply),
            // A run that came to grief is ended by its lease.
            Seen::Going(reply) => reply.await.ok(),
        };
        became(engine, &id, reply.is_none_or(|reply| has_run(&reply))).await
    }
}

/// What a record is after a run, or after one that was not granted.
async fn became(engine: &Engine, id: &RecordId, has_run: bool) -> Ending {
    match engine.store.get(id).await.map(|record| record.map(|record| record.state)) {
        Ok(Some(State::Completed { .. } | State::Tombstone)) => Ending::Completed,
        _ if !has_run => Ending::Left,
        Ok(Some(State::Held { .. })) => Ending::Held,
        Ok(Some(State::Claimed { .. } | State::Failed) | None) | Err(_) => Ending::Unfinished,
    }
}

fn has_run<R, E>(reply: &Reply<R, E>) -> bool {
    match reply {
        Reply::Response(response) => matches!(
            response.extensions().get(),
            Some(Served::Executed | Served::Resumed | Served::Unreachable)
        ),
        Reply::Error(_) | Reply::Panic(_) => true,
    }
}

async fn hold(engine: &Engine, ask: &mut Ask, policy: &Policy) -> Ending {
    let context = ClaimContext { engine, policy, new_keys: None };
    let Settled::Run(claim, _) = steps::claim(context, ask).await else {
        return Ending::Left;
    };
    let held = claim.start().release(Release::Hold).await;
    engine.waiters.wake(&ask.id);
    match held {
        Ok(_) => {
            engine.warn_if_held(&ask.id, "it was tried too often").await;
            Ending::Held
        }
        Err(error) => {
            tracing::warn!(%error, record = ask.id.short(), "an abandoned key was not held yet");
            Ending::Left
        }
    }
}
