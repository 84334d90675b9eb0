//! `bench/run losses`: what is lost of a Redis store by faults, and whether that is noticed. It counts, and times nothing.

mod faults;
mod relay;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_core::{Answer, Ask, AttemptId, Claimed, Recorded, State, Store};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::faults::{Fault, Scene};
use crate::store::work::{self, Keys};
use crate::{Options, machine, report};

/// How many callers there are, and how long each rests after a pair: some thousand keys in all.
const CALLERS: usize = 16;
const REST: Duration = Duration::from_millis(5);
/// How long they go on before the fault, and, where that is not at once, beside it.
const BEFORE: Duration = Duration::from_secs(1);
const TIME_OUT: Duration = Duration::from_secs(2);

/// How records are kept.
pub(crate) struct SetUp {
    name: &'static str,
    settings: &'static [&'static str],
    options: fn(RedisOptions) -> RedisOptions,
    /// Whether there is something that a restart can be without.
    has_file: bool,
    has_replica: bool,
}

const SET_UPS: &[SetUp] = &[
    SetUp {
        name: "snapshots only, `accept_loss`",
        settings: &["appendonly no"],
        options: RedisOptions::accept_loss,
        has_file: false,
        has_replica: false,
    },
    SetUp {
        name: "`appendfsync everysec`",
        settings: &["appendfsync everysec"],
        options: |options| options,
        has_file: true,
        has_replica: false,
    },
    SetUp {
        name: "`appendfsync always`",
        settings: &["appendfsync always"],
        options: |options| options,
        has_file: true,
        has_replica: false,
    },
    SetUp {
        name: "the same and `wait_replicas = 1`",
        settings: &["appendfsync always"],
        options: |options| options.wait_replicas(1),
        has_file: true,
        has_replica: true,
    },
];

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
        line.extend(counts.map(|count| report::number(count as f64)));
        line.push(if self.refused > 0 { "yes" } else { "no" }.to_owned());
        line
    }
}

/// Records answers, strikes, and asks for all of them again.
async fn lose(set_up: &SetUp, fault: Fault) -> Result<Lost> {
    let mut scene = Scene::start(set_up, fault).await?;
    let options = (set_up.options)(RedisOptions::default().time_out(TIME_OUT));
    let store = Arc::new(RedisStore::open(&scene.url(), options).await?);
    let is_over = Arc::new(AtomicBool::new(false));
    let keys = Arc::new(Keys::from(0));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(call(store.clone(), keys.clone(), is_over.clone()));
    }
    sleep(BEFORE).await;
    scene.strike(fault).await;
    is_over.store(true, Ordering::Relaxed);
    let recorded = callers.join_all().await.concat();
    scene.recover(fault).await;
    ask_again(&store, &recorded).await
}

/// Claims and completes new keys until it is over, whatever fails, and tells whose answers were recorded.
async fn call(store: Arc<RedisStore>, keys: Arc<Keys>, is_over: Arc<AtomicBool>) -> Vec<Ask> {
    let answer = work::answer(work::ANSWER_BYTES);
    let mut recorded = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let ask = keys.next();
        if record(&store, &ask, &answer).await {
            recorded.push(ask);
        }
        sleep(REST).await;
    }
    recorded
}

async fn record(store: &RedisStore, ask: &Ask, answer: &Answer) -> bool {
    let Ok(Claimed::Run(grant)) = store.claim(ask).await else { return false };
    matches!(store.complete(&grant.lease, answer).await, Ok(Recorded::Until(_)))
}

/// What a client finds that retries.
async fn ask_again(store: &RedisStore, recorded: &[Ask]) -> Result<Lost> {
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
async fn until_serving(store: &RedisStore, ask: &Ask) -> Result<()> {
    for _ in 0..50 {
        if store.get(&ask.id).await.is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(200)).await;
    }
    store.get(&ask.id).await?;
    Ok(())
}
