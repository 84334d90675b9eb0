//! Erasure: no row holds anything of it any more, and a tombstone stays.

use selfsame_core::conformance::samples::{RETENTION, ask, checkpoint, remembered, retry};
use selfsame_core::{Claimed, Erased, Fenced, Inspect, Release, Store, Sweep};

use crate::support::{PostgresBench, complete};

async fn rows(bench: &PostgresBench, table: &str) -> i64 {
    let sql = format!("select count(*) from {}.{table}", bench.schema);
    bench.owner().await.query_one(&sql, &[]).await.expect("it can be read").get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_and_a_checkpoint_are_deleted_with_the_erasure() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    let (done, held, other) = (ask("done"), ask("held"), remembered("other"));
    complete(&store, &done).await;
    complete(&store, &other).await;
    let Ok(Claimed::Run(grant)) = store.claim(&held).await else { panic!("it is new") };
    let saved = store.checkpoint(&grant.lease, &checkpoint("paid")).await.expect("works");
    assert_eq!(saved, Fenced::Applied);
    let released = store.release(&grant.lease, Release::Hold).await.expect("works");
    assert_eq!(released, Fenced::Applied);
    assert_eq!((rows(&bench, "answers").await, rows(&bench, "checkpoints").await), (2, 1));

    let outcomes = store.erase(&[done.id, held.id]).await.expect("the store works");
    assert_eq!(outcomes, [Erased::Done, Erased::Done]);
    assert_eq!((rows(&bench, "answers").await, rows(&bench, "checkpoints").await), (1, 0));
    for first in [&done, &held] {
        assert_eq!(store.claim(&retry(first)).await.expect("works"), Claimed::Expired);
        // Its checksum fits.
        store.get(&first.id).await.expect("it is no damage").expect("a tombstone stays");
    }
    assert!(matches!(store.claim(&retry(&other)).await, Ok(Claimed::Replay(_))));

    selfsame_core::conformance::Bench::pass(&bench, RETENTION * 3).await;
    let swept = store.sweep(100).await.expect("the store works");
    assert_eq!((swept.removed, swept.buried), (2, 1), "{swept:?}");
}
