//! [`Once`]: the same promise for any async function, such as a webhook's, a queue's or a job's.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, StatusCode};
use selfsame_core::{
    Answer, AnswerBody, Ask, AttemptId, Claim, Fingerprint, Key, Label, RecordId, Recorded,
    Release, Scope, Started, Tenant,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::engine::{Engine, Seen};
use crate::outcome::Served;
use crate::patience;
use crate::policy::Policy;
use crate::reject::Refusal;
use crate::run::Run;
use crate::steps::{self, ClaimContext, Recorder, Settled, Turn};
use crate::telemetry::Meter;
use crate::timing::Stopwatch;

/// A call of a function under a key: made once, and its result given to every call after.
/// Made by [`Idempotency::once`](crate::Idempotency::once).
///
/// ```
/// # use selfsame::{Idempotency, Key, OnceError, InvalidKey};
/// # async fn example(idempotency: Idempotency, event_id: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let receipt: String = idempotency
///     .once("send_receipt", Key::parse(event_id.as_bytes())?)
///     .input(&("ann@example.com", 20))
///     .run(|_run| async { Ok::<_, std::io::Error>("mail 1".to_owned()) })
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// Of a [`Policy`], its mode and what is about HTTP play no part here.
#[must_use = "a call is made by `run`"]
pub struct Once {
    engine: Arc<Engine>,
    function: String,
    key: Key,
    tenant: Tenant,
    input: Result<Vec<u8>, serde_json::Error>,
    policy: Policy,
}

/// Why a call has no result to give.
#[derive(Debug, thiserror::Error)]
pub enum OnceError<E> {
    /// The function's own error: the key is free, and the next call runs again.
    #[error("the function failed")]
    Failed(#[source] E),
    /// Another call with this key is running.
    #[error("a call with this key is in progress")]
    InProgress,
    /// The key was used with another input.
    #[error("the key was used with another input")]
    KeyReused,
    /// The tenant has too many keys, or too many calls that run; nothing ran.
    #[error("the tenant has too many keys or runs; nothing ran")]
    TooManyKeys,
    /// A call with this key was interrupted, and whether it was carried out is unknown.
    #[error("whether the call was carried out is unknown; a person decides")]
    OutcomeUnknown,
    /// The call took longer than `run_timeout`, and was dropped.
    #[error("the call took too long, and was dropped")]
    TimedOut,
    /// The key was used long ago.
    #[error("the key was used, and its result is no longer kept")]
    Expired,
    /// The call was made; its result was too large, or could not be written as JSON.
    #[error("the call was made; its result was not kept")]
    NotKept,
    /// The call was made; its result does not fit the type that is asked for.
    #[error("the call was made; its result cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// The input cannot be written as JSON; nothing ran.
    #[error("the input cannot be written as JSON")]
    Input(#[source] serde_json::Error),
    /// The store could not be asked; nothing ran.
    #[error("the store cannot be used at the moment; nothing ran")]
    StoreUnavailable,
    /// What is stored under this key is damaged; nothing ran.
    #[error("what is stored under this key is damaged")]
    Damaged,
}

/// What a detached call hands back.
enum Ended<T, E> {
    Result(Result<T, OnceError<E>>),
    Panic(Box<dyn Any + Send>),
}

impl Once {
    pub(crate) fn new(engine: Arc<Engine>, function: &str, key: Key) -> Self {
        let tenant = Tenant::named("function", "everyone");
        let (function, policy) = (function.to_owned(), Policy::new().route(function));
        Self { engine, function, key, tenant, input: Ok(b"null".to_vec()), policy }
    }

    /// What the call is made with: the same key with another input is an error.
    pub fn input(mut self, input: &impl Serialize) -> Self {
        self.input = serde_json::to_vec(input);
        self
    }

    /// Whose key it is: everyone's, unless set.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// Lease, retention, `recover`, waiting and limits: the defaults, unless set.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy.route(self.function.as_str());
        self
    }

    /// Makes the call, or gives the result of the one that was made. Once begun it does not
    /// depend on its caller: who goes away finds the result when it asks again.
    ///
    /// # Panics
    ///
    /// If `work` does; the key is then left to `recover`.
    pub async fn run<T, E, F>(
        self,
        work: impl FnOnce(Run) -> F + Send + 'static,
    ) -> Result<T, OnceError<E>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let Self { engine, function, key, tenant, input, policy } = self;
        let stopwatch = Stopwatch::start();
        let input = input.map_err(OnceError::Input)?;
        let scope = Scope::Function { name: function.clone() };
        let tag = tenant.tag(&engine.secret);
        let mut ask = Ask {
            id: RecordId::derive(&engine.secret, tag, &scope, &key),
            fingerprint: Fingerprint::of_call(&function, &input, Some(&engine.secret)),
            attempt_id: AttemptId::random(),
            lease: policy.lease,
            retention: policy.retention,
            remember: policy.remember,
            recover: policy.recover,
            label: Label {
                tenant: tag,
                tenant_name: tenant.name().map(Into::into),
                key,
                route: function.into(),
            },
            keepsake: None,
        };
        let home = engine.clone();
        let work = Box::pin(async move {
            let context = ClaimContext { engine: &engine, policy: &policy, new_keys: None };
            let turn = steps::take_turn(context, &mut ask, None).await;
            let served = served(&turn);
            let ended = match turn.settled {
                Settled::Run(claim, place) => {
                    let run = Run::new(claim.start(), place, &engine, None);
                    let call = Call { engine: &engine, policy: &policy, run: run.clone() };
                    let now = Instant::now();
                    let alive = engine.renewals.begin(run.claim(), ask.fingerprint, now);
                    let ended = Box::pin(call.make(work, now)).await;
                    drop(alive);
                    engine.waiters.wake(&ask.id);
                    ended
                }
                Settled::Replay(replay) => Ended::Result(read(replay.answer)),
                Settled::Busy { .. } => Ended::Result(Err(OnceError::InProgress)),
                Settled::Refused(refusal) => Ended::Result(Err(refused(&refusal))),
                // A function has no way to say that it ran unprotected.
                Settled::Bypass => Ended::Result(Err(OnceError::StoreUnavailable)),
            };
            Meter::new(policy.route.clone()).served(served, stopwatch.elapsed(), None);
            ended
        });
        let ended = match home.see_through(work).await {
            Seen::Done(ended) => ended,
            Seen::Going(ended) => match ended.await {
                Ok(ended) => ended,
                Err(_) => return Err(OnceError::OutcomeUnknown),
            },
        };
        match ended {
            Ended::Result(result) => result,
            Ended::Panic(payload) => std::panic::resume_unwind(payload),
        }
    }
}

/// A call that has its claim.
struct Call<'a> {
    engine: &'a Engine,
    policy: &'a Policy,
    run: Run,
}

impl Call<'_> {
    async fn make<T, E, F>(self, work: impl FnOnce(Run) -> F, now: Instant) -> Ended<T, E>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, E>>,
    {
        let Self { engine, policy, run } = self;
        let recorder = Recorder::new(&run, (engine, policy, &policy.dialect), false);
        let deadline = now + policy.run_timeout;
        // What `work` was at when it panicked is not met again.
        let running = AssertUnwindSafe(async { work(run.clone()).await }).catch_unwind();
        match patience::before(deadline, running).await {
            Some(Ok(Ok(value))) => {
                let keeping = AssertUnwindSafe(|| kept(&value, policy.answer_bytes_max));
                let answer = match catch_unwind(keeping) {
                    Ok(answer) => answer,
                    Err(payload) => {
                        recorder.release(steps::unknown(policy)).await;
                        return Ended::Panic(payload);
                    }
                };
                match recorder.complete(&answer).await {
                    Recorded::Until(_) => Ended::Result(Ok(value)),
                    Recorded::Lost => Ended::Result(stored_truth(engine, run.claim()).await),
                }
            }
            Some(Ok(Err(error))) => {
                recorder.release(Release::Retry).await;
                Ended::Result(Err(OnceError::Failed(error)))
            }
            Some(Err(payload)) => {
                recorder.release(steps::unknown(policy)).await;
                Ended::Panic(payload)
            }
            None => {
                recorder.release(steps::unknown(policy)).await;
                Ended::Result(Err(OnceError::TimedOut))
            }
        }
    }
}

/// A result as it is kept. One that cannot be kept is kept as made all the same: the call must
/// not be made again.
fn kept(value: &impl Serialize, bytes_max: usize) -> Answer {
    let body = match serde_json::to_vec(value) {
        Ok(json) if json.len() <= bytes_max => AnswerBody::Kept(Bytes::from(json)),
        _ => AnswerBody::NotKept,
    };
    let (headers, trailers) = (HeaderMap::new(), HeaderMap::new());
    Answer { status: StatusCode::OK, headers, body, trailers }
}

fn read<T: DeserializeOwned, E>(answer: Answer) -> Result<T, OnceError<E>> {
    match answer.body {
        AnswerBody::Kept(json) => serde_json::from_slice(&json).map_err(OnceError::Unreadable),
        AnswerBody::NotKept | AnswerBody::Sealed(_) => Err(OnceError::NotKept),
    }
}

/// What the record says, when it is no longer this call's to write.
async fn stored_truth<T: DeserializeOwned, E>(
    engine: &Engine,
    claim: &Claim<Started>,
) -> Result<T, OnceError<E>> {
    match steps::stored_answer(engine, claim).await {
        Ok(replay) => read(replay.answer),
        Err(refusal) => Err(refused(&refusal)),
    }
}

fn served(turn: &Turn) -> Served {
    match turn.served() {
        // It does not run: see above.
        Served::Bypassed => Served::StoreError,
        served => served,
    }
}

fn refused<E>(refusal: &Refusal) -> OnceError<E> {
    match refusal {
        Refusal::Busy => OnceError::InProgress,
        Refusal::Reused(_) => OnceError::KeyReused,
        Refusal::Expired => OnceError::Expired,
        Refusal::NotKept { .. } => OnceError::NotKept,
        Refusal::StoreDown | Refusal::RecordsLost { .. } => OnceError::StoreUnavailable,
        Refusal::Damaged => OnceError::Damaged,
        Refusal::TooMany(_) | Refusal::TooManyNewKeys { .. } => OnceError::TooManyKeys,
        // The rest are refusals of HTTP requests, which a function is not.
        _ => OnceError::OutcomeUnknown,
    }
}
