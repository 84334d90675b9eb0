//! `crash-points explore` looks for power cuts that the embedded store does not survive.
//!
//! `crash-points repeat` makes one state again. The other commands are run by these two, under the
//! recorder.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::thread::available_parallelism;

use bytes::Bytes;
use selfsame_crash_points::campaign::Campaign;
use selfsame_crash_points::crash::Variant;
use selfsame_crash_points::event::Event;
use selfsame_crash_points::explore::{Exploration, StateId, replay};
use selfsame_crash_points::faults::{FAULTS, FaultRun};
use selfsame_crash_points::place::Place;
use selfsame_crash_points::story;
use selfsame_crash_points::workload::{self, Notes, Size};
use tokio::runtime::Builder;
use tokio::time::Instant;

const USAGE: &str = "\
usage: crash-points explore [--seed 1] [--states 100000] [--size small] [--workload-states 4000]
                            [--recoveries 8] [--threads CORES]
       crash-points faults [--seed 1] [--seeds 1] [--step 1] [--states 40] [--threads CORES]
       crash-points repeat --events FILE --seed SEED --point POINT --variant VARIANT";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["workload", seed, size, folder, notes] => {
            let (seed, size) = (seed.parse().expect("a seed"), Size::parse(size).expect("a size"));
            let notes = Notes::new(Path::new(notes));
            run(workload::run(Path::new(folder), notes, seed, size));
            ExitCode::SUCCESS
        }
        ["recover", seed, events, folder, notes] => {
            let events = read(Path::new(events));
            let (_, model) = replay(&events, events.len());
            let (seed, notes) = (seed.parse().expect("a seed"), Notes::new(Path::new(notes)));
            run(workload::recover(Path::new(folder), notes, &model, seed));
            ExitCode::SUCCESS
        }
        ["explore", ..] => explore(&Options(&words[1..])),
        ["faults", ..] => faults(&Options(&words[1..])),
        ["repeat", ..] => repeat(&Options(&words[1..])),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Options in pairs of a name and a value.
struct Options<'a>(&'a [&'a str]);

impl Options<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|word| word.strip_prefix("--") == Some(name))?;
        self.0.get(at + 1).copied()
    }

    fn value<T: FromStr>(&self, name: &str, otherwise: T) -> T {
        match self.text(name) {
            Some(text) => text.parse().unwrap_or_else(|_| panic!("--{name} is no number\n{USAGE}")),
            None => otherwise,
        }
    }
}

fn faults(options: &Options<'_>) -> ExitCode {
    let program = env::current_exe().expect("it is running");
    let (first, seeds): (u64, u64) = (options.value("seed", 1), options.value("seeds", 1));
    let mut found = 0;
    for seed in first..first + seeds {
        for (name, fault) in FAULTS {
            let run = FaultRun {
                program: &program,
                seed,
                fault,
                step: options.value("step", 1),
                states: options.value("states", 40),
                threads: options.value("threads", cores()),
            };
            let summary = run.run();
            found += summary.findings.len();
            println!(
                "seed {seed}: {name} at each of {} calls: {} states, {} findings",
                summary.calls,
                summary.states,
                summary.findings.len()
            );
            summary.findings.iter().for_each(|finding| println!("{}", finding.text));
        }
    }
    ExitCode::from(u8::from(found > 0))
}

fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

fn explore(options: &Options<'_>) -> ExitCode {
    let program = env::current_exe().expect("it is running");
    let campaign = Campaign {
        program: &program,
        seed: options.value("seed", 1),
        size: Size::parse(options.text("size").unwrap_or("small")).expect(USAGE),
        states: options.value("workload-states", 4000),
        recoveries: options.value("recoveries", 8),
        threads: options.value("threads", cores()),
    };
    let wanted: u64 = options.value("states", 100_000);
    let begun = Instant::now();
    let (mut states, mut second_cuts, mut found) = (0, 0, 0);
    let mut seed = campaign.seed;
    while states < wanted {
        let summary = campaign.explore(seed);
        states += summary.states;
        second_cuts += summary.second_cuts;
        found += summary.findings.len();
        let rate = states as f64 / begun.elapsed().as_secs_f64();
        println!(
            "seed {seed}: {} events, {} states; {states} in all, {second_cuts} after a second power \
             cut, {rate:.0} a second, {found} findings",
            summary.events, summary.states
        );
        summary.findings.iter().for_each(|finding| println!("{}", finding.text));
        seed += 1;
    }
    ExitCode::from(u8::from(found > 0))
}

fn repeat(options: &Options<'_>) -> ExitCode {
    let log = PathBuf::from(options.text("events").expect(USAGE));
    let events = read(&log);
    let seed = options.value("seed", 1);
    let variant = Variant(options.value("variant", 0));
    let state = StateId { point: options.value("point", events.len()), variant };
    let exploration = Exploration {
        events: &events,
        seed,
        states: 1,
        points_max: 1,
        threads: 1,
        deep: true,
        findings_max: 1,
    };
    let place = Place::default();
    match exploration.repeat(state, &place) {
        Some(failure) => {
            println!("{}", story::tell(&failure, &events, &log, seed));
            ExitCode::FAILURE
        }
        None => {
            println!("nothing is wrong with this state");
            ExitCode::SUCCESS
        }
    }
}

fn read(path: &Path) -> Vec<Event> {
    Event::read_all(Bytes::from(fs::read(path).expect("the event log can be read")), "")
}

fn run(work: impl Future<Output = ()>) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("a runtime can be made").block_on(work);
}
