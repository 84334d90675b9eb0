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
    // Twice: an object is put into order behind itself.
    let out = Vec::with_capacity(2 * text.len());
    let mut reader = Reader { rest: text, out, members: Vec::with_capacity(8) };
    reader.value(DEPTH_MAX, &LeftOut::at_root(ignore))?;
    reader.white_space();
    reader.rest.is_empty().then_some(reader.out)
}

/// The members of a text in canonical form, each its name, in quotes, and its value; nothing where
/// it is no object.
pub(crate) fn members(canonical: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut reader = Reader { rest: canonical, out: Vec::new(), members: Vec::new() };
    let mut members = Vec::new();
    reader.expect(b'{')?;
    if reader.expect(b'}').is_some() {
        return Some(members);
    }
    loop {
        let from = reader.rest;
        reader.string()?;
        let name = &from[..from.len() - reader.rest.len()];
        reader.expect(b':')?;
        let from = reader.rest;
        reader.value(DEPTH_MAX, &LeftOut::default())?;
        members.push((name, &from[..from.len() - reader.rest.len()]));
        reader.out.clear();
        if reader.expect(b',').is_none() {
            return reader.expect(b'}').map(|()| members);
        }
    }
}

/// Reads UTF-8, and writes it to `out` as it goes: one buffer for all values, however deep.
struct Reader<'a> {
    rest: &'a [u8],
    out: Vec<u8>,
    /// The members of all open objects, the innermost last.
    members: Vec<Member>,
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
        let Self { out, members, .. } = self;
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
        let end = out.len();
        for member in members.iter().filter(|member| member.counts) {
            out.push(if out.len() == end { b'{' } else { b',' });
            out.extend_from_within(member.from..member.end);
        }
        if out.len() == end {
            out.push(b'{');
        }
        out.push(b'}');
        out.drain(start..end);
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
            let digit =
                |half: u8| char::from_digit(u32::from(half), 16).map_or(b'0', |digit| digit as u8);
            let byte = control as u8;
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
        }
        other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

#[cfg(test)]
mod tests;
