//! Step 1: is there a key, and can it be read?

use http::request::Parts;
use http::{HeaderMap, Method, Request};
use selfsame_core::{Clock, Key};

use crate::grpc;
use crate::policy::{KeyMode, Policy};
use crate::reject::Refusal;
use crate::stores::SystemClock;

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
    /// Its headers have no key, but its body may have one.
    Sought(Apart<B>),
    Unkeyed(Request<B>),
    Refused(Refusal, Request<B>),
}

/// Whether a request is looked at for its key.
pub(crate) fn is_looked_at(method: &Method, policy: &Policy) -> bool {
    policy.key != KeyMode::Off && policy.methods.contains(method)
}

pub(crate) fn parse<B>(request: Request<B>, policy: &Policy) -> Parsed<B> {
    if !is_looked_at(request.method(), policy) {
        return Parsed::Unkeyed(request);
    }
    let apart = |request: Request<B>| {
        let (parts, body) = request.into_parts();
        Apart { parts: Box::new(parts), body }
    };
    let key = match key_in(request.headers(), policy) {
        Some(key) => key.and_then(|key| fit(key, policy)),
        // A stream of messages is not JSON, and its first one may wait for an answer to its head.
        None if policy.key_pointer.is_some() && !grpc::is_call(request.headers()) => {
            return Parsed::Sought(apart(request));
        }
        None => match missing(policy) {
            Some(refusal) => return Parsed::Refused(refusal, request),
            None => return Parsed::Unkeyed(request),
        },
    };
    match key {
        Ok(key) => Parsed::Keyed(Keyed { key, request: apart(request) }),
        Err(refusal) => Parsed::Refused(refusal, request),
    }
}

/// The key in the headers, if there is one.
pub(crate) fn key_in(headers: &HeaderMap, policy: &Policy) -> Option<Result<Key, Refusal>> {
    let mut values = policy.key_headers.iter().flat_map(|name| headers.get_all(name));
    let value = values.next()?;
    if values.next().is_some() {
        return Some(Err(Refusal::TwoKeys));
    }
    let key = match policy.strict_keys {
        true => Key::parse_strict(value.as_bytes()),
        false => Key::parse(value.as_bytes()),
    };
    Some(key.map_err(Refusal::InvalidKey))
}

/// The key, if it is one that the route takes.
pub(super) fn fit(key: Key, policy: &Policy) -> Result<Key, Refusal> {
    // Wall time, read anew each time: it is compared with that of the client's own clock.
    let checked = policy.key_rules.check(&key, || SystemClock::new().now());
    checked.map(|()| key).map_err(Refusal::InvalidKey)
}

/// Why a request without a key is refused, if it is.
pub(crate) fn missing(policy: &Policy) -> Option<Refusal> {
    if policy.key != KeyMode::Required {
        return None;
    }
    let header = policy.key_headers.first().map(ToString::to_string).unwrap_or_default();
    let place = match &policy.key_pointer {
        None => format!("the header {header}"),
        Some(pointer) => format!("the header {header}, or a JSON body with {}", pointer.as_str()),
    };
    Some(Refusal::MissingKey { place })
}
