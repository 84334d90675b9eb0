//! What is left of a key whose work was done, where it is remembered after its retention.

use super::Trial;
use super::samples::{
    HOUR, MARGIN, REMEMBER, RETENTION, answer, ask, checkpoint, mismatch, remembered, retry,
};
use crate::Fenced::{Applied, Lost};
use crate::{
    Ask, Claimed, Count, Fence, Find, Lease, Recover, Release, Resolution, Resolved, State, Swept,
};

/// The work was done: whoever comes late is told so, and does not do it again.
pub async fn a_remembered_key_is_expired_after_its_retention(trial: Trial) {
    let (first, _) = complete(&trial).await;
    trial.pass(RETENTION - MARGIN).await;
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("done"));
    trial.pass(MARGIN * 2).await;
    expect_expired(&trial, &first).await;
    trial.pass(REMEMBER - MARGIN * 2).await;
    expect_expired(&trial, &first).await;
}

/// Whether the sweep was there or not makes no difference.
pub async fn a_swept_key_is_expired_all_the_same(trial: Trial) {
    let (first, _) = complete(&trial).await;
    trial.pass(RETENTION + MARGIN).await;
    assert_eq!(trial.sweep_all(10).await.buried, 1);
    expect_expired(&trial, &first).await;
    trial.pass(REMEMBER - MARGIN * 2).await;
    assert_eq!(trial.sweep_all(10).await.removed, 0);
    expect_expired(&trial, &first).await;
}

/// People find the key, and nothing of what was answered or saved.
pub async fn a_tombstone_is_found_without_its_answer(trial: Trial) {
    let (first, _) = complete(&trial).await;
    let completed = trial.record(&first.id).await;
    trial.pass(RETENTION + MARGIN).await;
    let mut expected = completed.clone();
    (expected.state, expected.checkpoint) = (State::Tombstone, None);
    for swept in [false, true] {
        assert_eq!(trial.record(&first.id).await, expected, "swept: {swept}");
        for find in [Find::Key("k".into()), Find::IdPrefix(first.id.short())] {
            assert_eq!(trial.find(&find, 10).await, [expected.clone()], "swept: {swept}");
        }
        assert_eq!(trial.find(&Find::Held, 10).await, []);
        trial.sweep_all(10).await;
    }
}

/// A tombstone is not for ever: then the key is new, swept or not.
pub async fn a_tombstone_ends_and_its_key_is_new(trial: Trial) {
    let (first, _) = complete(&trial).await;
    trial.pass(RETENTION + REMEMBER + MARGIN).await;
    expect_new(&trial, &first).await;

    let (first, _) = complete_as(&trial, &remembered("swept")).await;
    trial.pass(RETENTION + MARGIN).await;
    assert_eq!(trial.sweep_all(10).await.buried, 1);
    trial.pass(REMEMBER).await;
    expect_new(&trial, &first).await;
}

/// It is counted from the expiry as it came to be, which a late outcome has prolonged.
pub async fn a_key_is_remembered_from_its_expiry(trial: Trial) {
    let first = Ask { lease: RETENTION * 2, ..remembered("k") };
    let lease = trial.run(&first).await.lease;
    trial.pass(RETENTION).await;
    assert_eq!(trial.complete(&lease, &answer("late")).await, Applied);
    trial.pass(HOUR + MARGIN).await;
    expect_expired(&trial, &first).await;
    trial.pass(REMEMBER - MARGIN * 2).await;
    expect_expired(&trial, &first).await;
    trial.pass(MARGIN * 2).await;
    expect_new(&trial, &first).await;
}

/// A promise is not taken back, nor made, by who asks later.
pub async fn a_key_is_remembered_as_it_was_first_asked(trial: Trial) {
    let (kept, plain) = (remembered("kept"), ask("plain"));
    for first in [&kept, &plain] {
        let lease = trial.run(first).await.lease;
        assert_eq!(trial.release(&lease, Release::Retry).await, Applied);
    }
    complete_as(&trial, &Ask { remember: plain.remember, ..retry(&kept) }).await;
    complete_as(&trial, &Ask { remember: kept.remember, ..retry(&plain) }).await;
    trial.pass(RETENTION + MARGIN).await;
    expect_expired(&trial, &kept).await;
    expect_new(&trial, &plain).await;
}

/// A person's word that the work was done is as good as the work's own.
pub async fn a_key_that_was_completed_by_hand_is_remembered(trial: Trial) {
    let first = remembered("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
    let seen = trial.record(&first.id).await.fence;
    let by_hand = Resolution::complete(answer("by hand"));
    assert_eq!(trial.resolve(&first.id, seen, &by_hand).await, Resolved::Done);
    trial.pass(RETENTION + MARGIN).await;
    expect_expired(&trial, &first).await;
}

/// Work that was not done leaves nothing to remember; what is held stays held.
pub async fn only_a_completed_key_is_remembered(trial: Trial) {
    let [failed, dead, forgotten] = ["failed", "dead", "forgotten"].map(remembered);
    let lease = trial.run(&failed).await.lease;
    assert_eq!(trial.release(&lease, Release::Retry).await, Applied);
    let lease = trial.run(&dead).await.lease;
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    let lease = trial.run(&forgotten).await.lease;
    assert_eq!(trial.release(&lease, Release::Forget).await, Applied);
    let held = Ask { recover: Recover::Hold, ..remembered("held") };
    trial.run(&held).await;
    trial.pass(RETENTION + MARGIN).await;
    assert_eq!(trial.claim(&retry(&held)).await, Claimed::Held { newly: true });
    for first in [failed, dead, forgotten] {
        expect_new(&trial, &first).await;
    }
}

/// A sweep says how many answers it took away, once, and how many tombstones.
pub async fn a_sweep_buries_first_and_removes_later(trial: Trial) {
    for at in 0..3 {
        complete_as(&trial, &remembered(&format!("kept-{at}"))).await;
        complete_as(&trial, &ask(&format!("plain-{at}"))).await;
    }
    assert_eq!(trial.sweep_all(2).await, Swept { finished: true, ..Swept::default() });
    trial.pass(RETENTION + MARGIN).await;
    let tombstones = Count { tombstone: 3, ..Count::default() };
    assert_eq!(trial.count().await, tombstones, "whether or not anyone has looked");
    let swept = trial.sweep_all(2).await;
    assert_eq!(swept, Swept { removed: 3, buried: 3, finished: true, ..Swept::default() });
    assert_eq!(trial.sweep_all(2).await, Swept { finished: true, ..Swept::default() });
    assert_eq!(trial.count().await, tombstones);
    trial.pass(REMEMBER).await;
    assert_eq!(trial.count().await, Count::default());
    let swept = trial.sweep_all(2).await;
    assert_eq!(swept, Swept { removed: 3, finished: true, ..Swept::default() });
}

/// Whoever owned the key once cannot bring it back, and no person decides about it.
pub async fn a_tombstone_takes_no_writes(trial: Trial) {
    let (first, lease) = complete(&trial).await;
    trial.pass(RETENTION + MARGIN).await;
    for _ in 0..2 {
        let before = trial.record(&first.id).await;
        for lease in [lease, Lease { fence: lease.fence.next(), ..lease }] {
            assert_eq!(trial.renew(&lease).await, Lost);
            assert_eq!(trial.checkpoint(&lease, &checkpoint("late")).await, Lost);
            assert_eq!(trial.complete(&lease, &answer("late")).await, Lost);
            for release in [Release::NeverRan, Release::Forget, Release::Hold] {
                assert_eq!(trial.release(&lease, release).await, Lost, "{release:?}");
            }
        }
        for resolution in [Resolution::free(), Resolution::complete(answer("by hand"))] {
            let resolved = trial.resolve(&first.id, before.fence, &resolution).await;
            assert_eq!(resolved, Resolved::NotHeld);
        }
        assert_eq!(trial.record(&first.id).await, before);
        expect_expired(&trial, &first).await;
        trial.sweep_all(10).await;
    }
}

/// Completes a key in its second claim, so that no fence or attempt is the first one's.
async fn complete(trial: &Trial) -> (Ask, Lease) {
    let first = remembered("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.release(&lease, Release::Retry).await, Applied);
    complete_as(trial, &retry(&first)).await
}

async fn complete_as(trial: &Trial, ask: &Ask) -> (Ask, Lease) {
    let lease = trial.run(ask).await.lease;
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
    (ask.clone(), lease)
}

pub(super) async fn expect_expired(trial: &Trial, first: &Ask) {
    for ask in [first, &retry(first), &mismatch(first)] {
        assert_eq!(trial.claim(ask).await, Claimed::Expired);
    }
}

pub(super) async fn expect_new(trial: &Trial, first: &Ask) {
    assert_eq!(trial.get(&first.id).await, None);
    let grant = trial.run(&mismatch(first)).await;
    assert_eq!((grant.attempt, grant.lease.fence), (1, Fence::FIRST));
    assert_eq!((grant.checkpoint, grant.took_over), (None, false));
}
