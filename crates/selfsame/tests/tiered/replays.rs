//! What the cache answers, and for how long.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use selfsame::seal::{Keyring, Seal};
use selfsame::stores::{MemoryStore, SealedStore, TieredOptions, TieredStore};
use selfsame::{Idempotency, Policy, RequestBody, Run};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{LEASE, MARGIN, answer, ask, mismatch, retry};
use selfsame_core::{Ask, Claimed, Recover, Release, Secret, Store};
use selfsame_test_redis::Server;
use tokio::time::sleep;
use tower::{Layer, ServiceExt};

use crate::in_a_folder::EmbeddedBench;
use crate::postgres::{PostgresBench, USER, session_of};
use crate::support::{Tiered, away, cache, complete, run, there};

/// How long an entry may count.
const LIFE_MAX: Duration = Duration::from_secs(600);

/// What the entries of all benches here are told from others by.
const SECRET: [u8; 32] = [7; 32];

/// The key of the entry about `ask`.
fn key(ask: &Ask) -> String {
    let name = Secret::from_bytes(&SECRET).tag("cache name", &[]);
    let name: String = name[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("selfsame:{{0}}:cache:{name}:{}", ask.id)
}

/// A bench, a Redis of its own, a store, and another store behind the same cache that knows no record: what
/// it says, the cache has said.
struct Pair {
    bench: Tiered<EmbeddedBench>,
    redis: Server,
    knowing: TieredStore,
    ignorant: TieredStore,
    other: Tiered<EmbeddedBench>,
}

impl Pair {
    async fn open() -> Self {
        let redis = cache();
        let (bench, other) = (tier(), tier());
        let knowing = named(&bench, &redis).await;
        let ignorant = named(&other, &redis).await;
        Self { bench, redis, knowing, ignorant, other }
    }

    async fn pass(&self, time: Duration) {
        self.bench.pass(time).await;
        self.other.pass(time).await;
    }

    /// Waits for what is put there beside the call.
    async fn until_cached(&self, ask: &Ask) {
        while self.redis.command(0, &["exists", &key(ask)]) != "1" {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

fn tier() -> Tiered<EmbeddedBench> {
    Tiered::new(EmbeddedBench::new(), away)
}

async fn named<B: Bench>(bench: &Tiered<B>, redis: &Server) -> TieredStore {
    let durable = bench.durable.open().await;
    durable.set_fact("cache", &SECRET).await.expect("the store works");
    drop(durable);
    bench.store_at(&redis.url(0), Duration::from_secs(5)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_replayed_by_the_cache_alone() {
    let pair = Pair::open().await;
    let first = ask("k");
    complete(&pair.knowing, &first).await;
    let known = pair.knowing.get(&first.id).await.expect("it works").expect("it is there");
    let replay = pair.ignorant.claim(&retry(&first)).await.expect("it works");
    let Claimed::Replay(replay) = replay else { panic!("{replay:?}") };
    assert_eq!((replay.answer, replay.expires_at), (answer("done"), known.expires_at));
    let reused = pair.ignorant.claim(&mismatch(&first)).await.expect("it works");
    assert_eq!(reused, Claimed::Reused);
    pair.pass(LIFE_MAX - MARGIN).await;
    let replay = pair.ignorant.claim(&retry(&first)).await.expect("it works");
    assert!(matches!(replay, Claimed::Replay(_)), "{replay:?}");
    // It is still there by Redis' clock, and no more by the one that counts.
    pair.pass(MARGIN * 2).await;
    run(&pair.ignorant, &retry(&first)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_does_not_outlive_the_key() {
    let pair = Pair::open().await;
    let first = Ask { retention: Duration::from_secs(120), ..ask("k") };
    complete(&pair.knowing, &first).await;
    let left: u64 = pair.redis.command(0, &["pttl", &key(&first)]).parse().expect("a number");
    assert!((100_000..=120_000).contains(&left), "{left}");
    pair.pass(Duration::from_secs(120) + MARGIN).await;
    run(&pair.ignorant, &retry(&first)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_tells_that_somebody_runs_until_that_has_ended() {
    let pair = Pair::open().await;
    let first = ask("k");
    let lease = run(&pair.knowing, &first).await;
    pair.until_cached(&first).await;
    let left: u64 = pair.redis.command(0, &["pttl", &key(&first)]).parse().expect("a number");
    assert!(Duration::from_millis(left) <= LEASE, "{left}");
    let busy = pair.ignorant.claim(&retry(&first)).await.expect("it works");
    let Claimed::Busy { lease_left } = busy else { panic!("{busy:?}") };
    assert!(lease_left > LEASE - MARGIN && lease_left < LEASE + MARGIN, "{lease_left:?}");
    let _freed = pair.knowing.release(&lease, Release::Retry).await.expect("it works");
    run(&pair.ignorant, &retry(&first)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_record_can_tell_is_not_told_by_the_cache() {
    let pair = Pair::open().await;
    let (mine, others, dead) = (ask("mine"), ask("others"), ask("dead"));
    for ask in [&mine, &others, &dead] {
        run(&pair.knowing, ask).await;
        pair.until_cached(ask).await;
    }
    // Its own claim, asked for again; and another request, whose key may have been forgotten.
    run(&pair.ignorant, &mine).await;
    run(&pair.ignorant, &mismatch(&others)).await;
    pair.pass(LEASE + MARGIN).await;
    run(&pair.ignorant, &retry(&dead)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_lease_is_told_too() {
    let pair = Pair::open().await;
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    let lease = run(&pair.knowing, &first).await;
    pair.until_cached(&first).await;
    pair.pass(LEASE - MARGIN).await;
    let hash = || {
        let script = "return redis.sha1hex(redis.call('get', KEYS[1]) or '')";
        pair.redis.command(0, &["eval", script, "1", &key(&first)])
    };
    let before = hash();
    let _renewed = pair.knowing.renew(&lease).await.expect("it works");
    // It is put there beside the call.
    while hash() == before {
        sleep(Duration::from_millis(5)).await;
    }
    pair.pass(MARGIN * 2).await;
    let busy = pair.ignorant.claim(&retry(&first)).await.expect("it works");
    assert!(matches!(busy, Claimed::Busy { .. }), "{busy:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cache_forgot_it_learns_by_a_replay() {
    let pair = Pair::open().await;
    let first = ask("k");
    complete(&pair.knowing, &first).await;
    pair.redis.command(0, &["flushall"]);
    let replay = pair.knowing.claim(&retry(&first)).await.expect("it works");
    assert!(matches!(replay, Claimed::Replay(_)), "{replay:?}");
    pair.until_cached(&first).await;
    let replay = pair.ignorant.claim(&retry(&first)).await.expect("it works");
    assert!(matches!(replay, Claimed::Replay(_)), "{replay:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_not_there() {
    let pair = Pair::open().await;
    let hit = |ask: &Ask, at: i32| {
        let script = "local at = tonumber(ARGV[1])
            if at < 0 then at = redis.call('strlen', KEYS[1]) + at end
            local byte = string.byte(redis.call('getrange', KEYS[1], at, at))
            return redis.call('setrange', KEYS[1], at, string.char(bit.bxor(byte, 4)))";
        pair.redis.command(0, &["eval", script, "1", &key(ask), &at.to_string()]);
    };
    for at in [0, 2, 3, 11, 15, 25, 40, 70, 85, -20, -1] {
        let (one, other) = (ask(&format!("one{at}")), ask(&format!("other{at}")));
        for ask in [&one, &other] {
            complete(&pair.knowing, ask).await;
            hit(ask, at);
        }
        let replay = pair.knowing.claim(&retry(&one)).await.expect("it works");
        assert!(matches!(replay, Claimed::Replay(_)), "{at}: {replay:?}");
        run(&pair.ignorant, &retry(&other)).await;
    }
    let (first, copied) = (ask("k"), ask("copied"));
    complete(&pair.knowing, &first).await;
    pair.redis.command(0, &["copy", &key(&first), &key(&copied)]);
    run(&pair.ignorant, &copied).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_made_anew_knows_nothing_of_what_another_answered() {
    let (first, url) = (ask("k"), there().url);
    let open = async || {
        let store = Arc::new(MemoryStore::new());
        TieredStore::open(store, &url, TieredOptions::default()).await.expect("it opens")
    };
    complete(&open().await, &first).await;
    run(&open().await, &retry(&first)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sealed_is_sealed_in_the_cache() {
    let pair = Pair::open().await;
    let keys = "a AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let seal = || Seal::new(Keyring::parse(keys).expect("valid"));
    let sealed = SealedStore::new(Arc::new(pair.knowing), seal());
    let ignorant = SealedStore::new(Arc::new(pair.ignorant), seal());
    let first = ask("k");
    let lease = run(&sealed, &first).await;
    let body = "nobody may read this";
    let _recorded = sealed.complete(&lease, &answer(body)).await.expect("it works");
    let value = pair.redis.command(0, &["get", &key(&first)]);
    assert!(value.starts_with("SC") && !value.contains("nobody"), "{value}");
    let replay = ignorant.claim(&retry(&first)).await.expect("it works");
    let Claimed::Replay(replay) = replay else { panic!("{replay:?}") };
    assert_eq!(replay.answer, answer(body));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_committed_with_a_service_s_rows_ends_its_run_in_the_cache() {
    let bench = Tiered::new(PostgresBench::new(), away);
    let redis = Arc::new(cache());
    let store = named(&bench, &redis).await;
    let idempotency = Idempotency::open(Arc::new(store)).await.expect("the store works");
    let server = redis.clone();
    let service = tower::service_fn(move |mut request: Request<RequestBody<_>>| {
        let server = server.clone();
        async move {
            let run: Run = request.extensions_mut().remove().expect("it has a key");
            let phases = run.phases().await.expect("the database has a journal");
            while server.command(0, &["keys", "selfsame:{0}:cache:*"]).is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
            let mut db = session_of(USER).await;
            let tx = db.transaction().await.expect("it begins");
            let answer = Response::new(Full::<Bytes>::from("booked"));
            let answer = phases.finish_with(tx, answer).await.expect("it commits");
            Ok::<_, Infallible>(answer)
        }
    });
    let service = idempotency.layer(Policy::new()).layer(service);
    for replayed in [false, true] {
        let request = Request::post("/rides").header("idempotency-key", "k");
        let request = request.body(Full::<Bytes>::default()).expect("a request");
        let response = service.clone().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
        let body = response.into_body().collect().await.expect("whole").to_bytes();
        assert_eq!(body, "booked");
    }
}
