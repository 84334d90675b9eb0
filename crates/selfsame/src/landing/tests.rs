use std::time::Duration;

use selfsame_core::conformance::SettableClock;
use selfsame_core::conformance::samples::{ask, retry};
use selfsame_core::{Ask, Claimed, Recover, State};

use super::*;
use crate::stores::MemoryStore;

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_used_is_given_back_also_after_its_lease() {
    let clock = Arc::new(SettableClock::new());
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let landing = Landing::new(store.clone(), None, Seal::none(), Waiters::new(None));
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    let Ok(Claimed::Run(grant)) = store.claim(&first).await else { panic!("a new key runs") };
    clock.pass(grant.lease.length * 2);
    let held = store.claim(&retry(&first)).await.expect("it works");
    assert_eq!(held, Claimed::Held { newly: true });
    landing.give_back(grant.lease, Sent::Once);
    while store.get(&first.id).await.expect("it works").map(|record| record.state)
        != Some(State::Failed)
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!landing.is_any_waiting());
}

#[tokio::test]
async fn too_much_is_known_when_it_waits_and_is_over_when_it_is_made() {
    let store = Arc::new(MemoryStore::new());
    let landing = Landing::new(store, None, Seal::none(), Waiters::new(None));
    let owed: Vec<_> = (0..64 * 1024)
        .map(|_| Owed::unheard(RecordId::from_bytes([1; RecordId::LEN]), AttemptId::random()))
        .collect();
    for (at, owed) in owed.iter().enumerate() {
        assert!(!landing.is_full(), "{at}");
        landing.queue.add(owed.clone());
    }
    assert!(landing.is_full());
    // The store has said that there is no such claim: that is no reason to refuse others.
    landing.queue.missed(&owed[0]);
    assert!(!landing.is_full() && landing.is_any_waiting());
}
