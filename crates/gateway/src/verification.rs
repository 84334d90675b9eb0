//! [`Verifier`]: reads all records of a store in a folder over and over, slowly, so that damage is
//! found before a retry asks for what is damaged.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use selfsame::stores::{EmbeddedStore, VerificationPass, VerifiedPiece};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::room::Seldom;

/// The most bytes that are read in a second. A pass through a large store takes longer than it should.
const BYTES_PER_SECOND_MAX: u64 = 8 * 1024 * 1024;
/// Bytes that are read in a second of a store however small it is. Then the next pass waits.
const BYTES_PER_SECOND_MIN: u64 = 64 * 1024;

/// Pause after the store could not be read.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Damaged records that are known by name.
const KNOWN_MAX: usize = 10_000;

/// Damage that was found, for those who show it.
#[derive(Debug, Default)]
pub(crate) struct FoundDamage(AtomicUsize);

impl FoundDamage {
    /// Damaged places, as the last pass found them, or as many as the present one has found if these
    /// are more.
    pub(crate) fn places(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, places: usize) {
        self.0.store(places, Ordering::Relaxed);
        metrics::gauge!("selfsame_store_damaged_records").set(places as f64);
    }
}

/// Reads a store's records.
pub(crate) struct Verifier {
    store: Weak<EmbeddedStore>,
    every: Duration,
    found: Arc<FoundDamage>,
    log: Seldom,
}

/// Damaged places of a pass.
#[derive(Default)]
struct Pass {
    pass: VerificationPass,
    places: BTreeSet<String>,
}

impl Verifier {
    /// Begins a pass each time `every` is over.
    pub(crate) fn new(
        store: Weak<EmbeddedStore>,
        every: Duration,
        found: Arc<FoundDamage>,
    ) -> Self {
        Self { store, every, found, log: Seldom::default() }
    }

    /// Reads until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        metrics::counter!("selfsame_store_verified_bytes_total").increment(0);
        metrics::counter!("selfsame_store_verifications_total").increment(0);
        self.found.set(0);
        let (mut pass, mut begun) = (Pass::default(), Instant::now());
        loop {
            // A store in a folder is not kept open by this.
            let Some(store) = self.store.upgrade() else { return };
            let bytes = store.bytes();
            let verified = store.verify_piece(&mut pass.pass).await;
            drop(store);
            let pause = match verified {
                Ok(piece) => {
                    self.note(&mut pass, &piece);
                    match piece.is_last {
                        true => {
                            let pause = self.every.saturating_sub(begun.elapsed());
                            (pass, begun) = (Pass::default(), Instant::now() + pause);
                            pause
                        }
                        false => pause_after(piece.bytes, bytes, self.every),
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the store cannot be verified at the moment");
                    RETRY_AFTER.min(self.every)
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn note(&self, pass: &mut Pass, piece: &VerifiedPiece) {
        metrics::counter!("selfsame_store_verified_bytes_total").increment(piece.bytes);
        for place in &piece.damage {
            if pass.places.len() < KNOWN_MAX {
                pass.places.insert(place.to_string());
            }
            if self.log.is_due() {
                tracing::error!(
                    record = place.record.map(|record| record.short()),
                    file = %place.path.display(),
                    offset = place.offset,
                    what = place.what,
                    found = pass.places.len(),
                    "verification found damage in the store; `selfsame store verify` lists all of it"
                );
            }
        }
        let places = pass.places.len();
        if piece.is_last || places > self.found.places() {
            self.found.set(places);
        }
        if piece.is_last {
            metrics::counter!("selfsame_store_verifications_total").increment(1);
        }
    }
}

/// Pause after so many bytes were read of a store that takes `total`.
fn pause_after(bytes: u64, total: u64, every: Duration) -> Duration {
    let rate = total as f64 / every.as_secs_f64();
    let rate = rate.clamp(BYTES_PER_SECOND_MIN as f64, BYTES_PER_SECOND_MAX as f64);
    Duration::from_secs_f64(bytes as f64 / rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn a_store_is_read_within_the_time_and_never_fast() {
        let rate = |total, every| 1e9 / pause_after(1_000_000_000, total, every).as_secs_f64();
        let of_a_day = rate(100 << 30, DAY);
        assert!((1.2e6..1.3e6).contains(&of_a_day), "{of_a_day}");
        for total in [0, 1, 1 << 30] {
            assert_eq!(rate(total, DAY).round(), BYTES_PER_SECOND_MIN as f64);
        }
        for every in [Duration::from_secs(1), Duration::from_nanos(1)] {
            assert_eq!(rate(100 << 30, every).round(), BYTES_PER_SECOND_MAX as f64);
        }
    }
}
