//! [`FrameWatch`]: the frames of a client over HTTP/2, counted by their headers.
//!
//! A PING, SETTINGS, PRIORITY or WINDOW_UPDATE costs a client a few bytes, and the server an answer or a
//! look-up. h2 bounds neither. So each frame without content is paid for from an allowance, which
//! grows with requests, with what answers carry, and with time. An honest client never comes near its end.

use std::time::Duration;

use tokio::time::Instant;

/// The length of the preface, after which frames begin.
const PREFACE_BYTES: u32 = 24;
const FRAME_HEADER_BYTES: usize = 9;

const DATA: u8 = 0;
const END_STREAM: u8 = 0x1;
const PADDED: u8 = 0x8;
/// The longest DATA frame that may be nothing but padding and its length.
const PADDING_BYTES_MAX: u32 = 256;

/// Frames that a client may send at once, however little it does besides.
const ALLOWANCE_MAX: u32 = 10_000;
/// Frames that it may send per second besides.
const ALLOWANCE_PER_SECOND: u32 = 500;
/// Frames without content after which a connection lets others be served.
const FRAMES_PER_TURN: u32 = 200;

/// Follows the bytes that a client sends.
#[derive(Debug)]
pub(crate) struct FrameWatch {
    /// Bytes to skip until the next frame's header.
    skip: u32,
    header: [u8; FRAME_HEADER_BYTES],
    header_len: usize,
    allowance: Allowance,
    /// Frames without content since the turn began.
    turn: u32,
}

/// A client has sent more frames without content than it may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flood;

impl FrameWatch {
    pub(crate) fn new() -> Self {
        Self {
            skip: PREFACE_BYTES,
            header: [0; FRAME_HEADER_BYTES],
            header_len: 0,
            allowance: Allowance { left: ALLOWANCE_MAX, refilled: Instant::now() },
            turn: 0,
        }
    }

    /// Begins a new turn: the connection lets others be served.
    pub(crate) fn begin_turn(&mut self) {
        self.turn = 0;
    }

    /// Tells if as many frames without content were read as are read in one turn.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.turn >= FRAMES_PER_TURN
    }

    /// Raises the allowance by `frames`: the client has asked for something, or takes what it asked for.
    pub(crate) fn earn(&mut self, frames: u32) {
        self.allowance.earn(frames);
    }

    /// Follows `bytes`.
    ///
    /// # Errors
    /// The allowance is used up.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Flood> {
        loop {
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
            self.skip -= u32::try_from(skipped).expect("no more than before");
            bytes = &bytes[skipped..];
            let missing = FRAME_HEADER_BYTES - self.header_len;
            if bytes.len() < missing {
                self.header[self.header_len..][..bytes.len()].copy_from_slice(bytes);
                self.header_len += bytes.len();
                return Ok(());
            }
            self.header[self.header_len..].copy_from_slice(&bytes[..missing]);
            self.header_len = 0;
            bytes = &bytes[missing..];
            self.frame()?;
        }
    }

    fn frame(&mut self) -> Result<(), Flood> {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.skip = u32::from_be_bytes([0, high, middle, low]);
        let may_be_empty = match flags & PADDED {
            0 => self.skip == 0,
            _ => self.skip <= PADDING_BYTES_MAX,
        };
        if kind == DATA && (!may_be_empty || flags & END_STREAM != 0) {
            // Content is bounded by the windows that we grant.
            return Ok(());
        }
        self.turn = self.turn.saturating_add(1);
        self.allowance.spend()
    }
}

#[derive(Debug)]
struct Allowance {
    left: u32,
    refilled: Instant,
}

impl Allowance {
    fn earn(&mut self, frames: u32) {
        self.left = self.left.saturating_add(frames).min(ALLOWANCE_MAX);
    }

    fn spend(&mut self) -> Result<(), Flood> {
        if self.left == 0 {
            // Only now: an honest client never pays for a look at the clock.
            let elapsed = self.refilled.elapsed().min(Duration::from_secs(60));
            self.refilled = Instant::now();
            let frames = elapsed.as_millis() * u128::from(ALLOWANCE_PER_SECOND) / 1000;
            self.earn(u32::try_from(frames).unwrap_or(ALLOWANCE_MAX));
        }
        self.left = self.left.checked_sub(1).ok_or(Flood)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).expect("short").to_be_bytes();
        let header = [&length[1..], &[kind, flags], &[0, 0, 0, 1]].concat();
        [header, vec![0xff; payload]].concat()
    }

    fn begun() -> FrameWatch {
        let mut watch = FrameWatch::new();
        watch.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("the preface");
        watch
    }

    /// How many such frames are taken, of many.
    fn taken(bytes: &[u8]) -> usize {
        let mut watch = begun();
        (0..3 * ALLOWANCE_MAX).take_while(|_| watch.read(bytes).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_over_after_many_frames_without_content() {
        let mut watch = begun();
        for _ in 0..10 * FRAMES_PER_TURN {
            watch.read(&frame(DATA, 0, 300)).expect("it has content");
        }
        assert!(!watch.is_turn_over());
        for _ in 0..FRAMES_PER_TURN {
            assert!(!watch.is_turn_over());
            watch.read(&frame(PING, 0, 8)).expect("within the allowance");
        }
        assert!(watch.is_turn_over());
        watch.begin_turn();
        assert!(!watch.is_turn_over());
    }

    #[tokio::test(start_paused = true)]
    async fn frames_without_content_use_the_allowance_up() {
        let max = ALLOWANCE_MAX as usize;
        let without = [
            frame(PING, 0, 8),
            frame(2, 0, 5),
            frame(3, 0, 4),
            frame(4, 0, 0),
            frame(8, 0, 4),
            frame(9, 0, 0),
            frame(1, 0, 100),
            frame(77, 0, 10_000),
            frame(DATA, 0, 0),
            frame(DATA, PADDED, 200),
        ];
        for bytes in without {
            assert_eq!(taken(&bytes), max, "{:?}", &bytes[..9]);
        }
        for bytes in [frame(DATA, 0, 1), frame(DATA, END_STREAM, 0), frame(DATA, PADDED, 300)] {
            assert_eq!(taken(&bytes), 3 * max, "{:?}", &bytes[..9]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_told_apart_however_they_are_cut() {
        let stream = [frame(PING, 0, 8), frame(DATA, 0, 3000), frame(4, 0, 12)].concat();
        for size in [1, 2, 7, 9, 1000, 10_000] {
            let mut watch = begun();
            for bytes in stream.repeat(10).chunks(size) {
                watch.read(bytes).expect("within the allowance");
            }
            assert_eq!(watch.allowance.left, ALLOWANCE_MAX - 20, "{size}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_and_work_give_more() {
        let mut watch = begun();
        let ping = frame(PING, 0, 8);
        (0..ALLOWANCE_MAX).for_each(|_| watch.read(&ping).expect("allowed"));
        tokio::time::advance(Duration::from_secs(2)).await;
        (0..1000).for_each(|_| watch.read(&ping).expect("allowed"));
        assert_eq!(watch.read(&ping), Err(Flood));
        let mut watch = begun();
        // A keep-alive, each second for a day.
        for _ in 0..86_400 {
            tokio::time::advance(Duration::from_secs(1)).await;
            watch.read(&ping).expect("an honest client");
        }
        let mut watch = begun();
        for _ in 0..5000 {
            watch.earn(16);
            (0..16).for_each(|_| watch.read(&ping).expect("paid for"));
        }
    }
}
