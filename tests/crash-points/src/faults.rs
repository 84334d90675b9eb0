//! Errors of the disk, injected at each call in turn: what was acknowledged is there after the next
//! power cut, and an error that is over does not keep the store from opening.

use std::path::Path;

use crate::campaign::{BROKEN, Campaign};
use crate::check::REFUSED;
use crate::event::Event;
use crate::explore::Exploration;
use crate::model::Finding;
use crate::recorder::{Calls, EIO, ENOSPC, Fault, Job, record};
use crate::workload::Size;

/// The errors, by their names: which calls fail, and how.
pub const FAULTS: [(&str, Fault); 4] = [
    ("EIO", Fault { at: 0, count: 1, error: EIO, calls: Calls::All }),
    ("a failed sync", Fault { at: 0, count: 1, error: EIO, calls: Calls::Syncs }),
    ("ENOSPC", Fault { at: 0, count: 1, error: ENOSPC, calls: Calls::Room }),
    ("ENOSPC for a while", Fault { at: 0, count: 12, error: ENOSPC, calls: Calls::Room }),
];

/// One kind of error, at each call of a workload.
#[derive(Debug, Clone, Copy)]
pub struct FaultRun<'a> {
    /// The crate's binary, which runs workloads.
    pub program: &'a Path,
    /// The seed of the workload.
    pub seed: u64,
    /// The error; where it is injected is of no account.
    pub fault: Fault,
    /// Goes on by so many calls.
    pub step: u64,
    /// How many states after each error there are to be, about.
    pub states: u64,
    /// How many threads explore.
    pub threads: usize,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct FaultSummary {
    /// How many calls failed, each in a run of its own.
    pub calls: u64,
    /// How many states were opened.
    pub states: u64,
    /// What was found, each with its story.
    pub findings: Vec<Finding>,
}

impl FaultRun<'_> {
    /// Runs the workload again and again, until it ends before the call that is to fail.
    pub fn run(&self) -> FaultSummary {
        let mut summary = FaultSummary::default();
        let mut at = 1 + self.seed % self.step.max(1);
        while self.fail_at(at, &mut summary) {
            at += self.step.max(1);
        }
        summary
    }

    fn fail_at(&self, at: u64, summary: &mut FaultSummary) -> bool {
        let fault = Fault { at, ..self.fault };
        let job = Job::Workload { seed: self.seed, size: Size::Tiny, fault: Some(fault) };
        let recording = record(self.program, &job);
        let Fault { count, error, calls, .. } = self.fault;
        let name = format!("fault-{}-{}-{error}-{count}-{at}", self.seed, calls.name());
        let mut find = |kind, what: &str| {
            summary.findings.push(Finding { kind, text: format!("{name}: {what}") });
        };
        if let Err(text) = &recording.outcome {
            find(BROKEN, &format!("the workload failed: {text}"));
        }
        let mut events = recording.events;
        let is_fault = |event: &Event| matches!(event, Event::Fault { .. });
        let faults = events.iter().filter(|event| is_fault(event)).count();
        let Some(first) = events.iter().position(is_fault) else { return false };
        let refusals = events.iter().filter_map(|event| match event {
            Event::Note { line } => line.strip_prefix("error "),
            _ => None,
        });
        if let Some(refusal) = refusals.clone().nth(faults) {
            find(REFUSED, &format!("the error is over: {refusal}"));
        }
        events.insert(first, Event::Start);
        let campaign = Campaign {
            program: self.program,
            seed: self.seed,
            size: Size::Tiny,
            states: self.states,
            recoveries: 0,
            threads: self.threads,
        };
        let points_max = usize::try_from(self.states / 3).expect("it is small").max(2);
        let exploration = campaign.exploration(&events, self.seed, self.states);
        let report = Exploration { points_max, deep: true, ..exploration }.run();
        summary.calls += 1;
        summary.states += report.states;
        summary.findings.extend(campaign.tell(&report, &events, &name, self.seed));
        true
    }
}
