//! The contract page: what clients may rely on, told from the live configuration.
//!
//! | file | what it holds |
//! |---|---|
//! | `rules`, `chapters`, `problems`, `example` | what is said |
//! | `document`, `words`, `pattern` | what it is said with |
//! | `markdown`, `html`, `json`, `openapi` | one form each |
//! | `negotiation`, `page` | which form a request gets, and the answer with it |

mod chapters;
mod document;
mod example;
mod html;
mod json;
mod markdown;
mod negotiation;
mod openapi;
mod page;
mod pattern;
mod problems;
mod rules;
#[cfg(test)]
mod tests;
mod words;

use selfsame::{KeyMode, Mode, Problem, Profile, Recover};

use crate::config::{Config, PublicUrl, Route, RouteSettings};
use problems::Entry;

pub(crate) use page::{ContractPage, not_allowed};

/// Where the page is, below the service's address.
const PATH: &str = Problem::CONTRACT_PAGE;

/// What clients may know of a configuration. Nothing else of it comes further: no form can tell
/// where the work is done, where records are kept, or who operates the service.
#[derive(Debug)]
pub(crate) struct Contract {
    public_url: Option<String>,
    /// Where the page is; relative to the service where its address was not said.
    address: String,
    /// Whose manners refusals have: those of the defaults first.
    profiles: Vec<Profile>,
    defaults: RouteSettings,
    routes: Vec<Route>,
    problems: Vec<Entry>,
    /// Where clients ask what became of a key, if they may.
    status: Option<String>,
}

/// What the contract can be written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// For people at a terminal
    Markdown,
    /// For people with a browser
    Html,
    /// For programs
    Json,
    /// Parameters, headers and responses for an OpenAPI 3.1 description
    Openapi,
}

impl Contract {
    pub(crate) fn of(config: &Config) -> Self {
        let promised = |settings| promised(settings, config.checkpoints.is_some());
        let routes = config.routes.iter().map(|route| &route.settings);
        let settings: Vec<_> = [&config.defaults].into_iter().chain(routes).map(promised).collect();
        let mut profiles: Vec<Profile> = settings.iter().map(|settings| settings.profile).collect();
        profiles.sort_by_key(|profile| *profile != config.defaults.profile);
        profiles.dedup();
        Self {
            address: config.contract_address(),
            status: config.status.then(|| format!("{}/status", config.contract_address())),
            profiles,
            public_url: config.public_url.as_ref().map(PublicUrl::as_str).map(str::to_owned),
            problems: problems::entries(&settings),
            defaults: promised(&config.defaults),
            routes: config
                .routes
                .iter()
                .map(|route| Route {
                    settings: promised(&route.settings),
                    upstream: None,
                    ..route.clone()
                })
                .collect(),
        }
    }

    /// The contract in one of its forms, with a line break at its end.
    pub(crate) fn render(&self, form: Form) -> String {
        match form {
            Form::Markdown => markdown::render(&chapters::document(self)),
            Form::Html => html::render(&chapters::document(self), self.host()),
            Form::Json => json::render(self),
            Form::Openapi => openapi::render(self),
        }
    }

    /// The service's name in its address.
    fn host(&self) -> Option<&str> {
        let (_, rest) = self.public_url.as_deref()?.split_once("://")?;
        Some(rest)
    }
}

/// The settings as clients feel them: a key that is only observed is ignored, and where nobody can
/// save how far it has come, nobody can go on.
fn promised(settings: &RouteSettings, has_checkpoints: bool) -> RouteSettings {
    let key = match settings.mode {
        Mode::Enforce => settings.key,
        Mode::Observe => KeyMode::Off,
    };
    let recover = match settings.recover {
        Recover::Auto if !has_checkpoints => Recover::Hold,
        recover => recover,
    };
    RouteSettings { key, recover, ..settings.clone() }
}
