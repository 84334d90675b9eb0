//! What of a record is sealed: its answer, status aside, and the data of its checkpoint.

use std::borrow::Cow;

use http::HeaderMap;
use selfsame_core::{
    Answer, AnswerBody, Checkpoint, Record, RecordId, State, StoreError, StoreErrorKind, wire,
};

use super::{Kind, Seal};

impl Seal {
    /// The answer as this record keeps it. One that is sealed already stays as it is.
    pub(crate) fn closed_answer<'a>(&self, id: &RecordId, answer: &'a Answer) -> Cow<'a, Answer> {
        if let AnswerBody::Sealed(_) = answer.body {
            return Cow::Borrowed(answer);
        }
        let Some(keys) = self.keys() else { return Cow::Borrowed(answer) };
        let sealed = keys.close(id, Kind::Answer, &wire::encode_bare_answer(answer));
        Cow::Owned(Answer {
            status: answer.status,
            headers: HeaderMap::new(),
            body: AnswerBody::Sealed(sealed.into()),
            trailers: HeaderMap::new(),
        })
    }

    /// The answer as it was given.
    pub(crate) fn opened_answer(&self, id: &RecordId, kept: Answer) -> Result<Answer, StoreError> {
        let AnswerBody::Sealed(sealed) = &kept.body else { return Ok(kept) };
        let plain = self.open(id, Kind::Answer, sealed)?;
        let answer = wire::decode_bare_answer(&plain)?;
        // What could be read without the key could also be changed without it.
        match answer.status == kept.status {
            true => Ok(answer),
            false => {
                let text = "the status of a stored answer was changed";
                Err(StoreError::new(StoreErrorKind::Damaged, text))
            }
        }
    }

    /// The checkpoint as this record keeps it.
    pub(crate) fn closed_checkpoint<'a>(
        &self,
        id: &RecordId,
        checkpoint: &'a Checkpoint,
    ) -> Cow<'a, Checkpoint> {
        let Some(keys) = self.keys() else { return Cow::Borrowed(checkpoint) };
        let Checkpoint { recovery_point, data, .. } = checkpoint;
        let sealed = keys.close(id, Kind::Checkpoint, &named(recovery_point, data));
        let recovery_point = recovery_point.clone();
        Cow::Owned(Checkpoint { recovery_point, data: sealed.into(), is_sealed: true })
    }

    /// The checkpoint as it was saved.
    pub(crate) fn opened_checkpoint(
        &self,
        id: &RecordId,
        kept: Checkpoint,
    ) -> Result<Checkpoint, StoreError> {
        if !kept.is_sealed {
            return Ok(kept);
        }
        let plain = self.open(id, Kind::Checkpoint, &kept.data)?;
        let data = plain.strip_prefix(&named(&kept.recovery_point, b"")[..]).ok_or_else(|| {
            let text = "the name of a stored recovery point was changed";
            StoreError::new(StoreErrorKind::Damaged, text)
        })?;
        Ok(Checkpoint::new(kept.recovery_point, plain.slice_ref(data)))
    }

    /// The record as it was before any of it was sealed.
    pub(crate) fn opened(&self, mut record: Record) -> Result<Record, StoreError> {
        record.state = match record.state {
            State::Completed { at, answer } => {
                State::Completed { at, answer: self.opened_answer(&record.id, answer)? }
            }
            other => other,
        };
        record.checkpoint = match record.checkpoint {
            Some(checkpoint) => Some(self.opened_checkpoint(&record.id, checkpoint)?),
            None => None,
        };
        Ok(record)
    }
}

/// The data with the name before it: a name that was changed is noticed.
fn named(recovery_point: &str, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(recovery_point.len()).expect("a name is far below 4 GiB");
    [&len.to_be_bytes()[..], recovery_point.as_bytes(), data].concat()
}

#[cfg(test)]
mod tests {
    use selfsame_core::conformance::samples;

    use super::*;
    use crate::seal::Keyring;

    const ID: RecordId = RecordId::from_bytes([1; RecordId::LEN]);

    fn seal() -> Seal {
        let line = Keyring::new_line("a").expect("a fitting id");
        Seal::new(Keyring::parse(&line).expect("valid"))
    }

    #[test]
    fn an_answer_shows_its_status_alone() {
        let seal = seal();
        let mut answer = samples::answer("secret");
        answer.headers.insert("x-secret", "1".parse().expect("a value"));
        answer.trailers.insert("x-secret", "2".parse().expect("a value"));
        for body in [answer.body.clone(), AnswerBody::NotKept] {
            let answer = Answer { body, ..answer.clone() };
            let kept = seal.closed_answer(&ID, &answer).into_owned();
            assert_eq!(kept.status, answer.status);
            assert!(kept.headers.is_empty() && kept.trailers.is_empty());
            assert_eq!(*seal.closed_answer(&ID, &kept), kept, "it is not sealed twice");
            assert_eq!(seal.opened_answer(&ID, kept).expect("opens"), answer);
        }
    }

    #[test]
    fn what_can_be_read_cannot_be_changed() {
        let seal = seal();
        let mut kept = seal.closed_answer(&ID, &samples::answer("secret")).into_owned();
        kept.status = http::StatusCode::IM_A_TEAPOT;
        assert!(seal.opened_answer(&ID, kept).expect_err("changed").is_damaged());

        let checkpoint = samples::checkpoint("charged");
        let kept = seal.closed_checkpoint(&ID, &checkpoint).into_owned();
        assert_eq!(seal.opened_checkpoint(&ID, kept.clone()).expect("opens"), checkpoint);
        let renamed = Checkpoint { recovery_point: "refunded".to_owned(), ..kept };
        assert!(seal.opened_checkpoint(&ID, renamed).expect_err("changed").is_damaged());
    }
}
