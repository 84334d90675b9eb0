//! [`Reading`]: a segment that is read frame by frame.

use std::io;

use super::frame::{HEAD_LEN, Head, MAGIC};
use super::index::Place;
use super::segment::{START, Segment};

/// How much is read at a time.
const READ_BYTES: usize = 256 * 1024;

/// A segment that is being read.
pub(super) struct Reading<'a> {
    pub(super) segment: &'a Segment,
    /// Where the next frame begins.
    pub(super) at: u64,
    buffer: Vec<u8>,
    /// Where the buffer begins in the segment.
    start: u64,
    /// The last batch that was seen to be written.
    newest_seen: u64,
}

impl<'a> Reading<'a> {
    pub(super) fn new(segment: &'a Segment) -> Self {
        Self::from(segment, START)
    }

    /// Reads from the frame on that begins there.
    pub(super) fn from(segment: &'a Segment, at: u64) -> Self {
        Self { segment, at, buffer: Vec::new(), start: at, newest_seen: 0 }
    }

    /// The head of the next frame, if there is one.
    pub(super) fn head(&mut self) -> io::Result<Option<Head>> {
        let salt = self.segment.salt;
        let bytes = self.bytes(self.at, HEAD_LEN)?;
        Ok(bytes.try_into().ok().and_then(|bytes| Head::decode(bytes, salt)))
    }

    /// Whether what follows the head is what was written.
    pub(super) fn is_sound(&mut self, head: &Head) -> io::Result<bool> {
        let len = head.payload_len as usize;
        let payload = self.bytes(self.at + HEAD_LEN as u64, len)?;
        Ok(payload.len() == len && crc32fast::hash(payload) == head.payload_sum)
    }

    /// What follows the head.
    pub(super) fn payload(&mut self, head: &Head) -> io::Result<&[u8]> {
        self.bytes(self.at + HEAD_LEN as u64, head.payload_len as usize)
    }

    /// The place of the next frame.
    pub(super) fn place(&self, head: &Head) -> Place {
        let number = |number: u64| u32::try_from(number).expect("a segment is far below 4 GiB");
        Place {
            segment: self.segment.number,
            offset: number(self.at),
            len: number(head.frame_len()),
        }
    }

    /// Where the next head begins from `at` on that is of this batch or a later one.
    pub(super) fn next_head(&mut self, mut at: u64, batch: u64) -> io::Result<Option<u64>> {
        let salt = self.segment.salt;
        loop {
            let bytes = self.bytes(at, READ_BYTES)?;
            if bytes.len() < HEAD_LEN {
                return Ok(None);
            }
            let is_next = |bytes: &[u8]| {
                bytes.starts_with(&MAGIC)
                    && bytes
                        .try_into()
                        .ok()
                        .and_then(|bytes| Head::decode(bytes, salt))
                        .is_some_and(|head| head.batch >= batch)
            };
            if let Some(behind) = bytes.windows(HEAD_LEN).position(is_next) {
                return Ok(Some(at + behind as u64));
            }
            at += (bytes.len() - HEAD_LEN + 1) as u64;
        }
    }

    /// Whether a batch was written behind this one, which was durable then.
    pub(super) fn is_followed(&mut self, batch: u64) -> io::Result<bool> {
        let mut at = self.at + 1;
        // Of many frames in a row that were overwritten, the first finds what is behind them all.
        while self.newest_seen <= batch {
            let salt = self.segment.salt;
            let bytes = self.bytes(at, READ_BYTES)?;
            if bytes.len() < HEAD_LEN {
                return Ok(false);
            }
            let heads = bytes.windows(HEAD_LEN).filter(|bytes| bytes.starts_with(&MAGIC));
            let heads = heads.filter_map(|bytes| Head::decode(bytes.try_into().ok()?, salt));
            let newest = heads.map(|head| head.batch).max().unwrap_or(0);
            at += (bytes.len() - HEAD_LEN + 1) as u64;
            self.newest_seen = self.newest_seen.max(newest);
        }
        Ok(true)
    }

    /// Goes on to the next head behind this place, past what cannot be read. False where there is none.
    pub(super) fn find_next_head(&mut self) -> io::Result<bool> {
        let (salt, mut at) = (self.segment.salt, self.at + 1);
        loop {
            let bytes = self.bytes(at, READ_BYTES)?;
            if bytes.len() < HEAD_LEN {
                return Ok(false);
            }
            let is_head = |bytes: &[u8]| {
                let bytes = bytes.try_into().expect("a window's length");
                Head::decode(bytes, salt).is_some()
            };
            let mut heads = bytes.windows(HEAD_LEN);
            if let Some(behind) = heads.position(|at| at.starts_with(&MAGIC) && is_head(at)) {
                self.at = at + behind as u64;
                return Ok(true);
            }
            at += (bytes.len() - HEAD_LEN + 1) as u64;
        }
    }

    /// So many bytes from `at` on, or as many as there are.
    fn bytes(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let is_here = at >= self.start && at + len as u64 <= self.start + self.buffer.len() as u64;
        if !is_here {
            self.buffer.resize(len.max(READ_BYTES), 0);
            let read = self.segment.read_some(&mut self.buffer, at)?;
            self.buffer.truncate(read);
            self.start = at;
        }
        let from = usize::try_from(at - self.start).expect("it is in the buffer");
        let to = self.buffer.len().min(from + len);
        Ok(&self.buffer[from..to])
    }
}

#[cfg(test)]
mod tests {
    use selfsame_core::RecordId;
    use tempfile::TempDir;

    use super::super::frame::{Kind, Marks};
    use super::*;

    /// A start after many erasures would read the same part of the log again for each frame.
    #[test]
    fn many_overwritten_frames_are_known_to_be_followed_by_one_look() {
        let folder = TempDir::new().expect("a folder");
        let segment = Segment::create(folder.path(), 1, 64 * 1024).expect("made");
        let mut head = Head {
            kind: Kind::Record,
            closes: true,
            batch: 0,
            id: RecordId::from_bytes([7; RecordId::LEN]),
            marks: Marks::NONE,
            payload_len: 100,
            payload_sum: 1,
        };
        let mut at = START;
        for batch in 1..=100 {
            head.batch = batch;
            segment.write(&head.encode(segment.salt), at).expect("written");
            at += head.frame_len();
        }
        let mut reading = Reading::new(&segment);
        for batch in 1..100 {
            let head = reading.head().expect("read").expect("a frame");
            assert!(!reading.is_sound(&head).expect("read"));
            assert!(reading.is_followed(batch).expect("read"));
            assert_eq!(reading.newest_seen, 100);
            reading.at += head.frame_len();
        }
        assert!(!reading.is_followed(100).expect("read"));
    }
}
