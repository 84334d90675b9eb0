//! `tenant`: the sources that a tenant may come from, as they are written.

use http::HeaderName;
use selfsame_core::headers::{self, differs_between_retries, is_hop_by_hop};
use toml::de::DeValue;

use super::settings::TenantSource;
use super::values::{Kind, Wrong, text};
use super::words::header_named;

pub(super) const TENANT: Kind<TenantSource> = Kind {
    expected: r#""authorization", "credential:HEADER", "cookie:NAME", "header:NAME", "jwt:CLAIM", "mtls", "forward-auth" or "none""#,
    read: tenant,
};

fn tenant(value: &DeValue<'_>) -> Result<TenantSource, Wrong> {
    let text = text(value)?;
    let (source, name) = text.split_once(':').unzip();
    match (source.unwrap_or(text), name) {
        ("authorization", None) => Ok(TenantSource::Authorization),
        ("mtls", None) => Ok(TenantSource::Mtls),
        ("none", None) => Ok(TenantSource::None),
        ("credential", Some(name)) => credential(name).map(TenantSource::Credential),
        ("header", Some(name)) => header_named(name).map(TenantSource::Header),
        // Cookies and headers are named with the same characters; a cookie keeps its case.
        ("cookie", Some(name)) if name.parse::<HeaderName>().is_ok() => {
            Ok(TenantSource::Cookie(name.to_owned()))
        }
        // Its issuer is that of [jwt].
        ("jwt", Some(claim)) if !claim.is_empty() => {
            Ok(TenantSource::Jwt { claim: claim.to_owned(), issuer: String::new() })
        }
        ("jwt", _) => Err(Wrong::Form),
        // Its header is that of [forward_auth].
        ("forward-auth", None) => {
            Ok(TenantSource::ForwardAuth { header: HeaderName::from_static("x-tenant") })
        }
        // What follows is not quoted: it may be an address with a password.
        ("forward-auth", Some(_)) => {
            let reason =
                "\"forward-auth\" stands alone; who is asked is said by url in [forward_auth]";
            Err(Wrong::Because(reason.to_owned()))
        }
        _ => Err(Wrong::Form),
    }
}

/// A header that callers may have their credential in.
fn credential(name: &str) -> Result<HeaderName, Wrong> {
    let name = header_named(name)?;
    let reason = match name.as_str() {
        "authorization" => "write tenant = \"authorization\" instead".to_owned(),
        "cookie" => "write tenant = \"cookie:NAME\" instead, with the cookie's name".to_owned(),
        text if text.starts_with(headers::SELFSAME_PREFIX) => {
            format!("{name} is the gateway's own")
        }
        _ if is_hop_by_hop(&name) => format!("{name} belongs to one connection"),
        _ if differs_between_retries(&name) || is_no_secret(&name) => {
            format!("{name} is no credential: others send the same")
        }
        _ => return Ok(name),
    };
    Err(Wrong::Because(reason))
}

/// Returns whether a header describes a request rather than its caller.
fn is_no_secret(name: &HeaderName) -> bool {
    let text = name.as_str();
    name == headers::IDEMPOTENCY_KEY
        || matches!(text, "host" | "origin" | "referer" | "forwarded" | "via" | "expect" | "prefer")
        || ["accept", "content-", "x-forwarded-"].iter().any(|start| text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take<T>(kind: &Kind<T>, text: &str) -> Result<T, String> {
        kind.take(&DeValue::String(text.into()))
    }

    #[test]
    fn a_tenant_comes_from_a_credential_a_cookie_a_header_a_certificate_or_nowhere() {
        let table = [
            ("authorization", TenantSource::Authorization),
            ("cookie:SESSION_id", TenantSource::Cookie("SESSION_id".to_owned())),
            ("header:X-Account", TenantSource::Header(HeaderName::from_static("x-account"))),
            (
                "credential:X-Api-Key",
                TenantSource::Credential(HeaderName::from_static("x-api-key")),
            ),
            ("mtls", TenantSource::Mtls),
            ("none", TenantSource::None),
            ("jwt:sub", TenantSource::Jwt { claim: "sub".into(), issuer: String::new() }),
            (
                "forward-auth",
                TenantSource::ForwardAuth { header: HeaderName::from_static("x-tenant") },
            ),
        ];
        for (text, source) in table {
            assert_eq!(take(&TENANT, text), Ok(source));
        }
    }

    #[test]
    fn a_wrong_tenant_says_what_is_wrong() {
        for text in [
            "",
            "cookie",
            "cookie:",
            "cookie:a b",
            "credential",
            "credential:",
            "credential:a b",
            "header:",
            "none:x",
            "Authorization",
            "jwt",
            "jwt:",
        ] {
            let expected = format!("expected {}, found {text:?}", TENANT.expected);
            assert_eq!(take(&TENANT, text), Err(expected));
        }
        let table = [
            ("credential:Authorization", "write tenant = \"authorization\" instead"),
            ("credential:cookie", "write tenant = \"cookie:NAME\" instead, with the cookie's name"),
            ("credential:Selfsame-Claim", "selfsame-claim is the gateway's own"),
            ("credential:Proxy-Authorization", "proxy-authorization belongs to one connection"),
            ("credential:User-Agent", "user-agent is no credential: others send the same"),
            ("credential:Host", "host is no credential: others send the same"),
        ];
        for (text, reason) in table {
            assert_eq!(take(&TENANT, text), Err(reason.to_owned()));
        }
        let alone =
            take(&TENANT, "forward-auth:http://me:hunter2@a").expect_err("more than a word");
        assert!(alone.contains("stands alone") && !alone.contains("hunter2"), "{alone}");
    }

    #[test]
    fn a_star_in_a_headers_name_is_a_mistake() {
        let star = Err("\"X-*\" would be taken literally; name each header".to_owned());
        assert_eq!(take(&TENANT, "header:X-*"), star);
        assert_eq!(take(&TENANT, "credential:X-*"), star);
    }
}
