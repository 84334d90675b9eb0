//! One server for all tests here, and a database for each.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use selfsame::stores::{RedisOptions, RedisStore};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::answer;
use selfsame_core::{Ask, Claimed, FullStore, Lease, Recorded, Store};
use selfsame_test_redis::Server;

/// The server of this test binary. Its guardian stops it.
pub(crate) static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let server = Server::start();
    make_user(&server);
    server
});

/// A user that may do no more than a store must: what docs/REDIS.md lets it do.
pub(crate) const USER: &str = "keys:correct-horse@";

/// What it may do.
pub(crate) const RULES: &str = "on >correct-horse resetkeys ~selfsame:* resetchannels &selfsame:* -@all \
     +ping +select +time +eval +evalsha +get +getrange +set +del +scan +pexpire \
     +hget +hset +hsetnx +hmget +hincrby +wait +publish +subscribe";

pub(crate) fn make_user(server: &Server) {
    let mut command = vec!["acl", "setuser", "keys"];
    command.extend(RULES.split_whitespace());
    server.command(0, &command);
}

/// How that user opens a store: it may not ask how it is kept.
pub(crate) fn unverified() -> RedisOptions {
    RedisOptions::default().accept_unverified().settle(Duration::ZERO)
}

/// A database in which time passes when a test says so. Nobody else uses it, also not later: what a store has begun may
/// be written when its bench is gone.
pub(crate) struct RedisBench {
    pub(crate) database: usize,
    ahead_ms: Arc<AtomicU64>,
}

impl RedisBench {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self { database: NEXT.fetch_add(1, Ordering::Relaxed), ahead_ms: Arc::default() }
    }

    pub(crate) fn options(&self) -> RedisOptions {
        unverified().ahead_ms(self.ahead_ms.clone())
    }

    /// The store, opened by the user that may do no more than it must.
    pub(crate) async fn store(&self) -> RedisStore {
        let url = SERVER.url_as(USER, self.database);
        RedisStore::open(&url, self.options()).await.expect("the user may open it")
    }

    /// Sends a command as somebody who may.
    pub(crate) fn command(&self, command: &[&str]) -> String {
        SERVER.command(self.database, command)
    }
}

#[async_trait]
impl Bench for RedisBench {
    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(self.store().await)
    }

    fn is_durable(&self) -> bool {
        true
    }

    async fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).expect("tests are short");
        self.ahead_ms.fetch_add(millis, Ordering::SeqCst);
    }
}

/// The key under which the record of `ask` lies.
pub(crate) fn key(ask: &Ask) -> String {
    format!("selfsame:{{0}}:{}", ask.id)
}

/// The lease of a key that must be free to run.
pub(crate) async fn run(store: &RedisStore, ask: &Ask) -> Lease {
    match store.claim(ask).await.expect("the store works") {
        Claimed::Run(grant) => grant.lease,
        other => panic!("the key must be free to run, not {other:?}"),
    }
}

/// Runs and completes `ask`.
pub(crate) async fn complete(store: &RedisStore, ask: &Ask) {
    let lease = run(store, ask).await;
    let recorded = store.complete(&lease, &answer("done")).await.expect("the store works");
    assert!(matches!(recorded, Recorded::Until(_)));
}
