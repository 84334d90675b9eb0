//! Records as bytes: versioned, checksummed, and read back whole or not at all.
//!
//! A frame is `"SS"`, version, kind, fields, CRC-32 (little endian) of all before it. A field is
//! a tag, a length (u32, little endian) and its bytes; numbers are big endian. Golden files hold
//! each version's bytes, so that a build that can no longer read old ones does not pass.
//! A frame that is not understood is an error, never an empty record: whoever cannot read what
//! was done must not do it again.

mod compact;
mod frame;

use std::time::Duration;

use bytes::Bytes;
use http::Method;

pub use self::compact::{compact, expand};

use self::frame::{Fields, Kind, Writer, tag};
use crate::{
    Answer, AttemptId, Birth, Checkpoint, Fence, Fingerprint, Keepsake, KeptRequest, Label, Lease,
    Note, Phase, Record, RecordId, Recover, Release, State, StoreError, StoreErrorKind, TenantTag,
    Timestamp,
};

/// The newest version that this build reads and writes. A frame is written in the oldest version that
/// can hold it, so that an older build can still read what it knows.
///
/// Version 2: a keepsake may have a line and a note.
pub const VERSION: u8 = 2;
/// The oldest version that this build reads.
const FIRST_VERSION: u8 = 1;

/// Why bytes are not a frame of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Too short, or not ours at all.
    #[error("not a frame")]
    NotAFrame,
    /// Its checksum does not fit: some bit changed since it was written.
    #[error("the checksum does not fit")]
    Checksum,
    /// Written by a version this build does not know.
    #[error("written in format {found}, this build reads formats 1 to {VERSION}")]
    Version {
        /// The version found.
        found: u8,
    },
    /// A frame of another kind, or about another record.
    #[error("the frame is about something else")]
    Misplaced,
    /// A field is missing, unknown or out of range.
    #[error("field {tag} is missing, unknown or out of range")]
    Field {
        /// Its tag.
        tag: u8,
    },
}

impl From<WireError> for StoreError {
    fn from(error: WireError) -> Self {
        Self::new(StoreErrorKind::Damaged, "a stored record is damaged").caused_by(error)
    }
}

/// A record, whole.
pub fn encode_record(record: &Record) -> Vec<u8> {
    let mut writer = head(record);
    if let State::Completed { answer, .. } = &record.state {
        writer.field(tag::ANSWER, &encode_answer(&record.id, answer));
    }
    if let Some(checkpoint) = &record.checkpoint {
        writer.field(tag::CHECKPOINT, &encode_checkpoint(&record.id, checkpoint));
    }
    if let Some(keepsake) = &record.keepsake {
        writer.field(tag::KEEPSAKE, &encode_keepsake(&record.id, keepsake));
    }
    writer.finish()
}

/// The checksum of a record without its answer, its checkpoint and its keepsake, for stores that keep
/// it in columns and those apart.
pub fn head_checksum(record: &Record) -> u32 {
    crc32fast::hash(&head(record).bytes)
}

/// Reads what [`encode_record`] wrote.
pub fn decode_record(bytes: &[u8]) -> Result<Record, WireError> {
    let mut fields = Fields::open(bytes, Kind::Record)?;
    let id = RecordId::from_bytes(fields.array(tag::ID)?);
    let fingerprint = Fingerprint::from_bytes(fields.array(tag::FINGERPRINT)?);
    let state_code = fields.u8(tag::STATE)?;
    let at = fields.timestamp(tag::STATE_AT)?;
    let fence = Fence::from_number(fields.u64(tag::FENCE)?);
    let attempt = fields.u32(tag::ATTEMPT)?;
    let attempt_id = AttemptId::from_bytes(fields.array(tag::ATTEMPT_ID)?);
    let birth = Birth::from_bytes(fields.array(tag::BIRTH)?);
    let recover = fields.u8(tag::RECOVER)?;
    let recover = recover_from_code(recover).ok_or(WireError::Field { tag: tag::RECOVER })?;
    let created_at = fields.timestamp(tag::CREATED_AT)?;
    let expires_at = fields.timestamp(tag::EXPIRES_AT)?;
    let retention = Duration::from_millis(fields.u64(tag::RETENTION)?);
    let remember = Duration::from_millis(fields.u64(tag::REMEMBER)?);
    let label = Label {
        tenant: TenantTag::from_bytes(fields.array(tag::TENANT)?),
        tenant_name: fields.optional_text(tag::TENANT_NAME)?.map(Into::into),
        key: fields.key()?,
        route: fields.text(tag::ROUTE)?.into(),
    };
    let answer = match fields.optional(tag::ANSWER) {
        Some(frame) => Some(decode_answer(&id, frame)?),
        None => None,
    };
    let checkpoint = match fields.optional(tag::CHECKPOINT) {
        Some(frame) => Some(decode_checkpoint(&id, frame)?),
        None => None,
    };
    let keepsake = match fields.optional(tag::KEEPSAKE) {
        Some(frame) => Some(Box::new(decode_keepsake(&id, frame)?)),
        None => None,
    };
    fields.end()?;
    let state =
        state_from_code(state_code, at, answer).ok_or(WireError::Field { tag: tag::STATE })?;
    Ok(Record {
        id,
        fingerprint,
        state,
        fence,
        attempt,
        attempt_id,
        birth,
        recover,
        checkpoint,
        created_at,
        expires_at,
        retention,
        remember,
        label,
        keepsake,
    })
}

/// The number that stands for a state, and the moment that belongs to it.
pub fn state_code(state: &State) -> (u8, Timestamp) {
    match state {
        State::Claimed { lease_until } => (1, *lease_until),
        State::Completed { at, .. } => (2, *at),
        State::Failed => (3, Timestamp::default()),
        State::Held { since } => (4, *since),
        State::Tombstone => (5, Timestamp::default()),
    }
}

/// The state behind [`state_code`]'s number; a completed one needs its answer.
pub fn state_from_code(code: u8, at: Timestamp, answer: Option<Answer>) -> Option<State> {
    match (code, answer) {
        (1, None) => Some(State::Claimed { lease_until: at }),
        (2, Some(answer)) => Some(State::Completed { at, answer }),
        (3, None) => Some(State::Failed),
        (4, None) => Some(State::Held { since: at }),
        (5, None) => Some(State::Tombstone),
        _ => None,
    }
}

/// The number that stands for a [`Recover`].
pub fn recover_code(recover: Recover) -> u8 {
    match recover {
        Recover::Resume => 1,
        Recover::Hold => 2,
        Recover::Auto => 3,
    }
}

/// The [`Recover`] behind [`recover_code`]'s number.
pub fn recover_from_code(code: u8) -> Option<Recover> {
    [Recover::Resume, Recover::Hold, Recover::Auto]
        .into_iter()
        .find(|recover| recover_code(*recover) == code)
}

/// An answer, bound to its record: it cannot be served for another.
pub fn encode_answer(id: &RecordId, answer: &Answer) -> Vec<u8> {
    let mut writer = Writer::new(Kind::Answer);
    writer.field(tag::ID, id.as_bytes());
    writer.answer(answer);
    writer.finish()
}

/// Reads what [`encode_answer`] wrote for this record.
pub fn decode_answer(id: &RecordId, bytes: &[u8]) -> Result<Answer, WireError> {
    let mut fields = Fields::open(bytes, Kind::Answer)?;
    fields.about(id)?;
    let answer = fields.answer()?;
    fields.end()?;
    Ok(answer)
}

/// An answer for stores whose frames say themselves whose it is.
pub fn encode_bare_answer(answer: &Answer) -> Vec<u8> {
    let mut writer = Writer::new(Kind::BareAnswer);
    writer.answer(answer);
    writer.finish()
}

/// Reads what [`encode_bare_answer`] wrote.
pub fn decode_bare_answer(bytes: &[u8]) -> Result<Answer, WireError> {
    let mut fields = Fields::open(bytes, Kind::BareAnswer)?;
    let answer = fields.answer()?;
    fields.end()?;
    Ok(answer)
}

/// A checkpoint, bound to its record.
pub fn encode_checkpoint(id: &RecordId, checkpoint: &Checkpoint) -> Vec<u8> {
    let mut writer = Writer::new(Kind::Checkpoint);
    writer.field(tag::ID, id.as_bytes());
    writer.field(tag::RECOVERY_POINT, checkpoint.recovery_point.as_bytes());
    let tag = if checkpoint.is_sealed { tag::SEALED } else { tag::DATA };
    writer.field(tag, &checkpoint.data);
    writer.finish()
}

/// Reads what [`encode_checkpoint`] wrote for this record.
pub fn decode_checkpoint(id: &RecordId, bytes: &[u8]) -> Result<Checkpoint, WireError> {
    let mut fields = Fields::open(bytes, Kind::Checkpoint)?;
    fields.about(id)?;
    let recovery_point = fields.text(tag::RECOVERY_POINT)?.to_owned();
    let sealed = fields.optional(tag::SEALED);
    let data = match sealed {
        Some(sealed) => Bytes::copy_from_slice(sealed),
        None => Bytes::copy_from_slice(fields.take(tag::DATA)?),
    };
    fields.end()?;
    Ok(Checkpoint { recovery_point, data, is_sealed: sealed.is_some() })
}

/// What is kept of a request, bound to its record.
pub fn encode_keepsake(id: &RecordId, keepsake: &Keepsake) -> Vec<u8> {
    let Keepsake { line, note, .. } = keepsake;
    let version = if line.is_some() || note.is_some() { 2 } else { FIRST_VERSION };
    let mut writer = Writer::in_version(version, Kind::Keepsake);
    writer.field(tag::ID, id.as_bytes());
    if let Some(outline) = &keepsake.outline {
        writer.field(tag::OUTLINE, outline);
    }
    if let Some(request) = &keepsake.request {
        writer.field(tag::REQUEST, request);
    }
    if let Some(line) = line {
        writer.field(tag::LINE, line.as_bytes());
    }
    if let Some(note) = note {
        writer.field(tag::NOTE_BY, note.by.as_bytes());
        if let Some(reason) = &note.reason {
            writer.field(tag::NOTE_REASON, reason.as_bytes());
        }
        writer.field(tag::NOTE_AT, &note.at.as_millis().to_be_bytes());
    }
    writer.finish()
}

/// Reads what [`encode_keepsake`] wrote for this record.
pub fn decode_keepsake(id: &RecordId, bytes: &[u8]) -> Result<Keepsake, WireError> {
    let mut fields = Fields::open(bytes, Kind::Keepsake)?;
    fields.about(id)?;
    let outline = fields.optional(tag::OUTLINE).map(Bytes::copy_from_slice);
    let request = fields.optional(tag::REQUEST).map(Bytes::copy_from_slice);
    let line = fields.optional_text(tag::LINE)?.map(Into::into);
    let note = match fields.optional_text(tag::NOTE_BY)? {
        Some(by) => {
            let reason = fields.optional_text(tag::NOTE_REASON)?.map(Into::into);
            let at = fields.timestamp(tag::NOTE_AT)?;
            Some(Box::new(Note { by: by.into(), reason, at }))
        }
        None => None,
    };
    fields.end()?;
    Ok(Keepsake { outline, request, line, note })
}

/// A request that is kept.
pub fn encode_request(request: &KeptRequest) -> Vec<u8> {
    let mut writer = Writer::new(Kind::Request);
    writer.field(tag::METHOD, request.method.as_str().as_bytes());
    writer.field(tag::TARGET, request.target.as_bytes());
    writer.headers(tag::HEADER, &request.headers);
    writer.field(tag::BODY, &request.body);
    writer.finish()
}

/// Reads what [`encode_request`] wrote.
pub fn decode_request(bytes: &[u8]) -> Result<KeptRequest, WireError> {
    let mut fields = Fields::open(bytes, Kind::Request)?;
    let method = Method::from_bytes(fields.take(tag::METHOD)?);
    let request = KeptRequest {
        method: method.map_err(|_| WireError::Field { tag: tag::METHOD })?,
        target: fields.text(tag::TARGET)?.to_owned(),
        headers: fields.headers(tag::HEADER)?,
        body: Bytes::copy_from_slice(fields.take(tag::BODY)?),
    };
    fields.end()?;
    Ok(request)
}

/// A finished phase.
pub fn encode_phase(phase: &Phase) -> Vec<u8> {
    let mut writer = Writer::new(Kind::Phase);
    writer.field(tag::ID, phase.id.as_bytes());
    writer.field(tag::BIRTH, phase.birth.as_bytes());
    writer.field(tag::ORDINAL, &phase.ordinal.to_be_bytes());
    writer.field(tag::NAME, phase.name.as_bytes());
    writer.field(tag::DATA, &phase.output);
    writer.finish()
}

/// Reads what [`encode_phase`] wrote.
pub fn decode_phase(bytes: &[u8]) -> Result<Phase, WireError> {
    let mut fields = Fields::open(bytes, Kind::Phase)?;
    let phase = Phase {
        id: RecordId::from_bytes(fields.array(tag::ID)?),
        birth: Birth::from_bytes(fields.array(tag::BIRTH)?),
        ordinal: fields.u32(tag::ORDINAL)?,
        name: fields.text(tag::NAME)?.to_owned(),
        output: Bytes::copy_from_slice(fields.take(tag::DATA)?),
    };
    fields.end()?;
    Ok(phase)
}

/// An answer that could not be recorded yet, with the lease that may still record it.
pub fn encode_landing(lease: &Lease, answer: &Answer) -> Vec<u8> {
    let mut writer = Writer::new(Kind::Landing);
    writer.lease(lease);
    writer.answer(answer);
    writer.finish()
}

/// Reads what [`encode_landing`] wrote.
pub fn decode_landing(bytes: &[u8]) -> Result<(Lease, Answer), WireError> {
    let mut fields = Fields::open(bytes, Kind::Landing)?;
    let lease = fields.lease()?;
    let answer = fields.answer()?;
    fields.end()?;
    Ok((lease, answer))
}

/// A release that the store could not take yet, with the lease that it ends.
pub fn encode_release(lease: &Lease, release: Release) -> Vec<u8> {
    let mut writer = Writer::new(Kind::Release);
    writer.lease(lease);
    writer.field(tag::RELEASE, &[release_code(release)]);
    writer.finish()
}

/// Reads what [`encode_release`] wrote.
pub fn decode_release(bytes: &[u8]) -> Result<(Lease, Release), WireError> {
    let mut fields = Fields::open(bytes, Kind::Release)?;
    let lease = fields.lease()?;
    let release = fields.u8(tag::RELEASE)?;
    let release = release_from_code(release).ok_or(WireError::Field { tag: tag::RELEASE })?;
    fields.end()?;
    Ok((lease, release))
}

/// A cancellation that the store could not take yet: the record, and the claim that never began.
pub fn encode_cancellation(id: &RecordId, attempt_id: AttemptId) -> Vec<u8> {
    let mut writer = Writer::new(Kind::Cancellation);
    writer.field(tag::ID, id.as_bytes());
    writer.field(tag::ATTEMPT_ID, attempt_id.as_bytes());
    writer.finish()
}

/// Reads what [`encode_cancellation`] wrote.
pub fn decode_cancellation(bytes: &[u8]) -> Result<(RecordId, AttemptId), WireError> {
    let mut fields = Fields::open(bytes, Kind::Cancellation)?;
    let id = RecordId::from_bytes(fields.array(tag::ID)?);
    let attempt_id = AttemptId::from_bytes(fields.array(tag::ATTEMPT_ID)?);
    fields.end()?;
    Ok((id, attempt_id))
}

fn release_code(release: Release) -> u8 {
    match release {
        Release::NeverRan => 1,
        Release::Retry => 2,
        Release::Forget => 3,
        Release::Crashed => 4,
        Release::Unheard => 5,
        Release::Postponed => 6,
        Release::PostponedUnrun => 7,
        Release::Hold => 8,
    }
}

fn release_from_code(code: u8) -> Option<Release> {
    Release::ALL.into_iter().find(|release| release_code(*release) == code)
}

fn head(record: &Record) -> Writer {
    let (state, at) = state_code(&record.state);
    let label = &record.label;
    let mut writer = Writer::new(Kind::Record);
    writer.field(tag::ID, record.id.as_bytes());
    writer.field(tag::FINGERPRINT, &record.fingerprint.to_bytes());
    writer.field(tag::STATE, &[state]);
    writer.field(tag::STATE_AT, &at.as_millis().to_be_bytes());
    writer.field(tag::FENCE, &record.fence.number().to_be_bytes());
    writer.field(tag::ATTEMPT, &record.attempt.to_be_bytes());
    writer.field(tag::ATTEMPT_ID, record.attempt_id.as_bytes());
    writer.field(tag::BIRTH, record.birth.as_bytes());
    writer.field(tag::RECOVER, &[recover_code(record.recover)]);
    writer.field(tag::CREATED_AT, &record.created_at.as_millis().to_be_bytes());
    writer.field(tag::EXPIRES_AT, &record.expires_at.as_millis().to_be_bytes());
    writer.field(tag::RETENTION, &millis(record.retention).to_be_bytes());
    writer.field(tag::REMEMBER, &millis(record.remember).to_be_bytes());
    writer.field(tag::TENANT, label.tenant.as_bytes());
    if let Some(name) = &label.tenant_name {
        writer.field(tag::TENANT_NAME, name.as_bytes());
    }
    writer.field(tag::KEY, label.key.as_str().as_bytes());
    writer.field(tag::ROUTE, label.route.as_bytes());
    writer
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
