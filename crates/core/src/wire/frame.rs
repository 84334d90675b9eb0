//! A frame's bytes: written field by field, read back in the same order.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{FIRST_VERSION, VERSION, WireError, millis};
use crate::{Answer, AnswerBody, AttemptId, Fence, Key, Lease, RecordId, Timestamp};

pub(super) const MAGIC: &[u8; 2] = b"SS";
pub(super) const HEAD_LEN: usize = 4;
pub(super) const SUM_LEN: usize = 4;

/// What a frame is about.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Record = 1,
    Answer = 2,
    Checkpoint = 3,
    Landing = 4,
    Phase = 5,
    BareAnswer = 6,
    Keepsake = 7,
    Request = 8,
    Release = 9,
    Cancellation = 10,
}

pub(super) mod tag {
    pub const ID: u8 = 1;
    pub const FINGERPRINT: u8 = 2;
    pub const STATE: u8 = 3;
    pub const STATE_AT: u8 = 4;
    pub const FENCE: u8 = 5;
    pub const ATTEMPT: u8 = 6;
    pub const ATTEMPT_ID: u8 = 7;
    pub const RECOVER: u8 = 8;
    pub const CREATED_AT: u8 = 9;
    pub const EXPIRES_AT: u8 = 10;
    pub const RETENTION: u8 = 11;
    pub const TENANT: u8 = 12;
    pub const TENANT_NAME: u8 = 13;
    pub const KEY: u8 = 14;
    pub const ROUTE: u8 = 15;
    pub const RECOVERY_POINT: u8 = 16;
    pub const DATA: u8 = 17;
    pub const ANSWER: u8 = 18;
    pub const CHECKPOINT: u8 = 19;
    pub const STATUS: u8 = 20;
    pub const HEADER: u8 = 21;
    pub const BODY: u8 = 22;
    pub const TRAILER: u8 = 23;
    pub const LEASE: u8 = 24;
    pub const BIRTH: u8 = 25;
    pub const REMEMBER: u8 = 26;
    pub const ORDINAL: u8 = 27;
    pub const NAME: u8 = 28;
    pub const KEEPSAKE: u8 = 29;
    pub const OUTLINE: u8 = 30;
    pub const REQUEST: u8 = 31;
    pub const METHOD: u8 = 32;
    pub const TARGET: u8 = 33;
    pub const RELEASE: u8 = 34;
    pub const SEALED: u8 = 40;
    pub const LINE: u8 = 41;
    pub const NOTE_BY: u8 = 42;
    pub const NOTE_REASON: u8 = 43;
    pub const NOTE_AT: u8 = 44;
}

/// A frame that is being written.
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn new(kind: Kind) -> Self {
        Self::in_version(FIRST_VERSION, kind)
    }

    pub(super) fn in_version(version: u8, kind: Kind) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[version, kind as u8]);
        Self { bytes }
    }

    pub(super) fn field(&mut self, tag: u8, value: &[u8]) {
        let len = u32::try_from(value.len()).expect("bodies are capped far below 4 GiB");
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn lease(&mut self, lease: &Lease) {
        self.field(tag::ID, lease.id.as_bytes());
        self.field(tag::FENCE, &lease.fence.number().to_be_bytes());
        self.field(tag::ATTEMPT_ID, lease.attempt_id.as_bytes());
        self.field(tag::LEASE, &millis(lease.length).to_be_bytes());
    }

    pub(super) fn answer(&mut self, answer: &Answer) {
        self.field(tag::STATUS, &answer.status.as_u16().to_be_bytes());
        self.headers(tag::HEADER, &answer.headers);
        match &answer.body {
            AnswerBody::Kept(body) => self.field(tag::BODY, body),
            AnswerBody::Sealed(sealed) => self.field(tag::SEALED, sealed),
            AnswerBody::NotKept => {}
        }
        self.headers(tag::TRAILER, &answer.trailers);
    }

    pub(super) fn headers(&mut self, tag: u8, headers: &HeaderMap) {
        for (name, value) in headers {
            let name = name.as_str().as_bytes();
            let name_len = u16::try_from(name.len()).expect("header names are under 64 KiB");
            let pair = [&name_len.to_be_bytes()[..], name, value.as_bytes()].concat();
            self.field(tag, &pair);
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let sum = crc32fast::hash(&self.bytes);
        self.bytes.extend_from_slice(&sum.to_le_bytes());
        self.bytes
    }
}

/// The fields of a frame, taken in the order they were written.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn open(bytes: &'a [u8], kind: Kind) -> Result<Self, WireError> {
        if bytes.len() < HEAD_LEN + SUM_LEN || &bytes[..2] != MAGIC {
            return Err(WireError::NotAFrame);
        }
        let (frame, sum) = bytes.split_at(bytes.len() - SUM_LEN);
        if crc32fast::hash(frame).to_le_bytes() != sum {
            return Err(WireError::Checksum);
        }
        if !(FIRST_VERSION..=VERSION).contains(&frame[2]) {
            return Err(WireError::Version { found: frame[2] });
        }
        if frame[3] != kind as u8 {
            return Err(WireError::Misplaced);
        }
        Ok(Self { rest: &frame[HEAD_LEN..] })
    }

    pub(super) fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (&found, rest) = self.rest.split_first()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        (found == tag).then(|| {
            self.rest = rest;
            value
        })
    }

    pub(super) fn take(&mut self, tag: u8) -> Result<&'a [u8], WireError> {
        self.optional(tag).ok_or(WireError::Field { tag })
    }

    pub(super) fn array<const N: usize>(&mut self, tag: u8) -> Result<[u8; N], WireError> {
        self.take(tag)?.try_into().map_err(|_| WireError::Field { tag })
    }

    pub(super) fn u8(&mut self, tag: u8) -> Result<u8, WireError> {
        self.array(tag).map(u8::from_be_bytes)
    }

    pub(super) fn u32(&mut self, tag: u8) -> Result<u32, WireError> {
        self.array(tag).map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self, tag: u8) -> Result<u64, WireError> {
        self.array(tag).map(u64::from_be_bytes)
    }

    pub(super) fn timestamp(&mut self, tag: u8) -> Result<Timestamp, WireError> {
        self.u64(tag).map(Timestamp::from_millis)
    }

    pub(super) fn text(&mut self, tag: u8) -> Result<&'a str, WireError> {
        self.optional_text(tag)?.ok_or(WireError::Field { tag })
    }

    pub(super) fn optional_text(&mut self, tag: u8) -> Result<Option<&'a str>, WireError> {
        let text = self.optional(tag).map(std::str::from_utf8).transpose();
        text.map_err(|_| WireError::Field { tag })
    }

    pub(super) fn key(&mut self) -> Result<Key, WireError> {
        let text = self.text(tag::KEY)?;
        Key::from_stored(text).ok_or(WireError::Field { tag: tag::KEY })
    }

    pub(super) fn about(&mut self, id: &RecordId) -> Result<(), WireError> {
        match self.take(tag::ID)? == id.as_bytes() {
            true => Ok(()),
            false => Err(WireError::Misplaced),
        }
    }

    pub(super) fn lease(&mut self) -> Result<Lease, WireError> {
        Ok(Lease {
            id: RecordId::from_bytes(self.array(tag::ID)?),
            fence: Fence::from_number(self.u64(tag::FENCE)?),
            attempt_id: AttemptId::from_bytes(self.array(tag::ATTEMPT_ID)?),
            length: Duration::from_millis(self.u64(tag::LEASE)?),
        })
    }

    pub(super) fn answer(&mut self) -> Result<Answer, WireError> {
        let status = self.array(tag::STATUS).map(u16::from_be_bytes)?;
        let status =
            StatusCode::from_u16(status).map_err(|_| WireError::Field { tag: tag::STATUS })?;
        let headers = self.headers(tag::HEADER)?;
        let body = match (self.optional(tag::BODY), self.optional(tag::SEALED)) {
            (Some(body), _) => AnswerBody::Kept(Bytes::copy_from_slice(body)),
            (None, Some(sealed)) => AnswerBody::Sealed(Bytes::copy_from_slice(sealed)),
            (None, None) => AnswerBody::NotKept,
        };
        let trailers = self.headers(tag::TRAILER)?;
        Ok(Answer { status, headers, body, trailers })
    }

    pub(super) fn headers(&mut self, tag: u8) -> Result<HeaderMap, WireError> {
        let mut headers = HeaderMap::new();
        while let Some(pair) = self.optional(tag) {
            let (name, value) = split_header(pair).ok_or(WireError::Field { tag })?;
            headers.append(name, value);
        }
        Ok(headers)
    }

    pub(super) fn end(self) -> Result<(), WireError> {
        match self.rest.first() {
            None => Ok(()),
            Some(&tag) => Err(WireError::Field { tag }),
        }
    }
}

fn split_header(pair: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let (name_len, rest) = pair.split_first_chunk::<2>()?;
    let (name, value) = rest.split_at_checked(u16::from_be_bytes(*name_len) as usize)?;
    Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
}
