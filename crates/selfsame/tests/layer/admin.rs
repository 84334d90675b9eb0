//! Held keys are found and resolved without a gateway.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use selfsame::admin::{AdminService, Erased, Note, Resolution, Resolved, Verdict};
use selfsame::{IdempotencyService, Policy, Recover};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{Inner, Rig, Runs, answer, post, send};

/// Work that is lost the first time.
fn flaky(rig: &Rig, runs: &Runs) -> IdempotencyService<impl Inner<Infallible>> {
    let runs = runs.clone();
    let policy = Policy::new().recover(Recover::Hold);
    rig.service(policy, move |run| {
        runs.begin();
        let is_first = run.is_some_and(|run| run.attempt() == 1);
        async move {
            let mut answer = answer(201, "charged");
            if is_first {
                answer.extensions_mut().insert(selfsame::Outcome::Unknown);
            }
            Ok(answer)
        }
    })
}

async fn ask(service: &AdminService, request: Request<Full<Bytes>>) -> (Response<()>, Value) {
    let (parts, body) = service.clone().oneshot(request).await.expect("no error").into_parts();
    let body = body.collect().await.expect("whole").to_bytes();
    let read = serde_json::from_slice(&body);
    let body = read.unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&body).into_owned()));
    (Response::from_parts(parts, ()), body)
}

fn get(target: &str) -> Request<Full<Bytes>> {
    Request::get(target).body(Full::default()).expect("a request")
}

fn act(target: &str, body: &Value) -> Request<Full<Bytes>> {
    Request::post(target).body(Full::from(body.to_string())).expect("a request")
}

#[tokio::test]
async fn a_held_key_is_listed_and_freed_over_http() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let (service, admin) = (flaky(&rig, &runs), rig.idempotency.admin_service());
    send(&service, post("k")).await;
    assert_eq!(send(&service, post("k")).await.status, 409, "it is held");

    let (_, held) = ask(&admin, get("/keys")).await;
    assert_eq!(held[0]["key"], "k");
    assert_eq!((&held[0]["method"], &held[0]["path"]), (&json!("POST"), &json!("/charges")));
    let id = held[0]["id"].as_str().expect("an id");
    let free = format!("/keys/{id}/free");
    let decision = json!({"fence": held[0]["fence"], "by": "alice", "reason": "no such charge"});
    let (stale, _) = ask(&admin, act(&free, &json!({"fence": 77}))).await;
    assert_eq!(stale.status(), StatusCode::CONFLICT);
    let (freed, _) = ask(&admin, act(&free, &decision)).await;
    assert_eq!(freed.status(), StatusCode::NO_CONTENT);

    assert_eq!(send(&service, post("k")).await.status, 201);
    assert_eq!(runs.count(), 2);
    let (_, record) = ask(&admin, get(&format!("/keys/{id}"))).await;
    assert_eq!(record["state"], "completed");
    assert_eq!(record["resolved_by"], "alice");
    assert_eq!(record["resolved_reason"], "no such charge");
}

#[tokio::test]
async fn pages_show_every_record_once_and_filters_narrow_them() {
    let rig = Rig::new();
    let service = rig.service(Policy::new(), async |_| Ok::<_, Infallible>(answer(201, "done")));
    for number in 0..25 {
        send(&service, post(&format!("k-{number}"))).await;
    }
    let admin = rig.idempotency.admin_service();
    let (_, none) = ask(&admin, get("/keys")).await;
    assert_eq!(none, json!([]), "nothing is held");
    let (mut keys, mut query) = (Vec::new(), "?state=completed&limit=10".to_owned());
    loop {
        let (response, page) = ask(&admin, get(&format!("/keys{query}"))).await;
        let page = page.as_array().expect("records").clone();
        keys.extend(page.iter().map(|record| record["key"].to_string()));
        let Some(link) = response.headers().get("link") else { break };
        let link = link.to_str().expect("text");
        query = link.trim_start_matches('<').split('>').next().expect("a link").to_owned();
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 25);
    let (wrong, text) = ask(&admin, get("/keys?state=hold")).await;
    assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
    assert!(text.as_str().expect("text").contains("claimed, completed"), "{text}");
}

#[tokio::test]
async fn a_service_resolves_and_erases_in_its_own_code() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let service = flaky(&rig, &runs);
    send(&service, post("k")).await;
    let admin = rig.idempotency.admin();
    let held = admin.held(None, 10).await.expect("the store works");
    let [record] = &*held else { panic!("one is held: {held:?}") };
    let (id, fence) = (record.id, record.fence);
    let by_hand = selfsame::Answer {
        status: StatusCode::CREATED,
        headers: http::HeaderMap::new(),
        body: selfsame_core::AnswerBody::Kept(Bytes::from_static(b"by hand")),
        trailers: http::HeaderMap::new(),
    };
    let resolution = Resolution { verdict: Verdict::Complete(by_hand), note: None };
    let resolution = resolution.noted(Note::new("bob", None));
    let resolved = admin.resolve(&id, fence, &resolution).await;
    assert_eq!(resolved.expect("the store works"), Resolved::Done);
    let replay = send(&service, post("k")).await;
    assert_eq!((replay.status, replay.replayed, &*replay.body), (201, true, "by hand"));
    assert_eq!(admin.erase(&id, None).await.expect("the store works"), Erased::Done);
    assert_eq!(send(&service, post("k")).await.status, 410);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn what_is_not_there_is_said_to_be_so() {
    let rig = Rig::new();
    let admin = rig.idempotency.admin_service();
    let id = "07".repeat(32);
    let cases = [
        (get("/"), 404),
        (get(&format!("/keys/{id}")), 404),
        (get("/keys/xyz"), 400),
        (get(&format!("/keys/{id}/free")), 405),
        (act("/keys", &json!({})), 405),
        (act(&format!("/keys/{id}/free"), &json!({"fence": 1})), 404),
        (act(&format!("/keys/{id}/free"), &json!({"fences": 1})), 400),
        (act(&format!("/keys/{id}/complete"), &json!({"fence": 1, "status": 100})), 400),
        (act("/tenants/erase", &json!({})), 400),
    ];
    for (request, status) in cases {
        let line = format!("{} {}", request.method(), request.uri());
        assert_eq!(ask(&admin, request).await.0.status(), status, "{line}");
    }
}
