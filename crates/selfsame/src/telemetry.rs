//! The names of our metrics, in one place. Labels are routes and outcomes, never a key.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::outcome::Served;

pub(crate) fn served(route: &str, served: Served, took: Duration, ran: Option<Duration>) {
    let outcome = served.label();
    counter!("selfsame_requests_total", "route" => route.to_owned(), "outcome" => outcome)
        .increment(1);
    histogram!("selfsame_request_seconds", "outcome" => outcome).record(took);
    histogram!("selfsame_overhead_seconds").record(took.saturating_sub(ran.unwrap_or_default()));
}

/// What would have become of a request that was only observed.
pub(crate) fn observed(route: &str, served: Served) {
    let outcome = served.label();
    counter!("selfsame_observed_total", "route" => route.to_owned(), "outcome" => outcome)
        .increment(1);
}

/// A request of which cannot be said what would have become of it.
pub(crate) fn unobserved(route: &str, reason: &'static str) {
    counter!("selfsame_unobserved_total", "route" => route.to_owned(), "reason" => reason)
        .increment(1);
}

/// A retry that ran again, and was answered otherwise than it would have been.
pub(crate) fn differing_answer(route: &str) {
    counter!("selfsame_observed_differing_answers_total", "route" => route.to_owned()).increment(1);
}

pub(crate) fn store_call(store: &'static str, op: &'static str, took: Duration) {
    histogram!("selfsame_store_seconds", "store" => store, "op" => op).record(took);
}

pub(crate) fn lease_expired() {
    counter!("selfsame_leases_expired_total").increment(1);
}

pub(crate) fn fenced_write() {
    counter!("selfsame_fenced_writes_total").increment(1);
}

pub(crate) fn suspect_key(kind: &'static str) {
    counter!("selfsame_suspect_keys_total", "kind" => kind).increment(1);
}

pub(crate) fn damaged_record() {
    counter!("selfsame_damaged_records_total").increment(1);
}

pub(crate) fn unlanded_answers(count: usize) {
    gauge!("selfsame_unlanded_answers").set(count as f64);
}

/// Counts a run for as long as it lives.
pub(crate) struct InFlight;

impl InFlight {
    pub(crate) fn begin() -> Self {
        gauge!("selfsame_in_flight").increment(1.0);
        Self
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        gauge!("selfsame_in_flight").decrement(1.0);
    }
}
