//! Several upstreams: where a request goes, by host, path and method.

use crate::harness::{Gateway, Ledger, Setup};

struct Stage {
    usual: Ledger,
    cards: Ledger,
    tenants: Ledger,
}

impl Stage {
    fn set() -> (Self, Setup) {
        let stage =
            Self { usual: Ledger::start(), cards: Ledger::start(), tenants: Ledger::start() };
        let settings = format!(
            r#"
            [[route]]
            match    = "POST /cards/{{*rest}}"
            upstream = "http://{}"
            key      = "required"

            [[route]]
            match    = "POST /cards/usual"

            [[route]]
            host     = "*.tenants.example"
            match    = "/{{*rest}}"
            upstream = "http://{}"
            "#,
            stage.cards.address(),
            stage.tenants.address(),
        );
        let setup = Gateway::in_front_of(&stage.usual).with(&settings);
        (stage, setup)
    }

    /// How many requests each has seen.
    fn seen(&self) -> [usize; 3] {
        [&self.usual, &self.cards, &self.tenants].map(|ledger| ledger.all().len())
    }
}

#[test]
fn a_request_goes_where_its_route_says() {
    let (stage, setup) = Stage::set();
    let gateway = setup.start();
    let send = |path: &str, host: &str, key: &str| {
        gateway.post(path).host(host).key(key).json("{}").send()
    };
    assert_eq!(send("/charges", "a.example", "1").status, 201);
    assert_eq!(stage.seen(), [1, 0, 0]);
    let first = send("/cards/new", "a.example", "2");
    send("/cards/new", "a.example", "2").replays(&first);
    assert_eq!(stage.seen(), [1, 1, 0]);
    assert_eq!(send("/cards/usual", "a.example", "3").status, 201);
    assert_eq!(stage.seen(), [2, 1, 0]);
    assert_eq!(send("/charges", "a.tenants.example", "4").status, 201);
    assert_eq!(stage.seen(), [2, 1, 1]);
    // One key space, wherever the work is done.
    send("/cards/new", "a.example", "1").refused("key-reused");
}

#[test]
fn requests_with_other_methods_go_where_their_path_leads() {
    let (stage, setup) = Stage::set();
    let gateway = setup.start();
    let send = |method: &str, path: &str, host: &str| {
        let answer = gateway.request(method, path).host(host).send();
        assert_eq!(answer.status, 201, "{method} {path}");
    };
    send("GET", "/cards/new", "a.example");
    send("DELETE", "/cards/new", "a.example");
    assert_eq!(stage.seen(), [0, 2, 0]);
    send("GET", "/cards/usual", "a.example");
    send("GET", "/", "a.example");
    assert_eq!(stage.seen(), [2, 2, 0]);
    send("GET", "/anything", "a.tenants.example");
    assert_eq!(stage.seen(), [2, 2, 1]);
}

#[test]
fn a_path_that_leads_elsewhere_takes_no_protection_away() {
    let (stage, setup) = Stage::set();
    let gateway = setup.start();
    // The host's route takes POST too, and goes first.
    let charge = || gateway.post("/cards/new").host("a.tenants.example").key("1").json("{}").send();
    let first = charge();
    charge().replays(&first);
    assert_eq!(stage.seen(), [0, 0, 1]);
    gateway.post("/cards/new").json("{}").send().refused("missing-key");
}
