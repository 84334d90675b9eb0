//! Requests whose clients do not come back, and who sees to them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use selfsame::seal::{Keyring, Seal};
use selfsame::stores::{MemoryStore, SealedStore};
use selfsame::{
    Completing, Ending, IdempotencyService, Outcome, Policy, Probe, Recover, RequestBody, Run,
    Served, Work,
};
use selfsame_core::conformance::SettableClock;
use selfsame_core::conformance::samples::LEASE;
use selfsame_core::{Find, RecordId};
use tower::{Layer, Service, ServiceExt};

use crate::support::{Body, Rig, answer, see, send};

const KEYS: &str = "a AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const MINUTE: Duration = Duration::from_secs(60);
const SECRET: &str = r#"{"card":"4242"}"#;

/// A request as the service saw it.
struct Sight {
    head: http::request::Parts,
    body: Bytes,
    attempt: Option<u32>,
}

/// A service that answers as it was told, and notes what it saw; then 201.
#[derive(Clone, Default)]
struct Upstream {
    answers: Arc<Mutex<VecDeque<Response<Body>>>>,
    seen: Arc<Mutex<Vec<Sight>>>,
}

impl Upstream {
    fn will(self, answers: impl IntoIterator<Item = Response<Body>>) -> Self {
        self.answers.lock().extend(answers);
        self
    }

    fn attempts(&self) -> Vec<Option<u32>> {
        self.seen.lock().iter().map(|sight| sight.attempt).collect()
    }
}

impl Service<Request<RequestBody<Body>>> for Upstream {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Body>>) -> Self::Future {
        let (head, body) = request.into_parts();
        let body = futures_util::FutureExt::now_or_never(body.collect());
        let body = body.expect("all here").expect("whole").to_bytes();
        let attempt = head.extensions.get::<Run>().map(Run::attempt);
        self.seen.lock().push(Sight { head, body, attempt });
        ready(Ok(self.answers.lock().pop_front().unwrap_or_else(|| answer(201, "charged"))))
    }
}

fn ended(outcome: Outcome) -> Response<Body> {
    let mut response = answer(502, "");
    response.extensions_mut().insert(outcome);
    response
}

fn rig() -> Rig {
    let clock = Arc::new(SettableClock::new());
    let seal = Seal::new(Keyring::parse(KEYS).expect("valid"));
    Rig::on(
        Arc::new(SealedStore::new(Arc::new(MemoryStore::with_clock(clock.clone())), seal)),
        clock,
    )
}

fn policy() -> Policy {
    let headers = vec!["x-account".parse().expect("a name")];
    let completing = Completing { attempts: 2, headers, ..Completing::default() };
    Policy::new().work(Work::Elsewhere).completing(Some(completing))
}

fn service(rig: &Rig, policy: Policy, upstream: &Upstream) -> IdempotencyService<Upstream> {
    rig.idempotency.layer(policy).layer(upstream.clone())
}

fn request() -> Request<Body> {
    Request::post("/charges?currency=eur")
        .header("idempotency-key", "k")
        .header(HOST, "api.example")
        .header(CONTENT_TYPE, "application/json")
        .header(AUTHORIZATION, "Bearer ann")
        .header("x-account", "7")
        .header("x-trace", "1")
        .body(Body::from(SECRET))
        .expect("a request")
}

async fn found(rig: &Rig) -> Vec<RecordId> {
    let found = rig.store.find(&Find::Abandoned { after: None }, 9).await.expect("the store works");
    found.into_iter().map(|record| record.id).collect()
}

/// What becomes of the one abandoned request.
async fn see_to(rig: &Rig, service: &IdempotencyService<Upstream>) -> Ending {
    let [id] = found(rig).await[..] else { panic!("one record was abandoned") };
    let abandoned = rig.idempotency.abandoned(&id).await.expect("the store works");
    service.see_to::<Body, _>(abandoned.expect("it was abandoned")).await
}

#[tokio::test]
async fn an_abandoned_request_is_run_again_as_it_was_but_for_its_credentials() {
    let rig = rig();
    let upstream = Upstream::default().will([ended(Outcome::AnswerLost)]);
    let service = service(&rig, policy(), &upstream);
    assert_eq!(send(&service, request()).await.status, 502);
    assert_eq!(found(&rig).await, [], "it may still be going on");
    rig.clock.pass(LEASE + MINUTE);
    assert_eq!(see_to(&rig, &service).await, Ending::Left, "its client may come back");
    rig.clock.pass(MINUTE * 6);
    assert_eq!(see_to(&rig, &service).await, Ending::Completed);
    assert_eq!(upstream.attempts(), [Some(1), Some(2)]);
    {
        let seen = upstream.seen.lock();
        let [first, second] = &seen[..] else { panic!("two runs") };
        assert_eq!(second.head.method, first.head.method);
        assert_eq!(second.head.uri, first.head.uri);
        assert_eq!(second.body, SECRET);
        let kept = ["idempotency-key", "host", "content-type", "x-account"];
        let mut names: Vec<_> = second.head.headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-type", "host", "idempotency-key", "x-account"]);
        assert!(kept.iter().all(|name| second.head.headers[*name] == first.head.headers[*name]));
    }

    let late = send(&service, request()).await;
    assert_eq!((late.served, &*late.body), (Served::Replayed, "charged"));
    let record = rig.store.find(&Find::Key("k".into()), 1).await.expect("found")[0].id;
    let record = rig.store.get(&record).await.expect("the store works").expect("completed");
    assert_eq!(record.kept_request(), None, "nobody needs the request any more");
}

#[tokio::test]
async fn each_run_doubles_the_pause_and_then_a_person_decides() {
    let rig = rig();
    let failures = [ended(Outcome::AnswerLost), answer(503, ""), answer(401, "")];
    let upstream = Upstream::default().will(failures);
    let service = service(&rig, policy(), &upstream);
    send(&service, request()).await;
    rig.clock.pass(LEASE + MINUTE * 7);
    assert_eq!(see_to(&rig, &service).await, Ending::Unfinished);
    rig.clock.pass(MINUTE * 7);
    assert_eq!(see_to(&rig, &service).await, Ending::Left);
    rig.clock.pass(MINUTE * 6);
    assert_eq!(see_to(&rig, &service).await, Ending::Unfinished);
    rig.clock.pass(MINUTE * 60 * 2);
    assert_eq!(see_to(&rig, &service).await, Ending::Held);
    rig.clock.pass(MINUTE * 60 * 2);
    assert_eq!(see_to(&rig, &service).await, Ending::Left);
    assert_eq!(upstream.attempts(), [Some(1), Some(2), Some(3)]);
    assert_eq!(send(&service, request()).await.served, Served::Held);
}

#[tokio::test]
async fn a_service_that_cannot_be_reached_costs_no_attempt() {
    let rig = rig();
    let refused = (0..4).map(|_| ended(Outcome::NeverRan));
    let upstream = Upstream::default().will([ended(Outcome::AnswerLost)]).will(refused);
    let service = service(&rig, policy(), &upstream);
    send(&service, request()).await;
    rig.clock.pass(LEASE);
    for _ in 0..4 {
        rig.clock.pass(MINUTE * 7);
        assert_eq!(see_to(&rig, &service).await, Ending::Unfinished);
    }
    rig.clock.pass(MINUTE * 7);
    assert_eq!(see_to(&rig, &service).await, Ending::Completed);
    assert_eq!(upstream.attempts().last(), Some(&Some(2)));
}

#[tokio::test]
async fn a_client_that_comes_back_is_not_kept_waiting_and_nothing_runs_twice() {
    let rig = rig();
    let failures = [ended(Outcome::AnswerLost), answer(503, "")];
    let upstream = Upstream::default().will(failures);
    let service = service(&rig, policy(), &upstream);
    send(&service, request()).await;
    rig.clock.pass(LEASE + MINUTE * 7);
    let [id] = found(&rig).await[..] else { panic!("one record was abandoned") };
    let late = rig.idempotency.abandoned(&id).await.expect("works").expect("abandoned");
    assert_eq!(see_to(&rig, &service).await, Ending::Unfinished);
    let retry = send(&service, request()).await;
    assert_eq!((retry.status, retry.served), (201, Served::Resumed));
    // Another node saw the same key, and comes too late.
    assert_eq!(service.see_to::<Body, _>(late).await, Ending::Completed);
    assert_eq!(upstream.attempts(), [Some(1), Some(2), Some(3)]);
    assert!(rig.idempotency.abandoned(&id).await.expect("works").is_none());
}

#[tokio::test]
async fn what_may_not_run_again_is_never_run_and_where_it_never_may_not_kept() {
    for (recover, kept) in [(Recover::Auto, 1), (Recover::Hold, 0)] {
        let rig = rig();
        let upstream = Upstream::default().will([ended(Outcome::AnswerLost)]);
        let service = service(&rig, policy().recover(recover), &upstream);
        send(&service, request()).await;
        rig.clock.pass(MINUTE * 60 * 24 * 3);
        assert_eq!(found(&rig).await.len(), kept, "{recover:?}");
        if kept > 0 {
            assert_eq!(see_to(&rig, &service).await, Ending::Left);
        }
        assert_eq!(upstream.attempts(), [Some(1)], "{recover:?}");
    }
}

#[tokio::test]
async fn where_the_service_can_be_asked_it_is_asked_first() {
    let probe = Probe::parse("GET /keys/{key}").expect("valid");
    let policy = policy().recover(Recover::Hold).probe(Some(probe));
    for (told, attempts) in [(404, vec![Some(1), None, Some(2)]), (200, vec![Some(1), None])] {
        let rig = rig();
        let answers = [ended(Outcome::AnswerLost), answer(told, "known")];
        let upstream = Upstream::default().will(answers);
        let service = service(&rig, policy.clone(), &upstream);
        send(&service, request()).await;
        rig.clock.pass(LEASE + MINUTE * 7);
        assert_eq!(see_to(&rig, &service).await, Ending::Completed, "{told}");
        assert_eq!(upstream.attempts(), attempts, "{told}");
    }
}

#[tokio::test]
async fn without_a_key_to_encrypt_it_nothing_is_kept() {
    let rig = Rig::new();
    let upstream = Upstream::default().will([ended(Outcome::AnswerLost)]);
    let service = service(&rig, policy(), &upstream);
    let first = service.clone().oneshot(request()).await.expect("no error");
    assert_eq!(see(first).await.status, 502);
    rig.clock.pass(LEASE + MINUTE * 7);
    assert_eq!(found(&rig).await, []);
}
