//! JSON as its meaning: members sorted, white space dropped, escapes normalised, **number tokens
//! kept as written**.
//!
//! Where a text could be read in two ways (duplicate members, lone surrogates, invalid JSON or
//! UTF-8, great depth) there is no canonical form, and the raw bytes count instead: two
//! different requests never share a fingerprint, at the price that two equal ones may not.

use crate::JsonPointer;
use crate::json_pointer::{Counts, LeftOut};

/// Deeper nesting than this has no canonical form.
const DEPTH_MAX: usize = 64;

/// The canonical form of `text` without what `ignore` points at, or nothing where its meaning is
/// in doubt. What is ignored is read all the same: it may not be in doubt either.
pub(crate) fn canonical(text: &[u8], ignore: &[JsonPointer]) -> Option<Vec<u8>> {
    std::str::from_utf8(text).ok()?;
    let out = Vec::with_capacity(text.len());
    let mut reader = Reader { rest: text, out, members: Vec::new(), sorted: Vec::new() };
    reader.value(DEPTH_MAX, &LeftOut::at_root(ignore))?;
    reader.white_space();
    reader.rest.is_empty().then_some(reader.out)
}

/// Reads UTF-8, and writes it to `out` as it goes: one buffer for all values, however deep.
struct Reader<'a> {
    rest: &'a [u8],
    out: Vec<u8>,
    /// The members of all open objects, the innermost last.
    members: Vec<Member>,
    /// Where an object is put into order.
    sorted: Vec<u8>,
}

/// Where a member stands in `out`.
struct Member {
    from: usize,
    name_end: usize,
    end: usize,
    counts: bool,
}

impl Member {
    /// The name as written, without its quotes.
    fn name<'o>(&self, out: &'o [u8]) -> &'o [u8] {
        &out[self.from + 1..self.name_end - 1]
    }
}

impl Reader<'_> {
    fn value(&mut self, depth: usize, left_out: &LeftOut<'_>) -> Option<()> {
        self.white_space();
        match self.rest.first()? {
            b'{' => self.object(depth.checked_sub(1)?, left_out),
            b'[' => self.array(depth.checked_sub(1)?, left_out),
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            _ => [&b"true"[..], b"false", b"null"].into_iter().find_map(|word| {
                self.rest = self.rest.strip_prefix(word)?;
                self.out.extend_from_slice(word);
                Some(())
            }),
        }
    }

    fn object(&mut self, depth: usize, left_out: &LeftOut<'_>) -> Option<()> {
        self.expect(b'{')?;
        let (start, outer) = (self.out.len(), self.members.len());
        self.out.push(b'{');
        self.white_space();
        if self.expect(b'}').is_none() {
            loop {
                let member = self.member(depth, left_out)?;
                self.members.push(member);
                self.white_space();
                if self.expect(b',').is_none() {
                    self.expect(b'}')?;
                    break;
                }
                self.out.push(b',');
            }
        }
        self.out.push(b'}');
        self.put_in_order(start, outer)?;
        self.members.truncate(outer);
        Some(())
    }

    fn member(&mut self, depth: usize, left_out: &LeftOut<'_>) -> Option<Member> {
        self.white_space();
        let from = self.out.len();
        self.string()?;
        let name_end = self.out.len();
        self.white_space();
        self.expect(b':')?;
        self.out.push(b':');
        let counts = left_out.member(&self.out[from + 1..name_end - 1]);
        let counts = self.counted(counts, depth)?;
        Some(Member { from, name_end, end: self.out.len(), counts })
    }

    /// Puts the members from `outer` on, which stand in `out` from `start` on, into the order of
    /// their names, and drops those that do not count. In order already, they stay where they are.
    fn put_in_order(&mut self, start: usize, outer: usize) -> Option<()> {
        let Self { out, members, sorted, .. } = self;
        let members = &mut members[outer..];
        let in_order = members.windows(2).all(|pair| pair[0].name(out) < pair[1].name(out));
        if in_order && members.iter().all(|member| member.counts) {
            return Some(());
        }
        members.sort_unstable_by(|a, b| a.name(out).cmp(b.name(out)));
        // Parsers disagree on which of two equal members counts.
        if members.windows(2).any(|pair| pair[0].name(out) == pair[1].name(out)) {
            return None;
        }
        sorted.clear();
        for member in members.iter().filter(|member| member.counts) {
            sorted.push(if sorted.is_empty() { b'{' } else { b',' });
            sorted.extend_from_slice(&out[member.from..member.end]);
        }
        if sorted.is_empty() {
            sorted.push(b'{');
        }
        sorted.push(b'}');
        out.truncate(start);
        out.extend_from_slice(sorted);
        Some(())
    }

    fn array(&mut self, depth: usize, left_out: &LeftOut<'_>) -> Option<()> {
        self.expect(b'[')?;
        let start = self.out.len();
        self.out.push(b'[');
        self.white_space();
        if self.expect(b']').is_none() {
            for index in 0.. {
                let before = self.out.len();
                if before > start + 1 {
                    self.out.push(b',');
                }
                if !self.counted(left_out.element(index), depth)? {
                    self.out.truncate(before);
                }
                self.white_space();
                if self.expect(b',').is_none() {
                    self.expect(b']')?;
                    break;
                }
            }
        }
        self.out.push(b']');
        Some(())
    }

    /// Reads a value; writes it, and says so, if it counts.
    fn counted(&mut self, counts: Counts<'_>, depth: usize) -> Option<bool> {
        match counts {
            Counts::But(left_out) => self.value(depth, &left_out).map(|()| true),
            Counts::Not => {
                let before = self.out.len();
                self.value(depth, &LeftOut::default())?;
                self.out.truncate(before);
                Some(false)
            }
        }
    }

    /// `1.0`, `1` and `1e0` stay three different tokens: a float would merge large amounts.
    fn number(&mut self) -> Option<()> {
        let token = self.rest;
        let _sign = self.expect(b'-');
        if self.expect(b'0').is_none() {
            self.digits()?;
        }
        if self.expect(b'.').is_some() {
            self.digits()?;
        }
        if self.expect(b'e').or_else(|| self.expect(b'E')).is_some() {
            let _sign = self.expect(b'+').or_else(|| self.expect(b'-'));
            self.digits()?;
        }
        self.out.extend_from_slice(&token[..token.len() - self.rest.len()]);
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.rest = &self.rest[digits..];
        (digits > 0).then_some(())
    }

    fn string(&mut self) -> Option<()> {
        self.expect(b'"')?;
        self.out.push(b'"');
        loop {
            let special = |&byte: &u8| byte == b'"' || byte == b'\\' || byte < b' ';
            let plain = self.rest.iter().position(special)?;
            self.out.extend_from_slice(&self.rest[..plain]);
            self.rest = &self.rest[plain..];
            match self.next_byte()? {
                b'"' => break,
                b'\\' => {
                    let character = self.escape()?;
                    write_character(character, &mut self.out);
                }
                _ => return None,
            }
        }
        self.out.push(b'"');
        Some(())
    }

    fn escape(&mut self) -> Option<char> {
        Some(match self.next_byte()? {
            byte @ (b'"' | b'\\' | b'/') => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.hex()?;
                if !(0xd800..0xe000).contains(&unit) {
                    return char::from_u32(unit);
                }
                self.expect(b'\\')?;
                self.expect(b'u')?;
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
        (0..4).try_fold(0, |unit, _| Some(unit << 4 | char::from(self.next_byte()?).to_digit(16)?))
    }

    fn next_byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let (_, rest) = self.rest.split_first().filter(|(found, _)| **found == byte)?;
        self.rest = rest;
        Some(())
    }

    fn white_space(&mut self) {
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let spaces = self.rest.iter().take_while(is_space).count();
        self.rest = &self.rest[spaces..];
    }
}

/// Writes a character of a string, in the only way the canonical form knows.
pub(crate) fn write_character(character: char, out: &mut Vec<u8>) {
    match character {
        '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
        control if control < ' ' => {
            out.extend_from_slice(format!("\\u{:04x}", control as u32).as_bytes());
        }
        other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(text: &str) -> Option<String> {
        canonical(text.as_bytes(), &[]).map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
    }

    #[test]
    fn order_spacing_and_escapes_make_no_difference() {
        let plain = form(r#"{"amount":10,"name":"é/\""}"#);
        assert!(plain.is_some());
        assert_eq!(plain, form("{ \"name\" : \"\\u00e9\\/\\u0022\",\r\n\t\"amount\" : 10 }"));
        assert_eq!(form(r#""\ud83d\ude00""#), form("\"😀\""));
    }

    #[test]
    fn members_are_sorted_by_their_names_as_written() {
        let text = r##"{"b":{"z":1,"y":{}},"":0,"#":1,"\u0022":2,"é":3,"a b":4,"a":5}"##;
        let expected = r##"{"":0,"#":1,"\"":2,"a":5,"a b":4,"b":{"y":{},"z":1},"é":3}"##;
        assert_eq!(form(text).as_deref(), Some(expected));
    }

    fn without(pointers: &[&str], text: &str) -> Option<String> {
        let parse = |pointer: &&str| JsonPointer::parse(pointer).expect("valid");
        let ignore: Vec<JsonPointer> = pointers.iter().map(parse).collect();
        canonical(text.as_bytes(), &ignore).map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
    }

    #[test]
    fn what_is_ignored_is_as_good_as_absent() {
        let table: [(&[&str], &str, &str); 16] = [
            (&["/a"], r#"{"a":{"x":[1]},"b":2}"#, r#"{"b":2}"#),
            (&["/a"], r#"{"b":2}"#, r#"{"b":2}"#),
            (&["/a"], r#"{"a":1}"#, "{}"),
            (&["/a"], r#"{"b":{"a":1}}"#, r#"{"b":{"a":1}}"#),
            (&["/a"], r#"["a"]"#, r#"["a"]"#),
            (&["/a"], r#""a""#, r#""a""#),
            (&["/a/b", "/a/c"], r#"{"a":{"c":3,"b":2}}"#, r#"{"a":{}}"#),
            (&["/a/b", "/a"], r#"{"a":{"c":3,"b":2}}"#, "{}"),
            (
                &["/a~1b", "/~0", "/ü", "/\""],
                r#"{"a/b":1,"~":1,"\u00fc":1,"\"":1,"c":1}"#,
                r#"{"c":1}"#,
            ),
            (&["/"], r#"{"":1,"a":2}"#, r#"{"a":2}"#),
            (&["/0"], r#"["a","b","c"]"#, r#"["b","c"]"#),
            (&["/1"], r#"["a","b","c"]"#, r#"["a","c"]"#),
            (&["/2", "/0"], r#"["a","b","c"]"#, r#"["b"]"#),
            (&["/0", "/1", "/-"], r#"["a","b"]"#, "[]"),
            (&["/0"], r#"{"0":1,"1":2}"#, r#"{"1":2}"#),
            (&["/l/1/at"], r#"{"l":[{"at":1},{"at":2}]}"#, r#"{"l":[{"at":1},{}]}"#),
        ];
        for (pointers, text, expected) in table {
            assert_eq!(without(pointers, text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_ignored_may_not_be_in_doubt_either() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a":{"b":1,"b":1}}"#,
            r#"{"a":01}"#,
            r#"{"a":"\ud800"}"#,
        ] {
            assert_eq!(without(&["/a"], text), None, "{text}");
        }
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
        assert_eq!(canonical(b"\"\xff\"", &[]), None);
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
        fn ignoring_what_is_not_there_changes_nothing(text in json()) {
            prop_assert_eq!(without(&["/no such name", "/0/no such name/0"], &text), form(&text));
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = canonical(&bytes, &[]);
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
