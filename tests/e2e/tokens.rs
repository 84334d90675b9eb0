//! Row 39 with JSON Web Tokens: a renewed one is the same tenant's, and a forged one nobody's.

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use rcgen::KeyPair;
use serde_json::json;

use crate::harness::{Answer, Gateway, Ledger, Setup};

pub(crate) struct Issuer(KeyPair);

impl Issuer {
    pub(crate) fn new() -> Self {
        Self(KeyPair::generate().expect("a key"))
    }

    /// A token for `caller`; each `serial` makes another of it.
    pub(crate) fn token(&self, caller: &str, serial: u64) -> String {
        let key = EncodingKey::from_ec_pem(self.0.serialize_pem().as_bytes()).expect("a key");
        let exp = get_current_timestamp() + 600;
        let claims = json!({
            "iss": "https://login.example", "aud": "payments", "exp": exp, "jti": serial, "sub": caller
        });
        let token = encode(&Header::new(Algorithm::ES256), &claims, &key).expect("signed");
        format!("Bearer {token}")
    }
}

/// A gateway that believes the issuer's tokens.
pub(crate) fn setup(ledger: &Ledger, issuer: &Issuer) -> (Setup, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("issuer.pem");
    std::fs::write(&path, issuer.0.public_key_pem()).expect("written");
    let settings = format!(
        "[jwt]\nkey_file = {path:?}\nalgorithms = [\"ES256\"]\nissuer = \"https://login.example\"\n\
         audience = \"payments\"\n[idempotency]\ntenant = \"jwt:sub\"\n"
    );
    (Gateway::in_front_of(ledger).with(&settings), folder)
}

fn charge(gateway: &Gateway, authorization: &str) -> Answer {
    let request = gateway.post("/charges").key("order-1").json("{}");
    request.header("Authorization", authorization).send()
}

#[test]
fn a_retry_with_a_renewed_token_is_the_same_callers() {
    let (ledger, issuer) = (Ledger::start(), Issuer::new());
    let (setup, _folder) = setup(&ledger, &issuer);
    let gateway = setup.start();
    let first = charge(&gateway, &issuer.token("ann", 1));
    assert_eq!(first.status, 201);
    charge(&gateway, &issuer.token("ann", 2)).replays(&first);
    let other = charge(&gateway, &issuer.token("bob", 3));
    assert_eq!((other.status, other.header("idempotent-replayed")), (201, None));
    assert_eq!(ledger.effects("order-1"), 2);
    let seen = ledger.of("order-1")[1].header("authorization").map(str::to_owned);
    assert!(seen.is_some_and(|token| token.starts_with("Bearer ey")), "the upstream sees it too");
}

#[test]
fn nobody_gets_an_answer_for_a_token_that_is_not_believed() {
    let (ledger, issuer) = (Ledger::start(), Issuer::new());
    let (setup, _folder) = setup(&ledger, &issuer);
    let gateway = setup.start();
    charge(&gateway, &issuer.token("ann", 1));
    let genuine = issuer.token("ann", 1);
    let stripped = genuine.rsplit_once('.').expect("three parts").0;
    for forged in [
        Issuer::new().token("ann", 1).as_str(),
        &format!("{stripped}."),
        &genuine.replacen("Bearer", "Basic", 1),
        "Bearer",
    ] {
        charge(&gateway, forged).refused("missing-tenant");
    }
    let forged = charge(&gateway, &Issuer::new().token("ann", 1));
    assert_eq!(forged.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
    gateway.post("/charges").key("order-1").json("{}").send().refused("missing-tenant");
    assert_eq!(ledger.effects("order-1"), 1);
}

#[test]
fn keys_change_while_requests_are_served() {
    let (ledger, old) = (Ledger::start(), Issuer::new());
    let (setup, folder) = setup(&ledger, &old);
    let gateway = setup.start();
    let first = charge(&gateway, &old.token("ann", 1));
    let new = Issuer::new();
    charge(&gateway, &new.token("ann", 1)).refused("missing-tenant");
    std::fs::write(folder.path().join("issuer.pem"), new.0.public_key_pem()).expect("written");
    assert_eq!(gateway.reload().status, 200);
    charge(&gateway, &new.token("ann", 1)).replays(&first);
    charge(&gateway, &old.token("ann", 1)).refused("missing-tenant");

    std::fs::write(folder.path().join("issuer.pem"), "nonsense").expect("written");
    let told = gateway.reload();
    assert!(told.status == 422 && told.text().contains("is no public key in PEM"));
    charge(&gateway, &new.token("ann", 1)).replays(&first);
    assert_eq!(ledger.effects("order-1"), 1);
}

#[test]
fn callers_with_large_numbers_are_not_taken_for_each_other() {
    let (ledger, issuer) = (Ledger::start(), Issuer::new());
    let (setup, _folder) = setup(&ledger, &issuer);
    let gateway = setup.start();
    let key = EncodingKey::from_ec_pem(issuer.0.serialize_pem().as_bytes()).expect("a key");
    let token = |caller: &str| {
        let exp = get_current_timestamp() + 600;
        let claims = format!(
            r#"{{"iss":"https://login.example","aud":"payments","exp":{exp},"sub":{caller}}}"#
        );
        let claims: Box<serde_json::value::RawValue> = serde_json::from_str(&claims).expect("JSON");
        let token = encode(&Header::new(Algorithm::ES256), &claims, &key).expect("signed");
        format!("Bearer {token}")
    };
    for caller in ["18446744073709551616", "18446744073709551617", "1e400", "7.5"] {
        charge(&gateway, &token(caller)).refused("missing-tenant");
    }
    for caller in ["18446744073709551614", "18446744073709551615"] {
        let first = charge(&gateway, &token(caller));
        assert_eq!((first.status, first.header("idempotent-replayed")), (201, None), "{caller}");
    }
    assert_eq!(ledger.effects("order-1"), 2);
}

#[test]
fn a_token_with_critical_extensions_is_refused() {
    let (ledger, issuer) = (Ledger::start(), Issuer::new());
    let (setup, _folder) = setup(&ledger, &issuer);
    let gateway = setup.start();
    let key = EncodingKey::from_ec_pem(issuer.0.serialize_pem().as_bytes()).expect("a key");
    let exp = get_current_timestamp() + 600;
    let claims =
        json!({"iss": "https://login.example", "aud": "payments", "exp": exp, "sub": "ann"});
    let crit = Some(vec!["urn:example:revoked".to_owned()]);
    let header = Header { crit, ..Header::new(Algorithm::ES256) };
    let token = encode(&header, &claims, &key).expect("signed");
    charge(&gateway, &format!("Bearer {token}")).refused("missing-tenant");
    assert_eq!(ledger.all().len(), 0);
}
