//! What forms a key's identity: were it to change unnoticed, known keys would run again.

use std::collections::BTreeSet;

use http::Method;
use selfsame::ScopeKind;

use crate::{jwt, tenant};

use super::{Config, Host, Route, RouteSettings, TenantSource};

impl Config {
    /// Everything in this configuration that forms a key's identity, one line each: the defaults,
    /// then, sorted, the method, host and path of each route that matters to the identity of a key.
    ///
    /// The text stays the same when routes change their order, and when routes come or go that
    /// have the defaults' identity and take no requests from a route that has another.
    pub fn identity(&self) -> String {
        let mut lines = BTreeSet::new();
        for route in &self.routes {
            for method in &route.settings.methods {
                if self.differs(route) || self.shades(route, method) {
                    lines.insert(format!("{method} {} {}", route.name(), identity_at(route)));
                }
            }
        }
        let mut text = format!("default {}", identity_of(&self.defaults));
        for line in lines {
            text.push('\n');
            text.push_str(&line);
        }
        text
    }

    fn differs(&self, route: &Route) -> bool {
        identity_at(route) != identity_of(&self.defaults)
    }

    /// Whether requests that `route` takes could otherwise fall to a route of another identity.
    fn shades(&self, route: &Route, method: &Method) -> bool {
        self.routes.iter().any(|other| {
            other.settings.methods.contains(method)
                && self.differs(other)
                && may_meet(&route.pattern, &other.pattern)
                && may_be_the_same(route.host.as_ref(), other.host.as_ref())
                && !keeps_its_own(other, route)
        })
    }
}

/// Whether some request is sent to both hosts.
fn may_be_the_same(left: Option<&Host>, right: Option<&Host>) -> bool {
    left.zip(right).is_none_or(|(left, right)| left.meets(right))
}

/// Whether `inner` is asked before `outer`, and so keeps its requests either way: its host is closer,
/// or the same and its path inside the other's.
fn keeps_its_own(inner: &Route, outer: &Route) -> bool {
    match (&inner.host, &outer.host) {
        (Some(inner), Some(outer)) if inner != outer => inner.rank() < outer.rank(),
        (Some(_), None) => true,
        (None, Some(_)) => false,
        _ => covers(&outer.pattern, &inner.pattern),
    }
}

/// Whether some path fits both patterns. In doubt, yes. A slash at the end makes no difference.
fn may_meet(left: &str, right: &str) -> bool {
    let [mut left, mut right] =
        [left, right].map(|pattern| pattern.strip_suffix('/').unwrap_or(pattern).split('/'));
    loop {
        match (left.next(), right.next()) {
            (Some(l), Some(r)) if l.contains("{*") || r.contains("{*") => return true,
            (Some(l), Some(r)) if l == r || l.contains('{') || r.contains('{') => {}
            (ends, end) => return ends.is_none() && end.is_none(),
        }
    }
}

/// Whether every path that fits `special` fits `general` too. In doubt, no.
fn covers(general: &str, special: &str) -> bool {
    let (mut general, mut special) = (general.split('/'), special.split('/'));
    loop {
        match (general.next(), special.next()) {
            (Some(g), Some(_)) if g.starts_with("{*") => return true,
            (Some(g), Some(s)) if g == s || is_parameter(g) && !s.contains("{*") => {}
            (ends, end) => return ends.is_none() && end.is_none(),
        }
    }
}

/// Whether a segment is nothing but a parameter.
fn is_parameter(segment: &str) -> bool {
    segment.starts_with('{') && !segment.starts_with("{{") && segment.ends_with('}')
}

/// With the scope of an endpoint, the route's own host and path are part of the identity.
fn identity_at(route: &Route) -> String {
    match route.settings.scope {
        ScopeKind::Tenant => identity_of(&route.settings),
        ScopeKind::Endpoint => format!("{} at={}", identity_of(&route.settings), route.name()),
    }
}

// No part can hold a space or a line break, so no two settings look alike.
fn identity_of(settings: &RouteSettings) -> String {
    let scope = match settings.scope {
        ScopeKind::Tenant => "tenant",
        ScopeKind::Endpoint => "endpoint",
    };
    let tenant = match &settings.tenant {
        TenantSource::Jwt { claim, issuer } => jwt::source(claim, issuer),
        TenantSource::ForwardAuth { header } => tenant::forward_auth_source(header),
        as_written => as_written.to_string(),
    };
    // Their order makes no difference: two of them in one request are an error.
    let headers: BTreeSet<&str> = settings.key_headers.iter().map(|name| name.as_str()).collect();
    let headers = headers.into_iter().collect::<Vec<_>>().join(",");
    let mut text =
        format!("scope={scope} tenant={tenant} key={headers} strict={}", settings.strict);
    if let Some(pointer) = &settings.key_pointer {
        let pointer = pointer.as_str().escape_default().to_string().replace(' ', "\\u{20}");
        text.push_str(&format!(" pointer={pointer}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;

    const DEFAULT: &str =
        "default scope=tenant tenant=authorization key=idempotency-key strict=false";

    fn identity(routes: &str) -> String {
        load(&format!("upstream = \"http://a\"\n{routes}")).expect("valid").identity()
    }

    #[test]
    fn only_what_forms_identity_is_listed() {
        assert_eq!(identity(""), DEFAULT);
        let other = "[idempotency]\nkey = 'required'\nlease = '9s'\nrecover = 'hold'\n\
            fingerprint = 'raw'\nheaders = ['X-A']\n[[route]]\nmatch = 'PUT /a'\nkey = 'off'";
        assert_eq!(identity(other), DEFAULT);
    }

    #[test]
    fn each_part_of_the_identity_is_listed() {
        let text = "[idempotency]\nscope = 'endpoint'\ntenant = 'cookie:Sid'\nstrict = true\n\
            key_headers = ['X-B', 'X-A']";
        assert_eq!(
            identity(text),
            "default scope=endpoint tenant=cookie:Sid key=x-a,x-b strict=true"
        );
    }

    #[test]
    fn a_pointer_to_the_key_is_part_of_the_identity() {
        let defaults = "[idempotency]\nkey_pointer = '/a b\\é'\nformat = 'uuid'\nmin_length = 9\n\
            reject_older_than = '1d'\n";
        let expected = format!("{DEFAULT} pointer=/a\\u{{20}}b\\\\\\u{{e9}}");
        assert_eq!(identity(defaults), expected);
        let route = "[[route]]\nmatch = 'POST /a'\nkey_pointer = 'off'";
        assert!(identity(&format!("{defaults}{route}")).ends_with(
            "\nPOST /a scope=tenant \
            tenant=authorization key=idempotency-key strict=false"
        ));
    }

    #[test]
    fn the_order_of_routes_makes_no_difference() {
        let a = "[[route]]\nmatch = 'POST,PUT /a'\ntenant = 'none'\n";
        let b = "[[route]]\nmatch = 'POST /b'\nscope = 'endpoint'\n";
        let expected = format!(
            "{DEFAULT}\n\
             POST /a scope=tenant tenant=none key=idempotency-key strict=false\n\
             POST /b scope=endpoint tenant=authorization key=idempotency-key strict=false at=/b\n\
             PUT /a scope=tenant tenant=none key=idempotency-key strict=false"
        );
        assert_eq!(identity(&format!("{a}{b}")), expected);
        assert_eq!(identity(&format!("{b}{a}")), expected);
    }

    const OPEN: &str = "[[route]]\nmatch = '/v1/{id}/x'\ntenant = 'none'\n";

    #[test]
    fn a_route_that_changes_no_identity_may_come_and_go() {
        for path in ["/v2/a", "/v1/a", "/v1/a/y", "/{a}/{b}/{c}", "/{*rest}"] {
            let route = format!("[[route]]\nmatch = '{path}'\nkey = 'required'\n");
            assert_eq!(identity(&format!("{OPEN}{route}")), identity(OPEN), "{path}");
        }
    }

    #[test]
    fn a_route_with_the_defaults_that_takes_from_another_changes_identity() {
        for path in ["/v1/a/x", "/v1/a/{*rest}", "/v1/a/{b}", "/v1/a{b}/x"] {
            let route = format!("[[route]]\nmatch = '{path}'\nkey = 'required'\n");
            assert_ne!(identity(&format!("{OPEN}{route}")), identity(OPEN), "{path}");
        }
        let put = "[[route]]\nmatch = 'PUT /v1/a/x'\n";
        assert_eq!(identity(&format!("{OPEN}{put}")), identity(OPEN), "another method");
    }

    #[test]
    fn a_route_of_another_host_takes_nothing_from_this_one() {
        let at = |host: &str, rest: &str| {
            format!("[[route]]\nhost = '{host}'\nmatch = '/v1/{{id}}/x'\n{rest}\n")
        };
        let open = at("a.b", "tenant = 'none'");
        for host in ["c.b", "*.b"] {
            assert_eq!(identity(&(open.clone() + &at(host, ""))), identity(&open), "{host}");
        }
        assert_ne!(identity(&(open.clone() + &at("a.b:1", ""))), identity(&open));
        let anywhere = "[[route]]\nmatch = '/v1/a/x'\n";
        assert_eq!(identity(&(open.clone() + anywhere)), identity(&open));
        assert_ne!(identity(&(OPEN.to_owned() + &at("a.b", ""))), identity(OPEN));
        // Its host goes first, however wide its path is.
        let wide = "[[route]]\nhost = 'a.b'\nmatch = '/{*rest}'\n";
        assert_ne!(identity(&(OPEN.to_owned() + wide)), identity(OPEN));
        let by_endpoint = at("a.b", "scope = 'endpoint'");
        assert!(identity(&by_endpoint).ends_with(" at=a.b/v1/{id}/x"));
    }

    #[test]
    fn a_new_endpoint_changes_identity_where_endpoints_count() {
        let defaults = "[idempotency]\nscope = 'endpoint'\n";
        let route = "[[route]]\nmatch = '/v1/a'\n";
        assert_ne!(identity(&format!("{defaults}{route}")), identity(defaults));
    }
}
