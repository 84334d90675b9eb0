//! [`Caller`]: what one caller of the workload does with its key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selfsame::stores::EmbeddedStore;

use crate::op::{Op, Verb};
use crate::random::Random;
use crate::workload::{Notes, Size};

const HOUR_MS: u64 = 60 * 60 * 1000;

/// A caller with a key, or with a fact.
pub(crate) struct Caller {
    pub(crate) store: Arc<EmbeddedStore>,
    pub(crate) notes: Arc<Notes>,
    pub(crate) random: Random,
    pub(crate) key: String,
    pub(crate) attempts: Arc<AtomicU64>,
    pub(crate) size: Size,
    pub(crate) fact: Option<String>,
}

impl Caller {
    pub(crate) async fn run(mut self) {
        match self.fact.take() {
            Some(fact) => self.use_fact(fact).await,
            None => self.use_key().await,
        }
    }

    async fn use_fact(mut self, fact: String) {
        for _ in 0..self.random.between(1, 3) {
            let verb = self.random.pick(&[Verb::SetFact, Verb::FactOr]);
            let (tag, len) = (self.number(), self.random.between(1, 64));
            self.call(&Op { tag, len, ..Op::new(verb, &fact) }).await;
        }
    }

    async fn use_key(mut self) {
        let mut claim: Option<Op> = None;
        for _ in 0..self.random.between(2, 8) {
            claim = match claim {
                None => self.claim().await,
                Some(claim) => self.go_on(claim).await,
            };
        }
        // Most runs come to an end.
        if let Some(claim) = claim.filter(|_| self.random.percent(70)) {
            self.complete(&claim).await;
        }
    }

    /// Claims the key, with all that a claim may say, and tells under which fence it runs.
    async fn claim(&mut self) -> Option<Op> {
        let attempt = self.number();
        let is_kept = self.random.percent(15);
        let claim = Op {
            lease: self.random.pick(&[5_000, 30_000, 30_000, 600_000]),
            retention: self.random.pick(&[HOUR_MS, 24 * HOUR_MS, 24 * HOUR_MS, 1000 * HOUR_MS]),
            remember: self.random.pick(&[0, 0, 720 * HOUR_MS]),
            how: self.random.below(3),
            tag: if is_kept { self.number() } else { 0 },
            len: if is_kept { self.random.between(1, 20_000) } else { 0 },
            ..Op::retry(&self.key, attempt)
        };
        let outcome = self.call(&claim).await?;
        match outcome.strip_prefix("Run fence=") {
            Some(rest) => {
                let fence = rest.split(' ').next()?.parse().ok()?;
                Some(Op { fence, ..claim })
            }
            None => {
                self.use_finished(&claim, &outcome).await;
                None
            }
        }
    }

    /// What may be done with a key that does not run.
    async fn use_finished(&mut self, claim: &Op, outcome: &str) {
        if outcome.starts_with("Replay") && self.random.percent(25) {
            self.call(&Op::new(Verb::Erase, &self.key.clone())).await;
        } else if outcome == "Held" && self.random.percent(50) {
            for fence in 1..4 {
                let free = Op { fence, ..Op::new(Verb::Free, &claim.key) };
                if self.call(&free).await.is_none_or(|outcome| outcome == "Done") {
                    break;
                }
            }
        }
    }

    async fn go_on(&mut self, claim: Op) -> Option<Op> {
        let with = |verb| Op { verb, len: 0, tag: 0, how: 0, ..claim.clone() };
        match self.random.below(12) {
            0 | 1 => drop(self.call(&with(Verb::Renew)).await),
            2 => {
                let (tag, len) = (self.number(), self.random.pick(&[10, 500, 5000]));
                self.call(&Op { tag, len, ..with(Verb::Checkpoint) }).await;
            }
            3 => {
                // A rival is told that somebody runs.
                let rival = Op::retry(&self.key.clone(), self.number());
                self.call(&rival).await;
            }
            4 => {
                let how = self.random.below(8);
                self.call(&Op { how, ..with(Verb::Release) }).await;
                return None;
            }
            5 if self.random.percent(30) => {
                self.call(&Op { attempt: claim.attempt, ..Op::new(Verb::Cancel, &claim.key) })
                    .await;
                return None;
            }
            6 => {
                // The same claim, whose acknowledgement was lost.
                self.call(&Op { verb: Verb::Claim, fence: 0, ..claim.clone() }).await;
            }
            7 if self.random.percent(30) => return None,
            8 if self.random.percent(30) => {
                self.call(&Op::new(Verb::Erase, &claim.key)).await;
            }
            _ => {
                self.complete(&claim).await;
                if self.random.percent(20) {
                    self.call(&Op::new(Verb::Erase, &claim.key)).await;
                }
                return None;
            }
        }
        Some(claim)
    }

    async fn complete(&mut self, claim: &Op) {
        let len = match (self.size, self.random.below(100)) {
            (Size::Tiny, _) => self.random.pick(&[0, 100, 3000]),
            (_, 0..60) => self.random.pick(&[0, 1, 100, 437, 2000]),
            (_, 60..85) => self.random.between(3_000, 30_000),
            (Size::Small, 85..97) => self.random.between(60_000, 200_000),
            (Size::Small, _) => self.random.between(300_000, 600_000),
            (Size::Large, 85..97) => self.random.between(100_000, 600_000),
            (Size::Large, _) => self.random.between(1_100_000, 2_000_000),
        };
        let tag = self.number();
        let complete = Op { verb: Verb::Complete, tag, len, how: 0, ..claim.clone() };
        self.call(&complete).await;
    }

    async fn call(&self, op: &Op) -> Option<String> {
        self.notes.call(&self.store, op).await
    }

    /// A number that nothing else has.
    fn number(&self) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed)
    }
}
