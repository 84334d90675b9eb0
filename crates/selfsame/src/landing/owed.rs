//! [`Owed`]: a write that the store could not take yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use http::header::LOCATION;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use selfsame_core::{Answer, AnswerBody, AttemptId, Lease, RecordId, Release, Sent};

use crate::spool::Spooled;

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
    /// Set once it is in the spool.
    pub(super) is_spooled: AtomicBool,
    /// Set while it is being written to the spool.
    pub(super) is_spooling: AtomicBool,
    /// Set once it is written, or was given up.
    pub(super) is_over: AtomicBool,
}

pub(super) enum Write {
    /// The work is done.
    Complete { lease: Lease, answer: Mutex<Place> },
    /// The work ended without an answer to keep.
    Release { lease: Lease, release: Release, sent: Sent },
    /// The work never began. `looks` counts how often the store was asked in vain; there are none where
    /// the claim was heard of.
    Cancel { looks: Option<AtomicU32> },
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
        Self::of(lease.id, lease.attempt_id, Write::Cancel { looks: None })
    }

    /// The end of a claim of which nothing was heard.
    pub(super) fn unheard(id: RecordId, attempt_id: AttemptId) -> Arc<Self> {
        Self::of(id, attempt_id, Write::Cancel { looks: Some(AtomicU32::new(0)) })
    }

    /// A write that an earlier process has left in the spool.
    pub(super) fn spooled(spooled: Spooled) -> Arc<Self> {
        let owed = match spooled {
            Spooled::Answer { lease, status } => Self::completion(lease, Place::Spool(status)),
            Spooled::Release { lease, release } => Self::release(lease, release, Sent::Repeatedly),
            Spooled::Cancellation { id, attempt_id } => Self::unheard(id, attempt_id),
        };
        owed.is_spooled.store(true, Ordering::SeqCst);
        owed
    }

    fn of(id: RecordId, attempt_id: AttemptId, write: Write) -> Arc<Self> {
        let (is_spooled, is_spooling, is_over) = Default::default();
        Arc::new(Self { id, attempt_id, write, is_spooled, is_spooling, is_over })
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    pub(super) fn is_spooled(&self) -> bool {
        self.is_spooled.load(Ordering::SeqCst)
    }

    pub(super) fn is_answer(&self) -> bool {
        matches!(self.write, Write::Complete { .. })
    }

    /// Tells if the store knows no such claim, which may only be on its way.
    pub(super) fn is_looked_for(&self) -> bool {
        match &self.write {
            Write::Cancel { looks: Some(looks) } => looks.load(Ordering::SeqCst) > 0,
            _ => false,
        }
    }

    /// Pause before the claim is looked for again that the store does not know; nothing if it
    /// is not.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let Write::Cancel { looks: Some(looks) } = &self.write else { return None };
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
