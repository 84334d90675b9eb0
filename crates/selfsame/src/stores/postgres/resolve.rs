//! A person's decision about a held record.

use selfsame_core::{Fence, RecordId, Resolution, Resolved, StoreError, Timestamp, Verdict, wire};

use super::PostgresStore;
use super::changes::{Change, change};
use super::rows::Row;
use super::writes::Write;
use super::{answers, store};

pub(super) async fn resolve(
    store: &PostgresStore,
    id: &RecordId,
    fence: Fence,
    resolution: &Resolution,
) -> Result<Resolved, StoreError> {
    let answer = match &resolution.verdict {
        Verdict::Complete(answer) => {
            let row = make_room(store, id).await?;
            Some((row, wire::encode_answer(id, answer)))
        }
        Verdict::Free => None,
    };
    let decide = |row: Option<Row>, now: Timestamp| {
        let Some(Row { mut record, seen }) = row.filter(|row| !row.record.is_expired(now)) else {
            return Change::Nothing(Resolved::Missing);
        };
        let resolved = record.resolve(fence, resolution.clone(), now);
        if resolved != Resolved::Done {
            return Change::Nothing(resolved);
        }
        let place = answer.as_ref().map(|(row, _)| answers::place(*row, record.expires_at));
        let mut write = Write::new(seen, record);
        if let (Some(place), Some((_, frame))) = (place, &answer) {
            write = write.with_answer(place, frame.clone());
        }
        Change::Write(Box::new(write), Resolved::Done)
    };
    change(&store.aside, id, store.target.time_out, decide).await
}

async fn make_room(store: &PostgresStore, id: &RecordId) -> Result<i64, StoreError> {
    let session = store::session(&store.aside).await?;
    answers::make_room(&session, &[*id]).await?;
    Ok(answers::next_row(&session).await?)
}
