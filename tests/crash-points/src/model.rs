//! [`Model`]: what the store has acknowledged, and what each key may be after a crash.
//!
//! A key has one record by core's own rules, as long as all its calls were answered. A call that is
//! under way may have been made or not, and so may one whose error says so; then the key has several
//! possible records, until an answer tells which it was.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use selfsame_core::conformance::SettableClock;
use selfsame_core::{Clock, Record, Timestamp};

use crate::op::{Op, Verb};
use crate::seen::{is_seen_as, swept, text};

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind, one of those in this crate.
    pub kind: &'static str,
    /// What was expected, and what was found.
    pub text: String,
}

/// What was acknowledged is not there, or is what it was before.
pub const LOST: &str = "acknowledged, then lost";
/// A key that was claimed or used is new.
pub const NEW: &str = "acknowledged, then new";
/// A call is found to have been made whose error said that nothing was written.
pub const DENIED: &str = "denied, then found";
/// An answer does not fit the answers before it, though nothing went wrong.
pub const CONTRADICTED: &str = "answers contradict each other";

/// What the error of a call said of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may be found to have been made, also later: after a restart.
    MayHaveLanded,
    /// It was not made.
    NotWritten,
}

/// What is known of a store.
#[derive(Debug, Clone, Default)]
pub struct Model {
    clock_ms: u64,
    keys: BTreeMap<String, Vec<Option<Record>>>,
    facts: BTreeMap<String, Vec<Option<Vec<u8>>>>,
    running: BTreeMap<u64, Op>,
    failed: Vec<Failed>,
    tags: HashMap<String, Vec<u64>>,
    /// Tags of bodies that were erased.
    pub erased: BTreeSet<u64>,
    /// Acknowledgements that contradict the ones before.
    pub contradictions: Vec<Finding>,
    /// Number of acknowledgements so far.
    pub acknowledged: u64,
}

impl Model {
    /// The time of the workload's clock.
    pub fn clock(&self) -> SettableClock {
        let clock = SettableClock::new();
        clock.pass(Duration::from_millis(self.clock_ms));
        clock
    }

    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// Takes note of a line of the workload's.
    ///
    /// # Panics
    ///
    /// If the line is none of the workload's.
    pub fn note(&mut self, line: &str) {
        let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        let (number, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = number.parse().unwrap_or(0);
        match word {
            "start" => {
                let op = Op::parse(text).expect("the workload's calls can be read");
                self.begin(number, op);
            }
            "done" => drop(self.end(number, text)),
            "failed" => self.fail(number, text),
            "clock" => self.clock_ms = number,
            "sweep" => self.sweep(),
            "opened" => self.failed.iter_mut().for_each(|failed| failed.is_reopened = true),
            "open" | "close" | "closed" | "error" => {}
            other => panic!("the workload does not write {other}"),
        }
    }

    /// What was under way stays unknown.
    pub fn crash(&mut self) {
        let now = self.now();
        for op in std::mem::take(&mut self.running).into_values() {
            // It may also have been made behind a call that failed, if that one was made.
            for failed in self.failed.iter_mut().filter(|failed| failed.op.key == op.key) {
                let more: Vec<_> =
                    failed.states.iter().map(|state| state.clone().after(&op, now).1).collect();
                failed.states.extend(more);
            }
            self.widen(&op);
        }
    }

    /// Takes note of a call that the store is about to be asked for.
    pub fn begin(&mut self, number: u64, op: Op) {
        if op.len > 0 && !op.is_of_fact() {
            self.tags.entry(op.key.clone()).or_default().push(op.tag);
        }
        self.running.insert(number, op);
    }

    /// Takes note of an acknowledgement. Returns whether it may be.
    pub fn end(&mut self, number: u64, outcome: &str) -> bool {
        let op = self.running.remove(&number).expect("what ends began");
        self.acknowledged += 1;
        let before = self.describe(&op.key);
        let mut outcomes = self.apply(&op);
        let is_like =
            |outcomes: &[(String, Possible)]| outcomes.iter().any(|(told, _)| told == outcome);
        for verdict in [Verdict::MayHaveLanded, Verdict::NotWritten] {
            if is_like(&outcomes) || !self.doubt(&op.key, verdict) {
                continue;
            }
            let doubted = self.apply(&op);
            if is_like(&doubted) {
                outcomes = doubted;
                if verdict == Verdict::NotWritten {
                    let text = format!("{op}\n  was answered: {outcome}\n  of: {before}");
                    self.contradictions.push(Finding { kind: DENIED, text });
                }
            }
        }
        let told: Vec<_> = outcomes.iter().map(|(told, _)| told.clone()).collect();
        let matching = outcomes.into_iter().filter(|(told, _)| told == outcome);
        let mut is_possible = false;
        let mut next = Vec::new();
        for (_, state) in matching {
            is_possible = true;
            if !next.contains(&state) {
                next.push(state);
            }
        }
        if !is_possible {
            let told = told.join("\n  or ");
            let text =
                format!("{op}\n  was answered: {outcome}\n  expected: {told}\n  of: {before}");
            self.contradictions.push(Finding { kind: CONTRADICTED, text });
            return false;
        }
        if op.verb == Verb::Erase && outcome == "Done" {
            self.erased.extend(self.tags.get(&op.key).into_iter().flatten());
        }
        self.put(&op, next);
        // What a store has made of a failed call when it starts again, it sticks to.
        self.failed.retain(|failed| !failed.is_reopened || failed.op.key != op.key);
        true
    }

    fn fail(&mut self, number: u64, text: &str) {
        let Some(op) = self.running.remove(&number) else { return };
        let is_denied = text.starts_with("NotWritten");
        let verdict = if is_denied { Verdict::NotWritten } else { Verdict::MayHaveLanded };
        let states = self.apply(&op).into_iter().map(|(_, state)| state).collect();
        self.failed.push(Failed { op: op.clone(), verdict, states, is_reopened: false });
        if !is_denied {
            self.widen(&op);
        }
        if text.starts_with("Damaged") || text.starts_with("RecordsLost") {
            let text = format!("{op}\n  failed: {text}");
            self.contradictions.push(Finding { kind: CONTRADICTED, text });
        }
    }

    /// A sweep may write down what became of records by themselves.
    fn sweep(&mut self) {
        let now = self.now();
        for states in self.keys.values_mut() {
            let swept: Vec<_> = states.iter().flatten().map(|record| swept(record, now)).collect();
            for state in swept {
                if !states.contains(&state) {
                    states.push(state);
                }
            }
        }
    }

    fn widen(&mut self, op: &Op) {
        let next = self.apply(op).into_iter().map(|(_, next)| next).collect();
        self.add(op, next);
    }

    fn add(&mut self, op: &Op, more: Vec<Possible>) {
        let mut states = self.states(op);
        for state in more {
            if !states.contains(&state) {
                states.push(state);
            }
        }
        self.put(op, states);
    }

    fn states(&self, op: &Op) -> Vec<Possible> {
        if op.is_of_fact() {
            let known = self.facts.get(&op.key).cloned().unwrap_or_else(|| vec![None]);
            return known.into_iter().map(Possible::Fact).collect();
        }
        let known = self.keys.get(&op.key).cloned().unwrap_or_else(|| vec![None]);
        known.into_iter().map(|record| Possible::Record(record.map(Box::new))).collect()
    }

    fn apply(&self, op: &Op) -> Vec<(String, Possible)> {
        let now = self.now();
        self.states(op).into_iter().map(|state| state.after(op, now)).collect()
    }

    fn put(&mut self, op: &Op, states: Vec<Possible>) {
        let (mut records, mut facts) = (Vec::new(), Vec::new());
        for state in states {
            match state {
                Possible::Record(record) => records.push(record.map(|record| *record)),
                Possible::Fact(value) => facts.push(value),
            }
        }
        match op.is_of_fact() {
            true => drop(self.facts.insert(op.key.clone(), facts)),
            false => drop(self.keys.insert(op.key.clone(), records)),
        }
    }

    /// The keys of which anything was asked.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.keys.keys()
    }

    /// The facts of which anything was asked.
    pub fn facts(&self) -> impl Iterator<Item = &String> {
        self.facts.keys()
    }

    /// Tells whether the key is known, whatever was made of what was under way.
    pub fn is_known(&self, key: &str) -> bool {
        let now = self.now();
        let states = self.keys.get(key);
        states.is_some_and(|states| {
            states.iter().all(|state| state.as_ref().is_some_and(|record| !record.is_expired(now)))
        })
    }

    /// Tells whether a reader may find this record under the key.
    pub fn may_be(&self, key: &str, found: Option<&Record>) -> bool {
        let now = self.now();
        let states = self.keys.get(key);
        states
            .is_none_or(|states| states.iter().any(|state| is_seen_as(state.as_ref(), found, now)))
    }

    /// Takes into account that calls for this key which failed with this verdict may have been made since.
    /// Returns whether there were any.
    pub fn doubt(&mut self, key: &str, verdict: Verdict) -> bool {
        let failed = std::mem::take(&mut self.failed).into_iter();
        let (doubted, others): (Vec<_>, Vec<_>) =
            failed.partition(|failed| failed.op.key == key && failed.verdict == verdict);
        self.failed = others;
        let is_any = !doubted.is_empty();
        for failed in doubted {
            self.add(&failed.op, failed.states);
        }
        is_any
    }

    /// What a key or a fact may be, for people.
    pub fn describe(&self, key: &str) -> String {
        let records = self.keys.get(key).into_iter().flatten();
        let mut texts: Vec<_> = records.map(|record| text(record.as_ref())).collect();
        let facts = self.facts.get(key).into_iter().flatten();
        texts.extend(facts.map(|fact| match fact {
            Some(value) => crate::op::digest(value),
            None => "no fact".to_owned(),
        }));
        if texts.is_empty() {
            return "a new key".to_owned();
        }
        texts.join("\n  or ")
    }
}

/// A call that failed, and what it led to if it was made.
#[derive(Debug, Clone)]
struct Failed {
    op: Op,
    verdict: Verdict,
    states: Vec<Possible>,
    is_reopened: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Possible {
    Record(Option<Box<Record>>),
    Fact(Option<Vec<u8>>),
}

impl Possible {
    /// What a call comes to, and what it leads to.
    fn after(self, op: &Op, now: Timestamp) -> (String, Self) {
        match self {
            Self::Fact(value) => {
                let (outcome, next) = op.on_fact(value.as_ref());
                (outcome, Self::Fact(next))
            }
            Self::Record(record) => {
                let (outcome, next) = op.on_record(record.as_deref(), now);
                (outcome, Self::Record(next.map(Box::new)))
            }
        }
    }
}
