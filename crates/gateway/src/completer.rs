//! The completer: drives requests to an end whose clients do not come back.
//!
//! Every node may have one: whoever gets a key's claim runs it. It looks at a few records at a time,
//! runs a few at once, and keeps nothing in mind that a restart must not forget.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use http_body_util::Empty;
use hyper::body::Bytes;
use metrics::{counter, gauge};
use selfsame::{Abandoned, Ending, Idempotency};
use selfsame_core::{Find, FullStore, RecordId, StoreError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::routes::LiveRoutes;

/// How many records are looked at in one step.
const STEP: usize = 64;
/// How many requests run at once.
const RUNS_MAX: usize = 4;
/// The longest pause between walks through what was abandoned.
const WALK_PAUSE_MAX: Duration = Duration::from_secs(30);
/// While no route has its requests completed.
const IDLE_PAUSE: Duration = Duration::from_secs(5);
/// How many held keys are kept in mind that were asked about; one more is not asked about yet.
const ASKED_MAX: usize = 10_000;
/// The longest pause between two questions about a held key.
const ASK_PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

/// Drives abandoned requests to an end.
pub(crate) struct Completer {
    pub(crate) store: Arc<dyn FullStore>,
    pub(crate) idempotency: Idempotency,
    pub(crate) routes: Arc<LiveRoutes>,
    pub(crate) stop: CancellationToken,
}

/// The held keys that the upstream was asked about: when again, and after what a pause.
type Questions = HashMap<RecordId, (Instant, Duration)>;

impl Completer {
    /// Walks through what was abandoned again and again, until it is stopped. Runs that were begun by
    /// then go on, as those of clients do.
    pub(crate) async fn run(self) {
        let mut questions = Questions::new();
        while !self.stop.is_cancelled() {
            let after = self.routes.look().completes_after();
            let pause = match after {
                None => IDLE_PAUSE,
                Some(after) => {
                    let walk = self.walk(after, &mut questions);
                    let walked = tokio::select! {
                        walked = walk => walked,
                        () = self.stop.cancelled() => return,
                    };
                    if let Err(error) = walked {
                        tracing::warn!(%error, "the completer could not look for abandoned keys");
                    }
                    (after / 4).min(WALK_PAUSE_MAX)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// Sees to everything that was abandoned for `after` or longer.
    async fn walk(&self, after: Duration, questions: &mut Questions) -> Result<(), StoreError> {
        // Shown from the start, so that an alert on them can tell zero from absent.
        for ending in [Ending::Completed, Ending::Unfinished, Ending::Held] {
            count(ending, 0);
        }
        let now = self.store.now().await?;
        let (mut last, mut seen) = (None, 0_u32);
        loop {
            let found = self.store.find(&Find::Abandoned { after: last }, STEP).await?;
            let is_whole = found.len() < STEP;
            last = found.last().map(|record| record.id);
            seen += u32::try_from(found.len()).expect("a step is short");
            let mut ripe = Vec::new();
            for record in found {
                let is_held = record.is_held(now);
                let is_ripe = record.left_at().is_some_and(|left_at| left_at + after <= now);
                let now = Instant::now();
                if is_ripe && (!is_held || may_be_asked(record.id, after, now, questions)) {
                    ripe.push(record.id);
                }
            }
            stream::iter(ripe).for_each_concurrent(RUNS_MAX, |id| self.see_to(id)).await;
            if is_whole {
                break;
            }
        }
        gauge!("selfsame_abandoned").set(f64::from(seen));
        // Whoever was not asked about when it was time is held no more.
        let now = Instant::now();
        questions.retain(|_, (next, pause)| now < *next + *pause);
        Ok(())
    }

    async fn see_to(&self, id: RecordId) {
        let record = id.short();
        let abandoned = match self.idempotency.abandoned(&id).await {
            Ok(Some(abandoned)) => abandoned,
            // Its client came back.
            Ok(None) => return,
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, cause, record, "an abandoned request cannot be read");
                return;
            }
        };
        let ending = self.finish(abandoned).await;
        count(ending, 1);
        match ending {
            Ending::Left => {}
            Ending::Completed => tracing::info!(record, "an abandoned request was completed"),
            Ending::Unfinished => {
                tracing::warn!(
                    record,
                    "an abandoned request was run again, and has no outcome yet"
                );
            }
            Ending::Held => tracing::warn!(record, "an abandoned key waits for a person now"),
        }
    }

    async fn finish(&self, abandoned: Abandoned) -> Ending {
        let Some(head) = abandoned.head() else { return Ending::Left };
        // Found anew each time: the rules may have changed since.
        let service = self.routes.look().find(&head).service;
        service.see_to::<Empty<Bytes>, _>(abandoned).await
    }
}

fn count(ending: Ending, runs: u64) {
    let outcome = match ending {
        Ending::Left => return,
        Ending::Completed => "completed",
        Ending::Unfinished => "unfinished",
        Ending::Held => "held",
    };
    counter!("selfsame_completer_runs_total", "outcome" => outcome).increment(runs);
}

/// Whether the upstream may be asked about a held key now; if so, not again for a while. That grows from
/// question to question.
fn may_be_asked(id: RecordId, after: Duration, now: Instant, questions: &mut Questions) -> bool {
    let pause = match questions.get(&id) {
        Some((next, _)) if now < *next => return false,
        Some((_, pause)) => (*pause * 2).min(ASK_PAUSE_MAX.max(after)),
        None if questions.len() >= ASKED_MAX => return false,
        None => after,
    };
    questions.insert(id, (now + pause, pause));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(300);

    fn id(n: usize) -> RecordId {
        let mut bytes = [0; RecordId::LEN];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        RecordId::from_bytes(bytes)
    }

    #[test]
    fn a_held_key_is_asked_about_less_and_less() {
        let (begun, mut questions) = (Instant::now(), Questions::new());
        let mut is_asked = |minute: &u64| {
            may_be_asked(id(1), AFTER, begun + Duration::from_secs(60 * minute), &mut questions)
        };
        let asked: Vec<u64> = (0..240).filter(|minute| is_asked(minute)).collect();
        assert_eq!(asked, [0, 5, 15, 35, 75, 135, 195]);
    }

    #[test]
    fn only_so_many_are_kept_in_mind() {
        let (now, mut questions) = (Instant::now(), Questions::new());
        assert!((0..ASKED_MAX).all(|n| may_be_asked(id(n), AFTER, now, &mut questions)));
        assert!(!may_be_asked(id(ASKED_MAX), AFTER, now, &mut questions));
    }
}
