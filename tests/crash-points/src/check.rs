//! The comparison of an opened store with what was acknowledged.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use selfsame::stores::{EmbeddedStore, OpenError};
use selfsame_core::{Record, Store, Sweep};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::model::{DENIED, Finding, LOST, Model, NEW, Verdict};
use crate::op::{Op, Verb};
use crate::place::Place;
use crate::seen::text;
use crate::workload::options;

/// How often a lock is tried, a millisecond apart.
const LOCK_TRIES: u32 = 20_000;

/// How closely a state is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    /// Opens the store twice, with some work between.
    pub reopens: bool,
    /// Looks for erased bodies in the files.
    pub searches: bool,
    /// Sweeps, and compares once more.
    pub sweeps: bool,
}

/// The store does not open on what a power cut left, or once an error is over.
pub const REFUSED: &str = "refused to open";
/// A body that was erased is in a file.
pub const NOT_ERASED: &str = "erased, then found";
/// A call fails on what a power cut left.
pub const FAILED: &str = "a call failed";

/// Opens stores and compares them with models.
#[derive(Debug)]
pub struct Checker {
    runtime: Runtime,
    attempts: u64,
}

impl Default for Checker {
    fn default() -> Self {
        let runtime = Builder::new_current_thread().enable_time().build();
        Self { runtime: runtime.expect("a runtime can be made"), attempts: 1 << 40 }
    }
}

impl Checker {
    /// Opens the store that was laid out in `place`, and compares it with `model`.
    pub fn check(&mut self, place: &Place, model: &mut Model, depth: Depth) -> Vec<Finding> {
        model.crash();
        let mut findings = Vec::new();
        if depth.searches
            && let Some((tag, path)) = place.bodies_of(&model.erased)
        {
            let text = format!("the body {tag} was erased, and is in {path}");
            findings.push(Finding { kind: NOT_ERASED, text });
        }
        for round in 0..1 + u64::from(depth.reopens) {
            let store = match open(place, model) {
                Ok(store) => Arc::new(store),
                Err(error) => {
                    let text = format!("opening it the {round}. time: {error}\n{error:?}");
                    findings.push(Finding { kind: REFUSED, text });
                    return findings;
                }
            };
            let mut compare = Compare { checker: self, store, model, findings: &mut findings };
            compare.run(depth.sweeps && round == 0);
            if !findings.is_empty() {
                break;
            }
        }
        findings
    }
}

/// Opens the store. A process that another thread has just forked holds all locks of this one, until
/// it becomes another program.
fn open(place: &Place, model: &Model) -> Result<EmbeddedStore, OpenError> {
    for _ in 0..LOCK_TRIES {
        match EmbeddedStore::open(place.store(), options(model.clock())) {
            Err(OpenError::InUse { .. }) => thread::sleep(Duration::from_millis(1)),
            opened => return opened,
        }
    }
    EmbeddedStore::open(place.store(), options(model.clock()))
}

struct Compare<'a> {
    checker: &'a mut Checker,
    store: Arc<EmbeddedStore>,
    model: &'a mut Model,
    findings: &'a mut Vec<Finding>,
}

impl Compare<'_> {
    fn run(&mut self, sweeps: bool) {
        self.read_all();
        let known: Vec<_> = self.model.keys().cloned().collect();
        let known = known.iter().filter(|key| self.model.is_known(key));
        let mut calls: Vec<_> = known.map(|key| Op::retry(key, 0)).collect();
        calls.extend(self.model.facts().map(|fact| Op {
            tag: 7,
            len: 9,
            ..Op::new(Verb::FactOr, fact)
        }));
        self.call(calls);
        if sweeps {
            self.model.note("sweep");
            let store = self.store.clone();
            let swept = self.checker.runtime.block_on(async move {
                while !store.sweep(1000).await?.finished {}
                Ok::<_, selfsame_core::StoreError>(())
            });
            if let Err(error) = swept {
                self.find(FAILED, format!("a sweep: {error}"));
            }
            self.read_all();
        }
        // What comes behind must not be taken for a part of what was cut off.
        self.checker.attempts += 1;
        let claim = Op::retry(&format!("after-{}", self.checker.attempts), 0);
        self.call(vec![claim.clone()]);
        let attempt = self.checker.attempts;
        let complete =
            Op { attempt, fence: 1, tag: attempt, len: 700, verb: Verb::Complete, ..claim };
        self.call(vec![complete]);
    }

    /// Compares each record with what it may be.
    fn read_all(&mut self) {
        let keys: Vec<_> = self.model.keys().cloned().collect();
        let mut reads = JoinSet::new();
        let read = self.checker.runtime.block_on(async {
            for (at, key) in keys.iter().enumerate() {
                let (store, id) = (self.store.clone(), Op::new(Verb::Claim, key).id());
                reads.spawn(async move { (at, store.get(&id).await) });
            }
            reads.join_all().await
        });
        for (at, found) in read {
            let key = &keys[at];
            match found {
                Ok(found) => self.compare(key, found.as_ref()),
                Err(error) => {
                    let expected = self.model.describe(key);
                    let text = format!("{key}\n  expected: {expected}\n  found: {error}");
                    self.find(FAILED, text);
                }
            }
        }
    }

    fn compare(&mut self, key: &str, found: Option<&Record>) {
        if self.model.may_be(key, found) {
            return;
        }
        let expected = self.model.describe(key);
        let told = text(found);
        let text = format!("{key}\n  expected: {expected}\n  found: {told}");
        let mut is_made = |verdict| self.model.doubt(key, verdict) && self.model.may_be(key, found);
        if is_made(Verdict::MayHaveLanded) {
            return;
        }
        let is_denied = is_made(Verdict::NotWritten);
        self.find(if is_denied { DENIED } else { LOST }, text);
    }

    /// Makes calls at the same time, and compares what they come to with what they may.
    fn call(&mut self, calls: Vec<Op>) {
        let mut running = JoinSet::new();
        let first = 1 << 50;
        let mut numbered = Vec::new();
        for (number, mut op) in (first..).zip(calls) {
            if op.attempt == 0 && !op.is_of_fact() {
                self.checker.attempts += 1;
                op.attempt = self.checker.attempts;
            }
            self.model.begin(number, op.clone());
            numbered.push((number, op));
        }
        let done = self.checker.runtime.block_on(async {
            for (number, op) in numbered {
                let store = self.store.clone();
                running.spawn(async move {
                    let outcome = op.on_store(&*store).await;
                    (number, op, outcome)
                });
            }
            running.join_all().await
        });
        for (number, op, outcome) in done {
            match outcome {
                Ok(outcome) => {
                    let known = self.model.contradictions.len();
                    let is_possible = self.model.end(number, &outcome);
                    let is_new = outcome.starts_with("Run fence=1 attempt=1 ");
                    for found in self.model.contradictions.split_off(known) {
                        let kind = match op.verb {
                            _ if is_possible => found.kind,
                            Verb::Claim if is_new => NEW,
                            _ => LOST,
                        };
                        self.find(kind, found.text);
                    }
                }
                Err(error) => self.find(FAILED, format!("{op}: {error}")),
            }
        }
    }

    fn find(&mut self, kind: &'static str, text: String) {
        self.findings.push(Finding { kind, text });
    }
}
