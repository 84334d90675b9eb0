//! gRPC through the layer: a tonic client and a tonic server over a real socket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use selfsame::{Policy, Recover, RequestBody, ResponseBody, Run, ServerErrors};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Status};
use tower::{Layer, Service, ServiceExt};

use crate::payments::{Answer, Caller, Charge, Payments, Receipt, code, keyed, replayed, text};
use crate::support::{Rig, Runs};

/// A service behind the layer, for as long as the set lives.
struct Served {
    caller: Caller,
    runs: Runs,
    _serving: JoinSet<()>,
}

/// Serves `work`, which is told how often it was begun, behind a layer with this policy.
async fn serve<F>(policy: Policy, work: impl Fn(usize, u64) -> F + Send + Sync + 'static) -> Served
where
    F: Future<Output = Answer> + Send + 'static,
{
    let runs = Runs::default();
    let counted = runs.clone();
    let payments = Payments::new(move |request| work(counted.begin(), request.get_ref().amount));
    let layer = Rig::new().idempotency.layer(policy);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("bound");
    let serving = async move {
        let server = Server::builder().layer(layer).add_service(payments);
        server.serve_with_incoming(TcpIncoming::from(listener)).await.expect("it serves");
    };
    let _serving = JoinSet::from_iter([serving]);
    Served { caller: Caller::connect(address).await, runs, _serving }
}

fn receipt(text: impl Into<String>) -> Answer {
    Ok(tonic::Response::new(Receipt { text: text.into() }))
}

#[tokio::test]
async fn a_call_is_answered_again_with_its_message_and_its_status() {
    let served = serve(Policy::new(), |run, amount| async move {
        let mut answer = receipt(format!("run {run}: {amount}"))?;
        answer.metadata_mut().insert("x-ledger", "a".parse().expect("ASCII"));
        Ok(answer)
    });
    let served = served.await;
    let first = served.caller.charge("k", 10).await;
    let retry = served.caller.charge("k", 10).await;
    assert_eq!((text(&first), replayed(&retry)), ("run 1: 10", "run 1: 10"));
    assert_eq!(retry.expect("an answer").metadata().get("x-ledger").expect("kept"), "a");
    assert_eq!(code(served.caller.charge("k", 11).await), Code::InvalidArgument);
    assert_eq!(text(&served.caller.charge("", 10).await), "run 2: 10", "without a key it passes");
    assert_eq!(served.runs.count(), 2);
}

#[tokio::test]
async fn the_status_decides_whether_an_answer_is_kept() {
    let kept = [
        Code::InvalidArgument,
        Code::NotFound,
        Code::AlreadyExists,
        Code::FailedPrecondition,
        Code::OutOfRange,
        Code::Unimplemented,
    ];
    let freed = [
        Code::Unauthenticated,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::Aborted,
        Code::Unavailable,
        Code::Internal,
        Code::Unknown,
        Code::DataLoss,
        // Unknown, and this service resumes.
        Code::Cancelled,
        Code::DeadlineExceeded,
    ];
    let table = kept.map(|code| (code, 1)).into_iter().chain(freed.map(|code| (code, 2)));
    for (expected, runs) in table {
        let work = move |run, _| async move { Err(Status::new(expected, format!("run {run}"))) };
        let served = serve(Policy::new(), work).await;
        for sent in 1..=2 {
            let status = served.caller.charge("k", 10).await.expect_err("a status");
            let run = sent.min(runs);
            assert_eq!((status.code(), status.message()), (expected, &*format!("run {run}")));
            let replayed = status.metadata().contains_key("idempotent-replayed");
            assert_eq!(replayed, sent > runs, "{expected:?}");
        }
        assert_eq!(served.runs.count(), runs, "{expected:?}");
    }
}

#[tokio::test]
async fn a_first_call_that_is_turned_away_leaves_no_record() {
    for (turned_away, other_amount) in
        [(Code::Unauthenticated, None), (Code::Unavailable, Some(Code::InvalidArgument))]
    {
        let served =
            serve(
                Policy::new(),
                move |_, _| async move { Err(Status::new(turned_away, "not now")) },
            );
        let served = served.await;
        assert_eq!(code(served.caller.charge("k", 10).await), turned_away);
        // A record would hold that this key stands for 10.
        let other = code(served.caller.charge("k", 11).await);
        assert_eq!(other, other_amount.unwrap_or(turned_away));
    }
}

#[tokio::test]
async fn server_errors_follow_the_policy() {
    let table = [
        (ServerErrors::Retry, Code::Internal, 2),
        (ServerErrors::Keep, Code::Internal, 1),
        (ServerErrors::Hold, Code::FailedPrecondition, 1),
    ];
    for (server_errors, second, runs) in table {
        let policy = Policy::new().server_errors(server_errors);
        let served = serve(policy, |_, _| async { Err(Status::internal("oops")) }).await;
        assert_eq!(code(served.caller.charge("k", 10).await), Code::Internal);
        assert_eq!(code(served.caller.charge("k", 10).await), second, "{server_errors:?}");
        assert_eq!(served.runs.count(), runs, "{server_errors:?}");
    }
}

#[tokio::test]
async fn a_handlers_own_word_goes_before_its_status() {
    let served = serve(Policy::new(), |run, _| async move {
        let mut status = Status::unavailable(format!("run {run}"));
        status.metadata_mut().insert("idempotency-outcome", "final".parse().expect("ASCII"));
        Err(status)
    });
    let served = served.await;
    for _ in 0..2 {
        let status = served.caller.charge("k", 10).await.expect_err("a status");
        assert_eq!(status.message(), "run 1");
        assert!(!status.metadata().contains_key("idempotency-outcome"));
    }
    assert_eq!(served.runs.count(), 1);
}

#[tokio::test]
async fn a_rival_is_told_to_try_again_and_a_client_that_gives_up_does_not_cancel_the_work() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, waits) = (begun.clone(), go_on.clone());
    let served = serve(Policy::new(), move |run, _| {
        let (begins, waits) = (begins.clone(), waits.clone());
        async move {
            begins.notify_one();
            waits.notified().await;
            receipt(format!("run {run}"))
        }
    });
    let served = served.await;
    let mut request = keyed("k", Charge { amount: 10 });
    request.set_timeout(Duration::from_secs(3));
    let (given_up, ()) = tokio::join!(served.caller.send(request), begun.notified());
    assert!(matches!(code(given_up), Code::Cancelled | Code::DeadlineExceeded));

    let rival = served.caller.charge("k", 10).await.expect_err("refused");
    assert_eq!(rival.code(), Code::Aborted);
    assert_eq!(rival.metadata().get("grpc-retry-pushback-ms").expect("a word"), "1000");
    go_on.notify_one();
    let mut retry = keyed("k", Charge { amount: 10 });
    retry.metadata_mut().insert("prefer", "wait=10".parse().expect("ASCII"));
    assert_eq!(replayed(&served.caller.send(retry).await), "run 1");
    assert_eq!(served.runs.count(), 1);
}

#[tokio::test]
async fn a_stream_of_messages_cannot_have_a_key() {
    let served = serve(Policy::new(), |_, amount| async move { receipt(amount.to_string()) }).await;
    for amounts in [&[][..], &[1, 2]] {
        let refused = served.caller.charge_all("k", amounts).await.expect_err("refused");
        assert_eq!(refused.code(), Code::Unimplemented, "{amounts:?}");
        assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").expect("a word"), "-1");
    }
    assert_eq!(served.runs.count(), 0);
    assert_eq!(text(&served.caller.charge_all("", &[1, 2]).await), "2", "without a key it passes");
}

#[tokio::test]
async fn an_answer_of_several_messages_is_kept_whole_or_not_at_all() {
    let policy = Policy::new().answer_bytes_max(1024);
    let served = serve(policy, |run, _| async move { receipt(format!("run {run}")) }).await;
    let first = served.caller.list("small", 3).await.expect("receipts");
    assert_eq!(first.len(), 3);
    assert_eq!(served.caller.list("small", 3).await.expect("receipts"), first);

    let large = served.caller.list("large", 1000).await.expect("receipts");
    assert_eq!(large.len(), 1000, "the first caller gets all of it");
    let retry = served.caller.list("large", 1000).await.expect_err("not kept");
    assert_eq!(retry.code(), Code::FailedPrecondition);
    assert_eq!(served.runs.count(), 2);
}

const EMPTY_MESSAGE: &[u8] = b"\0\0\0\0\0";

/// A call as it goes over the wire.
pub(crate) fn raw_call() -> Request<Full<Bytes>> {
    Request::post("/payments.Payments/Charge")
        .header("content-type", "application/grpc")
        .header("idempotency-key", "k")
        .body(Full::from(EMPTY_MESSAGE))
        .expect("a request")
}

#[tokio::test]
async fn a_handler_sees_its_run() {
    let payments = Payments::new(|request| async move {
        let run = request.extensions().get::<Run>().expect("a keyed call has a run");
        receipt(format!("attempt {}", run.attempt()))
    });
    let service = Rig::new().idempotency.layer(Policy::new()).layer(
        payments
            .map_request(|request: Request<RequestBody<_>>| request.map(tonic::body::Body::new)),
    );
    let answer = service.oneshot(raw_call()).await.expect("no error");
    let whole = answer.into_body().collect().await.expect("a body");
    assert_eq!(whole.trailers().expect("a status")["grpc-status"], "0");
    assert!(whole.to_bytes().ends_with(b"attempt 1"));
}

/// What a raw call reads of its answer.
pub(crate) async fn status_of<B>(answer: Response<ResponseBody<B>>) -> String
where
    B: http_body::Body<Data = Bytes, Error = Infallible>,
{
    let (head, body) = answer.into_parts();
    let trailers = body.collect().await.expect("a body").trailers().cloned().unwrap_or_default();
    let status = head.headers.get("grpc-status").or(trailers.get("grpc-status"));
    status.expect("a status").to_str().expect("text").to_owned()
}

/// A service whose answers are one message and this trailer.
pub(crate) fn ending_in(
    trailer: &'static str,
    value: &'static str,
    runs: &Runs,
) -> impl Service<
    Request<RequestBody<Full<Bytes>>>,
    Response = Response<impl http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ 'static {
    let runs = runs.clone();
    tower::service_fn(move |request: Request<RequestBody<Full<Bytes>>>| {
        let runs = runs.clone();
        async move {
            request.into_body().collect().await.expect("a body");
            runs.begin();
            let trailer = (HeaderName::from_static(trailer), HeaderValue::from_static(value));
            let frames = [
                Frame::data(Bytes::from_static(EMPTY_MESSAGE)),
                Frame::trailers(HeaderMap::from_iter([trailer])),
            ];
            let frames = futures_util::stream::iter(frames.map(Ok::<_, Infallible>));
            Ok(Response::new(StreamBody::new(frames)))
        }
    })
}

#[tokio::test]
async fn without_a_status_an_answer_is_not_whole() {
    let table = [("grpc-status", ["0", "0"]), ("x-sum", ["2", "9"])];
    for (trailer, statuses) in table {
        let runs = Runs::default();
        let policy = Policy::new().recover(Recover::Hold);
        let layer = Rig::new().idempotency.layer(policy);
        let service = layer.layer(ending_in(trailer, "0", &runs));
        for expected in statuses {
            let answer = service.clone().oneshot(raw_call()).await.expect("no error");
            assert_eq!(status_of(answer).await, expected, "{trailer}");
        }
        assert_eq!(runs.count(), 1);
    }
}
