//! What every client asked and got, and the invariants it must show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::upstream::Bank;
use crate::harness::{Answer, Ledger};

/// What a key stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Operation {
    pub(super) tenant: &'static str,
    pub(super) key: String,
}

/// One request of a client.
#[derive(Debug)]
pub(super) struct Event {
    /// Its number, which goes up to the upstream with it, and tells when it began.
    pub(super) number: u64,
    pub(super) operation: Operation,
    ended: u64,
    outcome: Outcome,
}

/// What its client knows.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// The answer, fresh or again.
    Answered { body: Vec<u8>, replayed: bool },
    /// A refusal of the gateway's.
    Refused(String),
    /// The bank was busy.
    Busy,
    /// Sent, and nothing was heard.
    Lost,
    /// Not even sent as a whole.
    Cut,
}

impl Outcome {
    pub(super) fn of(answer: Answer) -> Self {
        let replayed = answer.header("idempotent-replayed").is_some();
        match (answer.status, answer.problem()) {
            (_, Some(problem)) => Self::Refused(problem),
            (201, None) => Self::Answered { body: answer.body, replayed },
            (503, None) if !replayed => Self::Busy,
            _ => panic!("nobody said that: {answer:?}"),
        }
    }

    fn is_refused(&self, problem: &str) -> bool {
        matches!(self, Self::Refused(refused) if refused == problem)
    }
}

#[derive(Default)]
pub(super) struct History {
    clock: AtomicU64,
    events: Mutex<Vec<Event>>,
    answered: Mutex<BTreeSet<Operation>>,
}

impl History {
    pub(super) fn begin(&self, operation: Operation) -> Event {
        let number = self.clock.fetch_add(1, Ordering::SeqCst);
        Event { number, operation, ended: 0, outcome: Outcome::Lost }
    }

    pub(super) fn end(&self, event: Event, outcome: Outcome) {
        if let Outcome::Answered { .. } = outcome {
            let mut answered = self.answered.lock().expect("no panic holds it");
            answered.insert(event.operation.clone());
        }
        let ended = self.clock.fetch_add(1, Ordering::SeqCst);
        let mut events = self.events.lock().expect("no panic holds it");
        events.push(Event { ended, outcome, ..event });
    }

    /// How many requests there were.
    pub(super) fn length(&self) -> u64 {
        self.events.lock().expect("no panic holds it").len() as u64
    }

    pub(super) fn is_answered(&self, operation: &Operation) -> bool {
        self.answered.lock().expect("no panic holds it").contains(operation)
    }

    pub(super) fn operations(&self) -> BTreeSet<Operation> {
        let events = self.events.lock().expect("no panic holds it");
        events.iter().map(|event| event.operation.clone()).collect()
    }

    /// Whether the last request of an operation was refused with `problem`.
    pub(super) fn ended_with(&self, operation: &Operation, problem: &str) -> bool {
        let events = self.events.lock().expect("no panic holds it");
        let last = events.iter().rev().find(|event| event.operation == *operation);
        last.is_some_and(|event| event.outcome.is_refused(problem))
    }

    pub(super) fn check(&self, ledger: &Ledger, bank: &Bank) {
        let events = self.events.lock().expect("no panic holds it");
        let mut by_operation: BTreeMap<&Operation, Vec<&Event>> = BTreeMap::new();
        for event in events.iter() {
            by_operation.entry(&event.operation).or_default().push(event);
        }
        for (operation, events) in by_operation {
            i1_at_most_one_effect(operation, ledger, bank);
            i3_all_answers_are_the_same(operation, &events);
            i4_once_seen_an_answer_stays(operation, &events);
            i5_no_answer_crosses_tenants(operation, &events);
            i10_unknown_only_when_it_is(
                operation,
                &events,
                bank.owes_an_answer(ledger, operation.tenant, &operation.key),
            );
        }
        i9_what_was_not_to_run_did_not(&events, ledger);
    }

    /// *Sometimes*: nothing passes empty.
    pub(super) fn check_that_it_was_eventful(&self) {
        let events = self.events.lock().expect("no panic holds it");
        let count = |is_meant: &dyn Fn(&Outcome) -> bool| {
            events.iter().filter(|event| is_meant(&event.outcome)).count()
        };
        let replays = count(&|o| matches!(o, Outcome::Answered { replayed: true, .. }));
        let fresh = count(&|o| matches!(o, Outcome::Answered { replayed: false, .. }));
        let happened = [
            ("a fresh answer", fresh),
            ("a replay", replays),
            ("a key in progress", count(&|o| o.is_refused("in-progress"))),
            ("a held key", count(&|o| o.is_refused("outcome-unknown"))),
            ("a lost answer", count(&|o| o.is_refused("upstream-failed"))),
            ("a key used for another request", count(&|o| o.is_refused("key-reused"))),
            ("a busy bank", count(&|o| *o == Outcome::Busy)),
            ("a connection lost to a kill, or hung up", count(&|o| *o == Outcome::Lost)),
        ];
        println!("{happened:?}");
        for (what, times) in happened {
            assert!(times > 0, "sometimes: {what}");
        }
    }
}

fn i1_at_most_one_effect(operation: &Operation, ledger: &Ledger, bank: &Bank) {
    let charges = bank.charges(ledger, operation.tenant, &operation.key);
    assert!(charges.len() <= 1, "I1: {operation:?} was charged by {charges:?}");
}

fn i3_all_answers_are_the_same(operation: &Operation, events: &[&Event]) {
    let bodies: BTreeSet<&[u8]> = events.iter().filter_map(|event| body(event)).collect();
    assert!(bodies.len() <= 1, "I3: {operation:?} was answered {bodies:?}");
}

fn i4_once_seen_an_answer_stays(operation: &Operation, events: &[&Event]) {
    let seen = events.iter().filter(|event| body(event).is_some()).map(|event| event.ended).min();
    let later = events.iter().filter(|event| seen.is_some_and(|seen| event.number > seen));
    for event in later {
        let stays = match &event.outcome {
            Outcome::Answered { replayed, .. } => *replayed,
            Outcome::Refused(problem) => problem == "key-reused",
            Outcome::Lost | Outcome::Cut => true,
            Outcome::Busy => false,
        };
        assert!(stays, "I4: {operation:?} was answered before {event:?}");
    }
}

fn i5_no_answer_crosses_tenants(operation: &Operation, events: &[&Event]) {
    let mine = format!(r#""for":"{}""#, operation.tenant);
    for body in events.iter().filter_map(|event| body(event)) {
        assert!(String::from_utf8_lossy(body).contains(&mine), "I5: {operation:?} got {body:?}");
    }
}

/// A request that was refused, replayed or cut off is not one that reached the upstream.
fn i9_what_was_not_to_run_did_not(events: &[Event], ledger: &Ledger) {
    let effects = ledger.all();
    let ran: BTreeSet<u64> =
        effects.iter().filter_map(|effect| effect.header("x-request")?.parse().ok()).collect();
    assert_eq!(ran.len(), effects.len(), "I9: no request was sent on twice");
    for event in events {
        let must_not_run = match &event.outcome {
            Outcome::Answered { replayed, .. } => *replayed,
            Outcome::Refused(problem) => problem != "upstream-failed",
            Outcome::Cut => true,
            Outcome::Lost | Outcome::Busy => false,
        };
        assert!(!(must_not_run && ran.contains(&event.number)), "I9: {event:?} ran");
    }
}

/// The bank kept an answer to itself, or a client lost its connection: else nothing is unknown.
fn i10_unknown_only_when_it_is(operation: &Operation, events: &[&Event], bank_owes: bool) {
    let is_lost = |event: &&&Event| event.outcome == Outcome::Lost;
    let excused = bank_owes || events.iter().any(|event| is_lost(&event));
    let is_unknown = events.iter().any(|event| event.outcome.is_refused("outcome-unknown"));
    assert!(excused || !is_unknown, "I10: {operation:?} is unknown for no reason");
}

fn body(event: &Event) -> Option<&[u8]> {
    match &event.outcome {
        Outcome::Answered { body, .. } => Some(body),
        _ => None,
    }
}
