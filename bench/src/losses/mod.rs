//! `bench/run losses`: what is lost of a Redis store by faults, and whether that is noticed. It counts, and times nothing.
//!
//! One process writes. Another is idle meanwhile, and is asked for all keys after the fault; then the first one is asked, too.

mod faults;
mod idle;
mod relay;
mod retries;
mod set_ups;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use selfsame_core::{Answer, Ask, Claimed, FullStore, Recorded};
use selfsame_test_postgres::Server as Database;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::faults::{Fault, Scene};
use self::idle::IdleProcess;
use self::retries::{Found, Written, ask_again};
use self::set_ups::{SET_UPS, SetUp};
use crate::store::work::{self, Keys};
use crate::timing::Stopwatch;
use crate::{Options, machine, report};

pub(crate) use self::idle::serve as serve_idle;
pub(crate) use self::set_ups::Location;

/// How many callers there are, and how long each rests after a pair: some thousand keys in all.
const CALLERS: usize = 16;
const REST: Duration = Duration::from_millis(5);
/// How many answers are recorded before the fault.
const BEFORE: usize = 2000;

/// What all callers share.
struct Work {
    keys: Keys,
    recorded: AtomicUsize,
    is_over: AtomicBool,
}

/// Result of one round.
struct Round {
    recorded: usize,
    begun: usize,
    /// Counts of the process that was asked first.
    first: Found,
    /// Counts of the writer that was asked after the idle process.
    writer: Option<Found>,
}

/// Counts what is lost.
pub(crate) fn run(options: &Options) -> Result<()> {
    let runtime = Runtime::new()?;
    let head = [
        "kept by",
        "fault",
        "recorded",
        "lost",
        "ran again",
        "under way",
        "ran twice",
        "noticed, new keys refused",
        "ran at the writer",
    ];
    let database = Database::start();
    let mut lines = vec![head.map(String::from).to_vec()];
    for (at, set_up) in SET_UPS.iter().enumerate() {
        for fault in Fault::ALL {
            let name = format!("{}: {}", set_up.name, fault.name());
            if !fault.fits(set_up) || !options.wants(&name) {
                continue;
            }
            eprintln!("{name}");
            let round = runtime.block_on(lose(at, fault, &database))?;
            lines.push(round.line(set_up, fault));
        }
    }
    println!("{}\n\n{}", machine::describe(), report::aligned(&lines));
    Ok(())
}

impl Round {
    fn line(&self, set_up: &SetUp, fault: Fault) -> Vec<String> {
        let mut line = vec![set_up.name.to_owned(), fault.name().to_owned()];
        let Found { lost, ran_again, ran_twice, is_closed } = self.first;
        line.extend([self.recorded, lost, ran_again, self.begun, ran_twice].map(report::count));
        line.push(if is_closed { "yes" } else { "no" }.to_owned());
        let writer = self.writer.as_ref();
        let writer = writer.map(|found| report::count(found.ran_again + found.ran_twice));
        line.push(writer.unwrap_or_else(|| "-".to_owned()));
        line
    }
}

/// Records answers, strikes, and asks for all of them again, and for what was under way.
async fn lose(at: usize, fault: Fault, database: &Database) -> Result<Round> {
    let set_up = &SET_UPS[at];
    let mut scene = Scene::start(set_up, fault).await?;
    let folder = TempDir::new()?;
    let location = Location {
        set_up: at,
        redis: scene.url(),
        database: database.url("postgres", "postgres"),
        schema: format!("losses_{at}_{}", fault as usize),
        folder: folder.path().to_owned(),
    };
    let store = location.open().await?;
    let mut idle = None;
    if set_up.is_shared() {
        idle = Some(IdleProcess::start(&location)?);
    }
    let begun_at = Stopwatch::start();
    let written = write(&store, &mut scene, fault).await;
    scene.recover(fault).await;
    let (recorded, begun) = (written.recorded.len(), written.begun.len());
    let (first, writer) = match &mut idle {
        Some(idle) => (idle.ask_again(&written)?, Some(ask_again(&*store, &written).await?)),
        None => (ask_again(&*store, &written).await?, None),
    };
    ensure!(begun_at.elapsed() < work::LEASE, "claims have expired: the machine is too slow");
    Ok(Round { recorded, begun, first, writer })
}

/// Records answers and claims keys until the fault.
async fn write(store: &Arc<dyn FullStore>, scene: &mut Scene, fault: Fault) -> Written {
    let work = Arc::new(Work { keys: Keys::from(0), recorded: 0.into(), is_over: false.into() });
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(call(store.clone(), work.clone()));
    }
    let mut beginning = JoinSet::new();
    beginning.spawn(begin(store.clone(), work.clone()));
    while work.recorded.load(Ordering::Relaxed) < BEFORE {
        sleep(REST).await;
    }
    scene.strike(fault).await;
    work.is_over.store(true, Ordering::Relaxed);
    let recorded = callers.join_all().await.concat();
    Written { recorded, begun: beginning.join_all().await.concat() }
}

/// Claims and completes new keys until it is over, whatever fails, and returns those whose answers were recorded.
async fn call(store: Arc<dyn FullStore>, work: Arc<Work>) -> Vec<u64> {
    let answer = work::answer(work::ANSWER_BYTES);
    let mut recorded = Vec::new();
    while !work.is_over.load(Ordering::Relaxed) {
        let number = work.keys.next_number();
        if record(&*store, &work::ask(number), &answer).await {
            work.recorded.fetch_add(1, Ordering::Relaxed);
            recorded.push(number);
        }
        sleep(REST).await;
    }
    recorded
}

/// Claims new keys, whose work has no end, until it is over.
async fn begin(store: Arc<dyn FullStore>, work: Arc<Work>) -> Vec<u64> {
    let mut begun = Vec::new();
    while !work.is_over.load(Ordering::Relaxed) {
        let number = work.keys.next_number();
        if matches!(store.claim(&work::ask(number)).await, Ok(Claimed::Run(_))) {
            begun.push(number);
        }
        sleep(REST).await;
    }
    begun
}

async fn record(store: &dyn FullStore, ask: &Ask, answer: &Answer) -> bool {
    let Ok(Claimed::Run(grant)) = store.claim(ask).await else { return false };
    matches!(store.complete(&grant.lease, answer).await, Ok(Recorded::Until(_)))
}
