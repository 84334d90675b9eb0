//! What the durable stores share.

#[cfg(any(feature = "postgres", feature = "redis"))]
use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

#[cfg(any(feature = "postgres", feature = "redis"))]
use selfsame_core::Ask;
#[cfg(any(feature = "embedded", feature = "postgres"))]
use selfsame_core::{Answer, AnswerBody};
use selfsame_core::{Count, RecordId, StoreError, StoreErrorKind};

/// Longest time that a call may take; a longer time-out becomes this.
pub(super) const TIME_OUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

// The numbers of `wire::state_code`.
pub(super) const CLAIMED: u8 = 1;
pub(super) const COMPLETED: u8 = 2;
pub(super) const FAILED: u8 = 3;
pub(super) const HELD: u8 = 4;
pub(super) const TOMBSTONE: u8 = 5;

/// What a completed record shows while its real answer lies elsewhere.
#[cfg(any(feature = "embedded", feature = "postgres"))]
pub(super) fn stand_in() -> Answer {
    Answer {
        status: http::StatusCode::OK,
        headers: http::HeaderMap::new(),
        body: AnswerBody::NotKept,
        trailers: http::HeaderMap::new(),
    }
}

/// The ask with no time past ten thousand years, which others than we could not add to another.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) fn fit(ask: &Ask) -> Cow<'_, Ask> {
    const LONGEST: Duration = Duration::from_secs(10_000 * 365 * 24 * 60 * 60);
    if [ask.lease, ask.retention, ask.remember].iter().all(|time| *time <= LONGEST) {
        return Cow::Borrowed(ask);
    }
    let mut fitting = ask.clone();
    for time in [&mut fitting.lease, &mut fitting.retention, &mut fitting.remember] {
        *time = LONGEST.min(*time);
    }
    Cow::Owned(fitting)
}

/// So many records have the state that `wire::state_code` numbers so.
pub(super) fn count_state(count: &mut Count, state: u8, records: u64) {
    match state {
        CLAIMED => count.claimed = records,
        COMPLETED => count.completed = records,
        FAILED => count.failed = records,
        HELD => count.held = records,
        TOMBSTONE => count.tombstone = records,
        // A damaged state counts nowhere; whoever asks for its record hears of it.
        _ => {}
    }
}

/// Raises the alarm over a record that cannot be trusted.
pub(super) fn damaged(id: &RecordId, cause: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    let cause = cause.into();
    tracing::error!(
        record = id.short(),
        %cause,
        "a stored record is damaged; it is neither served nor run again"
    );
    StoreError::new(StoreErrorKind::Damaged, "the stored record is damaged").caused_by(cause)
}

/// The id that is written so, whole.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) fn id_from_hex(hex: &[u8]) -> Option<RecordId> {
    let mut bytes = [0; RecordId::LEN];
    if hex.len() != 2 * RecordId::LEN {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(RecordId::from_bytes(bytes))
}

/// The least and the greatest id that begin so in hexadecimal.
pub(super) fn id_range(prefix: &str) -> Option<([u8; RecordId::LEN], [u8; RecordId::LEN])> {
    let (mut low, mut high) = ([0; RecordId::LEN], [0xff; RecordId::LEN]);
    for (at, digit) in prefix.chars().enumerate() {
        let digit = u8::try_from(digit.to_digit(16)?).ok()?;
        let (digit, rest) = if at % 2 == 0 { (digit << 4, 0x0f) } else { (digit, 0xf0) };
        *low.get_mut(at / 2)? |= digit;
        high[at / 2] = high[at / 2] & rest | digit;
    }
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_may_end_within_a_byte() {
        let (low, high) = id_range("aBc").expect("hexadecimal");
        assert_eq!((&low[..3], &high[..3]), (&[0xab, 0xc0, 0][..], &[0xab, 0xcf, 0xff][..]));
    }

    #[test]
    fn what_is_no_prefix_of_an_id_finds_nothing() {
        assert_eq!(id_range("xyz"), None);
        assert_eq!(id_range("é"), None);
        assert_eq!(id_range(&"0".repeat(65)), None);
        assert!(id_range(&"0".repeat(64)).is_some());
    }
}
