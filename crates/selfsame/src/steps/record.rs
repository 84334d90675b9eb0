//! Step 6: the outcome is durable before the first byte of the answer goes out.

use std::any::Any;
use std::future::Future;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Either;
use http::response::Parts;
use http::{HeaderMap, Response};
use http_body::Body;
use selfsame_core::headers::IDEMPOTENCY_EXPIRES;
use selfsame_core::{
    Answer, AnswerBody, Claim, Fenced, Grant, RecordId, Recorded, Release, Replay, Sent, Started,
    State,
};
use tokio::time::Instant;

use super::replay::{answer_to_keep, of_the_moment, replay};
use super::run::Ran;
use crate::body::{BoxError, ResponseBody};
use crate::buffer_limit::{BufferAllowance, HeldBytes, hold};
use crate::collect::{Collected, collect};
use crate::delivery::{Delivery, Pumping};
use crate::dialect::Dialect;
use crate::engine::Engine;
use crate::expires;
use crate::outcome::{Outcome, Served};
use crate::policy::{Policy, ServerErrors, Work};
use crate::reject::{self, Refusal};
use crate::run::Run;
use crate::telemetry;
use crate::timing::RanFor;

/// Writes a run's end into the store, whatever the store makes of it.
pub(crate) struct Recorder<'a> {
    run: &'a Run,
    engine: &'a Engine,
    policy: &'a Policy,
    dialect: &'a Dialect,
    is_abandoned: bool,
    /// Counts the bytes of the response.
    allowance: Option<&'a BufferAllowance>,
}

/// When a claim ends that has no answer to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freed {
    /// It has ended.
    Now,
    /// Once the store takes the release.
    Later,
}

/// An answer, by what it means for its key.
enum Sorted<R> {
    /// It is kept.
    Final(Response<R>),
    /// Its status comes after its body.
    ByTrailers(Response<R>),
    /// It is passed on, and its key released.
    Released(Response<R>, Outcome, Release),
}

impl<'a> Recorder<'a> {
    /// `is_abandoned` tells that the work is done without its client, who will not ask again.
    pub(crate) fn new(
        run: &'a Run,
        (engine, policy, dialect): (&'a Engine, &'a Policy, &'a Dialect),
        is_abandoned: bool,
    ) -> Self {
        Self { run, engine, policy, dialect, is_abandoned, allowance: None }
    }

    /// Counts the response for a client with this allowance.
    pub(crate) fn within(self, allowance: Option<&'a BufferAllowance>) -> Self {
        Self { allowance, ..self }
    }
}

impl Recorder<'_> {
    /// Records how the run ended, and gives what its client shall read. Boxed is what most runs do not
    /// come to: they would hold room for it.
    pub(crate) fn record<R, E>(
        &self,
        ran: Ran<R, E>,
        deadline: Instant,
    ) -> impl Future<Output = Delivery<R, E>>
    where
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
        E: Send + 'static,
    {
        let is_plain = self.run.finished().is_none() && !self.run.is_lost();
        match ran {
            Ran::Answered(response, ran_for) if is_plain => match self.sort(response, ran_for) {
                Sorted::Final(response) => Either::Left(self.keep_whole(response, deadline)),
                other => Either::Right(self.sorted(other, deadline).boxed()),
            },
            ran => Either::Right(self.ended(ran, deadline).boxed()),
        }
    }

    async fn ended<R, E>(&self, ran: Ran<R, E>, deadline: Instant) -> Delivery<R, E>
    where
        R: Body<Data = Bytes> + Send,
        R::Error: Into<BoxError>,
        E: Send,
    {
        if let Some(finished) = self.run.finished() {
            return self.committed(ran, finished);
        }
        match ran {
            Ran::Answered(response, ran_for) => {
                if self.run.is_lost()
                    && let Some(told) = self.told_by_the_other_run().await
                {
                    return Delivery::of(told);
                }
                self.sorted(self.sort(response, ran_for), deadline).await
            }
            Ran::Errored(error) => {
                self.release(unknown(self.policy)).await;
                Delivery::error(error)
            }
            Ran::Panicked(payload) => self.panicked(payload).await,
            Ran::TimedOut => self.answer_lost().await,
        }
    }

    /// Gives the answer that the handler has committed with its own rows, whatever became of its
    /// response since. What is not replayed comes from that response.
    fn committed<R, E>(&self, ran: Ran<R, E>, finished: &Replay) -> Delivery<R, E> {
        let Replay { answer, expires_at } = finished.clone();
        let AnswerBody::Kept(body) = answer.body else {
            unreachable!("an answer that is not kept is not committed by a handler")
        };
        let body = hold(self.allowance, body);
        let mut response = Response::new(ResponseBody::whole(body, answer.trailers));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        if let Ran::Answered(returned, ran_for) = ran {
            of_the_moment(returned.headers(), response.headers_mut(), self.policy);
            response.extensions_mut().insert(ran_for);
        }
        expires::say(expires_at, response.headers_mut(), self.policy);
        response.extensions_mut().insert(Served::by_attempt(self.claim().grant().attempt));
        Delivery::of(response)
    }

    /// What an answer means for its key.
    fn sort<R>(&self, mut response: Response<R>, ran_for: RanFor) -> Sorted<R> {
        response.extensions_mut().insert(Served::by_attempt(self.claim().grant().attempt));
        response.extensions_mut().insert(ran_for);
        let protocol = self.dialect.protocol();
        let outcome = Outcome::told_by(&mut response, protocol, &self.policy.statuses);
        if self.policy.expires_header {
            // The handler's own is about a key of its own.
            response.headers_mut().remove(IDEMPOTENCY_EXPIRES);
        }
        let Some(outcome) = outcome else { return Sorted::ByTrailers(response) };
        match release_after(outcome, self.policy) {
            None => Sorted::Final(response),
            Some(release) => Sorted::Released(response, outcome, release),
        }
    }

    async fn sorted<R, E>(&self, sorted: Sorted<R>, deadline: Instant) -> Delivery<R, E>
    where
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        match sorted {
            Sorted::Final(response) => self.keep_whole(response, deadline).await,
            Sorted::ByTrailers(response) => self.told_by_trailers(response, deadline).await,
            Sorted::Released(_, Outcome::AnswerLost, _) => self.answer_lost().await,
            Sorted::Released(mut response, outcome, release) => {
                if outcome == Outcome::NeverRan {
                    response.extensions_mut().insert(Served::Unreachable);
                }
                self.release(release).await;
                Delivery::of(response.map(ResponseBody::streamed))
            }
        }
    }

    async fn told_by_trailers<R, E>(
        &self,
        response: Response<R>,
        deadline: Instant,
    ) -> Delivery<R, E>
    where
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        let (parts, body) = response.into_parts();
        let (data, trailers, held) = match self.collect(&parts, body, deadline).await {
            Collected::Whole { data, trailers, held } => (data, trailers, held),
            // Too long to be held back until its status is known.
            other => return self.keep(parts, other, deadline).await,
        };
        let outcome = Outcome::told_by_trailers(&trailers);
        let Some(release) = release_after(outcome, self.policy) else {
            let collected = Collected::Whole { data, trailers, held };
            return self.keep(parts, collected, deadline).await;
        };
        if outcome == Outcome::AnswerLost {
            return self.answer_lost().await;
        }
        self.release(release).await;
        let body = ResponseBody::whole(held.guard(data), trailers);
        Delivery::of(Response::from_parts(parts, body))
    }

    /// Keeps an answer whose body is still to come.
    fn keep_whole<R, E>(
        &self,
        response: Response<R>,
        deadline: Instant,
    ) -> impl Future<Output = Delivery<R, E>>
    where
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        let (parts, body) = response.into_parts();
        async move {
            let collected = self.collect(&parts, body, deadline).await;
            self.keep(parts, collected, deadline).await
        }
    }

    /// The answer's body; of a stream, nothing yet.
    async fn collect<R>(&self, parts: &Parts, body: R, deadline: Instant) -> Collected<R>
    where
        R: Body<Data = Bytes>,
    {
        match is_stream(parts, self.policy) {
            true => Collected::Over { begun: Vec::new(), rest: Box::pin(body) },
            false => {
                let bytes_max = self.policy.answer_bytes_max;
                let mut held = HeldBytes::of_response(self.allowance);
                // Counted before it comes, so that the client's next requests find no room.
                let announced = body.size_hint().upper().filter(|bytes| *bytes <= bytes_max as u64);
                let announced = usize::try_from(announced.unwrap_or_default()).unwrap_or_default();
                let _never_refused = held.grow_to(announced);
                collect(body, bytes_max, held, deadline).await
            }
        }
    }

    /// Keeps the answer whole, or, where it is too large or a stream, that it was given.
    fn keep<R, E>(
        &self,
        mut parts: Parts,
        collected: Collected<R>,
        deadline: Instant,
    ) -> impl Future<Output = Delivery<R, E>>
    where
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        let answer = answer_of(&parts, &collected, self.policy);
        async move {
            let Some(answer) = &answer else { return Box::pin(self.not_read(collected)).await };
            let Recorded::Until(expires_at) = self.complete(answer).await else {
                return Delivery::of(Box::pin(self.stored_truth()).await);
            };
            expires::say(expires_at, &mut parts.headers, self.policy);
            match collected {
                Collected::Whole { data, trailers, held } => {
                    // The store's copies do not count: they do not wait for the client.
                    let body = ResponseBody::whole(held.guard(data), trailers);
                    Delivery::of(Response::from_parts(parts, body))
                }
                Collected::Over { begun, rest } => {
                    let pumped = Pumping { begun, rest, allowance: self.allowance.cloned() };
                    Delivery::pumped(parts, pumped, deadline)
                }
                Collected::Broken | Collected::Panicked(_) => {
                    unreachable!("it was given up above")
                }
            }
        }
    }

    /// Ends a run whose answer could not be read to its end.
    async fn not_read<R, E>(&self, collected: Collected<R>) -> Delivery<R, E> {
        match collected {
            Collected::Panicked(payload) => self.panicked(payload).await,
            _ => self.answer_lost().await,
        }
    }

    async fn panicked<R, E>(&self, payload: Box<dyn Any + Send>) -> Delivery<R, E> {
        self.release(unknown(self.policy)).await;
        Delivery::panic(payload)
    }

    /// A store that fails now does not take the answer from the client: it lands later.
    pub(crate) async fn complete(&self, answer: &Answer) -> Recorded {
        match self.claim().complete(answer).await {
            Ok(Recorded::Lost) => {
                self.count_fenced();
                Recorded::Lost
            }
            Ok(recorded) => recorded,
            Err(error) => {
                let Grant { lease, expires_at, .. } = *self.claim().grant();
                tracing::error!(%error, record = lease.id.short(), "an answer was not recorded");
                // Its key is not to be taken over before the answer has landed.
                self.engine.renewals.answered(&lease);
                let lease = self.engine.renewals.current(&lease);
                Box::pin(self.engine.landing.complete(lease, answer)).await;
                Recorded::Until(expires_at)
            }
        }
    }

    /// A store that fails now takes the release later.
    pub(crate) async fn release(&self, release: Release) -> Freed {
        let release = match release {
            Release::NeverRan if self.is_abandoned => Release::PostponedUnrun,
            Release::Retry | Release::Forget | Release::Crashed if self.is_abandoned => {
                Release::Postponed
            }
            other => other,
        };
        let began_with = self.claim().grant().lease;
        let lease = self.engine.renewals.current(&began_with);
        let sent = if lease == began_with { self.claim().sent() } else { Sent::Repeatedly };
        // Boxed, like all that most runs do not come to: they would hold room for it.
        let released = match release {
            Release::NeverRan => Box::pin(self.claim().never_ran()).await,
            release => Box::pin(self.claim().release(release)).await,
        };
        if release == Release::Forget && !matches!(released, Ok(Fenced::Lost)) {
            self.run.state.place.iter().for_each(|place| place.forget_key());
        }
        match released {
            Ok(Fenced::Applied) => {
                self.engine.landing.cancel_copies(&lease, release, sent);
                if may_hold(release) {
                    let why = "its run ended without an outcome";
                    Box::pin(self.engine.warn_if_held(self.id(), why)).await;
                }
                Freed::Now
            }
            Ok(Fenced::Lost) => {
                self.count_fenced();
                Freed::Now
            }
            Err(error) => {
                tracing::error!(%error, record = lease.id.short(), "a key was not released yet");
                Box::pin(self.engine.landing.release(lease, release, sent)).await;
                Freed::Later
            }
        }
    }

    async fn answer_lost<R, E>(&self) -> Delivery<R, E> {
        if self.release(unknown(self.policy)).await == Freed::Later {
            // Nothing can be promised about a retry.
            return Delivery::of(reject::answer(&Refusal::AnswerLost { held: true }, self.dialect));
        }
        let held = match self.engine.store.get(self.id()).await {
            // Where the service can be asked, a retry finds out more.
            Ok(Some(record)) => {
                matches!(record.state, State::Held { .. }) && self.policy.probe.is_none()
            }
            Ok(None) => false,
            Err(_) => true,
        };
        let refusal = Refusal::AnswerLost { held };
        Delivery::of(reject::about(Some(self.id()), &refusal, self.dialect))
    }

    /// What is known of the run that has taken over, unless it failed: then this one's own answer
    /// is as good.
    async fn told_by_the_other_run<R>(&self) -> Option<Response<ResponseBody<R>>> {
        match stored_answer(self.engine, self.claim()).await {
            Ok(found) => Some(replay(found, self.allowance, self.policy, self.dialect)),
            Err(Refusal::Busy) => {
                Some(reject::about(Some(self.id()), &Refusal::Busy, self.dialect))
            }
            Err(_) => None,
        }
    }

    async fn stored_truth<R>(&self) -> Response<ResponseBody<R>> {
        match stored_answer(self.engine, self.claim()).await {
            Ok(found) => replay(found, self.allowance, self.policy, self.dialect),
            Err(refusal) => reject::about(Some(self.id()), &refusal, self.dialect),
        }
    }

    fn count_fenced(&self) {
        telemetry::fenced_write();
        tracing::warn!(record = self.id().short(), "a stale write was fenced off");
    }

    fn claim(&self) -> &Claim<Started> {
        self.run.claim()
    }

    fn id(&self) -> &RecordId {
        &self.claim().grant().lease.id
    }
}

/// What is kept of an answer; nothing if it was lost on its way.
fn answer_of<R>(parts: &Parts, collected: &Collected<R>, policy: &Policy) -> Option<Answer> {
    let (body, trailers) = match collected {
        Collected::Whole { data, trailers, .. } => {
            (AnswerBody::Kept(data.clone()), trailers.clone())
        }
        Collected::Over { .. } => (AnswerBody::NotKept, HeaderMap::new()),
        Collected::Broken | Collected::Panicked(_) => return None,
    };
    Some(answer_to_keep(parts, body, trailers, policy))
}

/// What the record says, when it is no longer this claim's to write.
pub(crate) async fn stored_answer(
    engine: &Engine,
    claim: &Claim<Started>,
) -> Result<Replay, Refusal> {
    let record = match engine.store.get(&claim.grant().lease.id).await {
        Ok(Some(record)) => record,
        Ok(None) => return Err(Refusal::Held),
        Err(_) => return Err(Refusal::StoreDown),
    };
    let expires_at = record.expires_at;
    match record.state {
        State::Completed { answer, .. } => Ok(Replay { answer, expires_at }),
        State::Claimed { .. } => Err(Refusal::Busy),
        State::Tombstone => Err(Refusal::Expired),
        State::Failed | State::Held { .. } => Err(Refusal::Held),
    }
}

/// How a claim ends after this outcome; not at all by itself where the answer is kept.
pub(crate) fn release_after(outcome: Outcome, policy: &Policy) -> Option<Release> {
    Some(match outcome {
        Outcome::Final => return None,
        Outcome::ServerError => match policy.server_errors {
            ServerErrors::Keep => return None,
            ServerErrors::Retry => Release::Retry,
            ServerErrors::Hold => Release::Hold,
        },
        Outcome::Denied => Release::Forget,
        Outcome::Transient => Release::Retry,
        Outcome::Unknown | Outcome::AnswerLost => unknown(policy),
        Outcome::NeverRan => Release::NeverRan,
    })
}

/// Tells if a key may be held after a claim that ended so.
fn may_hold(release: Release) -> bool {
    match release {
        Release::NeverRan | Release::Retry | Release::Forget => false,
        Release::Crashed
        | Release::Unheard
        | Release::Postponed
        | Release::PostponedUnrun
        | Release::Hold => true,
    }
}

/// How a run ends of which nobody knows how far it came.
pub(crate) fn unknown(policy: &Policy) -> Release {
    match policy.work {
        Work::Here => Release::Crashed,
        Work::Elsewhere => Release::Unheard,
    }
}

/// Whether an answer is passed on as it comes, and never kept.
pub(crate) fn is_stream(parts: &Parts, policy: &Policy) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let kind = parts.headers.get(http::header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    let begins = kind.and_then(|kind| kind.get(..EVENTS.len()));
    policy.stream || begins.is_some_and(|kind| kind.eq_ignore_ascii_case(EVENTS))
}
