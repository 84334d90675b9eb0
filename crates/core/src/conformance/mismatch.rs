//! A key stands for one request: another one under it changes nothing, whatever the state.

use super::Trial;
use super::samples::{LEASE, MARGIN, answer, ask, mismatch, retry};
use crate::{Ask, Claimed, Fenced, Recover, Release};

/// While the first request runs.
pub async fn a_mismatch_changes_nothing_of_a_running_key(trial: Trial) {
    let first = ask("k");
    trial.run(&first).await;
    expect_untouched(&trial, &first).await;
}

/// After its lease: only the same request may go on.
pub async fn a_mismatch_never_takes_over_a_dead_claim(trial: Trial) {
    let first = ask("k");
    trial.run(&first).await;
    trial.pass(LEASE + MARGIN).await;
    expect_untouched(&trial, &first).await;
    assert_eq!(trial.run(&retry(&first)).await.attempt, 2);
}

/// After its lease, where a person decides: a mismatch does not even begin the hold.
pub async fn a_mismatch_never_holds_a_dead_claim(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    trial.run(&first).await;
    trial.pass(LEASE + MARGIN).await;
    expect_untouched(&trial, &first).await;
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: true });
}

/// After it was given back.
pub async fn a_mismatch_never_runs_a_failed_key(trial: Trial) {
    for release in [Release::NeverRan, Release::Retry] {
        let first = ask(&format!("{release:?}"));
        let grant = trial.run(&first).await;
        assert_eq!(trial.release(&grant.lease, release).await, Fenced::Applied);
        expect_untouched(&trial, &first).await;
    }
}

/// While a person decides.
pub async fn a_mismatch_changes_nothing_of_a_held_key(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.release(&grant.lease, Release::Hold).await, Fenced::Applied);
    expect_untouched(&trial, &first).await;
}

/// After the answer, which belongs to the first request alone.
pub async fn a_mismatch_never_gets_the_answer(trial: Trial) {
    let first = ask("k");
    let grant = trial.run(&first).await;
    assert_eq!(trial.complete(&grant.lease, &answer("done")).await, Fenced::Applied);
    expect_untouched(&trial, &first).await;
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("done"));
}

/// Even under the very attempt id of the claim.
pub async fn a_mismatch_is_never_taken_for_ones_own_claim(trial: Trial) {
    let first = ask("k");
    trial.run(&first).await;
    let other = Ask { attempt_id: first.attempt_id, ..mismatch(&first) };
    assert_eq!(trial.claim(&other).await, Claimed::Reused);
}

async fn expect_untouched(trial: &Trial, first: &Ask) {
    let before = trial.record(&first.id).await;
    assert_eq!(trial.claim(&mismatch(first)).await, Claimed::Reused);
    assert_eq!(trial.record(&first.id).await, before);
}
