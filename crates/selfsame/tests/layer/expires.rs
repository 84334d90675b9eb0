//! Until when an answer can be had, which `Idempotency-Expires` says; and what comes after.

use std::convert::Infallible;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, Response};
use selfsame::{IdempotencyService, Policy, Recover, Served, ServerErrors};
use selfsame_core::Timestamp;
use tower::ServiceExt;

use crate::faulty::{Fault, faulty_rig};
use crate::support::{Body, Inner, Rig, Runs, answer, post, send};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const HOUR: Duration = Duration::from_secs(60 * 60);

async fn headers<S: Inner<Infallible>>(service: &IdempotencyService<S>, key: &str) -> HeaderMap {
    service.clone().oneshot(post(key)).await.expect("no error").headers().clone()
}

/// The moment the header names.
fn expiry(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get("idempotency-expires")?.to_str().expect("a date is text");
    let date = httpdate::parse_http_date(text).expect("an HTTP date");
    assert_eq!(httpdate::fmt_http_date(date), text, "as HTTP would rather have it");
    let since = date.duration_since(UNIX_EPOCH).expect("after 1970");
    Some(Timestamp::default() + since)
}

async fn now(rig: &Rig) -> Timestamp {
    rig.store.now().await.expect("the store works")
}

#[tokio::test]
async fn the_first_answer_and_every_replay_say_when_the_key_expires() {
    let rig = Rig::new();
    let service = rig.service(Policy::new(), |_| async { Ok(answer(201, "charged")) });
    let expected = Some(now(&rig).await + DAY);
    assert_eq!(expiry(&headers(&service, "k").await), expected);
    rig.clock.pass(HOUR);
    assert_eq!(expiry(&headers(&service, "k").await), expected);
}

#[tokio::test]
async fn a_late_answer_says_how_long_it_is_kept_indeed() {
    let rig = Rig::new();
    let clock = rig.clock.clone();
    let policy = Policy::new().recover(Recover::Resume).lease(DAY * 2);
    let service = rig.service(policy, move |_| {
        clock.pass(DAY);
        async { Ok(answer(201, "at last")) }
    });
    let first = expiry(&headers(&service, "k").await);
    assert_eq!(first, Some(now(&rig).await + HOUR));
    assert_eq!(expiry(&headers(&service, "k").await), first);
}

#[tokio::test]
async fn no_more_than_the_whole_second_is_promised() {
    let rig = Rig::new();
    rig.clock.pass(Duration::from_millis(999));
    let service = rig.service(Policy::new(), |_| async { Ok(answer(201, "charged")) });
    let promised = expiry(&headers(&service, "k").await).expect("a kept answer says so");
    assert_eq!((now(&rig).await + DAY).since(promised), Duration::from_millis(999));
}

#[tokio::test]
async fn an_answer_too_large_to_keep_says_when_its_key_expires() {
    let rig = Rig::new();
    let policy = Policy::new().answer_bytes_max(3);
    let service = rig.service(policy, |_| async { Ok(answer(200, "too large")) });
    assert_eq!(expiry(&headers(&service, "k").await), Some(now(&rig).await + DAY));
    assert_eq!(expiry(&headers(&service, "k").await), None, "a refusal says nothing");
}

#[tokio::test]
async fn an_answer_that_waits_for_the_store_says_what_its_claim_was_told() {
    let (rig, faulty) = faulty_rig();
    let service = rig.service(Policy::new(), move |_| {
        faulty.set(Fault::Down);
        async { Ok(answer(201, "charged")) }
    });
    assert_eq!(expiry(&headers(&service, "k").await), Some(now(&rig).await + DAY));
}

#[tokio::test]
async fn answers_whose_key_is_free_or_held_say_nothing() {
    for (status, server_errors) in
        [(503, ServerErrors::Retry), (401, ServerErrors::Retry), (500, ServerErrors::Hold)]
    {
        let rig = Rig::new();
        let policy = Policy::new().server_errors(server_errors);
        let service = rig.service(policy, move |_| async move { Ok(of_its_own(status)) });
        assert_eq!(expiry(&headers(&service, "k").await), None, "{status}");
    }
}

#[tokio::test]
async fn ours_takes_the_place_of_the_handlers_own_and_is_not_kept() {
    let rig = Rig::new();
    let respond = |_| async { Ok(of_its_own(201)) };
    let service = rig.service(Policy::new(), respond);
    let expected = Some(now(&rig).await + DAY);
    for _ in 0..2 {
        let headers = headers(&service, "k").await;
        assert_eq!(headers.get_all("idempotency-expires").iter().count(), 1);
        assert_eq!(expiry(&headers), expected);
    }
    let silent = rig.service(Policy::new().expires_header(false), respond);
    assert!(!headers(&silent, "k").await.contains_key("idempotency-expires"));
}

#[tokio::test]
async fn switched_off_the_handlers_own_is_a_header_like_any_other() {
    let rig = Rig::new();
    let service =
        rig.service(Policy::new().expires_header(false), |_| async { Ok(of_its_own(201)) });
    for _ in 0..2 {
        assert_eq!(headers(&service, "k").await["idempotency-expires"], "tomorrow");
    }
}

#[tokio::test]
async fn a_remembered_key_is_refused_after_its_expiry_and_not_run() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let counted = runs.clone();
    let service = rig.service(Policy::new().remember(DAY * 30), move |_| {
        counted.begin();
        async { Ok::<_, Infallible>(answer(201, "charged")) }
    });
    send(&service, post("k")).await;
    rig.clock.pass(DAY);
    for _ in 0..2 {
        let refused = send(&service, post("k")).await;
        assert_eq!((refused.status, refused.served), (410, Served::Expired));
        rig.store.sweep(10_000).await.expect("the store works");
    }
    assert_eq!(expiry(&headers(&service, "k").await), None);
    assert_eq!(runs.count(), 1);
    rig.clock.pass(DAY * 30);
    assert_eq!(send(&service, post("k")).await.served, Served::Executed);
}

/// An answer of a handler that speaks of keys itself.
fn of_its_own(status: u16) -> Response<Body> {
    let mut response = answer(status, "done");
    response.headers_mut().insert("idempotency-expires", "tomorrow".parse().expect("a value"));
    response
}
