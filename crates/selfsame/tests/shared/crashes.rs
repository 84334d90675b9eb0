//! The server of a store crashes while it is used.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Claimed, FullStore, Recorded, StoreErrorKind};
use tokio::time::{Instant, sleep};

/// How often work was done, by key, and how often it was unknown whether a claim had landed.
#[derive(Default)]
pub(crate) struct Effects {
    of: Mutex<HashMap<String, usize>>,
    unheard: AtomicUsize,
    is_over: AtomicBool,
}

impl Effects {
    /// Each key ran once, and its answer is there, on each of `stores`.
    pub(crate) async fn expect_once_each(self, stores: &[&dyn FullStore]) {
        let effects = self.of.into_inner().expect("no panic holds it");
        let replays = effects.iter().flat_map(|(key, times)| {
            assert_eq!(*times, 1, "{key}");
            stores.iter().map(move |store| async move {
                let Ok(Claimed::Replay(replay)) = store.claim(&retry(&ask(key))).await else {
                    panic!("{key} was acknowledged");
                };
                assert_eq!(replay.answer, answer(key.clone()));
            })
        });
        join_all(replays).await;
    }
}

/// A caller that claims, works and records, and asks again for as long as the database is away.
pub(crate) async fn one_rival(store: &dyn FullStore, effects: &Effects, key: &str) {
    let ask = ask(key);
    let lease = loop {
        match store.claim(&ask).await {
            Ok(Claimed::Run(grant)) => break grant.lease,
            Ok(Claimed::Replay(replay)) => {
                assert_eq!(replay.answer, answer(key.to_owned()));
                return;
            }
            Ok(Claimed::Busy { .. }) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) if error.kind() == StoreErrorKind::MayHaveLanded => {
                effects.unheard.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    };
    *effects.of.lock().expect("no panic holds it").entry(key.to_owned()).or_default() += 1;
    loop {
        match store.complete(&lease, &answer(key.to_owned())).await {
            Ok(Recorded::Until(_)) => return,
            Ok(Recorded::Lost) => panic!("nobody else may have the claim"),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Callers go on while `crash` is called again and again, until a claim has met it. No key runs twice, and
/// no answer is lost.
pub(crate) async fn no_key_runs_twice_and_no_answer_is_lost<S: Send + 'static>(
    store: &dyn FullStore,
    mut server: S,
    crash: fn(&mut S),
) {
    const CALLERS: usize = 40;
    let effects = Effects::default();

    let callers = (0..CALLERS).map(|caller| {
        let effects = &effects;
        async move {
            for at in 0.. {
                let key = format!("k-{caller}-{at}");
                join_all((0..3).map(|_| one_rival(store, effects, &key))).await;
                if effects.is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    let crashes = async {
        // Whether a claim is under way at that moment is chance.
        for crashes in 1.. {
            sleep(Duration::from_millis(150)).await;
            let restart = tokio::task::spawn_blocking(move || {
                crash(&mut server);
                server
            });
            server = restart.await.expect("it starts again");
            let begun = Instant::now();
            while store.now().await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it serves again");
            let has_met_one = effects.unheard.load(Ordering::Relaxed) > 0;
            assert!(has_met_one || crashes < 20, "no claim met a crash");
            if has_met_one && crashes >= 2 {
                break;
            }
        }
        effects.is_over.store(true, Ordering::Relaxed);
        server
    };
    let (_, _server) = join(join_all(callers), crashes).await;

    assert!(effects.of.lock().expect("no panic holds it").len() >= CALLERS);
    effects.expect_once_each(&[store]).await;
}
