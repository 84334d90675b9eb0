//! Bodies that panic while they are read, and policies with times at the limits.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt;
use selfsame::{Key, OnConflict, OnceError, Policy, Recover, RequestBody, Served};
use selfsame_core::Find;
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt};

use crate::support::{Body, Rig, Runs, answer, post, send};

/// A body that is read so far, and then panics or ends.
struct Fragile {
    frames: usize,
    panics: bool,
}

impl HttpBody for Fragile {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.frames == 0 {
            assert!(!self.panics, "the body panics");
            return Poll::Ready(None);
        }
        self.frames -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"paid ")))))
    }
}

#[tokio::test]
async fn a_body_that_panics_is_a_crash_of_its_handler() {
    for (recover, served) in [(Recover::Resume, Served::Resumed), (Recover::Hold, Served::Held)] {
        let (rig, runs) = (Rig::new(), Runs::default());
        let service = tower::service_fn(move |_: Request<RequestBody<Body>>| {
            let panics = runs.begin() == 1;
            async move { Ok::<_, Infallible>(Response::new(Fragile { frames: 2, panics })) }
        });
        let service = rig.idempotency.layer(Policy::new().recover(recover)).layer(service);
        let mut caller = JoinSet::from_iter([service.clone().oneshot(post("k"))]);
        let ended = caller.join_next().await.expect("one task").map(drop);
        assert!(ended.is_err_and(|error| error.is_panic()), "the caller sees the panic");
        // By the store's clock no time has passed: the lease is not over.
        let retry = service.clone().oneshot(post("k")).await.expect("no error");
        assert_eq!(retry.extensions().get(), Some(&served));
    }
}

#[tokio::test]
async fn a_stream_that_panics_is_cut_off_and_its_key_decided() {
    let rig = Rig::new();
    let service = tower::service_fn(|_: Request<RequestBody<Body>>| async {
        Ok::<_, Infallible>(Response::new(Fragile { frames: 2, panics: true }))
    });
    let service = rig.idempotency.layer(Policy::new().stream(true)).layer(service);
    let first = service.clone().oneshot(post("k")).await.expect("no error");
    let read = first.into_body().collect().await;
    assert!(read.is_err(), "a torso is not passed off as whole");
    rig.idempotency.drained().await;
    let retry = service.clone().oneshot(post("k")).await.expect("no error");
    assert_eq!(retry.extensions().get(), Some(&Served::NotKept));
}

/// A result that cannot even be written.
#[derive(serde::Deserialize)]
struct Unwritable;

impl serde::Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("the result panics")
    }
}

#[tokio::test]
async fn a_result_that_panics_is_a_crash_of_its_function() {
    let rig = Rig::new();
    let call = || {
        let key = Key::parse(b"k").expect("a key");
        rig.idempotency.once("charge", key).policy(Policy::new().recover(Recover::Hold))
    };
    let mut caller =
        JoinSet::from_iter([call().run(|_| async { Ok::<_, Infallible>(Unwritable) })]);
    let ended = caller.join_next().await.expect("one task").map(drop);
    assert!(ended.is_err_and(|error| error.is_panic()));
    let retry = call().run(|_| async { Ok::<_, Infallible>(1) }).await;
    assert!(matches!(retry, Err(OnceError::OutcomeUnknown)), "{retry:?}");
}

#[tokio::test]
async fn no_policy_makes_a_request_panic() {
    for time in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let rig = Rig::new();
        let policy = Policy::new()
            .lease(time)
            .retention(Duration::MAX)
            .remember(time)
            .wait_max(time)
            .response_timeout(Duration::MAX)
            .run_timeout(Duration::MAX)
            .max_live_keys(Some(9))
            .on_conflict(OnConflict::Wait);
        let service = rig.service(policy.clone(), |_| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok::<_, Infallible>(answer(201, "charged"))
        });
        let (first, second) = tokio::join!(send(&service, post("k")), send(&service, post("k")));
        assert_eq!(first.body, "charged", "{time:?}");
        assert!(matches!(second.served, Served::Waited | Served::InProgress), "{second:?}");
        let key = Key::parse(b"k").expect("a key");
        let call = rig.idempotency.once("charge", key).policy(policy);
        assert_eq!(call.run(|_| async { Ok::<_, Infallible>(1) }).await.expect("made"), 1);
        assert_eq!(rig.store.find(&Find::Held, 9).await.expect("found"), []);
    }
}
