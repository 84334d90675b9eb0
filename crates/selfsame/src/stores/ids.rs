//! Ids as people write them: the beginning of one, in hexadecimal.

use selfsame_core::RecordId;

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
