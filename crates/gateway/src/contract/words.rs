//! Times, sizes and names as people write them.

use std::time::Duration;

use http::HeaderName;
use selfsame::JsonPointer;

use crate::printable::printable;

/// In the longest unit that leaves no rest; a day is 24 hours, because that is how it is counted.
pub(super) fn duration(duration: Duration) -> String {
    const UNITS: [(&str, u128, u128); 5] = [
        ("day", 86_400_000, 2),
        ("hour", 3_600_000, 1),
        ("minute", 60_000, 1),
        ("second", 1_000, 1),
        ("millisecond", 1, 0),
    ];
    let millis = duration.as_millis();
    let fits = |&&(_, factor, least): &&(_, u128, u128)| {
        millis.is_multiple_of(factor) && millis / factor >= least
    };
    let (unit, factor, _) = UNITS.iter().find(fits).expect("a millisecond fits everything");
    match millis / factor {
        1 => format!("1 {unit}"),
        number => format!("{number} {unit}s"),
    }
}

/// In the largest unit that leaves no rest.
pub(super) fn bytes(bytes: usize) -> String {
    const UNITS: [(&str, usize); 6] = [
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("KB", 1_000),
    ];
    match UNITS.iter().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor)) {
        Some((unit, factor)) => format!("{} {unit}", bytes / factor),
        None if bytes == 1 => "1 byte".to_owned(),
        None => format!("{bytes} bytes"),
    }
}

/// As headers are printed, which makes no difference to any program.
pub(super) fn header(name: &HeaderName) -> String {
    let capital = |part: &str| {
        let (first, rest) = part.split_at(usize::from(!part.is_empty()));
        first.to_ascii_uppercase() + rest
    };
    name.as_str().split('-').map(capital).collect::<Vec<_>>().join("-")
}

/// On one line, whatever it holds.
pub(super) fn pointer(pointer: &JsonPointer) -> String {
    printable(pointer.as_str()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_their_longest_whole_unit() {
        let table = [
            (1, "1 millisecond"),
            (1_500, "1500 milliseconds"),
            (10_000, "10 seconds"),
            (60_000, "1 minute"),
            (90_000, "90 seconds"),
            (3_600_000, "1 hour"),
            (86_400_000, "24 hours"),
            (2 * 86_400_000, "2 days"),
        ];
        for (millis, words) in table {
            assert_eq!(duration(Duration::from_millis(millis)), words);
        }
    }

    #[test]
    fn sizes_are_told_in_their_largest_whole_unit() {
        let table =
            [(1, "1 byte"), (1_025, "1025 bytes"), (65_536, "64 KiB"), (10_000_000, "10 MB")];
        for (number, words) in table {
            assert_eq!(bytes(number), words);
        }
    }

    #[test]
    fn a_pointer_stays_on_its_line() {
        let parsed = JsonPointer::parse("/é\n`").expect("a pointer");
        assert_eq!(pointer(&parsed), "/é\\n`");
    }

    #[test]
    fn header_names_are_told_in_capitals() {
        for name in ["Idempotency-Key", "X-A", "X--B-", "!-A"] {
            assert_eq!(header(&name.parse().expect("a name")), name);
        }
    }
}
