//! Spellings of a route's path that are mistakes, because no request would ever fit them.
//!
//! A path that is taken literally where a pattern was meant protects nothing, and nobody notices.

use std::borrow::Cow;
use std::fmt::Write;

use crate::request_path::{Slashes, decoded, normal};

const HINT: &str = "use {id} for one segment or {*rest} for all that follow";

/// Checks that requests can fit `pattern`, which begins with a slash.
///
/// # Errors
/// A sentence that says what is wrong and what to write.
pub(super) fn check(pattern: &str) -> Result<(), String> {
    if pattern.ends_with(char::is_whitespace) {
        return Err("the path ends in a space, which no request has there; leave it out".to_owned());
    }
    for (index, segment) in pattern.split('/').enumerate().skip(1) {
        let is_last = pattern.split('/').count() == index + 1;
        check_segment(segment, is_last)?;
    }
    check_percent(pattern)
}

fn check_segment(segment: &str, is_last: bool) -> Result<(), String> {
    match segment {
        "" if is_last => return Ok(()),
        "" => return Err("two slashes stand side by side; write one".to_owned()),
        "." | ".." => {
            return Err(format!(
                "clients resolve {segment:?} before they send; write the whole path"
            ));
        }
        _ => {}
    }
    let fixed = fixed_parts(segment)?;
    for character in fixed.chars() {
        check_character(character)?;
    }
    let is_group = segment.starts_with('(') && segment.ends_with(')');
    let is_anchored = is_last && segment.ends_with('$');
    if segment.starts_with(':') || segment.ends_with(".+") || is_group || is_anchored {
        return Err(format!("{segment:?} would be taken literally; {HINT}"));
    }
    Ok(())
}

/// The segment without its parameters, whose names are checked.
fn fixed_parts(segment: &str) -> Result<String, String> {
    // Two braces stand for one in a fixed part.
    let plain = segment.replace("{{", "").replace("}}", "");
    let (mut fixed, mut rest) = (String::new(), plain.as_str());
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { break };
        let name = name.strip_prefix('*').unwrap_or(name);
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if !name.chars().all(is_name) {
            return Err(format!(
                "a parameter is named with letters, digits, \"_\" and \"-\", found {name:?}; {HINT}"
            ));
        }
        fixed.push_str(before);
        rest = after;
    }
    // Braces without their counterpart are the router's to complain about.
    fixed.push_str(&rest.replace(['{', '}'], ""));
    Ok(fixed)
}

fn check_character(character: char) -> Result<(), String> {
    Err(match character {
        '*' | '<' | '>' => format!("{character:?} is no wildcard here; {HINT}"),
        '^' | '[' | ']' | '\\' | '|' | '`' | '"' => {
            format!("a path is no regular expression and never holds {character:?}; {HINT}")
        }
        ';' => "parameters (\";x=1\") are left out before routes are matched; leave them out"
            .to_owned(),
        '?' => "a route goes by the path alone; leave out '?' and the query behind it".to_owned(),
        '#' => "what follows '#' is never sent; leave it out".to_owned(),
        c if !c.is_ascii_graphic() => {
            let mut encoded = String::new();
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                write!(encoded, "%{byte:02X}").expect("a string takes everything");
            }
            format!("no path ever holds {c:?}; write it as {encoded}")
        }
        _ => return Ok(()),
    })
}

/// Requests are compared as [`normal`] writes them.
fn check_percent(pattern: &str) -> Result<(), String> {
    let bytes = pattern.as_bytes();
    for (at, _) in pattern.match_indices('%') {
        if decoded(bytes, at).is_none() {
            return Err("two hexadecimal digits follow a \"%\", like \"%2F\"".to_owned());
        }
    }
    match normal(pattern, Slashes::Counted) {
        Cow::Owned(written) if written != pattern => Err(format!("write it as {written:?}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_requests_can_have_are_taken() {
        for pattern in [
            "/",
            "/v1/charges/",
            "/v1/{id}/x",
            "/v1/{*rest}",
            "/v1/charges:cancel",
            "/v1/{id}:cancel",
            "/Patient/$match",
            "/Products(1)",
            "/Products({id})",
            "/~ann/a=1,2/@me/c+d/e!'&=.",
            "/caf%C3%A9/a%2Fb",
            "/{{literal}}",
            "/v1/a%3Bb",
            "/v1/$batch/x",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
    }

    #[test]
    fn other_dialects_of_patterns_are_mistakes_with_a_hint() {
        for pattern in [
            "/v1/*",
            "/v1/**",
            "/v1/*.json",
            "/v1/:id",
            "/v1/:id/x",
            "/v1/<id>",
            "/v1/<int:id>",
            "/v1/.*",
            "/v1/.+",
            "/v1/(x)",
            "/v1/[0-9]+",
            "/v1/\\d+",
            "/v1/a|b",
            "/v1/charges$",
            "/^v1",
            "/v1/{path:path}",
            "/v1/{id:[0-9]+}",
            "/v1/{proxy+}",
            "/v1/{rest...}",
            "/v1/{id?}",
            "/v1/{$}",
            "/v1/{**rest}",
        ] {
            let said = check(pattern).expect_err(pattern);
            assert!(said.ends_with(HINT), "{pattern}: {said}");
        }
    }

    #[test]
    fn what_no_request_has_is_a_mistake() {
        let table = [
            ("/a ", "the path ends in a space, which no request has there; leave it out"),
            ("/a b", "no path ever holds ' '; write it as %20"),
            ("/\u{e9}", "no path ever holds '\u{e9}'; write it as %C3%A9"),
            ("/a?b=1", "a route goes by the path alone; leave out '?' and the query behind it"),
            ("/a#b", "what follows '#' is never sent; leave it out"),
            ("/a//b", "two slashes stand side by side; write one"),
            ("//", "two slashes stand side by side; write one"),
            ("/a/../b", "clients resolve \"..\" before they send; write the whole path"),
            ("/a%2", "two hexadecimal digits follow a \"%\", like \"%2F\""),
            ("/a%zz", "two hexadecimal digits follow a \"%\", like \"%2F\""),
            ("/a%2fb", "write it as \"/a%2Fb\""),
            ("/%7Eann", "write it as \"/~ann\""),
            ("/a%3Ab", "write it as \"/a:b\""),
            (
                "/a;b=1",
                "parameters (\";x=1\") are left out before routes are matched; leave them out",
            ),
        ];
        for (pattern, expected) in table {
            assert_eq!(check(pattern), Err(expected.to_owned()), "{pattern}");
        }
    }
}
