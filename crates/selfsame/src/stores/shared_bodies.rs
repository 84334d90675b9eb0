//! [`SharedBodies`]: large bodies of replays under way, each in memory once.
//!
//! A store reads an answer anew for each retry. Clients that ask for the same one many times, and do not
//! take it, would each hold a copy.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use selfsame_core::{Answer, AnswerBody, RecordId};

/// The smallest bodies that are shared. To find a smaller one costs more than it spares.
const BODY_BYTES_MIN: usize = 64 * 1024;

/// Bodies that are being sent at the moment.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedBodies(Arc<Held>);

#[derive(Debug, Default)]
struct Held(Mutex<HashMap<RecordId, Weak<Body>>>);

/// A body that is being sent at least once.
#[derive(Debug)]
struct Body {
    bytes: Bytes,
    id: RecordId,
    held: Weak<Held>,
}

impl Drop for Body {
    fn drop(&mut self) {
        let Some(held) = self.held.upgrade() else { return };
        let mut held = held.0.lock();
        // Another may have come in its place since.
        if held.get(&self.id).is_some_and(|body| body.strong_count() == 0) {
            held.remove(&self.id);
        }
    }
}

/// One of those who send it.
struct Sharer(Arc<Body>);

impl AsRef<[u8]> for Sharer {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl SharedBodies {
    /// `answer`, with the body that others already have of this record, if it is the same.
    pub(super) fn share(&self, id: &RecordId, answer: Answer) -> Answer {
        match answer.body {
            AnswerBody::Kept(bytes) if bytes.len() >= BODY_BYTES_MIN => {
                let body = self.shared(id, bytes);
                Answer { body: AnswerBody::Kept(Bytes::from_owner(Sharer(body))), ..answer }
            }
            _ => answer,
        }
    }

    fn shared(&self, id: &RecordId, bytes: Bytes) -> Arc<Body> {
        let known = self.0.0.lock().get(id).and_then(Weak::upgrade);
        // Compared without the lock: it may be a megabyte.
        if let Some(known) = known.filter(|known| known.bytes == bytes) {
            return known;
        }
        let body = Arc::new(Body { bytes, id: *id, held: Arc::downgrade(&self.0) });
        let before = self.0.0.lock().insert(*id, Arc::downgrade(&body));
        drop(before);
        body
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};

    use super::*;

    fn answer(byte: u8, len: usize) -> Answer {
        let body = AnswerBody::Kept(Bytes::from(vec![byte; len]));
        let (headers, trailers) = (HeaderMap::new(), HeaderMap::new());
        Answer { status: StatusCode::OK, headers, body, trailers }
    }

    fn bytes(answer: &Answer) -> &Bytes {
        match &answer.body {
            AnswerBody::Kept(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_body_is_in_memory_once_and_only_while_it_is_used() {
        let bodies = SharedBodies::default();
        let id = RecordId::from_bytes([1; RecordId::LEN]);
        let first = bodies.share(&id, answer(7, BODY_BYTES_MIN));
        let second = bodies.share(&id, answer(7, BODY_BYTES_MIN));
        assert_eq!(bytes(&first).as_ptr(), bytes(&second).as_ptr());
        assert_eq!(first, answer(7, BODY_BYTES_MIN));
        // A part of it holds it, too.
        let part = bytes(&second).slice(3..9);
        drop((first, second));
        assert_eq!(bodies.0.0.lock().len(), 1);
        assert_eq!(&*part, [7; 6]);
        drop(part);
        assert_eq!(bodies.0.0.lock().len(), 0);
    }

    #[test]
    fn another_body_is_never_taken_for_it() {
        let bodies = SharedBodies::default();
        let id = RecordId::from_bytes([1; RecordId::LEN]);
        let first = bodies.share(&id, answer(7, BODY_BYTES_MIN));
        let other = bodies.share(&id, answer(8, BODY_BYTES_MIN));
        assert_eq!((bytes(&first)[0], bytes(&other)[0]), (7, 8));
        drop(first);
        let again = bodies.share(&id, answer(8, BODY_BYTES_MIN));
        assert_eq!(bytes(&again).as_ptr(), bytes(&other).as_ptr());
        drop((other, again));
        assert_eq!(bodies.0.0.lock().len(), 0);
    }

    #[test]
    fn small_bodies_stay_as_they_are() {
        let bodies = SharedBodies::default();
        let id = RecordId::from_bytes([1; RecordId::LEN]);
        let _small = bodies.share(&id, answer(7, BODY_BYTES_MIN - 1));
        assert_eq!(bodies.0.0.lock().len(), 0);
    }
}
