//! Step 1: is there a key, and can it be read?

use http::Request;
use http::request::Parts;
use selfsame_core::Key;

use crate::policy::{KeyMode, Policy};
use crate::reject::Refusal;

pub(crate) struct Keyed<B> {
    pub(crate) key: Key,
    pub(crate) request: Apart<B>,
}

/// A request taken apart.
pub(crate) struct Apart<B> {
    /// Boxed, because they are large and handed on from step to step.
    pub(crate) parts: Box<Parts>,
    pub(crate) body: B,
}

impl<B> Apart<B> {
    pub(crate) fn whole(self) -> Request<B> {
        Request::from_parts(*self.parts, self.body)
    }
}

pub(crate) enum Parsed<B> {
    Keyed(Keyed<B>),
    Unkeyed(Request<B>),
    Refused(Refusal, Request<B>),
}

pub(crate) fn parse<B>(request: Request<B>, policy: &Policy) -> Parsed<B> {
    if policy.key == KeyMode::Off || !policy.methods.contains(request.method()) {
        return Parsed::Unkeyed(request);
    }
    let headers = request.headers();
    let mut values = policy.key_headers.iter().flat_map(|name| headers.get_all(name));
    let key = match (values.next(), values.next()) {
        (Some(_), Some(_)) => return Parsed::Refused(Refusal::TwoKeys, request),
        (Some(value), None) if policy.strict_keys => Key::parse_strict(value.as_bytes()),
        (Some(value), None) => Key::parse(value.as_bytes()),
        (None, _) if policy.key == KeyMode::Required => {
            let header = policy.key_headers.first().map(ToString::to_string).unwrap_or_default();
            return Parsed::Refused(Refusal::MissingKey { header }, request);
        }
        (None, _) => return Parsed::Unkeyed(request),
    };
    match key {
        Ok(key) => {
            let (parts, body) = request.into_parts();
            Parsed::Keyed(Keyed { key, request: Apart { parts: Box::new(parts), body } })
        }
        Err(invalid) => Parsed::Refused(Refusal::InvalidKey(invalid), request),
    }
}
