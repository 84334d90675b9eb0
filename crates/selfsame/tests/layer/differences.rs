//! What a request under a used key is told of the first one.

use std::convert::Infallible;

use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use selfsame::{Dialect, JsonPointer, Policy, Profile, Served};
use serde_json::{Value, json};

use crate::support::{Body, Rig, answer, send};

const FIRST: &str = r#"{"amount":10,"currency":"eur","note":"secret value","sent_at":1}"#;

fn hinting() -> Policy {
    Policy::new().mismatch_hint(true)
}

fn request(target: &str, body: &str) -> Request<Body> {
    let request = Request::post(target).header("idempotency-key", "k");
    let request =
        request.header(AUTHORIZATION, "Bearer a").header(CONTENT_TYPE, "application/json");
    request.body(Body::from(body.to_owned())).expect("a request")
}

/// The refusal of the second request, behind the first.
async fn refusal(policy: Policy, first: Request<Body>, second: Request<Body>) -> Value {
    let work = |_| async { Ok::<_, Infallible>(answer(201, "charged")) };
    let service = Rig::new().service(policy, work);
    assert_eq!(send(&service, first).await.served, Served::Executed);
    let seen = send(&service, second).await;
    assert_eq!(seen.served, Served::KeyReused);
    assert!(!seen.body.contains("secret value"), "{}", seen.body);
    serde_json::from_str(&seen.body).expect("JSON")
}

#[tokio::test]
async fn the_members_that_differ_are_named() {
    let ignore = vec![JsonPointer::parse("/sent_at").expect("valid")];
    let second = r#"{"amount":11,"currency":"eur","sent_at":2,"to":"bob"}"#;
    let refusal =
        refusal(hinting().ignore(ignore), request("/charges", FIRST), request("/charges", second))
            .await;
    let expected = json!({
        "parts": [], "members": ["amount", "to"], "more_members": 0, "missing_members": 1,
    });
    assert_eq!(refusal["mismatch"], expected);
    let detail = refusal["detail"].as_str().expect("text");
    let told = "; use a new key for a new operation. Compared with the first request, in the body amount, to \
                differ; 1 member of the body is missing";
    assert!(detail.ends_with(told), "{detail}");
}

#[tokio::test]
async fn another_path_is_named_as_such() {
    let refusal =
        refusal(hinting(), request("/charges", FIRST), request("/refunds?all", FIRST)).await;
    assert_eq!(refusal["mismatch"]["parts"], json!(["path", "query"]));
    let detail = refusal["detail"].as_str().expect("text");
    assert!(detail.ends_with("the path differs; the query differs"), "{detail}");
}

#[tokio::test]
async fn stripes_sdks_find_it_in_the_message() {
    let policy = hinting().dialect(Dialect::new(Profile::Stripe, "/rules"));
    let second = FIRST.replace("10", "11");
    let refusal = refusal(policy, request("/charges", FIRST), request("/charges", &second)).await;
    let message = refusal["error"]["message"].as_str().expect("text");
    assert!(message.ends_with("in the body amount differ"), "{message}");
    assert_eq!(refusal["error"]["mismatch"]["members"], json!(["amount"]));
}

#[tokio::test]
async fn only_so_many_are_named_and_only_so_much_of_a_name() {
    let long = "n".repeat(1000);
    let members: Vec<_> = (0..12).map(|at| format!("\"{at:02}{long}\":1")).collect();
    let second = format!("{{{}}}", members.join(","));
    let refusal = refusal(hinting(), request("/charges", "{}"), request("/charges", &second)).await;
    let names = refusal["mismatch"]["members"].as_array().expect("a list");
    assert_eq!((names.len(), &refusal["mismatch"]["more_members"]), (8, &json!(4)));
    assert!(names.iter().all(|name| name.as_str().is_some_and(|n| n.chars().count() == 65)));
    assert!(
        refusal["detail"].as_str().is_some_and(|detail| detail.contains("… and 4 more differ"))
    );
}

#[tokio::test]
async fn nothing_is_told_where_nobody_asked_for_it_or_strangers_share_their_keys() {
    let second = FIRST.replace("10", "11");
    let plain = refusal(Policy::new(), request("/charges", FIRST), request("/charges", &second));
    assert_eq!(plain.await.get("mismatch"), None);
    let [first, second] = [FIRST, &second].map(|body| {
        let mut request = request("/charges", body);
        request.headers_mut().remove(AUTHORIZATION);
        request
    });
    assert_eq!(refusal(hinting(), first, second).await.get("mismatch"), None);
}

#[tokio::test]
async fn the_parts_that_differ_are_always_named() {
    let moved = || {
        let mut request = request("/refunds?all", &FIRST.replace("10", "11"));
        request.headers_mut().remove(CONTENT_TYPE);
        request
    };
    let parts = json!(["path", "query", "content type"]);
    let plain = refusal(Policy::new(), request("/charges", FIRST), moved()).await;
    assert_eq!(plain["mismatch"]["parts"], parts);
    assert_eq!(plain["mismatch"]["members"], json!([]), "members are named where it was asked for");
    let detail = plain["detail"].as_str().expect("text");
    let told = "the path differs; the query differs; the content type differs";
    assert!(detail.ends_with(told), "{detail}");

    let stripe = Policy::new().dialect(Dialect::new(Profile::Stripe, "/rules"));
    let stripe = refusal(stripe, request("/charges", FIRST), moved()).await;
    assert_eq!(stripe["error"]["mismatch"]["parts"], parts);

    let [first, second] = [request("/charges", FIRST), moved()].map(|mut request| {
        request.headers_mut().remove(AUTHORIZATION);
        request
    });
    let shared = refusal(hinting(), first, second).await;
    assert_eq!(shared["mismatch"]["parts"], parts);
    assert_eq!(shared["mismatch"]["members"], json!([]));
}

#[tokio::test]
async fn a_record_that_was_made_without_it_tells_nothing() {
    let work = |_| async { Ok::<_, Infallible>(answer(201, "charged")) };
    let rig = Rig::new();
    let (before, after) = (rig.service(Policy::new(), work), rig.service(hinting(), work));
    assert_eq!(send(&before, request("/charges", FIRST)).await.served, Served::Executed);
    let seen = send(&after, request("/charges", "{}")).await;
    assert_eq!(seen.served, Served::KeyReused);
    assert!(!seen.body.contains("mismatch"), "{}", seen.body);
}
