//! Expired records are removed without a gateway.

use std::sync::Arc;
use std::time::Duration;

use selfsame::stores::MemoryStore;
use selfsame::{Idempotency, Policy, Sweeping};
use selfsame_core::{FullStore, Secret};

use crate::support::{Rig, answer, post, send};

const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
const LONG: Duration = Duration::from_secs(10 * 60);

/// A rig with ten records that have expired.
async fn with_expired_records() -> Rig {
    let rig = Rig::new();
    let service = rig.service(Policy::new(), async |_| {
        Ok::<_, std::convert::Infallible>(answer(201, "charged"))
    });
    for number in 0..10 {
        assert_eq!(send(&service, post(&format!("key-{number}"))).await.status, 201);
    }
    rig.clock.pass(2 * RETENTION);
    rig
}

#[tokio::test(start_paused = true)]
async fn expired_records_are_removed_by_default() {
    let rig = with_expired_records().await;
    tokio::time::sleep(LONG).await;
    assert_eq!(rig.store.sweep(1000).await.expect("it works").removed, 0, "they are gone already");
}

#[tokio::test(start_paused = true)]
async fn sweeping_can_be_switched_off_and_on() {
    let mut rig = with_expired_records().await;
    rig.idempotency = rig.idempotency.sweeping(Sweeping::off());
    tokio::time::sleep(LONG).await;
    let swept = rig.store.sweep(3).await.expect("it works");
    assert_eq!(swept.removed, 3, "nobody has removed them");
    let _idempotency = rig.idempotency.sweeping(Sweeping::every(Duration::ZERO));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.store.sweep(1000).await.expect("it works").removed, 0);
}

#[tokio::test(start_paused = true)]
async fn sweeping_ends_with_the_last_idempotency_and_does_not_keep_the_store() {
    let store = Arc::new(MemoryStore::new());
    let idempotency = Idempotency::new(store.clone(), Secret::from_bytes(b"test"), None);
    let layer = idempotency.layer(Policy::new());
    drop(idempotency);
    tokio::time::sleep(LONG).await;
    assert!(Arc::strong_count(&store) > 1, "a layer still uses it");
    drop(layer);
    // The tasks hear of it when they run next.
    while Arc::strong_count(&store) > 1 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn outside_a_runtime_nothing_panics_and_sweeping_works() {
    let store: Arc<dyn FullStore> = Arc::new(MemoryStore::new());
    let idempotency = Idempotency::new(store.clone(), Secret::from_bytes(b"test"), None)
        .sweeping(Sweeping::every(Duration::from_secs(1)));
    drop(idempotency);
    while Arc::strong_count(&store) > 1 {
        std::thread::yield_now();
    }
}
