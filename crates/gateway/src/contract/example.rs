//! A request that fits this configuration, as a command for `curl`.

use http::Method;
use selfsame::{KeyFormat, KeyMode};

use super::pattern::{Piece, pieces};
use super::{Contract, words};
use crate::config::{RouteSettings, TenantSource};

/// Stands in for an address that was not said.
const SOME_API: &str = "https://api.example.com";
/// Stands in for a path, where no route names one.
const SOME_PATH: &str = "/your/path";

/// The commands of a first attempt; the last of them is also that of every retry.
pub(super) fn shell(contract: &Contract) -> String {
    let (address, settings) = request(contract);
    let method = settings.methods.first().cloned().unwrap_or(Method::POST);
    let header = words::header(&settings.key_headers[0]);
    let key = if settings.strict { r#"\"$KEY\""# } else { "$KEY" };
    let mut arguments = vec![format!("curl -i {}", quoted(&address))];
    if method != Method::POST {
        arguments.push(format!("-X {method}"));
    }
    arguments.push(format!("-H \"{}: {key}\"", in_double_quotes(&header)));
    match &settings.tenant {
        TenantSource::Authorization
        | TenantSource::Jwt { .. }
        | TenantSource::ForwardAuth { .. } => {
            arguments.push("-H 'Authorization: Bearer …'".to_owned())
        }
        TenantSource::Credential(name) => {
            let header = format!("{}: …", words::header(name));
            arguments.push(format!("-H {}", quoted(&header)));
        }
        TenantSource::Cookie(name) => {
            arguments.push(format!("-H {}", quoted(&format!("Cookie: {name}=…"))));
        }
        TenantSource::Mtls => arguments.push("--cert client.pem --key client.key".to_owned()),
        TenantSource::Header(_) | TenantSource::None => {}
    }
    if method != Method::DELETE {
        arguments.push("-H 'Content-Type: application/json'".to_owned());
        arguments.push("-d '{…}'".to_owned());
    }
    let uuidgen = match settings.key_rules.format {
        KeyFormat::Any | KeyFormat::Uuid => "uuidgen",
        KeyFormat::UuidV7 => "uuidgen --time-v7",
    };
    format!(
        "# once for each operation, before its first attempt\n\
         KEY=$({uuidgen})\n\n\
         # the first attempt, and every retry\n{}\n",
        arguments.join(" \\\n  ")
    )
}

/// The address of requests that need a key, or else take one, and their settings.
pub(super) fn request(contract: &Contract) -> (String, &RouteSettings) {
    let base = contract.public_url.as_deref().unwrap_or(SOME_API);
    let with = |key: KeyMode| contract.routes.iter().find(move |r| r.settings.key == key);
    let Some(route) = with(KeyMode::Required).or_else(|| with(KeyMode::Optional)) else {
        return (format!("{base}{SOME_PATH}"), &contract.defaults);
    };
    let path = filled(&route.pattern);
    let address = match &route.host {
        Some(host) => {
            let scheme = base.split("://").next().unwrap_or("https");
            format!("{scheme}://{}{path}", host.to_string().replace('*', "NAME"))
        }
        None => format!("{base}{path}"),
    };
    (address, &route.settings)
}

/// A path that fits the pattern: each parameter is replaced by its name in capitals.
fn filled(pattern: &str) -> String {
    let piece = |piece| match piece {
        Piece::Fixed(text) => text,
        Piece::Parameter(name) | Piece::Rest(name) => name.to_ascii_uppercase(),
    };
    pieces(pattern).into_iter().map(piece).collect()
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/%=,@+".contains(&byte);
    match text.bytes().all(harmless) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// As a part of a word in double quotes.
fn in_double_quotes(text: &str) -> String {
    text.chars().flat_map(|c| "$`\"\\".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_filled_in() {
        assert_eq!(filled("/v1/{id}/capture"), "/v1/ID/capture");
        assert_eq!(filled("/files/{*rest}"), "/files/REST");
    }

    #[test]
    fn nothing_escapes_its_quotes() {
        assert_eq!(quoted("https://a/b%20c"), "https://a/b%20c");
        assert_eq!(quoted("/it's;rm"), r"'/it'\''s;rm'");
        assert_eq!(in_double_quotes("X-$a`b"), r"X-\$a\`b");
    }
}
