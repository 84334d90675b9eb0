//! The contract as a fragment of OpenAPI 3.1: what it adds to the description of the API itself.

mod responses;
mod status;

use std::collections::BTreeMap;

use selfsame::{Key, KeyFormat, KeyMode, KeyRules};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::pattern::{Piece, pieces};
use super::{Contract, words};
use crate::config::{Route, RouteSettings};
use crate::status::StatusPage;

const EXAMPLE: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";
const EXAMPLE_V7: &str = "01932e7a-709c-7e2c-9b6a-3f2b1c0d4e5f";
const UUID: &str = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
const UUID_V7: &str =
    "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-7[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}";

pub(super) fn render(contract: &Contract) -> String {
    let mut fragment = Fragment::default();
    // For operations that no route names; their names shall mean the same in every fragment.
    for key in [KeyMode::Required, KeyMode::Optional] {
        fragment.key_parameters(&RouteSettings { key, ..contract.defaults.clone() });
    }
    for route in contract.routes.iter().filter(|route| route.settings.key != KeyMode::Off) {
        fragment.add(route);
    }
    if contract.status.is_some() {
        fragment.paths.insert(StatusPage::path(), status::path_item(&contract.defaults));
    }
    let document = Document {
        openapi: "3.1.0",
        info: json!({
            "title": "Safe retries",
            "version": "1",
            "description": fragment.description(contract),
        }),
        servers: contract.public_url.iter().map(|url| json!({ "url": url })).collect(),
        paths: fragment.paths,
        components: json!({
            "parameters": fragment.parameters,
            "headers": responses::headers(),
            "responses": responses::all(contract),
            "schemas": responses::schemas(),
        }),
    };
    serde_json::to_string_pretty(&document).expect("plain values are JSON") + "\n"
}

/// In the order people read it.
#[derive(Serialize)]
struct Document {
    openapi: &'static str,
    info: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers: Vec<Value>,
    paths: Map<String, Value>,
    components: Value,
}

/// What routes add to the document.
#[derive(Default)]
struct Fragment {
    paths: Map<String, Value>,
    parameters: BTreeMap<String, Value>,
    /// The templates so far, by their shape: two that differ only in names are the same path.
    templates: BTreeMap<Vec<Option<String>>, Template>,
    left_out: Vec<String>,
}

#[derive(Clone)]
struct Template {
    path: String,
    names: Vec<String>,
}

impl Fragment {
    fn add(&mut self, route: &Route) {
        let servers = servers(route);
        let template = self.template(&route.pattern);
        let (Some(servers), Some(template)) = (servers, template) else {
            return self.left_out.push(route.name());
        };
        let mut parameters: Vec<Value> = template.names.iter().map(path_parameter).collect();
        parameters.extend(self.key_parameters(&route.settings));
        let mut operation = json!({
            "parameters": parameters,
            "responses": responses::operation(&route.settings),
        });
        if !servers.is_empty() {
            operation["servers"] = servers.into();
        }
        let item = self.paths.entry(template.path).or_insert_with(|| json!({}));
        for method in &route.settings.methods {
            let name = method.as_str().to_ascii_lowercase();
            match item.get(&name) {
                None => item[name] = operation.clone(),
                // The same at another host: one operation cannot say two things.
                Some(_) => self.left_out.push(format!("{method} {}", route.name())),
            }
        }
    }

    /// The path as OpenAPI writes it, if it can: no braces but those of parameters, no `{*rest}`,
    /// no name twice.
    fn template(&mut self, pattern: &str) -> Option<Template> {
        let mut template = Template { path: String::new(), names: Vec::new() };
        let mut shape = Vec::new();
        for piece in pieces(pattern) {
            match piece {
                Piece::Fixed(text) | Piece::Parameter(text) if text.contains(['{', '}']) => {
                    return None;
                }
                Piece::Rest(_) => return None,
                Piece::Parameter(name) if template.names.contains(&name) => return None,
                Piece::Fixed(text) => {
                    template.path.push_str(&text);
                    shape.push(Some(text));
                }
                Piece::Parameter(name) => {
                    template.path.push_str(&format!("{{{name}}}"));
                    template.names.push(name);
                    shape.push(None);
                }
            }
        }
        Some(self.templates.entry(shape).or_insert(template).clone())
    }

    /// References to the parameters of keyed requests, which are added if they are new.
    fn key_parameters(&mut self, settings: &RouteSettings) -> [Value; 2] {
        let optional = if is_required(settings) { "" } else { "Optional" };
        let quoted = if settings.strict { "Quoted" } else { "" };
        let header = words::header(&settings.key_headers[0]);
        let base = format!("{optional}{quoted}{}", component_name(&header));
        let key = self.named(base, key_parameter(settings, &header));
        let prefer = self.named("PreferWait".to_owned(), prefer_parameter(settings));
        [key, prefer]
    }

    /// A reference to the parameter, under its name or the next that is free.
    fn named(&mut self, base: String, parameter: Value) -> Value {
        let mut name = base.clone();
        let mut number = 1;
        while self.parameters.get(&name).is_some_and(|known| *known != parameter) {
            number += 1;
            name = format!("{base}{number}");
        }
        let reference = json!({ "$ref": format!("#/components/parameters/{name}") });
        self.parameters.insert(name, parameter);
        reference
    }

    fn description(&self, contract: &Contract) -> String {
        let mut text = format!(
            "What keyed requests of this API have in common, to be merged into its description. \
             The same key gives the same answer, and the work behind it is done once. In words: {}",
            contract.address
        );
        if !self.left_out.is_empty() {
            text.push_str(". OpenAPI cannot describe these, which take keys too: ");
            text.push_str(&self.left_out.join(", "));
        }
        text
    }
}

/// Where the route's requests are sent to, if not anywhere; nothing where that is not one host.
fn servers(route: &Route) -> Option<Vec<Value>> {
    let Some(host) = &route.host else { return Some(Vec::new()) };
    let host = host.to_string();
    (!host.starts_with('*')).then(|| vec![json!({ "url": format!("//{host}") })])
}

fn path_parameter(name: &String) -> Value {
    json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
}

/// Whether a request without its header is refused.
fn is_required(settings: &RouteSettings) -> bool {
    settings.key == KeyMode::Required && settings.key_pointer.is_none()
}

fn key_parameter(settings: &RouteSettings, header: &str) -> Value {
    let mut description =
        "A random key for this operation, the same for each retry of it.".to_owned();
    let others: Vec<String> = settings.key_headers[1..].iter().map(words::header).collect();
    if !others.is_empty() {
        description.push_str(&format!(" May come in {} instead.", others.join(" or ")));
    }
    if let Some(pointer) = &settings.key_pointer {
        let pointer = words::pointer(pointer);
        description.push_str(&format!(" May stand at `{pointer}` of a JSON body instead."));
    }
    // Within quotes, each character may have a backslash before it.
    let KeyRules { format, len_min, .. } = settings.key_rules;
    let (bare, quoted, example) = match format {
        KeyFormat::Any => (
            format!(r"[\x21-\x7E]{{{len_min},{}}}", Key::LEN_MAX),
            format!(r"[\x20-\x7E]{{{len_min},{}}}", 2 * Key::LEN_MAX),
            EXAMPLE,
        ),
        KeyFormat::Uuid => (UUID.to_owned(), UUID.to_owned(), EXAMPLE),
        KeyFormat::UuidV7 => (UUID_V7.to_owned(), UUID_V7.to_owned(), EXAMPLE_V7),
    };
    let pattern = match settings.strict {
        true => format!("^\"{quoted}\"$"),
        false => format!("^({bare}|\"{quoted}\")$"),
    };
    let example = if settings.strict { format!("\"{example}\"") } else { example.to_owned() };
    json!({
        "name": header,
        "in": "header",
        "required": is_required(settings),
        "description": description,
        "schema": { "type": "string", "pattern": pattern },
        "example": example,
    })
}

fn prefer_parameter(settings: &RouteSettings) -> Value {
    let longest = words::duration(settings.wait_max);
    json!({
        "name": "Prefer",
        "in": "header",
        "required": false,
        "description": format!(
            "`wait=N` waits for up to N seconds (at most {longest}) while a request with this \
             key runs, instead of being refused."
        ),
        "schema": { "type": "string" },
        "example": "wait=10",
    })
}

/// `key-reused` as `KeyReused`.
fn component_name(text: &str) -> String {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric());
    parts
        .flat_map(|part| {
            let (first, rest) = part.split_at(usize::from(!part.is_empty()));
            [first.to_ascii_uppercase(), rest.to_owned()]
        })
        .collect()
}
