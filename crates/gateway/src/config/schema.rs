//! What a configuration may hold, as a JSON Schema.
//!
//! It is not written down again here: a file with one route is read, what is asked for on the way is
//! noted, and each kind of value is asked what it takes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use toml::de::DeValue;

use super::Overrides;
use super::checked;
use super::file::{Asked, Source};
use super::mistakes::Mistakes;
use super::names::ROUTE;
use super::values::Kind;

const ONE_ROUTE: &str = "upstream = 'http://127.0.0.1:3000'\n[[route]]\nmatch = '/'\n";

/// The schema of a configuration file.
pub fn schema() -> Value {
    let source = Source::new(String::new(), ONE_ROUTE.to_owned()).attentive();
    let read = checked::check(&source, &Overrides::default(), Mistakes::default());
    read.expect("a file with a route and no mistake");
    let mut tables: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for Asked { table, name, schema } in source.into_asked() {
        tables.entry(table).or_default().insert(name.to_owned(), schema);
    }
    let mut top = tables.remove("").unwrap_or_default();
    for (name, properties) in tables {
        let table = table(properties);
        let is_list = name == ROUTE.table;
        let table = if is_list { json!({"type": "array", "items": table}) } else { table };
        top.insert(name.to_owned(), table);
    }
    let mut schema = table(top);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "A configuration of Selfsame".into();
    schema["properties"][ROUTE.table]["items"]["required"] = json!(["match"]);
    schema
}

/// What a value of `kind` may be.
pub(super) fn of<T>(kind: &Kind<T>) -> Value {
    let takes = |toml: &str| {
        let value = DeValue::parse(toml).expect("it is TOML");
        kind.take(value.get_ref()).is_ok()
    };
    let mut schema = match words(kind.expected) {
        _ if takes("true") => json!({"type": "boolean"}),
        _ if takes("32768") && takes("'32KiB'") => {
            json!({"type": ["integer", "string"], "minimum": 1})
        }
        _ if takes("404") && takes("'4xx'") => {
            json!({"type": ["integer", "string"], "minimum": 200, "maximum": 599})
        }
        _ if takes("1") => json!({"type": "integer", "minimum": 1}),
        Some(words) => json!({"enum": words}),
        None => json!({"type": "string"}),
    };
    schema["description"] = kind.expected.into();
    schema
}

/// What a list of values of `kind` may be.
pub(super) fn of_list<T>(kind: &Kind<T>) -> Value {
    json!({"type": "array", "items": of(kind), "uniqueItems": true})
}

fn table(properties: Map<String, Value>) -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

/// The words to choose from, where what is expected is nothing but words as they are.
fn words(expected: &str) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    for (index, part) in expected.split('"').enumerate() {
        let is_word = index % 2 == 1;
        // A colon stands before what is to be filled in.
        let fits = match is_word {
            true => !part.contains(':'),
            false => matches!(part, "" | ", " | " or "),
        };
        if !fits {
            return None;
        }
        words.extend(is_word.then_some(part));
    }
    Some(words).filter(|words| !words.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::names::{
        ADMIN, ADMIN_TLS, AUDIT, CHECKPOINTS, ENCRYPTION, FORWARD_AUTH, IDEMPOTENCY, JWT, LIMITS,
        STORE, TLS, TOP, UPSTREAM_TLS,
    };
    use super::*;

    #[test]
    fn every_name_is_in_the_schema_and_no_other() {
        let schema = schema();
        let of = |path: &str| schema.pointer(path).and_then(Value::as_object).expect("a table");
        let tables = [
            (&TOP, "/properties"),
            (&TLS, "/properties/tls/properties"),
            (&UPSTREAM_TLS, "/properties/upstream_tls/properties"),
            (&STORE, "/properties/store/properties"),
            (&ADMIN, "/properties/admin/properties"),
            (&ADMIN_TLS, "/properties/admin_tls/properties"),
            (&JWT, "/properties/jwt/properties"),
            (&AUDIT, "/properties/audit/properties"),
            (&ENCRYPTION, "/properties/encryption/properties"),
            (&CHECKPOINTS, "/properties/checkpoints/properties"),
            (&FORWARD_AUTH, "/properties/forward_auth/properties"),
            (&LIMITS, "/properties/limits/properties"),
            (&IDEMPOTENCY, "/properties/idempotency/properties"),
            (&ROUTE, "/properties/route/items/properties"),
        ];
        for (vocabulary, path) in tables {
            let mut names: Vec<&str> = vocabulary.iter().collect();
            names.sort_unstable();
            assert_eq!(of(path).keys().collect::<Vec<_>>(), names, "{path}");
        }
    }

    #[test]
    fn a_setting_is_told_as_it_is_read() {
        let schema = schema();
        let of = |name: &str| &schema["properties"]["idempotency"]["properties"][name];
        assert_eq!(of("mode")["enum"], json!(["enforce", "observe"]));
        assert_eq!(of("strict")["type"], "boolean");
        assert_eq!(of("lease")["type"], "string");
        assert_eq!(of("tenant")["type"], "string");
        assert_eq!(of("max_request_body")["type"], json!(["integer", "string"]));
        assert_eq!(of("methods")["items"]["enum"], json!(["POST", "PATCH", "PUT", "DELETE"]));
        assert!(of("lease")["description"].as_str().is_some_and(|text| text.contains("\"30s\"")));
    }
}
