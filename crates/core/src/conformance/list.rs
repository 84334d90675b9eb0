//! The list of the laws, once, and what is stamped from it.

/// Stamps one test of each law over a store, in a module that bears its name.
///
/// `durable` adds the laws of restarts, and belongs to stores whose bench says
/// [`is_durable`](crate::conformance::Bench::is_durable). After the colon stands a function
/// without parameters that makes a fresh bench. The calling crate needs `tokio` with `macros`
/// and `rt-multi-thread`.
#[macro_export]
macro_rules! conformance_laws {
    (mod $store:ident: $bench:expr) => {
        mod $store {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn the_bench_claims_no_durability() {
                // Its restart laws would go unstamped.
                assert!(!$crate::conformance::Bench::is_durable(&$bench()));
            }
            $crate::each_law! { stamp_laws { $bench } }
        }
    };
    (durable mod $store:ident: $bench:expr) => {
        mod $store {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn the_bench_claims_durability() {
                assert!($crate::conformance::Bench::is_durable(&$bench()));
            }
            $crate::each_law! { stamp_laws { $bench } }
            $crate::each_restart_law! { stamp_laws { $bench } }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! stamp_laws {
    ({ $bench:expr } $($subject:ident { $($law:ident)* })*) => {$($(
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn $law() {
            $crate::conformance::check($bench, $crate::conformance::$subject::$law).await;
        }
    )*)*};
}

#[doc(hidden)]
#[macro_export]
macro_rules! law_table {
    ({} $($subject:ident { $($law:ident)* })*) => {
        &[$($($crate::conformance::Law {
            name: stringify!($law),
            run: |trial| Box::pin($crate::conformance::$subject::$law(trial)),
        }),*),*]
    };
}

/// Every law of every store, by subject: `$stamp` is given the list after `$with`.
#[doc(hidden)]
#[macro_export]
macro_rules! each_law {
    ($stamp:ident $with:tt) => {
        $crate::$stamp! {
            $with
            claim {
                a_new_key_runs
                a_claim_is_kept_as_it_was_asked
                one_of_many_rivals_runs
                one_of_many_rivals_with_two_requests_runs
                one_of_many_rivals_takes_over_a_dead_claim
                one_of_many_rivals_runs_a_failed_key
                one_of_many_rivals_runs_an_expired_key
                nobody_runs_beside_or_after_a_completion
                a_rival_of_a_running_claim_is_busy
                asking_again_finds_ones_own_claim
                asking_again_finds_ones_own_take_over
                asking_again_renews_ones_own_lease
                asking_again_after_completion_replays
                keys_do_not_interfere
            }
            birth {
                a_key_keeps_its_birth_through_all_its_claims
                a_key_that_is_new_again_has_another_birth
            }
            keepsake {
                a_keepsake_is_kept_as_it_was_asked
                a_keepsake_is_that_of_the_first_claim
                a_kept_request_goes_with_the_outcome
                a_tombstone_keeps_nothing_of_its_request
                a_key_that_is_new_again_keeps_its_new_request
                finding_shows_no_kept_requests
                whatever_was_abandoned_is_found
                abandoned_records_are_found_a_few_at_a_time
            }
            mismatch {
                a_mismatch_changes_nothing_of_a_running_key
                a_mismatch_never_takes_over_a_dead_claim
                a_mismatch_never_holds_a_dead_claim
                a_mismatch_never_runs_a_failed_key
                a_mismatch_changes_nothing_of_a_held_key
                a_mismatch_never_gets_the_answer
                a_mismatch_is_never_taken_for_ones_own_claim
            }
            fence {
                a_stale_claim_cannot_renew
                many_leases_are_renewed_as_each_alone
                a_stale_claim_cannot_checkpoint
                a_stale_claim_cannot_complete
                a_stale_claim_cannot_release
                the_fence_without_the_attempt_id_loses
                the_attempt_id_without_the_fence_loses
                of_two_completions_the_newer_claim_wins
                a_key_that_is_not_there_takes_no_writes
                the_late_owner_of_a_reaped_record_loses
                the_late_owner_of_a_replaced_record_loses
                a_released_claim_cannot_write
                completing_twice_keeps_the_first_answer
                a_completed_key_takes_no_other_writes
                a_late_owner_that_nobody_overtook_may_complete
            }
            replay {
                a_binary_body_is_replayed_byte_for_byte
                a_large_body_is_replayed_byte_for_byte
                an_empty_body_stays_empty
                a_body_that_was_not_kept_is_not_made_up
                the_status_is_replayed
                headers_are_replayed_in_their_order
                trailers_are_replayed_apart_from_headers
                a_replay_writes_nothing
                many_rivals_all_get_the_answer
                an_answer_at_hand_is_what_a_claim_comes_to
            }
            expiry {
                an_expired_key_is_new
                an_expired_key_takes_another_request
                an_expired_record_is_not_shown
                an_answer_is_kept_for_the_retention
                a_claim_says_when_its_key_expires
                a_replay_says_when_its_key_expires
                a_key_is_not_prolonged_by_use
                an_outcome_is_kept_for_an_hour
                an_outcome_is_kept_for_a_short_retention
                a_live_lease_outlasts_the_retention
                a_renewed_lease_outlasts_the_retention
                a_held_key_outlasts_the_retention
                a_dead_claim_to_be_held_outlasts_the_retention
                failed_keys_and_dead_claims_expire
            }
            sweep {
                a_sweep_of_nothing_is_finished
                a_sweep_removes_what_expired
                a_sweep_leaves_the_unexpired_alone
                a_sweep_leaves_the_held_alone_for_ever
                a_sweep_is_bounded_and_goes_on_where_it_stopped
                a_finished_sweep_begins_anew
                a_sweep_holds_dead_claims_that_nothing_may_resume
                a_late_sweep_brings_nothing_back_and_takes_nothing_new
                a_sweep_beside_a_claim_takes_only_the_expired
            }
            tombstone {
                a_remembered_key_is_expired_after_its_retention
                a_swept_key_is_expired_all_the_same
                a_tombstone_is_found_without_its_answer
                a_tombstone_ends_and_its_key_is_new
                a_key_is_remembered_from_its_expiry
                a_key_is_remembered_as_it_was_first_asked
                a_key_that_was_completed_by_hand_is_remembered
                only_a_completed_key_is_remembered
                a_sweep_buries_first_and_removes_later
                a_tombstone_takes_no_writes
            }
            recover {
                a_dead_claim_is_taken_over_after_its_lease
                attempts_and_fences_grow_with_each_take_over
                a_renewed_lease_lives_on
                a_renewal_gives_one_lease_from_now
                a_take_over_goes_on_from_the_last_checkpoint
                a_retry_goes_on_from_the_last_checkpoint
                a_dead_claim_is_held_where_a_person_decides
                one_of_many_rivals_finds_a_key_newly_held
                auto_resumes_a_key_with_a_checkpoint
                auto_holds_a_key_without_a_checkpoint
                a_dead_claim_is_recovered_as_it_was_asked
                a_late_answer_settles_a_held_key
                an_owner_heard_of_again_makes_a_held_key_busy
            }
            release {
                work_that_never_ran_does_not_count
                a_retry_counts_as_an_attempt
                forgetting_the_first_attempt_leaves_nothing
                forgetting_a_later_attempt_keeps_the_record
                forgetting_keeps_a_record_with_a_checkpoint
                a_crash_frees_the_key_where_it_may_resume
                a_crash_holds_the_key_where_it_may_not_resume
                unheard_work_runs_again_only_after_its_lease
                unheard_work_is_held_where_it_may_not_resume
                postponed_work_stays_abandoned
                postponed_work_is_held_where_it_may_not_resume
                a_hold_cannot_be_renewed_away
                a_hold_holds_whatever_recover_says
                a_late_release_frees_a_key_that_only_its_lease_held
                a_late_release_changes_no_decision
                a_claim_that_never_began_is_cancelled_by_its_attempt_id
                a_claim_that_never_began_is_cancelled_after_its_lease
                a_cancelled_claim_leaves_a_later_one_alone
            }
            resolve {
                a_key_that_was_freed_runs_again
                a_key_that_was_completed_by_hand_replays
                a_decision_is_kept_for_an_hour
                a_dead_claim_to_be_held_can_be_resolved
                only_a_held_key_can_be_resolved
                a_missing_key_cannot_be_resolved
                a_key_is_resolved_only_as_it_was_seen
                one_of_two_decisions_counts
                a_decision_ends_the_claim_before_it
                a_decision_keeps_who_made_it_and_why
            }
            erase {
                an_erased_key_keeps_nothing_and_is_refused
                an_answer_that_was_just_replayed_is_erased
                an_erased_key_is_refused_for_the_rest_of_its_life
                a_running_key_is_not_erased
                a_held_key_that_is_erased_stays_used_for_an_hour
                the_late_owner_of_an_erased_key_loses
                erasing_twice_changes_nothing
                a_missing_key_cannot_be_erased
                an_erasure_leaves_other_keys_alone
                an_erasure_beside_a_claim_refuses_it_or_is_refused
                an_erasure_beside_replays_ends_them
            }
            inspect {
                a_key_is_found_for_each_of_its_tenants
                a_key_is_found_only_by_its_very_text
                a_record_is_found_by_the_beginning_of_its_id
                whatever_waits_for_a_person_is_found
                finding_is_bounded
                a_tenant_s_records_are_found_in_order
                records_are_found_by_state_route_and_time
                records_are_counted_by_state
                the_clock_that_decides_is_shown
                looking_changes_nothing
            }
            facts {
                a_fact_is_put_once
                rivals_agree_on_a_fact
                a_fact_can_be_replaced
                facts_do_not_interfere
            }
        }
    };
}

/// The laws of durable stores, in the same way.
#[doc(hidden)]
#[macro_export]
macro_rules! each_restart_law {
    ($stamp:ident $with:tt) => {
        $crate::$stamp! {
            $with
            restart {
                an_answer_outlives_a_restart
                a_claim_outlives_a_restart
                an_owner_may_complete_after_a_restart
                ones_own_claim_is_found_after_a_restart
                a_checkpoint_outlives_a_restart
                a_failed_key_outlives_a_restart
                a_birth_outlives_a_restart
                a_hold_outlives_a_restart
                a_keepsake_outlives_a_restart
                what_is_gone_stays_gone_over_a_restart
                keys_expire_over_a_restart
                a_tombstone_outlives_a_restart
                an_erasure_outlives_a_restart
                facts_outlive_a_restart
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use crate::conformance::{LAWS, RESTART_LAWS};

    #[test]
    fn every_law_that_was_written_is_in_the_list() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
        let mut written = BTreeSet::new();
        for entry in fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("the folder can be listed").path();
            let source = fs::read_to_string(path).expect("a source is text");
            let laws = source.lines().filter_map(|line| {
                line.strip_prefix("pub async fn ")?.strip_suffix("(trial: Trial) {")
            });
            written.extend(laws.map(str::to_owned));
        }
        let listed = LAWS.iter().chain(RESTART_LAWS).map(|law| law.name.to_owned());
        assert_eq!(written, listed.collect());
        assert_eq!(written.len(), LAWS.len() + RESTART_LAWS.len(), "no law is listed twice");
    }
}
