//! Logs to standard error, metrics to whoever scrapes them.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, Result};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::address_limit::{
    ABANDONED, MAX_ABANDONED_REQUESTS, MAX_CONNECTIONS_PER_ADDRESS, MAX_REQUESTS_PER_ADDRESS,
};
use crate::background;
use crate::buffered_bytes::{BUFFERED, MAX_BUFFERED_BYTES, MAX_BUFFERED_BYTES_PER_ADDRESS};
use crate::fair_share::DEFERRED;
use crate::new_key_rate::MAX_NEW_KEYS_PER_ADDRESS;
use crate::printable::{LogForm, LogWriter};

/// What is logged, in the syntax of tracing's `EnvFilter`.
const LOG_VARIABLE: &str = "SELFSAME_LOG";
const BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
/// The counters that have no labels.
const COUNTERS: [&str; 11] = [
    "selfsame_fenced_writes_total",
    "selfsame_leases_expired_total",
    "selfsame_reaped_total",
    "selfsame_buried_total",
    "selfsame_damaged_records_total",
    "selfsame_erased_total",
    "selfsame_held_total",
    "selfsame_tls_failures_total",
    "selfsame_streams_cut_total",
    "selfsame_removed_headers_total",
    DEFERRED,
];
/// Settings that refuse requests.
const SHED_REASONS: [&str; 7] = [
    "max_requests",
    MAX_REQUESTS_PER_ADDRESS,
    MAX_ABANDONED_REQUESTS,
    MAX_NEW_KEYS_PER_ADDRESS,
    MAX_BUFFERED_BYTES_PER_ADDRESS,
    MAX_BUFFERED_BYTES,
    "max_upstream_connections",
];
/// Settings that refuse connections.
const REFUSED_REASONS: [&str; 2] = ["max_connections", MAX_CONNECTIONS_PER_ADDRESS];
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Counts a configuration that was read again, and taken or not.
pub(crate) fn reloaded(is_taken: bool) {
    let result = if is_taken { "taken" } else { "refused" };
    metrics::counter!("selfsame_reloads_total", "result" => result).increment(1);
}

/// Counts a request that is refused before it is run, by the setting that refuses it.
pub(crate) fn shed(setting: &'static str) {
    metrics::counter!("selfsame_shed_requests_total", "reason" => setting).increment(1);
}

/// Counts a connection that is refused, by the setting that refuses it.
pub(crate) fn refused_connection(setting: &'static str) {
    metrics::counter!("selfsame_refused_connections_total", "reason" => setting).increment(1);
}

/// Logs as JSON, one object a line; as plain text where a person watches.
pub(crate) fn log(default: &str) {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(default));
    let is_watched = std::io::stderr().is_terminal();
    let form = if is_watched { LogForm::Text } else { LogForm::Json };
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || LogWriter(form));
    // A second call in one process, as tests make, leaves the first in place.
    let _already_set = match is_watched {
        true => builder.try_init(),
        false => builder.json().flatten_event(true).with_ansi(false).try_init(),
    };
}

/// Counts from here on. Must be called on a runtime, once.
pub(crate) fn metrics() -> Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &BUCKETS)?
        .install_recorder()
        .context("metrics are already being counted in this process")?;
    let upkeep = handle.clone();
    background::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            upkeep.run_upkeep();
        }
    });
    // Shown from the start, so that an alert on them can tell zero from absent.
    for name in COUNTERS {
        metrics::counter!(name).increment(0);
    }
    for reason in SHED_REASONS {
        metrics::counter!("selfsame_shed_requests_total", "reason" => reason).increment(0);
    }
    for reason in REFUSED_REASONS {
        metrics::counter!("selfsame_refused_connections_total", "reason" => reason).increment(0);
    }
    metrics::gauge!("selfsame_in_flight").set(0.0);
    metrics::gauge!(ABANDONED).set(0.0);
    metrics::gauge!(BUFFERED).set(0.0);
    Ok(handle)
}
