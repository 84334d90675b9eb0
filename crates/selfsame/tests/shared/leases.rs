//! Leases of runs that go on for longer than one: many of them, and one whose handler blocks its thread.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use selfsame::{Idempotency, Key, OnceError, Policy};
use selfsame_core::FullStore;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Number of runs and length of their leases: few and short ones, unless time does not matter.
pub(crate) fn size() -> (usize, Duration) {
    match std::env::var_os("SELFSAME_LONG") {
        Some(_) => (10_000, Duration::from_secs(30)),
        None => (1000, Duration::from_secs(8)),
    }
}

/// Number of calls that a rival makes at once.
const RIVALS: usize = 50;

fn key(number: usize) -> Key {
    Key::parse(format!("run-{number}").as_bytes()).expect("a key")
}

/// Has many runs go on for more than two leases in one process while another tries to take them over.
pub(crate) async fn are_kept(here: Arc<dyn FullStore>, there: Arc<dyn FullStore>) {
    let (runs, lease) = size();
    let here = Idempotency::open(here).await.expect("the store works");
    let there = Idempotency::open(there).await.expect("the store works");
    let policy = Policy::new().lease(lease);
    let (begun, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let mut calls = JoinSet::new();
    let started = Instant::now();
    for number in 0..runs {
        let (begun, go_on) = (begun.clone(), go_on.clone());
        let call = here.once("charge", key(number)).policy(policy.clone());
        calls.spawn(call.run(move |_| async move {
            begun.fetch_add(1, Ordering::SeqCst);
            let _permit = go_on.acquire().await.expect("never closed");
            Ok::<_, Infallible>(number)
        }));
    }
    while begun.load(Ordering::SeqCst) < runs {
        sleep(Duration::from_millis(5)).await;
    }
    let took = started.elapsed();
    let until = Instant::now() + lease * 5 / 2;
    let (mut asked, mut next) = (0, 0);
    while Instant::now() < until {
        let rivals = (0..RIVALS).map(|_| {
            next = (next + 1) % runs;
            let call = there.once("charge", key(next)).policy(policy.clone());
            call.run(|_| async { Ok::<_, Infallible>(usize::MAX) })
        });
        for told in join_all(rivals).await {
            match told {
                Err(OnceError::InProgress) => asked += 1,
                // A busy machine lets calls end without an answer: nothing ran.
                Err(OnceError::StoreUnavailable) => {}
                told => panic!("{told:?}"),
            }
        }
    }
    go_on.add_permits(runs);
    let ended = Instant::now();
    while let Some(ended) = calls.join_next().await {
        ended.expect("no panic").expect("no run has lost its claim");
    }
    let recorded = ended.elapsed();
    assert_ne!(asked, 0, "rivals are answered");
    println!(
        "{runs} runs, lease {lease:?}: begun in {took:?}, {asked} rivals, recorded in {recorded:?}"
    );
    assert_eq!(begun.load(Ordering::SeqCst), runs);
}

/// Has a handler block the only thread of its runtime, on which the store was opened, for three leases.
pub(crate) async fn is_kept_by_who_blocks<S, F>(open: impl Fn() -> F + Send + Sync + 'static)
where
    S: FullStore,
    F: Future<Output = S>,
{
    let lease = Duration::from_secs(4);
    let open = Arc::new(open);
    let (opens, begun) = (open.clone(), Arc::new(Semaphore::new(0)));
    let begins = begun.clone();
    let blocked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let node = Idempotency::open(Arc::new(opens().await)).await.expect("the store works");
            let call = node.once("charge", key(0)).policy(Policy::new().lease(lease));
            call.run(move |_| async move {
                begins.add_permits(1);
                std::thread::sleep(lease * 3);
                Ok::<_, Infallible>(0)
            })
            .await
        })
    });
    let node = Idempotency::open(Arc::new(open().await)).await.expect("the store works");
    begun.acquire().await.expect("never closed").forget();
    let told = loop {
        let call = node.once("charge", key(0)).policy(Policy::new().lease(lease));
        match call.run(|_| async { Ok::<_, Infallible>(1) }).await {
            Err(OnceError::InProgress) => sleep(Duration::from_millis(50)).await,
            told => break told,
        }
    };
    assert_eq!(told.expect("its result"), 0);
    assert_eq!(blocked.join().expect("no panic").expect("recorded"), 0);
}
