//! The workload: a seeded row of rounds, in each of which many callers use a store at once.
//!
//! Each key is used by one caller at a time, so that what it must be follows from its own calls. The
//! clock goes on between rounds alone. Each call is noted before it is made, and when it was
//! acknowledged.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use selfsame::stores::{EmbeddedOptions, EmbeddedStore, Leases};
use selfsame_core::Sweep;
use selfsame_core::conformance::SettableClock;
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::model::Model;
use crate::op::{Op, Verb};
use crate::random::Random;

/// No call of a test waits so long: an error would be one of the store's.
const TIME_OUT: Duration = Duration::from_secs(60);

/// The options under which all stores of these tests are opened.
pub fn options(clock: SettableClock) -> EmbeddedOptions {
    let options = EmbeddedOptions::default().leases(Leases::Keep).time_out(TIME_OUT);
    options.clock(Arc::new(clock))
}

/// How much a workload does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// A few calls, for errors at each of them.
    Tiny,
    /// Segments roll a few times.
    Small,
    /// Enough waste for old segments to be rewritten and removed.
    Large,
}

impl Size {
    /// All of them, by their names.
    pub const ALL: [(Self, &str); 3] =
        [(Self::Tiny, "tiny"), (Self::Small, "small"), (Self::Large, "large")];

    /// The size of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(Self::ALL.iter().find(|(_, known)| *known == name)?.0)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(size, _)| *size == self).expect("all have names").1
    }

    fn rounds(self) -> u64 {
        match self {
            Self::Tiny => 3,
            Self::Small => 6,
            Self::Large => 10,
        }
    }

    fn callers(self, random: &mut Random) -> u64 {
        match self {
            Self::Tiny => random.between(2, 5),
            Self::Small => random.between(4, 24),
            Self::Large => random.between(8, 24),
        }
    }
}

/// Writes notes into the event log.
#[derive(Debug)]
pub struct Notes {
    file: File,
    last: AtomicU64,
    has_failed: AtomicBool,
}

impl Notes {
    /// Notes go to this file, which the recorder knows.
    ///
    /// # Panics
    ///
    /// If there is no recorder.
    pub fn new(path: &Path) -> Self {
        let file = File::options().write(true).open(path).expect("the recorder is at work");
        Self { file, last: AtomicU64::new(0), has_failed: AtomicBool::new(false) }
    }

    /// Writes a line in one piece.
    pub fn line(&self, line: &str) {
        let line = format!("{line}\n");
        (&self.file).write_all(line.as_bytes()).expect("the recorder takes notes");
    }

    /// Makes a call, and notes it. What it came to, if it was answered.
    pub async fn call(&self, store: &EmbeddedStore, op: &Op) -> Option<String> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        self.line(&format!("start {number} {op}"));
        match op.on_store(store).await {
            Ok(outcome) => {
                self.line(&format!("done {number} {outcome}"));
                Some(outcome)
            }
            Err(error) => {
                self.has_failed.store(true, Ordering::Relaxed);
                let kind = error.kind();
                self.line(&format!("failed {number} {kind:?} {error}"));
                None
            }
        }
    }
}

/// Runs the workload of a seed in `folder`.
pub async fn run(folder: &Path, notes: Notes, seed: u64, size: Size) {
    let mut run = Run {
        folder: folder.to_owned(),
        notes: Arc::new(notes),
        random: Random::of(&[seed, 1]),
        clock_ms: 0,
        keys: 0,
        attempts: Arc::new(AtomicU64::new(1)),
    };
    let Some(mut store) = run.open() else { return };
    for round in 0..size.rounds() {
        run.round(&store, seed, round, size).await;
        run.between_rounds(&store).await;
        let is_last = round + 1 == size.rounds();
        let has_failed = run.notes.has_failed.swap(false, Ordering::Relaxed);
        // A disk that failed is used again after a restart alone.
        if run.random.percent(40) || is_last || has_failed {
            run.close(store);
            match run.open() {
                Some(again) => store = again,
                None => return,
            }
        }
    }
    if run.random.percent(50) {
        run.close(store);
    } else {
        // The process ends without saying that the store is closed.
        std::process::exit(0);
    }
}

/// What a process does that starts again after a power cut: it opens the store, goes on with some keys
/// and with new ones, and is cut off once more.
pub async fn recover(folder: &Path, notes: Notes, model: &Model, seed: u64) {
    let mut random = Random::of(&[seed, 2]);
    notes.line("open");
    let store = match EmbeddedStore::open(folder, options(model.clock())) {
        Ok(store) => store,
        Err(error) => return notes.line(&format!("error {error:?}")),
    };
    notes.line("opened");
    let mut attempt = 1 << 48 | random.below(1 << 32) << 8;
    for key in model.keys().filter(|_| random.percent(20)).collect::<Vec<_>>() {
        attempt += 1;
        notes.call(&store, &Op::retry(key, attempt)).await;
    }
    for fact in model.facts() {
        attempt += 1;
        let verb = random.pick(&[Verb::FactOr, Verb::FactOr, Verb::SetFact]);
        notes.call(&store, &Op { tag: attempt, len: 20, ..Op::new(verb, fact) }).await;
    }
    for key in (0..3).map(|number| format!("recovered-{seed:x}-{number}")) {
        attempt += 1;
        let claim = Op::retry(&key, attempt);
        notes.call(&store, &claim).await;
        let len = random.pick(&[100, 3000, 60_000]);
        let complete = Op { verb: Verb::Complete, fence: 1, tag: attempt, len, ..claim };
        notes.call(&store, &complete).await;
    }
    if random.percent(50) {
        std::process::exit(0);
    }
}

struct Run {
    folder: PathBuf,
    notes: Arc<Notes>,
    random: Random,
    clock_ms: u64,
    keys: u64,
    attempts: Arc<AtomicU64>,
}

impl Run {
    /// Opens the store. A first try may meet an injected error, and so may a second one.
    fn open(&self) -> Option<(Arc<EmbeddedStore>, Arc<SettableClock>)> {
        for _ in 0..3 {
            self.notes.line("open");
            let clock = Arc::new(SettableClock::new());
            clock.pass(Duration::from_millis(self.clock_ms));
            let options = options(SettableClock::new()).clock(clock.clone());
            match EmbeddedStore::open(&self.folder, options) {
                Ok(store) => {
                    self.notes.line("opened");
                    return Some((Arc::new(store), clock));
                }
                Err(error) => self.notes.line(&format!("error {error:?}")),
            }
        }
        None
    }

    fn close(&self, (store, _): (Arc<EmbeddedStore>, Arc<SettableClock>)) {
        self.notes.line("close");
        drop(store);
        self.notes.line("closed");
    }

    async fn round(
        &mut self,
        (store, _): &(Arc<EmbeddedStore>, Arc<SettableClock>),
        seed: u64,
        round: u64,
        size: Size,
    ) {
        let mut callers = JoinSet::new();
        let used = self.keys;
        for number in 0..size.callers(&mut self.random) {
            // Some keys were used before, each by one caller of a round.
            let is_new = used <= number || self.random.percent(70);
            let key = if is_new { self.keys } else { number };
            self.keys += u64::from(is_new);
            let caller = Caller {
                store: store.clone(),
                notes: self.notes.clone(),
                random: Random::of(&[seed, round, number]),
                key: format!("k{key}"),
                attempts: self.attempts.clone(),
                size,
                fact: None,
            };
            callers.spawn(caller.run());
        }
        for fact in 0..self.random.below(3) {
            let caller = Caller {
                store: store.clone(),
                notes: self.notes.clone(),
                random: Random::of(&[seed, round, 1000 + fact]),
                key: String::new(),
                attempts: self.attempts.clone(),
                size,
                fact: Some(format!("fact-{fact}")),
            };
            callers.spawn(caller.run());
        }
        callers.join_all().await;
    }

    async fn between_rounds(&mut self, (store, clock): &(Arc<EmbeddedStore>, Arc<SettableClock>)) {
        if self.random.percent(60) {
            let seconds =
                self.random.pick(&[1, 10, 40, 40, 3600, 25 * 3600, 25 * 3600, 40 * 24 * 3600]);
            self.clock_ms += seconds * 1000;
            clock.pass(Duration::from_secs(seconds));
            self.notes.line(&format!("clock {}", self.clock_ms));
        }
        if self.random.percent(60) {
            self.notes.line("sweep");
            for _ in 0..100 {
                let swept = store.sweep(self.random.pick(&[7, 1000])).await;
                if swept.is_ok_and(|swept| swept.finished) {
                    break;
                }
            }
        }
    }
}
