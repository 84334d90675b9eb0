//! The contract page over the wire, and the command that prints it.

use crate::harness::{Answer, Ended, Gateway, Ledger, binary, read_up_to, run_to_end};

const PAGE: &str = "/.well-known/idempotency";

/// By `Accept`, `Content-Type` and the command's `--format`.
const FORMS: [(&str, &str, &str); 5] = [
    ("text/html", "text/html; charset=utf-8", "html"),
    ("text/markdown", "text/markdown; charset=utf-8", "markdown"),
    ("*/*", "text/markdown; charset=utf-8", "markdown"),
    ("application/json", "application/json", "json"),
    ("application/vnd.oai.openapi+json", "application/vnd.oai.openapi+json", "openapi"),
];

const SETTINGS: &str = "public_url = \"https://api.example.com/\"\n\
    [idempotency]\nretention = \"48h\"\n\
    [[route]]\nmatch = \"POST /v1/charges\"\nkey = \"required\"\n\
    [[route]]\nmatch = \"POST /stripe\"\nprofile = \"stripe\"\n";

fn page(gateway: &Gateway, accept: &str) -> Answer {
    gateway.request("GET", PAGE).header("Accept", accept).send()
}

/// `selfsame contract` with the gateway's configuration.
fn printed(gateway: &Gateway, format: &str) -> Ended {
    let mut command = binary();
    command.arg("contract").arg("--config").arg(gateway.folder().join("selfsame.toml"));
    command.args(["--format", format]);
    run_to_end(command)
}

#[test]
fn each_reader_gets_its_form_and_the_command_prints_the_same() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    for (accept, content_type, format) in FORMS {
        let answer = page(&gateway, accept);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some(content_type));
        assert_eq!(answer.header("vary"), Some("Accept"));
        assert_eq!(answer.header("cache-control"), Some("max-age=300"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'unsafe-inline'"), "{policy}");
        assert!(answer.text().contains("/v1/charges"), "{}", answer.text());

        let ended = printed(&gateway, format);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.stdout, answer.text());

        let admin = gateway.admin("GET", PAGE).header("Accept", accept).send();
        assert_eq!((admin.status, admin.body), (200, answer.body), "on the admin listener");
    }
    assert_eq!(ledger.all().len(), 0, "the upstream is not asked");
}

#[test]
fn a_head_has_the_headers_and_other_methods_are_not_allowed() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let whole = gateway.request("GET", PAGE).send();

    let mut connection = gateway.request("HEAD", PAGE).open();
    let head = gateway.request("HEAD", PAGE).bytes();
    std::io::Write::write_all(connection.get_mut(), &head).expect("sent");
    let head = read_up_to(&mut connection, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("content-length: {}\r\n", whole.body.len())), "{head}");
    let next = gateway.request("GET", PAGE).send_on(&mut connection).expect("an answer");
    assert_eq!(next.body, whole.body, "no body stood in between");

    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"] {
        for request in [gateway.request(method, PAGE), gateway.admin(method, PAGE)] {
            let refused = request.key("k").json("{}").send();
            assert_eq!(refused.status, 405, "{method}");
            assert_eq!(refused.header("allow"), Some("GET, HEAD"));
        }
    }
    assert_eq!(ledger.all().len(), 0, "the upstream is not asked");
}

#[test]
fn a_refusal_leads_to_what_the_page_says_of_it() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with(SETTINGS).start();
    let charge = |body: &str| gateway.post("/v1/charges").key("order-1").json(body).send();
    assert_eq!(charge(r#"{"amount":1}"#).status, 201);
    let refused = charge(r#"{"amount":2}"#);
    let problem = refused.refused("key-reused");
    let stripe = gateway.post("/stripe").key("a b").send();
    let error: serde_json::Value = serde_json::from_slice(&stripe.body).expect("JSON");

    let html = page(&gateway, "text/html").text();
    for link in [&problem["type"], &error["error"]["doc_url"]] {
        let link = link.as_str().expect("an address");
        let (address, slug) = link.split_once('#').expect("an anchor");
        assert_eq!(address, format!("https://api.example.com{PAGE}"));
        assert!(html.contains(&format!(" id=\"{slug}\"")), "{slug}");
    }
    let told: serde_json::Value =
        serde_json::from_slice(&page(&gateway, "application/json").body).expect("JSON");
    let entry = told["problems"].as_array().expect("a list").iter();
    let entry = entry.clone().find(|entry| entry["type"] == problem["type"]).expect("told");
    assert_eq!(entry["status"]["ietf"], refused.status);
    assert_eq!(entry["retryable"], problem["retryable"]);
}

#[test]
fn an_upstream_may_have_the_path_for_itself() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).with("contract_page = false\n").start();
    assert_eq!(page(&gateway, "text/html").status, 201, "the upstream answers");
    assert_eq!(ledger.all()[0].target, PAGE);
    assert_eq!(gateway.admin("GET", PAGE).send().status, 200, "operators see the gateway's own");
    let refused = gateway.post("/charges").key("a b").send().refused("invalid-key");
    assert_eq!(refused["type"], format!("{PAGE}#invalid-key"));
}

#[test]
fn the_command_needs_nothing_that_clients_do_not_see() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let mut command = binary();
    command.current_dir(folder.path()).arg("contract");
    let bare = run_to_end(command);
    assert_eq!(bare.code, Some(0), "{bare:?}");
    assert!(bare.stdout.starts_with("# Safe retries\n"), "{bare:?}");

    // Not even what the gateway itself would be told by flags.
    let file = folder.path().join("part.toml");
    std::fs::write(&file, "[admin]\nlisten = \"0.0.0.0:9090\"\n").expect("written");
    let mut command = binary();
    command.arg("contract").arg("--config").arg(&file);
    assert_eq!(run_to_end(command).stdout, bare.stdout);

    std::fs::write(&file, "[idempotency]\nretension = \"1h\"\n").expect("written");
    let mut command = binary();
    command.arg("contract").arg("--config").arg(&file);
    let wrong = run_to_end(command);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("did you mean \"retention\"?"), "{wrong:?}");
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 1, "nothing is opened or made");
}
