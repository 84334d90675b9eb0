//! The task that tries what waits for the store: a few at a time while it fails, many once it works.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use selfsame_core::{StoreError, StoreErrorKind};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::owed::{Owed, Write};
use super::{Landed, Landing};

/// Number of writes that are tried at the same time, while all fail and while some are made.
const PROBES: usize = 4;
const TOGETHER: usize = 32;
/// The pause before the first try, and the longest between tries: what waits is written about a second
/// after the store is back.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Limit of one try, whatever the store's own time-out is.
const TRY_TIME_OUT: Duration = Duration::from_secs(30);

/// Number of tries at the same time, and the pause between them.
struct Pace {
    together: usize,
    pause: Duration,
    resumes_at: Instant,
}

/// Tries what waits, for as long as somebody may add to it or something is left.
pub(super) async fn drive(landing: Weak<Landing>, added: Arc<Notify>) {
    loop {
        let next = match landing.upgrade() {
            Some(landing) => landing.try_all().await,
            None => return,
        };
        match next {
            Some(next) => drop(timeout_at(next, added.notified()).await),
            None => added.notified().await,
        }
    }
}

impl Landing {
    /// Tries what waits until nothing does about which the store has said nothing yet. Tells when it is
    /// to be asked again about the rest.
    async fn try_all(&self) -> Option<Instant> {
        let mut pace = Pace { together: PROBES, pause: FIRST_PAUSE, resumes_at: Instant::now() };
        let mut running = FuturesUnordered::new();
        loop {
            if Instant::now() >= pace.resumes_at {
                let room = pace.together.saturating_sub(running.len());
                running
                    .extend(self.queue.take_due(room).into_iter().map(|owed| self.attempt(owed)));
            }
            let added = self.queue.added.notified();
            let wake = match self.queue.next_due() {
                next if running.is_empty() && self.queue.is_settled() => return next,
                // Whoever is done makes room.
                Some(_) if running.len() >= pace.together => None,
                Some(at) => Some(timeout_at(at.max(pace.resumes_at), added)),
                None if running.is_empty() => return None,
                None => Some(timeout_at(Instant::now() + TRY_TIME_OUT, added)),
            };
            let is_made = match (wake, running.is_empty()) {
                (Some(wake), true) => {
                    let _woken = wake.await;
                    continue;
                }
                (Some(wake), false) => match select(running.next(), Box::pin(wake)).await {
                    Either::Left((is_made, _)) => is_made,
                    Either::Right(_) => continue,
                },
                (None, _) => running.next().await,
            };
            pace.note(is_made.unwrap_or(true));
        }
    }

    /// Tries one write, and tells whether the store took it.
    async fn attempt(&self, owed: Arc<Owed>) -> bool {
        let landed = timeout(TRY_TIME_OUT, self.land(&owed)).await;
        let late = || StoreError::new(StoreErrorKind::MayHaveLanded, "the store does not answer");
        match landed.unwrap_or_else(|_| Err(late())) {
            Ok(Landed::Made) => true,
            Ok(Landed::Missed) => {
                self.missed(&owed).await;
                true
            }
            Err(error) => {
                let record = owed.id.short();
                if error.is_damaged() {
                    tracing::error!(%error, record, "what a record is owed is given up");
                    self.forget(&owed);
                } else {
                    self.log_failure(&error, &owed.id);
                    // The disk may have failed as well when this write was to be spooled.
                    if !matches!(owed.write, Write::Cancel { .. }) && !owed.is_spooled() {
                        self.keep_until_over(&owed).await;
                    }
                    self.queue.schedule(owed, LONGEST_PAUSE);
                }
                false
            }
        }
    }
}

impl Pace {
    fn note(&mut self, is_made: bool) {
        if is_made {
            *self = Self { together: TOGETHER, pause: FIRST_PAUSE, resumes_at: self.resumes_at };
        } else if self.together == PROBES {
            self.resumes_at = Instant::now() + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        } else {
            // One that fails alone does not slow down the others: the next success undoes this.
            self.together = PROBES;
        }
    }
}
