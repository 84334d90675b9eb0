//! `[jwt]`: whose tokens are believed, for routes with `tenant = "jwt:CLAIM"`.

use std::fmt;
use std::path::PathBuf;

use jsonwebtoken::{Algorithm, AlgorithmFamily};
use toml::de::DeValue;

use super::file::Section;
use super::mistakes::Mistakes;
use super::values::{Kind, PATH, Wrong, text};
use crate::jwt::Verifier;
use crate::tls::files::Unfit;

/// Whose tokens are believed.
#[derive(Clone, PartialEq, Eq)]
pub struct Jwt {
    /// File of the keys.
    pub key_file: PathBuf,
    /// Content of `key_file`: a JWK set, a public key in PEM, or a shared secret.
    pub keys: Vec<u8>,
    /// The only algorithms that a token may be signed with; at least one.
    pub algorithms: Vec<Algorithm>,
    /// Who must have made a token.
    pub issuer: String,
    /// For whom it must have been made.
    pub audience: String,
}

impl Jwt {
    /// Tells if the keys are shared secrets, which sign tokens as well as verify them.
    pub fn is_secret(&self) -> bool {
        let is_shared = |algorithm: &Algorithm| matches!(algorithm.family(), AlgorithmFamily::Hmac);
        self.algorithms.iter().any(is_shared)
    }
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys may be a secret.
        let Self { key_file: _, keys: _, algorithms, issuer, audience } = self;
        write!(f, "Jwt({algorithms:?}, from {issuer:?} for {audience:?})")
    }
}

const ALGORITHM: Kind<Algorithm> = Kind {
    expected: r#""RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "HS256", "HS384" or "HS512""#,
    read: |value| text(value)?.parse().map_err(|_| Wrong::Form),
};

const ISSUER: Kind<String> = Kind {
    expected: r#"the "iss" of your tokens, like "https://login.example.com""#,
    read: filled,
};

const AUDIENCE: Kind<String> =
    Kind { expected: r#"the "aud" of your tokens, like "payments""#, read: filled };

fn filled(value: &DeValue<'_>) -> Result<String, Wrong> {
    text(value).and_then(|text| if text.is_empty() { Err(Wrong::Form) } else { Ok(text.into()) })
}

/// What `section` says, if it is there. Where it is, nothing may be left out: a token of which
/// something is not checked may be another's.
pub(super) fn read(mut section: Section<'_>, mistakes: &mut Mistakes) -> Option<Jwt> {
    let key_file = section.get("key_file", &PATH);
    let mut algorithms = Vec::new();
    section.set_filled_list("algorithms", &ALGORITHM, &mut algorithms);
    let issuer = section.get("issuer", &ISSUER);
    let audience = section.get("audience", &AUDIENCE);
    if section.is_written() {
        for (name, is_missing, text) in [
            ("key_file", key_file.is_none(), "is missing; name a JWK set or a public key in PEM"),
            ("algorithms", algorithms.is_empty(), "is missing; write algorithms = [\"RS256\"]"),
            ("issuer", issuer.is_none(), "is missing; write the \"iss\" of your tokens"),
            ("audience", audience.is_none(), "is missing; write the \"aud\" of your tokens"),
        ] {
            if is_missing {
                section.missing(name, text);
            }
        }
    }
    let jwt = key_file.filter(|_| !algorithms.is_empty()).and_then(|path| {
        let jwt = with_keys_of(path, algorithms, issuer?, audience?);
        jwt.map_err(|Unfit { setting, text }| section.clash(&[setting], text)).ok()
    });
    section.finish(mistakes);
    jwt
}

fn with_keys_of(
    key_file: PathBuf,
    algorithms: Vec<Algorithm>,
    issuer: String,
    audience: String,
) -> Result<Jwt, Unfit> {
    let keys = std::fs::read(&key_file).map_err(|error| {
        let text = format!("{} cannot be read: {error}", key_file.display());
        Unfit { setting: "key_file", text }
    })?;
    let jwt = Jwt { key_file, keys, algorithms, issuer, audience };
    match Verifier::new(&jwt) {
        Ok(_) => Ok(jwt),
        Err(Unfit { setting, text }) => Err(Unfit::new(setting, &jwt.key_file, &text)),
    }
}
