//! What follows a run that was not heard of again.

use super::Trial;
use super::samples::{LEASE, MARGIN, RETENTION, answer, ask, checkpoint, retry};
use crate::Fenced::Applied;
use crate::{Ask, Claimed, Recover, Release, State};

/// A crash blocks a key for a lease, and not for its retention.
pub async fn a_dead_claim_is_taken_over_after_its_lease(trial: Trial) {
    let first = ask("k");
    let dead = trial.run(&first).await;
    trial.pass(LEASE - MARGIN).await;
    assert!(matches!(trial.claim(&retry(&first)).await, Claimed::Busy { .. }));
    trial.pass(MARGIN * 2).await;
    let second = retry(&first);
    let grant = trial.run(&second).await;
    assert!(grant.took_over);
    assert_eq!(grant.attempt, dead.attempt + 1);
    assert_eq!(grant.lease.fence, dead.lease.fence.next());
    assert_eq!(grant.lease.attempt_id, second.attempt_id);
    assert_eq!(trial.complete(&grant.lease, &answer("done")).await, Applied);
}

/// Each take-over counts.
pub async fn attempts_and_fences_grow_with_each_take_over(trial: Trial) {
    let first = ask("k");
    let mut last = trial.run(&first).await;
    for _ in 0..4 {
        trial.pass(LEASE + MARGIN).await;
        let next = trial.run(&retry(&first)).await;
        assert_eq!(next.attempt, last.attempt + 1);
        assert!(next.lease.fence > last.lease.fence);
        last = next;
    }
}

/// Whoever is heard of keeps the key.
pub async fn a_renewed_lease_lives_on(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    for _ in 0..4 {
        trial.pass(LEASE - MARGIN).await;
        assert_eq!(trial.renew(&lease).await, Applied);
    }
    assert!(matches!(trial.claim(&retry(&first)).await, Claimed::Busy { .. }));
}

/// A renewal counts from its own moment: an early one does not add up.
pub async fn a_renewal_gives_one_lease_from_now(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    for _ in 0..4 {
        assert_eq!(trial.renew(&lease).await, Applied);
    }
    trial.pass(LEASE + MARGIN).await;
    assert!(trial.run(&retry(&first)).await.took_over);
}

/// A run that takes over goes on where the dead one stopped.
pub async fn a_take_over_goes_on_from_the_last_checkpoint(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    for point in ["ride_created", "charge_created"] {
        assert_eq!(trial.checkpoint(&lease, &checkpoint(point)).await, Applied);
    }
    trial.pass(LEASE + MARGIN).await;
    let grant = trial.run(&retry(&first)).await;
    assert_eq!(grant.checkpoint, Some(checkpoint("charge_created")));
    trial.pass(LEASE + MARGIN).await;
    let grant = trial.run(&retry(&first)).await;
    assert_eq!(grant.checkpoint, Some(checkpoint("charge_created")));
}

/// A run after a failure goes on where it stopped.
pub async fn a_retry_goes_on_from_the_last_checkpoint(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    assert_eq!(trial.release(&lease, Release::Retry).await, Applied);
    let grant = trial.run(&retry(&first)).await;
    assert_eq!((grant.checkpoint, grant.took_over), (Some(checkpoint("paid")), false));
}

/// Nothing runs again by itself, and the first to find out is told so.
pub async fn a_dead_claim_is_held_where_a_person_decides(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    let lease = trial.run(&first).await.lease;
    // A recovery point is no leave to resume here.
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    trial.pass(LEASE + MARGIN).await;
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: true });
    assert!(matches!(trial.record(&first.id).await.state, State::Held { .. }));
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: false });
}

/// Of many who find a dead claim, one is the first.
pub async fn one_of_many_rivals_finds_a_key_newly_held(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    trial.run(&first).await;
    trial.pass(LEASE + MARGIN).await;
    let claimed = trial.race_to_claim((0..16).map(|_| retry(&first))).await;
    let count = |newly| claimed.iter().filter(|one| **one == Claimed::Held { newly }).count();
    assert_eq!((count(true), count(false)), (1, 15));
}

/// Automatic recovery resumes where the work has shown that it can.
pub async fn auto_resumes_a_key_with_a_checkpoint(trial: Trial) {
    let first = Ask { recover: Recover::Auto, ..ask("k") };
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    trial.pass(LEASE + MARGIN).await;
    let grant = trial.run(&retry(&first)).await;
    assert_eq!((grant.checkpoint, grant.took_over), (Some(checkpoint("paid")), true));
}

/// And holds where it has not.
pub async fn auto_holds_a_key_without_a_checkpoint(trial: Trial) {
    let first = Ask { recover: Recover::Auto, ..ask("k") };
    trial.run(&first).await;
    trial.pass(LEASE + MARGIN).await;
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: true });
}

/// How a dead run is followed up was decided when it began, not by who finds it.
pub async fn a_dead_claim_is_recovered_as_it_was_asked(trial: Trial) {
    let held = Ask { recover: Recover::Hold, ..ask("held") };
    let resumed = ask("resumed");
    trial.run(&held).await;
    trial.run(&resumed).await;
    trial.pass(LEASE + MARGIN).await;
    let finder = Ask { recover: Recover::Resume, ..retry(&held) };
    assert_eq!(trial.claim(&finder).await, Claimed::Held { newly: true });
    let finder = Ask { recover: Recover::Hold, ..retry(&resumed) };
    assert_eq!(trial.run(&finder).await.attempt, 2);
    trial.pass(LEASE + MARGIN).await;
    assert_eq!(trial.claim(&retry(&resumed)).await, Claimed::Held { newly: true });
}

/// The work was done after all: its answer is the truth, and no person is needed.
pub async fn a_late_answer_settles_a_held_key(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    let lease = trial.run(&first).await.lease;
    trial.pass(RETENTION + MARGIN).await;
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: true });
    assert_eq!(trial.complete(&lease, &answer("late")).await, Applied);
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("late"));
}

/// The owner was only slow: once it is heard of again, the key is busy and no longer unknown.
pub async fn an_owner_heard_of_again_makes_a_held_key_busy(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    let lease = trial.run(&first).await.lease;
    trial.pass(LEASE + MARGIN).await;
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: true });
    assert_eq!(trial.renew(&lease).await, Applied);
    assert!(matches!(trial.claim(&retry(&first)).await, Claimed::Busy { .. }));
    assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
}
