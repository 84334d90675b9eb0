//! Which answers are kept.

use std::convert::Infallible;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};
use selfsame::{KeyMode, Outcome, Policy, Served, ServerErrors, StatusPattern, tenant};
use tower::ServiceExt;

use crate::support::{Body, Rig, Runs, answer, post, see, send};

#[tokio::test]
async fn the_second_request_gets_the_first_answer() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let counted = runs.clone();
    let service = rig.service(Policy::new(), move |_| {
        let number = counted.begin();
        async move { Ok::<_, Infallible>(answer(201, format!("charge {number}"))) }
    });

    let first = send(&service, post("k")).await;
    let retry = send(&service, post("k")).await;

    assert_eq!((first.status, first.replayed, first.served), (201, false, Served::Executed));
    assert_eq!((retry.status, retry.replayed, retry.served), (201, true, Served::Replayed));
    assert_eq!(first.body, retry.body);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_request_without_a_key_passes_or_is_refused() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let work = {
        let runs = runs.clone();
        move |_| {
            runs.begin();
            async { Ok::<_, Infallible>(answer(200, "ran")) }
        }
    };
    let request = || Request::post("/").body(Body::from("x")).expect("a request");
    let optional = rig.service(Policy::new(), work.clone());
    let required = rig.service(Policy::new().key(KeyMode::Required), work.clone());
    let off = rig.service(Policy::new().key(KeyMode::Off), work);

    assert_eq!(send(&optional, request()).await.served, Served::Passed);
    assert_eq!(send(&required, request()).await.served, Served::MissingKey);
    assert_eq!(send(&off, post("k")).await.served, Served::Passed);
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_policy_says_which_statuses_are_kept() {
    let number = |status| StatusPattern::status(status).expect("a status");
    let class = |text| StatusPattern::class(text).expect("a class");
    let policy = || {
        Policy::new()
            .final_statuses(vec![number(500), class("4xx")])
            .transient_statuses(vec![number(404), number(201)])
    };
    for (status, runs_expected) in [(500, 1), (429, 1), (401, 1), (404, 2), (501, 2), (201, 1)] {
        let (rig, runs) = (Rig::new(), Runs::default());
        let counted = runs.clone();
        let service = rig.service(policy(), move |_| {
            counted.begin();
            async move { Ok::<_, Infallible>(answer(status, "answered")) }
        });
        send(&service, post("k")).await;
        send(&service, post("k")).await;
        assert_eq!(runs.count(), runs_expected, "{status}");
    }
}

#[tokio::test]
async fn callers_are_told_apart_by_a_header_that_is_their_credential() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let work = {
        let runs = runs.clone();
        move |_| {
            let number = runs.begin();
            async move { Ok::<_, Infallible>(answer(201, format!("charge {number}"))) }
        }
    };
    let name = HeaderName::from_static("x-api-key");
    let of = move |parts: &Parts| tenant::credential(parts, &name);
    let [usual, named] = [Policy::new(), Policy::new().tenant(of)].map(|policy| {
        let service = rig.service(policy, work.clone());
        move |caller: &'static str| {
            let mut request = post("k");
            request.headers_mut().insert("x-api-key", HeaderValue::from_static(caller));
            service.clone().oneshot(request)
        }
    });
    for caller in ["ann", "bob"] {
        let refused = usual(caller).await.expect("no error");
        assert_eq!(refused.status(), 401);
        assert_eq!(refused.headers()["www-authenticate"], "ApiKey header=\"X-Api-Key\"");
    }
    assert_eq!(runs.count(), 0);
    for (caller, replayed) in [("ann", false), ("bob", false), ("ann", true)] {
        let seen = see(named(caller).await.expect("no error")).await;
        assert_eq!((seen.status, seen.replayed), (201, replayed), "{caller}");
    }
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_handlers_own_word_goes_before_its_status() {
    for (word, runs_expected) in [("final", 1), ("transient", 2), ("unknown", 2)] {
        let (rig, runs) = (Rig::new(), Runs::default());
        let counted = runs.clone();
        let service = rig.service(Policy::new(), move |_| {
            counted.begin();
            async move {
                let mut response = answer(200, "said");
                let word = HeaderValue::from_static(word);
                response.headers_mut().insert("idempotency-outcome", word);
                Ok::<_, Infallible>(response)
            }
        });
        let first = service.clone().oneshot(post("k")).await.expect("no error");
        assert!(!first.headers().contains_key("idempotency-outcome"), "{word}");
        send(&service, post("k")).await;
        assert_eq!(runs.count(), runs_expected, "{word}");
    }
}

#[tokio::test]
async fn a_handler_may_say_it_by_extension() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let counted = runs.clone();
    let service = rig.service(Policy::new(), move |_| {
        counted.begin();
        async {
            let mut response = answer(500, "never again");
            response.extensions_mut().insert(Outcome::Final);
            Ok::<_, Infallible>(response)
        }
    });
    send(&service, post("k")).await;
    assert!(send(&service, post("k")).await.replayed);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn server_errors_follow_the_policy() {
    let table = [
        (ServerErrors::Retry, Served::Resumed, 2),
        (ServerErrors::Keep, Served::Replayed, 1),
        (ServerErrors::Hold, Served::Held, 1),
    ];
    for (server_errors, served, runs_expected) in table {
        let (rig, runs) = (Rig::new(), Runs::default());
        let counted = runs.clone();
        let service = rig.service(Policy::new().server_errors(server_errors), move |_| {
            counted.begin();
            async { Ok::<_, Infallible>(answer(500, "oops")) }
        });
        assert_eq!(send(&service, post("k")).await.status, 500);
        assert_eq!(send(&service, post("k")).await.served, served, "{server_errors:?}");
        assert_eq!(runs.count(), runs_expected, "{server_errors:?}");
    }
}
