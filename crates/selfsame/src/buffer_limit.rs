//! [`BufferAllowance`]: limits the bytes that are held in memory for a request's client.
//!
//! Bodies of requests with keys are reserved as they come, and refused where there is no room. Responses are added whatever
//! the limit: their work is done. Either way the bytes count until the last copy of them is dropped, wherever it is by then.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// Size up to which a body is not counted. Most requests are smaller, and go on where others have used up all room.
pub(crate) const UNCOUNTED_BYTES: usize = 8 * 1024;

/// Limit of the bytes that are held in memory for one client, and for all of them.
pub trait BufferLimit: Send + Sync {
    /// Tells if the client may hold `bytes` more now. Counts nothing.
    ///
    /// # Errors
    /// The limit that would be exceeded; with zero bytes, that of a client that holds more than it may. The request
    /// is refused.
    fn check(&self, bytes: usize) -> Result<(), BufferExcess>;

    /// Counts `bytes` of a request, if there is room for them.
    ///
    /// # Errors
    /// The limit that would be exceeded. Nothing is counted, and the request is refused.
    fn reserve(&self, bytes: usize) -> Result<(), BufferExcess>;

    /// Counts `bytes` of a response, whatever the limit.
    fn add(&self, bytes: usize);

    /// Takes back `bytes` that were reserved or added.
    fn release(&self, bytes: usize);

    /// Counts `data` of a replay, whatever the limit. Several replays may share it in memory: it counts as long as
    /// one of them has it, and once.
    fn share(&self, data: &[u8]);

    /// Takes back `data` of one replay.
    fn unshare(&self, data: &[u8]);
}

/// The limit that leaves no room for a request, with the detail of the problem that is its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferExcess {
    /// That of the request's client: `429 too-many-requests`.
    Client(&'static str),
    /// That of all clients together: `503 overloaded`.
    Whole(&'static str),
}

/// The limit of bytes in memory for the client of one request. Put it into the request's extensions;
/// without it, these bytes are not limited.
///
/// Bodies of up to 8 KiB are not counted. They are only refused while the client holds more than it may, because it does not
/// take its responses.
#[derive(Clone)]
pub struct BufferAllowance(Arc<dyn BufferLimit>);

impl BufferAllowance {
    /// An allowance that `limit` decides.
    pub fn new(limit: Arc<dyn BufferLimit>) -> Self {
        Self(limit)
    }

    /// Tells if a body of `bytes` may come.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), BufferExcess> {
        self.0.check(counted(bytes))
    }
}

impl fmt::Debug for BufferAllowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferAllowance").finish_non_exhaustive()
    }
}

/// Bytes in memory that count for a client until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct HeldBytes {
    /// None where they are not limited.
    allowance: Option<BufferAllowance>,
    /// Set for a response, which is never refused.
    is_response: bool,
    bytes: usize,
}

impl HeldBytes {
    /// Those of a request: none yet.
    pub(crate) fn of_request(allowance: Option<&BufferAllowance>) -> Self {
        Self { allowance: allowance.cloned(), is_response: false, bytes: 0 }
    }

    /// Those of a response: none yet.
    pub(crate) fn of_response(allowance: Option<&BufferAllowance>) -> Self {
        Self { allowance: allowance.cloned(), is_response: true, bytes: 0 }
    }

    /// Counts `bytes` in all, if that is more than before.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), BufferExcess> {
        let Some(BufferAllowance(limit)) = &self.allowance else { return Ok(()) };
        let more = counted(bytes).saturating_sub(self.bytes);
        match (more, self.is_response) {
            (0, _) => {}
            (more, true) => limit.add(more),
            (more, false) => limit.reserve(more)?,
        }
        self.bytes += more;
        Ok(())
    }

    /// `data`, whose bytes these are. They count until its last copy is dropped.
    pub(crate) fn guard(self, data: Bytes) -> Bytes {
        match self.bytes {
            0 => data,
            _ => Bytes::from_owner(Guarded { data, _held: self }),
        }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        if let (Some(BufferAllowance(limit)), 1..) = (&self.allowance, self.bytes) {
            limit.release(self.bytes);
        }
    }
}

struct Guarded {
    data: Bytes,
    _held: HeldBytes,
}

impl AsRef<[u8]> for Guarded {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

struct Shared {
    data: Bytes,
    allowance: BufferAllowance,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.allowance.0.unshare(&self.data);
    }
}

/// `data` of a replay, counted until its last copy is dropped.
pub(crate) fn share(allowance: Option<&BufferAllowance>, data: Bytes) -> Bytes {
    let Some(allowance) = allowance.filter(|_| counted(data.len()) > 0) else { return data };
    allowance.0.share(&data);
    Bytes::from_owner(Shared { data, allowance: allowance.clone() })
}

/// `data` of a response, counted until its last copy is dropped.
pub(crate) fn hold(allowance: Option<&BufferAllowance>, data: Bytes) -> Bytes {
    if allowance.is_none() || counted(data.len()) == 0 {
        return data;
    }
    let mut held = HeldBytes::of_response(allowance);
    let counted = held.grow_to(data.len());
    debug_assert!(counted.is_ok(), "a response is never refused");
    held.guard(data)
}

/// Bytes that count of a body of `bytes`: all, or none.
fn counted(bytes: usize) -> usize {
    if bytes > UNCOUNTED_BYTES { bytes } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const FULL: BufferExcess = BufferExcess::Client("no room");

    /// Room for some bytes.
    struct Room {
        max: usize,
        held: AtomicUsize,
    }

    impl BufferLimit for Room {
        fn check(&self, bytes: usize) -> Result<(), BufferExcess> {
            match self.held() + bytes > self.max {
                true => Err(FULL),
                false => Ok(()),
            }
        }

        fn reserve(&self, bytes: usize) -> Result<(), BufferExcess> {
            self.check(bytes).map(|()| self.add(bytes))
        }

        fn add(&self, bytes: usize) {
            self.held.fetch_add(bytes, Ordering::SeqCst);
        }

        fn release(&self, bytes: usize) {
            self.held.fetch_sub(bytes, Ordering::SeqCst);
        }

        fn share(&self, data: &[u8]) {
            self.add(data.len());
        }

        fn unshare(&self, data: &[u8]) {
            self.release(data.len());
        }
    }

    impl Room {
        fn of(max: usize) -> (Arc<Self>, BufferAllowance) {
            let room = Arc::new(Self { max, held: AtomicUsize::new(0) });
            (room.clone(), BufferAllowance::new(room))
        }

        fn held(&self) -> usize {
            self.held.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn bytes_count_until_the_last_copy_of_them_is_dropped() {
        let (room, allowance) = Room::of(100_000);
        let mut held = HeldBytes::of_request(Some(&allowance));
        for (bytes, counted) in [(1, 0), (8192, 0), (8193, 8193), (100, 8193), (50_000, 50_000)] {
            held.grow_to(bytes).expect("room");
            assert_eq!(room.held(), counted);
        }
        let data = held.guard(Bytes::from(vec![7; 40_000]));
        let part = data.slice(10..20);
        drop(data);
        assert_eq!((room.held(), &part[..]), (50_000, &[7; 10][..]));
        drop(part);
        assert_eq!(room.held(), 0);
    }

    #[test]
    fn what_is_refused_is_not_counted() {
        let (room, allowance) = Room::of(50_000);
        let mut held = HeldBytes::of_request(Some(&allowance));
        held.grow_to(30_000).expect("room");
        assert_eq!(held.grow_to(60_000), Err(FULL));
        assert_eq!(room.held(), 30_000);
        // A small body needs no room.
        HeldBytes::of_request(Some(&allowance)).grow_to(8192).expect("uncounted");
        assert_eq!(allowance.check(20_001), Err(FULL));
        assert_eq!((allowance.check(20_000), allowance.check(8192)), (Ok(()), Ok(())));
        drop(held);
        assert_eq!(room.held(), 0);
    }

    #[test]
    fn a_response_is_never_refused() {
        let (room, allowance) = Room::of(50_000);
        let responses = [60_000, 8192].map(|len| hold(Some(&allowance), Bytes::from(vec![0; len])));
        assert_eq!(room.held(), 60_000);
        // Whoever holds more than it may sends nothing more, however small.
        assert_eq!(allowance.check(0), Err(FULL));
        drop(responses);
        assert_eq!((room.held(), allowance.check(0)), (0, Ok(())));
        let replays = [60_000, 8192].map(|len| share(Some(&allowance), Bytes::from(vec![0; len])));
        assert_eq!((room.held(), allowance.check(0)), (60_000, Err(FULL)));
        drop(replays);
        assert_eq!(room.held(), 0);
    }
}
