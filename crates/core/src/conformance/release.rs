//! How a claim ends that has no answer to keep.

use super::Trial;
use super::samples::{LEASE, MARGIN, RETENTION, answer, ask, checkpoint, kept, mismatch, retry};
use crate::Fenced::{Applied, Lost};
use crate::{Ask, Claimed, Fence, Find, Grant, Recover, Release, Resolution, Resolved};

/// Work that provably never began is not an attempt; its key still stands for its request.
pub async fn work_that_never_ran_does_not_count(trial: Trial) {
    let first = ask("k");
    for _ in 0..3 {
        let grant = trial.run(&retry(&first)).await;
        assert_eq!(grant.attempt, 1);
        assert_eq!(trial.release(&grant.lease, Release::NeverRan).await, Applied);
    }
    assert_eq!(trial.claim(&mismatch(&first)).await, Claimed::Reused);
    let grant = trial.run(&retry(&first)).await;
    assert_eq!((grant.attempt, grant.took_over), (1, false));
    assert!(grant.lease.fence > Fence::FIRST);
}

/// Work that ended badly was an attempt.
pub async fn a_retry_counts_as_an_attempt(trial: Trial) {
    let first = ask("k");
    for attempt in 1..4 {
        let grant = trial.run(&retry(&first)).await;
        assert_eq!((grant.attempt, grant.took_over), (attempt, false));
        assert_eq!(trial.release(&grant.lease, Release::Retry).await, Applied);
    }
    assert_eq!(trial.claim(&mismatch(&first)).await, Claimed::Reused);
}

/// A refused first attempt leaves nothing, not even what the key stood for.
pub async fn forgetting_the_first_attempt_leaves_nothing(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.release(&grant.lease, Release::Forget).await, Applied);
    assert_eq!(trial.get(&first.id).await, None);
    let grant = trial.run(&mismatch(&first)).await;
    assert_eq!((grant.attempt, grant.lease.fence), (1, Fence::FIRST));
}

/// An earlier attempt may have done something: its record stays.
pub async fn forgetting_a_later_attempt_keeps_the_record(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.release(&grant.lease, Release::Retry).await, Applied);
    let second = trial.run(&retry(&first)).await;
    assert_eq!(trial.release(&second.lease, Release::Forget).await, Applied);
    assert_eq!(trial.claim(&mismatch(&first)).await, Claimed::Reused);
    assert_eq!(trial.run(&retry(&first)).await.attempt, 3);
}

/// What reached a recovery point did something: it is not forgotten.
pub async fn forgetting_keeps_a_record_with_a_checkpoint(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.checkpoint(&grant.lease, &checkpoint("paid")).await, Applied);
    assert_eq!(trial.release(&grant.lease, Release::Forget).await, Applied);
    let grant = trial.run(&retry(&first)).await;
    assert_eq!((grant.attempt, grant.checkpoint), (2, Some(checkpoint("paid"))));
}

/// A crash that is known of need not wait for the lease.
pub async fn a_crash_frees_the_key_where_it_may_resume(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.checkpoint(&grant.lease, &checkpoint("paid")).await, Applied);
    assert_eq!(trial.release(&grant.lease, Release::Crashed).await, Applied);
    let grant = trial.run(&retry(&first)).await;
    assert_eq!((grant.attempt, grant.checkpoint), (2, Some(checkpoint("paid"))));
}

/// A crash frees nothing where a person decides.
pub async fn a_crash_holds_the_key_where_it_may_not_resume(trial: Trial) {
    for recover in [Recover::Hold, Recover::Auto] {
        let first = Ask { recover, ..ask(&format!("{recover:?}")) };
        let grant = trial.run(&first).await;
        assert_eq!(trial.release(&grant.lease, Release::Crashed).await, Applied);
        assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: false });
    }
}

/// Work that may still be going on must not meet its successor.
pub async fn unheard_work_runs_again_only_after_its_lease(trial: Trial) {
    let first = ask("k");
    let Grant { lease, .. } = trial.run(&first).await;
    assert_eq!(trial.release(&lease, Release::Unheard).await, Applied);
    assert!(matches!(trial.claim(&retry(&first)).await, Claimed::Busy { .. }));
    trial.pass(LEASE + MARGIN).await;
    assert_eq!(trial.run(&retry(&first)).await.attempt, 2);
}

/// Where nothing may resume, nobody waits for the lease to say so.
pub async fn unheard_work_is_held_where_it_may_not_resume(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.release(&lease, Release::Unheard).await, Applied);
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: false });
}

/// Nobody waits: whoever comes next, its client or somebody else, takes over at once.
pub async fn postponed_work_stays_abandoned(trial: Trial) {
    let first = kept("k");
    let mut grant = trial.run(&first).await;
    for (release, attempt) in [(Release::Postponed, 2), (Release::PostponedUnrun, 2)] {
        assert_eq!(trial.release(&grant.lease, release).await, Applied);
        assert_eq!(trial.renew(&grant.lease).await, Lost, "{release:?}");
        let found = trial.find(&Find::Abandoned { after: None }, 10).await;
        assert_eq!(found.len(), 1, "{release:?}");
        let next = trial.run(&retry(&first)).await;
        assert_eq!((next.attempt, next.took_over), (attempt, true), "{release:?}");
        assert!(next.lease.fence > grant.lease.fence);
        grant = next;
    }
}

/// Where nothing may resume, a person decides.
pub async fn postponed_work_is_held_where_it_may_not_resume(trial: Trial) {
    for release in [Release::Postponed, Release::PostponedUnrun] {
        let first = Ask { recover: Recover::Auto, ..ask(&format!("{release:?}")) };
        let lease = trial.run(&first).await.lease;
        assert_eq!(trial.release(&lease, release).await, Applied);
        assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: false });
    }
}

/// Whoever gave its key up to a person has said its last word: a renewal of its own that was
/// under way does not make the key busy again.
pub async fn a_hold_cannot_be_renewed_away(trial: Trial) {
    for release in [Release::Crashed, Release::Unheard, Release::Hold] {
        let first = Ask { recover: Recover::Hold, ..ask(&format!("{release:?}")) };
        let lease = trial.run(&first).await.lease;
        assert_eq!(trial.release(&lease, release).await, Applied);
        assert_eq!(trial.renew(&lease).await, Lost);
        assert_eq!(trial.complete(&lease, &answer("late")).await, Lost);
        assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: false });
    }
}

/// A hold is a hold, even where dead claims are resumed.
pub async fn a_hold_holds_whatever_recover_says(trial: Trial) {
    for recover in [Recover::Resume, Recover::Auto, Recover::Hold] {
        let first = Ask { recover, ..ask(&format!("{recover:?}")) };
        let lease = trial.run(&first).await.lease;
        assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
        assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
        trial.pass(LEASE + MARGIN).await;
        assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: false });
    }
}

/// A release that comes late, because the store was away, frees a key that is held only because the lease
/// ran out meanwhile, whoever noted that.
pub async fn a_late_release_frees_a_key_that_only_its_lease_held(trial: Trial) {
    for is_swept in [false, true] {
        for release in [Release::NeverRan, Release::Retry, Release::Forget] {
            let first = Ask { recover: Recover::Hold, ..ask(&format!("{release:?}-{is_swept}")) };
            let lease = trial.run(&first).await.lease;
            trial.pass(LEASE + MARGIN).await;
            match is_swept {
                true => drop(trial.sweep_all(100).await),
                false => {
                    let held = trial.claim(&retry(&first)).await;
                    assert_eq!(held, Claimed::Held { newly: true });
                }
            }
            assert_eq!(trial.release(&lease, release).await, Applied, "{release:?}");
            let attempt = if release == Release::Retry { 2 } else { 1 };
            assert_eq!(trial.run(&retry(&first)).await.attempt, attempt, "{release:?}");
            assert_eq!(trial.release(&lease, release).await, Lost, "{release:?}");
        }
    }
}

/// Once a person decided, or the owner itself left the key to one, a late release changes nothing.
pub async fn a_late_release_changes_no_decision(trial: Trial) {
    for resolution in [Resolution::free(), Resolution::complete(answer("by hand"))] {
        let is_free = resolution == Resolution::free();
        let first = Ask { recover: Recover::Hold, ..ask(&format!("{is_free}")) };
        let lease = trial.run(&first).await.lease;
        trial.pass(LEASE + MARGIN).await;
        assert_eq!(trial.resolve(&first.id, lease.fence, &resolution).await, Resolved::Done);
        let before = trial.record(&first.id).await;
        for release in Release::ALL {
            assert_eq!(trial.release(&lease, release).await, Lost, "{release:?}");
        }
        assert_eq!(trial.cancel(&first.id, lease.attempt_id).await, Lost);
        assert_eq!(trial.record(&first.id).await, before);
    }
    let first = Ask { recover: Recover::Hold, ..ask("left") };
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
    assert_eq!(trial.release(&lease, Release::Retry).await, Lost);
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: false });
}

/// The attempt id is enough to cancel a claim that was not heard of. Once more changes nothing.
pub async fn a_claim_that_never_began_is_cancelled_by_its_attempt_id(trial: Trial) {
    let first = ask("k");
    let failed = trial.run(&first).await.lease;
    assert_eq!(trial.release(&failed, Release::Retry).await, Applied);
    let second = retry(&first);
    assert_eq!(trial.run(&second).await.attempt, 2);
    assert_eq!(trial.cancel(&second.id, second.attempt_id).await, Applied);
    let before = trial.record(&first.id).await;
    assert_eq!(trial.cancel(&second.id, second.attempt_id).await, Lost);
    assert_eq!(trial.cancel(&second.id, failed.attempt_id).await, Lost);
    assert_eq!(trial.record(&first.id).await, before);
    let grant = trial.run(&retry(&first)).await;
    assert_eq!((grant.attempt, grant.took_over), (2, false));
}

/// Nothing ran, however late that is told, and whoever noted that the lease is over.
pub async fn a_claim_that_never_began_is_cancelled_after_its_lease(trial: Trial) {
    for is_swept in [false, true] {
        for recover in [Recover::Hold, Recover::Auto] {
            let first = Ask { recover, ..ask(&format!("{recover:?}-{is_swept}")) };
            trial.run(&first).await;
            trial.pass(RETENTION + MARGIN).await;
            match is_swept {
                true => drop(trial.sweep_all(100).await),
                false => {
                    let held = trial.claim(&retry(&first)).await;
                    assert_eq!(held, Claimed::Held { newly: true });
                }
            }
            assert_eq!(trial.cancel(&first.id, first.attempt_id).await, Applied);
            assert_eq!(trial.run(&retry(&first)).await.attempt, 1);
        }
    }
}

/// A cancellation of one claim meets neither a later run nor a later answer.
pub async fn a_cancelled_claim_leaves_a_later_one_alone(trial: Trial) {
    let first = ask("k");
    trial.run(&first).await;
    trial.pass(LEASE + MARGIN).await;
    let later = trial.run(&retry(&first)).await.lease;
    let before = trial.record(&first.id).await;
    assert_eq!(trial.cancel(&first.id, first.attempt_id).await, Lost);
    assert_eq!(trial.record(&first.id).await, before);
    assert_eq!(trial.complete(&later, &answer("done")).await, Applied);
    for attempt_id in [first.attempt_id, later.attempt_id] {
        assert_eq!(trial.cancel(&first.id, attempt_id).await, Lost);
    }
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("done"));
    let nowhere = ask("nowhere");
    assert_eq!(trial.cancel(&nowhere.id, nowhere.attempt_id).await, Lost);
    assert_eq!(trial.get(&nowhere.id).await, None);
}
