//! What a person decides about a held key, and only about that.

use super::Trial;
use super::samples::{HOUR, LEASE, MARGIN, RETENTION, answer, ask, checkpoint, retry};
use crate::Fenced::{Applied, Lost};
use crate::{
    Ask, AttemptId, Keepsake, Lease, Note, RecordId, Recover, Release, Resolution, Resolved,
    Verdict,
};

/// The work was not done: the next retry does it, and it is one more attempt.
pub async fn a_key_that_was_freed_runs_again(trial: Trial) {
    let (first, lease) = hold(&trial).await;
    let freed = trial.resolve(&first.id, lease.fence, &Resolution::free()).await;
    assert_eq!(freed, Resolved::Done);
    let grant = trial.run(&retry(&first)).await;
    assert_eq!(grant.attempt, 2);
    assert!(grant.lease.fence > lease.fence);
    assert_eq!(grant.checkpoint, Some(checkpoint("paid")));
}

/// The work was done: its answer is what every retry gets.
pub async fn a_key_that_was_completed_by_hand_replays(trial: Trial) {
    let (first, lease) = hold(&trial).await;
    let by_hand = Resolution::complete(answer("by hand"));
    assert_eq!(trial.resolve(&first.id, lease.fence, &by_hand).await, Resolved::Done);
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("by hand"));
}

/// A decision long after the retention is an outcome, and kept as one.
pub async fn a_decision_is_kept_for_an_hour(trial: Trial) {
    let (first, lease) = hold(&trial).await;
    trial.pass(RETENTION * 2).await;
    let by_hand = Resolution::complete(answer("by hand"));
    assert_eq!(trial.resolve(&first.id, lease.fence, &by_hand).await, Resolved::Done);
    trial.pass(HOUR - MARGIN).await;
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("by hand"));
    trial.pass(MARGIN * 2).await;
    assert_eq!(trial.run(&retry(&first)).await.attempt, 1);
}

/// A dead claim waits for a person before anyone retried it.
pub async fn a_dead_claim_to_be_held_can_be_resolved(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    let lease = trial.run(&first).await.lease;
    trial.pass(LEASE + MARGIN).await;
    let freed = trial.resolve(&first.id, lease.fence, &Resolution::free()).await;
    assert_eq!(freed, Resolved::Done);
    assert_eq!(trial.run(&retry(&first)).await.attempt, 2);
}

/// Nobody decides over what runs, what may run, or what is answered.
pub async fn only_a_held_key_can_be_resolved(trial: Trial) {
    let running = trial.run(&ask("running")).await.lease;
    expect_not_held(&trial, &running).await;
    let failed = trial.run(&ask("failed")).await.lease;
    assert_eq!(trial.release(&failed, Release::Retry).await, Applied);
    expect_not_held(&trial, &failed).await;
    let completed = trial.run(&ask("completed")).await.lease;
    assert_eq!(trial.complete(&completed, &answer("done")).await, Applied);
    expect_not_held(&trial, &completed).await;
    trial.pass(LEASE + MARGIN).await;
    expect_not_held(&trial, &running).await;
}

/// Nor over what is not there, or no longer.
pub async fn a_missing_key_cannot_be_resolved(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    let nowhere = RecordId::from_bytes([9; RecordId::LEN]);
    trial.pass(RETENTION + MARGIN).await;
    for id in [nowhere, first.id] {
        let resolved = trial.resolve(&id, lease.fence, &Resolution::free()).await;
        assert_eq!(resolved, Resolved::Missing);
    }
}

/// A page that was opened before the key ran again shows another key's fate.
pub async fn a_key_is_resolved_only_as_it_was_seen(trial: Trial) {
    let (first, seen) = hold(&trial).await;
    assert_eq!(trial.resolve(&first.id, seen.fence, &Resolution::free()).await, Resolved::Done);
    let again = trial.run(&retry(&first)).await.lease;
    assert_eq!(trial.release(&again, Release::Hold).await, Applied);
    let before = trial.record(&first.id).await;
    let by_hand = Resolution::complete(answer("by hand"));
    assert_eq!(trial.resolve(&first.id, seen.fence, &by_hand).await, Resolved::NotHeld);
    assert_eq!(trial.record(&first.id).await, before);
}

/// Two people decide at the same time: one of them does.
pub async fn one_of_two_decisions_counts(trial: Trial) {
    let (first, lease) = hold(&trial).await;
    let rivals = ["left", "right"].map(|hand| {
        let (trial, id) = (trial.clone(), first.id);
        async move { trial.resolve(&id, lease.fence, &Resolution::complete(answer(hand))).await }
    });
    let winner = match trial.race(rivals).await[..] {
        [Resolved::Done, Resolved::NotHeld] => "left",
        [Resolved::NotHeld, Resolved::Done] => "right",
        ref both => panic!("one decision counts, not {both:?}"),
    };
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer(winner));
}

/// Whoever ran before a decision can change nothing after it.
pub async fn a_decision_ends_the_claim_before_it(trial: Trial) {
    for resolution in [Resolution::free(), Resolution::complete(answer("by hand"))] {
        let first = ask(match resolution.verdict {
            Verdict::Free => "freed",
            Verdict::Complete(_) => "completed",
        });
        let lease = trial.run(&first).await.lease;
        assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
        let seen = trial.record(&first.id).await.fence;
        assert_eq!(trial.resolve(&first.id, seen, &resolution).await, Resolved::Done);
        let before = trial.record(&first.id).await;
        assert_eq!(trial.renew(&lease).await, Lost);
        assert_eq!(trial.checkpoint(&lease, &checkpoint("late")).await, Lost);
        assert_eq!(trial.complete(&lease, &answer("late")).await, Lost);
        assert_eq!(trial.release(&lease, Release::Retry).await, Lost);
        let forged = Lease { fence: before.fence, attempt_id: AttemptId::random(), ..lease };
        assert_eq!(trial.complete(&forged, &answer("forged")).await, Lost);
        assert_eq!(trial.record(&first.id).await, before);
    }
}

/// A later look at the key shows who decided, when and why, also after its next run.
pub async fn a_decision_keeps_who_made_it_and_why(trial: Trial) {
    for free in [true, false] {
        let line = Some("POST /charges/7".into());
        let keepsake = Keepsake { line, ..Keepsake::default() };
        let first = Ask {
            keepsake: Some(Box::new(keepsake)),
            ..ask(if free { "freed" } else { "completed" })
        };
        let lease = trial.run(&first).await.lease;
        assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
        let held = trial.record(&first.id).await;
        let resolution = match free {
            true => Resolution::free(),
            false => Resolution::complete(answer("by hand")),
        };
        let resolution = resolution.noted(Note::new("alice", Some("no such charge")));
        assert_eq!(trial.resolve(&first.id, held.fence, &resolution).await, Resolved::Done);
        let at = trial.now().await;
        if free {
            let again = trial.run(&retry(&first)).await.lease;
            assert_eq!(trial.complete(&again, &answer("done")).await, Applied);
        }
        let keepsake = trial.record(&first.id).await.keepsake.expect("it has a line and a note");
        assert_eq!(keepsake.line.as_deref(), Some("POST /charges/7"));
        let note = keepsake.note.expect("somebody decided");
        assert_eq!((&*note.by, note.reason.as_deref()), ("alice", Some("no such charge")));
        assert!(note.at <= at && at.since(note.at) <= MARGIN, "{note:?}");
    }
}

async fn hold(trial: &Trial) -> (Ask, Lease) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
    // A person decides about the fence that is seen.
    let fence = trial.record(&first.id).await.fence;
    (first, Lease { fence, ..lease })
}

async fn expect_not_held(trial: &Trial, lease: &Lease) {
    let before = trial.record(&lease.id).await;
    for resolution in [Resolution::free(), Resolution::complete(answer("by hand"))] {
        let resolved = trial.resolve(&lease.id, lease.fence, &resolution).await;
        assert_eq!(resolved, Resolved::NotHeld);
    }
    assert_eq!(trial.record(&lease.id).await, before);
}
