//! Bodies without their `Content-Encoding`, so that packing one anew is the same request.
//!
//! One whole stream and nothing behind it is unpacked, up to a limit and up to a multiple of what was sent.
//! Anything else (cut off, damaged, followed by more, too large, or of a coding that is not known here)
//! stays as it was sent, and then its coding counts too.

use std::borrow::Cow;
use std::io::Read;

use flate2::bufread::{GzDecoder, ZlibDecoder};

use super::content_type::trim_spaces;

/// More codings than this, one over the other, are only sent to keep us busy.
const CODINGS_MAX: usize = 3;

/// Largest ratio of a body to what was sent of it, beyond [`UNPACKED_BYTES_FREE`]. Unpacking and reading a
/// body costs by its size, deflate reaches a ratio of 1000, and packed JSON rarely one of 20.
const RATIO_MAX: usize = 32;
/// Size up to which any ratio is unpacked.
const UNPACKED_BYTES_FREE: usize = 16 << 10;

/// The first guess at how large a body is that was packed, as a multiple.
const GROWTH: usize = 4;

enum Coding {
    Identity,
    Gzip,
    Deflate,
}

/// The body behind its `encoding`, of at most `bytes_max` where it was packed; or nothing where it
/// must be left as it is.
pub(crate) fn decoded<'a>(
    encoding: Option<&[u8]>,
    body: &'a [u8],
    bytes_max: usize,
) -> Option<Cow<'a, [u8]>> {
    let bytes_max = bytes_max.min(unpacked_bytes_max(body.len()));
    let mut body = Cow::Borrowed(body);
    let Some(encoding) = encoding else { return Some(body) };
    let codings = encoding.split(|&byte| byte == b',').map(Coding::read);
    let codings: Vec<Coding> = codings.take(CODINGS_MAX + 1).collect::<Option<_>>()?;
    if codings.len() > CODINGS_MAX {
        return None;
    }
    // The last one was put on last.
    for coding in codings.into_iter().rev() {
        body = match coding {
            Coding::Identity => body,
            Coding::Gzip => {
                let mut decoder = GzDecoder::new(&*body);
                let plain = read_all(&mut decoder, body.len(), bytes_max)?;
                decoder.into_inner().is_empty().then_some(plain)?.into()
            }
            Coding::Deflate => {
                let mut decoder = ZlibDecoder::new(&*body);
                let plain = read_all(&mut decoder, body.len(), bytes_max)?;
                decoder.into_inner().is_empty().then_some(plain)?.into()
            }
        };
    }
    Some(body)
}

/// Largest size that is unpacked from a body that was sent in `sent_bytes`, whatever the codings.
fn unpacked_bytes_max(sent_bytes: usize) -> usize {
    sent_bytes.saturating_mul(RATIO_MAX).saturating_add(UNPACKED_BYTES_FREE)
}

impl Coding {
    fn read(name: &[u8]) -> Option<Self> {
        let name = trim_spaces(name);
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"identity") {
            Some(Self::Identity)
        } else if is(b"gzip") || is(b"x-gzip") {
            Some(Self::Gzip)
        } else if is(b"deflate") {
            Some(Self::Deflate)
        } else {
            None
        }
    }
}

/// All that `decoder` gives, unless it is more than `bytes_max`: room is made as it is needed, and
/// never for more.
fn read_all(decoder: &mut impl Read, packed_bytes: usize, bytes_max: usize) -> Option<Vec<u8>> {
    let guess = packed_bytes.saturating_mul(GROWTH).max(1);
    let mut plain = vec![0; guess.min(bytes_max)];
    let mut len = 0;
    loop {
        if len == plain.len() {
            if len == bytes_max {
                let is_over = decoder.read(&mut [0]).ok()? == 0;
                return is_over.then_some(plain);
            }
            let more = len.min(bytes_max - len);
            plain.reserve_exact(more);
            plain.resize(len + more, 0);
        }
        match decoder.read(&mut plain[len..]).ok()? {
            0 => break,
            read => len += read,
        }
    }
    plain.truncate(len);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::tests::{gzip, zlib};
    use proptest::prelude::*;

    const MAX: usize = 1 << 20;

    fn unpacked(encoding: &str, body: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        decoded(Some(encoding.as_bytes()), body, bytes_max).map(Cow::into_owned)
    }

    #[test]
    fn known_codings_are_taken_off_in_turn() {
        let plain = b"to be packed".repeat(9);
        let (gzipped, zlibbed) = (gzip(&plain, 6), zlib(&plain, 6));
        let table = [
            ("gzip", gzipped.clone()),
            ("X-GZip", gzipped.clone()),
            (" gzip\t, identity ", gzipped.clone()),
            ("deflate", zlibbed.clone()),
            ("identity", plain.clone()),
            ("deflate, gzip", gzip(&zlibbed, 1)),
            ("gzip,deflate,identity", zlib(&gzipped, 1)),
        ];
        for (encoding, body) in table {
            assert_eq!(unpacked(encoding, &body, MAX).as_deref(), Some(&plain[..]), "{encoding}");
        }
        assert_eq!(decoded(None, &plain, 0).as_deref(), Some(&plain[..]));
    }

    #[test]
    fn what_is_not_known_or_not_right_stays_packed() {
        let plain = b"to be packed".repeat(9);
        let gzipped = gzip(&plain, 6);
        let table = [
            ("", plain.clone()),
            ("br", gzipped.clone()),
            ("gzip, br", gzipped.clone()),
            ("gzip,", gzipped.clone()),
            ("gzip;q=1", gzipped.clone()),
            ("gzip", plain.clone()),
            ("gzip", Vec::new()),
            ("deflate", gzipped.clone()),
            ("gzip", zlib(&plain, 6)),
            ("deflate", zlib(&plain, 6)[2..].to_vec()),
            ("gzip", gzipped.repeat(2)),
            ("gzip", [&gzipped[..], b"\0"].concat()),
            ("deflate", [&zlib(&plain, 6)[..], b"\0"].concat()),
            ("identity,identity,identity,identity", plain.clone()),
        ];
        for (encoding, body) in table {
            assert_eq!(unpacked(encoding, &body, MAX), None, "{encoding}");
        }
    }

    #[test]
    fn a_body_cut_off_anywhere_stays_packed() {
        let plain = b"to be packed".repeat(9);
        for (encoding, body) in [("gzip", gzip(&plain, 6)), ("deflate", zlib(&plain, 6))] {
            for len in 0..body.len() {
                assert_eq!(unpacked(encoding, &body[..len], MAX), None, "{encoding} {len}");
            }
        }
    }

    #[test]
    fn a_body_over_the_limit_stays_packed() {
        let plain: Vec<u8> = (0..60_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let packed = gzip(&plain, 9);
        assert_eq!(unpacked("gzip", &packed, plain.len() - 1), None);
        let whole = unpacked("gzip", &packed, plain.len()).expect("within the limit");
        assert_eq!((whole.len(), whole.capacity()), (plain.len(), plain.len()));
        assert_eq!(unpacked("deflate", &zlib(b"", 6), 0).as_deref(), Some(&b""[..]));
        assert_eq!(unpacked("deflate", &zlib(b"a", 6), 0), None);
    }

    #[test]
    fn a_bomb_stays_packed_at_a_multiple_of_what_was_sent() {
        let bomb = |len: usize| gzip(&vec![0; len], 9);
        assert!(unpacked("gzip", &bomb(UNPACKED_BYTES_FREE), MAX).is_some());
        let is_over = |len: &usize| *len > unpacked_bytes_max(bomb(*len).len());
        let over = (UNPACKED_BYTES_FREE..).find(is_over).expect("some size is too large");
        let whole = unpacked("gzip", &bomb(over - 1), MAX).expect("within the limit");
        assert_eq!(whole.len(), over - 1);
        assert!(whole.capacity() <= unpacked_bytes_max(bomb(over).len()));
        assert_eq!(unpacked("gzip", &bomb(over), MAX), None);
        // What was packed again counts by what was sent.
        let twice = gzip(&bomb(MAX), 9);
        assert!(twice.len() < 200, "{}", twice.len());
        assert_eq!(unpacked("gzip, gzip", &twice, MAX), None);
    }

    proptest! {
        #[test]
        fn how_it_was_packed_makes_no_difference(
            plain in proptest::collection::vec(any::<u8>(), 0..2000),
            one in 0..10u32,
            two in 0..10u32,
        ) {
            prop_assert_eq!(unpacked("gzip", &gzip(&plain, one), MAX), Some(plain.clone()));
            prop_assert_eq!(unpacked("deflate", &zlib(&plain, two), MAX), Some(plain));
        }

        #[test]
        fn nothing_panics(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            start in prop::sample::select(vec![&b""[..], b"\x1f\x8b\x08\x00", b"\x78\x9c"]),
            encoding in "(gzip|deflate|identity|,| ){0,4}",
        ) {
            let _ = unpacked(&encoding, &[start, &body].concat(), MAX);
        }
    }
}
