//! How values are read, and what is said about those that cannot be: durations, sizes, paths.

use std::path::PathBuf;
use std::time::Duration;

use selfsame::TenantLimit;
use toml::de::DeValue;

/// What a value must look like: said once, for reading it and for complaining about it.
pub(super) struct Kind<T> {
    /// Completes the sentence "expected …".
    pub(super) expected: &'static str,
    pub(super) read: fn(&DeValue<'_>) -> Result<T, Wrong>,
}

/// Why a value cannot be taken.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It does not look like what was expected.
    Form,
    /// The contract knows it, this version does not.
    Later(String),
    /// It looks right and still is not.
    Because(String),
}

impl<T> Kind<T> {
    /// The value, or what to say about it.
    pub(super) fn take(&self, value: &DeValue<'_>) -> Result<T, String> {
        let expected = self.expected;
        (self.read)(value).map_err(|wrong| match wrong {
            Wrong::Form => format!("expected {expected}, found {}", found(value)),
            Wrong::Later(what) => {
                format!("{what} is not supported yet by this version; write {expected}")
            }
            Wrong::Because(reason) => reason,
        })
    }
}

/// Names a value of any type within a sentence.
pub(super) fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => format!("the integer {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

pub(super) fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, Wrong> {
    value.as_str().ok_or(Wrong::Form)
}

/// The one of `choices` that was named.
pub(super) fn choice<T: Clone>(value: &DeValue<'_>, choices: &[(&str, T)]) -> Result<T, Wrong> {
    let text = text(value)?;
    let named = choices.iter().find(|(name, _)| *name == text);
    named.map(|(_, choice)| choice.clone()).ok_or(Wrong::Form)
}

pub(super) const SWITCH: Kind<bool> = Kind {
    expected: "true or false, without quotes",
    read: |value| value.as_bool().ok_or(Wrong::Form),
};

pub(super) const PATH: Kind<PathBuf> = Kind {
    expected: r#"a path like "/etc/selfsame/secret""#,
    read: |value| match text(value)? {
        "" => Err(Wrong::Form),
        path => Ok(PathBuf::from(path)),
    },
};

pub(super) const DURATION: Kind<Duration> =
    Kind { expected: r#"a duration like "500ms", "30s", "15m", "24h" or "7d""#, read: duration };

pub(super) const LEASE: Kind<Duration> = Kind {
    expected: DURATION.expected,
    read: |value| match duration(value)? {
        lease if lease < Duration::from_secs(1) => Err(because("must be at least 1s")),
        lease => Ok(lease),
    },
};

/// A delay, which may be zero.
pub(super) const DELAY: Kind<Duration> = Kind {
    expected: r#"a duration like "5s", or "0s""#,
    read: |value| match Duration::from_millis(quantity(text(value)?, &TIME_UNITS)?) {
        delay if delay > DELAY_MAX => Err(because("must be at most 10m")),
        delay => Ok(delay),
    },
};

/// Zero where it is off.
pub(super) const DURATION_OR_OFF: Kind<Duration> = Kind {
    expected: r#"a duration like "12h" or "30d", or "off""#,
    read: |value| match text(value)? {
        "off" => Ok(Duration::ZERO),
        _ => duration(value),
    },
};

/// How many characters a key may be asked to have.
pub(super) const KEY_LENGTH: Kind<usize> = Kind {
    expected: "a whole number from 1 to 255, without quotes",
    read: |value| match integer(value)? {
        length @ 1..=255 => Ok(usize::try_from(length).expect("a byte")),
        _ => Err(Wrong::Form),
    },
};

pub(super) const COUNT: Kind<u32> = Kind {
    expected: "a whole number from 1 on, without quotes",
    read: |value| match u32::try_from(integer(value)?) {
        Ok(0) | Err(_) => Err(Wrong::Form),
        Ok(count) => Ok(count),
    },
};

/// None where it is off.
pub(super) const COUNT_OR_OFF: Kind<Option<u32>> = Kind {
    expected: r#"a whole number from 1 on, without quotes, or "off""#,
    read: |value| match value {
        DeValue::Integer(_) => (COUNT.read)(value).map(Some),
        _ => choice(value, &[("off", None)]),
    },
};

/// One limit for all tenants, or none.
pub(super) const TENANT_LIMIT: Kind<TenantLimit> = Kind {
    expected: COUNT_OR_OFF.expected,
    read: |value| (COUNT_OR_OFF.read)(value).map(TenantLimit::from),
};

pub(super) const SIZE: Kind<usize> =
    Kind { expected: r#"a size like "1MiB", "512KiB", "10MB" or 65536 (bytes)"#, read: size };

/// None where it is off.
pub(super) const SIZE_OR_OFF: Kind<Option<usize>> = Kind {
    expected: r#"a size like "32MiB" or "512KiB", or "off""#,
    read: |value| match value {
        DeValue::String(text) if text == "off" => Ok(None),
        _ => size(value).map(Some),
    },
};

/// Of what many requests hold together.
pub(super) const MEMORY_SIZE: Kind<usize> = Kind {
    expected: r#"a size like "512MiB", "2GiB" or 67108864 (bytes)"#,
    read: |value| match bytes(value)? {
        0 => Err(because("must be more than zero")),
        bytes if bytes > MEMORY_SIZE_MAX => Err(because("must be at most 1024GiB")),
        bytes => usize::try_from(bytes).map_err(|_| because("is more than this machine can have")),
    },
};

const MEMORY_SIZE_MAX: u64 = 1 << 40;

/// None where it is off.
pub(super) const DISK_SIZE_OR_OFF: Kind<Option<u64>> = Kind {
    expected: r#"a size like "64GiB" or "500MB", or "off""#,
    read: |value| match value {
        DeValue::String(text) if text == "off" => Ok(None),
        _ => match bytes(value)? {
            bytes if bytes < DISK_SIZE_MIN => Err(because("must be at least 1MiB")),
            bytes => Ok(Some(bytes)),
        },
    },
};

/// Smallest limit of a store's bytes: its first file has a quarter of it.
const DISK_SIZE_MIN: u64 = 1 << 20;

// Ten years: far from overflowing any clock, and longer than anyone can mean.
const DURATION_MAX: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

// A process that was told to stop and goes on for longer looks broken.
const DELAY_MAX: Duration = Duration::from_secs(10 * 60);

// Bodies are held in memory.
const SIZE_MAX: u64 = 1 << 30;

/// The units of time, the longest first.
const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

const SIZE_UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

fn duration(value: &DeValue<'_>) -> Result<Duration, Wrong> {
    match Duration::from_millis(quantity(text(value)?, &TIME_UNITS)?) {
        Duration::ZERO => Err(because("must be longer than zero")),
        duration if duration > DURATION_MAX => Err(because("must be at most 3650d")),
        duration => Ok(duration),
    }
}

fn bytes(value: &DeValue<'_>) -> Result<u64, Wrong> {
    match value {
        DeValue::Integer(_) => integer(value),
        other => quantity(text(other)?, &SIZE_UNITS),
    }
}

fn size(value: &DeValue<'_>) -> Result<usize, Wrong> {
    match bytes(value)? {
        0 => Err(because("must be more than zero")),
        bytes if bytes > SIZE_MAX => Err(because("must be at most 1GiB")),
        bytes => Ok(usize::try_from(bytes).expect("a gibibyte fits into memory")),
    }
}

pub(super) fn integer(value: &DeValue<'_>) -> Result<u64, Wrong> {
    let number = value.as_integer().ok_or(Wrong::Form)?;
    u64::from_str_radix(number.as_str(), number.radix()).map_err(|_| Wrong::Form)
}

/// A number directly followed by one of `units`. What overflows is only too large, not wrong.
fn quantity(text: &str, units: &[(&str, u64)]) -> Result<u64, Wrong> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or(Wrong::Form)?;
    if number.is_empty() {
        return Err(Wrong::Form);
    }
    // Only digits: nothing but their number can make this fail.
    Ok(number.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(*factor))
}

pub(super) fn because(reason: &str) -> Wrong {
    Wrong::Because(reason.to_owned())
}

/// A duration as one would write it, in the longest unit that leaves no rest.
pub(super) fn written(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).expect("at most ten years");
    let (unit, factor) =
        TIME_UNITS.iter().find(|(_, factor)| millis % factor == 0).expect("1 divides everything");
    format!("{}{unit}", millis / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take<T>(kind: &Kind<T>, toml: &str) -> Result<T, String> {
        kind.take(DeValue::parse(toml).expect("TOML").get_ref())
    }

    #[test]
    fn durations_are_a_number_and_a_unit() {
        let table = [("250ms", 250), ("30s", 30_000), ("15m", 900_000), ("24h", 86_400_000)];
        for (text, millis) in table {
            let duration = Duration::from_millis(millis);
            assert_eq!(take(&DURATION, &format!("{text:?}")), Ok(duration));
        }
        assert_eq!(take(&DURATION, "'3650d'"), Ok(DURATION_MAX));
    }

    #[test]
    fn a_duration_is_written_in_its_longest_whole_unit() {
        let table = [(1, "1ms"), (1_500, "1500ms"), (90_000, "90s"), (86_400_000, "1d")];
        for (millis, text) in table {
            assert_eq!(written(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn wrong_durations_say_what_is_wrong() {
        let form = |found| format!("expected {}, found {found}", DURATION.expected);
        let table = [
            ("30", form("the integer 30")),
            ("1.5", form("the number 1.5")),
            ("true", form("true")),
            ("'30'", form("\"30\"")),
            ("''", form("\"\"")),
            ("'h'", form("\"h\"")),
            ("'-1h'", form("\"-1h\"")),
            ("'1 h'", form("\"1 h\"")),
            ("'1H'", form("\"1H\"")),
            ("'0s'", "must be longer than zero".to_owned()),
            ("'3651d'", "must be at most 3650d".to_owned()),
            ("'99999999999999999999d'", "must be at most 3650d".to_owned()),
        ];
        for (toml, expected) in table {
            assert_eq!(take(&DURATION, toml), Err(expected), "{toml}");
        }
        assert_eq!(take(&LEASE, "'999ms'"), Err("must be at least 1s".to_owned()));
        assert_eq!(take(&LEASE, "'1s'"), Ok(Duration::from_secs(1)));
    }

    #[test]
    fn what_can_be_off_is_a_duration_or_off() {
        assert_eq!(take(&DURATION_OR_OFF, "'off'"), Ok(Duration::ZERO));
        assert_eq!(take(&DURATION_OR_OFF, "'1d'"), Ok(Duration::from_secs(86_400)));
        assert_eq!(take(&DURATION_OR_OFF, "'0s'"), Err("must be longer than zero".to_owned()));
        let expected = format!("expected {}, found false", DURATION_OR_OFF.expected);
        assert_eq!(take(&DURATION_OR_OFF, "false"), Err(expected));
    }

    #[test]
    fn a_keys_length_is_a_number_that_a_key_can_have() {
        assert_eq!((take(&KEY_LENGTH, "1"), take(&KEY_LENGTH, "255")), (Ok(1), Ok(255)));
        for (toml, found) in [
            ("0", "the integer 0"),
            ("256", "the integer 256"),
            ("-1", "the integer -1"),
            ("'8'", "\"8\""),
        ] {
            let expected = format!("expected {}, found {found}", KEY_LENGTH.expected);
            assert_eq!(take(&KEY_LENGTH, toml), Err(expected));
        }
    }

    #[test]
    fn sizes_are_bytes_or_a_number_and_a_unit() {
        let table = [
            ("65_536", 65_536),
            ("0x10", 16),
            ("'7B'", 7),
            ("'512KiB'", 512 * 1024),
            ("'1MiB'", 1024 * 1024),
            ("'10MB'", 10_000_000),
            ("'1GiB'", 1 << 30),
        ];
        for (toml, bytes) in table {
            assert_eq!(take(&SIZE, toml), Ok(bytes), "{toml}");
        }
    }

    #[test]
    fn wrong_sizes_say_what_is_wrong() {
        let form = |found| format!("expected {}, found {found}", SIZE.expected);
        let table = [
            ("-1", form("the integer -1")),
            ("'1'", form("\"1\"")),
            ("'1mb'", form("\"1mb\"")),
            ("[1]", form("a list")),
            ("0", "must be more than zero".to_owned()),
            ("'0MiB'", "must be more than zero".to_owned()),
            ("'2GiB'", "must be at most 1GiB".to_owned()),
        ];
        for (toml, expected) in table {
            assert_eq!(take(&SIZE, toml), Err(expected), "{toml}");
        }
    }
}
