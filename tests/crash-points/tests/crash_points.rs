//! Power cuts and disk errors at the points of recorded workloads, and planted bugs that the same
//! machinery must find.
//!
//! With `SELFSAME_LONG=1` at least 200,000 states are explored, and errors are injected at each call; a
//! release build takes about twenty minutes for that on two cores.

use std::env;
use std::path::Path;

use selfsame_crash_points::campaign::Campaign;
use selfsame_crash_points::check::NOT_ERASED;
use selfsame_crash_points::event::Event;
use selfsame_crash_points::explore::{Exploration, Report};
use selfsame_crash_points::faults::{FAULTS, FaultRun};
use selfsame_crash_points::model::{LOST, NEW};
use selfsame_crash_points::recorder::{Job, record};
use selfsame_crash_points::tamper;
use selfsame_crash_points::workload::Size;

const THREADS: usize = 2;

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_crash-points"))
}

fn is_long() -> bool {
    env::var_os("SELFSAME_LONG").is_some()
}

/// Explores seeds until there were so many states.
fn explore(size: Size, first: u64, states: u64, workload_states: u64, recoveries: u64) {
    let campaign = Campaign {
        program: program(),
        seed: first,
        size,
        states: workload_states,
        recoveries,
        threads: THREADS,
    };
    let (mut seed, mut explored, mut second_cuts) = (first, 0, 0);
    while explored < states {
        let summary = campaign.explore(seed);
        summary.findings.iter().for_each(|finding| println!("{}", finding.text));
        assert!(summary.findings.is_empty(), "seed {seed}");
        explored += summary.states;
        second_cuts += summary.second_cuts;
        seed += 1;
    }
    println!(
        "{explored} states of {} workloads, {second_cuts} after a second power cut, seeds {first} to \
         {}: nothing lost, nothing refused\nagain: cargo run --release -p selfsame-crash-points -- \
         explore --size {} --seed {first} --states {states} --workload-states {workload_states} \
         --recoveries {recoveries}",
        size.name(),
        seed - 1,
        size.name(),
    );
}

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    if is_long() {
        explore(Size::Small, 1, 150_000, 4000, 8);
        explore(Size::Large, 1, 50_000, 4000, 4);
        explore(Size::Tiny, 1, 10_000, 500, 4);
    } else {
        explore(Size::Tiny, 1, 2000, 400, 2);
        explore(Size::Small, 1, 150, 160, 1);
    }
}

/// The events of a workload without errors.
fn recorded(seed: u64) -> Vec<Event> {
    let job = Job::Workload { seed, size: Size::Tiny, fault: None };
    let recording = record(program(), &job);
    recording.outcome.expect("the workload does not fail");
    recording.events
}

fn report(events: &[Event]) -> Report {
    let exploration = Exploration {
        events,
        seed: 1,
        states: 600,
        points_max: 120,
        threads: THREADS,
        deep: true,
        findings_max: 50,
    };
    exploration.run()
}

#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    let report = report(&tamper::without_file_syncs(&recorded(1)));
    assert!(report.has(LOST) || report.has(NEW), "{report:#?}");
}

#[test]
fn a_folder_that_is_not_synced_after_a_rename_is_found() {
    let events = recorded(1);
    assert!(events.iter().any(|event| matches!(event, Event::Rename { .. })));
    assert!(!report(&tamper::without_folder_syncs(&events)).is_clean());
}

#[test]
fn a_single_sync_that_is_missing_is_found() {
    let events = recorded(2);
    let syncs = events.iter().filter(|event| matches!(event, Event::SyncEnd { .. })).count();
    // In the middle of the work each sync is one that somebody waits for.
    let found = (syncs / 3..syncs / 2)
        .find(|number| !report(&tamper::without_one_sync(&events, *number)).is_clean());
    assert!(found.is_some());
}

#[test]
fn the_failure_of_a_sync_that_is_swallowed_is_found() {
    let events = recorded(2);
    let syncs = events.iter().filter(|event| matches!(event, Event::SyncEnd { .. })).count();
    let found = (syncs / 3..syncs / 2)
        .find(|number| !report(&tamper::with_a_swallowed_failure(&events, *number)).is_clean());
    assert!(found.is_some());
}

#[test]
fn damaged_writes_are_found() {
    assert!(!report(&tamper::with_damaged_writes(&recorded(1))).is_clean());
}

#[test]
fn an_erasure_that_overwrites_nothing_is_found() {
    let found = (1..20).find(|seed| {
        let report = report(&tamper::without_overwriting(&recorded(*seed)));
        report.has(NOT_ERASED)
    });
    assert!(found.is_some(), "no workload erases anything");
}

#[test]
fn an_error_of_the_disk_loses_nothing_that_was_acknowledged() {
    let seeds = if is_long() { 1..=4 } else { 1..=1 };
    for seed in seeds {
        for (name, fault) in FAULTS {
            let step = if is_long() { 1 } else { 17 };
            let run =
                FaultRun { program: program(), seed, fault, step, states: 30, threads: THREADS };
            let summary = run.run();
            assert!(summary.calls > 0);
            if let Some(finding) = summary.findings.first() {
                panic!("{name}, seed {seed}: {}", finding.text);
            }
            println!(
                "{name} at each of {} calls of seed {seed}: {} states\nagain: cargo run --release -p \
                 selfsame-crash-points -- faults --seed {seed} --step {step} --states 30",
                summary.calls, summary.states,
            );
        }
    }
}
