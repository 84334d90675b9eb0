//! Many workloads, one after the other, with power cuts also while the store starts again.

use std::path::Path;

use crate::crash::{Image, Variant};
use crate::event::Event;
use crate::explore::{Exploration, Report, StateId, replay};
use crate::model::Finding;
use crate::place::Place;
use crate::random::Random;
use crate::recorder::{Job, record};
use crate::story;
use crate::workload::Size;

/// A process fails that should not, or the machinery does.
pub const BROKEN: &str = "a process failed";

/// How many failing states of one workload are looked for.
const FINDINGS_MAX: usize = 4;

/// What is explored.
#[derive(Debug, Clone, Copy)]
pub struct Campaign<'a> {
    /// The crate's binary, which runs workloads.
    pub program: &'a Path,
    /// The seed of the first workload; the next ones follow.
    pub seed: u64,
    /// How much each workload does.
    pub size: Size,
    /// How many states of each workload there are to be, about.
    pub states: u64,
    /// How many starts after a crash are recorded and explored, too, for each workload.
    pub recoveries: u64,
    /// How many threads explore.
    pub threads: usize,
}

/// What came of a workload.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// How many different states were opened.
    pub states: u64,
    /// How many of them are of a second power cut.
    pub second_cuts: u64,
    /// How many events were recorded.
    pub events: usize,
    /// What was found, each with its story.
    pub findings: Vec<Finding>,
}

impl Campaign<'_> {
    /// Records and explores the workload of one seed.
    pub fn explore(&self, seed: u64) -> Summary {
        let job = Job::Workload { seed, size: self.size, fault: None };
        let recording = record(self.program, &job);
        let mut summary = Summary { events: recording.events.len(), ..Summary::default() };
        if let Err(text) = recording.outcome {
            let text = format!("seed {seed}: the workload failed: {text}");
            summary.findings.push(Finding { kind: BROKEN, text });
        }
        let events = recording.events;
        if let Some(text) = unlike(&events, recording.folder.path()) {
            let text = format!("seed {seed}: the recorder missed something: {text}");
            summary.findings.push(Finding { kind: BROKEN, text });
        }
        let name = format!("{}-{seed}", self.size.name());
        summary.states +=
            self.explore_events(&events, &name, seed, self.states, &mut summary.findings);
        let mut random = Random::of(&[seed, 3]);
        for number in 0..self.recoveries {
            let events = self.second_start(&events, seed, &mut random, &mut summary.findings);
            let (name, states) = (format!("{name}-again-{number}"), (self.states / 20).max(20));
            let explored = self.explore_events(&events, &name, seed, states, &mut summary.findings);
            summary.states += explored;
            summary.second_cuts += explored;
        }
        summary
    }

    fn explore_events(
        &self,
        events: &[Event],
        name: &str,
        seed: u64,
        states: u64,
        findings: &mut Vec<Finding>,
    ) -> u64 {
        let report = self.exploration(events, seed, states).run();
        findings.extend(self.tell(&report, events, name, seed));
        report.states
    }

    /// An exploration as this campaign makes it.
    pub fn exploration<'e>(&self, events: &'e [Event], seed: u64, states: u64) -> Exploration<'e> {
        let (threads, findings_max) = (self.threads, FINDINGS_MAX);
        // Each point that is looked at is looked at in several ways.
        let points_max = usize::try_from(states / 6).expect("they are counted").max(20);
        Exploration { events, seed, states, points_max, threads, deep: false, findings_max }
    }

    /// What is wrong, told, with the event log saved under this name.
    pub fn tell(&self, report: &Report, events: &[Event], name: &str, seed: u64) -> Vec<Finding> {
        if report.is_clean() {
            return Vec::new();
        }
        let log = story::save(self.program, name, events);
        story::tell_all(report, events, &log, seed)
    }

    /// Starts the store on some state under the recorder. The event log goes on behind that crash.
    fn second_start(
        &self,
        events: &[Event],
        seed: u64,
        random: &mut Random,
        findings: &mut Vec<Finding>,
    ) -> Vec<Event> {
        let exploration = self.exploration(events, seed, u64::MAX);
        let (all, turns) = (exploration.points(), turning_points(events));
        let points = if random.percent(60) && !turns.is_empty() { turns } else { all };
        let point = points[usize::try_from(random.below(points.len() as u64)).expect("an index")];
        let state = StateId { point, variant: Variant(random.below(40)) };
        let place = Place::default();
        let mut after = match random.percent(40) {
            true => after_kill(events, point, &place),
            false => after_crash(events, seed, state, &place),
        };
        let log = place.root().with_extension("events");
        std::fs::write(&log, Event::write_all(&after)).expect("it can be written");
        let job = Job::Recovery { seed: random.number() >> 16, folder: place.root(), events: &log };
        let recording = record(self.program, &job);
        std::fs::remove_file(&log).expect("it was written");
        if let Err(text) = recording.outcome {
            let text = format!("seed {seed}: a start at {state:?} failed: {text}");
            findings.push(Finding { kind: BROKEN, text });
        }
        after.extend(recording.events);
        after
    }
}

/// The points at which names change, or the writes go on in another file: there is more to go wrong than
/// elsewhere.
fn turning_points(events: &[Event]) -> Vec<usize> {
    let is_of_disk = |at: &usize| events[*at].is_of_disk();
    let points: Vec<_> = (0..events.len()).filter(is_of_disk).collect();
    let is_turn = |near: &&[usize]| {
        let mut written = None;
        near.iter().any(|at| match &events[*at] {
            Event::Write { fd, .. } => written.replace(*fd).is_some_and(|before| before != *fd),
            Event::SyncEnd { .. } | Event::SetLen { .. } => false,
            _ => true,
        })
    };
    points.windows(4).filter(is_turn).map(|near| near[2]).collect()
}

/// Lays out what a process leaves that is killed, and returns the event log up to there: the machine goes
/// on, and what was not synced is there, but not on the disk.
fn after_kill(events: &[Event], point: usize, place: &Place) -> Vec<Event> {
    let (disk, _) = replay(events, point);
    place.lay_out(&Image::seen(&disk));
    let mut after = events[..point].to_vec();
    after.extend([Event::Crash, Event::Start]);
    after
}

/// Lays a state out, and returns the event log of a disk that has it, with all that was acknowledged.
fn after_crash(events: &[Event], seed: u64, state: StateId, place: &Place) -> Vec<Event> {
    let (disk, _) = replay(events, state.point);
    let image = Image::of(&disk, state.variant, seed ^ state.point as u64);
    place.lay_out(&image);
    let before = events[..state.point].iter();
    let notes = before.filter(|event| matches!(event, Event::Note { .. } | Event::Crash));
    let mut after: Vec<_> = notes.cloned().collect();
    after.push(Event::Crash);
    let mut folders = vec![String::new()];
    let (fd, mut sync) = (1 << 20, 1 << 40);
    let mut synced = |after: &mut Vec<Event>| {
        sync += 1;
        after.push(Event::SyncBegin { fd, sync });
        after.push(Event::SyncEnd { fd, sync, error: 0 });
        after.push(Event::Close { fd });
    };
    for (path, content) in image.files {
        let Some(content) = content else {
            after.push(Event::MakeFolder { path: path.clone() });
            folders.push(path);
            continue;
        };
        after.push(Event::Open { fd, path, created: true, truncated: false });
        let data = bytes::Bytes::from(Vec::clone(&content));
        after.push(Event::Write { fd, offset: 0, data });
        synced(&mut after);
    }
    for path in folders {
        after.push(Event::Open { fd, path, created: false, truncated: false });
        synced(&mut after);
    }
    after.push(Event::Start);
    after
}

/// Compares the folder as it is with the model of the disk: in what it is another.
fn unlike(events: &[Event], folder: &Path) -> Option<String> {
    let (disk, _) = replay(events, events.len());
    let mut expected = Image::seen(&disk).files;
    expected.retain(|_, content| content.is_some());
    let root = folder.join("root");
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).expect("it is below").to_str().expect("UTF-8");
            let content = std::fs::read(&path).expect("it can be read");
            if expected.remove(name).flatten().is_none_or(|expected| *expected != content) {
                return Some(format!("{name} is another file than was recorded"));
            }
        }
    }
    expected.keys().next().map(|name| format!("{name} is not there"))
}
