//! `bench/run losses`: what is lost of a Redis store by faults, and whether that is noticed. It counts, and times nothing.

mod faults;
mod relay;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use selfsame::stores::{
    EmbeddedOptions, EmbeddedStore, PostgresOptions, PostgresStore, RedisOptions, RedisStore,
    SplitStore, TieredOptions, TieredStore,
};
use selfsame_core::{Answer, Ask, AttemptId, Claimed, FullStore, Recorded, State};
use selfsame_test_postgres::Server as Database;
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
    Folder,
    /// In a database, with Redis before it.
    Database,
    /// The same, with its claims in that Redis.
    Split(fn(RedisOptions) -> RedisOptions),
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
        ..SetUp::new("`file:` with such a Redis as `cache_url`", &["appendonly no"], Kept::Folder)
    },
    SetUp {
        has_file: false,
        ..SetUp::new("`postgres:` with the same", &["appendonly no"], Kept::Database)
    },
    SetUp {
        has_file: false,
        ..SetUp::new(
            "the same and `lock = \"redis\"`, `accept_loss`",
            &["appendonly no"],
            Kept::Split(RedisOptions::accept_loss),
        )
    },
    SetUp::new(
        "`lock = \"redis\"`, `appendfsync everysec`",
        &["appendfsync everysec"],
        Kept::Split(|options| options),
    ),
    SetUp {
        has_replica: true,
        ..SetUp::new(
            "`lock = \"redis\"`, `appendfsync always`, `wait_replicas = 1`",
            &["appendfsync always"],
            Kept::Split(|options| options.wait_replicas(1)),
        )
    },
];

/// What all callers share.
struct Work {
    keys: Keys,
    recorded: AtomicUsize,
    is_over: AtomicBool,
}

/// What became of keys whose answers had been recorded, and of those that were under way.
#[derive(Default)]
struct Lost {
    acknowledged: usize,
    lost: usize,
    second_runs: usize,
    under_way: usize,
    run_twice: usize,
    refused: usize,
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
        "new keys refused",
    ];
    let database = Database::start();
    let mut lines = vec![head.map(String::from).to_vec()];
    for set_up in SET_UPS {
        for fault in Fault::ALL {
            let name = format!("{}: {}", set_up.name, fault.name());
            if !fault.fits(set_up) || !options.wants(&name) {
                continue;
            }
            eprintln!("{name}");
            let found = runtime.block_on(lose(set_up, fault, &database))?;
            lines.push(found.line(set_up, fault));
        }
    }
    println!("{}\n\n{}", machine::describe(), report::aligned(&lines));
    Ok(())
}

impl Lost {
    fn line(&self, set_up: &SetUp, fault: Fault) -> Vec<String> {
        let mut line = vec![set_up.name.to_owned(), fault.name().to_owned()];
        let counts =
            [self.acknowledged, self.lost, self.second_runs, self.under_way, self.run_twice];
        line.extend(counts.map(report::count));
        line.push(if self.refused > 0 { "yes" } else { "no" }.to_owned());
        line
    }
}

/// Records answers, strikes, and asks for all of them again, and for what was under way.
async fn lose(set_up: &SetUp, fault: Fault, database: &Database) -> Result<Lost> {
    let mut scene = Scene::start(set_up, fault).await?;
    let folder = TempDir::new()?;
    let store = open(set_up, &scene.url(), folder.path(), database).await?;
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
    let begun = beginning.join_all().await.concat();
    scene.recover(fault).await;
    ask_again(&*store, &recorded, &begun).await
}

async fn open(
    set_up: &SetUp,
    url: &str,
    folder: &Path,
    database: &Database,
) -> Result<Arc<dyn FullStore>> {
    let durable = async || {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let schema = format!("losses_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (url, options) =
            (database.url("postgres", "postgres"), PostgresOptions::default().schema(schema));
        PostgresStore::open(&url, options).await.map(Arc::new)
    };
    Ok(match set_up.store {
        Kept::Redis(options) => {
            let options = options(RedisOptions::default().time_out(TIME_OUT));
            Arc::new(RedisStore::open(url, options).await?)
        }
        Kept::Folder => {
            let durable = Arc::new(EmbeddedStore::open(folder, EmbeddedOptions::default())?);
            Arc::new(TieredStore::open(durable, url, TieredOptions::default()).await?)
        }
        Kept::Database => {
            Arc::new(TieredStore::open(durable().await?, url, TieredOptions::default()).await?)
        }
        Kept::Split(options) => {
            let options = options(RedisOptions::default().time_out(TIME_OUT));
            Arc::new(SplitStore::open(durable().await?, url, options).await?)
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

/// Claims new keys, whose work has no end, until it is over.
async fn begin(store: Arc<dyn FullStore>, work: Arc<Work>) -> Vec<Ask> {
    let mut begun = Vec::new();
    while !work.is_over.load(Ordering::Relaxed) {
        let ask = work.keys.next();
        if matches!(store.claim(&ask).await, Ok(Claimed::Run(_))) {
            begun.push(ask);
        }
        sleep(REST).await;
    }
    begun
}

async fn record(store: &dyn FullStore, ask: &Ask, answer: &Answer) -> bool {
    let Ok(Claimed::Run(grant)) = store.claim(ask).await else { return false };
    matches!(store.complete(&grant.lease, answer).await, Ok(Recorded::Until(_)))
}

/// What clients find that retry, at once.
async fn ask_again(store: &dyn FullStore, recorded: &[Ask], begun: &[Ask]) -> Result<Lost> {
    until_serving(store, &recorded[0]).await?;
    let (acknowledged, under_way) = (recorded.len(), begun.len());
    let mut found = Lost { acknowledged, under_way, ..Lost::default() };
    let again = |ask: &Ask| Ask { attempt_id: AttemptId::random(), ..ask.clone() };
    for ask in begun {
        match store.claim(&again(ask)).await {
            Ok(Claimed::Run(_)) => found.run_twice += 1,
            Ok(_) => {}
            Err(_) => found.refused += 1,
        }
    }
    for ask in recorded {
        let is_known = store
            .get(&ask.id)
            .await?
            .is_some_and(|record| matches!(record.state, State::Completed { .. }));
        found.lost += usize::from(!is_known);
        match store.claim(&again(ask)).await {
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
