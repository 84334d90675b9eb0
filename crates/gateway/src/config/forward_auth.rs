//! `[forward_auth]`: which service tells callers apart, for routes with `tenant = "forward-auth"`.

use std::time::Duration;

use http::HeaderName;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, HOST};
use http::uri::{PathAndQuery, Uri};
use selfsame_core::headers::{SELFSAME_PREFIX, is_hop_by_hop};
use toml::de::DeValue;

use super::Upstream;
use super::file::Section;
use super::mistakes::Mistakes;
use super::network::UPSTREAM;
use super::values::{DURATION, DURATION_OR_OFF, Kind, Wrong, because, text};
use super::words::HEADER;

/// The longest that an answer may be used again.
const CACHE_MAX: Duration = Duration::from_secs(30);

/// Which service tells callers apart, and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardAuth {
    /// Where it is.
    pub service: Upstream,
    /// What is asked for there.
    pub path: PathAndQuery,
    /// How long it may take to answer.
    pub timeout: Duration,
    /// What of a request it is shown.
    pub headers: Vec<HeaderName>,
    /// Where its answer names the caller.
    pub tenant_header: HeaderName,
    /// How long it need not be asked again for the same; zero where that is off.
    pub cache: Duration,
}

const URL: Kind<(Upstream, PathAndQuery)> = Kind {
    expected: r#"an address like "http://auth.internal:4180/verify""#,
    read: |value| {
        let text = text(value)?;
        // Before anything else: what follows may quote the text.
        if text.contains('@') {
            return Err(because(
                "must not hold a name or password; name it by its network instead",
            ));
        }
        let uri: Uri = text.parse().map_err(|_| Wrong::Form)?;
        let (Some(scheme @ ("http" | "https")), Some(authority)) =
            (uri.scheme_str(), uri.authority())
        else {
            return Err(Wrong::Form);
        };
        if text.contains('#') {
            return Err(Wrong::Form);
        }
        let service = DeValue::String(format!("{scheme}://{authority}").into());
        let path = uri.path_and_query().cloned();
        Ok(((UPSTREAM.read)(&service)?, path.unwrap_or(PathAndQuery::from_static("/"))))
    },
};

const PASSED_ON: Kind<HeaderName> = Kind { expected: HEADER.expected, read: own };

const TENANT_HEADER: Kind<HeaderName> = Kind {
    expected: r#"a header name like "X-Tenant""#,
    read: |value| match own(value)? {
        name if name == AUTHORIZATION || name == COOKIE => {
            Err(Wrong::Because(format!("{name} is the caller's own")))
        }
        name => Ok(name),
    },
};

const CACHE: Kind<Duration> = Kind {
    expected: DURATION_OR_OFF.expected,
    read: |value| match (DURATION_OR_OFF.read)(value)? {
        cache if cache > CACHE_MAX => Err(because("must be at most 30s")),
        cache => Ok(cache),
    },
};

/// A header that goes from one end to another.
fn own(value: &DeValue<'_>) -> Result<HeaderName, Wrong> {
    let name = (HEADER.read)(value)?;
    let is_framing = [CONTENT_LENGTH, EXPECT, HOST].contains(&name) || is_hop_by_hop(&name);
    if is_framing || name.as_str().starts_with(SELFSAME_PREFIX) {
        return Err(Wrong::Because(format!(
            "{name} belongs to one connection, or is the gateway's"
        )));
    }
    Ok(name)
}

/// What `section` says, if it is there.
pub(super) fn read(mut section: Section<'_>, mistakes: &mut Mistakes) -> Option<ForwardAuth> {
    let url = section.get("url", &URL);
    let mut timeout = Duration::from_secs(5);
    section.set("timeout", &DURATION, &mut timeout);
    let mut more = Vec::new();
    section.set_list("headers", &PASSED_ON, &mut more);
    let mut tenant_header = HeaderName::from_static("x-tenant");
    section.set("tenant_header", &TENANT_HEADER, &mut tenant_header);
    let mut cache = CACHE_MAX;
    section.set("cache", &CACHE, &mut cache);
    if url.is_none() && section.is_written() {
        section.missing("url", "is missing; write url = \"http://auth.internal:4180/verify\"");
    }
    if more.contains(&tenant_header) {
        let text = format!("what a client says in {tenant_header} is not believed; leave it out");
        section.clash(&["headers", "tenant_header"], text);
    }
    section.finish(mistakes);
    let mut headers = vec![AUTHORIZATION, COOKIE];
    headers.extend(more.into_iter().filter(|name| *name != AUTHORIZATION && *name != COOKIE));
    url.map(|(service, path)| ForwardAuth { service, path, timeout, headers, tenant_header, cache })
}

#[cfg(test)]
mod tests {
    use super::super::TenantSource;
    use super::super::tests::load;
    use super::*;

    fn with(lines: &str) -> String {
        format!(
            "upstream = 'http://a'\n[forward_auth]\n{lines}\n[idempotency]\ntenant = 'forward-auth'"
        )
    }

    #[test]
    fn only_the_url_is_needed() {
        let config = load(&with("url = 'http://auth:1/verify?a=b'")).expect("valid");
        let auth = config.forward_auth.expect("said");
        assert_eq!(auth.service.authority.as_str(), "auth:1");
        assert_eq!(auth.path, "/verify?a=b");
        assert_eq!(auth.headers, [AUTHORIZATION, COOKIE]);
        assert_eq!((auth.timeout, auth.cache), (Duration::from_secs(5), CACHE_MAX));
        let header = HeaderName::from_static("x-tenant");
        assert_eq!(config.defaults.tenant, TenantSource::ForwardAuth { header });
    }

    #[test]
    fn all_of_it_can_be_said() {
        let lines = "url = 'https://auth'\ntimeout = '2s'\nheaders = ['X-Session', 'Cookie']\n\
            tenant_header = 'X-User'\ncache = 'off'";
        let config = load(&with(&format!("{lines}\n[upstream_tls]\nserver_name = 'b'")));
        let auth = config.expect("valid").forward_auth.expect("said");
        assert_eq!(auth.path, "/");
        assert!(auth.service.is_encrypted);
        assert_eq!(auth.headers, ["authorization", "cookie", "x-session"]);
        assert_eq!(auth.tenant_header, "x-user");
        assert_eq!((auth.timeout, auth.cache), (Duration::from_secs(2), Duration::ZERO));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let table = [
            ("", "forward_auth.url: is missing; write url"),
            ("url = 'auth:1'", "expected an address like"),
            ("url = 'ftp://a'", "expected an address like"),
            ("url = 'h2c://a'", "expected an address like"),
            ("url = 'http://a#b'", "expected an address like"),
            ("url = 'http://me:hunter2@a'", "must not hold a name or password"),
            ("url = 'http://a'\ncache = '31s'", "must be at most 30s"),
            ("url = 'http://a'\nheaders = ['Host']", "host belongs to one connection"),
            ("url = 'http://a'\ntenant_header = 'Cookie'", "cookie is the caller's own"),
            ("url = 'http://a'\nheaders = ['X-Tenant']", "is not believed; leave it out"),
        ];
        for (lines, expected) in table {
            let said = load(&with(lines)).expect_err("a mistake").to_string();
            assert!(said.contains(expected) && !said.contains("hunter2"), "{said}");
        }
        let route = "upstream = 'http://a'\n[[route]]\nmatch = '/'\ntenant = 'forward-auth'";
        let said = load(route).expect_err("nobody to ask").to_string();
        assert!(said.contains("nothing says who is asked; add [forward_auth] with url"), "{said}");
        let permitted =
            |lines: &str| format!("upstream = 'http://a'\n{lines}\nreplay_needs = 'forward-auth'");
        let table = [
            ("[idempotency]", "nothing says who is asked; add [forward_auth] with url"),
            (
                "[forward_auth]\nurl = 'http://b'\n[idempotency]\nmode = 'observe'",
                "a request that is only observed waits for nobody",
            ),
            (
                "[forward_auth]\nurl = 'http://b'\n[idempotency]\ntenant = 'credential:X-Api-Key'",
                "the service is not shown x-api-key, which tells callers apart; add it to",
            ),
        ];
        for (lines, expected) in table {
            let said = load(&permitted(lines)).expect_err("a mistake").to_string();
            assert!(said.contains(expected), "{said}");
        }
        let shown = "[forward_auth]\nurl = 'http://b'\nheaders = ['X-Api-Key']\n[idempotency]\n\
            tenant = 'credential:X-Api-Key'";
        assert!(load(&permitted(shown)).expect("valid").defaults.needs_permission);
        let observed = with("url = 'http://b'") + "\nmode = 'observe'";
        let said = load(&observed).expect_err("nothing may wait").to_string();
        assert!(said.contains("a request that is only observed waits for nobody"), "{said}");
    }
}
