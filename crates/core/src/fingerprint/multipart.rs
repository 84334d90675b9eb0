//! The parts of a `multipart/form-data` body, so that a new boundary is the same request.
//!
//! Libraries disagree on what stands before the first boundary and behind the last one, on lines
//! that end in a mere LF, on boundaries within a line. A body is only taken apart where all of them
//! see the same parts; in doubt there are none, and the raw bytes count.

use memchr::memmem;

use super::content_type::is_in_token;

const LINE_END: &[u8] = b"\r\n";

/// One part. Its head was read: each line of it is a header.
#[derive(Debug, PartialEq)]
pub(super) struct Part<'a> {
    head: &'a [u8],
    pub(super) content: &'a [u8],
}

impl<'a> Part<'a> {
    /// Names and values, in their order and as they were sent.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let mut rest = self.head;
        std::iter::from_fn(move || {
            let end = memmem::find(rest, LINE_END)?;
            let line = &rest[..end];
            rest = &rest[end + LINE_END.len()..];
            header(line)
        })
    }
}

/// The parts of `body`, at least one; or nothing where they are in doubt.
pub(super) fn parts<'a>(body: &'a [u8], boundary: &[u8]) -> Option<Vec<Part<'a>>> {
    let delimiter = [b"--", boundary].concat();
    let mut begin = body.strip_prefix(&delimiter[..]).map(|_| delimiter.len())?;
    let mut parts = Vec::new();
    // Wherever the delimiter is found it must be one, and all that is between two is a part.
    for end in memmem::find_iter(body, &delimiter).skip(1) {
        let between = body[begin..end].strip_prefix(LINE_END)?.strip_suffix(LINE_END)?;
        parts.push(part(between)?);
        begin = end + delimiter.len();
    }
    let is_closed = matches!(&body[begin..], b"--" | b"--\r\n");
    (is_closed && !parts.is_empty()).then_some(parts)
}

/// A part without the line ends around it.
fn part(bytes: &[u8]) -> Option<Part<'_>> {
    let mut rest = bytes;
    loop {
        let end = memmem::find(rest, LINE_END)?;
        let line = &rest[..end];
        rest = &rest[end + LINE_END.len()..];
        if line.is_empty() {
            let head = &bytes[..bytes.len() - rest.len() - LINE_END.len()];
            return Some(Part { head, content: rest });
        }
        header(line)?;
    }
}

fn header(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    // A folded line has no name, and would belong to the one before it.
    let is_name = !name.is_empty() && name.iter().all(|&byte| is_in_token(byte));
    let is_value = !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    (is_name && is_value).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(body: &str) -> Option<Vec<(String, String)>> {
        let parts = parts(body.as_bytes(), b"XX")?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let headers = |part: &Part<'_>| {
            let lines = part.headers().map(|(name, value)| text(name) + ":" + &text(value));
            lines.collect::<Vec<_>>().join("|")
        };
        Some(parts.iter().map(|part| (headers(part), text(part.content))).collect())
    }

    #[test]
    fn a_form_is_its_parts() {
        let body = "--XX\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--XX\r\n\
            content-disposition: form-data; name=\"f\"; filename=\"--X\"\r\nX-A:b \r\n\r\n\
            \r\n\n--X\r\n\r\n--XX--\r\n";
        let first = ("Content-Disposition: form-data; name=a".to_owned(), "1".to_owned());
        let second = (
            "content-disposition: form-data; name=\"f\"; filename=\"--X\"|X-A:b ".to_owned(),
            "\r\n\n--X\r\n".to_owned(),
        );
        assert_eq!(read(body), Some(vec![first, second]));
    }

    #[test]
    fn a_part_may_be_empty_and_without_headers() {
        let nothing = (String::new(), String::new());
        assert_eq!(read("--XX\r\n\r\n\r\n--XX--"), Some(vec![nothing]));
    }

    #[test]
    fn in_doubt_there_are_no_parts() {
        for body in [
            "",
            "--XX",
            "--XX--",
            "--XX--\r\n",
            "--XX\r\n\r\na",
            "--XX\r\n\r\na\r\n--XX",
            "--XX\r\n\r\na\r\n--XX\r\n",
            "--XX\r\n\r\na\r\n--XX-",
            "--XX\r\n\r\na\r\n--XX--x",
            "--XX\r\n\r\na\r\n--XX--\n",
            "--XX\r\n\r\na\r\n--XX--\r\n\r\n",
            "--XX\r\n\r\na\r\n--XX--\r\n--XX--",
            "\r\n--XX\r\n\r\na\r\n--XX--",
            "text\r\n--XX\r\n\r\na\r\n--XX--",
            "--XX \r\n\r\na\r\n--XX--",
            "--XX\r\n\r\na\r\n--XX --",
            "--XX\n\na\n--XX--",
            "--XX\r\n\r\na\n--XX--",
            "--XX\r\n\r\na--XX--",
            "--XX\r\n\r\na--XX\r\n--XX--",
            "--XX\r\n\r\na\r\n--XXY\r\n\r\nb\r\n--XX--",
            "--XX\r\na\r\n--XX--",
            "--XX\r\nA: b\r\n--XX--",
            "--XX\r\nA: b\nC: d\r\n\r\na\r\n--XX--",
            "--XX\r\nA: b\r\n c\r\n\r\na\r\n--XX--",
            "--XX\r\nA : b\r\n\r\na\r\n--XX--",
            "--XX\r\n: b\r\n\r\na\r\n--XX--",
            "--XX\r\nA\r\n\r\na\r\n--XX--",
            "--XX\r\nA: \0\r\n\r\na\r\n--XX--",
            "--XX\r\nÄ: b\r\n\r\na\r\n--XX--",
            "--xx\r\n\r\na\r\n--xx--",
        ] {
            assert_eq!(read(body), None, "{body:?}");
        }
    }

    /// A body of these parts, as a client would write it.
    fn written(parts: &[(String, Vec<u8>)], boundary: &str) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, content) in parts {
            let head =
                format!("--{boundary}\r\nContent-Disposition: form-data; name={name}\r\n\r\n");
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(LINE_END);
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        body
    }

    /// Contents full of what delimiters are made of.
    fn some_parts() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
        let content = proptest::collection::vec(
            prop_oneof![Just(b'-'), Just(b'\r'), Just(b'\n'), any::<u8>()],
            0..40,
        );
        proptest::collection::vec(("[a-z]{1,5}", content), 1..5)
    }

    proptest! {
        #[test]
        fn the_boundary_makes_no_difference(form in some_parts()) {
            let (one, two) = (written(&form, "aB1'()+_,./:=?"), written(&form, "----Other"));
            let one = parts(&one, b"aB1'()+_,./:=?").expect("plain");
            let two = parts(&two, b"----Other").expect("plain");
            prop_assert_eq!(&one, &two);
            let contents: Vec<&[u8]> = one.iter().map(|part| part.content).collect();
            let expected: Vec<&[u8]> = form.iter().map(|(_, content)| &content[..]).collect();
            prop_assert_eq!(contents, expected);
        }

        #[test]
        fn each_byte_makes_a_difference(form in some_parts(), at: prop::sample::Index, bit in 0..8) {
            let body = written(&form, "b0undary");
            let mut other = body.clone();
            other[at.index(body.len())] ^= 1u8 << bit;
            let (parts, others) = (parts(&body, b"b0undary"), parts(&other, b"b0undary"));
            prop_assert_ne!(parts, others);
        }

        #[test]
        fn nothing_panics(body in "(--b|\r\n|:|-|a| ){0,20}", boundary in "[b-]{1,3}") {
            let _ = parts(body.as_bytes(), boundary.as_bytes());
        }
    }
}
