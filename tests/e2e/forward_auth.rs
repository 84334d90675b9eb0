//! Row 39 with a service that tells callers apart: it is asked before anything else, and believed where a
//! client is not.

use std::collections::HashMap;
use std::io::BufReader;
use std::sync::{Arc, Mutex};

use crate::address_limits::ATTACKER;
use crate::harness::{
    Answer, Effect, Gate, Gateway, Http2, Ledger, Setup, Then, eventually, reply,
};
use crate::unreachable::nobody;

/// A service that knows callers by their credentials, and can change its mind.
struct Auth {
    service: Ledger,
    callers: Arc<Mutex<HashMap<String, String>>>,
}

impl Auth {
    /// One that knows two credentials of Ann's, and one of Bob's.
    fn start() -> Self {
        let service = Ledger::start();
        let known = [("ann-1", "ann"), ("ann-2", "ann"), ("bob-1", "bob")];
        let known = known.map(|(token, name)| (format!("Bearer {token}"), name.to_owned()));
        let callers = Arc::new(Mutex::new(HashMap::from(known)));
        let auth = Self { service, callers };
        auth.answers(|_| {});
        auth
    }

    /// From now on it does this, and then answers as usual.
    fn answers(&self, before: impl Fn(&Effect) + Send + Sync + 'static) {
        let callers = self.callers.clone();
        self.service.behave(move |effect, client| {
            before(effect);
            let callers = callers.lock().expect("no panic holds it");
            match effect.header("authorization").and_then(|token| callers.get(token)) {
                Some(name) => reply(client, 200, &[&format!("X-Tenant: {name}")], "welcome"),
                None => {
                    let headers = ["WWW-Authenticate: Bearer realm=\"pay\"", "X-Inner: secret"];
                    reply(client, 401, &headers, "who are you?")
                }
            }
        });
    }

    fn forget(&self, token: &str) {
        self.callers.lock().expect("no panic holds it").remove(token);
    }

    fn asked(&self) -> usize {
        self.service.all().len()
    }

    fn settings(&self, more: &str) -> String {
        let url = format!("http://{}/verify?v=1", self.service.address());
        format!(
            "[forward_auth]\nurl = \"{url}\"\ntimeout = \"2s\"\n{more}\n\
             [idempotency]\ntenant = \"forward-auth\"\n"
        )
    }

    fn before(&self, ledger: &Ledger, more: &str) -> Setup {
        Gateway::in_front_of(ledger).with(&self.settings(more))
    }
}

fn charge(gateway: &Gateway, token: &str, key: &str) -> Answer {
    let request = gateway.post("/charges").key(key).json("{}");
    request.header("Authorization", &format!("Bearer {token}")).send()
}

fn result(result: &str) -> String {
    format!(r#"selfsame_forward_auth_total{{result="{result}"}}"#)
}

#[test]
fn callers_are_who_the_service_says_and_never_meet() {
    let (ledger, auth) = (Ledger::start(), Auth::start());
    let gateway = auth.before(&ledger, "").start();
    let first = charge(&gateway, "ann-1", "order-1");
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None));
    charge(&gateway, "ann-2", "order-1").replays(&first);
    let other = charge(&gateway, "bob-1", "order-1");
    assert_eq!((other.status, other.header("idempotent-replayed")), (201, None));
    assert_ne!(other.body, first.body);
    charge(&gateway, "bob-1", "order-1").replays(&other);
    assert_eq!(ledger.effects("order-1"), 2);

    let question = &auth.service.all()[0];
    assert_eq!((&*question.method, &*question.target), ("GET", "/verify?v=1"));
    for (name, expected) in [
        ("authorization", Some("Bearer ann-1")),
        ("x-forwarded-method", Some("POST")),
        ("x-forwarded-uri", Some("/charges")),
        ("x-forwarded-host", Some(&*gateway.address.to_string())),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-original-method", Some("POST")),
        ("x-original-uri", Some("/charges")),
        ("host", Some(&*auth.service.address().to_string())),
        ("idempotency-key", None),
        ("content-type", None),
    ] {
        assert_eq!(question.header(name), expected, "{name}");
    }
    let shown = gateway.keys(&["show", "order-1"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("ann") && shown.contains("bob"), "{shown}");
}

#[test]
fn who_may_not_pass_is_told_so_in_the_service_s_words_each_time() {
    let (ledger, auth) = (Ledger::start(), Auth::start());
    let gateway = auth.before(&ledger, "").start();
    for asked in 1..=3 {
        let denied = charge(&gateway, "eve", "order-1");
        assert_eq!((denied.status, &*denied.text()), (401, "who are you?"));
        assert_eq!(denied.header("www-authenticate"), Some("Bearer realm=\"pay\""));
        assert_eq!(denied.header("x-inner"), None);
        assert_eq!(auth.asked(), asked);
    }
    assert_eq!(ledger.all().len(), 0);
    gateway.expect_metric(&result("denied"), 3.0);
    // It has changed its mind: that counts at once.
    let known = ("Bearer eve".to_owned(), "eve".to_owned());
    auth.callers.lock().expect("no panic holds it").extend([known]);
    assert_eq!(charge(&gateway, "eve", "order-1").status, 201);
    let none = gateway.post("/charges").key("order-1").json("{}").send();
    assert_eq!(none.status, 401);
    assert_eq!(ledger.of("order-1")[0].header("selfsame-attempt"), Some("1"));
}

#[test]
fn if_it_cannot_be_asked_nothing_runs() {
    let (ledger, auth) = (Ledger::start(), Auth::start());
    let gateway = auth.before(&ledger, "cache = \"off\"").start();
    let gate = Gate::shut();
    let at_gate = gate.clone();
    auth.answers(move |_| at_gate.pass());
    charge(&gateway, "ann-1", "order-1").refused("auth-unavailable");
    gate.open();
    for answer in [
        "HTTP/1.1 500 Oops\r\nX-Tenant: ann\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-Tenant: ann\r\nX-Tenant: bob\r\nContent-Length: 0\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        auth.service.behave(move |_, client| {
            let _gone = std::io::Write::write_all(client, answer.as_bytes());
            Then::Close
        });
        charge(&gateway, "ann-1", "order-1").refused("auth-unavailable");
    }
    // What has no key needs no tenant.
    assert_eq!(gateway.request("GET", "/charges").send().status, 201);
    assert_eq!(gateway.post("/charges").json("{}").send().status, 201);
    assert_eq!(ledger.effects("order-1"), 0);
    gateway.expect_log("the service that tells callers apart cannot be asked");

    auth.answers(|_| {});
    let first = charge(&gateway, "ann-1", "order-1");
    assert_eq!(first.status, 201);
    assert_eq!(ledger.of("order-1")[0].header("selfsame-attempt"), Some("1"));
}

#[test]
fn where_nobody_listens_nothing_runs_either() {
    let ledger = Ledger::start();
    let address = nobody();
    let settings = format!(
        "[forward_auth]\nurl = \"http://{address}\"\n[idempotency]\ntenant = \"forward-auth\"\n"
    );
    let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
    charge(&gateway, "ann-1", "order-1").refused("auth-unavailable");
    assert_eq!(ledger.all().len(), 0);
}

#[test]
fn who_may_pass_is_remembered_for_as_long_as_is_said() {
    let (ledger, auth) = (Ledger::start(), Auth::start());
    let gateway = auth.before(&ledger, "cache = \"5s\"").start();
    let first = charge(&gateway, "ann-1", "order-1");
    auth.forget("Bearer ann-1");
    charge(&gateway, "ann-1", "order-1").replays(&first);
    assert_eq!(auth.asked(), 1);
    gateway.expect_metric(&result("known"), 1.0);
    // Another path is another question.
    let elsewhere = gateway.post("/refunds").key("order-2").header("Authorization", "Bearer ann-1");
    assert_eq!(elsewhere.send().status, 401);
    eventually("it is asked again", || {
        (charge(&gateway, "ann-1", "order-1").status == 401).then_some(())
    });
    assert_eq!(ledger.all().len(), 1);
}

#[test]
fn those_who_show_the_same_ask_once() {
    let (ledger, auth) = (Ledger::start(), Auth::start());
    let gate = Gate::shut();
    let at_gate = gate.clone();
    auth.answers(move |_| at_gate.pass());
    let gateway = auth.before(&ledger, "").start();
    let request = |number: usize| {
        let request = gateway.post("/charges").key(&format!("order-{number}")).json("{}");
        request.header("Authorization", "Bearer ann-1").begin()
    };
    let running: Vec<_> = (0..20).map(request).collect();
    eventually("it is asked", || (auth.asked() == 1).then_some(()));
    // One of them leaves, perhaps the one who asked.
    let mut running = running.into_iter();
    drop(running.next());
    gate.open();
    for connection in running {
        let answer = Answer::read(&mut BufReader::new(connection)).expect("an answer");
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    assert_eq!(auth.asked(), 1);
}

#[test]
fn a_client_s_own_word_is_not_believed_and_goes_no_further() {
    let (ledger, auth) = (Ledger::start(), Auth::start());
    let gateway = auth.before(&ledger, "").start();
    let first = charge(&gateway, "ann-1", "order-1");
    let forged = gateway.post("/charges").key("order-1").json("{}");
    let forged = forged.header("Authorization", "Bearer bob-1").header("X-Tenant", "ann");
    let answer = forged.send();
    assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, None));
    assert_ne!(answer.body, first.body);
    gateway.request("GET", "/charges").header("X-Tenant", "ann").send();

    let told: Vec<_> =
        ledger.all().iter().map(|effect| effect.header("x-tenant").map(str::to_owned)).collect();
    assert_eq!(told, [Some("ann".to_owned()), Some("bob".to_owned()), None]);
    assert!(auth.service.all().iter().all(|question| question.header("x-tenant").is_none()));
    assert_eq!(auth.asked(), 2, "nobody asks for what has no key");
}

#[test]
fn a_key_is_looked_up_for_who_the_service_says() {
    let (ledger, auth) = (Ledger::start(), Auth::start());
    let settings = format!("status = true\n{}", auth.settings(""));
    let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
    assert_eq!(charge(&gateway, "ann-1", "order-1").status, 201);
    let ask = |token: &str| {
        let target = "/.well-known/idempotency/status?route=POST%20/charges";
        let request = gateway.request("GET", target).key("order-1");
        request.header("Authorization", &format!("Bearer {token}")).send()
    };
    assert!(ask("ann-2").text().contains("\"completed\""), "{}", ask("ann-2").text());
    assert!(ask("bob-1").text().contains("\"unknown\""), "{}", ask("bob-1").text());
    assert_eq!(ask("eve").status, 401);
    // It is asked about the request that the key was sent with.
    let questions = auth.service.all();
    let last = questions.last().expect("it was asked");
    assert_eq!(last.header("x-forwarded-method"), Some("POST"));
    assert_eq!(last.header("x-forwarded-uri"), Some("/charges"));
}

#[test]
fn another_service_counts_once_the_file_is_read_again() {
    let (ledger, auth, other) = (Ledger::start(), Auth::start(), Auth::start());
    let mut gateway = auth.before(&ledger, "").start();
    let first = charge(&gateway, "ann-1", "order-1");
    other.forget("Bearer bob-1");
    gateway.rewrite(&other.settings(""));
    assert_eq!(gateway.reload().status, 200);
    charge(&gateway, "ann-1", "order-1").replays(&first);
    assert_eq!(charge(&gateway, "bob-1", "order-1").status, 401);
    assert_eq!((auth.asked(), other.asked()), (1, 2));
    // What another header says are other callers.
    gateway.rewrite(&other.settings("tenant_header = \"X-User\""));
    assert_eq!(gateway.reload().status, 422);
    charge(&gateway, "ann-1", "order-1").replays(&first);
}

/// Callers are known by their `Authorization`, and the service is asked whether they may pass.
fn with_permission(auth: &Auth, ledger: &Ledger, more: &str) -> Setup {
    let url = format!("http://{}/verify", auth.service.address());
    let settings = format!(
        "[forward_auth]\nurl = \"{url}\"\ncache = \"off\"\n[idempotency]\ntenant = \"authorization\"\n\
         replay_needs = \"forward-auth\"\n{more}"
    );
    Gateway::in_front_of(ledger).with(&settings)
}

#[test]
fn a_revoked_credential_gets_no_replay_where_permission_is_needed() {
    let (ledger, auth) = (Ledger::start(), Auth::start());
    let gateway = with_permission(&auth, &ledger, "").start();
    let first = charge(&gateway, "ann-1", "order-1");
    assert_eq!(first.status, 201);
    charge(&gateway, "ann-1", "order-1").replays(&first);
    assert_eq!(auth.asked(), 2, "before the run and before the replay");
    // The tenant is the credential, whatever name the service has for it.
    let other = charge(&gateway, "ann-2", "order-1");
    assert_eq!((other.status, other.header("idempotent-replayed")), (201, None));
    assert_eq!(ledger.of("order-1")[0].header("x-tenant"), None);

    auth.forget("Bearer ann-1");
    for key in ["order-1", "order-2"] {
        let denied = charge(&gateway, "ann-1", key);
        assert_eq!((denied.status, &*denied.text()), (401, "who are you?"));
    }
    assert_eq!((ledger.effects("order-1"), ledger.effects("order-2")), (2, 0));
    charge(&gateway, "ann-2", "order-1").replays(&other);

    // The service need not name anybody; and where it does not answer, nothing is given away.
    auth.service.behave(|_, client| reply(client, 204, &[], ""));
    charge(&gateway, "ann-1", "order-1").replays(&first);
    auth.service.behave(|_, _| Then::Close);
    charge(&gateway, "ann-1", "order-1").refused("auth-unavailable");
}

#[test]
fn a_route_may_do_without_permission() {
    let (ledger, auth) = (Ledger::start(), Auth::start());
    let more = "[[route]]\nmatch = \"POST /open\"\nreplay_needs = \"off\"\n";
    let gateway = with_permission(&auth, &ledger, more).start();
    let send = |target: &str| {
        gateway.post(target).key(target).header("Authorization", "Bearer eve").json("{}").send()
    };
    assert_eq!(send("/open").status, 201);
    assert_eq!((send("/charges").status, auth.asked()), (401, 1));
    let unkeyed = gateway.post("/charges").header("Authorization", "Bearer eve").json("{}");
    assert_eq!((unkeyed.send().status, auth.asked()), (201, 1), "the API decides about it");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_one_address_do_not_keep_others_waiting() {
    let (ledger, auth, gate) = (Ledger::start(), Auth::start(), Gate::shut());
    let at_gate = gate.clone();
    auth.answers(move |effect| {
        if effect.header("authorization").is_some_and(|token| token.contains("eve")) {
            at_gate.pass();
        }
    });
    let settings = auth.settings("").replace("2s", "60s");
    let gateway = Gateway::in_front_of(&ledger).with(&settings).start();
    let mut clients = Vec::new();
    for connection in 0..2 {
        let client = Http2::connect_from(ATTACKER, gateway.address).await;
        let mut begun = Vec::new();
        for number in 0..200 {
            let request = http::Request::post("http://a/charges")
                .header("idempotency-key", "order-1")
                .header("authorization", format!("Bearer eve-{connection}-{number}"));
            begun.push(client.begin(request.body(()).expect("a request"), true).await);
        }
        clients.push((client, begun));
    }
    eventually("many are asked", || (auth.asked() >= 64).then_some(()));
    assert_eq!(charge(&gateway, "ann-1", "order-1").status, 201);

    // They go on without their clients, and count until their end.
    drop(clients);
    gateway.expect_metric("selfsame_abandoned_requests", 400.0);
    assert_eq!(charge(&gateway, "bob-1", "order-1").status, 201);
    gate.open();
    gateway.expect_metric("selfsame_abandoned_requests", 0.0);
    assert_eq!(ledger.effects("order-1"), 2);
}
