//! [`KeptTime`]: the store's time as the log keeps it, beside what other clocks showed then.

use std::time::Duration;

use selfsame_core::Timestamp;

use super::machine_clocks::{BootId, SinceBoot};

/// The store's time at a moment, and other clocks at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeptTime {
    pub(super) store: Timestamp,
    pub(super) wall: Timestamp,
    /// How far the store's time is behind true time, and is to catch up.
    pub(super) behind: Duration,
    /// Absent where the system does not tell.
    pub(super) since_boot: Option<SinceBoot>,
}

/// Length of a kept time.
pub(super) const KEPT_TIME_LEN: usize = 48;

const ID_AT: usize = 24;
const ELAPSED_AT: usize = 40;

impl KeptTime {
    pub(super) fn encode(&self) -> [u8; KEPT_TIME_LEN] {
        let mut bytes = [0; KEPT_TIME_LEN];
        let behind = millis(self.behind);
        let numbers = [self.store.as_millis(), self.wall.as_millis(), behind];
        for (part, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
            *part = number.to_le_bytes();
        }
        if let Some(SinceBoot { boot, elapsed }) = self.since_boot {
            bytes[ID_AT..ELAPSED_AT].copy_from_slice(&boot.0);
            bytes[ELAPSED_AT..].copy_from_slice(&millis(elapsed).to_le_bytes());
        }
        bytes
    }

    /// Reads what [`KeptTime::encode`] wrote.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; KEPT_TIME_LEN] = bytes.try_into().ok()?;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let boot = BootId(bytes[ID_AT..ELAPSED_AT].try_into().expect("16 bytes"));
        let elapsed = Duration::from_millis(number(ELAPSED_AT));
        Some(Self {
            store: Timestamp::from_millis(number(0)),
            wall: Timestamp::from_millis(number(8)),
            behind: Duration::from_millis(number(16)),
            since_boot: (boot.0 != [0; 16]).then_some(SinceBoot { boot, elapsed }),
        })
    }

    /// How far the wall clock is ahead of the store's time.
    pub(super) fn offset_ms(&self) -> i64 {
        difference_ms(self.wall, self.store)
    }
}

/// Milliseconds from one time to another, which may be before it.
pub(super) fn difference_ms(to: Timestamp, from: Timestamp) -> i64 {
    let millis = |time: Timestamp| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    millis(to).saturating_sub(millis(from))
}

/// The time that is so many milliseconds later, or earlier.
pub(super) fn shifted(time: Timestamp, by_ms: i64) -> Timestamp {
    Timestamp::from_millis(time.as_millis().saturating_add_signed(by_ms))
}

pub(super) fn signed_millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_time_is_read_as_it_was_written() {
        let since_boot = SinceBoot { boot: BootId([3; 16]), elapsed: Duration::from_millis(4) };
        for since_boot in [Some(since_boot), None] {
            let kept = KeptTime {
                store: Timestamp::from_millis(1 << 41),
                wall: Timestamp::from_millis(2),
                behind: Duration::from_millis(5),
                since_boot,
            };
            assert_eq!(KeptTime::decode(&kept.encode()), Some(kept));
            assert_eq!(KeptTime::decode(&kept.encode()[1..]), None);
        }
    }
}
