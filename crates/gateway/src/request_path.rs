//! Paths of requests: the form in which routes match them, and those that are refused.
//!
//! Servers read one path in different ways: some decode it, merge slashes, ignore parameters. A route must
//! match every spelling that its API may take for the route's path. Nothing is rewritten: the upstream gets
//! the target as it came.

use std::borrow::Cow;
use std::fmt::Write;

use http::{Method, Request, Version};

use crate::request_head::Refusal;

const NO_PATH: Refusal =
    Refusal::bad("path", "the target is no path; send one that begins with a slash");
const SCHEME: Refusal =
    Refusal::bad("path", "the target names another scheme than http or https; send a path");
const BACKSLASH: Refusal = Refusal::bad(
    "path",
    "the path holds a backslash, which some servers read as a slash; encode it",
);
const BAD_ENCODING: Refusal = Refusal::bad(
    "path",
    "a \"%\" in the path is not followed by two hexadecimal digits; write it as %25",
);
const NUL: Refusal = Refusal::bad("path", "the path holds an encoded NUL");
const DOTS: Refusal = Refusal::bad(
    "path",
    "the path has a segment \".\" or \"..\", which servers resolve in different ways; send it resolved",
);

/// Treatment of slashes side by side when routes are matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slashes {
    Merged,
    Counted,
}

impl Slashes {
    pub(crate) fn merged_if(merges: bool) -> Self {
        if merges { Self::Merged } else { Self::Counted }
    }
}

/// Refuses a target whose path could be read in two ways that lead to different routes.
pub(crate) fn check<B>(request: &Request<B>) -> Result<(), Refusal> {
    let path = request.uri().path();
    let scheme = request.uri().scheme_str().filter(|_| request.version() < Version::HTTP_2);
    if scheme.is_some_and(|scheme| !matches!(scheme, "http" | "https")) {
        return Err(SCHEME);
    }
    match path.as_bytes() {
        [b'/', ..] => check_path(path),
        b"*" if request.method() == Method::OPTIONS => Ok(()),
        _ => Err(NO_PATH),
    }
}

fn check_path(path: &str) -> Result<(), Refusal> {
    let bytes = path.as_bytes();
    let (mut is_encoded, mut may_have_dots, mut before) = (false, false, 0);
    for &byte in bytes {
        match byte {
            b'\\' => return Err(BACKSLASH),
            b'%' => is_encoded = true,
            b'.' => may_have_dots |= before == b'/',
            _ => {}
        }
        before = byte;
    }
    if is_encoded {
        for (at, _) in path.match_indices('%') {
            match decoded(bytes, at) {
                None => return Err(BAD_ENCODING),
                Some(0) => return Err(NUL),
                Some(_) => {}
            }
        }
    }
    if (is_encoded || may_have_dots) && has_dot_segment(path) {
        return Err(DOTS);
    }
    Ok(())
}

/// Encoded slashes, backslashes and semicolons count as such here, and parameters do not count. No
/// other reading has a dot segment that this one has not.
fn has_dot_segment(path: &str) -> bool {
    let read = reading(path, b"/\\;");
    let path = normal(read.as_deref().unwrap_or(path), Slashes::Counted);
    path.split('/').any(|segment| matches!(segment, "." | ".."))
}

/// Other readings of a path, by servers that decode before they split segments, before they remove
/// parameters, or before both.
pub(crate) fn readings(path: &str) -> impl Iterator<Item = String> {
    let (segments, parameters) = (reading(path, b"/\\"), reading(path, b";"));
    let both = segments.as_deref().filter(|_| parameters.is_some());
    let both = both.and_then(|path| reading(path, b";"));
    [segments, parameters, both].into_iter().flatten()
}

/// Path in which these bytes are not encoded, and a backslash is a slash; none if it holds none of
/// them.
fn reading(path: &str, bytes: &[u8]) -> Option<String> {
    let (mut written, mut from) = (String::new(), 0);
    for (at, _) in path.match_indices('%') {
        let byte = decoded(path.as_bytes(), at).filter(|byte| bytes.contains(byte));
        let Some(byte) = byte else { continue };
        written.push_str(&path[from..at]);
        written.push(if byte == b'\\' { '/' } else { char::from(byte) });
        from = at + 3;
    }
    (from > 0).then(|| written + &path[from..])
}

/// Path in the one form in which routes match it: RFC 3986 (6.2.2), and beyond it for what servers read alike.
///
/// Characters that may stand in a segment are not encoded, all others are, in upper case; parameters
/// (`;x=1`) are left out, and slashes are merged.
pub(crate) fn normal(path: &str, slashes: Slashes) -> Cow<'_, str> {
    if is_normal(path.as_bytes(), slashes) {
        return Cow::Borrowed(path);
    }
    let bytes = path.as_bytes();
    let mut written = String::with_capacity(path.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match (byte, decoded(bytes, at)) {
            (b';', _) => {
                let rest = &bytes[at..];
                at += rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
                continue;
            }
            (b'/', _) if slashes == Slashes::Merged && written.ends_with('/') => {}
            (_, Some(byte)) => {
                push(&mut written, byte, is_of_segments(byte));
                at += 2;
            }
            (byte, None) => push(&mut written, byte, byte.is_ascii()),
        }
        at += 1;
    }
    Cow::Owned(written)
}

fn is_normal(bytes: &[u8], slashes: Slashes) -> bool {
    let mut before = 0;
    bytes.iter().all(|&byte| {
        let is_merged = byte == b'/' && before == b'/' && slashes == Slashes::Merged;
        before = byte;
        byte.is_ascii() && byte != b'%' && byte != b';' && !is_merged
    })
}

fn push(written: &mut String, byte: u8, is_plain: bool) {
    if is_plain {
        written.push(char::from(byte));
    } else {
        write!(written, "%{byte:02X}").expect("a string takes everything");
    }
}

/// Characters that RFC 3986 (3.3) allows in a segment, but `;`, which begins parameters where it is not encoded.
fn is_of_segments(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte)
}

/// Byte that is percent-encoded at `at`, if one is.
pub(crate) fn decoded(bytes: &[u8], at: usize) -> Option<u8> {
    let [b'%', high, low] = bytes.get(at..at + 3)? else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(method: &str, target: &str) -> Result<(), Refusal> {
        check(&Request::builder().method(method).uri(target).body(()).expect("a request"))
    }

    #[test]
    fn routes_match_the_normal_form() {
        let table = [
            ("/v1/charges", "/v1/charges"),
            ("/v1/%63harges", "/v1/charges"),
            ("/v1/charges%3Acancel%40%28%29", "/v1/charges:cancel@()"),
            ("/a%2fb%2Fc%5c%3b%20", "/a%2Fb%2Fc%5C%3B%20"),
            ("//v1///charges//", "/v1/charges/"),
            ("/v1;a=1/charges;b=2;c", "/v1/charges"),
            ("/v1/;x/charges", "/v1/charges"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/%e9%", "/%E9%"),
            ("/%%41", "/%A"),
            ("/%zz%4", "/%zz%4"),
            ("*", "*"),
        ];
        for (path, expected) in table {
            assert_eq!(normal(path, Slashes::Merged), expected, "{path}");
            assert_eq!(normal(expected, Slashes::Merged), expected, "{path}");
        }
        assert_eq!(normal("//a//b", Slashes::Counted), "//a//b");
    }

    #[test]
    fn servers_that_decode_first_read_other_paths() {
        let table: [(&str, &[&str]); 6] = [
            ("/v1/charges;x", &[]),
            ("/v1/%63harges%252F%253B", &[]),
            ("/v1%2Fcharges%5cx", &["/v1/charges/x"]),
            ("/v1/charges%3bx=1", &["/v1/charges;x=1"]),
            ("/v1;x=%2fcharges", &["/v1;x=/charges"]),
            ("/a%2Fb%3Bc", &["/a/b%3Bc", "/a%2Fb;c", "/a/b;c"]),
        ];
        for (path, expected) in table {
            assert_eq!(readings(path).collect::<Vec<_>>(), expected, "{path}");
        }
    }

    #[test]
    fn paths_that_servers_resolve_differently_are_refused() {
        for path in [
            "/a/../charges",
            "/..",
            "/a/.",
            "/./a",
            "/a/%2e%2E/charges",
            "/a/.%2e",
            "/a/..;x=1/charges",
            "/a%2F..%2fcharges",
            "/a%5c..%5Ccharges",
            "/a%2f.",
            "/a/..%3bx=1/charges",
            "/a;x=%2F..%2fcharges",
            "/a%3Bx=%2F..%2fcharges",
        ] {
            assert_eq!(checked("POST", path), Err(DOTS), "{path}");
        }
        let table = [
            ("/a\\charges", BACKSLASH),
            ("/charges%00", NUL),
            ("/charges%", BAD_ENCODING),
            ("/%zz", BAD_ENCODING),
            ("/%2%63", BAD_ENCODING),
            ("*", NO_PATH),
            ("charges", NO_PATH),
            ("ftp://a/charges", SCHEME),
            ("://a/charges", SCHEME),
        ];
        for (path, expected) in table {
            assert_eq!(checked("POST", path), Err(expected), "{path}");
        }
    }

    #[test]
    fn ordinary_paths_pass() {
        for path in [
            "/",
            "//charges",
            "/.well-known/x",
            "/...",
            "/a/..b/c..",
            "/a.b",
            "/a%2Fb/%2e%2ehidden",
            "/v1/charges;x=..",
            "/a?b=/../c%",
            "/100%25",
            "http://a/b",
            "http://a",
            "HTTPS://a/b",
        ] {
            assert_eq!(checked("POST", path), Ok(()), "{path}");
        }
        assert_eq!(checked("OPTIONS", "*"), Ok(()));
    }
}
