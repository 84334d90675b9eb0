//! [`Route`]: which requests a `[[route]]` takes, and that no other takes the same.

use http::Method;
use matchit::{InsertError, Router};
use toml::de::DeValue;

use super::pattern;
use super::settings::RouteSettings;
use super::values::{Kind, Wrong, text};
use super::words::METHOD;
use super::{Host, Upstream};

/// Requests that are treated in a way of their own: those to `host` with one of `settings.methods`
/// and a path that fits `pattern`. Where several fit, one with a host goes before one without, and
/// then a path's fixed parts before its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where the requests are sent to; without one, anywhere.
    pub host: Option<Host>,
    /// Where the work is done; without one, where the configuration says for all.
    pub upstream: Option<Upstream>,
    /// The path, with `{param}` and `{*rest}` as [`matchit`] reads them.
    pub pattern: String,
    /// How these requests are treated.
    pub settings: RouteSettings,
}

impl Route {
    /// What it is called in metrics and, where endpoints count, in a key's identity.
    pub fn name(&self) -> String {
        named(self.host.as_ref(), &self.pattern)
    }
}

fn named(host: Option<&Host>, pattern: &str) -> String {
    match host {
        Some(host) => format!("{host}{pattern}"),
        None => pattern.to_owned(),
    }
}

/// What a route's `match` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// Empty where it leaves them to `methods`.
    pub(super) methods: Vec<Method>,
    pub(super) pattern: String,
}

/// Separators of methods in other configuration languages.
const METHODS_APART: [char; 4] = ['|', ' ', ';', '+'];

pub(super) const MATCH: Kind<Match> = Kind {
    expected: r#"methods and a path like "POST /v1/charges", "PUT,PATCH /v1/{id}" or "/v1/{*rest}""#,
    read: read_match,
};

fn read_match(value: &DeValue<'_>) -> Result<Match, Wrong> {
    let text = text(value)?;
    let (methods, pattern) = text.split_at(text.find('/').ok_or(Wrong::Form)?);
    let methods = read_methods(methods).map_err(Wrong::Because)?;
    pattern::check(pattern).map_err(Wrong::Because)?;
    Router::new().insert(pattern, ()).map_err(|error| Wrong::Because(explain(&error)))?;
    Ok(Match { methods, pattern: pattern.to_owned() })
}

/// The methods in `text`, which ends where the path begins.
fn read_methods(text: &str) -> Result<Vec<Method>, String> {
    let mut methods = Vec::new();
    if text.ends_with(':') {
        let reason = "write the path alone, like \"/v1/charges\"; a route's host goes into host";
        return Err(reason.to_owned());
    }
    if !text.is_empty() && !text.ends_with(' ') {
        return Err(format!(
            "a space and a slash stand before the path, like \"POST /v1/charges\", found {text:?} \
             before its first slash"
        ));
    }
    let text = text.trim();
    if text.is_empty() {
        return Ok(methods);
    }
    for name in text.split(',') {
        let name = name.trim();
        if name.contains(METHODS_APART) {
            let text = "methods are written with commas, like \"PUT,PATCH\"";
            return Err(format!("{text}, found {name:?}"));
        }
        let method = METHOD.take(&DeValue::String(name.into()))?;
        if methods.contains(&method) {
            return Err(format!("{method} stands here twice"));
        }
        methods.push(method);
    }
    Ok(methods)
}

fn explain(error: &InsertError) -> String {
    match error {
        InsertError::InvalidParamSegment => {
            "only one parameter may stand between two slashes".to_owned()
        }
        InsertError::InvalidParam => {
            "a parameter needs a name between its braces, like \"/v1/{id}\"".to_owned()
        }
        InsertError::InvalidCatchAll => "{*rest} may only stand at the end".to_owned(),
        other => other.to_string(),
    }
}

/// The routes of each host and method so far, to find those that could take the same request; and
/// where the paths of each host lead.
#[derive(Default)]
pub(super) struct Taken {
    routers: Vec<(Option<Host>, Method, Router<()>)>,
    paths: Vec<(Option<Host>, Router<Option<Upstream>>)>,
}

impl Taken {
    /// Adds a route, or says which other one it cannot stand beside.
    pub(super) fn add(&mut self, route: &Route) -> Result<(), String> {
        for method in &route.settings.methods {
            let router = self.router(route.host.as_ref(), method);
            router.insert(route.pattern.as_str(), ()).map_err(|error| match error {
                InsertError::Conflict { with } => format!(
                    "{method} {} and the route {method} {} can fit the same path, and neither \
                     would go first",
                    route.name(),
                    named(route.host.as_ref(), &with)
                ),
                other => explain(&other),
            })?;
        }
        self.lead(route)
    }

    /// Requests with a method that no route takes go where their path leads: that must be one place.
    fn lead(&mut self, route: &Route) -> Result<(), String> {
        let found = self.paths.iter().position(|(of, _)| *of == route.host);
        let index = found.unwrap_or_else(|| {
            self.paths.push((route.host.clone(), Router::new()));
            self.paths.len() - 1
        });
        let paths = &mut self.paths[index].1;
        match paths.insert(route.pattern.as_str(), route.upstream.clone()) {
            // The earlier one is found by its own pattern: a path fits where its names are the same.
            Err(InsertError::Conflict { with })
                if paths.at(&with).is_ok_and(|at| *at.value != route.upstream) =>
            {
                Err(format!(
                    "{} and the route {} fit the same path and have different upstreams; requests \
                     with other methods would not know where to go",
                    route.name(),
                    named(route.host.as_ref(), &with)
                ))
            }
            _ => Ok(()),
        }
    }

    fn router(&mut self, host: Option<&Host>, method: &Method) -> &mut Router<()> {
        let is_it = |(of, by, _): &(Option<Host>, Method, _)| of.as_ref() == host && by == method;
        let found = self.routers.iter().position(is_it);
        let index = found.unwrap_or_else(|| {
            self.routers.push((host.cloned(), method.clone(), Router::new()));
            self.routers.len() - 1
        });
        &mut self.routers[index].2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(text: &str) -> Result<Match, String> {
        MATCH.take(&DeValue::String(text.into()))
    }

    #[test]
    fn a_match_is_methods_and_a_path() {
        let table = [
            ("POST /v1/charges", vec![Method::POST], "/v1/charges"),
            ("POST,PATCH /v1/{id}", vec![Method::POST, Method::PATCH], "/v1/{id}"),
            ("PUT, DELETE  /{*rest}", vec![Method::PUT, Method::DELETE], "/{*rest}"),
            ("/v1/{*rest}", vec![], "/v1/{*rest}"),
            ("/", vec![], "/"),
        ];
        for (text, methods, pattern) in table {
            assert_eq!(take(text), Ok(Match { methods, pattern: pattern.to_owned() }));
        }
    }

    #[test]
    fn a_wrong_match_says_what_is_wrong() {
        let parameter = "a parameter needs a name between its braces, like \"/v1/{id}\"";
        let table = [
            ("POST", format!("expected {}, found \"POST\"", MATCH.expected)),
            ("GET /a", format!("expected {}, found \"GET\"", METHOD.expected)),
            ("post /a", format!("expected {}, found \"post\"", METHOD.expected)),
            ("* /a", format!("expected {}, found \"*\"", METHOD.expected)),
            (
                "POST PUT /a",
                "methods are written with commas, like \"PUT,PATCH\", found \"POST PUT\""
                    .to_owned(),
            ),
            (
                "POST|PUT /a",
                "methods are written with commas, like \"PUT,PATCH\", found \"POST|PUT\""
                    .to_owned(),
            ),
            (
                "POST v1/a",
                "a space and a slash stand before the path, like \"POST /v1/charges\", found \
                 \"POST v1\" before its first slash"
                    .to_owned(),
            ),
            (
                "https://a.example/v1",
                "write the path alone, like \"/v1/charges\"; a route's host goes into host"
                    .to_owned(),
            ),
            ("POST, /a", format!("expected {}, found \"\"", METHOD.expected)),
            ("POST,POST /a", "POST stands here twice".to_owned()),
            ("POST /{}", parameter.to_owned()),
            ("POST /{id", parameter.to_owned()),
            ("POST /{a}{b}", "only one parameter may stand between two slashes".to_owned()),
            ("POST /{*rest}/a", "{*rest} may only stand at the end".to_owned()),
        ];
        for (text, expected) in table {
            assert_eq!(take(text), Err(expected), "{text}");
        }
    }
}
