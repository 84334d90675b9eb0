//! gRPC through the gateway: a tonic client in front, a tonic server behind.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::Runtime;
use tokio::sync::{Notify, oneshot};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};

use crate::harness::Gateway;
use crate::payments::{Answer, Caller, Charge, Payments, Receipt, code, keyed, replayed, text};
use crate::unreachable::nobody;

/// A service behind a gateway, and a client in front of it.
struct Staged {
    caller: Caller,
    gateway: Gateway,
    runs: Arc<AtomicUsize>,
    server: Service,
}

impl Staged {
    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

/// A server on a runtime of its own, with which all its connections end.
struct Service {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Service {
    fn start(payments: Payments) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let server = Server::builder().add_service(payments);
                tokio::select! {
                    served = server.serve_with_incoming(TcpIncoming::from(listener)) => {
                        served.expect("it serves");
                    }
                    _ = stopped => {}
                }
            });
        });
        Self { address, stop, thread }
    }

    fn die(self) {
        drop(self.stop);
        self.thread.join().expect("no panic");
    }
}

/// Serves `work`, which is told how often it was begun, behind a gateway with these settings.
async fn stage<F>(
    settings: &str,
    work: impl Fn(usize, Request<Charge>) -> F + Send + Sync + 'static,
) -> Staged
where
    F: Future<Output = Answer> + Send + 'static,
{
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let payments =
        Payments::new(move |request| work(counted.fetch_add(1, Ordering::SeqCst) + 1, request));
    let server = Service::start(payments);
    let gateway = Gateway::before(server.address).over_http2().with(settings).start();
    let caller = Caller::connect(gateway.address).await;
    Staged { caller, gateway, runs, server }
}

fn receipt(text: impl Into<String>) -> Answer {
    Ok(Response::new(Receipt { text: text.into() }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_runs_once_and_is_answered_again() {
    let staged = stage("", |run, request| async move {
        let attempt = request.metadata().get("selfsame-attempt").map(|value| value.to_str());
        let attempt = attempt.and_then(Result::ok).unwrap_or("none").to_owned();
        receipt(format!("run {run}, attempt {attempt}: {}", request.get_ref().amount))
    })
    .await;
    let first = staged.caller.charge("k", 10).await;
    assert_eq!(text(&first), "run 1, attempt 1: 10");
    for _ in 0..3 {
        assert_eq!(replayed(&staged.caller.charge("k", 10).await), "run 1, attempt 1: 10");
    }
    let reused = staged.caller.charge("k", 11).await.expect_err("refused");
    assert_eq!(reused.code(), Code::InvalidArgument);
    assert!(reused.message().starts_with("This key was used for another request"));
    assert_eq!(reused.metadata().get("grpc-retry-pushback-ms").expect("a word"), "-1");
    assert_eq!(text(&staged.caller.charge("", 10).await), "run 2, attempt none: 10");
    assert_eq!(staged.runs(), 2);

    // What was recorded is there for the next process too.
    let gateway = staged.gateway.kill().start();
    let caller = Caller::connect(gateway.address).await;
    assert_eq!(replayed(&caller.charge("k", 10).await), "run 1, attempt 1: 10");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rival_is_told_to_try_again_and_gets_the_answer_of_the_run() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, waits) = (begun.clone(), go_on.clone());
    let staged = stage("", move |run, _| {
        let (begins, waits) = (begins.clone(), waits.clone());
        async move {
            begins.notify_one();
            waits.notified().await;
            receipt(format!("run {run}"))
        }
    })
    .await;
    let rival = async {
        begun.notified().await;
        let refused = staged.caller.charge("k", 10).await.expect_err("refused");
        assert_eq!(refused.code(), Code::Aborted);
        assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").expect("a word"), "1000");
        go_on.notify_one();
        let mut waiting = keyed("k", Charge { amount: 10 });
        waiting.metadata_mut().insert("prefer", "wait=10".parse().expect("ASCII"));
        staged.caller.send(waiting).await
    };
    let (first, rival) = tokio::join!(staged.caller.charge("k", 10), rival);
    assert_eq!((text(&first), replayed(&rival)), ("run 1", "run 1"));
    assert_eq!(staged.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_decides_what_becomes_of_the_key() {
    let hold = "[idempotency]\nserver_errors = \"hold\"\n";
    let keep = "[idempotency]\nserver_errors = \"keep\"\n";
    let table = [
        ("", Code::NotFound, Code::NotFound, 1),
        ("", Code::Unavailable, Code::Unavailable, 2),
        ("", Code::Unauthenticated, Code::Unauthenticated, 2),
        ("", Code::Internal, Code::Internal, 2),
        (keep, Code::Internal, Code::Internal, 1),
        (hold, Code::Internal, Code::FailedPrecondition, 1),
        // Nobody knows what was done, and this upstream has not shown that it may run again.
        ("", Code::DeadlineExceeded, Code::FailedPrecondition, 1),
        ("", Code::Cancelled, Code::FailedPrecondition, 1),
    ];
    for (settings, first, second, runs) in table {
        let work = move |_, _| async move { Err(Status::new(first, "so it is")) };
        let staged = stage(settings, work).await;
        let status = staged.caller.charge("k", 10).await.expect_err("a status");
        assert_eq!((status.code(), status.message()), (first, "so it is"));
        assert_eq!(code(staged.caller.charge("k", 10).await), second, "{first:?} {settings}");
        assert_eq!(staged.runs(), runs, "{first:?} {settings}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_pass_without_a_key_and_are_refused_with_one() {
    let staged =
        stage("", |_, request| async move { receipt(request.get_ref().amount.to_string()) }).await;
    let refused = staged.caller.charge_all("k", &[1, 2, 3]).await.expect_err("refused");
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().starts_with("A streaming call cannot have a key"));
    assert_eq!(staged.runs(), 0);
    assert_eq!(text(&staged.caller.charge_all("", &[1, 2, 3]).await), "3");
    let listed = staged.caller.list("list", 5).await.expect("receipts");
    assert_eq!((listed.len(), staged.runs()), (5, 2));
    assert_eq!(staged.caller.list("list", 5).await.expect("receipts"), listed);
    assert_eq!(staged.runs(), 2, "its answers are kept as any other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_in_the_middle_leaves_an_unknown_outcome() {
    let begun = Arc::new(Notify::new());
    let begins = begun.clone();
    let staged = stage("", move |_, _| {
        begins.notify_one();
        std::future::pending()
    });
    let Staged { caller, gateway: _gateway, runs, server } = staged.await;
    let dying = async {
        begun.notified().await;
        server.die();
    };
    let (lost, ()) = tokio::join!(caller.charge("k", 10), dying);
    assert_eq!(code(lost), Code::Unknown);
    assert_eq!(code(caller.charge("k", 10).await), Code::FailedPrecondition);
    assert_eq!(code(caller.charge("other", 10).await), Code::Unavailable);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_needs_a_key_is_told_so() {
    let settings = "[[route]]\nmatch = \"POST /payments.Payments/{method}\"\nkey = \"required\"\n";
    let gateway = Gateway::before(nobody()).over_http2().with(settings).start();
    let caller = Caller::connect(gateway.address).await;
    assert_eq!(code(caller.charge("", 10).await), Code::InvalidArgument);
    assert_eq!(code(caller.charge("a b", 10).await), Code::InvalidArgument);
    assert_eq!(code(caller.charge("k", 10).await), Code::Unavailable);
}
