//! The laws over a cluster.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_core::FullStore;
use selfsame_core::conformance::Bench;
use selfsame_test_redis::Cluster;
use tokio::sync::OnceCell;

use crate::shared_rivals::{self, Nodes};
use crate::support::{RULES, USER, unverified};

/// The cluster of this test binary. Its guardians stop it.
static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start_with(&[&user(), NO_FAILOVER]));

/// None of its servers dies, and a busy machine makes none of them look dead.
pub(crate) const NO_FAILOVER: &str = "cluster-node-timeout 10000";

/// A cluster with the user that may do no more than it must.
pub(crate) fn start() -> Cluster {
    Cluster::start_with(&[&user()])
}

/// That user, as a setting of a server.
pub(crate) fn user() -> String {
    let rules: Vec<_> = RULES.split_whitespace().collect();
    format!("user keys {} +cluster|slots +asking", rules.join(" "))
}

/// A cluster has one database, so its tests take turns.
struct Turn;

static TAKEN: Mutex<bool> = Mutex::new(false);
static FREED: Condvar = Condvar::new();

impl Turn {
    fn take() -> Self {
        let taken = TAKEN.lock().expect("no panic holds it");
        *FREED.wait_while(taken, |taken| *taken).expect("no panic holds it") = true;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TAKEN.lock().expect("no panic holds it") = false;
        FREED.notify_one();
    }
}

/// The clock of the latest bench. While somebody goes by it, what its stores have begun may still be written.
static LATEST: Mutex<Weak<AtomicU64>> = Mutex::new(Weak::new());

/// The cluster, in which time passes when a test says so.
struct ClusterBench {
    _turn: Turn,
    /// That of the bench before.
    before: Weak<AtomicU64>,
    ahead_ms: Arc<AtomicU64>,
    emptied: OnceCell<()>,
}

impl ClusterBench {
    fn new() -> Self {
        let (_turn, ahead_ms) = (Turn::take(), Arc::default());
        let mut latest = LATEST.lock().expect("no panic holds it");
        let before = std::mem::replace(&mut *latest, Arc::downgrade(&ahead_ms));
        Self { _turn, before, ahead_ms, emptied: OnceCell::new() }
    }

    fn options(&self) -> RedisOptions {
        unverified().ahead_ms(self.ahead_ms.clone())
    }
}

#[async_trait]
impl Bench for ClusterBench {
    async fn open(&self) -> Arc<dyn FullStore> {
        let empty = || async {
            while self.before.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            CLUSTER.flush();
        };
        self.emptied.get_or_init(empty).await;
        let store = RedisStore::open(&CLUSTER.url_as(USER), self.options()).await;
        Arc::new(store.expect("the user may open it"))
    }

    fn is_durable(&self) -> bool {
        true
    }

    async fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).expect("tests are short");
        self.ahead_ms.fetch_add(millis, Ordering::SeqCst);
    }
}

selfsame_core::conformance_laws! { durable mod laws: crate::cluster::ClusterBench::new }

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_rivals_runs_through_all_of_a_keys_life() {
    shared_rivals::one_of_many_rivals_runs_through_all_of_a_keys_life(
        &Nodes::start(ClusterBench::new()).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_and_rivals_meet_at_the_end_of_a_keys_life() {
    shared_rivals::a_sweep_and_rivals_meet_at_the_end_of_a_keys_life(
        &Nodes::start(ClusterBench::new()).await,
    )
    .await;
}
