//! Finished records near the process that asks for them: what it need not ask for again, and for how long.

use std::sync::Arc;
use std::time::Duration;

use selfsame::stores::{MemoryStore, NearStore};
use selfsame_core::conformance::{SettableClock, samples};
use selfsame_core::{Ask, Claimed, Erased, Inspect, Recorded, Store};

const BYTES_MAX: usize = 1024 * 1024;
const SECOND: Duration = Duration::from_secs(1);

/// A store that many nodes share, and one of the nodes.
struct Shared {
    far: Arc<MemoryStore>,
    far_clock: Arc<SettableClock>,
    node: NearStore,
    node_clock: Arc<SettableClock>,
}

impl Shared {
    /// The clock of the store is hours ahead of the node's.
    fn new() -> Self {
        let (far_clock, node_clock) = (Arc::<SettableClock>::default(), Arc::default());
        far_clock.pass(Duration::from_secs(7 * 60 * 60));
        let far = Arc::new(MemoryStore::with_clock(far_clock.clone()));
        let node = NearStore::with_clock(far.clone(), BYTES_MAX, Arc::clone(&node_clock) as _);
        Self { far, far_clock, node, node_clock }
    }

    fn pass(&self, time: Duration) {
        self.far_clock.pass(time);
        self.node_clock.pass(time);
    }

    /// A key that was completed elsewhere, and replayed by this node.
    async fn replayed(&self, key: &str) -> Ask {
        let ask = samples::ask(key);
        let Ok(Claimed::Run(grant)) = self.far.claim(&ask).await else { panic!("{key} is new") };
        let recorded = self.far.complete(&grant.lease, &samples::answer("done")).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))));
        assert!(matches!(self.ask(&ask).await, Claimed::Replay(_)));
        ask
    }

    async fn ask(&self, ask: &Ask) -> Claimed {
        self.node.claim(&samples::retry(ask)).await.expect("the store is there")
    }
}

#[tokio::test]
async fn what_was_replayed_is_replayed_again_without_the_store() {
    let shared = Shared::new();
    let ask = shared.replayed("k").await;
    // As if it had never been there.
    shared.far_clock.pass(samples::RETENTION);
    let Claimed::Replay(again) = shared.ask(&ask).await else { panic!("it is near") };
    assert_eq!(again.answer, samples::answer("done"));
    assert_eq!(shared.node.answered(&samples::retry(&ask)), Some(*again));
}

#[tokio::test]
async fn another_request_under_its_key_is_refused() {
    let shared = Shared::new();
    let ask = shared.replayed("k").await;
    let another = samples::mismatch(&ask);
    assert!(shared.node.answered(&another).is_none());
    assert_eq!(shared.ask(&another).await, Claimed::Reused);
}

#[tokio::test]
async fn what_another_node_erased_is_gone_when_it_is_not_trusted_any_more() {
    let shared = Shared::new();
    let ask = shared.replayed("k").await;
    assert_eq!(shared.far.erase(&[ask.id]).await.expect("it is there"), [Erased::Done]);
    shared.pass(NearStore::TRUSTED_FOR - SECOND);
    assert!(matches!(shared.ask(&ask).await, Claimed::Replay(_)), "being asked for keeps nothing");
    shared.pass(SECOND);
    assert!(shared.node.answered(&ask).is_none());
    assert_eq!(shared.ask(&ask).await, Claimed::Expired);
}

#[tokio::test]
async fn what_this_node_erased_is_gone_at_once() {
    let shared = Shared::new();
    let ask = shared.replayed("k").await;
    assert_eq!(shared.node.erase(&[ask.id]).await.expect("it is there"), [Erased::Done]);
    assert_eq!(shared.ask(&ask).await, Claimed::Expired);
}

#[tokio::test]
async fn what_expires_is_new_by_the_clock_of_the_store() {
    let shared = Shared::new();
    let ask = shared.replayed("k").await;
    shared.pass(samples::RETENTION - 2 * SECOND);
    assert!(matches!(shared.ask(&ask).await, Claimed::Replay(_)));
    shared.pass(SECOND);
    assert!(shared.node.answered(&ask).is_some());
    shared.pass(SECOND);
    assert!(shared.node.answered(&ask).is_none());
    assert!(matches!(shared.ask(&ask).await, Claimed::Run(_)));
}

#[tokio::test]
async fn a_key_that_runs_is_never_answered_here() {
    let shared = Shared::new();
    let ask = samples::ask("k");
    assert!(matches!(shared.ask(&ask).await, Claimed::Run(_)));
    assert!(shared.node.answered(&ask).is_none());
    assert!(matches!(shared.ask(&ask).await, Claimed::Busy { .. }));
}
