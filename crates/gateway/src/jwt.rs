//! [`Verifier`]: the tenant that a JSON Web Token names, once nothing about it is in doubt.
//!
//! A token is renewed between retries and its claim stays, so a retry with a new token is the same
//! tenant's. It is verified whole, by keys and algorithms that the configuration names and never by what
//! the token says of itself: a replay is served before the upstream can look at it.

use http::HeaderValue;
use http::header::AUTHORIZATION;
use http::request::Parts;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Header, Validation};
use selfsame::Tenant;
use selfsame::tenant::{MissingTenant, NAME_BYTES_MAX};
use serde_json::{Map, Value};

use crate::config;
use crate::tls::files::Unfit;

/// A shorter shared secret can be guessed by whoever has a token.
const SECRET_BYTES_MIN: usize = 32;
/// How far two clocks may be apart.
const LEEWAY_SECONDS: u64 = 30;

/// Believes the tokens of one issuer.
pub(crate) struct Verifier {
    keys: Vec<Known>,
    validation: Validation,
    issuer: String,
}

/// A key that tokens may be signed with.
struct Known {
    id: Option<String>,
    algorithm: Option<Value>,
    key: DecodingKey,
}

impl Verifier {
    /// As `jwt` says, or the setting that is wrong, and why.
    pub(crate) fn new(jwt: &config::Jwt) -> Result<Self, Unfit> {
        let keys = match jwt.keys.trim_ascii_start().first() {
            Some(b'{') => from_set(&jwt.keys, &jwt.algorithms).map_err(unfit_keys)?,
            _ => vec![Known { id: None, algorithm: None, key: from_file(jwt)? }],
        };
        let mut validation = Validation::new(jwt.algorithms[0]);
        validation.algorithms.clone_from(&jwt.algorithms);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_issuer(&[&jwt.issuer]);
        validation.set_audience(&[&jwt.audience]);
        // What is not there would not be looked at.
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        Ok(Self { keys, validation, issuer: jwt.issuer.clone() })
    }

    /// The tenant in `claim` of the token that a request shows.
    pub(crate) fn tenant(&self, claim: &str, parts: &Parts) -> Result<Tenant, MissingTenant> {
        let claims = self.claims(token(parts)?).map_err(unbelieved)?;
        let refused = |what: &str| unbelieved(format!("the token's claim {claim:?} {what}"));
        let name = match claims.get(claim) {
            Some(Value::String(text)) if !text.is_empty() => text.clone(),
            // Parsed exactly; any other number was rounded, and two callers could become one.
            Some(Value::Number(number)) if !number.is_f64() => number.to_string(),
            Some(Value::Number(_)) => {
                return Err(refused(
                    "is no whole number of 64 bits; callers could not be told apart",
                ));
            }
            _ => {
                let text = format!("the token has no claim {claim:?} that names its caller");
                return Err(unbelieved(text));
            }
        };
        if name.len() > NAME_BYTES_MAX {
            return Err(refused(&format!("is longer than {NAME_BYTES_MAX} bytes")));
        }
        if name.contains(char::is_control) {
            return Err(refused("holds control characters"));
        }
        Ok(Tenant::named(&source(claim, &self.issuer), &name))
    }

    fn claims(&self, token: &[u8]) -> Result<Map<String, Value>, String> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| NO_TOKEN.to_owned())?;
        // RFC 7515, 4.1.11: no extension is understood here.
        if header.crit.is_some() {
            return Err("the token has a header \"crit\", which is not understood here".to_owned());
        }
        let key = self.key_of(&header).ok_or("the token is signed with a key that is not known")?;
        let decoded = jsonwebtoken::decode(token, key, &self.validation);
        decoded.map(|token| token.claims).map_err(|error| explain(error.kind()))
    }

    /// The key that `header` names; where it names none, the only one there is.
    fn key_of(&self, header: &Header) -> Option<&DecodingKey> {
        let known = match (&header.kid, &self.keys[..]) {
            (_, [only @ Known { id: None, .. }]) | (None, [only]) => Some(only),
            (None, _) => None,
            (id, keys) => keys.iter().find(|known| known.id == *id),
        }?;
        let fits = known.algorithm.as_ref().is_none_or(|of| *of == name(header.alg));
        fits.then_some(&known.key)
    }
}

/// Where such a tenant comes from. Another issuer's caller of the same name is another one.
pub(crate) fn source(claim: &str, issuer: &str) -> String {
    format!("jwt:{claim} of {issuer}")
}

const NO_TOKEN: &str = "send a JSON Web Token as \"Authorization: Bearer …\"";

fn token(parts: &Parts) -> Result<&[u8], MissingTenant> {
    let mut values = parts.headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(MissingTenant::new(NO_TOKEN));
    };
    let bearer = value.as_bytes().split_at_checked(7);
    match bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer ")) {
        Some((_, token)) => Ok(token.trim_ascii()),
        None => Err(MissingTenant::new(NO_TOKEN)),
    }
}

/// Refuses a token that was shown (RFC 6750, section 3.1).
fn unbelieved(detail: String) -> MissingTenant {
    MissingTenant::new(detail).challenge(HeaderValue::from_static("Bearer error=\"invalid_token\""))
}

/// Why a token is not believed, for its sender.
fn explain(kind: &ErrorKind) -> String {
    match kind {
        ErrorKind::ExpiredSignature => {
            "the token has expired; get a new one, and send the same key again".to_owned()
        }
        ErrorKind::ImmatureSignature => "the token is not valid yet".to_owned(),
        ErrorKind::InvalidIssuer => "the token is from another issuer".to_owned(),
        ErrorKind::InvalidAudience => "the token is for another service".to_owned(),
        ErrorKind::InvalidAlgorithm => {
            "the token is signed with an algorithm that is not taken here".to_owned()
        }
        ErrorKind::MissingRequiredClaim(claim) => format!("the token has no claim {claim:?}"),
        _ => "the token cannot be verified".to_owned(),
    }
}

/// The keys of a JWK set that the algorithms can be used with.
fn from_set(bytes: &[u8], algorithms: &[Algorithm]) -> Result<Vec<Known>, String> {
    let set: JwkSet =
        serde_json::from_slice(bytes).map_err(|error| format!("is not a JWK set: {error}"))?;
    let mut keys = Vec::new();
    for jwk in set.keys.iter().filter(|jwk| signs(jwk)) {
        let key = DecodingKey::from_jwk(jwk).map_err(|error| format!("a key of it: {error}"))?;
        if key.family() == AlgorithmFamily::Hmac {
            return Err("holds a shared secret; write it into a file of its own".to_owned());
        }
        if algorithms.iter().any(|algorithm| key.family().algorithms().contains(algorithm)) {
            let algorithm = jwk.common.key_algorithm.map(name);
            keys.push(Known { id: jwk.common.key_id.clone(), algorithm, key });
        }
    }
    match keys.is_empty() {
        true => Err("holds no key that the algorithms can be used with".to_owned()),
        false => Ok(keys),
    }
}

fn signs(jwk: &Jwk) -> bool {
    matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature))
}

/// The one key of a file that is no set.
fn from_file(jwt: &config::Jwt) -> Result<DecodingKey, Unfit> {
    let families =
        [AlgorithmFamily::Rsa, AlgorithmFamily::Ec, AlgorithmFamily::Ed, AlgorithmFamily::Hmac];
    let fits = |family: &AlgorithmFamily| {
        jwt.algorithms.iter().all(|algorithm| family.algorithms().contains(algorithm))
    };
    let not_a_key = |error| format!("is no public key in PEM for {:?}: {error}", jwt.algorithms);
    let key = match families.into_iter().find(fits) {
        Some(AlgorithmFamily::Rsa) => DecodingKey::from_rsa_pem(&jwt.keys).map_err(not_a_key),
        Some(AlgorithmFamily::Ec) => DecodingKey::from_ec_pem(&jwt.keys).map_err(not_a_key),
        Some(AlgorithmFamily::Ed) => DecodingKey::from_ed_pem(&jwt.keys).map_err(not_a_key),
        Some(AlgorithmFamily::Hmac) => secret(jwt.keys.trim_ascii()),
        None => {
            let text = "one key cannot be used with all of these algorithms".to_owned();
            return Err(Unfit { setting: "algorithms", text });
        }
    };
    key.map_err(unfit_keys)
}

fn unfit_keys(text: String) -> Unfit {
    Unfit { setting: "key_file", text }
}

fn secret(bytes: &[u8]) -> Result<DecodingKey, String> {
    if bytes.starts_with(b"-----BEGIN") {
        return Err("is a key in PEM; HS… algorithms need a shared secret".to_owned());
    }
    if bytes.len() < SECRET_BYTES_MIN {
        let text = format!("holds {} bytes; use at least {SECRET_BYTES_MIN}", bytes.len());
        return Err(text);
    }
    Ok(DecodingKey::from_secret(bytes))
}

/// An algorithm as it is written.
fn name(algorithm: impl serde::Serialize) -> Value {
    serde_json::to_value(algorithm).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, encode, get_current_timestamp};
    use rcgen::KeyPair;
    use serde_json::json;

    use super::*;

    const SECRET: &[u8] = b"a secret that nobody can guess, 42";

    fn settings(keys: &[u8], algorithms: &[Algorithm]) -> config::Jwt {
        let (issuer, audience) = ("https://login".to_owned(), "payments".to_owned());
        config::Jwt {
            key_file: "keys".into(),
            keys: keys.to_vec(),
            algorithms: algorithms.to_vec(),
            issuer,
            audience,
        }
    }

    fn claims() -> Value {
        let exp = get_current_timestamp() + 600;
        json!({"iss": "https://login", "aud": "payments", "exp": exp, "sub": "ann", "org": 7})
    }

    /// What becomes of a token with `claims`, signed with the secret.
    fn claim_of(claim: &str, claims: &Value) -> Result<String, String> {
        let verifier = Verifier::new(&settings(SECRET, &[Algorithm::HS256])).expect("valid");
        let key = EncodingKey::from_secret(SECRET);
        let token = encode(&Header::new(Algorithm::HS256), claims, &key).expect("signed");
        named(&verifier, claim, &token)
    }

    fn named(verifier: &Verifier, claim: &str, token: &str) -> Result<String, String> {
        let request = http::Request::builder().header(AUTHORIZATION, format!("Bearer {token}"));
        let (parts, ()) = request.body(()).expect("valid").into_parts();
        let tenant = verifier.tenant(claim, &parts).map_err(|missing| missing.detail)?;
        Ok(tenant.name().expect("a claim is no credential").to_owned())
    }

    #[test]
    fn a_claim_of_a_valid_token_is_the_tenant() {
        assert_eq!(claim_of("sub", &claims()), Ok("ann".to_owned()));
        assert_eq!(claim_of("org", &claims()), Ok("7".to_owned()));
        let missing = "the token has no claim \"team\" that names its caller";
        assert_eq!(claim_of("team", &claims()), Err(missing.to_owned()));
    }

    #[test]
    fn a_token_of_which_anything_is_in_doubt_is_refused() {
        let now = get_current_timestamp();
        let table = [
            ("exp", json!(now - 600), "the token has expired"),
            ("exp", json!(null), "the token"),
            ("nbf", json!(now + 600), "the token is not valid yet"),
            ("iss", json!("https://other"), "the token is from another issuer"),
            ("aud", json!("refunds"), "the token is for another service"),
            ("sub", json!(["ann"]), "the token cannot be verified"),
            ("sub", json!(""), "the token has no claim \"sub\""),
        ];
        for (name, value, reason) in table {
            let mut claims = claims();
            claims[name] = value;
            let refused = claim_of("sub", &claims).expect_err(name);
            assert!(refused.starts_with(reason), "{name}: {refused}");
        }
        for name in ["exp", "iss", "aud"] {
            let mut claims = claims();
            claims.as_object_mut().expect("an object").remove(name);
            let expected = format!("the token has no claim {name:?}");
            assert_eq!(claim_of("sub", &claims), Err(expected));
        }
    }

    #[test]
    fn numbers_that_are_rounded_name_nobody() {
        for exact in ["0", "-7", "9007199254740993", "18446744073709551615", "-9223372036854775808"]
        {
            let mut claims = claims();
            claims["org"] = serde_json::from_str(exact).expect("a number");
            assert_eq!(claim_of("org", &claims), Ok(exact.to_owned()));
        }
        // As text: a value of serde_json has lost the digits already.
        let verifier = Verifier::new(&settings(SECRET, &[Algorithm::HS256])).expect("valid");
        for rounded in ["18446744073709551616", "-9223372036854775809", "7.0", "1e3", "-0"] {
            let claims = claims().to_string().replace("\"org\":7", &format!("\"org\":{rounded}"));
            let claims: Box<serde_json::value::RawValue> =
                serde_json::from_str(&claims).expect("JSON");
            let key = EncodingKey::from_secret(SECRET);
            let token = encode(&Header::new(Algorithm::HS256), &claims, &key).expect("signed");
            let refused = named(&verifier, "org", &token).expect_err(rounded);
            assert!(refused.contains("no whole number of 64 bits"), "{rounded}: {refused}");
        }
    }

    #[test]
    fn names_are_short_and_without_control_characters() {
        let named = |name: &str| {
            let mut claims = claims();
            claims["sub"] = json!(name);
            claim_of("sub", &claims)
        };
        let longest = "x".repeat(NAME_BYTES_MAX);
        assert_eq!(named(&longest), Ok(longest.clone()));
        assert!(named(&format!("{longest}x")).expect_err("long").contains("longer than 256 bytes"));
        for name in ["ann\u{1b}[2J", "ann\nbob", "\0", "ann\u{7f}", "ann\u{9b}2J"] {
            let refused = named(name).expect_err("control characters");
            assert!(
                refused.contains("control characters") && !refused.contains("ann"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_token_with_critical_extensions_is_refused() {
        let verifier = Verifier::new(&settings(SECRET, &[Algorithm::HS256])).expect("valid");
        let key = EncodingKey::from_secret(SECRET);
        for names in [vec!["exp"], vec!["b64"], vec!["urn:example:x", "b64"], vec![]] {
            let crit = Some(names.iter().map(|name| (*name).to_owned()).collect());
            let header = Header { crit, ..Header::new(Algorithm::HS256) };
            let token = encode(&header, &claims(), &key).expect("signed");
            let refused = named(&verifier, "sub", &token).expect_err("critical");
            assert!(refused.contains("\"crit\""), "{refused}");
        }
    }

    #[test]
    fn a_token_cannot_choose_its_key_or_algorithm() {
        let pair = KeyPair::generate().expect("a key");
        let public = pair.public_key_pem();
        let verifier = Verifier::new(&settings(public.as_bytes(), &[Algorithm::ES256]));
        let verifier = verifier.expect("a public key");
        let private = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).expect("a key");
        let token = encode(&Header::new(Algorithm::ES256), &claims(), &private).expect("signed");
        assert_eq!(named(&verifier, "sub", &token), Ok("ann".to_owned()));

        // The public key taken for a shared secret, the oldest trick there is.
        let known = EncodingKey::from_secret(public.as_bytes());
        let forged = encode(&Header::new(Algorithm::HS256), &claims(), &known).expect("signed");
        assert!(named(&verifier, "sub", &forged).is_err());
        let (head, _) = token.rsplit_once('.').expect("three parts");
        assert!(named(&verifier, "sub", &format!("{head}.")).is_err());
        let none = format!("eyJhbGciOiJub25lIn0.{}.", head.split_once('.').expect("two").1);
        assert!(named(&verifier, "sub", &none).is_err());
        let other = KeyPair::generate().expect("a key");
        let other = EncodingKey::from_ec_pem(other.serialize_pem().as_bytes()).expect("a key");
        let forged = encode(&Header::new(Algorithm::ES256), &claims(), &other).expect("signed");
        assert_eq!(named(&verifier, "sub", &forged), Err("the token cannot be verified".into()));
    }

    #[test]
    fn keys_of_a_set_are_found_by_their_names() {
        let pairs = ["old", "new"].map(|name| (name, KeyPair::generate().expect("a key")));
        let keys = pairs.each_ref().map(|(name, pair)| {
            let private = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).expect("a key");
            let mut jwk = Jwk::from_encoding_key(&private, Algorithm::ES256).expect("a key");
            jwk.common.key_id = Some((*name).to_owned());
            (jwk, private)
        });
        let set = json!({"keys": keys.each_ref().map(|(jwk, _)| jwk)}).to_string();
        let verifier =
            Verifier::new(&settings(set.as_bytes(), &[Algorithm::ES256])).expect("a set");
        let token = |id: Option<&str>, key: &EncodingKey| {
            let header = Header { kid: id.map(str::to_owned), ..Header::new(Algorithm::ES256) };
            encode(&header, &claims(), key).expect("signed")
        };
        let [(_, old), (_, new)] = &keys;
        assert!(named(&verifier, "sub", &token(Some("old"), old)).is_ok());
        assert!(named(&verifier, "sub", &token(Some("new"), new)).is_ok());
        let unknown = Err("the token is signed with a key that is not known".to_owned());
        assert_eq!(named(&verifier, "sub", &token(Some("newer"), new)), unknown);
        assert_eq!(named(&verifier, "sub", &token(None, new)), unknown);
        assert!(named(&verifier, "sub", &token(Some("old"), new)).is_err());
        let wrong = Verifier::new(&settings(set.as_bytes(), &[Algorithm::RS256])).err();
        let wrong = wrong.expect("no such key");
        assert_eq!(wrong.text, "holds no key that the algorithms can be used with");
        assert_eq!(wrong.setting, "key_file");
    }

    #[test]
    fn keys_that_are_of_no_use_say_so() {
        use Algorithm::{ES256, HS256, RS256};
        let pem = KeyPair::generate().expect("a key").public_key_pem();
        let table: [(&[u8], &[Algorithm], &str); 6] = [
            (b"short", &[HS256], "holds 5 bytes; use at least 32"),
            (pem.as_bytes(), &[HS256], "is a key in PEM"),
            (pem.as_bytes(), &[RS256], "is no public key in PEM for [RS256]"),
            (b"nonsense", &[ES256], "is no public key in PEM for [ES256]"),
            (SECRET, &[HS256, RS256], "one key cannot be used with all of these algorithms"),
            (b"{}", &[RS256], "is not a JWK set"),
        ];
        for (keys, algorithms, reason) in table {
            let wrong = Verifier::new(&settings(keys, algorithms)).err().expect(reason);
            assert!(wrong.text.starts_with(reason), "{wrong}");
        }
    }
}
