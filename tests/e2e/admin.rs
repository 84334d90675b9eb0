//! The admin listener and `selfsame keys`: who may look, who may act, and on what.

use std::io::{BufReader, Write};
use std::os::unix::fs::PermissionsExt;

use crate::harness::{
    Answer, Gate, Gateway, Ledger, Request, Then, binary, eventually, reply, run_to_end,
};

/// An upstream where keys that begin with `held` lose their answer, and `slow` waits at the gate.
fn ledger_with(gate: &Gate) -> Ledger {
    let ledger = Ledger::start();
    let gate = gate.clone();
    ledger.behave(move |effect, client| {
        let key = effect.header("idempotency-key").unwrap_or_default();
        if key.starts_with("held") && effect.header("selfsame-attempt") == Some("1") {
            return Then::Close;
        }
        if key == "slow" {
            gate.pass();
        }
        reply(client, 201, &[], &format!(r#"{{"charge":"ch_{}"}}"#, effect.number))
    });
    ledger
}

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json(r#"{"amount":10}"#)
}

/// The one record under `key`, as the API shows it.
fn shown(gateway: &Gateway, key: &str) -> serde_json::Value {
    let found = gateway.admin("GET", &format!("/api/v1/keys?find={key}")).send();
    assert_eq!(found.status, 200, "{found:?}");
    let found: Vec<serde_json::Value> = serde_json::from_slice(&found.body).expect("records");
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

fn free(gateway: &Gateway, record: &serde_json::Value, fence: u64) -> Request {
    let id = record["id"].as_str().expect("an id");
    gateway
        .admin("POST", &format!("/api/v1/keys/{id}/free"))
        .json(&format!(r#"{{"fence":{fence}}}"#))
}

fn token(gateway: &Gateway) -> String {
    let text = std::fs::read_to_string(gateway.data().join("admin-token")).expect("made at start");
    format!("Bearer {}", text.trim())
}

#[test]
fn on_loopback_everyone_may_look_and_nobody_act_without_the_token() {
    let ledger = ledger_with(&Gate::shut());
    let gateway = Gateway::in_front_of(&ledger).start();
    assert_eq!(charge(&gateway, "held").send().problem().as_deref(), Some("upstream-failed"));
    for page in ["/", "/metrics", "/healthz", "/readyz", "/api/v1/keys"] {
        assert_eq!(gateway.admin("GET", page).send().status, 200, "{page}");
    }
    let record = shown(&gateway, "held");
    let fence = record["fence"].as_u64().expect("a fence");

    let act = free(&gateway, &record, fence);
    let wrong = token(&gateway).replace(|c: char| c.is_ascii_digit(), "x");
    let bare = token(&gateway).replace("Bearer ", "");
    assert_eq!(act.send().status, 401);
    for shown in [wrong.as_str(), &bare, "Bearer ", "Bearer x", "Basic eDp4"] {
        let refused = act.clone().header("Authorization", shown).send();
        assert_eq!(refused.status, 401, "{shown}");
    }
    assert_eq!(shown_state(&gateway, "held"), "held", "nothing was changed");

    let stale = free(&gateway, &record, fence + 1).header("Authorization", &token(&gateway));
    assert_eq!(stale.send().status, 409, "decided about something else than what is there");
    let done = act.header("Authorization", &token(&gateway)).send();
    assert_eq!(done.status, 204, "{done:?}");
    assert_eq!(charge(&gateway, "held").send().status, 201);
}

fn shown_state(gateway: &Gateway, key: &str) -> String {
    shown(gateway, key)["state"].as_str().expect("a state").to_owned()
}

#[test]
fn a_page_on_the_web_cannot_reach_the_admin_listener_by_a_name_of_its_own() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    for (host, status) in [("evil.example", 421), ("localhost", 200), ("[::1]:9090", 200)] {
        let mut connection = gateway.admin("GET", "/").connect().expect("a connection");
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
        connection.write_all(request.as_bytes()).expect("sent");
        let answer = Answer::read(&mut BufReader::new(connection)).expect("an answer");
        assert_eq!(answer.status, status, "{host}");
    }
}

#[test]
fn off_loopback_looking_needs_the_token_too() {
    let ledger = Ledger::start();
    let setup = Gateway::in_front_of(&ledger);
    let file = setup.data().with_file_name("token");
    std::fs::write(&file, "a-token-of-the-operators-own\n").expect("written");
    let mut command = binary();
    command.args(["serve", "--config"]).arg(setup.write_config());
    command.args(["--admin", "0.0.0.0:0", "--admin-token-file"]).arg(&file);
    let gateway = setup.start_as(command);

    for page in ["/", "/metrics", "/api/v1/keys"] {
        assert_eq!(gateway.admin("GET", page).send().status, 401, "{page}");
        let with = gateway.admin("GET", page);
        let with = with.header("Authorization", "Bearer a-token-of-the-operators-own").send();
        assert_eq!(with.status, 200, "{page}");
    }
    assert_eq!(gateway.admin("GET", "/healthz").send().status, 200);
}

#[test]
fn the_token_is_its_owners_alone_and_the_command_line_finds_it() {
    let ledger = ledger_with(&Gate::shut());
    let gateway = Gateway::in_front_of(&ledger).start();
    let file = std::fs::metadata(gateway.data().join("admin-token")).expect("made at start");
    assert_eq!(file.permissions().mode() & 0o777, 0o600);

    let store = format!("file:{}", gateway.data().display());
    let config = gateway.folder().join("selfsame.toml").display().to_string();
    for (key, place) in [("held-1", ["--store", &store]), ("held-2", ["--config", &config])] {
        charge(&gateway, key).send();
        let mut command = binary();
        command.args(["keys", "free", key, "--admin", &format!("http://{}", gateway.admin)]);
        command.args(place);
        let freed = run_to_end(command);
        assert_eq!(freed.code, Some(0), "{freed:?}");
        assert_eq!(charge(&gateway, key).send().status, 201);
    }
    let mut nowhere = binary();
    nowhere.args(["keys", "show", "--store", "memory:", "--admin", "http://127.0.0.1:1"]);
    let nowhere = run_to_end(nowhere);
    assert_eq!(nowhere.code, Some(1));
    assert!(nowhere.stderr.contains("http://127.0.0.1:1 does not answer"), "{nowhere:?}");
}

#[test]
fn only_a_held_key_can_be_decided_about() {
    let gate = Gate::shut();
    let ledger = ledger_with(&gate);
    let gateway = Gateway::in_front_of(&ledger).start();
    let done = charge(&gateway, "done").send();
    let mut running = BufReader::new(charge(&gateway, "slow").begin());
    ledger.wait_for("slow", 1);

    let expected = [
        ("done", "done is completed, not held"),
        ("slow", "slow is claimed, not held"),
        ("unheard-of", "nothing is known of unheard-of"),
    ];
    for (key, said) in expected {
        for action in [&["free", key][..], &["complete", key, "--status", "200"]] {
            let refused = gateway.keys(action);
            let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert_eq!(refused.status.code(), Some(1), "{stderr}");
            assert!(stderr.contains(said), "{stderr}");
        }
    }
    gate.open();
    assert_eq!(Answer::read(&mut running).expect("an answer").status, 201);
    assert_eq!(charge(&gateway, "done").send().body, done.body);
    assert_eq!((ledger.effects("done"), ledger.effects("slow")), (1, 1));
}

#[test]
fn of_two_tenants_with_the_same_key_the_record_must_be_named() {
    let ledger = ledger_with(&Gate::shut());
    let gateway = Gateway::in_front_of(&ledger).start();
    let send = |who: &str, key: &str| charge(&gateway, key).header("Authorization", who).send();
    for who in ["Bearer alice", "Bearer bob"] {
        assert_eq!(send(who, "held").status, 502);
        assert_eq!(send(who, "done").status, 201);
    }
    let refused = gateway.keys(&["free", "done"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("done is completed, not held"), "{said}");

    let refused = gateway.keys(&["free", "held"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("several tenants hold held; name the record"), "{said}");
    let ids: Vec<&str> =
        said.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(ids.len(), 2, "{said}");

    let freed = gateway.keys(&["free", ids[0]]);
    assert!(freed.status.success(), "{}", String::from_utf8_lossy(&freed.stderr));
    let mut statuses = ["Bearer alice", "Bearer bob"].map(|who| send(who, "held").status);
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409], "one was freed, the other is held");
}

#[test]
fn the_metrics_of_the_contract_are_there() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    charge(&gateway, "order-1").send();
    charge(&gateway, "order-1").send();
    let text = eventually("the reaper's first count", || {
        let text = gateway.admin("GET", "/metrics").send().text();
        text.contains("selfsame_records{").then_some(text)
    });
    let names = [
        r#"selfsame_requests_total{route="default",outcome="executed"} 1"#,
        r#"selfsame_requests_total{route="default",outcome="replayed"} 1"#,
        r#"selfsame_request_seconds_count{outcome="replayed"} 1"#,
        "selfsame_overhead_seconds_count 2",
        r#"selfsame_store_seconds_count{store="file",op="claim"} 2"#,
        "selfsame_leases_expired_total 0",
        "selfsame_fenced_writes_total 0",
        r#"selfsame_records{state="completed"}"#,
        r#"selfsame_records{state="held"} 0"#,
        "selfsame_in_flight 0",
        "selfsame_reaped_total 0",
        "selfsame_buried_total 0",
    ];
    for name in names {
        assert!(text.contains(name), "{name} is missing in:\n{text}");
    }
}
