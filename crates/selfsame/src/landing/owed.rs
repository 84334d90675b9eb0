//! [`Owed`]: a write that the store could not take yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use http::header::LOCATION;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use selfsame_core::{Answer, AnswerBody, AttemptId, Lease, RecordId, Release, Sent};

/// Number of looks for a claim of which nothing was heard, after it was not found. What was sent may
/// still arrive for as long as the network repeats it, at pauses that double: so do the looks, from a
/// second on, over two minutes.
const LOOKS_MAX: u32 = 7;

/// Limit of a `Location` that is kept without its answer.
const LOCATION_BYTES_MAX: usize = 1024;

/// A write that waits for the store.
pub(super) struct Owed {
    pub(super) id: RecordId,
    pub(super) attempt_id: AttemptId,
    pub(super) write: Write,
    /// Set once it is written, or was given up.
    pub(super) is_over: AtomicBool,
}

pub(super) enum Write {
    /// The work is done.
    Complete { lease: Lease, answer: Mutex<Place> },
    /// The work ended without an answer to keep.
    Release { lease: Lease, release: Release, sent: Sent },
    /// The work never began. `looks` counts how often the store was asked in vain; there are none where
    /// the claim was heard of. `is_spooled` where an earlier process left it in the spool.
    Cancel { looks: Option<AtomicU32>, is_spooled: bool },
}

/// Where an answer is.
#[derive(Clone)]
pub(super) enum Place {
    Memory {
        answer: Arc<Answer>,
        bytes: usize,
    },
    /// With the status that it has, should its file be lost.
    Spool(StatusCode),
}

impl Owed {
    pub(super) fn completion(lease: Lease, answer: Place) -> Arc<Self> {
        let write = Write::Complete { lease, answer: Mutex::new(answer) };
        Self::of(lease.id, lease.attempt_id, write)
    }

    pub(super) fn release(lease: Lease, release: Release, sent: Sent) -> Arc<Self> {
        Self::of(lease.id, lease.attempt_id, Write::Release { lease, release, sent })
    }

    /// The end of a claim that was granted and not used.
    pub(super) fn unused(lease: Lease) -> Arc<Self> {
        let write = Write::Cancel { looks: None, is_spooled: false };
        Self::of(lease.id, lease.attempt_id, write)
    }

    /// The end of a claim of which nothing was heard.
    pub(super) fn unheard(id: RecordId, attempt_id: AttemptId) -> Arc<Self> {
        Self::of(
            id,
            attempt_id,
            Write::Cancel { looks: Some(AtomicU32::new(0)), is_spooled: false },
        )
    }

    /// The end of a claim of which an earlier process heard nothing, or which it did not use.
    pub(super) fn spooled(id: RecordId, attempt_id: AttemptId) -> Arc<Self> {
        Self::of(id, attempt_id, Write::Cancel { looks: Some(AtomicU32::new(0)), is_spooled: true })
    }

    fn of(id: RecordId, attempt_id: AttemptId, write: Write) -> Arc<Self> {
        Arc::new(Self { id, attempt_id, write, is_over: AtomicBool::new(false) })
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    pub(super) fn is_cancellation(&self) -> bool {
        matches!(self.write, Write::Cancel { .. })
    }

    pub(super) fn is_answer(&self) -> bool {
        matches!(self.write, Write::Complete { .. })
    }

    /// Tells if the store knows no such claim, which may only be on its way.
    pub(super) fn is_looked_for(&self) -> bool {
        match &self.write {
            Write::Cancel { looks: Some(looks), .. } => looks.load(Ordering::SeqCst) > 0,
            _ => false,
        }
    }

    /// Pause before the claim is looked for again that the store does not know; nothing if it
    /// is not.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let Write::Cancel { looks: Some(looks), .. } = &self.write else { return None };
        let made = looks.fetch_add(1, Ordering::SeqCst);
        (made < LOOKS_MAX).then(|| Duration::from_secs(1 << made))
    }
}

/// An answer for which there is no room: it says that the work was done.
pub(super) fn without_body(answer: &Answer) -> Answer {
    let mut headers = HeaderMap::new();
    if let Some(location) = answer.headers.get(LOCATION)
        && location.len() <= LOCATION_BYTES_MAX
    {
        headers.insert(LOCATION, location.clone());
    }
    Answer { headers, ..status_alone(answer.status) }
}

pub(super) fn status_alone(status: StatusCode) -> Answer {
    let (headers, trailers) = (HeaderMap::new(), HeaderMap::new());
    Answer { status, headers, body: AnswerBody::NotKept, trailers }
}
