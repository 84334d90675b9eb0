//! What all attempts at the same work have in common.

use super::Trial;
use super::samples::{LEASE, MARGIN, RETENTION, answer, ask, retry};
use crate::Fenced::Applied;
use crate::{Release, Resolution, Resolved};

/// Whichever way a key comes to run again, the work is the same.
pub async fn a_key_keeps_its_birth_through_all_its_claims(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.run(&first).await.birth, grant.birth, "asking again");
    assert_eq!(trial.release(&grant.lease, Release::NeverRan).await, Applied);
    let second = trial.run(&retry(&first)).await;
    assert_eq!(second.birth, grant.birth, "after a failure");
    trial.pass(LEASE + MARGIN).await;
    let third = trial.run(&retry(&first)).await;
    assert_eq!(third.birth, grant.birth, "taken over");
    assert_eq!(trial.release(&third.lease, Release::Hold).await, Applied);
    let seen = trial.record(&first.id).await.fence;
    assert_eq!(trial.resolve(&first.id, seen, &Resolution::free()).await, Resolved::Done);
    let fourth = trial.run(&retry(&first)).await;
    assert_eq!(fourth.birth, grant.birth, "freed by a person");
    assert_eq!(trial.complete(&fourth.lease, &answer("done")).await, Applied);
    assert_eq!(trial.record(&first.id).await.birth, grant.birth, "completed");
}

/// A key in its next life stands for other work.
pub async fn a_key_that_is_new_again_has_another_birth(trial: Trial) {
    let first = ask("k");
    let expired = trial.run(&first).await;
    trial.pass(RETENTION + MARGIN).await;
    let replaced = trial.run(&retry(&first)).await;
    assert_ne!(replaced.birth, expired.birth, "expired");
    trial.pass(RETENTION + MARGIN).await;
    assert_eq!(trial.sweep_all(10).await.removed, 1);
    let swept = trial.run(&retry(&first)).await;
    assert_ne!(swept.birth, replaced.birth, "swept");
    assert_eq!(trial.release(&swept.lease, Release::Forget).await, Applied);
    assert_ne!(trial.run(&retry(&first)).await.birth, swept.birth, "forgotten");
}
