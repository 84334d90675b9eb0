//! [`Answer`] and [`Checkpoint`]: what a record keeps for those who come again.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode};

/// The answer to a request, as it is given again to every retry.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The end-to-end headers; values of one name stay in their order.
    pub headers: HeaderMap,
    /// The body.
    pub body: AnswerBody,
    /// The trailers.
    pub trailers: HeaderMap,
}

impl Answer {
    /// The same in memory of its own. What came over a connection lies in that connection's
    /// buffers, and whoever keeps a part of one keeps the whole of it.
    #[must_use]
    pub fn apart(mut self) -> Self {
        let body = match &self.body {
            AnswerBody::Kept(body) => body.len(),
            AnswerBody::NotKept => 0,
        };
        let values = self.headers.values().chain(self.trailers.values());
        let mut room = BytesMut::with_capacity(values.map(HeaderValue::len).sum::<usize>() + body);
        let mut copy = |bytes: &[u8]| {
            room.extend_from_slice(bytes);
            room.split().freeze()
        };
        for value in self.headers.values_mut().chain(self.trailers.values_mut()) {
            let mut copied = HeaderValue::from_maybe_shared(copy(value.as_bytes()))
                .expect("it is a copy of a header value");
            copied.set_sensitive(value.is_sensitive());
            *value = copied;
        }
        if let AnswerBody::Kept(body) = &mut self.body {
            *body = copy(body);
        }
        self
    }
}

/// The body of an [`Answer`].
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerBody {
    /// The whole body, byte for byte.
    Kept(Bytes),
    /// The work is done, its body was too large or a stream: it cannot be given again.
    NotKept,
}

/// A recovery point with its data: where a run that was interrupted goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of the last finished phase.
    pub recovery_point: String,
    /// What the next phase needs.
    pub data: Bytes,
}

impl Checkpoint {
    /// The most bytes a checkpoint's data may have.
    pub const DATA_BYTES_MAX: usize = 64 * 1024;
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{COOKIE, ETAG};

    #[test]
    fn an_answer_apart_is_the_same_in_other_memory() {
        let buffer = Bytes::from_static(b"tag=1body");
        let mut secret = HeaderValue::from_static("a=b");
        secret.set_sensitive(true);
        let tag = HeaderValue::from_maybe_shared(buffer.slice(..5)).expect("valid");
        let headers = HeaderMap::from_iter([(ETAG, tag.clone()), (COOKIE, secret), (ETAG, tag)]);
        let answer = Answer {
            status: StatusCode::CREATED,
            headers,
            body: AnswerBody::Kept(buffer.slice(5..)),
            trailers: HeaderMap::from_iter([(ETAG, HeaderValue::from_static(""))]),
        };
        let apart = answer.clone().apart();
        assert_eq!(apart, answer);
        assert!(apart.headers[COOKIE].is_sensitive());
        let within = buffer.as_ptr_range();
        let AnswerBody::Kept(body) = &apart.body else { panic!("it was kept") };
        assert!(!within.contains(&body.as_ptr()));
        assert!(!within.contains(&apart.headers[ETAG].as_bytes().as_ptr()));
    }
}
