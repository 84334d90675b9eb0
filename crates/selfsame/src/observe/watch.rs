//! [`Watch`]: what would have become of a request, found out beside it.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use selfsame_core::{Ask, Claim, Key, RecordId, Recover, Release, Started};
use tokio::sync::oneshot::Receiver;
use tokio::time::{Instant, timeout, timeout_at};

use super::tap::Tapped;
use super::trace::Trace;
use crate::engine::Engine;
use crate::grpc;
use crate::outcome::{Outcome, Served};
use crate::policy::Policy;
use crate::prefer;
use crate::reject;
use crate::steps::{self, Apart, ClaimContext, Identity, Settled};
use crate::telemetry;

/// What comes back from the service.
pub(super) enum Heard {
    Answer {
        status: StatusCode,
        /// None where it comes in the trailers.
        outcome: Option<Outcome>,
        /// None for a stream, which is not listened to.
        body: Option<Receiver<Tapped>>,
    },
    /// An error or a panic.
    Failure,
}

/// A request that is watched.
pub(super) struct Watch {
    pub(super) engine: Arc<Engine>,
    pub(super) policy: Arc<Policy>,
    /// None where only the body can tell.
    pub(super) key: Option<Key>,
    pub(super) request: Apart<Receiver<Tapped>>,
    pub(super) answer: Receiver<Heard>,
}

impl Watch {
    /// Claims as the request would have, and records as its run would have.
    pub(super) async fn run(self) {
        let Self { engine, policy, key, request: Apart { parts, body }, answer } = self;
        let deadline = Instant::now() + policy.run_timeout;
        let (key, body) = match key {
            Some(key) => (key, RequestHeard::ToCome(body)),
            None => match seek(&parts, body, &policy).await {
                Some((key, body)) => (key, RequestHeard::Whole(body)),
                None => return,
            },
        };
        let Identity { id, label, is_shared } =
            match steps::scope(key, &parts, &policy, &engine.secret) {
                Ok(identity) => identity,
                Err(refusal) => return count(&policy, None, reject::served(&refusal)),
            };
        engine.suspicions.look(&label.key, label.tenant);
        // A record of its own, which no request is answered from.
        let id = id.observed(&engine.secret);
        let identity = Identity { id, label: label.observed(), is_shared };
        let scene = Scene { engine: &engine, policy: &policy, id: identity.id, deadline };

        if steps::announces_more_than(policy.request_bytes_max, &parts.headers) {
            return scene.count(Served::BadBody);
        }
        let body = match body {
            RequestHeard::Whole(body) => body,
            RequestHeard::ToCome(body) => match timeout(policy.response_timeout, body).await {
                Ok(Ok(Tapped::Whole { data, .. })) => {
                    if let Err(refusal) = steps::has_no_other_key(&parts, &data, &policy) {
                        return scene.count(reject::served(&refusal));
                    }
                    data
                }
                Ok(Ok(Tapped::Over | Tapped::Broken)) | Err(_) => {
                    return scene.count(Served::BadBody);
                }
                // The service did not wish to read it, or its client left: both look the same here.
                Ok(Err(_)) => return telemetry::unobserved(&policy.route, "unread"),
            },
        };
        if grpc::is_call(&parts.headers) && !grpc::is_one_message(&body) {
            return scene.count(Served::BadBody);
        }
        let fingerprint = steps::fingerprint_of(&parts, &body, &policy, &engine.secret);
        // Never held: nobody could resolve it.
        let mut ask =
            Ask { recover: Recover::Resume, ..steps::ask(identity, fingerprint, &policy) };
        let new_keys = parts.extensions.get();
        let context = ClaimContext { engine: &engine, policy: &policy, new_keys };
        let turn = steps::take_turn(context, &mut ask, prefer::wait(&parts.headers)).await;
        let served = turn.served();
        match turn.settled {
            Settled::Run(claim, _place) => {
                let claim = claim.start();
                let alive = engine.renewals.begin(&claim, ask.fingerprint, Instant::now());
                scene.ran(&claim, answer).await;
                drop(alive);
                engine.waiters.wake(&ask.id);
            }
            Settled::Replay(kept) => scene.replayed(served, Trace::of(kept.answer), answer).await,
            _ => scene.count(served),
        }
    }
}

/// A request's body.
enum RequestHeard {
    /// Its key was found in it.
    Whole(Bytes),
    ToCome(Receiver<Tapped>),
}

/// The key in the body, and the body. Where there is none, what there is to count is counted.
async fn seek(parts: &Parts, body: Receiver<Tapped>, policy: &Policy) -> Option<(Key, Bytes)> {
    let body = match timeout(policy.response_timeout, body).await {
        Ok(Ok(Tapped::Whole { data, .. })) => data,
        // Whether it is JSON, which would be refused, was not looked at.
        Ok(Ok(Tapped::Over)) => {
            telemetry::unobserved(&policy.route, "too_large");
            return None;
        }
        Ok(Ok(Tapped::Broken)) | Ok(Err(_)) | Err(_) => {
            telemetry::unobserved(&policy.route, "unread");
            return None;
        }
    };
    let refusal = match steps::key_in_body(parts, &body, policy) {
        Ok(Some(key)) => return Some((key, body)),
        Ok(None) => steps::missing(policy),
        Err(refusal) => Some(refusal),
    };
    if let Some(refusal) = refusal {
        count(policy, None, reject::served(&refusal));
    }
    None
}

/// What would have become of a request; `id` is its observed record's, where it came that far.
pub(super) fn count(policy: &Policy, id: Option<RecordId>, served: Served) {
    let (route, record) = (&*policy.route, id.map(|id| id.short()));
    tracing::debug!(record, route, outcome = served.label(), "observed");
    telemetry::observed(route, served);
}

/// What is around an observed run.
struct Scene<'a> {
    engine: &'a Engine,
    policy: &'a Policy,
    id: RecordId,
    deadline: Instant,
}

/// How an observed run ends.
enum Ending {
    Complete(Trace),
    Release(Release),
}

impl Scene<'_> {
    /// The request would have run, as it does.
    async fn ran(&self, claim: &Claim<Started>, answer: Receiver<Heard>) {
        if claim.grant().took_over && self.holds() {
            self.count(Served::Held);
            return self.end(claim, Ending::Complete(Trace::Held)).await;
        }
        let heard = timeout_at(self.deadline, answer).await;
        self.count(match &heard {
            Ok(Ok(Heard::Answer { outcome: Some(Outcome::NeverRan), .. })) => Served::Unreachable,
            _ => Served::by_attempt(claim.grant().attempt),
        });
        let ending = match heard {
            Ok(Ok(Heard::Answer { status, outcome, body })) => {
                self.answered(status, outcome, body).await
            }
            // The client left. Enforced, the work would have gone on without it.
            Ok(Err(_)) => Ending::Complete(Trace::Unheard),
            Ok(Ok(Heard::Failure)) | Err(_) => self.given_up(steps::unknown(self.policy)),
        };
        self.end(claim, ending).await;
    }

    /// The request would have got what was answered before. What it does get may differ.
    async fn replayed(&self, served: Served, first: Trace, answer: Receiver<Heard>) {
        self.count(match first {
            Trace::Answer { .. } | Trace::Unheard => served,
            Trace::NotKept { .. } => Served::NotKept,
            Trace::Held => Served::Held,
        });
        let heard = timeout_at(self.deadline, answer).await;
        let Ok(Ok(Heard::Answer { status, body, .. })) = heard else { return };
        let second = self.trace(status, self.tapped(body).await);
        if second.is_some_and(|second| first.differs_from(&second)) {
            let (record, route) = (self.id.short(), &*self.policy.route);
            tracing::debug!(record, route, "a retry ran again and was answered otherwise");
            telemetry::differing_answer(route);
        }
    }

    async fn answered(
        &self,
        status: StatusCode,
        outcome: Option<Outcome>,
        body: Option<Receiver<Tapped>>,
    ) -> Ending {
        let release = |outcome| steps::release_after(outcome, self.policy);
        if let Some(release) = outcome.and_then(release) {
            return self.given_up(release);
        }
        let tapped = self.tapped(body).await;
        if let (None, Some(Tapped::Whole { trailers, .. })) = (outcome, &tapped)
            && let Some(release) = release(Outcome::told_by_trailers(trailers))
        {
            return self.given_up(release);
        }
        match self.trace(status, tapped) {
            Some(trace) => Ending::Complete(trace),
            None => self.given_up(steps::unknown(self.policy)),
        }
    }

    /// What was heard of an answer's body; nothing where its client left.
    async fn tapped(&self, body: Option<Receiver<Tapped>>) -> Option<Tapped> {
        // A stream is as good as too long.
        let Some(body) = body else { return Some(Tapped::Over) };
        timeout_at(self.deadline, body).await.map_or(Some(Tapped::Broken), Result::ok)
    }

    /// What a retry would get of this answer; nothing where the answer broke off.
    fn trace(&self, status: StatusCode, tapped: Option<Tapped>) -> Option<Trace> {
        match tapped {
            Some(Tapped::Whole { data, .. }) => {
                Some(Trace::answer(status, &data, &self.engine.secret))
            }
            Some(Tapped::Over) => Some(Trace::NotKept { status }),
            Some(Tapped::Broken) => None,
            None => Some(Trace::Unheard),
        }
    }

    /// A claim that would be given up so. What would be held is recorded as that.
    fn given_up(&self, release: Release) -> Ending {
        match release {
            Release::Hold => Ending::Complete(Trace::Held),
            Release::Crashed | Release::Unheard if self.holds() => Ending::Complete(Trace::Held),
            release => Ending::Release(release),
        }
    }

    /// Whether a run without an outcome would wait for a person. A run that is only observed saves
    /// no checkpoint, so `auto` comes to the same.
    fn holds(&self) -> bool {
        self.policy.recover != Recover::Resume
    }

    /// What cannot be recorded now is not tried again: it is only a number that will be wrong.
    async fn end(&self, claim: &Claim<Started>, ending: Ending) {
        let ended = match ending {
            Ending::Complete(trace) => claim.complete(&trace.to_answer()).await.map(drop),
            Ending::Release(release) => claim.release(release).await.map(drop),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, record = self.id.short(), "an observed run was not recorded");
        }
    }

    fn count(&self, served: Served) {
        count(self.policy, Some(self.id), served);
    }
}
