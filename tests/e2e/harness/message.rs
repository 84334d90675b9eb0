//! HTTP/1.1 messages on a raw socket, as both ends of the harness read them.

use std::io::{self, BufRead, Read};

pub(super) type Headers = Vec<(String, String)>;

/// A start line, headers, a body and trailers.
pub(super) struct Message {
    pub(super) start: String,
    pub(super) headers: Headers,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Headers,
}

/// Reads one message; nothing if the other end has closed before it began.
pub(super) fn read(from: &mut impl BufRead, body_until_close: bool) -> io::Result<Option<Message>> {
    let start = line(from)?;
    if start.is_empty() {
        return Ok(None);
    }
    let headers = fields(from)?;
    let until_close = body_until_close && !has_no_body(&start);
    let (body, trailers) = body(from, &headers, until_close)?;
    Ok(Some(Message { start, headers, body, trailers }))
}

pub(super) fn find<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

/// Headers or trailers, up to the empty line.
fn fields(from: &mut impl BufRead) -> io::Result<Headers> {
    let mut fields = Headers::new();
    loop {
        let line = line(from)?;
        let Some((name, value)) = line.split_once(':') else { return Ok(fields) };
        fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// Whether the status of an answer leaves no room for a body.
fn has_no_body(start: &str) -> bool {
    let status = start.split(' ').nth(1).unwrap_or_default();
    status.starts_with('1') || status == "204" || status == "304"
}

fn body(
    from: &mut impl BufRead,
    headers: &Headers,
    until_close: bool,
) -> io::Result<(Vec<u8>, Headers)> {
    let mut body = Vec::new();
    if find(headers, "transfer-encoding") == Some("chunked") {
        loop {
            let size = line(from)?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            if size == 0 {
                return Ok((body, fields(from)?));
            }
            take(from, size, &mut body)?;
            line(from)?;
        }
    } else if let Some(length) = find(headers, "content-length") {
        take(from, length.parse().map_err(io::Error::other)?, &mut body)?;
    } else if until_close {
        from.read_to_end(&mut body)?;
    }
    Ok((body, Headers::new()))
}

fn take(from: &mut impl BufRead, len: usize, into: &mut Vec<u8>) -> io::Result<()> {
    let begun = into.len();
    from.take(len as u64).read_to_end(into)?;
    match into.len() - begun == len {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    Ok(String::from_utf8_lossy(line.trim_ascii_end()).into_owned())
}
