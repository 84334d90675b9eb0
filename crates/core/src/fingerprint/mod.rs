//! [`Fingerprint`]: which request a key stands for. `vectors/README.md` says it byte by byte.

mod content_type;
mod encoding;
mod json;
mod multipart;
mod outline;

use std::borrow::Cow;
use std::fmt;

use http::Method;

use crate::digest::Digester;
use crate::{JsonPointer, Secret};
use content_type::ContentType;
use multipart::Part;

pub(crate) use encoding::decoded;
pub(crate) use json::write_character;
pub use outline::{Difference, Outline};

/// What a fingerprint is made of. Credentials, dates and trace headers are never part of it.
#[derive(Debug, Clone, Copy)]
pub struct RequestFacts<'a> {
    /// The method.
    pub method: &'a Method,
    /// The host and port the request was sent to, if they count. Their case does not.
    pub authority: Option<&'a [u8]>,
    /// The path, as sent.
    pub path: &'a str,
    /// The query, as sent.
    pub query: Option<&'a str>,
    /// The `Content-Type`, as sent.
    pub content_type: Option<&'a [u8]>,
    /// The `Content-Encoding`, as sent.
    pub content_encoding: Option<&'a [u8]>,
    /// The headers that were chosen to count, by lower-case name and in the order of names.
    pub headers: &'a [CountedHeader<'a>],
    /// The whole body, as sent.
    pub body: &'a [u8],
}

/// A header that was chosen to count: its lower-case name, and its lines joined by `", "`.
pub type CountedHeader<'a> = (&'a str, Option<Cow<'a, [u8]>>);

/// How a body is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FingerprintForm {
    /// By its meaning, where there is no doubt about that: JSON in any order and spacing, forms
    /// with any boundary, gzip and deflate at any level. Everything else byte by byte.
    #[default]
    Canonical,
    /// Byte by byte.
    Raw,
}

/// How requests are compared.
#[derive(Debug, Clone, Copy)]
pub struct FingerprintRules<'a> {
    /// How a body is compared.
    pub form: FingerprintForm,
    /// What does not count in a body that is compared as JSON, whether it is there or not. Where
    /// an array loses an element, those behind it count as if it had never been there.
    pub ignore: &'a [JsonPointer],
    /// How large a body may become when it is unpacked; a larger one is compared as it was sent. So is one
    /// of more than 16 KiB and 32 times what was sent.
    pub unpacked_bytes_max: usize,
}

/// A digest of a request, with the version of the rules and the secret it was made under.
///
/// Two are equal only if both are the same too: what was made under other rules or another secret
/// cannot be compared, and counts as another request. Then the key is refused, which runs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: u8,
    secret_id: u32,
    digest: [u8; 32],
}

/// A body as it is compared.
enum Content<'a> {
    Raw(&'a [u8]),
    Json(Vec<u8>),
    Form(Vec<Part<'a>>),
}

impl Fingerprint {
    /// The version of the rules in use. Rules that change get a new one, and the old ones must be
    /// followed for as long as there are records made under them: their keys would be refused.
    pub const VERSION: u8 = 1;
    /// How many bytes a store keeps.
    pub const LEN: usize = 37;

    /// The fingerprint of a request: HMAC-SHA-256 under the secret, or SHA-256 without one.
    pub fn of(
        facts: &RequestFacts<'_>,
        rules: &FingerprintRules<'_>,
        secret: Option<&Secret>,
    ) -> Self {
        read(facts, rules, |content, content_type, encoding| {
            let mut digester = Digester::new(secret, "fingerprint/1");
            digester.field(facts.method.as_str().as_bytes());
            digester.optional(facts.authority.map(<[u8]>::to_ascii_lowercase).as_deref());
            digester.field(facts.path.as_bytes());
            digester.optional(facts.query.map(str::as_bytes));
            digester.optional(content_type);
            digester.optional(encoding);
            digester.count(facts.headers.len());
            for (name, value) in facts.headers {
                digester.field(name.as_bytes());
                digester.optional(value.as_deref());
            }
            content.digest(&mut digester);
            Self::sealed(digester, secret)
        })
    }

    /// The fingerprint of a call of `function` with this `input`, which is JSON.
    pub fn of_call(function: &str, input: &[u8], secret: Option<&Secret>) -> Self {
        let mut digester = Digester::new(secret, "fingerprint/1/call");
        digester.field(function.as_bytes());
        digester.field(json::canonical(input, &[]).as_deref().unwrap_or(input));
        Self::sealed(digester, secret)
    }

    fn sealed(digester: Digester, secret: Option<&Secret>) -> Self {
        let secret_id = secret.map_or(0, Secret::id);
        Self { version: Self::VERSION, secret_id, digest: digester.finish() }
    }

    /// The bytes a store keeps: the version, the secret's id (big-endian), the digest.
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

/// Reads a body by the rules, and gives it to `then` with what counts of the content type and of the
/// encoding.
fn read<T>(
    facts: &RequestFacts<'_>,
    rules: &FingerprintRules<'_>,
    then: impl FnOnce(&Content<'_>, Option<&[u8]>, Option<&[u8]>) -> T,
) -> T {
    let (encoding, bytes_max) = (facts.content_encoding, rules.unpacked_bytes_max);
    let (kind, unpacked) = match rules.form {
        FingerprintForm::Raw => (None, None),
        FingerprintForm::Canonical => (
            facts.content_type.and_then(ContentType::read),
            encoding::decoded(encoding, facts.body, bytes_max),
        ),
    };
    let content = match (&kind, &unpacked) {
        (Some(kind), Some(body)) => Content::read(kind, body, rules.ignore),
        (None, Some(body)) => Content::Raw(body),
        (_, None) => Content::Raw(facts.body),
    };
    let left_out = matches!(content, Content::Form(_)).then_some("boundary");
    let content_type = match &kind {
        Some(kind) => Some(kind.text(left_out)),
        None => facts.content_type.map(Cow::Borrowed),
    };
    then(&content, content_type.as_deref(), encoding.filter(|_| unpacked.is_none()))
}

impl<'a> Content<'a> {
    fn read(kind: &ContentType<'_>, body: &'a [u8], ignore: &[JsonPointer]) -> Self {
        if kind.is_json() {
            return json::canonical(body, ignore).map_or(Self::Raw(body), Self::Json);
        }
        let parts = kind.boundary().and_then(|boundary| multipart::parts(body, boundary));
        parts.map_or(Self::Raw(body), Self::Form)
    }

    /// Marked, so that raw bytes that look canonical are not taken for it.
    fn digest(&self, digester: &mut Digester) {
        match self {
            Self::Raw(body) => {
                digester.field(b"raw");
                digester.field(body);
            }
            Self::Json(text) => {
                digester.field(b"json");
                digester.field(text);
            }
            Self::Form(parts) => {
                digester.field(b"multipart");
                digester.count(parts.len());
                for part in parts {
                    digester.count(part.headers().count());
                    for (name, value) in part.headers() {
                        digester.field(&name.to_ascii_lowercase());
                        digester.field(value);
                    }
                    digester.field(part.content);
                }
            }
        }
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint(v{}, {:02x}{:02x}…)", self.version, self.digest[0], self.digest[1])
    }
}

#[cfg(test)]
mod tests;
