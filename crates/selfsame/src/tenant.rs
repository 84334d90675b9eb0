//! Where a request's tenant comes from.
//!
//! A replay is served before anything behind the layer can check the caller, so a tenant must
//! come from something only the caller has.

use std::sync::Once;

use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use selfsame_core::Tenant;

/// Headers that APIs commonly take a credential from besides `Authorization`.
const CREDENTIAL_HEADERS: [&str; 6] = [
    "X-Api-Key",
    "Api-Key",
    "X-Auth-Token",
    "X-Access-Token",
    "Ocp-Apim-Subscription-Key",
    "apikey",
];

/// The longest name of a tenant, in bytes. Each record holds it.
pub const NAME_BYTES_MAX: usize = 256;

/// Nothing in the request says whose key it is, or two things do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingTenant {
    /// What was missing and what to do, for the client.
    pub detail: String,
    /// Value of `WWW-Authenticate` in the refusal: which credential would be taken.
    pub challenge: HeaderValue,
}

impl MissingTenant {
    /// With this to say to the client, and the challenge `Bearer`.
    pub fn new(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), challenge: HeaderValue::from_static("Bearer") }
    }

    /// Replaces the challenge, for instance by `Basic realm="api"`.
    #[must_use]
    pub fn challenge(self, challenge: HeaderValue) -> Self {
        Self { challenge, ..self }
    }
}

/// The credential in `Authorization`. Without any credential, the anonymous tenant that public
/// endpoints share. With only a cookie or another header that commonly holds a credential
/// (`X-Api-Key`, `Api-Key`, `X-Auth-Token`, `X-Access-Token`, `Ocp-Apim-Subscription-Key`, `apikey`),
/// a refusal: one user's answer could reach another.
pub fn authorization(parts: &Parts) -> Result<Tenant, MissingTenant> {
    // An empty one is no credential: with a cookie beside it, it would make one tenant of all users.
    let values = parts.headers.get_all(AUTHORIZATION);
    let mut values = values.iter().filter(|value| !value.is_empty());
    match (values.next(), values.next()) {
        (Some(value), None) => {
            warn_of_token(value.as_bytes());
            Ok(Tenant::credential("authorization", value.as_bytes()))
        }
        (Some(_), Some(_)) => Err(MissingTenant::new("send one Authorization header, not several")),
        (None, _) => uncredentialed(&parts.headers),
    }
}

/// The anonymous tenant, unless a credential is in another place than `Authorization`.
fn uncredentialed(headers: &HeaderMap) -> Result<Tenant, MissingTenant> {
    if let Some(name) = CREDENTIAL_HEADERS.iter().find(|name| headers.contains_key(**name)) {
        return Err(MissingTenant::new(format!(
            "the request carries {name} and no Authorization header, so callers cannot be told \
             apart; send the credential in Authorization, or have the service take callers from \
             this header: tenant = \"credential:{name}\""
        ))
        .challenge(api_key(name)));
    }
    match headers.contains_key(COOKIE) {
        true => Err(MissingTenant::new(
            "the request carries a cookie and no Authorization header; send the credential in \
             Authorization, or have the service name the cookie that tells its users apart: \
             tenant = \"cookie:NAME\"",
        )),
        false => Ok(Tenant::anonymous()),
    }
}

/// The value of the header `name`, which is itself a credential, such as `X-Api-Key`. It is taken
/// from any client, and only its HMAC is kept.
pub fn credential(parts: &Parts, name: &HeaderName) -> Result<Tenant, MissingTenant> {
    let missing = |what| {
        MissingTenant::new(format!("the header {name} {what}")).challenge(api_key(name.as_str()))
    };
    let mut values = parts.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if !value.is_empty() => {
            warn_of_token(value.as_bytes());
            Ok(Tenant::credential(&format!("credential:{name}"), value.as_bytes()))
        }
        (Some(_), Some(_)) => Err(missing("came twice; send one credential")),
        _ => Err(missing("is missing; send your credential in it")),
    }
}

/// Challenge for a credential in a header of its own. No scheme is registered for that.
fn api_key(header: &str) -> HeaderValue {
    let text = format!("ApiKey header=\"{header}\"");
    HeaderValue::from_str(&text).expect("a header's name holds no quotes and no control characters")
}

/// A token that is renewed between two retries makes two tenants of one caller, and the work runs
/// twice. Said once: it is the set-up that is wrong, not the request.
fn warn_of_token(credential: &[u8]) {
    static SAID: Once = Once::new();
    if is_jwt(credential) {
        SAID.call_once(|| {
            tracing::warn!(
                "callers show JSON Web Tokens, which change when they are renewed: a retry with a \
                 new token is another tenant's and RUNS AGAIN; take the tenant from something \
                 that stays: tenant = \"jwt:CLAIM\" in the gateway, or a claim you have verified"
            );
        });
    }
}

/// Returns whether it is a token of three parts, bare or as a bearer's, the first of which is a JSON object
/// in base64.
fn is_jwt(credential: &[u8]) -> bool {
    let bearer = credential.split_at_checked(7).filter(|(s, _)| s.eq_ignore_ascii_case(b"bearer "));
    let token = bearer.map_or(credential, |(_, token)| token);
    token.starts_with(b"eyJ") && token.iter().filter(|&&byte| byte == b'.').count() == 2
}

/// The value of the cookie `name`.
pub fn cookie(parts: &Parts, name: &str) -> Result<Tenant, MissingTenant> {
    let missing = |what| {
        let missing = MissingTenant::new(format!("the cookie {name} {what}"));
        match HeaderValue::from_str(&format!("Cookie cookie-name=\"{name}\"")) {
            Ok(challenge) => missing.challenge(challenge),
            Err(_) => missing,
        }
    };
    let mut found = parts
        .headers
        .get_all(COOKIE)
        .iter()
        .flat_map(|header| header.as_bytes().split(|&byte| byte == b';'))
        .filter_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    match (found.next(), found.next()) {
        (Some(value), None) if !value.is_empty() => {
            Ok(Tenant::credential(&format!("cookie:{name}"), value))
        }
        (Some(_), Some(_)) => Err(missing("came twice")),
        _ => Err(missing("is missing")),
    }
}

/// The value of the header `name`, up to [`NAME_BYTES_MAX`] long. Only for headers that a trusted proxy sets.
pub fn header(parts: &Parts, name: &HeaderName) -> Result<Tenant, MissingTenant> {
    let mut values = parts.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if value.len() > NAME_BYTES_MAX => Err(MissingTenant::new(format!(
            "the header {name} is longer than {NAME_BYTES_MAX} bytes"
        ))),
        (Some(value), None) if !value.is_empty() => {
            let source = format!("header:{name}");
            Ok(match value.to_str() {
                Ok(text) => Tenant::named(&source, text),
                Err(_) => Tenant::credential(&source, value.as_bytes()),
            })
        }
        (Some(_), Some(_)) => Err(MissingTenant::new(format!("the header {name} came twice"))),
        _ => Err(MissingTenant::new(format!("the header {name} is missing"))),
    }
}

/// One tenant for all callers: only where every caller may see every answer.
pub fn none(_: &Parts) -> Result<Tenant, MissingTenant> {
    Ok(Tenant::everyone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use selfsame_core::{Secret, TenantTag};

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("valid").into_parts().0
    }

    fn tag(tenant: Result<Tenant, MissingTenant>) -> TenantTag {
        tenant.expect("a tenant").tag(&Secret::from_bytes(b"test"))
    }

    #[test]
    fn a_credential_is_a_tenant_and_none_is_anonymous() {
        let ann = tag(authorization(&parts(&[("authorization", "Bearer ann")])));
        let bob = tag(authorization(&parts(&[("authorization", "Bearer bob")])));
        let nobody = tag(authorization(&parts(&[])));
        assert!(ann != bob && bob != nobody && ann != nobody);
    }

    #[test]
    fn json_web_tokens_are_told_from_other_credentials() {
        assert!(is_jwt(b"Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"));
        assert!(is_jwt(b"bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0."));
        assert!(is_jwt(b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"));
        for other in
            [&b"Bearer sk_live_1.2.3"[..], b"Basic eyJ.a.b", b"Bearer eyJ.a", b"eyJ.a", b""]
        {
            assert!(!is_jwt(other), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn a_name_in_a_header_is_of_limited_length() {
        let account = HeaderName::from_static("x-account");
        let of_length = |length| header(&parts(&[("x-account", &"x".repeat(length))]), &account);
        assert!(of_length(NAME_BYTES_MAX).is_ok());
        assert!(of_length(NAME_BYTES_MAX + 1).is_err());
    }

    #[test]
    fn a_cookie_without_authorization_is_refused() {
        assert!(authorization(&parts(&[("cookie", "sid=1")])).is_err());
        assert!(
            authorization(&parts(&[("cookie", "sid=1"), ("authorization", "Bearer a")])).is_ok()
        );
        assert!(authorization(&parts(&[("cookie", "sid=1"), ("authorization", "")])).is_err());
        let twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
        assert!(authorization(&parts(&twice)).is_err());
    }

    #[test]
    fn another_credential_without_authorization_is_refused_with_the_setting_to_use() {
        for name in CREDENTIAL_HEADERS {
            let refused = authorization(&parts(&[(name, "k")])).expect_err("refused");
            let setting = format!("tenant = \"credential:{name}\"");
            assert!(refused.detail.contains(&setting), "{}", refused.detail);
            assert_eq!(refused.challenge, format!("ApiKey header=\"{name}\"").as_str());
            assert!(authorization(&parts(&[(name, "")])).is_err(), "{name}");
            let beside = [(name, "k"), ("authorization", "Bearer a")];
            assert_eq!(
                tag(authorization(&parts(&beside))),
                tag(authorization(&parts(&[("authorization", "Bearer a")])))
            );
        }
    }

    #[test]
    fn a_header_that_is_a_credential_must_come_once_and_is_not_shown() {
        let name = HeaderName::from_static("x-api-key");
        let [ann, bob] = ["ann", "bob"].map(|key| credential(&parts(&[("x-api-key", key)]), &name));
        assert_eq!(ann.as_ref().expect("a tenant").name(), None);
        assert_ne!(tag(ann), tag(bob));
        for headers in [&[][..], &[("x-api-key", "")], &[("x-api-key", "a"), ("x-api-key", "b")]] {
            assert!(credential(&parts(headers), &name).is_err(), "{headers:?}");
        }
        // One value under two names is two callers.
        let other = HeaderName::from_static("api-key");
        let of_other = tag(credential(&parts(&[("api-key", "ann")]), &other));
        assert_ne!(of_other, tag(credential(&parts(&[("x-api-key", "ann")]), &name)));
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let one = tag(cookie(&parts(&[("cookie", "a=x; sid=1; xsid=2")]), "sid"));
        let split = tag(cookie(&parts(&[("cookie", "b=1"), ("cookie", "sid=1")]), "sid"));
        assert_eq!(one, split);
        for headers in
            [&[("cookie", "xsid=1")][..], &[("cookie", "sid=")], &[("cookie", "sid=1; sid=2")], &[]]
        {
            assert!(cookie(&parts(headers), "sid").is_err(), "{headers:?}");
        }
    }

    #[test]
    fn a_header_must_come_once() {
        let name = http::HeaderName::from_static("x-user");
        assert!(header(&parts(&[("x-user", "ann")]), &name).is_ok());
        for headers in [&[][..], &[("x-user", "")], &[("x-user", "a"), ("x-user", "b")]] {
            assert!(header(&parts(headers), &name).is_err(), "{headers:?}");
        }
    }
}
