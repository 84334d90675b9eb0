//! The explorer: goes through an event log, and opens the store as a power cut at each of its points may
//! leave it.

use std::collections::HashSet;
use std::thread;

use crate::check::{Checker, Depth};
use crate::crash::{Image, Variant};
use crate::disk::{Disk, index};
use crate::event::Event;
use crate::model::{Finding, Model};
use crate::place::Place;
use crate::random::Random;

/// A recorded workload, and how it is explored.
#[derive(Debug, Clone, Copy)]
pub struct Exploration<'a> {
    /// What was recorded.
    pub events: &'a [Event],
    /// Decides about random choices.
    pub seed: u64,
    /// How many states there are to be, about.
    pub states: u64,
    /// How many points there are to be at most, which are chosen by the seed.
    pub points_max: usize,
    /// How many threads explore.
    pub threads: usize,
    /// Looks at each state as closely as there is, and not at some only.
    pub deep: bool,
    /// Stops after so many findings.
    pub findings_max: usize,
}

/// A state, by which it can be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateId {
    /// How many events came before the power cut.
    pub point: usize,
    /// The choice among what may be left.
    pub variant: Variant,
}

/// What is wrong with a state, and how it came to be.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The state.
    pub state: StateId,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Which writes were applied.
    pub choices: String,
}

/// What an exploration came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How many different states were opened.
    pub states: u64,
    /// How many points there are.
    pub points: usize,
    /// The failing states.
    pub failures: Vec<Failure>,
    /// Acknowledgements that contradict each other, without any power cut.
    pub contradictions: Vec<Finding>,
}

impl Report {
    /// Tells whether anything is wrong.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty() && self.contradictions.is_empty()
    }

    /// Tells whether anything of this kind was found.
    pub fn has(&self, kind: &str) -> bool {
        self.failures.iter().flat_map(|failure| &failure.findings).any(|found| found.kind == kind)
    }

    fn add(&mut self, other: Self) {
        self.states += other.states;
        self.failures.extend(other.failures);
    }
}

impl Exploration<'_> {
    /// The points: before each event that changes the disk, behind all that was acknowledged until then;
    /// and the end.
    pub fn points(&self) -> Vec<usize> {
        let start = self.events.iter().position(|event| matches!(event, Event::Start));
        let start = start.map_or(0, |start| start + 1);
        let points = start..self.events.len();
        let mut points: Vec<_> = points.filter(|at| self.events[*at].is_of_disk()).collect();
        let mut random = Random::of(&[self.seed, 4]);
        while points.len() >= self.points_max.max(1) {
            points.remove(index(random.below(points.len() as u64)));
        }
        points.push(self.events.len());
        points
    }

    /// Explores on several threads, each of which has a part of the points.
    pub fn run(&self) -> Report {
        let points = self.points();
        let mut report = Report { points: points.len(), ..Report::default() };
        report.contradictions = replay(self.events, self.events.len()).1.contradictions;
        let part = points.len().div_ceil(self.threads.max(1));
        let parts = points.chunks(part.max(1));
        let variants = self.states.div_ceil(points.len() as u64).max(1);
        let found: Vec<Report> = thread::scope(|scope| {
            let explore = |points| move || self.explore(points, variants);
            let running: Vec<_> = parts.map(|points| scope.spawn(explore(points))).collect();
            let ended = running.into_iter().map(|thread| thread.join());
            ended.map(|report| report.expect("a thread does not panic")).collect()
        });
        found.into_iter().for_each(|part| report.add(part));
        report.failures.sort_by_key(|failure| failure.state);
        report
    }

    fn explore(&self, points: &[usize], variants: u64) -> Report {
        let mut report = Report::default();
        let (place, mut checker) = (Place::default(), Checker::default());
        let (mut disk, mut model, mut at) = (Disk::new(), Model::default(), 0);
        let mut seen = HashSet::new();
        for point in points {
            go_on(&mut disk, &mut model, &self.events[at..*point]);
            at = *point;
            for variant in (0..variants).map(Variant) {
                let state = StateId { point: *point, variant };
                let image = Image::of(&disk, variant, self.seed ^ *point as u64);
                if !seen.insert((image.signature, model.acknowledged)) {
                    continue;
                }
                report.states += 1;
                let failure = self.state(&place, &mut checker, &model, image, state);
                report.failures.extend(failure);
                if report.failures.len() >= self.findings_max {
                    return report;
                }
            }
        }
        report
    }

    fn state(
        &self,
        place: &Place,
        checker: &mut Checker,
        model: &Model,
        image: Image,
        state: StateId,
    ) -> Option<Failure> {
        let mixed = image.signature ^ state.point as u64;
        let depth = Depth {
            reopens: self.deep || mixed.is_multiple_of(8),
            searches: !image.shows_stale && (self.deep || mixed.is_multiple_of(5)),
            sweeps: self.deep || mixed.is_multiple_of(7),
        };
        place.lay_out(&image);
        let findings = checker.check(place, &mut model.clone(), depth);
        let choices = image.story;
        (!findings.is_empty()).then_some(Failure { state, findings, choices })
    }

    /// Makes one state again, in the given folder, and compares it as closely as there is.
    pub fn repeat(&self, state: StateId, place: &Place) -> Option<Failure> {
        let (disk, model) = replay(self.events, state.point);
        let image = Image::of(&disk, state.variant, self.seed ^ state.point as u64);
        let deep = Self { deep: true, ..*self };
        deep.state(place, &mut Checker::default(), &model, image, state)
    }
}

/// The disk and what was acknowledged, after the first `point` events.
pub fn replay(events: &[Event], point: usize) -> (Disk, Model) {
    let (mut disk, mut model) = (Disk::new(), Model::default());
    go_on(&mut disk, &mut model, &events[..point]);
    (disk, model)
}

fn go_on(disk: &mut Disk, model: &mut Model, events: &[Event]) {
    for event in events {
        disk.apply(event);
        match event {
            Event::Note { line } => model.note(line),
            Event::Crash => model.crash(),
            _ => {}
        }
    }
}
