//! What neither clients nor services notice.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use selfsame::stores::MemoryStore;
use selfsame::{Mode, OnStoreError, Outcome, Policy, Recover, RequestBody, Run, Served};
use selfsame_core::conformance::SettableClock;
use tokio::sync::{Notify, mpsc};
use tower::{Layer, ServiceExt};

use super::{Counted, charging, counted, observing, pass, reading};
use crate::faulty::{Fault, Faulty};
use crate::support::{Body, Rig, answer, post, send};

#[tokio::test]
async fn the_answer_is_the_services_own_but_for_its_word_to_us() {
    let rig = Rig::new();
    let service = reading(&rig, observing(), |_| async {
        let response = Response::builder()
            .status(201)
            .header("date", "Sun, 15 Nov 2026 00:00:00 GMT")
            .header("idempotency-outcome", "final")
            .header("x-twice", "1")
            .header("x-twice", "2");
        Ok::<_, Infallible>(response.body(Body::from("done")).expect("a response"))
    });
    for _ in 0..2 {
        let response = service.clone().oneshot(post("k")).await.expect("no error");
        let headers: Vec<_> = response.headers().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(headers, ["date", "x-twice", "x-twice"]);
        assert_eq!(response.extensions().get::<Outcome>(), None);
    }
}

type Frames = mpsc::Receiver<Result<Frame<Bytes>, Infallible>>;

fn channel() -> (
    mpsc::Sender<Result<Frame<Bytes>, Infallible>>,
    impl http_body::Body<Data = Bytes, Error = Infallible> + Send + Unpin,
) {
    let (frames, received) = mpsc::channel(1);
    let stream = futures_util::stream::unfold(received, |mut received: Frames| async move {
        received.recv().await.map(|frame| (frame, received))
    });
    (frames, StreamBody::new(Box::pin(stream)))
}

fn frame(text: &'static str) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    counted!(counted);
    let rig = Rig::new();
    let (upload, request_body) = channel();
    let (download, response_body) = channel();
    let response_body = Arc::new(parking_lot::Mutex::new(Some(response_body)));
    let service = tower::service_fn(move |request: Request<RequestBody<_>>| {
        let response_body = response_body.lock().take().expect("one request");
        async move {
            assert!(request.extensions().get::<Run>().is_none(), "there is no claim to see");
            let mut body = request.into_body();
            let first = body.frame().await.expect("a frame").expect("no error");
            assert_eq!(first.into_data().expect("data"), "first");
            // The rest of the request comes when the answer is under way.
            tokio::task::spawn_local(async move { body.collect().await.expect("the rest") });
            Ok::<_, Infallible>(Response::new(response_body))
        }
    });
    let service = rig.idempotency.layer(observing()).layer(service);
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            upload.send(frame("first")).await.expect("listened to");
            let request = post("k").map(|_| request_body);
            let mut answer = service.oneshot(request).await.expect("no error").into_body();
            download.send(frame("begun")).await.expect("listened to");
            let begun = answer.frame().await.expect("a frame").expect("no error");
            assert_eq!(begun.into_data().expect("data"), "begun");
            upload.send(frame("last")).await.expect("listened to");
            drop(upload);
            drop(download);
            assert!(answer.frame().await.is_none());
        })
        .await;
    local.await;
    rig.idempotency.drained().await;
    assert_eq!(counted.observed("executed"), 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_cancels_the_work_and_its_retry_would_have_got_the_answer() {
    counted!(counted);
    let rig = Rig::new();
    let (begun, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, drops) = (begun.clone(), dropped.clone());
    struct OnDrop(Arc<Notify>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let service = reading(&rig, observing(), move |number| {
        let (begins, guard) = (begins.clone(), OnDrop(drops.clone()));
        async move {
            let _guard = guard;
            begins.notify_one();
            match number {
                1 => std::future::pending().await,
                _ => Ok::<_, Infallible>(answer(201, "charged")),
            }
        }
    });
    let call = service.clone().oneshot(post("k"));
    tokio::select! {
        _ = call => panic!("the work waits"),
        () = begun.notified() => {}
    }
    dropped.notified().await;
    rig.idempotency.drained().await;
    pass(&rig, &service, post("k")).await;
    assert_eq!((counted.observed("executed"), counted.observed("replayed")), (1, 1));
    assert_eq!(counted.differing(), 0, "nobody heard the first answer");
}

#[tokio::test]
async fn errors_and_panics_pass_untouched_and_would_have_an_unknown_outcome() {
    #[derive(Debug, PartialEq)]
    struct CardDeclined;
    for panics in [false, true] {
        counted!(counted);
        let rig = Rig::new();
        let service = reading(&rig, observing().recover(Recover::Hold), move |_| async move {
            assert!(!panics, "the handler panics");
            Err(CardDeclined)
        });
        for _ in 0..2 {
            let call = AssertUnwindSafe(service.clone().oneshot(post("k"))).catch_unwind();
            let ended = call.await.map(|answered| answered.map(drop));
            assert_eq!(ended.is_err(), panics);
            assert!(ended.is_err() || ended.is_ok_and(|error| error == Err(CardDeclined)));
            rig.idempotency.drained().await;
        }
        assert_eq!((counted.observed("executed"), counted.observed("held")), (1, 1));
    }
}

fn on_faulty() -> (Rig, Arc<Faulty>) {
    let clock = Arc::new(SettableClock::new());
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::with_clock(clock.clone()))));
    (Rig::on(faulty.clone(), clock), faulty)
}

#[tokio::test]
async fn while_the_store_is_down_everything_passes() {
    for (on_store_error, outcome) in
        [(OnStoreError::Reject, "store_error"), (OnStoreError::Bypass, "bypassed")]
    {
        counted!(counted);
        let (rig, faulty) = on_faulty();
        let service = charging(&rig, observing().on_store_error(on_store_error));
        faulty.set(Fault::Down);
        pass(&rig, &service, post("k")).await;
        pass(&rig, &service, post("k")).await;
        assert_eq!(counted.observed(outcome), 2);
    }
}

#[tokio::test]
async fn nobody_waits_for_a_store_that_hangs_and_only_so_many_are_observed() {
    counted!(counted);
    let (rig, faulty) = on_faulty();
    let service = charging(&rig, observing());
    faulty.set(Fault::Stuck);
    for number in 1..=1026 {
        let seen = send(&service, post(&format!("k-{number}"))).await;
        assert_eq!((seen.served, seen.body), (Served::Passed, format!("charge {number}")));
    }
    assert_eq!(counted.unobserved("too_many"), 2);
    assert_eq!(counted.observed("executed"), 0);
}

#[tokio::test]
async fn what_is_only_observed_takes_no_place_of_what_is_enforced() {
    let rig = Rig::new();
    let limited = |mode| Policy::new().mode(mode).max_live_keys(Some(1)).max_claims(Some(1));
    let observed = charging(&rig, limited(Mode::Observe));
    for key in ["a", "b", "c"] {
        assert_eq!(send(&observed, post(key)).await.served, Served::Passed);
        rig.idempotency.drained().await;
    }
    let enforced = charging(&rig, limited(Mode::Enforce));
    assert_eq!(send(&enforced, post("d")).await.served, Served::Executed);
    assert_eq!(send(&enforced, post("e")).await.served, Served::TooManyKeys);
    assert_eq!(send(&observed, post("f")).await.served, Served::Passed);
}
