//! Who may run: exactly one of many.

use super::Trial;
use super::samples::{LEASE, MARGIN, answer, ask, checkpoint, mismatch, remembered, retry};
use crate::{Ask, Claimed, Fence, Fenced, Recover, Release, State};

const RIVALS: usize = 16;

/// The first who asks runs, from the beginning.
pub async fn a_new_key_runs(trial: Trial) {
    let ask = ask("k");
    let grant = trial.run(&ask).await;
    assert_eq!((grant.attempt, grant.lease.fence), (1, Fence::FIRST));
    assert_eq!((grant.lease.id, grant.lease.attempt_id), (ask.id, ask.attempt_id));
    assert_eq!(grant.lease.length, ask.lease);
    assert_eq!(grant.birth, trial.record(&ask.id).await.birth);
    assert_eq!((grant.checkpoint, grant.took_over), (None, false));
}

/// What was asked is what is kept.
pub async fn a_claim_is_kept_as_it_was_asked(trial: Trial) {
    let ask = Ask { recover: Recover::Auto, ..remembered("k") };
    let before = trial.now().await;
    trial.run(&ask).await;
    let record = trial.record(&ask.id).await;
    assert_eq!((record.id, record.fingerprint), (ask.id, ask.fingerprint));
    assert_eq!((record.recover, record.retention), (ask.recover, ask.retention));
    assert_eq!(record.remember, ask.remember);
    assert_eq!((record.attempt_id, record.label), (ask.attempt_id, ask.label));
    assert_eq!(record.expires_at, record.created_at + ask.retention);
    assert!(record.created_at >= before);
}

/// Of many who ask at the same time one runs, and the others are told so.
pub async fn one_of_many_rivals_runs(trial: Trial) {
    let first = ask("k");
    let claimed = trial.race_to_claim((0..RIVALS).map(|_| retry(&first))).await;
    expect_one_winner(&claimed);
    assert!(claimed.iter().all(|one| matches!(one, Claimed::Run(_) | Claimed::Busy { .. })));
}

/// The loser is told by its own request: busy with it, or busy with another.
pub async fn one_of_many_rivals_with_two_requests_runs(trial: Trial) {
    let first = ask("k");
    let asks = (0..RIVALS).map(|at| if at % 2 == 0 { retry(&first) } else { mismatch(&first) });
    let asks: Vec<_> = asks.collect();
    let claimed = trial.race_to_claim(asks.clone()).await;
    expect_one_winner(&claimed);
    let winner = trial.record(&first.id).await.fingerprint;
    for (ask, claimed) in asks.iter().zip(&claimed) {
        match claimed {
            Claimed::Run(_) | Claimed::Busy { .. } => assert_eq!(ask.fingerprint, winner),
            Claimed::Reused => assert_ne!(ask.fingerprint, winner),
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// A dead claim is taken over once.
pub async fn one_of_many_rivals_takes_over_a_dead_claim(trial: Trial) {
    let first = ask("k");
    let dead = trial.run(&first).await;
    trial.pass(LEASE + MARGIN).await;
    let claimed = trial.race_to_claim((0..RIVALS).map(|_| retry(&first))).await;
    let fence = expect_one_winner(&claimed);
    assert_eq!(fence, dead.lease.fence.next());
}

/// A key that was given back is taken once.
pub async fn one_of_many_rivals_runs_a_failed_key(trial: Trial) {
    let first = ask("k");
    let failed = trial.run(&first).await;
    assert_eq!(trial.release(&failed.lease, Release::Retry).await, Fenced::Applied);
    let claimed = trial.race_to_claim((0..RIVALS).map(|_| retry(&first))).await;
    let fence = expect_one_winner(&claimed);
    assert_eq!(fence, failed.lease.fence.next());
}

/// A key that is new again is taken once.
pub async fn one_of_many_rivals_runs_an_expired_key(trial: Trial) {
    let first = ask("k");
    let old = trial.run(&first).await;
    assert_eq!(trial.complete(&old.lease, &answer("old")).await, Fenced::Applied);
    trial.pass(first.retention + MARGIN).await;
    let claimed = trial.race_to_claim((0..RIVALS).map(|_| retry(&first))).await;
    assert_eq!(expect_one_winner(&claimed), Fence::FIRST);
}

/// The answer ends the race for good: whoever asks beside it waits or gets it, and none runs.
pub async fn nobody_runs_beside_or_after_a_completion(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    let rivals = (0..RIVALS).map(|at| {
        let (trial, ask, lease) = (trial.clone(), retry(&first), grant.lease);
        async move {
            if at == RIVALS / 2 {
                assert_eq!(trial.complete(&lease, &answer("done")).await, Fenced::Applied);
            }
            trial.claim(&ask).await
        }
    });
    for claimed in trial.race(rivals).await {
        assert!(matches!(claimed, Claimed::Busy { .. } | Claimed::Replay(_)), "{claimed:?}");
    }
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("done"));
}

/// A rival hears how long the claim lives.
pub async fn a_rival_of_a_running_claim_is_busy(trial: Trial) {
    let first = ask("k");
    trial.run(&first).await;
    match trial.claim(&retry(&first)).await {
        Claimed::Busy { lease_left } => {
            assert!(lease_left <= LEASE && lease_left > LEASE - MARGIN, "{lease_left:?}");
        }
        other => panic!("a running key is busy, not {other:?}"),
    }
}

/// When the word of a claim is lost, asking again finds it instead of a rival.
pub async fn asking_again_finds_ones_own_claim(trial: Trial) {
    let ask = ask("k");
    let grant = trial.run(&ask).await;
    assert_eq!(trial.run(&ask).await, grant);
    assert_eq!(trial.complete(&grant.lease, &answer("done")).await, Fenced::Applied);
}

/// The same after a take-over: neither fence nor attempt grow by asking again.
pub async fn asking_again_finds_ones_own_take_over(trial: Trial) {
    let first = ask("k");
    let dead = trial.run(&first).await;
    assert_eq!(trial.checkpoint(&dead.lease, &checkpoint("paid")).await, Fenced::Applied);
    trial.pass(LEASE + MARGIN).await;
    let second = retry(&first);
    let grant = trial.run(&second).await;
    let again = trial.run(&second).await;
    assert_eq!((again.lease, again.attempt), (grant.lease, grant.attempt));
    assert_eq!(again.checkpoint, Some(checkpoint("paid")));
}

/// Asking again makes one's own lease live on.
pub async fn asking_again_renews_ones_own_lease(trial: Trial) {
    let first = ask("k");
    trial.run(&first).await;
    trial.pass(LEASE - MARGIN).await;
    trial.run(&first).await;
    trial.pass(LEASE - MARGIN).await;
    assert!(matches!(trial.claim(&retry(&first)).await, Claimed::Busy { .. }));
}

/// Whoever asks again when all is done gets the answer, not another run.
pub async fn asking_again_after_completion_replays(trial: Trial) {
    let ask = ask("k");
    let grant = trial.run(&ask).await;
    assert_eq!(trial.complete(&grant.lease, &answer("done")).await, Fenced::Applied);
    assert_eq!(trial.replay(&ask).await.answer, answer("done"));
}

/// What happens to one key is nothing to another.
pub async fn keys_do_not_interfere(trial: Trial) {
    let (left, right) = (ask("left"), ask("right"));
    let claims = trial.race_to_claim([left.clone(), right.clone()]).await;
    assert!(claims.iter().all(|claimed| matches!(claimed, Claimed::Run(_))));
    let before = trial.record(&right.id).await;
    let grant = trial.run(&left).await;
    assert_eq!(trial.checkpoint(&grant.lease, &checkpoint("paid")).await, Fenced::Applied);
    assert_eq!(trial.complete(&grant.lease, &answer("left")).await, Fenced::Applied);
    assert_eq!(trial.record(&right.id).await, before);
    assert!(matches!(before.state, State::Claimed { .. }));
}

fn expect_one_winner(claimed: &[Claimed]) -> Fence {
    let fences: Vec<_> = claimed
        .iter()
        .filter_map(|claimed| match claimed {
            Claimed::Run(grant) => Some(grant.lease.fence),
            _ => None,
        })
        .collect();
    match fences[..] {
        [fence] => fence,
        _ => panic!("one rival runs, not {}: {claimed:?}", fences.len()),
    }
}
