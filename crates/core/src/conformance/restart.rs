//! What a durable store still knows when its process comes back.

use super::Trial;
use super::samples::{
    LEASE, MARGIN, RETENTION, answer, ask, checkpoint, kept, mismatch, remembered, retry,
};
use crate::Fenced::{Applied, Lost};
use crate::{Ask, Claimed, Erased, Fence, Keepsake, Recover, Release, Resolution, Resolved};

/// An answer that was acknowledged is there.
pub async fn an_answer_outlives_a_restart(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
    let before = trial.record(&first.id).await;
    let trial = trial.restart().await;
    assert_eq!(trial.record(&first.id).await, before);
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("done"));
    assert_eq!(trial.claim(&mismatch(&first)).await, Claimed::Reused);
}

/// Its upstream may still be working: the key is busy until the lease is over.
pub async fn a_claim_outlives_a_restart(trial: Trial) {
    let first = ask("k");
    trial.run(&first).await;
    let before = trial.record(&first.id).await;
    let trial = trial.restart().await;
    assert_eq!(trial.record(&first.id).await, before);
    assert!(matches!(trial.claim(&retry(&first)).await, Claimed::Busy { .. }));
    trial.pass(LEASE + MARGIN).await;
    assert_eq!(trial.run(&retry(&first)).await.attempt, 2);
}

/// An answer that was written aside lands after the restart.
pub async fn an_owner_may_complete_after_a_restart(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    let trial = trial.restart().await;
    assert_eq!(trial.complete(&lease, &answer("landed")).await, Applied);
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("landed"));
}

/// Asking again finds one's own claim, even when the store went down before it could say so.
pub async fn ones_own_claim_is_found_after_a_restart(trial: Trial) {
    let first = ask("k");
    trial.run(&first).await;
    trial.pass(LEASE + MARGIN).await;
    let second = retry(&first);
    let grant = trial.run(&second).await;
    let trial = trial.restart().await;
    let again = trial.run(&second).await;
    assert_eq!((again.lease, again.attempt), (grant.lease, grant.attempt));
}

/// A recovery point that was acknowledged is there.
pub async fn a_checkpoint_outlives_a_restart(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    let trial = trial.restart().await;
    trial.pass(LEASE + MARGIN).await;
    let grant = trial.run(&retry(&first)).await;
    assert_eq!((grant.attempt, grant.checkpoint), (2, Some(checkpoint("paid"))));
}

/// A key that was given back keeps its request, its attempts and its fence.
pub async fn a_failed_key_outlives_a_restart(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.release(&lease, Release::Retry).await, Applied);
    let trial = trial.restart().await;
    assert_eq!(trial.claim(&mismatch(&first)).await, Claimed::Reused);
    let grant = trial.run(&retry(&first)).await;
    assert_eq!((grant.attempt, grant.lease.fence), (2, lease.fence.next()));
    assert_eq!(trial.complete(&lease, &answer("late")).await, Lost);
}

/// The next attempt is one at the same work.
pub async fn a_birth_outlives_a_restart(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    for _ in 0..2 {
        trial.pass(LEASE + MARGIN).await;
        assert_eq!(trial.run(&retry(&first)).await.birth, grant.birth);
    }
    let trial = trial.restart().await;
    trial.pass(LEASE + MARGIN).await;
    assert_eq!(trial.run(&retry(&first)).await.birth, grant.birth);
}

/// A restart is no decision.
pub async fn a_hold_outlives_a_restart(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.release(&lease, Release::Crashed).await, Applied);
    let trial = trial.restart().await;
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: false });
    let by_hand = Resolution::complete(answer("by hand"));
    let seen = trial.record(&first.id).await.fence;
    assert_eq!(trial.resolve(&first.id, seen, &by_hand).await, Resolved::Done);
    let trial = trial.restart().await;
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("by hand"));
}

/// What was kept of a request is there, whole while the work may have to be done, and no more than
/// its outline afterwards.
pub async fn a_keepsake_outlives_a_restart(trial: Trial) {
    let first = kept("k");
    let lease = trial.run(&first).await.lease;
    let trial = trial.restart().await;
    assert_eq!(trial.record(&first.id).await.keepsake, first.keepsake);
    assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
    let trial = trial.restart().await;
    let outline = first.keepsake.and_then(Keepsake::without_request);
    assert_eq!(trial.record(&first.id).await.keepsake, outline);
}

/// What was taken away stays away.
pub async fn what_is_gone_stays_gone_over_a_restart(trial: Trial) {
    let (forgotten, swept) = (ask("forgotten"), ask("swept"));
    let lease = trial.run(&swept).await.lease;
    assert_eq!(trial.complete(&lease, &answer("old")).await, Applied);
    trial.pass(RETENTION + MARGIN).await;
    assert_eq!(trial.sweep_all(10).await.removed, 1);
    let lease = trial.run(&forgotten).await.lease;
    assert_eq!(trial.release(&lease, Release::Forget).await, Applied);
    let trial = trial.restart().await;
    for ask in [forgotten, swept] {
        assert_eq!(trial.get(&ask.id).await, None);
        assert_eq!(trial.run(&mismatch(&ask)).await.lease.fence, Fence::FIRST);
    }
}

/// Keys expire while nobody is there to see it.
pub async fn keys_expire_over_a_restart(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.complete(&lease, &answer("old")).await, Applied);
    trial.pass(RETENTION + MARGIN).await;
    let trial = trial.restart().await;
    assert_eq!(trial.get(&first.id).await, None);
    assert_eq!(trial.run(&retry(&first)).await.lease.fence, Fence::FIRST);
}

/// Nor is a used key forgotten, before or after its answer is taken away.
pub async fn an_erasure_outlives_a_restart(trial: Trial) {
    let (first, other, held) = (ask("k"), ask("other"), ask("held"));
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
    let kept = trial.run(&other).await.lease;
    assert_eq!(trial.complete(&kept, &answer("kept")).await, Applied);
    let unknown = trial.run(&held).await.lease;
    assert_eq!(trial.release(&unknown, Release::Hold).await, Applied);
    for id in [first.id, held.id] {
        assert_eq!(trial.erase(&id).await, Erased::Done);
    }
    let before = trial.record(&first.id).await;
    let trial = trial.restart().await;
    assert_eq!(trial.record(&first.id).await, before);
    for ask in [&first, &held] {
        assert_eq!(trial.claim(&retry(ask)).await, Claimed::Expired);
    }
    assert_eq!(trial.complete(&lease, &answer("late")).await, Lost);
    assert_eq!(trial.complete(&unknown, &answer("late")).await, Lost);
    assert_eq!(trial.replay(&retry(&other)).await.answer, answer("kept"));
    assert_eq!(trial.erase(&first.id).await, Erased::Done, "once more");
}

/// A tombstone is there, written down or not.
pub async fn a_tombstone_outlives_a_restart(trial: Trial) {
    let first = remembered("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.complete(&lease, &answer("old")).await, Applied);
    trial.pass(RETENTION + MARGIN).await;
    let trial = trial.restart().await;
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Expired);
    let before = trial.record(&first.id).await;
    assert_eq!(trial.sweep_all(10).await.buried, 1);
    let trial = trial.restart().await;
    assert_eq!(trial.record(&first.id).await, before);
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Expired);
    assert_eq!(trial.complete(&lease, &answer("late")).await, Lost);
}

/// What an installation agreed on, it still agrees on.
pub async fn facts_outlive_a_restart(trial: Trial) {
    assert_eq!(trial.fact_or("secret", b"first").await, b"first");
    trial.set_fact("identity", b"one").await;
    trial.set_fact("identity", b"two").await;
    let trial = trial.restart().await;
    assert_eq!(trial.fact_or("secret", b"second").await, b"first");
    assert_eq!(trial.fact_or("identity", b"other").await, b"two");
}
