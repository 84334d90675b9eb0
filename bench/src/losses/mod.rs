//! `bench/run losses`: what is lost of a Redis store by faults, and whether that is noticed. It counts, and times nothing.

mod faults;
mod relay;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use selfsame::stores::{
    EmbeddedOptions, EmbeddedStore, RedisOptions, RedisStore, TieredOptions, TieredStore,
};
use selfsame_core::{Answer, Ask, AttemptId, Claimed, FullStore, Recorded, State};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::faults::{Fault, Scene};
use crate::store::work::{self, Keys};
use crate::{Options, machine, report};

/// How many callers there are, and how long each rests after a pair: some thousand keys in all.
const CALLERS: usize = 16;
const REST: Duration = Duration::from_millis(5);
/// How many answers are recorded before the fault.
const BEFORE: usize = 2000;
const TIME_OUT: Duration = Duration::from_secs(2);

/// How records are kept.
pub(crate) struct SetUp {
    name: &'static str,
    /// Of the server.
    settings: &'static [&'static str],
    store: Kept,
    /// Whether there is something that a restart can be without.
    has_file: bool,
    has_replica: bool,
}

/// By which store.
enum Kept {
    Redis(fn(RedisOptions) -> RedisOptions),
    /// In a folder, with Redis before it.
    Behind,
}

impl SetUp {
    const fn new(name: &'static str, settings: &'static [&'static str], store: Kept) -> Self {
        Self { name, settings, store, has_file: true, has_replica: false }
    }
}

const SET_UPS: &[SetUp] = &[
    SetUp {
        has_file: false,
        ..SetUp::new(
            "snapshots only, `accept_loss`",
            &["appendonly no"],
            Kept::Redis(RedisOptions::accept_loss),
        )
    },
    SetUp::new("`appendfsync everysec`", &["appendfsync everysec"], Kept::Redis(|options| options)),
    SetUp::new("`appendfsync always`", &["appendfsync always"], Kept::Redis(|options| options)),
    SetUp {
        has_replica: true,
        ..SetUp::new(
            "the same and `wait_replicas = 1`",
            &["appendfsync always"],
            Kept::Redis(|options| options.wait_replicas(1)),
        )
    },
    SetUp {
        has_file: false,
        ..SetUp::new("`file:` with such a Redis as `cache_url`", &["appendonly no"], Kept::Behind)
    },
];

/// What all callers share.
struct Work {
    keys: Keys,
    recorded: AtomicUsize,
    is_over: AtomicBool,
}

/// What became of keys whose answers had been recorded.
#[derive(Default)]
struct Lost {
    acknowledged: usize,
    lost: usize,
    second_runs: usize,
    refused: usize,
}

/// Counts what is lost.
pub(crate) fn run(options: &Options) -> Result<()> {
    let runtime = Runtime::new()?;
    let head = ["kept by", "fault", "recorded", "lost", "ran again", "new keys refused"];
    let mut lines = vec![head.map(String::from).to_vec()];
    for set_up in SET_UPS {
        for fault in Fault::ALL {
            let name = format!("{}: {}", set_up.name, fault.name());
            if !fault.fits(set_up) || !options.wants(&name) {
                continue;
            }
            eprintln!("{name}");
            let found = runtime.block_on(lose(set_up, fault))?;
            lines.push(found.line(set_up, fault));
        }
    }
    println!("{}\n\n{}", machine::describe(), report::aligned(&lines));
    Ok(())
}

impl Lost {
    fn line(&self, set_up: &SetUp, fault: Fault) -> Vec<String> {
        let mut line = vec![set_up.name.to_owned(), fault.name().to_owned()];
        let counts = [self.acknowledged, self.lost, self.second_runs];
        line.extend(counts.map(report::count));
        line.push(if self.refused > 0 { "yes" } else { "no" }.to_owned());
        line
    }
}

/// Records answers, strikes, and asks for all of them again.
async fn lose(set_up: &SetUp, fault: Fault) -> Result<Lost> {
    let mut scene = Scene::start(set_up, fault).await?;
    let folder = TempDir::new()?;
    let store = open(set_up, &scene.url(), folder.path()).await?;
    let work = Arc::new(Work { keys: Keys::from(0), recorded: 0.into(), is_over: false.into() });
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(call(store.clone(), work.clone()));
    }
    while work.recorded.load(Ordering::Relaxed) < BEFORE {
        sleep(REST).await;
    }
    scene.strike(fault).await;
    work.is_over.store(true, Ordering::Relaxed);
    let recorded = callers.join_all().await.concat();
    scene.recover(fault).await;
    ask_again(&*store, &recorded).await
}

async fn open(set_up: &SetUp, url: &str, folder: &Path) -> Result<Arc<dyn FullStore>> {
    Ok(match set_up.store {
        Kept::Redis(options) => {
            let options = options(RedisOptions::default().time_out(TIME_OUT));
            Arc::new(RedisStore::open(url, options).await?)
        }
        Kept::Behind => {
            let durable = Arc::new(EmbeddedStore::open(folder, EmbeddedOptions::default())?);
            Arc::new(TieredStore::open(durable, url, TieredOptions::default()).await?)
        }
    })
}

/// Claims and completes new keys until it is over, whatever fails, and tells whose answers were recorded.
async fn call(store: Arc<dyn FullStore>, work: Arc<Work>) -> Vec<Ask> {
    let answer = work::answer(work::ANSWER_BYTES);
    let mut recorded = Vec::new();
    while !work.is_over.load(Ordering::Relaxed) {
        let ask = work.keys.next();
        if record(&*store, &ask, &answer).await {
            work.recorded.fetch_add(1, Ordering::Relaxed);
            recorded.push(ask);
        }
        sleep(REST).await;
    }
    recorded
}

async fn record(store: &dyn FullStore, ask: &Ask, answer: &Answer) -> bool {
    let Ok(Claimed::Run(grant)) = store.claim(ask).await else { return false };
    matches!(store.complete(&grant.lease, answer).await, Ok(Recorded::Until(_)))
}

/// What a client finds that retries.
async fn ask_again(store: &dyn FullStore, recorded: &[Ask]) -> Result<Lost> {
    until_serving(store, &recorded[0]).await?;
    let mut found = Lost { acknowledged: recorded.len(), ..Lost::default() };
    for ask in recorded {
        let is_known = store
            .get(&ask.id)
            .await?
            .is_some_and(|record| matches!(record.state, State::Completed { .. }));
        found.lost += usize::from(!is_known);
        let again = Ask { attempt_id: AttemptId::random(), ..ask.clone() };
        match store.claim(&again).await {
            Ok(Claimed::Run(_)) => found.second_runs += 1,
            Ok(_) => {}
            Err(_) => found.refused += 1,
        }
    }
    Ok(found)
}

/// Waits until the store can be read again.
async fn until_serving(store: &dyn FullStore, ask: &Ask) -> Result<()> {
    for _ in 0..50 {
        if store.get(&ask.id).await.is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(200)).await;
    }
    store.get(&ask.id).await?;
    Ok(())
}
