//! A Redis and a PostgreSQL, in which time passes together.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use selfsame::stores::{RedisOptions, SplitStore};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::answer;
use selfsame_core::{Ask, Claimed, FullStore, Lease, Record, RecordId, Recorded, State, Store};

use crate::postgres::PostgresBench;
use crate::redis::{self, RedisBench, USER};

pub(crate) struct SplitBench {
    pub(crate) answers: PostgresBench,
    pub(crate) locks: RedisBench,
}

impl SplitBench {
    pub(crate) fn new() -> Self {
        Self { answers: PostgresBench::new(), locks: RedisBench::new() }
    }

    /// The store, opened by users that may do no more than they must.
    pub(crate) async fn store(&self) -> SplitStore {
        self.store_with(self.locks.options()).await
    }

    /// The same where Redis may forget, and nobody notices.
    pub(crate) async fn careless(&self) -> SplitStore {
        self.store_with(self.locks.options().accept_loss()).await
    }

    async fn store_with(&self, options: RedisOptions) -> SplitStore {
        // It is emptied once.
        drop(self.locks.store().await);
        let url = redis::SERVER.url_as(USER, self.locks.database);
        let answers = Arc::new(self.answers.store().await);
        SplitStore::open(answers, &url, options).await.expect("the users may open it")
    }

    /// Redis forgets everything.
    pub(crate) fn forget(&self) {
        self.locks.command(&["flushdb"]);
    }
}

#[async_trait]
impl Bench for SplitBench {
    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(self.store().await)
    }

    fn is_durable(&self) -> bool {
        true
    }

    async fn pass(&self, time: Duration) {
        self.answers.pass(time).await;
        self.locks.pass(time).await;
    }
}

/// What a claim comes to where the store works.
pub(crate) async fn claim(store: &SplitStore, ask: &Ask) -> Claimed {
    store.claim(ask).await.expect("the store works")
}

/// The lease of a key that must be free to run.
pub(crate) async fn run(store: &SplitStore, ask: &Ask) -> Lease {
    match claim(store, ask).await {
        Claimed::Run(grant) => grant.lease,
        other => panic!("the key must be free to run, not {other:?}"),
    }
}

/// Records `body`, which must count.
pub(crate) async fn record(store: &SplitStore, lease: &Lease, body: &'static str) {
    let recorded = store.complete(lease, &answer(body)).await.expect("the store works");
    assert!(matches!(recorded, Recorded::Until(_)));
}

/// Runs and completes `ask`.
pub(crate) async fn complete(store: &SplitStore, ask: &Ask) {
    record(store, &run(store, ask).await, "done").await;
}

/// The key must be completed, with this body.
pub(crate) async fn expect_replay(store: &SplitStore, ask: &Ask, body: &'static str) {
    match claim(store, ask).await {
        Claimed::Replay(replay) => assert_eq!(replay.answer, answer(body)),
        other => panic!("the key must be completed, not {other:?}"),
    }
}

/// A record that must be there.
pub(crate) async fn known(store: &dyn Store, id: &RecordId) -> Record {
    store.get(id).await.expect("the store works").expect("it is there")
}

/// The body that a record has.
pub(crate) fn is_completed(record: &Record) -> bool {
    matches!(record.state, State::Completed { .. })
}
