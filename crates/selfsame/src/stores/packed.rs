//! [`Packed`]: an answer in little memory.
//!
//! A map of headers has room for more of them, and an index; records that are kept for days need
//! neither.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use selfsame_core::{Answer, AnswerBody, Kept};

/// How many headers a replay gets besides those that were kept.
const ADDED: usize = 4;

/// An answer in little memory, and all of it its own: what came over a connection lies in that
/// connection's buffers, and whoever keeps a part of one keeps the whole of it.
#[derive(Clone)]
pub(super) struct Packed {
    status: StatusCode,
    form: Form,
    /// The headers, then the trailers.
    fields: Box<[Field]>,
    /// The values of `fields`, one behind the other; then the body.
    bytes: Bytes,
}

/// What the bytes behind the values are.
#[derive(Clone, Copy)]
enum Form {
    Kept,
    NotKept,
    Sealed,
}

#[derive(Clone)]
struct Field {
    name: HeaderName,
    value_bytes: u32,
    is_sensitive: bool,
    is_trailer: bool,
}

impl From<&Answer> for Packed {
    fn from(answer: &Answer) -> Self {
        let Answer { status, headers, body, trailers } = answer;
        let (form, body) = match body {
            AnswerBody::Kept(body) => (Form::Kept, &body[..]),
            AnswerBody::NotKept => (Form::NotKept, &[][..]),
            AnswerBody::Sealed(sealed) => (Form::Sealed, &sealed[..]),
        };
        let lines = headers.iter().map(|line| (line, false));
        let lines = lines.chain(trailers.iter().map(|line| (line, true)));
        let mut fields = Vec::with_capacity(headers.len() + trailers.len());
        let values = headers.values().chain(trailers.values()).map(HeaderValue::len).sum::<usize>();
        let mut bytes = BytesMut::with_capacity(values + body.len());
        for ((name, value), is_trailer) in lines {
            let value_bytes = value.len().try_into().expect("a header is far below 4 GiB");
            let is_sensitive = value.is_sensitive();
            fields.push(Field { name: name.clone(), value_bytes, is_sensitive, is_trailer });
            bytes.put_slice(value.as_bytes());
        }
        bytes.put_slice(body);
        Self { status: *status, form, fields: fields.into_boxed_slice(), bytes: bytes.freeze() }
    }
}

impl From<Answer> for Packed {
    fn from(answer: Answer) -> Self {
        Self::from(&answer)
    }
}

impl Kept for Packed {
    fn restored(&self) -> Answer {
        let mut headers = HeaderMap::with_capacity(self.fields.len() + ADDED);
        let mut trailers = HeaderMap::new();
        let mut bytes = self.bytes.clone();
        for field in &self.fields {
            let value = bytes.split_to(field.value_bytes as usize);
            let mut value = HeaderValue::from_maybe_shared(value).expect("it was a header's value");
            value.set_sensitive(field.is_sensitive);
            let map = if field.is_trailer { &mut trailers } else { &mut headers };
            map.append(&field.name, value);
        }
        let body = match self.form {
            Form::Kept => AnswerBody::Kept(bytes),
            Form::NotKept => AnswerBody::NotKept,
            Form::Sealed => AnswerBody::Sealed(bytes),
        };
        Answer { status: self.status, headers, body, trailers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{COOKIE, ETAG};

    fn answer(body: AnswerBody) -> Answer {
        let mut secret = HeaderValue::from_static("a=b");
        secret.set_sensitive(true);
        let tag = HeaderValue::from_static("1");
        let custom = HeaderName::from_static("x-custom");
        let empty = HeaderValue::from_static("");
        Answer {
            status: StatusCode::CREATED,
            headers: HeaderMap::from_iter([(ETAG, tag.clone()), (COOKIE, secret), (ETAG, tag)]),
            body,
            trailers: HeaderMap::from_iter([(custom, empty)]),
        }
    }

    #[test]
    fn an_answer_comes_back_as_it_was() {
        for body in [
            AnswerBody::Kept(Bytes::from_static(b"body")),
            AnswerBody::Kept(Bytes::new()),
            AnswerBody::NotKept,
            AnswerBody::Sealed(Bytes::from_static(b"sealed")),
        ] {
            let answer = answer(body);
            let restored = Packed::from(&answer).restored();
            assert_eq!(restored, answer);
            assert!(restored.headers[COOKIE].is_sensitive());
        }
    }

    #[test]
    fn nothing_of_a_connection_is_kept() {
        let buffer = Bytes::from(b"tag=1body".to_vec());
        let mut answer = answer(AnswerBody::Kept(buffer.slice(5..)));
        let tag = HeaderValue::from_maybe_shared(buffer.slice(..5)).expect("valid");
        answer.headers.insert(ETAG, tag);
        let packed = Packed::from(answer);
        assert!(buffer.is_unique());
        assert_eq!(packed.restored().headers[ETAG], "tag=1");
    }
}
