//! Routes of a host: who takes a request, and that another host is another request.

use crate::harness::{Gateway, Ledger, eventually};

const ROUTES: &str = r#"
[[route]]
host  = "api.example.com"
match = "POST /charges"
key   = "required"

[[route]]
host  = "*.example.com"
match = "POST /{*rest}"
tenant = "none"
headers = ["X-Account"]

[[route]]
host  = "pay.example"
match = "POST /refunds"

[[route]]
match = "POST /charges"
lease = "9s"
"#;

#[test]
fn another_host_is_another_request_where_routes_name_hosts() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ROUTES).start();
    let at = |host: &str| gateway.post("/charges").host(host).key("order-1").json("{}");
    let first = at("a.example.com").send();
    assert_eq!(first.status, 201);
    at("A.Example.com").send().replays(&first);
    at("b.example.com").send().refused("key-reused");
    at("a.example.com:8443").send().refused("key-reused");
    assert_eq!(ledger.effects("order-1"), 1);
    assert_eq!(ledger.of("order-1")[0].header("host"), Some("a.example.com"));
}

#[test]
fn without_a_host_in_its_route_it_does_not_count() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ROUTES).start();
    let at = |host: &str| gateway.post("/charges").host(host).key("order-1").json("{}");
    let first = at("one.example").send();
    assert_eq!(first.status, 201);
    at("two.example").send().replays(&first);
    assert_eq!(ledger.effects("order-1"), 1);
}

#[test]
fn the_closest_host_takes_a_request_and_leaves_paths_it_does_not_know() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ROUTES).start();
    let keyless = |host: &str, path: &str| gateway.post(path).host(host).json("{}").send();
    keyless("API.example.com:80", "/charges").refused("missing-key");
    for (host, path) in [
        ("api.example.com", "/refunds"),
        ("b.example.com", "/charges"),
        ("example.com", "/charges"),
        ("api.example.com.evil", "/charges"),
        ("pay.example", "/charges"),
    ] {
        assert_eq!(keyless(host, path).status, 201, "{host}{path}");
    }
    let routes =
        [("api.example.com/charges", 1.0), ("*.example.com/{*rest}", 2.0), ("/charges", 3.0)];
    for (route, requests) in routes {
        let passed = format!("selfsame_requests_total{{route=\"{route}\",outcome=\"passed\"}}");
        let refused = passed.replace("passed", "missing_key");
        eventually(route, || {
            (gateway.metric(&passed) + gateway.metric(&refused) == requests).then_some(())
        });
    }
}

#[test]
fn a_target_with_a_host_goes_before_the_host_header() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(ROUTES).start();
    let to = |target: &str, host: &str| gateway.post(target).host(host).key("order-1").json("{}");
    let first = to("http://a.example.com/charges", "b.example.com").send();
    assert_eq!(first.status, 201);
    to("/charges", "a.example.com").send().replays(&first);
    to("/charges", "b.example.com").send().refused("key-reused");
    assert_eq!(ledger.of("order-1")[0].header("host"), Some("a.example.com"));
}
