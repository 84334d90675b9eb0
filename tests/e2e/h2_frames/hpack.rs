//! Packed heads that cannot be unpacked (RFC 7541).

use super::Expected::{ConnectionError, Status};
use super::*;

pub(super) fn cases() -> Vec<Case> {
    let broken = ConnectionError(COMPRESSION_ERROR);
    let behind = |bytes: &[u8]| head(1, &[&post()[..], bytes].concat());
    vec![
        Case::new("index 0", "6.1 of RFC 7541", &[behind(&[0x80])], broken),
        Case::new(
            "an index beyond the table",
            "2.3.3 of RFC 7541",
            &[behind(&[0xff, 0x40])],
            broken,
        ),
        Case::new(
            "a name's index beyond the table",
            "2.3.3 of RFC 7541",
            &[behind(&[0x7f, 0x40, 1, b'x'])],
            broken,
        ),
        Case::new("an integer without end", "5.1 of RFC 7541", &[behind(&[0xff; 20])], broken),
        Case::new(
            "an integer that is cut off",
            "5.1 of RFC 7541",
            &[behind(&[0xff, 0x80])],
            broken,
        ),
        Case::new(
            "a length beyond the block",
            "5.2 of RFC 7541",
            &[behind(&[0, 1, b'x', 100, b'y'])],
            broken,
        ),
        Case::new("a name without a value", "6.2 of RFC 7541", &[behind(&[0, 1, b'x'])], broken),
        Case::new(
            "a table beyond the limit",
            "6.3 of RFC 7541",
            &[head(1, &[&[0x3f, 0xe1, 0xff, 0x03][..], &post()].concat())],
            broken,
        ),
        Case::new(
            "a new size of the table behind fields",
            "4.2 of RFC 7541",
            &[behind(&[0x20])],
            broken,
        ),
        Case::new(
            "Huffman padding of a whole byte",
            "5.2 of RFC 7541",
            &[behind(&[0, 1, b'x', 0x82, 0x07, 0xff])],
            broken,
        ),
        Case::new(
            "Huffman padding of zeros",
            "5.2 of RFC 7541",
            &[behind(&[0, 1, b'x', 0x81, 0x00])],
            broken,
        ),
        Case::new(
            "the end of Huffman texts",
            "5.2 of RFC 7541",
            &[behind(&[0, 1, b'x', 0x84, 0xff, 0xff, 0xff, 0xff])],
            broken,
        ),
        Case::new(
            "a smaller table first",
            "6.3 of RFC 7541",
            &[head(1, &[&[0x20][..], &post()].concat())],
            Status(200),
        ),
        Case::new(
            "a field that is never indexed",
            "6.2.3 of RFC 7541",
            &[behind(&[0x10, 1, b'x', 1, b'y'])],
            Status(200),
        ),
    ]
}
