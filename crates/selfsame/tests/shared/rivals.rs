//! Stores of several processes, over the same records: exactly one of many rivals runs.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{
    LEASE, MARGIN, RETENTION, answer, ask, checkpoint, retry,
};
use selfsame_core::{
    Ask, Claimed, Fence, Fenced, Find, FullStore, Lease, Recorded, Recover, Release, Resolution,
    Resolved,
};

const KEYS: usize = 40;

/// Three processes of one bench.
pub(crate) struct Nodes<B> {
    bench: B,
    stores: [Arc<dyn FullStore>; 3],
}

impl<B: Bench> Nodes<B> {
    pub(crate) async fn start(bench: B) -> Self {
        let stores = [bench.open().await, bench.open().await, bench.open().await];
        Self { bench, stores }
    }

    /// Asks for each key on all nodes at the same time, several times on each, and returns the
    /// leases of the winners: one for each key.
    async fn race(&self, asks: &[Ask]) -> Vec<Lease> {
        let rivals = asks.iter().flat_map(|ask| {
            self.stores.iter().flat_map(move |store| {
                (0..3).map(move |_| async move {
                    (ask.id, store.claim(&retry(ask)).await.expect("the store works"))
                })
            })
        });
        let claimed = join_all(rivals).await;
        let won = |ask: &Ask| {
            let of_key = claimed.iter().filter(|(id, _)| *id == ask.id);
            let won: Vec<_> = of_key
                .filter_map(|(_, claimed)| match claimed {
                    Claimed::Run(grant) => Some(grant.lease),
                    Claimed::Busy { .. } => None,
                    other => panic!("a rival runs or is told to come back, not {other:?}"),
                })
                .collect();
            assert_eq!(won.len(), 1, "{:?}", ask.label.key);
            won[0]
        };
        asks.iter().map(won).collect()
    }
}

fn asks(name: &str) -> Vec<Ask> {
    (0..KEYS).map(|at| ask(&format!("{name}-{at}"))).collect()
}

pub(crate) async fn one_of_many_rivals_runs_through_all_of_a_keys_life(nodes: &Nodes<impl Bench>) {
    let asks = asks("k");
    let new = nodes.race(&asks).await;
    join_all(new.iter().map(|lease| nodes.stores[0].release(lease, Release::Retry))).await;

    let again = nodes.race(&asks).await;
    nodes.bench.pass(LEASE + MARGIN).await;
    let taken_over = nodes.race(&asks).await;
    for ((first, second), third) in new.iter().zip(&again).zip(&taken_over) {
        assert_eq!((first.fence.next(), second.fence.next()), (second.fence, third.fence));
    }
    // Whoever lost its claim loses against whoever has it, wherever both are.
    let ends = again.iter().zip(&taken_over).map(|(stale, mine)| async {
        let (stale, mine) = join(
            nodes.stores[1].complete(stale, &answer("stale")),
            nodes.stores[2].complete(mine, &answer("mine")),
        )
        .await;
        assert_eq!(stale.expect("the store works"), Recorded::Lost);
        assert!(matches!(mine.expect("the store works"), Recorded::Until(_)));
    });
    join_all(ends).await;

    nodes.bench.pass(RETENTION + MARGIN).await;
    for lease in nodes.race(&asks).await {
        assert_eq!(lease.fence, Fence::FIRST);
    }
}

pub(crate) async fn a_sweep_and_rivals_meet_at_the_end_of_a_keys_life(nodes: &Nodes<impl Bench>) {
    let asks = asks("k");
    for round in 0..3 {
        nodes.race(&asks).await;
        nodes.bench.pass(RETENTION + MARGIN).await;
        let sweeping =
            async { while !nodes.stores[0].sweep(7).await.expect("the store works").finished {} };
        let (leases, ()) = join(nodes.race(&asks), sweeping).await;
        for lease in leases {
            let done = nodes.stores[1].complete(&lease, &answer("done")).await;
            assert!(matches!(done, Ok(Recorded::Until(_))), "round {round}: {done:?}");
        }
        nodes.bench.pass(RETENTION + MARGIN).await;
    }
}

pub(crate) async fn a_checkpoint_and_a_hold_meet(nodes: &Nodes<impl Bench>) {
    let asks: Vec<_> =
        asks("k").into_iter().map(|ask| Ask { recover: Recover::Auto, ..ask }).collect();
    let leases = nodes.race(&asks).await;
    nodes.bench.pass(LEASE + MARGIN).await;
    // The owner comes late with a recovery point; a rival and a sweep see a key to be held.
    let meetings = asks.iter().zip(&leases).map(|(ask, lease)| async {
        let point = checkpoint("paid");
        let (saved, claimed) =
            join(nodes.stores[0].checkpoint(lease, &point), nodes.stores[1].claim(&retry(ask)))
                .await;
        let record = nodes.stores[2].get(&ask.id).await.expect("readable").expect("there");
        match claimed.expect("the store works") {
            Claimed::Run(grant) => {
                assert_eq!(grant.checkpoint, Some(point), "it goes on from there, or not at all");
                assert_eq!(record.fence, lease.fence.next());
            }
            Claimed::Held { .. } => {
                assert_eq!(saved.expect("the store works"), Fenced::Applied);
                assert_eq!(record.checkpoint, Some(point));
            }
            Claimed::Busy { .. } => {}
            other => panic!("{other:?}"),
        }
    });
    let sweeping = nodes.stores[2].sweep(1000);
    let (_, swept) = join(join_all(meetings), sweeping).await;
    swept.expect("the store works");
}

pub(crate) async fn one_of_many_decisions_counts(nodes: &Nodes<impl Bench>) {
    let asks = asks("k");
    for lease in nodes.race(&asks).await {
        let held = nodes.stores[0].release(&lease, Release::Hold).await;
        assert_eq!(held.expect("the store works"), Fenced::Applied);
    }
    let held = nodes.stores[1].find(&Find::Held, 100).await.expect("the store works");
    assert_eq!(held.len(), KEYS);
    for record in held {
        let decisions = nodes.stores.iter().flat_map(|store| {
            [Resolution::free(), Resolution::complete(answer("by hand"))].map(
                |decision| async move {
                    store.resolve(&record.id, record.fence, &decision).await.expect("it works")
                },
            )
        });
        let done = join_all(decisions).await;
        assert_eq!(done.iter().filter(|resolved| **resolved == Resolved::Done).count(), 1);
    }
}
