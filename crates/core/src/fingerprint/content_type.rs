//! A media type without what makes no difference: case of its name, spacing, `charset=utf-8`.
//!
//! Only what RFC 9110 allows is taken apart. Anything else (a parameter without a value, two lines
//! in one, bytes that no token holds) counts as it was sent, and its body as raw bytes.

use std::borrow::Cow;

/// A `Content-Type` that could be read.
pub(super) struct ContentType<'a> {
    /// `type/subtype`, as sent.
    essence: &'a [u8],
    parameters: Vec<Parameter<'a>>,
}

/// One parameter.
struct Parameter<'a> {
    /// Name, `=` and value, as sent.
    text: &'a [u8],
    name: &'a [u8],
    /// What is between the quotes, where there are some. Escapes are left as they are: a value
    /// with one is none of those we look for.
    value: &'a [u8],
}

impl<'a> ContentType<'a> {
    pub(super) fn read(raw: &'a [u8]) -> Option<Self> {
        let slash = token(raw);
        let subtype = raw.get(slash + 1..).map(token)?;
        if slash == 0 || subtype == 0 || raw[slash] != b'/' {
            return None;
        }
        let (essence, mut rest) = raw.split_at(slash + 1 + subtype);
        let mut parameters = Vec::new();
        loop {
            rest = skip_spaces(rest);
            if rest.is_empty() {
                return Some(Self { essence, parameters });
            }
            rest = skip_spaces(rest.strip_prefix(b";")?);
            // A semicolon may stand alone.
            if rest.is_empty() || rest[0] == b';' {
                continue;
            }
            let (parameter, behind) = Parameter::read(rest)?;
            parameters.push(parameter);
            rest = behind;
        }
    }

    /// Whether the body is JSON in UTF-8, which needs not be said.
    pub(super) fn is_json(&self) -> bool {
        let mut charsets = self.all("charset");
        let is_utf8 = match (charsets.next(), charsets.next()) {
            (None, _) => true,
            (Some(charset), None) => charset.is_utf8(),
            (Some(_), Some(_)) => false,
        };
        let suffix = self.essence.len().saturating_sub(b"+json".len());
        is_utf8
            && (self.essence.eq_ignore_ascii_case(b"application/json")
                || self.essence[suffix..].eq_ignore_ascii_case(b"+json"))
    }

    /// The boundary between the parts of a form, if this is one and there can be no doubt.
    pub(super) fn boundary(&self) -> Option<&'a [u8]> {
        if !self.essence.eq_ignore_ascii_case(b"multipart/form-data") {
            return None;
        }
        let boundary = self.only("boundary")?.value;
        let is_allowed = boundary.iter().all(|&byte| is_in_boundary(byte))
            && (1..=70).contains(&boundary.len())
            && !boundary.ends_with(b" ");
        is_allowed.then_some(boundary)
    }

    /// What counts of it: the lower-case type, and behind a `;` each parameter as it was sent, but
    /// for a `charset` that is UTF-8 and what `left_out` names.
    pub(super) fn text(&self, left_out: Option<&str>) -> Cow<'a, [u8]> {
        let mut text = match self.essence.iter().any(u8::is_ascii_uppercase) {
            true => Cow::Owned(self.essence.to_ascii_lowercase()),
            false => Cow::Borrowed(self.essence),
        };
        let charset = self.only("charset").filter(|charset| charset.is_utf8());
        for parameter in &self.parameters {
            let is_dropped = left_out.is_some_and(|name| parameter.is(name))
                || charset.is_some() && parameter.is("charset");
            if !is_dropped {
                text.to_mut().push(b';');
                text.to_mut().extend_from_slice(parameter.text);
            }
        }
        text
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &Parameter<'a>> {
        self.parameters.iter().filter(move |parameter| parameter.is(name))
    }

    /// The parameter of this name, unless there are two.
    fn only(&self, name: &str) -> Option<&Parameter<'a>> {
        let mut all = self.all(name);
        let first = all.next()?;
        all.next().is_none().then_some(first)
    }
}

impl<'a> Parameter<'a> {
    /// The parameter that `raw` begins with, and what comes behind it.
    fn read(raw: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let name_len = token(raw);
        let value = raw[name_len..].strip_prefix(b"=").filter(|_| name_len > 0)?;
        let (value, behind) = match value.strip_prefix(b"\"") {
            Some(quoted) => {
                let end = quoted_end(quoted)?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => value.split_at(token(value)),
        };
        let text = &raw[..raw.len() - behind.len()];
        // Empty, a value must be quoted.
        let is_empty = text.ends_with(b"=");
        (!is_empty).then_some((Self { text, name: &raw[..name_len], value }, behind))
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Strictly: other names of UTF-8 are not known to everyone.
    fn is_utf8(&self) -> bool {
        self.value.eq_ignore_ascii_case(b"utf-8")
    }
}

/// How many bytes of a token `raw` begins with.
fn token(raw: &[u8]) -> usize {
    raw.iter().take_while(|&&byte| is_in_token(byte)).count()
}

pub(super) fn is_in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_in_boundary(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte)
}

/// Where the closing quote is, in what follows the opening one.
fn quoted_end(quoted: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match quoted.get(at)? {
            b'"' => return Some(at),
            // What follows a backslash is read by the next turn, unless it is special itself.
            b'\\' => at += 1 + usize::from(matches!(quoted.get(at + 1)?, b'"' | b'\\')),
            b'\t' | b' '..=b'~' | 0x80.. => at += 1,
            _ => return None,
        }
    }
}

fn skip_spaces(raw: &[u8]) -> &[u8] {
    let spaces = raw.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &raw[spaces..]
}

/// Without the spaces and tabs around it, which are all that a header may hold there.
pub(super) fn trim_spaces(raw: &[u8]) -> &[u8] {
    let raw = skip_spaces(raw);
    let spaces = raw.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &raw[..raw.len() - spaces]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(raw: &str) -> Option<String> {
        let read = ContentType::read(raw.as_bytes())?;
        Some(String::from_utf8(read.text(None).into_owned()).expect("text"))
    }

    fn is_json(raw: &str) -> bool {
        ContentType::read(raw.as_bytes()).is_some_and(|read| read.is_json())
    }

    fn boundary(raw: &str) -> Option<String> {
        let read = ContentType::read(raw.as_bytes())?;
        read.boundary().map(|boundary| String::from_utf8(boundary.to_vec()).expect("text"))
    }

    #[test]
    fn spelling_spacing_and_utf8_make_no_difference() {
        let table = [
            ("application/json", "application/json"),
            ("Application/JSON", "application/json"),
            ("application/json;", "application/json"),
            ("application/json ;; ; ", "application/json"),
            ("application/json; charset=utf-8", "application/json"),
            ("application/json;CHARSET=\"UTF-8\"", "application/json"),
            ("text/plain ;\tcharset=Utf-8 ; Format=flowed", "text/plain;Format=flowed"),
            ("text/plain; a=\"x;y\\\"z\"; b=1", "text/plain;a=\"x;y\\\"z\";b=1"),
            ("text/plain; a=\"; charset=utf-8\"", "text/plain;a=\"; charset=utf-8\""),
        ];
        for (raw, expected) in table {
            assert_eq!(text(raw).as_deref(), Some(expected), "{raw}");
        }
    }

    #[test]
    fn another_charset_or_two_of_them_count() {
        for raw in [
            "application/json;charset=latin1",
            "application/json;charset=utf8",
            "application/json;charset=\"utf\\-8\"",
            "application/json;charset=\" utf-8\"",
            "application/json;charset=\"\"",
            "application/json;charset=utf-8;charset=utf-8",
            "application/json;charset=utf-8;Charset=latin1",
        ] {
            assert_eq!(text(raw).as_deref(), Some(raw));
            assert!(!is_json(raw), "{raw}");
        }
    }

    #[test]
    fn json_is_known_by_its_name() {
        for raw in [
            "application/json",
            "APPLICATION/Json; charset=UTF-8",
            "application/vnd.api+json; profile=\"a;b\"",
            "application/problem+JSON",
        ] {
            assert!(is_json(raw), "{raw}");
        }
        for raw in ["text/json", "application/jsonp", "application/json-seq", "a/b", "+json"] {
            assert!(!is_json(raw), "{raw}");
        }
    }

    #[test]
    fn what_is_no_media_type_is_not_taken_apart() {
        for raw in [
            "",
            "json",
            "/json",
            "application/",
            "application /json",
            "application/json, application/json",
            "application/json charset=utf-8",
            "application/json; charset",
            "application/json; charset=",
            "application/json; charset =utf-8",
            "application/json; charset= utf-8",
            "application/json; =utf-8",
            "application/json; charset=\"utf-8",
            "application/json; charset=\"utf-8\\\"",
            "application/json; charset=\"utf-8\"x",
            "application/json; charset=utf-8 x",
            "text/pläin",
            "text/plain; a=\"\u{1}\"",
        ] {
            assert_eq!(text(raw), None, "{raw}");
        }
    }

    #[test]
    fn a_boundary_is_one_and_well_formed() {
        let longest = "b".repeat(70);
        for (raw, expected) in [
            ("multipart/form-data; boundary=abc", "abc"),
            ("Multipart/Form-Data; a=b; Boundary=\"a b/=?\"", "a b/=?"),
            (&*format!("multipart/form-data; boundary={longest}"), &*longest),
        ] {
            assert_eq!(boundary(raw).as_deref(), Some(expected), "{raw}");
        }
        for raw in [
            "multipart/form-data",
            "multipart/mixed; boundary=abc",
            "multipart/form-data; boundary=\"\"",
            "multipart/form-data; boundary=\"a \"",
            "multipart/form-data; boundary=\"a\\b\"",
            "multipart/form-data; boundary=a*b",
            "multipart/form-data; boundary=a; boundary=a",
            &format!("multipart/form-data; boundary={longest}b"),
        ] {
            assert_eq!(boundary(raw), None, "{raw}");
        }
    }

    #[test]
    fn the_boundary_can_be_left_out() {
        let raw = b"multipart/form-data; Boundary=abc; charset=utf-8; x=y";
        let read = ContentType::read(raw).expect("valid");
        assert_eq!(&*read.text(Some("boundary")), b"multipart/form-data;x=y");
        assert_eq!(&*read.text(None), b"multipart/form-data;Boundary=abc;x=y");
    }

    proptest! {
        #[test]
        fn what_counts_is_read_as_the_same(raw in "[aA/;= \t\"\\\\bé]{0,30}") {
            if let Some(once) = text(&raw) {
                prop_assert_eq!(text(&once), Some(once.clone()));
            }
        }

        #[test]
        fn nothing_panics(raw in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = ContentType::read(&raw).map(|read| (read.is_json(), read.boundary().is_some()));
        }
    }
}
