//! A key lives for its retention by the store's clock, and then it is new.

use std::time::Duration;

use super::Trial;
use super::samples::{HOUR, LEASE, MARGIN, RETENTION, answer, ask, checkpoint, mismatch, retry};
use crate::Fenced::Applied;
use crate::{Ask, Claimed, Fence, Find, Grant, Recorded, Recover, Release};

const MINUTE: Duration = Duration::from_secs(60);

/// Nothing of a key's earlier life is left in its next.
pub async fn an_expired_key_is_new(trial: Trial) {
    let first = ask("k");
    let dead = trial.run(&first).await;
    assert_eq!(trial.checkpoint(&dead.lease, &checkpoint("paid")).await, Applied);
    trial.pass(LEASE + MARGIN).await;
    let second = trial.run(&retry(&first)).await;
    assert_eq!(trial.complete(&second.lease, &answer("old")).await, Applied);
    trial.pass(RETENTION).await;
    expect_new(trial.run(&retry(&first)).await);
    let record = trial.record(&first.id).await;
    assert_eq!((record.attempt, record.checkpoint), (1, None));
    assert_eq!(record.expires_at, record.created_at + RETENTION);
}

/// Its next life may stand for another request.
pub async fn an_expired_key_takes_another_request(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.complete(&grant.lease, &answer("old")).await, Applied);
    trial.pass(RETENTION + MARGIN).await;
    let other = mismatch(&first);
    expect_new(trial.run(&other).await);
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Reused);
}

/// Expiry is checked on every read.
pub async fn an_expired_record_is_not_shown(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.complete(&grant.lease, &answer("old")).await, Applied);
    trial.pass(RETENTION + MARGIN).await;
    assert_eq!(trial.get(&first.id).await, None);
    assert_eq!(trial.find(&Find::Key("k".into()), 10).await, []);
    assert_eq!(trial.find(&Find::IdPrefix(first.id.short()), 10).await, []);
}

/// Until then the answer is there.
pub async fn an_answer_is_kept_for_the_retention(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.complete(&grant.lease, &answer("done")).await, Applied);
    trial.pass(RETENTION - MARGIN).await;
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("done"));
}

/// Whoever runs is told when its key expires, before the work and after it.
pub async fn a_claim_says_when_its_key_expires(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    let promised = trial.record(&first.id).await.expires_at;
    assert_eq!(grant.expires_at, promised);
    trial.pass(LEASE + MARGIN).await;
    let later = trial.run(&retry(&first)).await;
    assert_eq!(later.expires_at, promised);
    assert_eq!(trial.record_answer(&later.lease, &answer("done")).await, Recorded::Until(promised));
}

/// A late outcome prolongs that, and is told so; the replay says how long it can be had: so long,
/// and no longer.
pub async fn a_replay_says_when_its_key_expires(trial: Trial) {
    let first = Ask { lease: RETENTION * 2, ..ask("k") };
    let grant = trial.run(&first).await;
    trial.pass(RETENTION - MINUTE).await;
    let recorded = trial.record_answer(&grant.lease, &answer("late")).await;
    let replay = trial.replay(&retry(&first)).await;
    assert_eq!(recorded, Recorded::Until(replay.expires_at));
    assert_eq!(trial.record_answer(&grant.lease, &answer("late")).await, recorded);
    assert_eq!(trial.record(&first.id).await.expires_at, replay.expires_at);
    trial.pass(replay.expires_at.since(trial.now().await) - MARGIN).await;
    assert_eq!(trial.replay(&retry(&first)).await, replay);
    trial.pass(MARGIN * 2).await;
    expect_new(trial.run(&retry(&first)).await);
}

/// The retention counts from first use: neither replays nor later attempts prolong it.
pub async fn a_key_is_not_prolonged_by_use(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.release(&grant.lease, Release::Retry).await, Applied);
    trial.pass(RETENTION / 2).await;
    let second = trial.run(&retry(&first)).await;
    assert_eq!(trial.complete(&second.lease, &answer("done")).await, Applied);
    trial.pass(RETENTION / 2 - MARGIN).await;
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("done"));
    trial.pass(MARGIN * 2).await;
    expect_new(trial.run(&retry(&first)).await);
}

/// Work that ends late in a key's life can still be asked about for an hour.
pub async fn an_outcome_is_kept_for_an_hour(trial: Trial) {
    let first = Ask { lease: RETENTION * 2, ..ask("k") };
    let grant = trial.run(&first).await;
    trial.pass(RETENTION - MINUTE).await;
    assert_eq!(trial.complete(&grant.lease, &answer("late")).await, Applied);
    trial.pass(HOUR - MARGIN).await;
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("late"));
    trial.pass(MARGIN * 2).await;
    expect_new(trial.run(&retry(&first)).await);
}

/// Or for the retention, where that is shorter.
pub async fn an_outcome_is_kept_for_a_short_retention(trial: Trial) {
    let first = Ask { retention: MINUTE * 2, lease: HOUR, ..ask("k") };
    let grant = trial.run(&first).await;
    trial.pass(MINUTE * 10).await;
    assert_eq!(trial.complete(&grant.lease, &answer("late")).await, Applied);
    trial.pass(MINUTE * 2 - MARGIN).await;
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("late"));
    trial.pass(MARGIN * 2).await;
    expect_new(trial.run(&retry(&first)).await);
}

/// Work that still runs is not run again because its key is old.
pub async fn a_live_lease_outlasts_the_retention(trial: Trial) {
    let first = Ask { retention: MINUTE, lease: HOUR, ..ask("k") };
    let grant = trial.run(&first).await;
    trial.pass(HOUR - MINUTE).await;
    assert!(matches!(trial.claim(&retry(&first)).await, Claimed::Busy { .. }));
    assert!(trial.get(&first.id).await.is_some());
    assert_eq!(trial.complete(&grant.lease, &answer("late")).await, Applied);
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("late"));
}

/// The same for a lease that lives on by renewal, past retention and sweeps.
pub async fn a_renewed_lease_outlasts_the_retention(trial: Trial) {
    let first = Ask { retention: MINUTE, ..ask("k") };
    let grant = trial.run(&first).await;
    for _ in 0..5 {
        trial.pass(LEASE - MARGIN).await;
        assert_eq!(trial.renew(&grant.lease).await, Applied);
        assert_eq!(trial.sweep_all(10).await.removed, 0);
        assert!(matches!(trial.claim(&retry(&first)).await, Claimed::Busy { .. }));
    }
}

/// A person takes as long as a person takes.
pub async fn a_held_key_outlasts_the_retention(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.release(&grant.lease, Release::Hold).await, Applied);
    trial.pass(RETENTION * 30).await;
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: false });
}

/// A dead claim that nothing may resume waits for a person before anyone saw that it died.
pub async fn a_dead_claim_to_be_held_outlasts_the_retention(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    trial.run(&first).await;
    trial.pass(RETENTION * 30).await;
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: true });
}

/// Where nothing runs and nothing is held, nothing keeps a key from being new.
pub async fn failed_keys_and_dead_claims_expire(trial: Trial) {
    let (failed, dead) = (ask("failed"), ask("dead"));
    let grant = trial.run(&failed).await;
    assert_eq!(trial.release(&grant.lease, Release::Retry).await, Applied);
    trial.run(&dead).await;
    trial.pass(RETENTION + MARGIN).await;
    expect_new(trial.run(&mismatch(&failed)).await);
    expect_new(trial.run(&mismatch(&dead)).await);
}

fn expect_new(grant: Grant) {
    assert_eq!((grant.attempt, grant.lease.fence), (1, Fence::FIRST));
    assert_eq!((grant.checkpoint, grant.took_over), (None, false));
}
