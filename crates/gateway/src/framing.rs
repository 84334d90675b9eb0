//! [`Watched`]: a connection whose requests must say clearly where they end, and come in time.
//!
//! Of `Content-Length` beside `Transfer-Encoding` hyper keeps the latter and forgets the former, so
//! whoever wants to refuse such a request has to see the bytes before hyper does. What is not
//! understood here counts as unclear; nothing is decided here about where a request does end.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::HeaderMap;
use http::header::TRANSFER_ENCODING;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::pace::{Awaited, BodyProgress, Bytewise, Pulse};

/// How much of a line is looked at: enough for the two headers and for a chunk's size.
const LINE_BYTES_MAX: usize = 256;
/// Most digits of a chunk's size. A longer one has zeros before it, and may not fit into a line.
const CHUNK_DIGITS_MAX: usize = 16;

/// Whether a connection has brought a request that leaves its end unclear. It stays so: nothing
/// else that comes over such a connection is believed either.
#[derive(Debug, Clone, Default)]
pub(crate) struct Framing(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    is_unclear: AtomicBool,
    pulse: Bytewise,
}

impl Framing {
    /// Whether a request with these headers may be taken from this connection.
    pub(crate) fn is_clear(&self, headers: &HeaderMap) -> bool {
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        let is_known = match (codings.next(), codings.next()) {
            (None, _) => true,
            (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
            (Some(_), Some(_)) => false,
        };
        is_known && !self.0.is_unclear.load(Ordering::Relaxed)
    }

    /// See [`Bytewise::request_begins`].
    pub(crate) fn request_begins(&self) {
        self.pulse().request_begins();
    }

    /// See [`Bytewise::response_begins`].
    pub(crate) fn response_begins(&self) {
        self.pulse().response_begins();
    }

    fn pulse(&self) -> &Bytewise {
        &self.0.pulse
    }
}

impl Pulse for Framing {
    fn forget(&self) {
        self.pulse().forget();
    }

    fn feel(&self) -> (Awaited, u32) {
        self.pulse().feel()
    }

    fn body(&self) -> Option<BodyProgress> {
        self.pulse().body()
    }
}

/// A connection that follows its requests from head to head.
pub(crate) struct Watched<S> {
    stream: S,
    watch: Watch,
    framing: Framing,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, watch: Watch::default(), framing: Framing::default() }
    }

    pub(crate) fn framing(&self) -> Framing {
        self.framing.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let begun = buf.filled().len();
        let Self { stream, watch, framing } = &mut *self;
        if Pin::new(stream).poll_read(cx, buf)?.is_pending() {
            framing.pulse().misses(watch.awaited());
            return Poll::Pending;
        }
        let (heads, was_in_body) = (watch.heads, watch.is_in_body());
        if watch.see(&buf.filled()[begun..]).is_none() {
            framing.0.is_unclear.store(true, Ordering::Relaxed);
        }
        if watch.heads != heads {
            framing.pulse().head_is_whole();
        } else if was_in_body {
            framing.pulse().body_goes_on(buf.filled().len() - begun);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.framing.pulse().wrote(wrote.is_ready());
        wrote
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.framing.pulse().wrote(wrote.is_ready());
        wrote
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Where in a request the next byte belongs.
#[derive(Debug, Clone, Copy, Default)]
enum Place {
    #[default]
    BeforeHead,
    Head,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    Trailers,
    /// Something was not understood; the rest is not looked at.
    Lost,
}

#[derive(Default)]
struct Watch {
    place: Place,
    /// How many heads have ended.
    heads: u32,
    line: Vec<u8>,
    /// The last byte of `line`, also where that is too long to be kept.
    last_of_line: Option<u8>,
    length: Option<u64>,
    is_chunked: bool,
}

impl Watch {
    /// Follows `bytes`; nothing if it is unclear where a request ends.
    fn see(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            match &mut self.place {
                Place::Body(left) | Place::Chunk(left) => {
                    let skipped = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= skipped as u64;
                    bytes = &bytes[skipped..];
                    match self.place {
                        Place::Body(0) => self.place = Place::BeforeHead,
                        Place::Chunk(0) => self.place = Place::ChunkSize,
                        _ => {}
                    }
                }
                Place::Lost => return None,
                _ => {
                    let Some(end) = memchr::memchr(b'\n', bytes) else {
                        self.begin_line(bytes);
                        return Some(());
                    };
                    let last = bytes[..end].last().copied().or(self.last_of_line);
                    if last != Some(b'\r') {
                        // Not everybody takes a line feed alone for the end of a line.
                        self.place = Place::Lost;
                        return None;
                    }
                    let next = match self.line.is_empty() {
                        true => self.after_line(bytes[..end.min(LINE_BYTES_MAX)].trim_ascii()),
                        false => {
                            self.begin_line(&bytes[..end]);
                            let line = std::mem::take(&mut self.line);
                            self.after_line(line.trim_ascii())
                        }
                    };
                    self.last_of_line = None;
                    self.place = next.unwrap_or(Place::Lost);
                    next?;
                    bytes = &bytes[end + 1..];
                }
            }
        }
        Some(())
    }

    fn is_in_body(&self) -> bool {
        use Place::{Body, Chunk, ChunkSize, Trailers};
        matches!(self.place, Body(_) | ChunkSize | Chunk(_) | Trailers)
    }

    /// What is missing, where nothing is there to read.
    fn awaited(&self) -> Awaited {
        match self.place {
            Place::BeforeHead if self.heads > 0 && self.line.is_empty() => Awaited::Next,
            Place::BeforeHead | Place::Head | Place::Lost => Awaited::Head,
            Place::Body(_) | Place::ChunkSize | Place::Chunk(_) | Place::Trailers => Awaited::Body,
        }
    }

    /// Keeps what has come of a line whose end has not.
    fn begin_line(&mut self, bytes: &[u8]) {
        self.last_of_line = bytes.last().copied().or(self.last_of_line);
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn after_line(&mut self, line: &[u8]) -> Option<Place> {
        match self.place {
            Place::BeforeHead if line.is_empty() => Some(Place::BeforeHead),
            Place::BeforeHead => Some(Place::Head),
            Place::Head if line.is_empty() => self.after_head(),
            Place::Head => {
                let colon = line.iter().position(|&byte| byte == b':')?;
                let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
                if name.eq_ignore_ascii_case(b"transfer-encoding") {
                    self.is_chunked = true;
                } else if name.eq_ignore_ascii_case(b"content-length") {
                    if self.length.is_some() || !value.iter().all(u8::is_ascii_digit) {
                        return None;
                    }
                    self.length = Some(std::str::from_utf8(value).ok()?.parse().ok()?);
                }
                Some(Place::Head)
            }
            Place::ChunkSize => {
                let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
                if digits > CHUNK_DIGITS_MAX {
                    return None;
                }
                let digits = std::str::from_utf8(&line[..digits]).ok()?;
                match u64::from_str_radix(digits, 16).ok()? {
                    0 => Some(Place::Trailers),
                    // A line end follows the chunk.
                    size => Some(Place::Chunk(size.checked_add(2)?)),
                }
            }
            Place::Trailers if line.is_empty() => Some(Place::BeforeHead),
            Place::Trailers => Some(Place::Trailers),
            Place::Body(_) | Place::Chunk(_) | Place::Lost => None,
        }
    }

    fn after_head(&mut self) -> Option<Place> {
        self.heads = self.heads.wrapping_add(1).max(1);
        match (self.length.take(), std::mem::take(&mut self.is_chunked)) {
            (Some(_), true) => None,
            (None, true) => Some(Place::ChunkSize),
            (Some(0) | None, false) => Some(Place::BeforeHead),
            (Some(length), false) => Some(Place::Body(length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `text` is clear, read at once and byte by byte.
    fn is_clear(text: &str) -> bool {
        let whole = Watch::default().see(text.as_bytes()).is_some();
        let mut watch = Watch::default();
        let split = text.as_bytes().chunks(1).all(|byte| watch.see(byte).is_some());
        assert_eq!(whole, split, "{text}");
        whole
    }

    const BOTH: &str = "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n";

    #[test]
    fn both_lengths_are_unclear_wherever_they_come() {
        let before = [
            "",
            "\r\nGET / HTTP/1.1\r\nHost: a:80\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nSum: 1\r\n\r\n",
        ];
        for before in before {
            assert!(is_clear(before), "{before}");
            assert!(!is_clear(&format!("{before}POST / HTTP/1.1\r\n{BOTH}\r\n")), "{before}");
        }
        let other_order = "TRANSFER-ENCODING: chunked\r\nX-Long: {}\r\ncontent-length:4\r\n\r\n";
        assert!(!is_clear(&format!("POST / HTTP/1.1\r\n{other_order}")));
    }

    #[test]
    fn a_line_ends_with_both_of_its_characters() {
        let head =
            "POST / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n".replace("{}", &"x".repeat(600));
        assert!(is_clear(&head));
        for at in head.match_indices("\r\n").map(|(at, _)| at) {
            let line_feed_alone = format!("{}{}", &head[..at], &head[at + 1..]);
            assert!(!is_clear(&line_feed_alone), "{at}");
        }
    }

    #[test]
    fn a_length_is_one_number() {
        for (lines, expected) in [
            ("Content-Length: 2\r\n", true),
            ("Content-Length: 02\r\n", true),
            ("Content-Length: +2\r\n", false),
            ("Content-Length: 2, 2\r\n", false),
            ("Content-Length:\r\n", false),
            ("Content-Length: 2\r\nContent-Length: 2\r\n", false),
            ("Content-Length: 2\r\nContent-Length: 02\r\n", false),
        ] {
            let request = format!("POST / HTTP/1.1\r\n{lines}\r\n{{}}");
            assert_eq!(is_clear(&request), expected, "{lines}");
        }
    }

    #[test]
    fn what_is_missing_is_told_by_what_has_come() {
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let table = [
            ("", Awaited::Head),
            ("\r\n", Awaited::Head),
            ("GE", Awaited::Head),
            ("GET / HTTP/1.1\r\nHost: a\r\n", Awaited::Head),
            ("GET / HTTP/1.1\r\n\r\n", Awaited::Next),
            ("GET / HTTP/1.1\r\n\r\nG", Awaited::Head),
            ("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\na", Awaited::Body),
            ("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab", Awaited::Next),
            (chunked, Awaited::Body),
            (&format!("{chunked}2\r\na"), Awaited::Body),
            (&format!("{chunked}0\r\n"), Awaited::Body),
            (&format!("{chunked}0\r\n\r\n"), Awaited::Next),
        ];
        for (text, awaited) in table {
            let mut watch = Watch::default();
            watch.see(text.as_bytes()).expect("clear");
            assert_eq!(watch.awaited(), awaited, "{text}");
        }
    }

    #[test]
    fn what_stands_in_a_body_is_no_head() {
        let body = format!("POST / HTTP/1.1\r\n{BOTH}\r\n");
        let sized = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert!(is_clear(&sized.repeat(2)));
        let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let chunked = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
        assert!(is_clear(&chunked.repeat(2)));
    }

    #[test]
    fn long_lines_are_followed_and_bad_ones_are_unclear() {
        let long = format!("GET / HTTP/1.1\r\nX-Long: {}\r\n\r\n", "x".repeat(5000));
        assert!(is_clear(&long.repeat(2)));
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let padded = |zeros: usize| format!("{}5\r\nabcde\r\n0\r\n\r\n", "0".repeat(zeros));
        assert!(is_clear(&format!("{chunked}{}", padded(15))));
        let far_padded = [padded(16), padded(LINE_BYTES_MAX), padded(5000)];
        let bad = ["x\r\n", "-1\r\n", "\r\n", "ffffffffffffffff\r\n", "10000000000000000\r\n"];
        for bad in bad.into_iter().chain(far_padded.iter().map(String::as_str)) {
            assert!(!is_clear(&format!("{chunked}{bad}")), "{bad}");
        }
        assert!(!is_clear("POST / HTTP/1.1\r\nContent-Length: 4, 4\r\n\r\n"));
    }
}
