//! `selfsame config check --try`: which route takes a request, and with which settings.

use std::fmt::Write;

use anyhow::{Context, Result};
use http::Request;
use selfsame::{KeyMode, Mode};

use crate::config::{Config, RouteSettings};
use crate::contract::ContractPage;
use crate::request_path::{self, Slashes, normal};
use crate::route_table::{Entry, RouteTable};
use crate::status::StatusPage;
use crate::target;

/// Tells what becomes of the request that `text` names.
///
/// # Errors
/// `text` names none.
pub(super) fn explain(config: &Config, text: &str) -> Result<String> {
    let request = target::named(text).with_context(|| {
        format!(
            "{text:?} is no request to try; write \"POST /v1/charges\", or a host before the path"
        )
    })?;
    let mut told = text.to_owned();
    if let Err(refusal) = request_path::check(&request) {
        write!(told, ": refused ({}), {}", refusal.status.as_u16(), refusal.detail)?;
        return Ok(told);
    }
    match page(config, &request) {
        Some(page) => told.push_str(&format!(": answered by the gateway itself, with {page}")),
        None => tell(config, &request, &mut told)?,
    }
    Ok(told)
}

/// The gateway's own page at this path, if it has one there.
fn page(config: &Config, request: &Request<()>) -> Option<&'static str> {
    let path = normal(request.uri().path(), Slashes::merged_if(config.merge_slashes));
    if config.contract_page && ContractPage::is_at(&path) {
        return Some("the contract page");
    }
    (config.status && StatusPage::is_at(&path)).then_some("the status of a key")
}

fn tell(config: &Config, request: &Request<()>, told: &mut String) -> Result<()> {
    let routes = config.routes.iter();
    let entries: Vec<_> =
        routes.map(|route| Entry { route, taken: route, passing: Some(route) }).collect();
    let table = RouteTable::new(Slashes::merged_if(config.merge_slashes), &entries);
    let (route, settings) = match table.taker(request) {
        Some(route) => {
            write!(told, ": taken by the route {}", route.name())?;
            (Some(*route), &route.settings)
        }
        None => {
            told.push_str(": taken by no route; [idempotency] counts");
            (table.passing(request).copied(), &config.defaults)
        }
    };
    let upstream = route.and_then(|route| route.upstream.as_ref()).unwrap_or(&config.upstream);
    write!(told, "\n  {}", fate(request, settings))?;
    write!(told, "\n  {:<20}\"{upstream}\"", "upstream")?;
    if settings.methods.contains(request.method()) {
        for (name, value) in settings.shown() {
            write!(told, "\n  {name:<20}{value}")?;
        }
    }
    Ok(())
}

/// A sentence on what these settings make of the request.
fn fate(request: &Request<()>, settings: &RouteSettings) -> String {
    let method = request.method();
    if !settings.methods.contains(method) {
        let methods: Vec<&str> = settings.methods.iter().map(|method| method.as_str()).collect();
        return format!(
            "NOT PROTECTED: {method} passes with or without a key; protected are {}",
            methods.join(", ")
        );
    }
    match (settings.mode, settings.key) {
        (_, KeyMode::Off) => "NOT PROTECTED: keys are not looked at".to_owned(),
        (Mode::Observe, _) => "NOT PROTECTED: it is only observed".to_owned(),
        (Mode::Enforce, KeyMode::Required) => {
            "protected; without a key it is refused (400 missing-key)".to_owned()
        }
        (Mode::Enforce, KeyMode::Optional) => {
            "protected where it has a key; without one it passes".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(text: &str) -> String {
        let toml = "upstream = 'http://a'\nstatus = true\n[[route]]\nmatch = 'POST /v1/charges'\n\
            key = 'required'\nlease = '9s'\ntenant = 'credential:X-Api-Key'\n\
            [[route]]\nmatch = 'PUT /v1/{*rest}'\nupstream = 'h2c://b:1'\nmode = 'observe'\n\
            [[route]]\nhost = 'api.example.com'\nmatch = '/v1/{id}'\nkey = 'off'\n";
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), toml).expect("written");
        let config = Config::load(Some(file.path()), &Default::default()).expect("valid");
        explain(&config, text).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn the_route_and_its_settings_are_told() {
        let told = explained("POST /v1/charges");
        assert!(told.starts_with("POST /v1/charges: taken by the route /v1/charges\n"), "{told}");
        for line in [
            "protected; without a key it is refused (400 missing-key)",
            "upstream            \"http://a\"",
            "key                 \"required\"",
            "tenant              \"credential:x-api-key\"",
            "recover             \"auto\"",
            "retention           \"1d\"",
            "lease               \"9s\"",
        ] {
            assert!(told.contains(&format!("\n  {line}")), "{told}");
        }
    }

    #[test]
    fn what_leaves_a_request_unprotected_is_told() {
        let table = [
            ("POST /v2/a", "taken by no route; [idempotency] counts\n  protected where it has"),
            ("POST /v1/charges/", "taken by the route /v1/charges"),
            ("POST /v1/%63harges", "taken by the route /v1/charges"),
            ("POST //v1//charges;x=1", "taken by the route /v1/charges"),
            ("POST /v1%2Fcharges", "taken by the route /v1/charges"),
            ("POST /v1/charges%3Bx=1", "taken by the route /v1/charges"),
            ("POST /v1/x/../charges", "refused (400), the path has a segment"),
            ("GET //.well-known/%69dempotency/", "with the contract page"),
            (
                "PUT /v1/charges",
                "the route /v1/{*rest}\n  NOT PROTECTED: it is only observed\n  \
                upstream            \"h2c://b:1\"",
            ),
            (
                "POST API.example.com:81/v1/charges",
                "the route api.example.com/v1/{id}\n  NOT PROTECTED: keys",
            ),
            (
                "GET /v1/charges",
                "no route; [idempotency] counts\n  NOT PROTECTED: GET passes with or \
                without a key; protected are POST, PATCH\n  upstream            \"http://a\"",
            ),
            ("GET /v1/x", "upstream            \"h2c://b:1\""),
            (
                "GET /.well-known/idempotency",
                ": answered by the gateway itself, with the contract page",
            ),
            ("GET /.well-known/idempotency/status?route=x", "with the status of a key"),
            ("/v1/charges", "is no request to try; write \"POST /v1/charges\""),
        ];
        for (text, expected) in table {
            let told = explained(text);
            assert!(told.contains(expected), "{told}\n{expected}");
        }
    }
}
