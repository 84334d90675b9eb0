//! Leases that are kept while their runs go on, whatever the handler or the store does meanwhile.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use selfsame::stores::MemoryStore;
use selfsame::{OnConflict, Policy, Recover, Served};
use selfsame_core::FullStore;
use selfsame_core::conformance::SettableClock;
use tokio::sync::Notify;
use tokio::time::sleep;
use tower::ServiceExt;

use crate::faulty::{Fault, Faulty, faulty_rig};
use crate::support::{Rig, Runs, answer, post, see, send};

/// A node on this store, whose time is real.
fn node(store: Arc<dyn FullStore>) -> Rig {
    Rig::on(store, Arc::new(SettableClock::new()))
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_renewal_is_tried_again_long_before_the_lease_ends() {
    let lease = Duration::from_secs(6);
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::new())));
    let (here, there) = (node(faulty.clone()), node(faulty.clone()));
    let wait_max = Duration::from_secs(60);
    let policy = || Policy::new().lease(lease).on_conflict(OnConflict::Wait).wait_max(wait_max);
    let (runs, counted, away) = (Runs::default(), Runs::default(), faulty.clone());
    let (count_here, count_there) = (runs.clone(), counted.clone());
    let first = here.service(policy(), move |_| {
        count_here.begin();
        let store = away.clone();
        async move {
            store.set(Fault::Down);
            // The third is due when the lease ends, if nothing is tried in between.
            until(|| store.failed_renewals() >= 5).await;
            store.set(Fault::None);
            until(|| store.renewals() >= 1).await;
            sleep(lease).await;
            Ok::<_, Infallible>(answer(201, "charged"))
        }
    });
    let rival = there.service(policy(), move |_| {
        count_there.begin();
        async { Ok::<_, Infallible>(answer(201, "charged again")) }
    });
    let rivals = async {
        until(|| faulty.failed_renewals() >= 5 && faulty.is_up()).await;
        send(&rival, post("k")).await
    };
    let (first, rival) = tokio::join!(send(&first, post("k")), rivals);
    assert_eq!((first.body.as_str(), rival.body.as_str()), ("charged", "charged"));
    assert_eq!((rival.served, runs.count(), counted.count()), (Served::Waited, 1, 0));
}

#[tokio::test]
async fn a_process_never_takes_over_or_holds_what_it_still_runs() {
    for recover in [Recover::Resume, Recover::Hold] {
        let (rig, runs, go_on) = (Rig::new(), Runs::default(), Arc::new(Notify::new()));
        let (counted, waits) = (runs.clone(), go_on.clone());
        let policy = Policy::new().recover(recover).on_conflict(OnConflict::Reject);
        let service = rig.service(policy, move |_| {
            counted.begin();
            let waits = waits.clone();
            async move {
                waits.notified().await;
                Ok::<_, Infallible>(answer(201, "charged"))
            }
        });
        let retries = async {
            until(|| runs.count() == 1).await;
            // By the store's clock the lease is over.
            rig.clock.pass(Duration::from_secs(60));
            let plain = send(&service, post("k")).await;
            let mut waits = post("k");
            waits.headers_mut().insert("prefer", "wait=1".parse().expect("a header"));
            let waited = send(&service, waits).await;
            go_on.notify_one();
            (plain.served, waited.served)
        };
        let (first, retries) = tokio::join!(send(&service, post("k")), retries);
        assert_eq!(retries, (Served::InProgress, Served::InProgress), "{recover:?}");
        assert_eq!((first.status, first.body.as_str(), runs.count()), (201, "charged", 1));
        let replay = send(&service, post("k")).await;
        assert_eq!((replay.replayed, replay.body.as_str()), (true, "charged"));
    }
}

#[tokio::test]
async fn a_run_goes_on_under_the_claim_of_a_retry_that_was_on_its_way_before_it_began() {
    for on_conflict in [OnConflict::Reject, OnConflict::Wait] {
        let (rig, faulty) = faulty_rig();
        let (runs, go_on) = (Runs::default(), Arc::new(Notify::new()));
        let (counted, waits) = (runs.clone(), go_on.clone());
        let policy = Policy::new().recover(Recover::Resume).on_conflict(on_conflict);
        let service = rig.service(policy, move |_| {
            counted.begin();
            let waits = waits.clone();
            async move {
                waits.notified().await;
                Ok::<_, Infallible>(answer(201, "charged"))
            }
        });
        faulty.set(Fault::Delayed);
        let first = async {
            until(|| faulty.is_up()).await;
            send(&service, post("k")).await
        };
        let store = async {
            until(|| runs.count() == 1).await;
            // By the store's clock the lease is over.
            rig.clock.pass(Duration::from_secs(60));
            faulty.let_through();
            // The retry has asked again by now, if it waits.
            until(|| faulty.renewals() >= 1).await;
            sleep(Duration::from_millis(200)).await;
            go_on.notify_one();
        };
        let (late, first, ()) = tokio::join!(send(&service, post("k")), first, store);
        let expected = match on_conflict {
            OnConflict::Wait => Served::Waited,
            _ => Served::InProgress,
        };
        assert_eq!((late.served, runs.count()), (expected, 1));
        assert_eq!((first.status, first.body.as_str()), (201, "charged"));
        let replay = send(&service, post("k")).await;
        assert_eq!((replay.replayed, replay.body.as_str(), runs.count()), (true, "charged", 1));
    }
}

#[tokio::test]
async fn another_request_under_the_key_of_a_run_is_told_so() {
    let (rig, runs, go_on) = (Rig::new(), Runs::default(), Arc::new(Notify::new()));
    let (counted, waits) = (runs.clone(), go_on.clone());
    let service = rig.service(Policy::new(), move |_| {
        counted.begin();
        let waits = waits.clone();
        async move {
            waits.notified().await;
            Ok::<_, Infallible>(answer(201, "charged"))
        }
    });
    let other = async {
        until(|| runs.count() == 1).await;
        rig.clock.pass(Duration::from_secs(60));
        let other = http::Request::post("/charges").header("idempotency-key", "k");
        let other = other.body(http_body_util::Full::from(r#"{"amount":11}"#)).expect("a request");
        let refused = send(&service, other).await;
        go_on.notify_one();
        refused.status
    };
    let (_, status) = tokio::join!(send(&service, post("k")), other);
    assert_eq!((status, runs.count()), (422, 1));
}

#[test]
fn a_handler_that_blocks_its_thread_keeps_its_lease() {
    let lease = Duration::from_secs(3);
    let store: Arc<dyn FullStore> = Arc::new(MemoryStore::new());
    let (runs, counted, shared) = (Runs::default(), Runs::default(), store.clone());
    let begun = runs.clone();
    let blocked = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let service = node(shared).service(Policy::new().lease(lease), move |_| {
                begun.begin();
                async move {
                    thread::sleep(lease * 3);
                    Ok::<_, Infallible>(answer(201, "charged"))
                }
            });
            send(&service, post("k")).await.body
        })
    });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let served = runtime.block_on(async {
        let count = counted.clone();
        let rival = node(store).service(Policy::new().lease(lease), move |_| {
            count.begin();
            async { Ok::<_, Infallible>(answer(201, "charged again")) }
        });
        until(|| runs.count() == 1).await;
        loop {
            let seen = send(&rival, post("k")).await;
            if seen.served != Served::InProgress {
                break seen.served;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!((served, counted.count()), (Served::Replayed, 0));
    assert_eq!(blocked.join().expect("it does not panic"), "charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_a_run_lasts_until_its_answer_has_landed() {
    let lease = Duration::from_secs(3);
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::new())));
    let (here, there) = (node(faulty.clone()), node(faulty.clone()));
    let service = here.service(Policy::new().lease(lease), |_| async {
        Ok::<_, Infallible>(answer(201, "charged"))
    });
    let rival = there.service(Policy::new().lease(lease), |_| async {
        Ok::<_, Infallible>(answer(201, "charged again"))
    });
    faulty.set(Fault::RecordsNothing);
    let first = service.clone().oneshot(post("k")).await.expect("no error");
    assert_eq!(see(first).await.body, "charged");
    // Three leases long, and the store can be asked all the time.
    let renewed = faulty.renewals();
    while faulty.renewals() < renewed + 9 {
        assert_eq!(send(&rival, post("k")).await.served, Served::InProgress);
        sleep(Duration::from_millis(20)).await;
    }
    faulty.set(Fault::None);
    let landed = loop {
        let seen = send(&rival, post("k")).await;
        if seen.served != Served::InProgress {
            break seen;
        }
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((landed.served, landed.body.as_str()), (Served::Replayed, "charged"));
    assert_eq!(send(&service, post("k")).await.body, "charged");
}
