//! Row 39: keys of different tenants never meet, and no tenant is taken on trust.

use crate::harness::{Answer, Gateway, Ledger, Request};

/// Sends with each of `headers` in turn, and checks that each is a tenant of its own.
#[track_caller]
fn assert_strangers(ledger: &Ledger, request: &Request, headers: &[&[(&str, &str)]]) {
    let with = |headers: &[(&str, &str)]| {
        headers.iter().fold(request.clone(), |request, (name, value)| request.header(name, value))
    };
    let mut answers: Vec<Answer> = Vec::new();
    for headers in headers {
        let first = with(headers).send();
        assert_eq!((first.status, first.header("idempotent-replayed")), (201, None), "{headers:?}");
        assert!(answers.iter().all(|other| other.body != first.body), "{headers:?}");
        answers.push(first);
    }
    for (headers, first) in headers.iter().zip(&answers) {
        with(headers).send().replays(first);
    }
    assert_eq!(ledger.all().len(), headers.len());
}

fn gateway(ledger: &Ledger, tenant: &str, top: &str) -> Gateway {
    let settings = format!("{top}\n[idempotency]\ntenant = \"{tenant}\"\n");
    Gateway::in_front_of(ledger).with(&settings).start()
}

const LOCAL: &str = "trusted_proxies = [\"127.0.0.0/8\"]";

#[test]
fn one_key_with_several_credentials_is_several_keys() {
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, "authorization", "");
    let request = gateway.post("/charges").key("shared").json("{}");
    assert_strangers(
        &ledger,
        &request,
        &[
            &[],
            &[("Authorization", "Bearer ann")],
            &[("Authorization", "Bearer bob")],
            &[("Authorization", "Bearer an")],
            &[("Authorization", "Basic ann")],
            &[("Authorization", "anonymous")],
            &[("Authorization", "Bearer cleo"), ("Cookie", "session=1")],
        ],
    );
}

#[test]
fn what_one_tenant_did_wrong_does_not_show_to_another() {
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, "authorization", "");
    let of = |who: &str, body: &str| {
        gateway.post("/charges").key("shared").header("Authorization", who).json(body).send()
    };
    assert_eq!(of("Bearer ann", r#"{"amount":1}"#).status, 201);
    // Another body would be a reuse for Ann; to Bob the key is new.
    assert_eq!(of("Bearer bob", r#"{"amount":2}"#).status, 201);
    of("Bearer ann", r#"{"amount":2}"#).refused("key-reused");
}

#[test]
fn a_cookie_without_authorization_says_not_enough() {
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, "authorization", "");
    let request = gateway.post("/charges").key("cookie").header("Cookie", "session=ann").json("{}");
    let refused = request.send();
    let detail = refused.refused("missing-tenant")["detail"].to_string();
    assert!(detail.contains("cookie:NAME"), "{detail}");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    let empty = request.clone().header("Authorization", "").send();
    empty.refused("missing-tenant");
    let twice = gateway.post("/charges").key("twice").json("{}");
    let twice = twice.header("Authorization", "Bearer a").header("Authorization", "Bearer b");
    twice.send().refused("missing-tenant");
    assert_eq!(ledger.all().len(), 0);

    let unkeyed = gateway.post("/charges").header("Cookie", "session=ann").json("{}").send();
    assert_eq!(unkeyed.status, 201, "a request without a key has no need of a tenant");
}

#[test]
fn an_api_key_without_authorization_says_not_enough() {
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, "authorization", "");
    let names = [
        "X-Api-Key",
        "Api-Key",
        "X-Auth-Token",
        "X-Access-Token",
        "Ocp-Apim-Subscription-Key",
        "apikey",
    ];
    for name in names {
        let request = gateway.post("/charges").key("shared").json("{}");
        for of in ["ann", "bob"] {
            let refused = request.clone().header(name, of).send();
            let body = refused.refused("missing-tenant");
            let setting = format!("tenant = \"credential:{name}\"");
            assert!(body["detail"].as_str().is_some_and(|text| text.contains(&setting)), "{body}");
            let challenge = format!("ApiKey header=\"{name}\"");
            assert_eq!(refused.header("www-authenticate"), Some(challenge.as_str()));
        }
        let empty = request.clone().header(name, "k").header("Authorization", "").send();
        empty.refused("missing-tenant");
    }
    assert_eq!(ledger.all().len(), 0);

    let unkeyed = gateway.post("/charges").header("X-Api-Key", "ann").json("{}").send();
    assert_eq!(unkeyed.status, 201, "a request without a key has no need of a tenant");
    let both = gateway.post("/charges").key("both").header("X-Api-Key", "ann").json("{}");
    assert_eq!(both.header("Authorization", "Bearer ann").send().status, 201);
}

#[test]
fn a_named_credential_header_tells_callers_apart() {
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, "credential:X-Api-Key", "status = true");
    let request = gateway.post("/charges").key("shared").json("{}");
    let twice = request.clone().header("X-Api-Key", "ann").header("x-api-key", "bob");
    let elsewhere = request.clone().header("Authorization", "Bearer ann");
    for request in [request.clone(), request.clone().header("X-Api-Key", ""), twice, elsewhere] {
        let refused = request.send();
        refused.refused("missing-tenant");
        let challenge = Some("ApiKey header=\"x-api-key\"");
        assert_eq!(refused.header("www-authenticate"), challenge);
    }
    assert_eq!(ledger.all().len(), 0);

    let (ann, bob) = (("X-Api-Key", "ann"), ("X-Api-Key", "bob"));
    assert_strangers(&ledger, &request, &[&[ann], &[bob]]);
    let again = request.clone().header("x-api-key", "ann").header("Cookie", "theme=dark").send();
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(ledger.all()[0].header("x-api-key"), Some("ann"), "it goes on as it came");

    let state = |(name, value): (&str, &str)| {
        let target = "/.well-known/idempotency/status?route=POST%20/charges";
        let told = gateway.request("GET", target).key("shared").header(name, value).send();
        (told.status, told.text())
    };
    assert!(state(ann).1.contains("\"completed\""));
    assert!(state(("X-Api-Key", "cleo")).1.contains("\"unknown\""));
    assert_eq!(state(("Authorization", "Bearer ann")).0, 401);
}

#[test]
fn a_named_cookie_tells_users_apart() {
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, "cookie:sid", "");
    let request = gateway.post("/charges").key("shared").json("{}");
    for cookie in ["", "other=1", "xsid=ann", "sid=", "sid=ann; sid=bob"] {
        let refused = request.clone().header("Cookie", cookie).send();
        refused.refused("missing-tenant");
        let challenge = Some("Cookie cookie-name=\"sid\"");
        assert_eq!(refused.header("www-authenticate"), challenge);
    }
    request.clone().header("Authorization", "Bearer ann").send().refused("missing-tenant");
    assert_eq!(ledger.all().len(), 0);

    assert_strangers(&ledger, &request, &[&[("Cookie", "sid=ann")], &[("Cookie", "sid=bob")]]);
    let again = request.clone().header("Cookie", "theme=dark; sid=ann; x=1").send();
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
}

#[test]
fn a_header_counts_only_from_a_trusted_proxy() {
    let ledger = Ledger::start();
    let trusting = gateway(&ledger, "header:X-User", LOCAL);
    let request = trusting.post("/charges").key("shared").json("{}");
    request.send().refused("missing-tenant");
    request.clone().header("X-User", "").send().refused("missing-tenant");
    let twice = request.clone().header("X-User", "ann").header("X-User", "bob");
    twice.send().refused("missing-tenant");
    assert_eq!(ledger.all().len(), 0);
    assert_strangers(&ledger, &request, &[&[("X-User", "ann")], &[("X-User", "bob")]]);

    let wary = gateway(&ledger, "header:X-User", "trusted_proxies = [\"10.0.0.0/8\"]");
    let forged = wary.post("/charges").key("shared").header("X-User", "ann").json("{}");
    let forged = forged.header("X-Forwarded-For", "10.0.0.1").send();
    forged.refused("missing-tenant");
    assert_eq!(ledger.all().len(), 2, "nothing of the forged request was forwarded");
}

#[test]
fn separators_do_not_move_between_tenant_and_key() {
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, "header:X-User", LOCAL);
    let games = [
        ("a:b", "c"),
        ("a", "b:c"),
        ("a/b", "c"),
        ("a", "b/c"),
        ("a|b", "c"),
        ("ab", "c"),
        ("a", "bc"),
    ];
    let mut bodies = Vec::new();
    for (tenant, key) in games {
        let first = gateway.post("/charges").key(key).header("X-User", tenant).json("{}").send();
        assert_eq!(
            (first.status, first.header("idempotent-replayed")),
            (201, None),
            "{tenant} {key}"
        );
        bodies.push(first.body);
    }
    assert_eq!(ledger.all().len(), games.len());
    bodies.dedup();
    assert_eq!(bodies.len(), games.len(), "no byte crosses");
}

#[test]
fn callers_without_a_credential_share_one_key_space() {
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, "authorization", "");
    let first = gateway.post("/public").key("open").json("{}").send();
    gateway.post("/public").key("open").json("{}").send().replays(&first);
    assert_eq!(ledger.effects("open"), 1);
}

#[test]
fn with_tenant_none_everybody_shares_one_key_space() {
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, "none", "");
    let by = |name: &str, value: &str| {
        gateway.post("/public").key("all").header(name, value).json("{}").send()
    };
    let first = by("Authorization", "Bearer ann");
    by("Authorization", "Bearer bob").replays(&first);
    by("Cookie", "session=1").replays(&first);
    assert_eq!(ledger.effects("all"), 1);
}

#[test]
fn no_credential_is_kept_or_logged() {
    assert_is_not_kept("authorization", "Authorization");
    assert_is_not_kept("credential:X-Api-Key", "X-Api-Key");
}

fn assert_is_not_kept(tenant: &str, header: &str) {
    let ledger = Ledger::start();
    let gateway = gateway(&ledger, tenant, "");
    let secret = "sk_live_never_to_be_seen";
    let request = gateway.post("/charges").key("quiet").header(header, secret);
    assert_eq!(request.json("{}").send().status, 201);
    let shown = gateway.keys(&["show", "quiet", "--json"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("completed") && !shown.contains(secret), "{shown}");
    gateway.expect_log("claimed");
    let (log, setup) = gateway.stopped();
    assert!(!log.contains(secret), "{log}");
    let files = std::fs::read_dir(setup.data()).expect("the store's folder");
    for file in files.map(|file| file.expect("readable").path()).filter(|path| path.is_file()) {
        let bytes = std::fs::read(&file).expect("readable");
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{} holds a credential", file.display());
    }
}
