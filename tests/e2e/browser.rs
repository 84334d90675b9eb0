//! A shop's page in a real browser, on another origin than the API: preflights, replays, refusals
//! that the page can read, and a buyer who gives up or leaves.

use std::net::TcpStream;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{Browser, Effect, Gate, Gateway, Ledger, Then, eventually, reply};

const PAGE: &str = include_str!("browser.html");

/// An API that knows about CORS, the gateway before it, and the server of the shop's page.
struct Shop {
    api: Arc<Ledger>,
    /// Holds the API back while it is shut.
    ready: Gate,
    pages: Ledger,
    gateway: Gateway,
}

impl Shop {
    /// A shop whose pages under these hosts may read refusals below `/open`.
    fn open(hosts: &[&str]) -> Self {
        let (api, pages, ready) = (Arc::new(Ledger::start()), Ledger::start(), Gate::shut());
        let gate = ready.clone();
        api.behave(move |effect, client| answer(effect, client, &gate));
        let (seen, gate) = (api.clone(), ready.clone());
        pages.behave(move |effect, client| serve_page(effect, client, &seen, &gate));

        let port = pages.address().port();
        let origins: Vec<_> = hosts.iter().map(|host| format!("http://{host}:{port}")).collect();
        let settings =
            format!("[[route]]\nmatch = \"POST /open/{{*rest}}\"\ncors_origins = {origins:?}\n");
        let gateway = Gateway::in_front_of(&api).with(&settings).start();
        Self { api, ready, pages, gateway }
    }

    /// Opens the shop under `host`, and waits for what its page found.
    fn play(&self, part: &str, host: &str) -> Value {
        let before = self.found().len();
        let (port, gateway) = (self.pages.address().port(), self.gateway.address);
        let url = format!("http://{host}:{port}/?part={part}&gateway=http://{gateway}");
        let _browser = Browser::open(&url);
        eventually("the page's findings", || self.found().get(before).cloned())
    }

    fn found(&self) -> Vec<Value> {
        let posted = self.pages.all().into_iter().filter(|effect| effect.target == "/found");
        posted.map(|effect| serde_json::from_slice(&effect.body).expect("JSON")).collect()
    }
}

/// The API's answer to a page of any origin.
fn answer(effect: &Effect, client: &mut TcpStream, ready: &Gate) -> Then {
    let origin = effect.header("origin").unwrap_or("null");
    let headers = [
        &format!("Access-Control-Allow-Origin: {origin}"),
        "Access-Control-Allow-Credentials: true",
        "Access-Control-Allow-Headers: Content-Type, Idempotency-Key",
        "Access-Control-Expose-Headers: Idempotent-Replayed",
        "Vary: Origin",
    ];
    if effect.method == "OPTIONS" {
        return reply(client, 200, &headers, "");
    }
    ready.pass();
    reply(client, 201, &headers, &format!("charge {}", effect.number))
}

/// The shop's page, and the wires by which it is told how far the API is.
fn serve_page(effect: &Effect, client: &mut TcpStream, api: &Ledger, ready: &Gate) -> Then {
    match effect.target.split_once('?').unwrap_or((&effect.target, "")) {
        ("/", _) => return reply(client, 200, &["Content-Type: text/html"], PAGE),
        ("/when-it-runs", key) => api.wait_for(key, 1),
        ("/let-it-finish", _) => ready.open(),
        _ => {}
    }
    reply(client, 200, &[], "")
}

#[track_caller]
fn assert_replays(answer: &Value, first_text: &Value) {
    assert_eq!(answer["status"], 201, "{answer}");
    assert_eq!(&answer["text"], first_text, "{answer}");
    assert_eq!(answer["headers"]["idempotent-replayed"], "true", "{answer}");
}

#[track_caller]
fn assert_reads_refusal(answer: &Value, status: u16, slug: &str) {
    assert_eq!(answer["status"], status, "{answer}");
    let text = answer["text"].as_str().expect("text");
    assert!(text.contains(&format!("#{slug}\"")), "{answer}");
    assert_eq!(answer["headers"]["content-type"], "application/problem+json", "{answer}");
    assert!(answer["headers"]["x-should-retry"].is_string(), "{answer}");
}

#[test]
fn a_page_reads_answers_replays_and_where_its_origin_is_named_refusals() {
    let shop = Shop::open(&["127.0.0.1"]);
    shop.ready.open();
    let found = shop.play("shopping", "127.0.0.1");

    let first = &found["first"];
    assert_eq!(
        (&first["status"], first["headers"].get("idempotent-replayed")),
        (&json!(201), None)
    );
    assert_replays(&found["replay"], &first["text"]);
    assert_reads_refusal(&found["reused"], 422, "key-reused");
    // Elsewhere a refusal is to the page as if nobody had answered.
    assert_eq!(found["hidden_first"]["status"], 201, "{found}");
    assert_eq!(found["hidden_refusal"], json!({"error": "TypeError"}));

    assert_eq!((shop.api.effects("order-1"), shop.api.effects("order-2")), (1, 1));
    let preflight = shop.api.all().into_iter().find(|effect| effect.method == "OPTIONS");
    let preflight = preflight.expect("the browser asked first");
    let asked = preflight.header("access-control-request-headers").expect("which headers");
    assert!(asked.contains("idempotency-key"), "{asked}");
}

#[test]
fn an_answer_to_one_origin_is_read_by_another_only_where_it_is_named() {
    let shop = Shop::open(&["127.0.0.1", "localhost"]);
    shop.ready.open();
    let first = shop.play("sharing", "127.0.0.1");
    assert_eq!(first["answer"]["status"], 201, "{first}");

    assert_replays(&shop.play("sharing", "localhost")["answer"], &first["answer"]["text"]);
    let stranger = shop.play("sharing", "stranger.localhost");
    assert_eq!(stranger["answer"], json!({"error": "TypeError"}));
    assert_eq!(shop.api.effects("shared"), 1);
}

#[test]
fn a_buyer_who_gives_up_and_tries_again_pays_once() {
    let shop = Shop::open(&["127.0.0.1"]);
    let found = shop.play("aborting", "127.0.0.1");
    assert_eq!(found["aborted"], json!({"error": "AbortError"}));
    assert_reads_refusal(&found["busy"], 409, "in-progress");
    assert_eq!(found["busy"]["headers"]["retry-after"], "1");
    let charge = shop.api.of("aborted")[0].number;
    assert_replays(&found["retry"], &json!(format!("charge {charge}")));
    assert_eq!(shop.api.effects("aborted"), 1);
}

#[test]
fn a_buyer_who_leaves_the_page_while_paying_and_comes_back_pays_once() {
    let shop = Shop::open(&["127.0.0.1"]);
    shop.ready.open();
    let found = shop.play("leaving", "127.0.0.1");
    let charge = shop.api.of("left")[0].number;
    assert_replays(&found["retry"], &json!(format!("charge {charge}")));
    assert_eq!(shop.api.effects("left"), 1);
}
