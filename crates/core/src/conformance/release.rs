//! How a claim ends that has no answer to keep.

use super::Trial;
use super::samples::{LEASE, MARGIN, answer, ask, checkpoint, kept, mismatch, retry};
use crate::Fenced::{Applied, Lost};
use crate::{Ask, Claimed, Fence, Find, Grant, Recover, Release};

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
