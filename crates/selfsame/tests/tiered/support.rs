//! Any bench with a Redis before its store, which is there, or away, or forgets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use selfsame::stores::{TieredOptions, TieredStore};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::answer;
use selfsame_core::{Ask, AttemptId, Claimed, FullStore, Lease, Recorded};
use selfsame_test_redis::Server;

/// The Redis of this test binary: it evicts, and keeps nothing over a restart.
pub(crate) static REDIS: LazyLock<Server> = LazyLock::new(cache);

/// A Redis as a cache is run.
pub(crate) fn cache() -> Server {
    Server::start_with(&["appendonly no", "maxmemory 64mb", "maxmemory-policy allkeys-lru"])
}

/// What becomes of the Redis of a bench. Dropping it ends that.
pub(crate) struct Cache {
    pub(crate) url: String,
    _flushing: Option<Flushing>,
}

/// It is there.
pub(crate) fn there() -> Cache {
    Cache { url: REDIS.url(database()), _flushing: None }
}

/// It is never there.
pub(crate) fn away() -> Cache {
    // Nobody listens there, and nobody may without being root.
    Cache { url: "redis://127.0.0.1:1/0".to_owned(), _flushing: None }
}

/// It forgets everything, again and again.
pub(crate) fn flushed() -> Cache {
    let database = database();
    Cache { url: REDIS.url(database), _flushing: Some(Flushing::begin(database)) }
}

/// A database that nobody else uses at the time. What others left there is under names of their own.
fn database() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % selfsame_test_redis::DATABASES
}

/// Forgets everything in a database until it is dropped.
struct Flushing {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flushing {
    fn begin(database: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = is_over.clone();
        let thread = thread::spawn(move || {
            let mut redis = TcpStream::connect(("127.0.0.1", REDIS.port())).expect("it is there");
            let mut say = |command: &str| {
                redis.write_all(command.as_bytes()).expect("it listens");
                redis.read_exact(&mut [0; b"+OK\r\n".len()]).expect("it says OK");
            };
            say(&format!("SELECT {database}\r\n"));
            while !until.load(Ordering::Relaxed) {
                say("FLUSHDB\r\n");
                let pause = AttemptId::random().as_bytes()[0] % 8;
                thread::sleep(Duration::from_millis(pause.into()));
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Flushing {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// A bench behind a cache.
pub(crate) struct Tiered<B> {
    pub(crate) durable: B,
    pub(crate) cache: Cache,
    ahead_ms: Arc<AtomicU64>,
}

impl<B: Bench> Tiered<B> {
    pub(crate) fn new(durable: B, cache: fn() -> Cache) -> Self {
        Self { durable, cache: cache(), ahead_ms: Arc::default() }
    }

    /// A store of this bench, whose cache has this long for each call: nobody is in a hurry here.
    pub(crate) async fn store(&self) -> TieredStore {
        self.store_at(&self.cache.url, Duration::from_secs(5)).await
    }

    /// The same with another cache.
    pub(crate) async fn store_at(&self, url: &str, time_out: Duration) -> TieredStore {
        let options = TieredOptions::default().ahead_ms(self.ahead_ms.clone()).time_out(time_out);
        TieredStore::open(self.durable.open().await, url, options).await.expect("it opens")
    }
}

#[async_trait]
impl<B: Bench> Bench for Tiered<B> {
    async fn open(&self) -> Arc<dyn FullStore> {
        Arc::new(self.store().await)
    }

    fn is_durable(&self) -> bool {
        true
    }

    async fn pass(&self, time: Duration) {
        self.durable.pass(time).await;
        let millis = u64::try_from(time.as_millis()).expect("tests are short");
        self.ahead_ms.fetch_add(millis, Ordering::SeqCst);
    }
}

/// The lease of a key that must be free to run.
pub(crate) async fn run(store: &dyn FullStore, ask: &Ask) -> Lease {
    match store.claim(ask).await.expect("the store works") {
        Claimed::Run(grant) => grant.lease,
        other => panic!("the key must be free to run, not {other:?}"),
    }
}

/// Runs and completes `ask`.
pub(crate) async fn complete(store: &dyn FullStore, ask: &Ask) {
    let lease = run(store, ask).await;
    let recorded = store.complete(&lease, &answer("done")).await.expect("the store works");
    assert!(matches!(recorded, Recorded::Until(_)));
}
