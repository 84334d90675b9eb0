//! What a reader may see of a record.

use selfsame_core::{Due, Record, State, Timestamp};

use crate::op;

/// The record as a sweep leaves it.
pub(crate) fn swept(record: &Record, now: Timestamp) -> Option<Record> {
    let mut record = record.clone();
    match record.due(now) {
        Some(Due::Removal) => return None,
        Some(Due::Burial) => record.bury(now),
        Some(Due::Hold) => record.settle(now),
        None => {}
    }
    Some(record)
}

/// Tells whether a reader of `expected` may see `found`. A lease may be longer than it was, and since
/// when a record is held is whenever that was noticed.
pub(crate) fn is_seen_as(
    expected: Option<&Record>,
    found: Option<&Record>,
    now: Timestamp,
) -> bool {
    let seen = |record: Option<&Record>| record.cloned().and_then(|record| record.seen_at(now));
    let (Some(mut expected), Some(mut found)) = (seen(expected), seen(found)) else {
        return seen(expected).is_none() && seen(found).is_none();
    };
    for record in [&mut expected, &mut found] {
        record.settle(now);
        if let State::Held { since } = &mut record.state {
            *since = Timestamp::default();
        }
    }
    if let (State::Claimed { lease_until }, State::Claimed { lease_until: found_until }) =
        (&mut expected.state, &found.state)
    {
        *lease_until = (*lease_until).max(*found_until);
    }
    expected == found
}

/// A record in a line.
pub fn text(record: Option<&Record>) -> String {
    let Some(record) = record else { return "no record".to_owned() };
    let state = match &record.state {
        State::Completed { at, answer } => {
            format!("completed at {at:?}: {}", op::answer_text(answer))
        }
        other => format!("{other:?}"),
    };
    let checkpoint = record.checkpoint.as_ref();
    let checkpoint = checkpoint
        .map_or(String::new(), |point| format!(", checkpoint {}", op::digest(&point.data)));
    format!(
        "fence {} attempt {} by {} until {:?}{checkpoint}: {state}",
        record.fence.number(),
        record.attempt,
        record.attempt_id,
        record.expires_at,
    )
}
