//! What a policy counts as the same request.

use std::convert::Infallible;

use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HOST, USER_AGENT};
use http::{HeaderName, Request};
use selfsame::{JsonPointer, Policy, Served, tenant};

use crate::support::{Body, Rig, answer, send};

/// A keyed request with these headers and this JSON.
fn request(target: &str, headers: &[(HeaderName, &str)], body: &'static str) -> Request<Body> {
    let mut request = Request::post(target).header("idempotency-key", "k");
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let request = request.header(CONTENT_TYPE, "application/json");
    request.body(Body::from(body)).expect("a request")
}

/// What becomes of the second request, behind the first.
async fn second(policy: Policy, first: Request<Body>, second: Request<Body>) -> Served {
    let work = |_| async { Ok::<_, Infallible>(answer(201, "charged")) };
    let service = Rig::new().service(policy, work);
    assert_eq!(send(&service, first).await.served, Served::Executed);
    send(&service, second).await.served
}

#[tokio::test]
async fn the_host_counts_where_the_policy_says_so() {
    let at = |host| request("/charges", &[(HOST, host)], "{}");
    let counted = || Policy::new().fingerprint_authority(true);
    let a = "a.example";
    assert_eq!(second(Policy::new(), at(a), at("b.example")).await, Served::Replayed);
    assert_eq!(second(counted(), at(a), at("A.Example")).await, Served::Replayed);
    assert_eq!(second(counted(), at(a), at("b.example")).await, Served::KeyReused);
    assert_eq!(second(counted(), at(a), at("a.example:8080")).await, Served::KeyReused);
    // As HTTP/2 has it.
    let target = request("http://a.example/charges", &[], "{}");
    assert_eq!(second(counted(), at(a), target).await, Served::Replayed);
    assert_eq!(second(counted(), at(a), request("/charges", &[], "{}")).await, Served::KeyReused);
}

#[tokio::test]
async fn headers_that_differ_between_retries_never_count() {
    let traceparent = HeaderName::from_static("traceparent");
    let account = HeaderName::from_static("x-account");
    let names = vec![traceparent.clone(), account.clone(), AUTHORIZATION, DATE, USER_AGENT];
    let policy = || Policy::new().tenant(tenant::none).fingerprint_headers(names.clone());
    let with = |value: &str, account_value: &str| {
        let headers = [&traceparent, &AUTHORIZATION, &DATE, &USER_AGENT];
        let mut headers: Vec<_> = headers.map(|name| (name.clone(), value)).into();
        headers.push((account.clone(), account_value));
        request("/charges", &headers, "{}")
    };
    assert_eq!(second(policy(), with("1", "a"), with("2", "a")).await, Served::Replayed);
    assert_eq!(second(policy(), with("1", "a"), with("1", "b")).await, Served::KeyReused);
}

#[tokio::test]
async fn what_is_ignored_does_not_count() {
    let pointers = ["/sent_at", "/meta/trace"].map(|text| JsonPointer::parse(text).expect("valid"));
    let policy = || Policy::new().ignore(pointers.to_vec());
    let post = |body| request("/charges", &[], body);
    let first = r#"{"amount":10,"sent_at":1,"meta":{"trace":"a"}}"#;
    let later = r#"{"amount":10,"sent_at":2,"meta":{}}"#;
    assert_eq!(second(policy(), post(first), post(later)).await, Served::Replayed);
    let other = r#"{"amount":11,"sent_at":1,"meta":{"trace":"a"}}"#;
    assert_eq!(second(policy(), post(first), post(other)).await, Served::KeyReused);
    assert_eq!(second(Policy::new(), post(first), post(later)).await, Served::KeyReused);
}
