//! JSON as its meaning, for fingerprints: members sorted, white space dropped, escapes
//! normalised, **number tokens kept as written**.
//!
//! Where a text could be read in two ways (duplicate members, lone surrogates, invalid JSON or
//! UTF-8, great depth) there is no canonical form, and the raw bytes count instead: two
//! different requests never share a fingerprint, at the price that two equal ones may not.

/// Deeper nesting than this has no canonical form.
const DEPTH_MAX: usize = 64;

/// The canonical form of `text`, or nothing where its meaning is in doubt.
pub(crate) fn canonical(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut reader = Reader { rest: text };
    let mut out = Vec::with_capacity(text.len());
    reader.value(&mut out, DEPTH_MAX)?;
    reader.white_space();
    reader.rest.is_empty().then_some(out)
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn value(&mut self, out: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.white_space();
        match self.rest.as_bytes().first()? {
            b'{' => self.object(out, depth.checked_sub(1)?),
            b'[' => self.array(out, depth.checked_sub(1)?),
            b'"' => {
                let text = self.string()?;
                write_string(&text, out);
                Some(())
            }
            b'-' | b'0'..=b'9' => self.number(out),
            _ => ["true", "false", "null"].into_iter().find_map(|word| {
                self.rest = self.rest.strip_prefix(word)?;
                out.extend_from_slice(word.as_bytes());
                Some(())
            }),
        }
    }

    fn object(&mut self, out: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.expect('{')?;
        let mut members: Vec<(String, Vec<u8>)> = Vec::new();
        self.white_space();
        if self.expect('}').is_none() {
            loop {
                self.white_space();
                let name = self.string()?;
                self.white_space();
                self.expect(':')?;
                let mut value = Vec::new();
                self.value(&mut value, depth)?;
                members.push((name, value));
                self.white_space();
                if self.expect(',').is_none() {
                    self.expect('}')?;
                    break;
                }
            }
        }
        members.sort_by(|a, b| a.0.cmp(&b.0));
        // Parsers disagree on which of two equal members counts.
        if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return None;
        }
        out.push(b'{');
        for (index, (name, value)) in members.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_string(name, out);
            out.push(b':');
            out.extend_from_slice(value);
        }
        out.push(b'}');
        Some(())
    }

    fn array(&mut self, out: &mut Vec<u8>, depth: usize) -> Option<()> {
        self.expect('[')?;
        out.push(b'[');
        self.white_space();
        if self.expect(']').is_none() {
            loop {
                self.value(out, depth)?;
                self.white_space();
                if self.expect(',').is_none() {
                    self.expect(']')?;
                    break;
                }
                out.push(b',');
            }
        }
        out.push(b']');
        Some(())
    }

    /// `1.0`, `1` and `1e0` stay three different tokens: a float would merge large amounts.
    fn number(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let token = self.rest;
        self.rest = self.rest.strip_prefix('-').unwrap_or(self.rest);
        if self.expect('0').is_none() {
            self.digits()?;
        }
        if self.expect('.').is_some() {
            self.digits()?;
        }
        if self.expect('e').or_else(|| self.expect('E')).is_some() {
            self.rest = self.rest.strip_prefix(['+', '-']).unwrap_or(self.rest);
            self.digits()?;
        }
        out.extend_from_slice(&token.as_bytes()[..token.len() - self.rest.len()]);
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let rest = self.rest.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() == self.rest.len() {
            return None;
        }
        self.rest = rest;
        Some(())
    }

    fn string(&mut self) -> Option<String> {
        self.expect('"')?;
        let mut text = String::new();
        loop {
            let plain = self.rest.find(|c: char| c == '"' || c == '\\' || c < ' ')?;
            text.push_str(&self.rest[..plain]);
            self.rest = &self.rest[plain..];
            match self.next_char()? {
                '"' => return Some(text),
                '\\' => text.push(self.escape()?),
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        Some(match self.next_char()? {
            c @ ('"' | '\\' | '/') => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let unit = self.hex()?;
                if !(0xd800..0xe000).contains(&unit) {
                    return char::from_u32(unit);
                }
                self.expect('\\')?;
                self.expect('u')?;
                let low = self.hex()?;
                if unit >= 0xdc00 || !(0xdc00..0xe000).contains(&low) {
                    return None;
                }
                return char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
            }
            _ => return None,
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.rest.get(..4)?;
        // `from_str_radix` alone would take a sign.
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.rest = &self.rest[4..];
        u32::from_str_radix(digits, 16).ok()
    }

    fn next_char(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn expect(&mut self, c: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(c)?;
        Some(())
    }

    fn white_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
            c if c < ' ' => out.extend_from_slice(format!("\\u{:04x}", c as u32).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(text: &str) -> Option<String> {
        canonical(text.as_bytes()).map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
    }

    #[test]
    fn order_spacing_and_escapes_make_no_difference() {
        let plain = form(r#"{"amount":10,"name":"é/\""}"#);
        assert!(plain.is_some());
        assert_eq!(plain, form("{ \"name\" : \"\\u00e9\\/\\u0022\",\r\n\t\"amount\" : 10 }"));
        assert_eq!(form(r#""\ud83d\ude00""#), form("\"😀\""));
    }

    #[test]
    fn number_tokens_are_kept_as_written() {
        let tokens =
            ["1", "1.0", "1e0", "10e-1", "-0", "0", "9007199254740993", "9007199254740992"];
        for (index, a) in tokens.iter().enumerate() {
            assert_eq!(form(a).as_deref(), Some(*a));
            for b in &tokens[index + 1..] {
                assert_ne!(form(a), form(b));
            }
        }
    }

    #[test]
    fn what_could_mean_two_things_has_no_form() {
        let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
        let doubtful = [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#""\ud800""#,
            r#""\ude00\ud83d""#,
            "01",
            "+1",
            ".5",
            "1.",
            "1e",
            "-",
            "NaN",
            "[1,]",
            "{\"a\":1,}",
            "\"\t\"",
            "'a'",
            "1 2",
            "",
            "tru",
            r#""\u+123""#,
            "\u{feff}1",
            &deep,
        ];
        for text in doubtful {
            assert_eq!(form(text), None, "{text}");
        }
        assert_eq!(canonical(b"\"\xff\""), None);
        assert!(form(&format!("{}1{}", "[".repeat(64), "]".repeat(64))).is_some());
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_real_parser_on_the_meaning(text in json()) {
            let ours = form(&text).expect("generated JSON is plain");
            let theirs: serde_json::Value = serde_json::from_str(&text).expect("valid");
            let again: serde_json::Value = serde_json::from_str(&ours).expect("valid");
            prop_assert_eq!(theirs, again);
            prop_assert_eq!(form(&ours), Some(ours.clone()));
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = canonical(&bytes);
        }
    }

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(serde_json::Value::from),
            any::<String>().prop_map(serde_json::Value::from),
            any::<bool>().prop_map(serde_json::Value::from),
        ];
        let value = leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        });
        (value, any::<bool>()).prop_map(|(value, pretty)| match pretty {
            true => serde_json::to_string_pretty(&value).expect("serialises"),
            false => value.to_string(),
        })
    }
}
