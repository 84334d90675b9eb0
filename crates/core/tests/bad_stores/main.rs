//! The laws are only worth something if they reject what is wrong: a flawless store obeys them
//! all, and each bad store, with one flaw known from the field, breaks the laws named here.

mod flawed;

use selfsame_core::conformance::{LAWS, RESTART_LAWS, broken_laws};

use flawed::{Flaw, FlawedBench};

async fn expect_caught(flaw: Flaw, laws: &[&str]) {
    let broken = broken_laws(|| FlawedBench::new(Some(flaw))).await;
    for law in laws {
        assert!(broken.contains(law), "{flaw:?} must break {law}, and broke only {broken:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flawless_store_breaks_no_law() {
    assert_eq!(broken_laws(|| FlawedBench::new(None)).await, [""; 0]);
}

#[test]
fn there_are_enough_laws() {
    assert!(LAWS.len() >= 40, "only {} laws", LAWS.len());
    assert!(RESTART_LAWS.len() >= 3, "only {} laws of restarts", RESTART_LAWS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_checks_no_fence_is_rejected() {
    let laws = [
        "a_stale_claim_cannot_renew",
        "a_stale_claim_cannot_checkpoint",
        "a_stale_claim_cannot_complete",
        "a_stale_claim_cannot_release",
        "of_two_completions_the_newer_claim_wins",
        "a_decision_ends_the_claim_before_it",
    ];
    expect_caught(Flaw::ChecksNoFence, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_checks_the_fence_alone_is_rejected() {
    let laws = [
        "the_late_owner_of_a_reaped_record_loses",
        "the_late_owner_of_a_replaced_record_loses",
        "the_fence_without_the_attempt_id_loses",
        "a_cancelled_claim_leaves_a_later_one_alone",
    ];
    expect_caught(Flaw::IgnoresAttemptIds, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_checks_and_then_inserts_is_rejected() {
    let laws = ["one_of_many_rivals_runs", "one_of_many_rivals_takes_over_a_dead_claim"];
    expect_caught(Flaw::ChecksThenInserts, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_forgets_on_restart_is_rejected() {
    let laws = [
        "an_answer_outlives_a_restart",
        "a_claim_outlives_a_restart",
        "an_owner_may_complete_after_a_restart",
        "ones_own_claim_is_found_after_a_restart",
        "a_checkpoint_outlives_a_restart",
        "a_failed_key_outlives_a_restart",
        "a_hold_outlives_a_restart",
        "facts_outlive_a_restart",
    ];
    expect_caught(Flaw::ForgetsOnRestart, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_one_lifetime_for_lock_and_record_is_rejected() {
    let laws = ["a_dead_claim_is_taken_over_after_its_lease", "a_renewal_gives_one_lease_from_now"];
    expect_caught(Flaw::LocksForTheRetention, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_where_a_mismatch_takes_over_is_rejected() {
    let laws = ["a_mismatch_never_takes_over_a_dead_claim", "a_mismatch_never_runs_a_failed_key"];
    expect_caught(Flaw::TakesOverBeforeComparing, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_replay_locks_again_is_rejected() {
    let laws = ["a_replay_writes_nothing", "many_rivals_all_get_the_answer"];
    expect_caught(Flaw::LocksToReplay, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_frees_the_key_of_a_crash_is_rejected() {
    let laws = [
        "a_crash_holds_the_key_where_it_may_not_resume",
        "unheard_work_runs_again_only_after_its_lease",
        "a_hold_holds_whatever_recover_says",
    ];
    expect_caught(Flaw::FreesOnCrash, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_expires_only_by_sweeping_is_rejected() {
    let laws = [
        "an_expired_key_is_new",
        "an_expired_key_takes_another_request",
        "a_late_sweep_brings_nothing_back_and_takes_nothing_new",
    ];
    expect_caught(Flaw::ExpiresOnlyBySweeping, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_sweeps_by_age_alone_is_rejected() {
    let laws = [
        "a_sweep_leaves_the_held_alone_for_ever",
        "a_renewed_lease_outlasts_the_retention",
        "a_swept_key_is_expired_all_the_same",
    ];
    expect_caught(Flaw::SweepsByAgeAlone, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_know_its_own_claimant_is_rejected() {
    let laws = ["asking_again_finds_ones_own_claim", "asking_again_finds_ones_own_take_over"];
    expect_caught(Flaw::TakesEveryoneForARival, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_keeps_the_last_answer_is_rejected() {
    let laws = ["completing_twice_keeps_the_first_answer", "a_tombstone_takes_no_writes"];
    expect_caught(Flaw::KeepsTheLastAnswer, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_answers_without_looking_is_rejected() {
    let laws = ["an_answer_at_hand_is_what_a_claim_comes_to"];
    expect_caught(Flaw::AnswersWithoutLooking, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_promises_the_retention_with_each_use_is_rejected() {
    let laws = ["a_claim_says_when_its_key_expires", "a_replay_says_when_its_key_expires"];
    expect_caught(Flaw::PromisesTheRetentionAnew, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_takes_each_claim_for_a_birth_is_rejected() {
    let laws = ["a_key_keeps_its_birth_through_all_its_claims", "a_birth_outlives_a_restart"];
    expect_caught(Flaw::TakesEachClaimForABirth, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_forgets_a_key_with_its_retention_is_rejected() {
    let laws = [
        "a_claim_is_kept_as_it_was_asked",
        "a_remembered_key_is_expired_after_its_retention",
        "a_key_that_was_completed_by_hand_is_remembered",
        "a_key_is_remembered_from_its_expiry",
        "a_tombstone_outlives_a_restart",
    ];
    expect_caught(Flaw::ForgetsWithTheRetention, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_buries_only_by_sweeping_is_rejected() {
    let laws = [
        "a_remembered_key_is_expired_after_its_retention",
        "a_key_is_remembered_as_it_was_first_asked",
    ];
    expect_caught(Flaw::BuriesOnlyBySweeping, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_shows_the_answers_of_tombstones_is_rejected() {
    let laws = ["a_tombstone_is_found_without_its_answer"];
    expect_caught(Flaw::ShowsTheAnswersOfTombstones, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_tombstones_never_end_is_rejected() {
    let laws = ["a_tombstone_ends_and_its_key_is_new"];
    expect_caught(Flaw::BuriesForEver, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_remembers_what_was_not_done_is_rejected() {
    let laws = ["only_a_completed_key_is_remembered"];
    expect_caught(Flaw::RemembersWhatWasNotDone, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_keeps_the_last_request_is_rejected() {
    let laws = ["a_keepsake_is_that_of_the_first_claim"];
    expect_caught(Flaw::KeepsTheLastRequest, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_keeps_requests_for_good_is_rejected() {
    let laws = ["a_kept_request_goes_with_the_outcome", "a_keepsake_outlives_a_restart"];
    expect_caught(Flaw::KeepsTheRequestForGood, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_forgets_what_is_erased_is_rejected() {
    let laws = [
        "an_erased_key_keeps_nothing_and_is_refused",
        "an_erased_key_is_refused_for_the_rest_of_its_life",
        "a_held_key_that_is_erased_stays_used_for_an_hour",
        "an_erasure_outlives_a_restart",
    ];
    expect_caught(Flaw::ForgetsWhatIsErased, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_erases_what_runs_is_rejected() {
    expect_caught(Flaw::ErasesWhatRuns, &["a_running_key_is_not_erased"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_erases_answers_alone_is_rejected() {
    let laws = [
        "an_erased_key_keeps_nothing_and_is_refused",
        "a_held_key_that_is_erased_stays_used_for_an_hour",
    ];
    expect_caught(Flaw::ErasesAnswersAlone, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cancels_only_what_is_leased_is_rejected() {
    let laws = ["a_claim_that_never_began_is_cancelled_after_its_lease"];
    expect_caught(Flaw::CancelsOnlyWhatIsLeased, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_releases_only_what_is_claimed_is_rejected() {
    let laws = ["a_late_release_frees_a_key_that_only_its_lease_held"];
    expect_caught(Flaw::ReleasesOnlyWhatIsClaimed, &laws).await;
}
