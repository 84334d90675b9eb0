//! Where keys come from, and which of them are taken.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use selfsame::stores::SystemClock;
use selfsame::{
    IdempotencyService, JsonPointer, KeyFormat, KeyMode, KeyRules, Policy, RequestBody, Served,
};
use selfsame_core::Clock;
use tower::{Layer, Service, ServiceExt};

use crate::support::{Body, Inner, Rig, Runs, Seen, answer, see, send};

fn in_body() -> Policy {
    let pointer = JsonPointer::parse("/idempotency_key").expect("a pointer");
    Policy::new().key_pointer(Some(pointer))
}

/// A service that answers with its number and with what it was sent.
fn echo(rig: &Rig, policy: Policy) -> IdempotencyService<impl Inner<Infallible>> {
    let runs = Runs::default();
    let service = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let number = runs.begin();
        async move {
            let body = request.into_body().collect().await.expect("whole").to_bytes();
            Ok(answer(201, format!("{number} {}", String::from_utf8_lossy(&body))))
        }
    });
    rig.idempotency.layer(policy).layer(service)
}

fn json(body: &'static str) -> Request<Body> {
    let request = Request::post("/charges").header(CONTENT_TYPE, "application/json");
    request.body(Full::from(body)).expect("a request")
}

fn with_key(key: &str, mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().insert("idempotency-key", key.parse().expect("a value"));
    request
}

#[tokio::test]
async fn a_key_in_the_body_is_a_key() {
    let service = echo(&Rig::new(), in_body());
    const SENT: &str = r#"{"amount":10,"idempotency_key":"k"}"#;
    let first = send(&service, json(SENT)).await;
    assert_eq!((first.served, first.body), (Served::Executed, format!("1 {SENT}")));
    let retry = send(&service, json(r#"{"idempotency_key":"k", "amount":10}"#)).await;
    assert_eq!((retry.served, retry.body), (Served::Replayed, format!("1 {SENT}")));
    let other = send(&service, json(r#"{"amount":11,"idempotency_key":"k"}"#)).await;
    assert_eq!(other.served, Served::KeyReused);
    // The same key in a header is the same key; the body is another one.
    let header = send(&service, with_key("k", json(r#"{"amount":10}"#))).await;
    assert_eq!(header.served, Served::KeyReused);
    // Whatever it is called.
    let mut named = json(SENT);
    named.headers_mut().remove(CONTENT_TYPE);
    assert_eq!(send(&service, named).await.served, Served::KeyReused);
}

#[tokio::test]
async fn a_key_in_the_body_beside_one_in_a_header_is_an_error() {
    let service = echo(&Rig::new(), in_body());
    for body in
        [r#"{"idempotency_key":"k"}"#, r#"{"idempotency_key":"l"}"#, r#"{"idempotency_key":1}"#]
    {
        let seen = send(&service, with_key("k", json(body))).await;
        assert_eq!((seen.status, seen.served), (400, Served::InvalidKey), "{body}");
        assert!(seen.body.contains("more than one key"), "{}", seen.body);
    }
    assert_eq!(send(&service, with_key("k", json("{}"))).await.served, Served::Executed);
}

#[tokio::test]
async fn what_is_no_key_in_a_body_is_refused() {
    let service = echo(&Rig::new(), in_body());
    for body in [
        r#"{"idempotency_key":null}"#,
        r#"{"idempotency_key":"a b"}"#,
        r#"{"idempotency_key":"a","idempotency_key":"b"}"#,
    ] {
        let seen = send(&service, json(body)).await;
        assert_eq!((seen.status, seen.served), (400, Served::InvalidKey), "{body}");
    }
}

#[tokio::test]
async fn a_body_without_a_key_passes_as_it_came_or_is_refused() {
    let rig = Rig::new();
    let (optional, required) =
        (echo(&rig, in_body()), echo(&rig, in_body().key(KeyMode::Required)));
    for body in ["", "{ }", r#" {"a" : [1.0]} "#, "a=b&idempotency_key=k", "--x\r\n"] {
        let seen = send(&optional, json(body)).await;
        assert_eq!(seen.served, Served::Passed, "{body}");
        assert_eq!(seen.body.split_once(' ').expect("numbered").1, body);
        let refused = send(&required, json(body)).await;
        assert_eq!((refused.status, refused.served), (400, Served::MissingKey), "{body}");
        assert!(refused.body.contains("/idempotency_key"), "{}", refused.body);
    }
}

#[tokio::test]
async fn a_packed_body_is_looked_into() {
    let service = echo(&Rig::new(), in_body());
    let packed = |body: &'static [u8]| {
        let request = Request::post("/charges").header(CONTENT_ENCODING, "gzip");
        request.body(Full::from(body)).expect("a request")
    };
    // {"idempotency_key":"k"}
    const PACKED: &[u8] = include_bytes!("packed-key.gz");
    assert_eq!(send(&service, packed(PACKED)).await.served, Served::Executed);
    assert_eq!(send(&service, packed(PACKED)).await.served, Served::Replayed);
    assert_eq!(send(&service, packed(b"")).await.served, Served::Passed);
    let refused = send(&service, packed(b"no such thing")).await;
    assert_eq!((refused.status, refused.served), (400, Served::InvalidKey));
}

#[tokio::test]
async fn a_body_in_which_somebody_else_may_find_a_key_does_not_pass() {
    let rig = Rig::new();
    for service in [echo(&rig, in_body()), echo(&rig, in_body().key(KeyMode::Required))] {
        for body in [
            r#"{"\ud800":1,"idempotency_key":"k"}"#,
            r#"{"Idempotency_Key":"k"}"#,
            r#"{"x":NaN,"idempotency_key":"k"}"#,
            r#"{"idempotency_key":"k"} {"idempotency_key":"l"}"#,
            r#"{'idempotency_key':'k'}"#,
            "{broken",
            "\u{c}{\"idempotency_key\":\"k\"}",
            "\0{\0}",
        ] {
            let refused = send(&service, json(body)).await;
            assert_eq!((refused.status, refused.served), (400, Served::InvalidKey), "{body}");
        }
    }
    // Whoever has a key in a header is protected by it.
    let service = echo(&rig, in_body());
    let keyed = send(&service, with_key("k", json("{\"a\":1}\n{\"a\":2}"))).await;
    assert_eq!(keyed.served, Served::Executed);
}

#[tokio::test]
async fn a_body_that_is_too_large_to_be_looked_into_is_refused_only_if_it_can_be_json() {
    let rig = Rig::new();
    for policy in [in_body(), in_body().key(KeyMode::Required)] {
        let service = echo(&rig, policy.request_bytes_max(16));
        let large = json(r#"{"amount":10,"idempotency_key":"k"}"#);
        let seen = send(&service, large).await;
        assert_eq!((seen.status, seen.served), (413, Served::BadBody));
        let header = with_key("k", json(r#"{"amount":10,"more":"of it"}"#));
        assert_eq!(send(&service, header).await.status, 413);
    }
    let service = echo(&rig, in_body().request_bytes_max(16));
    let form = send(&service, json("a=b&and_so_on=much more than the limit")).await;
    assert_eq!(form.served, Served::Passed);
    assert!(form.body.ends_with("a=b&and_so_on=much more than the limit"));
}

/// What came of a body that comes in these parts.
async fn send_in_parts(policy: Policy, parts: &[&'static str]) -> Seen {
    let frames = parts.iter().map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(*part))));
    let body = StreamBody::new(stream::iter(frames.collect::<Vec<_>>()));
    let service = tower::service_fn(|request: Request<RequestBody<_>>| async move {
        let body = request.into_body();
        let hint = body.size_hint();
        let body: Bytes = BodyExt::collect(body).await.expect("whole").to_bytes();
        let text = format!("{:?} {}", hint.exact(), String::from_utf8_lossy(&body));
        Ok::<_, Infallible>(answer(200, text))
    });
    let layered = Rig::new().idempotency.layer(policy).layer(service);
    let request = Request::post("/charges").body(body).expect("a request");
    let response: Response<_> = layered.oneshot(request).await.expect("no error");
    see(response).await
}

#[tokio::test]
async fn a_stream_that_cannot_be_json_is_not_held_back() {
    let seen = send_in_parts(in_body(), &[" ", "\r\n", "a", "=b", "&c"]).await;
    assert_eq!((seen.served, &*seen.body), (Served::Passed, "None  \r\na=b&c"));
    let seen = send_in_parts(in_body(), &[" ", "{\"idempotency", "_key\":\"k\"", "}"]).await;
    assert_eq!(seen.served, Served::Executed);
    let blank = send_in_parts(in_body().request_bytes_max(2), &[" ", " ", " "]).await;
    assert_eq!(blank.status, 413);
}

fn asked(rules: KeyRules) -> Policy {
    in_body().key_rules(rules)
}

/// A UUID of version 7 that was made so long ago.
fn made_ago(ago: Duration) -> String {
    let made =
        SystemClock::new().now().as_millis() - u64::try_from(ago.as_millis()).expect("short");
    format!("{:08x}-{:04x}-7000-8000-000000000001", made >> 16, made & 0xffff)
}

#[tokio::test]
async fn only_keys_that_a_route_takes_are_taken() {
    const UUID: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";
    let hour = Duration::from_secs(3600);
    let any = KeyRules::default();
    let table = [
        (KeyRules { len_min: 8, ..any }, "k".repeat(7), 400),
        (KeyRules { len_min: 8, ..any }, "k".repeat(8), 201),
        (KeyRules { format: KeyFormat::Uuid, ..any }, "k".to_owned(), 400),
        (KeyRules { format: KeyFormat::Uuid, ..any }, UUID.to_owned(), 201),
        (KeyRules { format: KeyFormat::UuidV7, ..any }, UUID.to_owned(), 400),
        (KeyRules { format: KeyFormat::UuidV7, ..any }, made_ago(hour), 201),
        (KeyRules { age_max: hour / 2, ..any }, made_ago(hour), 400),
        (KeyRules { age_max: hour * 2, ..any }, made_ago(hour), 201),
        (KeyRules { age_max: hour / 2, ..any }, UUID.to_owned(), 201),
    ];
    for (rules, key, status) in table {
        let service = echo(&Rig::new(), asked(rules));
        let in_header = send(&service, with_key(&key, json("{}"))).await;
        assert_eq!(in_header.status, status, "{key} {rules:?}");
        let service = echo(&Rig::new(), asked(rules));
        let body = Full::from(format!(r#"{{"idempotency_key":"{key}"}}"#));
        let in_body = send(&service, Request::post("/charges").body(body).expect("a request"));
        assert_eq!(in_body.await.status, status, "{key} {rules:?}");
    }
}

#[tokio::test]
async fn an_old_key_is_told_that_it_is_old() {
    let rules = KeyRules { age_max: Duration::from_secs(60), ..KeyRules::default() };
    let mut service = echo(&Rig::new(), asked(rules));
    let request = with_key(&made_ago(Duration::from_secs(61)), json("{}"));
    let seen = see(service.ready().await.expect("ready").call(request).await.expect("no error"));
    let seen = seen.await;
    assert_eq!(seen.served, Served::InvalidKey);
    assert!(seen.body.contains("make a new key for a new one"), "{}", seen.body);
}
