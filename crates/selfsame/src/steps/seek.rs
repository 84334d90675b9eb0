//! Step 1, where a key may be in the body: it is read first, as long as it can be JSON.
//!
//! A body that is plainly anything else goes on as it comes. One that is too large to be looked into, or
//! that some reader of JSON may understand and this one does not, is refused: if it has a key, passing it
//! on could do the work twice.

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http_body::Body;
use selfsame_core::headers::lines;
use selfsame_core::{InvalidKey, JsonPointer, Key};

use super::parse::{fit, missing};
use super::{Apart, Whole, announces_more_than};
use crate::body::RequestBody;
use crate::buffer_limit::{BufferAllowance, HeldBytes};
use crate::collect::{Read, read_while};
use crate::patience;
use crate::policy::Policy;
use crate::reject::Refusal;

/// What the body of a request says about its key.
pub(crate) enum Sought<B> {
    Found { key: Key, parts: Box<Parts>, whole: Whole },
    Unkeyed(Apart<RequestBody<B>>),
    Refused(Refusal),
}

/// Reads the body, and looks for the key in it.
pub(crate) async fn seek<B>(Apart { parts, body }: Apart<B>, policy: &Policy) -> Sought<B>
where
    B: Body<Data = Bytes>,
{
    let mut body = Box::pin(body);
    let bytes_max = policy.request_bytes_max;
    let mut look = Look::at(&parts, bytes_max);
    let held = HeldBytes::of_request(parts.extensions.get());
    let read = read_while(body.as_mut(), bytes_max, held, |data| look.goes_on(data));
    let (data, trailers) = match patience::within(policy.response_timeout, read).await {
        Some(Read::Whole { data, trailers, held }) => (held.guard(data), trailers),
        Some(Read::Over { .. }) if look.may_be_json() => {
            return Sought::Refused(Refusal::BodyTooLarge { bytes_max });
        }
        Some(Read::Over { begun }) => {
            return unkeyed(parts, RequestBody::begun(begun, body), policy);
        }
        Some(Read::NoRoom(excess)) => return Sought::Refused(Refusal::NoRoom(excess)),
        Some(Read::Broken) | None => return Sought::Refused(Refusal::BodyIncomplete),
    };
    match key_in_body(&parts, &data, policy) {
        Ok(Some(key)) => {
            let allowance = parts.extensions.get::<BufferAllowance>();
            // The body is here. A client that does not take its responses runs nothing more.
            if let Some(Err(excess)) = allowance.map(|allowance| allowance.check(0)) {
                return Sought::Refused(Refusal::NoRoom(excess));
            }
            Sought::Found { key, parts, whole: Whole { data, trailers } }
        }
        Ok(None) => unkeyed(parts, RequestBody::whole(data, trailers), policy),
        Err(refusal) => Sought::Refused(refusal),
    }
}

fn unkeyed<B>(parts: Box<Parts>, body: RequestBody<B>, policy: &Policy) -> Sought<B> {
    match missing(policy) {
        Some(refusal) => Sought::Refused(refusal),
        None => Sought::Unkeyed(Apart { parts, body }),
    }
}

/// The key in a body that was read, if the route has keys there.
pub(crate) fn key_in_body(
    parts: &Parts,
    body: &[u8],
    policy: &Policy,
) -> Result<Option<Key>, Refusal> {
    let Some(pointer) = &policy.key_pointer else { return Ok(None) };
    let encoding = lines(&parts.headers, &CONTENT_ENCODING);
    let key = Key::in_body(body, encoding.as_deref(), pointer, policy.request_bytes_max);
    key.map_err(Refusal::InvalidKey)?.map(|key| fit(key, policy)).transpose()
}

/// Whether the body of a request that has a key in its headers has none besides.
pub(crate) fn has_no_other_key(parts: &Parts, body: &[u8], policy: &Policy) -> Result<(), Refusal> {
    match key_in_body(parts, body, policy) {
        // It has a key: nothing runs unprotected, whatever its body is.
        Ok(None) | Err(Refusal::InvalidKey(InvalidKey::Unreadable | InvalidKey::Packed)) => Ok(()),
        Ok(Some(_)) | Err(_) => Err(Refusal::TwoKeys),
    }
}

/// What was seen of a body so far.
struct Look {
    bytes_left: usize,
    /// Whether more was announced than may come.
    is_too_large: bool,
    /// Whether only what is unpacked can tell anything.
    is_packed: bool,
    /// The first bytes behind the blanks, as many as tell what it is.
    first: Vec<u8>,
}

/// Number of bytes that tell the encoding of a text.
const FIRST_BYTES: usize = 4;

impl Look {
    fn at(parts: &Parts, bytes_max: usize) -> Self {
        Self {
            bytes_left: bytes_max,
            is_too_large: announces_more_than(bytes_max, &parts.headers),
            is_packed: parts.headers.contains_key(CONTENT_ENCODING),
            first: Vec::with_capacity(FIRST_BYTES),
        }
    }

    /// Whether to read on behind `data`.
    fn goes_on(&mut self, data: &Bytes) -> bool {
        let is_begun = !self.first.is_empty();
        let rest =
            data.iter().copied().skip_while(|byte| !is_begun && JsonPointer::is_blank(*byte));
        self.first.extend(rest.take(FIRST_BYTES - self.first.len()));
        let fits = self.bytes_left.checked_sub(data.len());
        self.bytes_left = fits.unwrap_or(0);
        let is_known = self.is_packed || !self.first.is_empty();
        fits.is_some() && self.may_be_json() && !(self.is_too_large && is_known)
    }

    /// Whether it can be JSON with something in it, as far as it was seen.
    fn may_be_json(&self) -> bool {
        self.is_packed || JsonPointer::may_be_in(&self.first)
    }
}
