//! Every write after the claim shows fence and attempt id, and a stale one changes nothing.

use super::Trial;
use super::samples::{LEASE, MARGIN, RETENTION, answer, ask, checkpoint, retry};
use crate::Fenced::{Applied, Lost};
use crate::{Ask, AttemptId, Claimed, Fence, Lease, Release};

/// Whoever was taken over cannot make the lease live on.
pub async fn a_stale_claim_cannot_renew(trial: Trial) {
    let Overtaken { stale, .. } = overtake(&trial).await;
    let before = trial.record(&stale.id).await;
    assert_eq!(trial.renew(&stale).await, Lost);
    assert_eq!(trial.record(&stale.id).await, before);
}

/// Renewing many leases comes to the same as renewing each: those that stand live on, and the others are lost.
pub async fn many_leases_are_renewed_as_each_alone(trial: Trial) {
    let Overtaken { stale, fresh } = overtake(&trial).await;
    let (ended, running) =
        (trial.run(&ask("ended")).await.lease, trial.run(&ask("runs")).await.lease);
    assert_eq!(trial.complete(&ended, &answer("done")).await, Applied);
    let before = trial.record(&ended.id).await;
    trial.pass(LEASE - MARGIN).await;
    assert_eq!(trial.renew_all(&[running, ended, fresh]).await, [Applied, Lost, Applied]);
    assert_eq!(trial.renew_all(&[stale]).await, [Lost]);
    assert_eq!(trial.renew_all(&[]).await, []);
    assert_eq!(trial.record(&ended.id).await, before);
    trial.pass(LEASE - MARGIN).await;
    for key in ["runs", "k"] {
        let rival = trial.claim(&retry(&ask(key))).await;
        assert!(matches!(rival, Claimed::Busy { .. }), "{rival:?}");
    }
}

/// Whoever was taken over cannot save a recovery point.
pub async fn a_stale_claim_cannot_checkpoint(trial: Trial) {
    let Overtaken { stale, .. } = overtake(&trial).await;
    let before = trial.record(&stale.id).await;
    assert_eq!(trial.checkpoint(&stale, &checkpoint("late")).await, Lost);
    assert_eq!(trial.record(&stale.id).await, before);
}

/// Whoever was taken over cannot record an answer.
pub async fn a_stale_claim_cannot_complete(trial: Trial) {
    let Overtaken { stale, fresh } = overtake(&trial).await;
    let before = trial.record(&stale.id).await;
    assert_eq!(trial.complete(&stale, &answer("late")).await, Lost);
    assert_eq!(trial.record(&stale.id).await, before);
    assert_eq!(trial.complete(&fresh, &answer("done")).await, Applied);
    assert_eq!(trial.complete(&stale, &answer("later")).await, Lost);
    assert_eq!(trial.replay(&retry(&ask("k"))).await.answer, answer("done"));
}

/// Whoever was taken over cannot give the key away.
pub async fn a_stale_claim_cannot_release(trial: Trial) {
    let Overtaken { stale, .. } = overtake(&trial).await;
    let before = trial.record(&stale.id).await;
    for release in Release::ALL {
        assert_eq!(trial.release(&stale, release).await, Lost, "{release:?}");
        assert_eq!(trial.record(&stale.id).await, before, "{release:?}");
    }
}

/// The right number alone proves nothing.
pub async fn the_fence_without_the_attempt_id_loses(trial: Trial) {
    let lease = trial.run(&ask("k")).await.lease;
    let forged = Lease { attempt_id: AttemptId::random(), ..lease };
    expect_all_lost(&trial, &forged).await;
}

/// The right attempt id alone proves nothing.
pub async fn the_attempt_id_without_the_fence_loses(trial: Trial) {
    let lease = trial.run(&ask("k")).await.lease;
    let forged = Lease { fence: lease.fence.next(), ..lease };
    expect_all_lost(&trial, &forged).await;
}

/// Old and new owner answer at the same time: the new one's answer is kept.
pub async fn of_two_completions_the_newer_claim_wins(trial: Trial) {
    let Overtaken { stale, fresh } = overtake(&trial).await;
    let rivals = [(stale, "stale"), (fresh, "fresh")].map(|(lease, body)| {
        let trial = trial.clone();
        async move { trial.complete(&lease, &answer(body)).await }
    });
    assert_eq!(trial.race(rivals).await, [Lost, Applied]);
    assert_eq!(trial.replay(&retry(&ask("k"))).await.answer, answer("fresh"));
}

/// Nobody writes to a key that was never claimed.
pub async fn a_key_that_is_not_there_takes_no_writes(trial: Trial) {
    let Ask { id, attempt_id, lease: length, .. } = ask("k");
    let lease = Lease { id, fence: Fence::FIRST, attempt_id, length };
    assert_eq!(trial.renew(&lease).await, Lost);
    assert_eq!(trial.checkpoint(&lease, &checkpoint("late")).await, Lost);
    assert_eq!(trial.complete(&lease, &answer("late")).await, Lost);
    for release in Release::ALL {
        assert_eq!(trial.release(&lease, release).await, Lost, "{release:?}");
    }
    assert_eq!(trial.get(&id).await, None);
}

/// A swept record takes its fence with it, and the next begins at the same number: only the
/// attempt id tells the late owner from the new one.
pub async fn the_late_owner_of_a_reaped_record_loses(trial: Trial) {
    let first = ask("k");
    let late = trial.run(&first).await.lease;
    trial.pass(RETENTION + MARGIN).await;
    assert_eq!(trial.sweep_all(10).await.removed, 1);
    assert_eq!(trial.complete(&late, &answer("late")).await, Lost);
    let fresh = trial.run(&retry(&first)).await.lease;
    assert_eq!(fresh.fence, late.fence);
    expect_all_lost(&trial, &late).await;
    assert_eq!(trial.complete(&fresh, &answer("done")).await, Applied);
    assert_eq!(trial.complete(&late, &answer("late")).await, Lost);
}

/// The same where nobody swept between.
pub async fn the_late_owner_of_a_replaced_record_loses(trial: Trial) {
    let first = ask("k");
    let late = trial.run(&first).await.lease;
    trial.pass(RETENTION + MARGIN).await;
    let fresh = trial.run(&retry(&first)).await.lease;
    assert_eq!(fresh.fence, late.fence);
    expect_all_lost(&trial, &late).await;
}

/// Whoever gave the key back has said all there is to say.
pub async fn a_released_claim_cannot_write(trial: Trial) {
    for release in [Release::NeverRan, Release::Retry, Release::Crashed] {
        let lease = trial.run(&ask(&format!("{release:?}"))).await.lease;
        assert_eq!(trial.release(&lease, release).await, Applied);
        expect_all_lost(&trial, &lease).await;
    }
    let forgotten = trial.run(&ask("forgotten")).await.lease;
    assert_eq!(trial.release(&forgotten, Release::Forget).await, Applied);
    assert_eq!(trial.complete(&forgotten, &answer("late")).await, Lost);
    assert_eq!(trial.get(&forgotten.id).await, None);
}

/// The word of the first completion may have been lost: saying it again is no error, and what
/// was answered first stays.
pub async fn completing_twice_keeps_the_first_answer(trial: Trial) {
    let lease = trial.run(&ask("k")).await.lease;
    assert_eq!(trial.complete(&lease, &answer("first")).await, Applied);
    let before = trial.record(&lease.id).await;
    trial.pass(MARGIN).await;
    assert_eq!(trial.complete(&lease, &answer("second")).await, Applied);
    assert_eq!(trial.record(&lease.id).await, before);
    assert_eq!(trial.replay(&ask("k")).await.answer, answer("first"));
}

/// An answer is final: its own claim can take nothing back.
pub async fn a_completed_key_takes_no_other_writes(trial: Trial) {
    let lease = trial.run(&ask("k")).await.lease;
    assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
    let before = trial.record(&lease.id).await;
    assert_eq!(trial.renew(&lease).await, Lost);
    assert_eq!(trial.checkpoint(&lease, &checkpoint("late")).await, Lost);
    for release in Release::ALL {
        assert_eq!(trial.release(&lease, release).await, Lost, "{release:?}");
    }
    assert_eq!(trial.record(&lease.id).await, before);
}

/// Nobody took over, so what the owner says is still the truth.
pub async fn a_late_owner_that_nobody_overtook_may_complete(trial: Trial) {
    let lease = trial.run(&ask("k")).await.lease;
    trial.pass(LEASE + MARGIN).await;
    assert_eq!(trial.complete(&lease, &answer("late")).await, Applied);
    assert_eq!(trial.replay(&ask("k")).await.answer, answer("late"));
}

struct Overtaken {
    stale: Lease,
    fresh: Lease,
}

async fn overtake(trial: &Trial) -> Overtaken {
    let first = ask("k");
    let stale = trial.run(&first).await.lease;
    trial.pass(LEASE + MARGIN).await;
    let fresh = trial.run(&retry(&first)).await.lease;
    Overtaken { stale, fresh }
}

async fn expect_all_lost(trial: &Trial, lease: &Lease) {
    let before = trial.record(&lease.id).await;
    assert_eq!(trial.renew(lease).await, Lost);
    assert_eq!(trial.checkpoint(lease, &checkpoint("late")).await, Lost);
    assert_eq!(trial.complete(lease, &answer("late")).await, Lost);
    for release in Release::ALL {
        assert_eq!(trial.release(lease, release).await, Lost, "{release:?}");
    }
    assert_eq!(trial.record(&lease.id).await, before);
}
