//! Routes: a pattern that no request fits is a mistake, and `config check --try` shows which route takes
//! a request.

use crate::harness::{Ended, Gateway, Ledger, binary, run_to_end};

fn config_check(settings: &str, more: &[&str]) -> Ended {
    let setup = Gateway::before_host("127.0.0.1:1").with(settings);
    let mut command = binary();
    command.args(["config", "check"]).arg(setup.write_config()).args(more);
    run_to_end(command)
}

#[test]
fn a_pattern_of_another_dialect_is_a_mistake_and_nothing_starts() {
    for pattern in ["/v1/*", "/v1/**", "/v1/:id", "/v1/<id>", "/v1/{path:path}", "/v1/.*", "^/v1"] {
        let route = format!("[[route]]\nmatch = \"POST {pattern}\"\nkey = \"required\"\n");
        let checked = config_check(&route, &[]);
        assert_eq!(checked.code, Some(1), "{pattern}: {checked:?}");
        assert!(checked.stderr.contains("route.match: "), "{checked:?}");

        let setup = Gateway::before_host("127.0.0.1:1").with(&route);
        let mut command = binary();
        command.args(["serve", "--config"]).arg(setup.write_config());
        let served = run_to_end(command);
        assert_eq!(served.code, Some(1), "{pattern}: {served:?}");
        if !pattern.starts_with('^') {
            let hint = "use {id} for one segment or {*rest} for all that follow";
            assert!(served.stderr.contains(hint), "{served:?}");
        }
    }
}

#[test]
fn a_request_is_tried_without_starting_anything() {
    let route = "[[route]]\nmatch = \"POST /v1/charges\"\nkey = \"required\"\nlease = \"9s\"\n\
        [[route]]\nhost = \"eu.example.com\"\nmatch = \"POST /v1/{id}\"\n\
        upstream = \"http://eu.internal:3000\"\n";
    let tries = [
        ["--try", "POST /v1/charges"],
        ["--try", "POST eu.example.com/v1/charges"],
        ["--try", "POST /v1/refunds"],
        ["--try", "GET /v1/charges"],
    ];
    let tried = config_check(route, tries.as_flattened());
    assert_eq!(tried.code, Some(0), "{tried:?}");
    let told: Vec<&str> = tried.stdout.split("\n\n").collect();
    let expected: [(&str, &[&str]); 4] = [
        (
            "POST /v1/charges: taken by the route /v1/charges\n",
            &["protected; without a key", "key                 \"required\"", "\"9s\""],
        ),
        (
            "POST eu.example.com/v1/charges: taken by the route eu.example.com/v1/{id}\n",
            &["\"http://eu.internal:3000\"", "tenant              \"authorization\""],
        ),
        ("POST /v1/refunds: taken by no route; [idempotency] counts\n", &["where it has a key"]),
        ("GET /v1/charges: taken by no route", &["NOT PROTECTED: GET passes"]),
    ];
    for ((start, parts), told) in expected.iter().zip(&told[1..]) {
        assert!(told.starts_with(start), "{told}");
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    }
    assert_eq!(told.len(), 5, "{told:?}");

    let nonsense = config_check(route, &["--try", "charges"]);
    assert_eq!(nonsense.code, Some(1), "{nonsense:?}");
    assert!(nonsense.stderr.contains("write \"POST /v1/charges\""), "{nonsense:?}");
}

#[test]
fn an_encoded_letter_does_not_lead_past_a_route() {
    let ledger = Ledger::start();
    let route = "[[route]]\nmatch = \"POST /v1/charges%2Fall\"\nkey = \"required\"\n";
    let gateway = Gateway::in_front_of(&ledger).with(route).start();
    for target in ["/v1/charges%2Fall", "/v1/%63harges%2fall", "/v1/charges%2F%61ll?x=1"] {
        gateway.post(target).json("{}").send().refused("missing-key");
    }
    assert_eq!(gateway.post("/v1/charges/all").json("{}").send().status, 201);
    let first = gateway.post("/v1/%63harges%2fall").key("k").json("{}").send();
    assert_eq!(first.status, 201);
    let seen = ledger.of("k");
    assert_eq!(seen[0].target, "/v1/%63harges%2fall", "the API sees it as it came");
}
