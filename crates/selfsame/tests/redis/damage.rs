//! A record that changed by itself is neither served nor run again.

use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Claimed, Find, Inspect, Store, StoreErrorKind, Sweep};

use crate::support::{RedisBench, complete, key, run};

/// Where a record's frame begins.
const HEAD_LEN: usize = 112;

/// Changes the byte at `at`, counted from the end where it is negative.
fn hit(bench: &RedisBench, key: &str, at: isize) {
    let script = "local at = tonumber(ARGV[1])
        if at < 0 then at = redis.call('strlen', KEYS[1]) + at end
        local byte = string.byte(redis.call('getrange', KEYS[1], at, at))
        return redis.call('setrange', KEYS[1], at, string.char(bit.bxor(byte, 4)))";
    bench.command(&["eval", script, "1", key, &at.to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_byte_is_noticed_wherever_it_is() {
    let head = HEAD_LEN.cast_signed();
    for at in (0..head).chain([head + 3, head + 40, head + 200, -1, -20]) {
        let bench = RedisBench::new();
        let store = bench.store().await;
        let (bad, other) = (ask("bad"), ask("other"));
        complete(&store, &bad).await;
        hit(&bench, &key(&bad), at);
        complete(&store, &other).await;
        let error = store.claim(&retry(&bad)).await.expect_err("it is damaged");
        assert_eq!(error.kind(), StoreErrorKind::Damaged, "{at}");
        assert!(store.get(&bad.id).await.expect_err("it is damaged").is_damaged());
        let found = store.find(&Find::IdPrefix(String::new()), 10).await.expect("others are found");
        assert_eq!(found.iter().map(|record| record.id).collect::<Vec<_>>(), [other.id]);
        store.sweep(10).await.expect("it stops no sweep");
        store.count().await.expect("nor a count");
        let replay = store.claim(&retry(&other)).await.expect("it stops no other key");
        assert!(matches!(replay, Claimed::Replay(_)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cut_off_or_is_something_else_is_noticed() {
    let bench = RedisBench::new();
    let store = bench.store().await;
    let bad = ask("bad");
    for value in ["", "x", &"SR".repeat(60)] {
        bench.command(&["set", &key(&bad), value]);
        let error = store.claim(&retry(&bad)).await.expect_err("it is no record");
        assert!(error.is_damaged(), "{value}: {error}");
    }
    bench.command(&["del", &key(&bad)]);
    complete(&store, &bad).await;
    let whole = bench.command(&["strlen", &key(&bad)]);
    for kept in [10, HEAD_LEN, HEAD_LEN + 50] {
        let script = "local v = redis.call('getrange', KEYS[1], 0, ARGV[1] - 1)
            redis.call('set', KEYS[2], v)";
        let copy = ask(&format!("copy-{kept}"));
        let keys = [key(&bad), key(&copy)];
        bench.command(&["eval", script, "2", &keys[0], &keys[1], &kept.to_string()]);
        assert!(store.claim(&copy).await.expect_err("it is cut off").is_damaged(), "{kept}");
    }
    // A whole record under another's key is not that key's.
    let copy = ask("copy");
    bench.command(&["copy", &key(&bad), &key(&copy)]);
    assert_eq!(bench.command(&["strlen", &key(&copy)]), whole);
    assert!(store.claim(&copy).await.expect_err("it is another's").is_damaged());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_does_not_mend_what_was_damaged() {
    let head = HEAD_LEN.cast_signed();
    for at in [5, 30, head - 12, head - 2, head + 20] {
        let bench = RedisBench::new();
        let (first, second) = (bench.store().await, bench.store().await);
        let bad = ask("bad");
        let lease = run(&first, &bad).await;
        hit(&bench, &key(&bad), at);
        // The one that did not claim it goes by what it reads; the other one by what it wrote, if that is there.
        let error = second.complete(&lease, &answer("done")).await.expect_err("it is damaged");
        assert!(error.is_damaged(), "{at}: {error}");
        let recorded = first.complete(&lease, &answer("done")).await;
        assert_eq!(recorded.is_err(), at < head, "{at}: {recorded:?}");
        match first.claim(&retry(&bad)).await {
            Err(error) => assert!(at < head && error.is_damaged(), "{at}: {error}"),
            // It was replaced as a whole by one that knew it as a whole.
            Ok(claimed) => assert!(matches!(claimed, Claimed::Replay(_)), "{at}: {claimed:?}"),
        }
    }
}
