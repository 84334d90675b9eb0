//! The writing thread, the only one: one sync to the disk serves a batch of callers.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tokio::time::Instant;

use super::jobs::{Job, Urgent};
use super::ledger::Ledger;
use super::trouble::{Failure, Health, Refusal};

/// The most work that one commit makes durable.
const BATCH_MAX: usize = 1024;

/// How long a batch waits, at most, for callers that are about to come back.
const GATHER_MAX: Duration = Duration::from_micros(500);

/// It waits for this part of what the last commit took: on a quick disk there is little to gain.
const GATHER_PART: u32 = 10;

/// How much of the usual batch size is made up by the last batch.
const LAST_BATCH_WEIGHT: f32 = 0.125;

/// The writing thread.
pub(super) struct Writer {
    ledger: Ledger,
    jobs: Receiver<Job<Ledger>>,
    urgent: Urgent<Ledger>,
    health: Arc<Health>,
    usual_batch: f32,
    last_commit: Duration,
}

impl Writer {
    pub(super) fn new(
        ledger: Ledger,
        jobs: Receiver<Job<Ledger>>,
        urgent: Urgent<Ledger>,
        health: Arc<Health>,
    ) -> Self {
        Self { ledger, jobs, urgent, health, usual_batch: 1.0, last_commit: Duration::ZERO }
    }

    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        while let Some(first) = self.next() {
            let mut waiting = self.gather(first);
            while !waiting.is_empty() {
                let (done, verdict) = self.make_durable(&mut waiting);
                for job in waiting.drain(..done) {
                    job.tell(verdict.as_ref().copied());
                }
            }
        }
        if self.health.check().is_ok() {
            // Without it the next start takes care, as after a crash.
            let _ = self.ledger.rest();
        }
    }

    /// What is done first. Nothing urgent is left behind: what wakes this thread for one may have gone with an
    /// earlier batch.
    fn next(&mut self) -> Option<Job<Ledger>> {
        let urgent = self.urgent.lock().pop_front();
        urgent.or_else(|| self.jobs.recv().ok())
    }

    /// What is waiting, and a little more. Callers that were just answered come back while the
    /// next sync is under way, so what is waiting is half of them: the batch waits until it is
    /// as large as usual, but not for long, and not where callers come one by one.
    fn gather(&mut self, first: Job<Ledger>) -> Vec<Job<Ledger>> {
        let mut batch: Vec<_> = {
            let mut urgent = self.urgent.lock();
            let count = urgent.len().min(BATCH_MAX - 1);
            urgent.drain(..count).collect()
        };
        batch.push(first);
        batch.extend(self.jobs.try_iter().take(BATCH_MAX - batch.len()));
        let until = Instant::now() + GATHER_MAX.min(self.last_commit / GATHER_PART);
        while (batch.len() as f32) < self.usual_batch.round() {
            let left = until.saturating_duration_since(Instant::now());
            match self.jobs.recv_timeout(left) {
                Ok(job) => batch.push(job),
                Err(_) => break,
            }
        }
        self.usual_batch += (batch.len() as f32 - self.usual_batch) * LAST_BATCH_WEIGHT;
        batch
    }

    /// Does the work of a batch, or of as much of it as may be written at once. How much that was, and
    /// what came of it.
    fn make_durable(&mut self, batch: &mut [Job<Ledger>]) -> (usize, Result<(), Refusal>) {
        if let Err(refusal) = self.health.check() {
            return (batch.len(), Err(refusal));
        }
        self.health.set_busy(true);
        let committed = self.commit(batch);
        self.health.set_busy(false);
        self.health.set_shortage(self.ledger.shortage());
        match committed {
            Ok(done) => (done, Ok(())),
            Err(failure) => {
                self.ledger.roll_back();
                let refusal = self.health.judge(&failure);
                let may_have_landed = self.ledger.may_have_landed();
                (batch.len(), Err(if may_have_landed { refusal.landed() } else { refusal }))
            }
        }
    }

    fn commit(&mut self, batch: &mut [Job<Ledger>]) -> Result<usize, Failure> {
        self.ledger.begin();
        let mut done = 0;
        for job in batch {
            job.run(&mut self.ledger)?;
            done += 1;
            if self.ledger.is_full() {
                break;
            }
        }
        let begun = Instant::now();
        self.ledger.commit()?;
        self.last_commit = begun.elapsed();
        Ok(done)
    }
}
