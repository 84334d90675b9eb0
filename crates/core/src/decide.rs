//! The claim table: what a request is told, by what is known of its key. Pure.

use crate::{Ask, Claimed, Grant, Kept, Lease, Record, Replay, State, Timestamp};

/// What a claim comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It runs.
    Run(Start),
    /// It gets the recorded answer.
    Replay,
    /// Somebody runs.
    Busy,
    /// The key stands for another request.
    Reused,
    /// A person decides.
    Held,
    /// The key was used, and its answer is gone.
    Expired,
}

/// How a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The key is new, or new again.
    First,
    /// The claim is already the asker's: an acknowledgement was lost.
    Mine,
    /// The run before ended in a way that allows another.
    Again,
    /// The run before died, and may be resumed.
    TakeOver,
}

/// The claim table, in its order.
pub fn decide<A>(found: Option<&Record<A>>, ask: &Ask, now: Timestamp) -> Decision {
    let Some(record) = found.filter(|record| !record.is_expired(now)) else {
        return Decision::Run(Start::First);
    };
    if record.is_tombstone(now) {
        return Decision::Expired;
    }
    if record.fingerprint != ask.fingerprint {
        return Decision::Reused;
    }
    match record.state {
        State::Tombstone => Decision::Expired,
        State::Completed { .. } => Decision::Replay,
        State::Claimed { .. } if record.attempt_id == ask.attempt_id => Decision::Run(Start::Mine),
        State::Claimed { .. } if record.is_leased(now) => Decision::Busy,
        State::Claimed { .. } if record.is_resumable() => Decision::Run(Start::TakeOver),
        State::Failed => Decision::Run(Start::Again),
        State::Claimed { .. } | State::Held { .. } => Decision::Held,
    }
}

/// The answer that a claim comes to, where it comes to one.
pub fn answered<A: Kept>(record: &Record<A>, ask: &Ask, now: Timestamp) -> Option<Replay> {
    match (decide(Some(record), ask, now), &record.state) {
        (Decision::Replay, State::Completed { answer, .. }) => {
            Some(Replay { answer: answer.restored(), expires_at: record.expires_at })
        }
        _ => None,
    }
}

/// What a claim comes to, and the record to write, durably, before saying so.
pub fn claim<A: Clone + Kept>(
    found: Option<&Record<A>>,
    ask: &Ask,
    now: Timestamp,
) -> (Claimed, Option<Record<A>>) {
    match (decide(found, ask, now), found) {
        (Decision::Run(start), Some(record)) if start != Start::First => {
            let next = match start {
                Start::Mine => renewed(record, ask, now),
                _ => record.claimed_again(ask, now),
            };
            (Claimed::Run(Box::new(grant(&next, ask, start))), Some(next))
        }
        (Decision::Run(start), _) => {
            let next = Record::first(ask, now);
            (Claimed::Run(Box::new(grant(&next, ask, start))), Some(next))
        }
        (
            Decision::Replay,
            Some(&Record { state: State::Completed { ref answer, .. }, expires_at, .. }),
        ) => {
            let replay = Replay { answer: answer.restored(), expires_at };
            (Claimed::Replay(Box::new(replay)), None)
        }
        (Decision::Busy, Some(Record { state: State::Claimed { lease_until }, .. })) => {
            (Claimed::Busy { lease_left: lease_until.since(now) }, None)
        }
        (Decision::Held, Some(record)) => {
            let mut next = record.clone();
            next.settle(now);
            let newly = !matches!(record.state, State::Held { .. });
            (Claimed::Held { newly }, newly.then_some(next))
        }
        (Decision::Reused, _) => (Claimed::Reused, None),
        (Decision::Expired, _) => (Claimed::Expired, None),
        (Decision::Replay | Decision::Busy | Decision::Held, _) => {
            unreachable!("these are decided from a record in that very state")
        }
    }
}

fn renewed<A: Clone>(record: &Record<A>, ask: &Ask, now: Timestamp) -> Record<A> {
    Record { state: State::Claimed { lease_until: now + ask.lease }, ..record.clone() }
}

fn grant<A>(record: &Record<A>, ask: &Ask, start: Start) -> Grant {
    Grant {
        lease: Lease {
            id: record.id,
            fence: record.fence,
            attempt_id: record.attempt_id,
            length: ask.lease,
        },
        attempt: record.attempt,
        birth: record.birth,
        checkpoint: record.checkpoint.clone(),
        took_over: start == Start::TakeOver,
        expires_at: record.expires_at,
    }
}

#[cfg(test)]
mod tests;
