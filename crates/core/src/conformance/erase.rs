//! What a person has erased: nothing of it is kept, and it never runs again within its life.

use super::Trial;
use super::samples::{
    HOUR, LEASE, MARGIN, REMEMBER, RETENTION, answer, ask, checkpoint, kept, remembered, retry,
};
use super::tombstone::{expect_expired, expect_new};
use crate::Fenced::{Applied, Lost};
use crate::{Ask, Claimed, Count, Erased, Find, Lease, RecordId, Recover, Release, State};

/// Nothing of what was answered or saved is left; whoever comes again is told that it was used.
pub async fn an_erased_key_keeps_nothing_and_is_refused(trial: Trial) {
    let (first, _) = complete(&trial, &kept("k")).await;
    let mut expected = trial.record(&first.id).await;
    assert_eq!(trial.erase(&first.id).await, Erased::Done);
    (expected.state, expected.checkpoint, expected.keepsake) = (State::Tombstone, None, None);
    assert_eq!(trial.record(&first.id).await, expected);
    assert_eq!(trial.find(&Find::Key("k".into()), 10).await, [expected]);
    assert_eq!(trial.count().await, Count { tombstone: 1, ..Count::default() });
    assert_eq!(trial.answered(&retry(&first)), None);
    expect_expired(&trial, &first).await;
}

/// A replay just before makes no difference: no answer stays near.
pub async fn an_answer_that_was_just_replayed_is_erased(trial: Trial) {
    let (first, _) = complete(&trial, &ask("k")).await;
    for _ in 0..3 {
        assert_eq!(trial.replay(&retry(&first)).await.answer, answer("done"));
    }
    assert_eq!(trial.erase(&first.id).await, Erased::Done);
    assert_eq!(trial.answered(&retry(&first)), None);
    expect_expired(&trial, &first).await;
}

/// The promise outlives the answer, and no longer than it was made for.
pub async fn an_erased_key_is_refused_for_the_rest_of_its_life(trial: Trial) {
    let (plain, _) = complete(&trial, &ask("plain")).await;
    let (kept, _) = complete(&trial, &remembered("kept")).await;
    for first in [&plain, &kept] {
        assert_eq!(trial.erase(&first.id).await, Erased::Done);
    }
    trial.pass(RETENTION - MARGIN).await;
    assert_eq!(trial.sweep_all(10).await.removed, 0);
    expect_expired(&trial, &plain).await;
    trial.pass(MARGIN * 2).await;
    expect_new(&trial, &plain).await;
    expect_expired(&trial, &kept).await;
    trial.pass(REMEMBER).await;
    expect_new(&trial, &kept).await;
}

/// What runs is left to run, and its answer is kept.
pub async fn a_running_key_is_not_erased(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    let before = trial.record(&first.id).await;
    assert_eq!(trial.erase(&first.id).await, Erased::Running);
    assert_eq!(trial.record(&first.id).await, before);
    assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("done"));
}

/// Who erases a held key decides about it: however long it was held, it does not run.
pub async fn a_held_key_that_is_erased_stays_used_for_an_hour(trial: Trial) {
    let first = kept("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
    trial.pass(RETENTION * 2).await;
    assert_eq!(trial.erase(&first.id).await, Erased::Done);
    let left = trial.record(&first.id).await;
    assert_eq!((left.checkpoint, left.keepsake), (None, None));
    trial.pass(HOUR - MARGIN).await;
    expect_expired(&trial, &first).await;
    trial.pass(MARGIN * 2).await;
    expect_new(&trial, &first).await;
}

/// Dead claims and failed ones too, and their late owners write nothing.
pub async fn the_late_owner_of_an_erased_key_loses(trial: Trial) {
    let (dead, held) = (ask("dead"), Ask { recover: Recover::Hold, ..ask("held") });
    let failed = ask("failed");
    let mut leases = Vec::new();
    for first in [&dead, &held, &failed] {
        let lease = trial.run(first).await.lease;
        assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
        leases.push(lease);
    }
    assert_eq!(trial.release(&leases[2], Release::Retry).await, Applied);
    trial.pass(LEASE + MARGIN).await;
    for (first, lease) in [&dead, &held, &failed].into_iter().zip(leases) {
        assert_eq!(trial.erase(&first.id).await, Erased::Done);
        let before = trial.record(&first.id).await;
        assert_eq!(trial.renew(&lease).await, Lost);
        assert_eq!(trial.checkpoint(&lease, &checkpoint("late")).await, Lost);
        assert_eq!(trial.complete(&lease, &answer("late")).await, Lost);
        assert_eq!(trial.release(&lease, Release::Retry).await, Lost);
        assert_eq!(trial.record(&first.id).await, before);
        expect_expired(&trial, first).await;
    }
}

/// Whoever was not told the first time may ask again.
pub async fn erasing_twice_changes_nothing(trial: Trial) {
    let (first, _) = complete(&trial, &remembered("k")).await;
    assert_eq!(trial.erase(&first.id).await, Erased::Done);
    let before = trial.record(&first.id).await;
    trial.pass(RETENTION + MARGIN).await;
    assert_eq!(trial.erase(&first.id).await, Erased::Done);
    assert_eq!(trial.record(&first.id).await, before);
}

/// What is not there, or no longer, cannot be erased, and nothing is made of it.
pub async fn a_missing_key_cannot_be_erased(trial: Trial) {
    let (first, _) = complete(&trial, &ask("k")).await;
    trial.pass(RETENTION + MARGIN).await;
    for id in [RecordId::from_bytes([9; RecordId::LEN]), first.id] {
        assert_eq!(trial.erase(&id).await, Erased::Missing);
        assert_eq!(trial.get(&id).await, None);
    }
}

/// Nobody else notices.
pub async fn an_erasure_leaves_other_keys_alone(trial: Trial) {
    let (first, _) = complete(&trial, &ask("k")).await;
    let (other, _) = complete(&trial, &ask("other")).await;
    let running = trial.run(&ask("running")).await.lease;
    assert_eq!(trial.erase(&first.id).await, Erased::Done);
    assert_eq!(trial.replay(&retry(&other)).await.answer, answer("done"));
    assert_eq!(trial.complete(&running, &answer("done")).await, Applied);
}

/// A retry beside an erasure runs, or is refused: never both.
pub async fn an_erasure_beside_a_claim_refuses_it_or_is_refused(trial: Trial) {
    let first = ask("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.release(&lease, Release::Retry).await, Applied);
    let (erasing, claiming) = (trial.clone(), trial.clone());
    let (id, again) = (first.id, retry(&first));
    let both = trial.race_two(async move { erasing.erase(&id).await }, async move {
        claiming.claim(&again).await
    });
    let (erased, claimed) = both.await;
    match (erased, &claimed) {
        (Erased::Running, Claimed::Run(grant)) => {
            assert_eq!(trial.complete(&grant.lease, &answer("done")).await, Applied);
            assert_eq!(trial.replay(&retry(&first)).await.answer, answer("done"));
        }
        (Erased::Done, Claimed::Expired) => expect_expired(&trial, &first).await,
        other => panic!("one of the two was first, not {other:?}"),
    }
}

/// Whoever asks meanwhile gets the answer or is refused; whoever asks after it is refused, however
/// near the answer was kept.
pub async fn an_erasure_beside_replays_ends_them(trial: Trial) {
    let (first, _) = complete(&trial, &ask("k")).await;
    let replays = {
        let (trial, first) = (trial.clone(), first.clone());
        async move {
            for _ in 0..20 {
                match trial.claim(&retry(&first)).await {
                    Claimed::Replay(replay) => assert_eq!(replay.answer, answer("done")),
                    other => assert_eq!(other, Claimed::Expired),
                }
            }
        }
    };
    let erasing = trial.clone();
    let id = first.id;
    let erasure = async move { erasing.erase(&id).await };
    let (erased, ()) = trial.race_two(erasure, replays).await;
    assert_eq!(erased, Erased::Done);
    assert_eq!(trial.answered(&retry(&first)), None);
    expect_expired(&trial, &first).await;
}

/// Completes a key in its second claim, with a checkpoint.
async fn complete(trial: &Trial, first: &Ask) -> (Ask, Lease) {
    let lease = trial.run(first).await.lease;
    assert_eq!(trial.release(&lease, Release::Retry).await, Applied);
    let lease = trial.run(&retry(first)).await.lease;
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
    (first.clone(), lease)
}
