//! Answers that are committed with a service's own rows.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_ENCODING, ETAG, SET_COOKIE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use selfsame::phases::{PhaseError, Phases};
use selfsame::{Idempotency, Policy, Run};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{LEASE, MARGIN};
use tokio::sync::Notify;
use tower::{Layer, ServiceExt};

use super::{Rides, db};

type Answer = Response<Full<Bytes>>;
pub(super) type Handler = Arc<dyn Fn(Phases) -> BoxFuture<'static, Answer> + Send + Sync>;

/// Sends a request with the key "k" to a service that works so.
pub(super) async fn send(
    idempotency: &Idempotency,
    policy: Policy,
    handler: &Handler,
) -> Response<Bytes> {
    let handler = handler.clone();
    let service = tower::service_fn(move |mut request: Request<selfsame::RequestBody<_>>| {
        let run: Run = request.extensions_mut().remove().expect("it has a key");
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(handler(run.phases().await.expect("it has phases")).await) }
    });
    let request = Request::post("/rides").header("idempotency-key", "k");
    let request = request.body(Full::<Bytes>::default()).expect("a request");
    let response = idempotency.layer(policy).layer(service).oneshot(request).await;
    let (parts, body) = response.expect("infallible").into_parts();
    let body = body.collect().await.expect("whole").to_bytes();
    Response::from_parts(parts, body)
}

/// An answer with a header of each kind.
pub(super) fn answer(text: &'static str) -> Answer {
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = StatusCode::CREATED;
    answer.headers_mut().insert(ETAG, HeaderValue::from_static("\"1\""));
    answer.headers_mut().insert(SET_COOKIE, HeaderValue::from_static("seen=1"));
    answer
}

/// Books a ride and answers in one transaction.
async fn book_and_answer(
    run: Phases,
    table: &str,
    note: &'static str,
) -> Result<Answer, PhaseError> {
    let mut db = db().await;
    let tx = db.transaction().await.expect("it begins");
    let sql = format!("insert into {table} (note) values ($1)");
    tx.execute(&sql, &[&note]).await.expect("it is written");
    run.finish_with(tx, answer(note)).await
}

pub(super) fn assert_replays(replay: &Response<Bytes>, first: &Response<Bytes>) {
    assert_eq!((replay.status(), replay.body()), (first.status(), first.body()));
    assert_eq!(replay.headers()["idempotent-replayed"], "true");
    for name in [ETAG.as_str(), "idempotency-expires"] {
        assert_eq!(replay.headers()[name], first.headers()[name], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_committed_with_the_last_rows() {
    let rides = Rides::open().await;
    let (table, runs) = (rides.table(), Arc::new(AtomicUsize::new(0)));
    let counted = runs.clone();
    let handler: Handler = Arc::new(move |run| {
        let (table, _) = (table.clone(), counted.fetch_add(1, Ordering::Relaxed));
        Box::pin(async move { book_and_answer(run, &table, "booked").await.expect("committed") })
    });
    let first = send(&rides.idempotency, Policy::new(), &handler).await;
    assert_eq!((first.status(), &first.body()[..]), (StatusCode::CREATED, &b"booked"[..]));
    assert_eq!(first.headers()[SET_COOKIE], "seen=1", "the first client gets all of it");
    assert!(!first.headers().contains_key("idempotent-replayed"));
    let replay = send(&rides.idempotency, Policy::new(), &handler).await;
    assert_replays(&replay, &first);
    assert!(!replay.headers().contains_key(SET_COOKIE));
    assert_eq!((runs.load(Ordering::Relaxed), rides.notes().await), (1, vec!["booked".to_owned()]));
}

/// It was said before anything could go wrong with it.
#[tokio::test(flavor = "multi_thread")]
async fn what_happens_to_a_response_after_its_commit_changes_nothing() {
    let spoilt: [fn(Answer) -> Answer; 3] = [
        |_| Response::builder().status(500).body(Full::from("later failure")).expect("valid"),
        |mut answer| {
            answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            answer.map(|_| Full::from("packed"))
        },
        |_| panic!("the handler panics after its commit"),
    ];
    for spoil in spoilt {
        let rides = Rides::open().await;
        let table = rides.table();
        let handler: Handler = Arc::new(move |run| {
            let table = table.clone();
            Box::pin(async move {
                spoil(book_and_answer(run, &table, "booked").await.expect("committed"))
            })
        });
        let first = send(&rides.idempotency, Policy::new(), &handler).await;
        assert_eq!((first.status(), &first.body()[..]), (StatusCode::CREATED, &b"booked"[..]));
        assert!(!first.headers().contains_key(CONTENT_ENCODING));
        assert_replays(&send(&rides.idempotency, Policy::new(), &handler).await, &first);
    }
}

/// What the client of a worker hears that lost its claim, and that of the one which took over and
/// ends like `other`.
async fn stale_and_fresh(rides: &Rides, other: StatusCode) -> (Response<Bytes>, Response<Bytes>) {
    let (inside, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (table, at, on) = (rides.table(), inside.clone(), go_on.clone());
    let handler: Handler = Arc::new(move |run| {
        let (table, inside, go_on) = (table.clone(), at.clone(), on.clone());
        Box::pin(async move {
            if run.attempt() > 1 && other == StatusCode::CREATED {
                return book_and_answer(run, &table, "fresh").await.expect("committed");
            }
            if run.attempt() > 1 {
                return Response::builder().status(other).body(Full::from("fresh")).expect("valid");
            }
            inside.notify_one();
            go_on.notified().await;
            let error = book_and_answer(run, &table, "stale").await.expect_err("it came too late");
            assert!(matches!(error, PhaseError::Lost), "{error}");
            Response::builder().status(500).body(Full::from("stale")).expect("valid")
        })
    });
    let stale = send(&rides.idempotency, Policy::new(), &handler);
    let fresh = async {
        inside.notified().await;
        rides.bench.pass(LEASE + MARGIN).await;
        let other = rides.another_process().await;
        let fresh = send(&other, Policy::new(), &handler).await;
        go_on.notify_one();
        fresh
    };
    tokio::join!(stale, fresh)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_lost_its_claim_tells_what_the_other_answered() {
    let rides = Rides::open().await;
    let (stale, fresh) = stale_and_fresh(&rides, StatusCode::CREATED).await;
    assert_eq!(&fresh.body()[..], b"fresh");
    assert_replays(&stale, &fresh);
    assert_eq!(rides.notes().await, ["fresh"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_lost_its_claim_to_one_that_failed_tells_its_own_failure() {
    let rides = Rides::open().await;
    let (stale, fresh) = stale_and_fresh(&rides, StatusCode::SERVICE_UNAVAILABLE).await;
    assert_eq!(
        (fresh.status(), &fresh.body()[..]),
        (StatusCode::SERVICE_UNAVAILABLE, &b"fresh"[..])
    );
    assert_eq!(
        (stale.status(), &stale.body()[..]),
        (StatusCode::INTERNAL_SERVER_ERROR, &b"stale"[..])
    );
    assert!(rides.notes().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_kept_is_not_committed() {
    let rides = Rides::open().await;
    let table = rides.table();
    let handler: Handler = Arc::new(move |run| {
        let table = table.clone();
        Box::pin(async move {
            let error = book_and_answer(run, &table, "too long").await.expect_err("it is too long");
            assert!(matches!(error, PhaseError::NotKept { max: 4 }), "{error}");
            Response::builder().status(503).body(Full::from("retry")).expect("valid")
        })
    });
    let policy = Policy::new().answer_bytes_max(4);
    assert_eq!(send(&rides.idempotency, policy, &handler).await.status(), 503);
    assert!(rides.notes().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_finish_with_is_kept_whatever_its_status() {
    let rides = Rides::open().await;
    let handler: Handler = Arc::new(move |run| {
        Box::pin(async move {
            let declined = Response::builder().status(503).body(Full::from("for good"));
            run.finish(declined.expect("valid")).expect("there is no more in the journal")
        })
    });
    let first = send(&rides.idempotency, Policy::new(), &handler).await;
    assert_eq!(first.status(), 503);
    let replay = send(&rides.idempotency, Policy::new(), &handler).await;
    assert_eq!(replay.headers()["idempotent-replayed"], "true");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_has_no_answer_to_commit() {
    let rides = Rides::open().await;
    let attempt = rides.attempt::<(), _>("k", |run| async move {
        let mut db = db().await;
        let tx = db.transaction().await.expect("it begins");
        run.finish_with(tx, answer("none")).await.map(drop)
    });
    assert!(matches!(super::failure(attempt.await), PhaseError::NoRequest));
}
