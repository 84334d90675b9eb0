//! What would have become of a request, counted.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request};
use http_body_util::Full;
use selfsame::{
    IdempotencyService, JsonPointer, KeyMode, OnConflict, Policy, Recover, Served, ServerErrors,
};
use selfsame_core::Find;
use tokio::sync::Notify;
use tower::{Layer, ServiceExt};

use super::{Counted, charging, counted, observing, pass, reading};
use crate::grpc;
use crate::support::{Body, Inner, Rig, Runs, answer, post, send};

#[tokio::test]
async fn retries_run_as_ever_and_are_counted_as_what_they_would_have_been() {
    counted!(counted);
    let rig = Rig::new();
    let service = charging(&rig, observing());

    for number in 1..=3 {
        assert_eq!(pass(&rig, &service, post("k")).await, format!("charge {number}"));
    }
    let other = post("k").map(|_| Body::from(r#"{"amount":11}"#));
    assert_eq!(pass(&rig, &service, other).await, "charge 4");

    assert_eq!((counted.observed("executed"), counted.observed("replayed")), (1, 2));
    assert_eq!((counted.observed("key_reused"), counted.differing()), (1, 2));
    let passed = r#"selfsame_requests_total{route="default",outcome="passed"}"#;
    assert_eq!(counted.number(passed), 4);
}

#[tokio::test]
async fn a_retry_that_is_answered_the_same_does_not_differ() {
    counted!(counted);
    let rig = Rig::new();
    let service =
        reading(&rig, observing(), |_| async { Ok::<_, Infallible>(answer(201, "charged")) });
    pass(&rig, &service, post("k")).await;
    pass(&rig, &service, post("k")).await;
    assert_eq!((counted.observed("replayed"), counted.differing()), (1, 0));
}

#[tokio::test]
async fn what_would_be_refused_passes_and_is_counted() {
    counted!(counted);
    let rig = Rig::new();
    let policy = observing().key(KeyMode::Required).request_bytes_max(100);
    let service = charging(&rig, policy);
    let bare = || Request::post("/charges").body(Body::from("{}")).expect("a request");

    let mut two_keys = post("a");
    two_keys.headers_mut().append("idempotency-key", HeaderValue::from_static("b"));
    let mut of_a_cookie = post("c");
    of_a_cookie.headers_mut().insert("cookie", HeaderValue::from_static("sid=1"));
    let large = || post("large").map(|_| Body::from("x".repeat(101)));
    let mut announced = large();
    announced.headers_mut().insert("content-length", HeaderValue::from_static("101"));
    for request in [bare(), post("not valid"), two_keys, of_a_cookie, large(), announced] {
        pass(&rig, &service, request).await;
    }

    let table = [("missing_key", 1), ("invalid_key", 2), ("missing_tenant", 1), ("bad_body", 2)];
    for (outcome, number) in table {
        assert_eq!(counted.observed(outcome), number, "{outcome}");
    }
}

#[tokio::test]
async fn answers_that_would_not_be_kept_are_counted_by_what_a_retry_would_get() {
    let status = |status| move |_| async move { Ok::<_, Infallible>(answer(status, "")) };
    let table = [
        (observing(), 500, "resumed"),
        (observing(), 503, "resumed"),
        (observing().server_errors(ServerErrors::Keep), 500, "replayed"),
        (observing().server_errors(ServerErrors::Hold), 500, "held"),
        (observing().recover(Recover::Hold), 502, "held"),
        (observing().recover(Recover::Auto), 504, "held"),
        (observing(), 502, "resumed"),
        (observing().stream(true), 200, "not_kept"),
    ];
    for (policy, code, outcome) in table {
        counted!(counted);
        let rig = Rig::new();
        let service = reading(&rig, policy, status(code));
        pass(&rig, &service, post("k")).await;
        pass(&rig, &service, post("k")).await;
        assert_eq!((counted.observed("executed"), counted.observed(outcome)), (1, 1), "{code}");
        assert_eq!(rig.store.find(&Find::Held, 9).await.expect("found"), [], "{code}");
    }

    counted!(counted);
    let rig = Rig::new();
    let service = reading(&rig, observing(), status(401));
    pass(&rig, &service, post("k")).await;
    pass(&rig, &service, post("k")).await;
    assert_eq!(counted.observed("executed"), 2, "nothing is remembered");
}

#[tokio::test]
async fn an_answer_over_the_limit_passes_whole_and_would_not_be_kept() {
    counted!(counted);
    let rig = Rig::new();
    let large = "x".repeat(5000);
    let body = large.clone();
    let service = reading(&rig, observing().answer_bytes_max(1000), move |_| {
        let body = body.clone();
        async move { Ok::<_, Infallible>(answer(200, body)) }
    });
    for _ in 0..2 {
        assert_eq!(pass(&rig, &service, post("k")).await, large);
    }
    assert_eq!((counted.observed("executed"), counted.observed("not_kept")), (1, 1));
}

#[tokio::test]
async fn nothing_that_would_be_held_stays_longer_than_its_retention() {
    counted!(counted);
    let rig = Rig::new();
    let policy = observing().recover(Recover::Hold).retention(Duration::from_secs(60 * 60));
    let service = reading(&rig, policy, |_| async { Ok::<_, Infallible>(answer(502, "")) });
    pass(&rig, &service, post("k")).await;
    pass(&rig, &service, post("k")).await;
    rig.clock.pass(Duration::from_secs(60 * 60));
    pass(&rig, &service, post("k")).await;
    assert_eq!((counted.observed("executed"), counted.observed("held")), (2, 1));
}

#[tokio::test]
async fn enforcement_begins_with_nothing_of_what_was_observed() {
    let rig = Rig::new();
    let (observed, enforced) = (charging(&rig, observing()), charging(&rig, Policy::new()));
    pass(&rig, &observed, post("k")).await;
    let other = post("k").map(|_| Body::from(r#"{"amount":11}"#));
    let first = send(&enforced, other).await;
    assert_eq!((first.status, first.served), (201, Served::Executed));

    let records = rig.store.find(&Find::Key("k".into()), 9).await.expect("found");
    let mut observed: Vec<_> = records.iter().map(|record| record.label.is_observed()).collect();
    observed.sort_unstable();
    assert_eq!(observed, [false, true]);
}

fn gated(rig: &Rig, policy: Policy) -> (IdempotencyService<impl Inner<Infallible>>, Arc<Notify>) {
    let gate = Arc::new(Notify::new());
    let opens = gate.clone();
    let service = reading(rig, policy, move |number| {
        let gate = opens.clone();
        async move {
            if number == 1 {
                gate.notified().await;
            }
            Ok(answer(201, format!("charge {number}")))
        }
    });
    (service, gate)
}

#[tokio::test]
async fn a_request_beside_another_with_its_key_is_counted_as_in_progress_or_as_waiting() {
    for (on_conflict, outcome) in
        [(OnConflict::Reject, "in_progress"), (OnConflict::Wait, "waited")]
    {
        counted!(counted);
        let rig = Rig::new();
        let (service, gate) = gated(&rig, observing().on_conflict(on_conflict));
        let first = send(&service, post("k"));
        let rival = async {
            // So that the first is claimed before.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(send(&service, post("k")).await.body, "charge 2");
            gate.notify_one();
        };
        let (first, ()) = tokio::join!(first, rival);
        assert_eq!(first.body, "charge 1");
        rig.idempotency.drained().await;
        assert_eq!((counted.observed("executed"), counted.observed(outcome)), (1, 1));
    }
}

#[tokio::test]
async fn a_watch_that_died_leaves_nothing_held_behind() {
    for (recover, outcome) in [(Recover::Hold, "held"), (Recover::Resume, "resumed")] {
        counted!(counted);
        let rig = Rig::new();
        let (service, gate) = gated(&rig, observing().recover(recover));
        // Another process: the first one never takes over what it still runs.
        let other = Rig::on(rig.store.clone(), rig.clock.clone());
        let elsewhere = charging(&other, observing().recover(recover));
        let first = send(&service, post("k"));
        let retries = async {
            tokio::task::yield_now().await;
            // As if the first one's process had been stopped past its lease.
            rig.clock.pass(Duration::from_secs(60));
            for _ in 0..2 {
                send(&elsewhere, post("k")).await;
            }
            other.idempotency.drained().await;
            gate.notify_one();
        };
        tokio::join!(first, retries);
        rig.idempotency.drained().await;
        assert!(counted.observed(outcome) >= 1, "{recover:?}");
        assert_eq!(rig.store.find(&Find::Held, 9).await.expect("found"), []);
    }
}

#[tokio::test]
async fn of_a_body_that_nobody_read_nothing_can_be_said() {
    counted!(counted);
    let rig = Rig::new();
    let service =
        rig.service(observing(), |_| async { Ok::<_, Infallible>(answer(201, "charged")) });
    pass(&rig, &service, post("k")).await;
    let empty = post("k").map(|_| Full::default());
    pass(&rig, &service, empty).await;
    assert_eq!((counted.unobserved("unread"), counted.observed("executed")), (1, 1));
}

#[tokio::test]
async fn a_call_would_be_kept_or_freed_by_the_status_in_its_trailers() {
    for (status, retry) in [("0", "replayed"), ("14", "resumed"), ("13", "resumed")] {
        counted!(counted);
        let (rig, runs) = (Rig::new(), Runs::default());
        let service = rig.idempotency.layer(observing());
        let service = service.layer(grpc::ending_in("grpc-status", status, &runs));
        for _ in 0..2 {
            let answer = service.clone().oneshot(grpc::raw_call()).await.expect("no error");
            assert_eq!(grpc::status_of(answer).await, status);
            rig.idempotency.drained().await;
        }
        assert_eq!((counted.observed("executed"), counted.observed(retry)), (1, 1), "{status}");
        assert_eq!(runs.count(), 2, "{status}");
    }
}

#[tokio::test]
async fn keys_in_bodies_are_counted_as_those_in_headers() {
    counted!(counted);
    let rig = Rig::new();
    let pointer = JsonPointer::parse("/idempotency_key").expect("a pointer");
    let policy = observing().key_pointer(Some(pointer)).key(KeyMode::Required);
    let service = charging(&rig, policy.request_bytes_max(64));
    let request = |body: String| Request::post("/").body(Body::from(body)).expect("a request");
    let keyed = r#"{"idempotency_key":"k"}"#;
    for body in [keyed, keyed, "{}", r#"{"idempotency_key":1}"#, &"x".repeat(65)] {
        pass(&rig, &service, request(body.to_owned())).await;
    }
    let mut two = request(keyed.to_owned());
    two.headers_mut().insert("idempotency-key", HeaderValue::from_static("k"));
    pass(&rig, &service, two).await;
    let outcomes = ["executed", "replayed", "missing_key", "invalid_key"];
    assert_eq!(outcomes.map(|outcome| counted.observed(outcome)), [1, 1, 1, 2]);
    assert_eq!(counted.unobserved("too_large"), 1);
}
