//! Frames with less around their fields: lengths take as many bytes as they need, and the record's id
//! and the checksum are left out. For stores that have both in frames of their own.

use std::borrow::Cow;

use super::WireError;
use super::frame::{HEAD_LEN, MAGIC, SUM_LEN, tag};
use crate::RecordId;

/// How a compact frame begins: one without an id, and one whose first field was the record's id.
const WITHOUT_ID: u8 = 0xc0;
const WITH_ID: u8 = 0xc1;

/// The bits of a length in each of its bytes; the highest says that more follow.
const LEN_BITS: u32 = 7;
const MORE: u8 = 0x80;

/// A frame about the record with this id, in compact form.
///
/// # Panics
///
/// If it is no frame.
pub fn compact(frame: &[u8], id: &RecordId) -> Vec<u8> {
    let mut rest = &frame[HEAD_LEN..frame.len() - SUM_LEN];
    let mut bytes = Vec::with_capacity(frame.len());
    bytes.extend_from_slice(&[WITHOUT_ID, frame[2], frame[3]]);
    let id = [&[tag::ID, RecordId::LEN as u8, 0, 0, 0], id.as_bytes().as_slice()].concat();
    if let Some(behind) = rest.strip_prefix(id.as_slice()) {
        (bytes[0], rest) = (WITH_ID, behind);
    }
    while let Some((&tag, behind)) = rest.split_first() {
        let (len, behind) = behind.split_first_chunk::<4>().expect("a field has a length");
        let len = u32::from_le_bytes(*len);
        let (value, behind) = behind.split_at(len as usize);
        bytes.push(tag);
        write_len(&mut bytes, len);
        bytes.extend_from_slice(value);
        rest = behind;
    }
    bytes
}

/// The frame of which `bytes` are the compact form. One that is not compact stays as it is.
pub fn expand<'a>(bytes: &'a [u8], id: &RecordId) -> Result<Cow<'a, [u8]>, WireError> {
    let (&[form, version, kind], mut rest) = match bytes.split_first_chunk() {
        _ if bytes.starts_with(MAGIC) => return Ok(Cow::Borrowed(bytes)),
        Some(head) => head,
        None => return Err(WireError::NotAFrame),
    };
    let mut frame = Vec::with_capacity(bytes.len() + 128);
    frame.extend_from_slice(MAGIC);
    frame.extend_from_slice(&[version, kind]);
    match form {
        WITHOUT_ID => {}
        WITH_ID => field(&mut frame, tag::ID, id.as_bytes()),
        _ => return Err(WireError::NotAFrame),
    }
    while let Some((&tag, behind)) = rest.split_first() {
        let (len, behind) = read_len(behind).ok_or(WireError::NotAFrame)?;
        let (value, behind) = behind.split_at_checked(len).ok_or(WireError::NotAFrame)?;
        field(&mut frame, tag, value);
        rest = behind;
    }
    let sum = crc32fast::hash(&frame);
    frame.extend_from_slice(&sum.to_le_bytes());
    Ok(Cow::Owned(frame))
}

fn field(frame: &mut Vec<u8>, tag: u8, value: &[u8]) {
    frame.push(tag);
    let len = u32::try_from(value.len()).expect("it was a frame's length");
    frame.extend_from_slice(&len.to_le_bytes());
    frame.extend_from_slice(value);
}

fn write_len(bytes: &mut Vec<u8>, mut len: u32) {
    while len >= u32::from(MORE) {
        bytes.push(len as u8 | MORE);
        len >>= LEN_BITS;
    }
    bytes.push(len as u8);
}

fn read_len(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut len: u32 = 0;
    for (at, byte) in bytes.iter().enumerate().take(5) {
        len |= u32::from(byte & !MORE) << (at as u32 * LEN_BITS);
        if byte & MORE == 0 {
            return Some((len as usize, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_as_it_was_written() {
        for len in [0, 1, 127, 128, 16_383, 16_384, 1 << 21, u32::MAX] {
            let mut bytes = Vec::new();
            write_len(&mut bytes, len);
            bytes.push(7);
            assert_eq!(read_len(&bytes), Some((len as usize, &[7][..])));
        }
        assert_eq!(read_len(&[0x80; 9]), None);
        assert_eq!(read_len(&[]), None);
    }
}
