//! What a replay holds: status, headers and trailers.

use std::convert::Infallible;

use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use selfsame::{
    Dialect, IdempotencyService, Origin, Policy, Profile, ReplayStatus, ResponseBody, ServerErrors,
};
use tower::ServiceExt;

use crate::support::{Body, Inner, Rig, answer, post, send};

/// An answer with headers of all kinds.
fn charged() -> Response<Body> {
    let response = Response::builder()
        .status(201)
        .header("location", "/charges/1")
        .header("link", "</a>; rel=a")
        .header("link", "</b>; rel=b")
        .header("set-cookie", "sid=1")
        .header("date", "Sun, 15 Nov 2026 00:00:00 GMT")
        .header("x-ratelimit-remaining", "9")
        .header("x-node", "node-7")
        .header("connection", "close");
    response.body(Body::from("done")).expect("a response")
}

async fn answered<S: Inner<Infallible>>(
    service: &IdempotencyService<S>,
    request: Request<Body>,
) -> Response<ResponseBody<Body>> {
    service.clone().oneshot(request).await.expect("no error")
}

/// The replay of [`charged`] under this policy.
async fn replay(policy: Policy) -> Response<ResponseBody<Body>> {
    let rig = Rig::new();
    let service = rig.service(policy, |_| async { Ok::<_, Infallible>(charged()) });
    answered(&service, post("k")).await;
    let replay = answered(&service, post("k")).await;
    assert_eq!(replay.headers()["idempotent-replayed"], "true");
    replay
}

fn names(names: &[&'static str]) -> Vec<HeaderName> {
    names.iter().map(|name| HeaderName::from_static(name)).collect()
}

#[tokio::test]
async fn headers_of_the_moment_and_cookies_are_not_given_again() {
    let replay = replay(Policy::new()).await;
    let links: Vec<_> = replay.headers().get_all("link").iter().collect();
    assert_eq!(links, ["</a>; rel=a", "</b>; rel=b"]);
    assert_eq!(replay.headers()["location"], "/charges/1");
    for absent in ["set-cookie", "date", "x-ratelimit-remaining", "connection"] {
        assert!(!replay.headers().contains_key(absent), "{absent}");
    }
}

#[tokio::test]
async fn a_route_may_give_more_headers_again_but_none_of_a_connection_and_no_cookie() {
    let also = names(&["date", "connection", "content-length", "set-cookie"]);
    let replay = replay(Policy::new().replay_also(also)).await;
    assert_eq!(replay.headers()["date"], "Sun, 15 Nov 2026 00:00:00 GMT");
    assert_eq!(replay.headers()["location"], "/charges/1");
    for absent in ["set-cookie", "x-ratelimit-remaining", "connection", "content-length"] {
        assert!(!replay.headers().contains_key(absent), "{absent}");
    }
}

#[tokio::test]
async fn what_is_never_given_again_goes_before_what_else_is_said_of_it() {
    let policy = Policy::new()
        .replay_set_cookie(true)
        .replay_also(names(&["date", "x-ratelimit-remaining"]))
        .replay_never(names(&["date", "x-node", "set-cookie"]));
    let replay = replay(policy).await;
    assert_eq!(replay.headers()["x-ratelimit-remaining"], "9");
    for absent in ["date", "x-node", "set-cookie"] {
        assert!(!replay.headers().contains_key(absent), "{absent}");
    }
}

#[tokio::test]
async fn what_was_kept_before_the_route_said_never_is_not_given_again_either() {
    let rig = Rig::new();
    let work = |_| async { Ok::<_, Infallible>(charged()) };
    let before = rig.service(Policy::new(), work);
    let never = Policy::new().replay_never(names(&["x-node"]));
    let after = rig.service(never, work);
    answered(&before, post("k")).await;
    assert_eq!(answered(&before, post("k")).await.headers()["x-node"], "node-7");
    assert!(!answered(&after, post("k")).await.headers().contains_key("x-node"));
}

#[tokio::test]
async fn created_and_accepted_become_ok_where_the_route_says_so() {
    let table = [(201, 200), (202, 200), (200, 200), (204, 204), (303, 303), (404, 404)];
    for (status, replayed) in table {
        let rig = Rig::new();
        let work = move |_| async move { Ok::<_, Infallible>(answer(status, "")) };
        let ok = rig.service(Policy::new().replay_status(ReplayStatus::Ok), work);
        let same = rig.service(Policy::new(), work);
        assert_eq!(send(&ok, post("k")).await.status, status);
        assert_eq!(send(&ok, post("k")).await.status, replayed);
        assert_eq!(send(&same, post("k")).await.status, status);
    }
}

#[tokio::test]
async fn a_replayed_server_error_says_that_another_try_is_no_use() {
    let rig = Rig::new();
    let policy = Policy::new().server_errors(ServerErrors::Keep);
    let service = rig.service(policy, |_| async { Ok::<_, Infallible>(answer(500, "oops")) });
    assert!(!answered(&service, post("k")).await.headers().contains_key("x-should-retry"));
    assert_eq!(answered(&service, post("k")).await.headers()["x-should-retry"], "false");
}

/// The replay to `retry` of what was answered to `https://shop.example`.
async fn replay_across(
    allowed: &'static str,
    retry: Option<&'static str>,
) -> Response<ResponseBody<Body>> {
    let rig = Rig::new();
    let service = rig.service(Policy::new(), move |_| async move {
        let response = Response::builder()
            .header("access-control-allow-origin", allowed)
            .header("access-control-allow-credentials", "true")
            .header("access-control-expose-headers", "location")
            .header("vary", "Origin, Accept");
        Ok::<_, Infallible>(response.body(Body::from("done")).expect("a response"))
    });
    let from = |origin: Option<&'static str>| {
        let mut request = post("k");
        if let Some(origin) = origin {
            request.headers_mut().insert("origin", HeaderValue::from_static(origin));
        }
        answered(&service, request)
    };
    from(Some("https://shop.example")).await;
    from(retry).await
}

#[tokio::test]
async fn cors_headers_are_given_again_only_to_their_origin() {
    let table = [
        ("https://shop.example", Some("https://shop.example"), true),
        ("https://shop.example", Some("https://evil.example"), false),
        ("https://shop.example", None, false),
        ("*", Some("https://evil.example"), true),
        ("*", None, true),
    ];
    for (allowed, retry, fits) in table {
        let replay = replay_across(allowed, retry).await;
        assert_eq!(replay.status(), StatusCode::OK);
        for name in ["allow-origin", "allow-credentials", "expose-headers"] {
            let name = format!("access-control-{name}");
            assert_eq!(replay.headers().contains_key(&name), fits, "{allowed} {retry:?} {name}");
        }
        // A cache must not give one origin's replay to another.
        assert_eq!(replay.headers()["vary"], "Origin, Accept");
    }
}

#[tokio::test]
async fn pages_of_named_origins_read_refusals_and_each_others_answers() {
    let rig = Rig::new();
    let readers = ["https://shop.example", "https://admin.example"];
    let readers = readers.map(|text| Origin::parse(text).expect("an origin"));
    let dialect = Dialect::new(Profile::Ietf, "/rules").readable_by(readers);
    let service = rig.service(Policy::new().dialect(dialect), |_| async {
        let response = Response::builder()
            .header("access-control-allow-origin", "https://shop.example")
            .header("access-control-expose-headers", "location");
        Ok::<_, Infallible>(response.body(Body::from("done")).expect("a response"))
    });
    let from = |origin: &'static str, key: &'static str| {
        let mut request = post(key);
        request.headers_mut().insert("origin", HeaderValue::from_static(origin));
        service.clone().oneshot(request)
    };
    from("https://shop.example", "k").await.expect("no error");

    let replay = from("https://admin.example", "k").await.expect("no error");
    assert_eq!(replay.headers()["access-control-allow-origin"], "https://admin.example");
    assert_eq!(replay.headers()["access-control-expose-headers"], "location");
    let refusal = from("https://admin.example", "").await.expect("no error");
    assert_eq!(refusal.status(), 400);
    assert_eq!(refusal.headers()["access-control-allow-origin"], "https://admin.example");
    for key in ["k", ""] {
        let hidden = from("https://evil.example", key).await.expect("no error");
        assert!(!hidden.headers().contains_key("access-control-allow-origin"), "{key:?}");
    }
}
