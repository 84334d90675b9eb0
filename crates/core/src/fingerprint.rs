//! [`Fingerprint`]: which request a key stands for.

use std::fmt;

use http::Method;

use crate::Secret;
use crate::canonical_json::canonical;
use crate::digest::Digester;

/// What a fingerprint is made of. Credentials, dates and trace headers are never part of it.
#[derive(Debug, Clone, Copy)]
pub struct RequestFacts<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path, as sent.
    pub path: &'a str,
    /// The query, as sent.
    pub query: Option<&'a str>,
    /// The `Content-Type`, as sent.
    pub content_type: Option<&'a str>,
    /// The headers that were chosen to count, by lower-case name.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
    /// The whole body.
    pub body: &'a [u8],
}

/// How a body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FingerprintForm {
    /// JSON by its meaning, everything else byte by byte.
    #[default]
    Canonical,
    /// Everything byte by byte.
    Raw,
}

/// A digest of a request, with the version of the rules and the secret it was made under.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: u8,
    secret_id: u32,
    digest: [u8; 32],
}

impl Fingerprint {
    /// The version of the rules in use.
    pub const VERSION: u8 = 1;
    /// How many bytes a store keeps.
    pub const LEN: usize = 37;

    /// The fingerprint of a request: HMAC-SHA-256 under the secret, or SHA-256 without one.
    pub fn of(facts: &RequestFacts<'_>, form: FingerprintForm, secret: Option<&Secret>) -> Self {
        let content_type = facts.content_type.map(ContentType::read);
        let is_json = content_type.as_ref().is_some_and(ContentType::is_json);
        let canonical = match form {
            FingerprintForm::Canonical if is_json => canonical(facts.body),
            _ => None,
        };

        let mut digester = Digester::new(secret, "fingerprint/1");
        digester.field(facts.method.as_str().as_bytes());
        digester.field(facts.path.as_bytes());
        digester.optional(facts.query.map(str::as_bytes));
        digester.optional(content_type.as_ref().map(|kind| kind.text.as_bytes()));
        for (name, value) in facts.headers {
            digester.field(name.as_bytes());
            digester.optional(*value);
        }
        // Marked, so that raw bytes that look canonical are not taken for it.
        match &canonical {
            Some(json) => digester.optional(Some(json)),
            None => {
                digester.optional(None);
                digester.field(facts.body);
            }
        }
        Self::sealed(digester, secret)
    }

    /// The fingerprint of a call of `function` with this `input`, which is JSON.
    pub fn of_call(function: &str, input: &[u8], secret: Option<&Secret>) -> Self {
        let mut digester = Digester::new(secret, "fingerprint/1/call");
        digester.field(function.as_bytes());
        digester.field(canonical(input).as_deref().unwrap_or(input));
        Self::sealed(digester, secret)
    }

    fn sealed(digester: Digester, secret: Option<&Secret>) -> Self {
        let secret_id = secret.map_or(0, Secret::id);
        Self { version: Self::VERSION, secret_id, digest: digester.finish() }
    }

    /// The bytes a store keeps.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.version;
        bytes[1..5].copy_from_slice(&self.secret_id.to_be_bytes());
        bytes[5..].copy_from_slice(&self.digest);
        bytes
    }

    /// The fingerprint a store kept.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let mut digest = [0; 32];
        digest.copy_from_slice(&bytes[5..]);
        let secret_id = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        Self { version: bytes[0], secret_id, digest }
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint(v{}, {:02x}{:02x}…)", self.version, self.digest[0], self.digest[1])
    }
}

/// A media type without what makes no difference: case of its name, spacing, `charset=utf-8`.
struct ContentType {
    text: String,
    is_utf8: bool,
}

impl ContentType {
    fn read(raw: &str) -> Self {
        let mut parts = raw.split(';').map(str::trim);
        let mut text = parts.next().unwrap_or_default().to_ascii_lowercase();
        let mut is_utf8 = true;
        for parameter in parts.filter(|part| !part.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if name.trim().eq_ignore_ascii_case("charset") {
                let charset = value.trim().trim_matches('"');
                if charset.eq_ignore_ascii_case("utf-8") {
                    continue;
                }
                is_utf8 = false;
            }
            text.push(';');
            text.push_str(parameter);
        }
        Self { text, is_utf8 }
    }

    fn is_json(&self) -> bool {
        let name = self.text.split(';').next().unwrap_or_default();
        self.is_utf8 && (name == "application/json" || name.ends_with("+json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: RequestFacts<'static> = RequestFacts {
        method: &Method::POST,
        path: "/v1/charges",
        query: None,
        content_type: Some("application/json"),
        headers: &[],
        body: br#"{"amount":10,"currency":"eur"}"#,
    };

    fn print(facts: &RequestFacts<'_>) -> Fingerprint {
        Fingerprint::of(facts, FingerprintForm::Canonical, None)
    }

    #[test]
    fn the_same_json_written_otherwise_is_the_same_request() {
        let other = RequestFacts { body: b"{ \"currency\":\"\\u0065ur\",\n\"amount\":10}", ..POST };
        assert_eq!(print(&POST), print(&other));
        let raw = |facts| Fingerprint::of(facts, FingerprintForm::Raw, None);
        assert_ne!(raw(&POST), raw(&other));
    }

    #[test]
    fn charset_utf8_and_spelling_of_the_type_make_no_difference() {
        for kind in [
            "application/json; charset=utf-8",
            "Application/JSON;charset=\"UTF-8\"",
            "application/json;",
        ] {
            assert_eq!(
                print(&POST),
                print(&RequestFacts { content_type: Some(kind), ..POST }),
                "{kind}"
            );
        }
        let latin = Some("application/json; charset=latin1");
        assert_ne!(print(&POST), print(&RequestFacts { content_type: latin, ..POST }));
    }

    #[test]
    fn everything_that_matters_changes_it() {
        let variants = [
            RequestFacts { method: &Method::PATCH, ..POST },
            RequestFacts { path: "/v1/charges/", ..POST },
            RequestFacts { query: Some(""), ..POST },
            RequestFacts { query: Some("a=1"), ..POST },
            RequestFacts { content_type: None, ..POST },
            RequestFacts { content_type: Some("text/plain"), ..POST },
            RequestFacts { headers: &[("stripe-account", None)], ..POST },
            RequestFacts { headers: &[("stripe-account", Some(b"a"))], ..POST },
            RequestFacts { body: br#"{"amount":10.0,"currency":"eur"}"#, ..POST },
            RequestFacts { body: br#"{"amount":10,"currency":"eur","currency":"eur"}"#, ..POST },
            RequestFacts { body: b"", ..POST },
        ];
        let mut seen = vec![print(&POST)];
        for facts in &variants {
            let next = print(facts);
            assert!(!seen.contains(&next), "{facts:?}");
            seen.push(next);
        }
    }

    #[test]
    fn a_call_is_its_function_and_its_input() {
        let call = |function, input: &str| Fingerprint::of_call(function, input.as_bytes(), None);
        let mail = call("send_mail", r#"{"to":"a","order":1}"#);
        assert_eq!(mail, call("send_mail", r#"{"order":1,"to":"a"}"#));
        assert_ne!(mail, call("send_mail", r#"{"to":"a","order":2}"#));
        assert_ne!(mail, call("send_text", r#"{"to":"a","order":1}"#));
    }

    #[test]
    fn a_secret_changes_it_and_is_named() {
        let one = Secret::from_bytes(&[1; 32]);
        let keyed = Fingerprint::of(&POST, FingerprintForm::Canonical, Some(&one));
        assert_ne!(keyed, print(&POST));
        assert_eq!(keyed.secret_id, one.id());
        assert_eq!(Fingerprint::from_bytes(keyed.to_bytes()), keyed);
    }
}
