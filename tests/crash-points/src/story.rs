//! Failing states, told so that people can follow.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::event::Event;
use crate::explore::{Failure, Report};
use crate::model::Finding;

/// How many of the events before a power cut are told.
const EVENTS: usize = 24;

/// How many findings of a state are told.
const FINDINGS: usize = 3;

/// Saves an event log beside the binary `program`, so that its states can be made again.
///
/// # Panics
///
/// If it cannot be written.
pub fn save(program: &Path, name: &str, events: &[Event]) -> PathBuf {
    let folder = program.parent().expect("a binary is in a folder").join("crash-points-found");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    let path = folder.join(format!("{name}.events"));
    fs::write(&path, Event::write_all(events)).expect("the target folder can be written");
    path
}

/// Tells a failing state, and how to make it again.
pub fn tell(failure: &Failure, events: &[Event], log: &Path, seed: u64) -> String {
    let mut story = String::new();
    let state = failure.state;
    let _ = writeln!(story, "\nA power cut after event {} of {}.", state.point, events.len());
    let faults = events[..state.point].iter().enumerate();
    for (number, fault) in faults.filter(|(_, event)| matches!(event, Event::Fault { .. })) {
        let _ = writeln!(story, "  {number:6}  {fault}");
    }
    let _ = writeln!(story, "The last events before it:");
    let mut open = HashMap::new();
    let mut lines = Vec::new();
    for (number, event) in events[..state.point].iter().enumerate() {
        lines.push(format!("  {number:6}  {}", line(event, &mut open)));
    }
    for line in lines.iter().skip(lines.len().saturating_sub(EVENTS)) {
        let _ = writeln!(story, "{line}");
    }
    let _ = writeln!(story, "What was left of what was not synced (choice {}):", state.variant.0);
    let choices = if failure.choices.is_empty() { "all was synced" } else { &failure.choices };
    for line in choices.lines() {
        let _ = writeln!(story, "  {line}");
    }
    for finding in failure.findings.iter().take(FINDINGS) {
        let _ = writeln!(story, "Found: {}\n  {}", finding.kind, finding.text);
    }
    if let Some(more) = failure.findings.len().checked_sub(FINDINGS + 1) {
        let _ = writeln!(story, "And {} more.", more + 1);
    }
    let _ = writeln!(
        story,
        "Again: cargo run -p selfsame-crash-points -- repeat --events {} --seed {seed} --point {} \
         --variant {}",
        log.display(),
        state.point,
        state.variant.0,
    );
    story
}

/// An event with the path of its file in the place of the descriptor.
fn line(event: &Event, open: &mut HashMap<i32, String>) -> String {
    let of = |fd: &i32, open: &HashMap<i32, String>| {
        open.get(fd).map_or(String::new(), |path| format!("  [{path}]"))
    };
    match event {
        Event::Open { fd, path, .. } => {
            open.insert(*fd, path.clone());
            event.to_string()
        }
        Event::Duplicate { fd, copy } => {
            let path = open.get(fd).cloned().unwrap_or_default();
            open.insert(*copy, path);
            event.to_string()
        }
        Event::Close { fd }
        | Event::Write { fd, .. }
        | Event::SetLen { fd, .. }
        | Event::SyncBegin { fd, .. }
        | Event::SyncEnd { fd, .. } => format!("{event}{}", of(fd, open)),
        _ => event.to_string(),
    }
}

/// Tells what an exploration found: each kind of finding once.
pub fn tell_all(report: &Report, events: &[Event], log: &Path, seed: u64) -> Vec<Finding> {
    let mut told = BTreeMap::new();
    for Finding { kind, text } in &report.contradictions {
        told.entry(*kind).or_insert_with(|| format!("\nWithout a power cut: {kind}\n  {text}"));
    }
    for failure in &report.failures {
        let Some(kind) = failure.findings.first().map(|finding| finding.kind) else { continue };
        told.entry(kind).or_insert_with(|| tell(failure, events, log, seed));
    }
    told.into_iter().map(|(kind, text)| Finding { kind, text }).collect()
}
