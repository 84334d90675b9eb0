//! Spellings of one path: none of them leads past a route, and the upstream gets each as it came.

use crate::harness::{Answer, Gateway, Ledger};

const ROUTES: &str = "[[route]]\nmatch = \"POST /v1/charges\"\nkey = \"required\"\n\
    [[route]]\nmatch = \"POST /v1/refunds:cancel\"\nkey = \"required\"\n\
    [[route]]\nmatch = \"POST /v1/caf%C3%A9\"\nkey = \"required\"\n\
    [[route]]\nmatch = \"POST /projects/{id}/hooks\"\nkey = \"off\"\n\
    [[route]]\nmatch = \"POST /v1/slash/\"\nkey = \"required\"\n\
    [[route]]\nmatch = \"POST /v1/{*rest}\"\nkey = \"optional\"\n";

/// Spellings that a server may take for a path of a route with `key = "required"`.
const SAME: [&str; 16] = [
    "/v1/charges",
    "/v1/%63harges",
    "/v1/%63%68arges?x=1",
    "//v1/charges",
    "/v1//charges",
    "///v1///charges",
    "/v1/charges/",
    "/v1/charges//",
    "/v1/charges;x=1",
    "/v1;a/charges;b=1;c",
    "/v1/charges;/",
    "/v1/refunds%3acancel",
    "/v1/caf%c3%a9",
    "/v1/caf\u{e9}",
    "/v1/slash",
    "/v1/slash/",
];

/// Spellings that servers resolve in different ways.
const REFUSED: [&str; 20] = [
    "/x/../v1/charges",
    "/v1/./charges",
    "/v1/charges/.",
    "/v1/x/%2e%2e/charges",
    "/v1/x/.%2E/charges",
    "/v1/x/..;/charges",
    "/v1/x%2f..%2fcharges",
    "/v1\\charges",
    "\\v1\\charges",
    "/v1/x\\..\\charges",
    "/v1/x%5c..%5ccharges",
    "/v1/x/..%3Bx=1/charges",
    "/v1/x/%2e%2E%3b/charges",
    "/x;y=%2F..%2F..%2Fv1/charges",
    "/v1/charges%00",
    "/v1/charges%",
    "/v1/%6gharges",
    "*",
    "v1/charges",
    "ftp://a/v1/charges",
];

fn is_for_path(answer: &Answer) -> bool {
    answer.status == 400 && answer.text().contains("about:blank")
}

#[test]
fn every_spelling_of_a_path_meets_its_route() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ROUTES).start();
    for target in SAME {
        let address = gateway.address;
        for target in [target.to_owned(), format!("http://{address}{target}")] {
            let answer = gateway.post(&target).json("{}").send();
            assert_eq!(answer.problem().as_deref(), Some("missing-key"), "{target}: {answer:?}");
        }
    }
    assert_eq!(ledger.all().len(), 0);

    for (index, target) in SAME.iter().enumerate() {
        let key = format!("k{index}");
        assert_eq!(gateway.post(target).key(&key).json("{}").send().status, 201, "{target}");
        assert_eq!(ledger.of(&key)[0].target, *target, "the upstream gets it as it came");
    }
}

#[test]
fn paths_that_servers_resolve_differently_are_refused() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ROUTES).start();
    let mut counted = 0.0;
    for target in REFUSED {
        for method in ["POST", "GET"] {
            let answer = gateway.request(method, target).key("k").json("{}").send();
            // What is no URI at all is refused by the parser of heads, without a body.
            let is_counted = is_for_path(&answer);
            assert!(
                answer.status == 400 && (is_counted || answer.body.is_empty()),
                "{method} {target}: {answer:?}"
            );
            counted += f64::from(u8::from(is_counted));
        }
    }
    assert_eq!(ledger.all().len(), 0);
    assert!(counted >= 28.0, "{counted}");
    gateway.expect_metric("selfsame_refused_heads_total{reason=\"path\"}", counted);

    assert_eq!(gateway.request("OPTIONS", "*").send().status, 201);
    for target in ["/.well-known/x", "/v2/...", "/v2/a..b", "/v2?to=/../x%"] {
        assert_eq!(gateway.post(target).json("{}").send().status, 201, "{target}");
    }
}

#[test]
fn encoded_slashes_and_semicolons_are_plain_text_where_a_route_takes_them_so() {
    let ledger = Ledger::start();
    let routes = "[[route]]\nmatch = \"POST /v1/charges\"\nkey = \"required\"\n\
        [[route]]\nmatch = \"POST /projects/{id}/hooks\"\nkey = \"off\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(routes).start();
    for target in [
        "/v1%2Fcharges",
        "/v1%2fcharges",
        "/v1%5ccharges",
        "/%2Fv1/charges",
        "/v1/charges%3Bx=1",
        "/v1%3bx/charges%3B",
        "/v1%2Fcharges%3Bx=1",
        "/v1/charges%3Bx=%2Fy",
        "/v1/charges;x=%2Fy",
        "/v1;x=%2Fcharges",
        "/v1%3Bx=%2fcharges",
    ] {
        let answer = gateway.post(target).json("{}").send();
        assert_eq!(answer.problem().as_deref(), Some("missing-key"), "{target}: {answer:?}");
    }
    for target in ["/projects/a%2Fb/hooks", "/projects/a%3Bb/hooks", "/v1/charges%253Bx=1"] {
        assert_eq!(gateway.post(target).json("{}").send().status, 201, "{target}");
    }
}

#[test]
fn two_spellings_are_two_requests_for_a_fingerprint() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ROUTES).start();
    let first = gateway.post("/v1/charges").key("k").json("{}").send();
    assert_eq!(first.status, 201);
    for target in &SAME[1..11] {
        gateway.post(target).key("k").json("{}").send().refused("key-reused");
    }
    gateway.post("/v1/charges").key("k").json("{}").send().replays(&first);
}

#[test]
fn slashes_count_where_the_configuration_says_so() {
    let ledger = Ledger::start();
    let settings = format!("merge_slashes = false\n{ROUTES}");
    let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
    gateway.post("/v1/charges").json("{}").send().refused("missing-key");
    for target in ["//v1/charges", "/v1//charges"] {
        assert_eq!(gateway.post(target).json("{}").send().status, 201, "{target}");
    }
}

#[test]
fn the_gateway_s_own_pages_are_found_by_every_spelling() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with("status = true\n").start();
    let page = "/.well-known/idempotency";
    for target in [
        page,
        "//.well-known//idempotency",
        "/.well-known/%69dempotency",
        "/.well-known/idempotency/",
    ] {
        let answer = gateway.request("GET", target).send();
        assert_eq!(answer.status, 200, "{target}");
        let status = format!("{}/status", target.trim_end_matches('/'));
        let asked = gateway.request("GET", &format!("{status}?route=POST%20/a")).send();
        assert_eq!(asked.problem().as_deref(), Some("missing-tenant"), "{status}: {asked:?}");
    }
    assert_eq!(ledger.all().len(), 0);
}

#[test]
fn no_spelling_leads_past_the_admin_token() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    for path in [
        "/api/v1/reload",
        "//api/v1/reload",
        "/api/v1//reload",
        "/api/v1/%72eload",
        "/api/v1/reload/",
        "/api/v1/keys/../reload",
        "/api//v1/tenants/erase",
        "/api/v1/tenants/%65rase",
    ] {
        let answer = gateway.admin("POST", path).json("{}").send();
        assert!(matches!(answer.status, 401 | 404), "{path}: {answer:?}");
    }
}
