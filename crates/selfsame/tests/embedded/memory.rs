//! Memory for looking at, sweeping and erasing large answers: bounded in bytes, not in records.
#![cfg(target_os = "linux")]

use std::env;
use std::process::Command;

use selfsame_core::{Erased, Filter, RecordId};

use super::*;

const ANSWERS: usize = 400;
/// Requests of claims that died.
const REQUESTS: usize = 200;
const BODY: usize = 1024 * 1024;
/// Bodies of all records are four times as large.
const PEAK_MAX: usize = 128 * 1024 * 1024;

/// Tells a process of this test what to do, and in which folder.
const STEP: &str = "SELFSAME_MEMORY_STEP";
const FOLDER: &str = "SELFSAME_MEMORY_FOLDER";

/// Each step has a process of its own, whose peak is its own.
#[tokio::test]
async fn large_answers_are_listed_erased_and_swept_a_few_at_a_time() {
    match (env::var(STEP), env::var_os(FOLDER)) {
        (Ok(step), Some(folder)) => take(&step, Path::new(&folder)).await,
        _ => fill().await,
    }
}

async fn fill() {
    let folder = folder();
    let store = open_at(folder.path(), Duration::ZERO);
    for at in 0..ANSWERS {
        let ask = key(at);
        let lease = run(&store, &ask).await;
        let recorded = store.complete(&lease, &answer(vec![7; BODY])).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))));
    }
    let request = Keepsake { request: Some(vec![7; BODY].into()), ..Keepsake::default() };
    let keepsake = Some(Box::new(request));
    for at in 0..REQUESTS {
        let dead = Ask { keepsake: keepsake.clone(), recover: Recover::Hold, ..ask(&dead(at)) };
        run(&store, &dead).await;
    }
    drop(store);
    let mut too_much = Vec::new();
    for step in ["list", "erase", "count", "sweep"] {
        let name = "memory::large_answers_are_listed_erased_and_swept_a_few_at_a_time";
        let mut process = Command::new(env::current_exe().expect("it runs"));
        process.args([name, "--exact", "--nocapture"]).env(STEP, step).env(FOLDER, folder.path());
        let done = process.output().expect("it can be started");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let text = String::from_utf8_lossy(&done.stdout);
        let peak = text.lines().find_map(|line| line.strip_prefix("peak ")?.parse().ok());
        let peak: usize = peak.expect("it tells its peak");
        println!("{step}: {} MiB", peak / 1024 / 1024);
        if peak > PEAK_MAX {
            too_much.push(step);
        }
    }
    assert_eq!(too_much, [""; 0]);
}

fn dead(at: usize) -> String {
    format!("dead-{at}")
}

fn key(at: usize) -> Ask {
    remembered(&format!("large-{at}"))
}

fn open_at(folder: &Path, passed: Duration) -> EmbeddedStore {
    let clock = SettableClock::new();
    clock.pass(passed);
    let options = EmbeddedOptions::default().time_out(Duration::from_secs(60));
    EmbeddedStore::open(folder, options.clock(Arc::new(clock))).expect("it is whole")
}

async fn take(step: &str, folder: &Path) {
    let now = if step == "list" || step == "erase" { Duration::ZERO } else { RETENTION + MARGIN };
    let store = open_at(folder, now);
    match step {
        "list" => {
            let find = Find::Matching { filter: Filter::default(), after: None };
            let found = store.find(&find, ANSWERS + 1).await.expect("the store works");
            assert_eq!(found.len(), ANSWERS + 1);
        }
        "erase" => {
            let ids: Vec<RecordId> = (0..ANSWERS / 2).map(|at| key(at).id).collect();
            let outcomes = store.erase(&ids).await.expect("the store works");
            assert!(outcomes.iter().all(|outcome| *outcome == Erased::Done));
        }
        "count" => {
            let count = store.count().await.expect("the store works");
            assert_eq!(
                count,
                Count { tombstone: ANSWERS as u64, held: REQUESTS as u64, ..Count::default() }
            );
        }
        _ => {
            let (mut buried, mut held) = (0, 0);
            loop {
                let swept = store.sweep(ANSWERS).await.expect("the store works");
                buried += swept.buried;
                held += swept.held.len();
                if swept.finished {
                    break;
                }
            }
            assert_eq!((buried, held), (ANSWERS / 2, REQUESTS));
            for at in [0, ANSWERS - 1] {
                assert_eq!(store.claim(&retry(&key(at))).await.ok(), Some(Claimed::Expired));
            }
        }
    }
    println!("\npeak {}", peak());
}

/// The most memory that this process ever had, in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<usize>().ok()).expect("a number") * 1024
}
