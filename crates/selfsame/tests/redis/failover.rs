//! A cluster whose masters die, stop, or give their slots away, while it is used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Ask, Claimed, Find, FullStore, Inspect, Recorded, Store, StoreErrorKind};
use selfsame_test_redis::Cluster;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::cluster::start;
use crate::shared_crashes::{Effects, one_rival};
use crate::shared_waits::{SOON, ended_elsewhere, node};
use crate::support::{USER, complete, run, unverified};

/// By when replicas have what was written before, as a rule.
pub(crate) const REPLICATED: Duration = Duration::from_millis(500);

async fn open(cluster: &Cluster, options: RedisOptions) -> RedisStore {
    RedisStore::open(&cluster.url_as(USER), options).await.expect("the user may open it")
}

async fn three(cluster: &Cluster, options: RedisOptions) -> [RedisStore; 3] {
    let open = || open(cluster, options.clone());
    [open().await, open().await, open().await]
}

fn all(stores: &[RedisStore; 3]) -> [&dyn FullStore; 3] {
    stores.each_ref().map(|store| store as &dyn FullStore)
}

/// Rivals on all stores ask for the same keys, and go on with others until `meanwhile` has ended. No key runs twice,
/// and no answer is lost.
pub(crate) async fn rivals_run_once_each(
    stores: &[&dyn FullStore],
    (keys, rivals): (usize, usize),
    meanwhile: impl Future<Output = ()>,
) {
    let (effects, is_over) = (Effects::default(), AtomicBool::new(false));
    let races = (0..keys).map(|number| {
        let (effects, is_over) = (&effects, &is_over);
        async move {
            for round in 0.. {
                let key = format!("k-{number}-{round}");
                let rivals = stores.iter().flat_map(|store| {
                    (0..rivals).map(|_| one_rival(*store, effects, &key)).collect::<Vec<_>>()
                });
                join_all(rivals).await;
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    let meanwhile = async {
        meanwhile.await;
        is_over.store(true, Ordering::Relaxed);
    };
    join(join_all(races), meanwhile).await;
    effects.expect_once_each(stores).await;
}

/// Where the record lies: its key, its slot, and the server.
fn place_of(cluster: &Cluster, ask: &Ask) -> (String, String, usize) {
    let pattern = format!("*{}", ask.id);
    for server in cluster.masters() {
        let key = cluster.server(server).command(0, &["--scan", "--pattern", &pattern]);
        if !key.is_empty() {
            return (key.clone(), cluster.command(&["cluster", "keyslot", &key]), server);
        }
    }
    panic!("it is nowhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn rivals_run_once_while_a_master_is_killed_and_comes_back() {
    let mut cluster = start();
    // Else a claim could be lost that a replica had not got.
    let stores = three(&cluster, unverified().wait_replicas(1)).await;
    rivals_run_once_each(&all(&stores), (4, 50), async {
        for dies in [0, 1] {
            sleep(Duration::from_millis(700)).await;
            block_in_place(|| {
                cluster.server_mut(dies).crash();
                while cluster.masters().len() < 3 {}
            });
            sleep(Duration::from_millis(700)).await;
            block_in_place(|| {
                cluster.server_mut(dies).start_again();
                cluster.wait_until_whole();
            });
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rivals_run_once_while_a_master_stops_and_comes_back() {
    let cluster = start();
    // One that was away takes claims at first that are lost when it hears what has happened: its replica is gone.
    let stores = three(&cluster, unverified().wait_replicas(1)).await;
    rivals_run_once_each(&all(&stores), (4, 50), async {
        for stops in [0, 2] {
            sleep(Duration::from_millis(700)).await;
            cluster.server(stops).signal("STOP");
            sleep(Duration::from_secs(4)).await;
            cluster.server(stops).signal("CONT");
            block_in_place(|| cluster.wait_until_whole());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rivals_run_once_and_nothing_is_lost_while_slots_move() {
    let cluster = start();
    let stores = three(&cluster, unverified()).await;
    let before: Vec<_> = (0..300).map(|at| ask(&format!("before-{at}"))).collect();
    join_all(before.iter().map(|ask| complete(&stores[0], ask))).await;
    rivals_run_once_each(&all(&stores), (12, 50), async {
        block_in_place(|| {
            cluster.reshard(0, 1, 600);
            cluster.reshard(2, 0, 600);
        });
    })
    .await;
    let found = stores[0].find(&Find::IdPrefix(String::new()), 100_000).await.expect("it works");
    for ask in &before {
        assert!(found.iter().any(|record| record.id == ask.id));
        let known = stores[1].claim(&retry(ask)).await.expect("it works");
        assert!(matches!(known, Claimed::Replay(_)), "{known:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_outlives_the_death_of_a_master() {
    let mut cluster = start();
    let store = open(&cluster, unverified().time_out(Duration::from_secs(60))).await;
    let running = run(&store, &ask("running")).await;
    let (_, _, server) = place_of(&cluster, &ask("running"));
    sleep(REPLICATED).await;
    cluster.server_mut(server).crash();
    let new: Vec<_> = (0..64).map(|at| ask(&format!("new-{at}"))).collect();
    let claims = join_all(new.iter().map(|ask| run(&store, ask)));
    let (recorded, leases) = join(store.complete(&running, &answer("done")), claims).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))), "{recorded:?}");
    for lease in leases {
        let recorded = store.complete(&lease, &answer("done")).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))), "{recorded:?}");
    }
    assert_eq!(store.count().await.expect("it works").completed, 65);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_half_moved_is_found_on_both_sides() {
    let cluster = start();
    let store = open(&cluster, unverified().time_out(Duration::from_secs(2))).await;
    // Enough that some lie in the same bucket.
    let asks: Vec<_> = (0..600).map(|at| ask(&format!("k-{at}"))).collect();
    join_all(asks.iter().map(|ask| run(&store, ask))).await;
    let (_, slot, from) = place_of(&cluster, &asks[0]);
    let to = cluster.masters().into_iter().find(|server| *server != from).expect("there are three");
    let id = |server: usize| cluster.server(server).command(0, &["cluster", "myid"]);
    let set = |server: usize, words: &[&str]| {
        let mut command = vec!["cluster", "setslot", &slot];
        command.extend(words);
        cluster.server(server).command(0, &command);
    };
    set(to, &["importing", &id(from)]);
    set(from, &["migrating", &id(to)]);
    let keys = cluster.server(from).command(0, &["cluster", "getkeysinslot", &slot, "100"]);
    let keys: Vec<_> = keys.lines().filter(|key| !key.ends_with("guard")).collect();
    assert!(keys.len() >= 3, "{keys:?}");
    let port = cluster.server(to).port().to_string();
    let moves = |key: &str| {
        cluster.server(from).command(0, &["migrate", "127.0.0.1", &port, key, "0", "1000"]);
    };
    keys.iter().skip(1).step_by(2).for_each(|key| moves(key));

    let of_slot = |ask: &&Ask| keys.iter().any(|key| key.ends_with(&ask.id.to_string()));
    let half_moved: Vec<_> = asks.iter().filter(of_slot).collect();
    let every = Find::IdPrefix(String::new());
    let everything = || store.find(&every, 10_000);
    assert_eq!(everything().await.expect("it works").len(), asks.len());
    for ask in &half_moved {
        let record = store.get(&ask.id).await.expect("it works").expect("it is there");
        let lease = selfsame_core::Lease {
            id: ask.id,
            fence: record.fence,
            attempt_id: record.attempt_id,
            length: ask.lease,
        };
        let recorded = store.complete(&lease, &answer("done")).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))), "{recorded:?}");
    }
    // Of one that is unknown here nobody knows whether it is there.
    let error = store.claim(&retry(half_moved[0])).await;
    assert!(!matches!(error, Ok(Claimed::Run(_))), "{error:?}");

    keys.iter().step_by(2).for_each(|key| moves(key));
    moves(&format!("{}guard", &keys[0][..keys[0].rfind(':').expect("a bucket") + 1]));
    for server in [to, from] {
        set(server, &["node", &id(to)]);
    }
    for ask in half_moved {
        let known = store.claim(&retry(ask)).await.expect("it works");
        assert!(matches!(known, Claimed::Replay(_)), "{known:?}");
    }
    assert_eq!(everything().await.expect("it works").len(), asks.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_counts_is_on_a_replica() {
    let cluster = start();
    let options = unverified().wait_replicas(1).time_out(Duration::from_secs(2));
    let store = open(&cluster, options).await;
    let before = run(&store, &ask("before")).await;
    let replicas: Vec<_> = (0..6).filter(|at| !cluster.masters().contains(at)).collect();
    replicas.iter().for_each(|replica| cluster.server(*replica).signal("STOP"));
    let unheard = ask("unheard");
    let error = store.claim(&unheard).await.expect_err("no replica has it");
    assert_eq!(error.kind(), StoreErrorKind::MayHaveLanded, "{error}");
    let error = store.complete(&before, &answer("done")).await.expect_err("nor this");
    assert_eq!(error.kind(), StoreErrorKind::MayHaveLanded, "{error}");
    replicas.iter().for_each(|replica| cluster.server(*replica).signal("CONT"));
    block_in_place(|| cluster.wait_until_whole());
    run(&store, &unheard).await;
    let recorded = store.complete(&before, &answer("done")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))), "{recorded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_forgot_everything_takes_no_new_key_and_others_do() {
    let cluster = start();
    let store = open(&cluster, unverified()).await;
    let asks: Vec<_> = (0..100).map(|at| ask(&format!("k-{at}"))).collect();
    join_all(asks.iter().map(|ask| complete(&store, ask))).await;
    let lost: Vec<_> = asks.iter().map(|ask| place_of(&cluster, ask).2 == 0).collect();
    cluster.server(0).command(0, &["flushall"]);
    let at = lost.iter().position(|lost| *lost).expect("some lie there");
    store.claim(&retry(&asks[at])).await.expect_err("it may have run");
    for (ask, lost) in asks.iter().zip(&lost) {
        match store.claim(&retry(ask)).await {
            Ok(Claimed::Replay(_)) if !lost => {}
            Err(error) if *lost => assert!(error.to_string().contains("lost records"), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    // Another process has seen nothing, and is told, whatever the bucket.
    let other = open(&cluster, unverified()).await;
    let (mut taken, mut refused) = (0, 0);
    for at in 0..200 {
        match other.claim(&ask(&format!("new-{at}"))).await {
            Ok(_) => taken += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 90 && refused > 30, "{taken} {refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_wakes_after_the_server_died_that_was_listened_to() {
    let mut cluster = start();
    let first = node(open(&cluster, unverified()).await).await;
    let second = node(open(&cluster, unverified()).await).await;
    let listening = |cluster: &Cluster| {
        let command = ["pubsub", "numsub", "selfsame:bell:0"];
        let at = |server: usize| cluster.server(server).command(0, &command).ends_with("\n0");
        (0..6).filter(|server| !at(*server)).collect::<Vec<_>>()
    };
    while listening(&cluster).is_empty() {
        sleep(Duration::from_millis(50)).await;
    }
    let dies = listening(&cluster)[0];
    block_in_place(|| {
        cluster.server_mut(dies).crash();
        cluster.server_mut(dies).start_again();
        cluster.wait_until_whole();
    });
    sleep(Duration::from_secs(1)).await;
    let (runs, waits, later) = ended_elsewhere(&first, &second, Ok("by the first")).await;
    assert!(runs.is_ok() && waits.is_ok() && later < SOON, "{runs:?} {waits:?} {later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_starts_and_finds_only_some_of_the_guards_knows_that_the_others_were_lost() {
    let cluster = start();
    // The first master has the facts: without them every key may be another one.
    for (forgets, fewest, most) in [(2, 20, 60), (0, 100, 100)] {
        cluster.flush();
        let store = open(&cluster, unverified()).await;
        let before: Vec<_> = (0..50).map(|at| ask(&format!("k-{at}"))).collect();
        join_all(before.iter().map(|ask| run(&store, ask))).await;
        sleep(REPLICATED).await;
        drop(store);
        cluster.server(forgets).command(0, &["flushall"]);
        let store = open(&cluster, unverified()).await;
        let mut refused = 0;
        for at in 0..100 {
            match store.claim(&ask(&format!("new-{at}"))).await {
                Ok(_) => {}
                Err(error) => {
                    assert!(error.to_string().contains("lost records"), "{error}");
                    refused += 1;
                }
            }
        }
        assert!((fewest..=most).contains(&refused), "{forgets}: {refused}");
    }
}
