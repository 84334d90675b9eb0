//! What forms a key's identity: were it to change unnoticed, known keys would run again.

use std::collections::BTreeSet;

use http::Method;
use matchit::Router;
use selfsame::ScopeKind;

use super::{Config, Route, RouteSettings, TenantSource};

impl Config {
    /// Everything in this configuration that forms a key's identity, one line each: the defaults,
    /// then, sorted, every method and path whose keys would be others without their route.
    ///
    /// The text stays the same when routes change their order, and when routes come or go that
    /// make no difference to a key's identity.
    pub fn identity(&self) -> String {
        let mut lines = BTreeSet::new();
        for route in &self.routes {
            let with = identity_at(route);
            for method in &route.settings.methods {
                if with != self.identity_without(route, method) {
                    lines.insert(format!("{method} {} {with}", route.pattern));
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

    /// The identity that keys at the path of `route` would have if it were not there.
    fn identity_without(&self, route: &Route, method: &Method) -> String {
        let mut others = Router::new();
        for other in &self.routes {
            if other.pattern != route.pattern && other.settings.methods.contains(method) {
                others
                    .insert(other.pattern.as_str(), other)
                    .expect("checked: no two routes take the same requests");
            }
        }
        // Read as a path, a pattern falls to the very route that takes over: the more general.
        match others.at(&route.pattern) {
            Ok(found) => identity_at(found.value),
            Err(_) => identity_of(&self.defaults),
        }
    }
}

/// With the scope of an endpoint, the route's own path is part of the identity.
fn identity_at(route: &Route) -> String {
    match route.settings.scope {
        ScopeKind::Tenant => identity_of(&route.settings),
        ScopeKind::Endpoint => format!("{} at={}", identity_of(&route.settings), route.pattern),
    }
}

// No part can hold a space or a line break, so no two settings look alike.
fn identity_of(settings: &RouteSettings) -> String {
    let scope = match settings.scope {
        ScopeKind::Tenant => "tenant",
        ScopeKind::Endpoint => "endpoint",
    };
    let tenant = match &settings.tenant {
        TenantSource::Authorization => "authorization".to_owned(),
        TenantSource::Cookie(name) => format!("cookie:{name}"),
        TenantSource::Header(name) => format!("header:{name}"),
        TenantSource::None => "none".to_owned(),
    };
    // Their order makes no difference: two of them in one request are an error.
    let headers: BTreeSet<&str> = settings.key_headers.iter().map(|name| name.as_str()).collect();
    let headers = headers.into_iter().collect::<Vec<_>>().join(",");
    format!("scope={scope} tenant={tenant} key={headers} strict={}", settings.strict)
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;

    const DEFAULT: &str = "default scope=tenant tenant=authorization key=idempotency-key strict=false";

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

    #[test]
    fn a_route_that_changes_no_identity_may_come_and_go() {
        let none = "[[route]]\nmatch = '/v1/{*rest}'\ntenant = 'none'\n";
        let inside = "[[route]]\nmatch = '/v1/a'\ntenant = 'none'\nkey = 'required'\n";
        let outside = "[[route]]\nmatch = '/v2/a'\nkey = 'required'\n";
        assert_eq!(identity(&format!("{none}{inside}{outside}")), identity(none));
    }

    #[test]
    fn a_route_with_the_defaults_inside_another_changes_identity() {
        let none = "[[route]]\nmatch = '/v1/{*rest}'\ntenant = 'none'\n";
        let inside = "[[route]]\nmatch = '/v1/a'\nkey = 'required'\n";
        assert_ne!(identity(&format!("{none}{inside}")), identity(none));
    }

    #[test]
    fn a_new_endpoint_changes_identity_where_endpoints_count() {
        let defaults = "[idempotency]\nscope = 'endpoint'\n";
        let route = "[[route]]\nmatch = '/v1/a'\n";
        assert_ne!(identity(&format!("{defaults}{route}")), identity(defaults));
    }
}
