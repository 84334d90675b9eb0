//! A store that is down, or whose word was lost.

use std::convert::Infallible;
use std::time::Duration;

use selfsame::{Idempotency, OnStoreError, Policy, Served, Spool};
use selfsame_core::Secret;
use tokio::time::sleep;
use tower::ServiceExt;

use crate::faulty::{Fault, faulty_rig};
use crate::support::{Rig, Runs, answer, post, send};

#[tokio::test]
async fn while_the_store_is_down_nothing_runs() {
    let ((rig, faulty), runs) = (faulty_rig(), Runs::default());
    let counted = runs.clone();
    let service = rig.service(Policy::new(), move |_| {
        counted.begin();
        async { Ok::<_, Infallible>(answer(201, "charged")) }
    });
    faulty.set(Fault::Down);
    let refused = send(&service, post("k")).await;
    assert_eq!((refused.status, refused.served, runs.count()), (503, Served::StoreError, 0));
    faulty.set(Fault::None);
    assert_eq!(send(&service, post("k")).await.served, Served::Executed);
}

#[tokio::test]
async fn a_route_that_bypasses_runs_unprotected_and_says_so() {
    let (rig, faulty) = faulty_rig();
    let policy = Policy::new().on_store_error(OnStoreError::Bypass);
    let service = rig.service(policy, |_| async { Ok::<_, Infallible>(answer(201, "charged")) });
    faulty.set(Fault::Down);
    let response = service.clone().oneshot(post("k")).await.expect("no error");
    assert_eq!(response.headers()["selfsame-protected"], "false");
    assert_eq!(response.extensions().get(), Some(&Served::Bypassed));
}

#[tokio::test]
async fn a_lost_acknowledgement_of_our_own_claim_is_recognised() {
    let ((rig, faulty), runs) = (faulty_rig(), Runs::default());
    let counted = runs.clone();
    let service = rig.service(Policy::new(), move |_| {
        counted.begin();
        async { Ok::<_, Infallible>(answer(201, "charged")) }
    });
    faulty.set(Fault::AcknowledgementLost);
    let first = send(&service, post("k")).await;
    assert_eq!((first.status, first.served, runs.count()), (201, Served::Executed, 1));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_landed_unheard_is_given_back_when_the_store_is_up_again() {
    let (rig, faulty) = faulty_rig();
    let service =
        rig.service(Policy::new(), |_| async { Ok::<_, Infallible>(answer(201, "charged")) });
    faulty.set(Fault::GoesDown);
    assert_eq!(send(&service, post("k")).await.served, Served::StoreError);
    sleep(Duration::from_secs(12)).await;
    faulty.set(Fault::None);
    // By the store's clock no time has passed: its lease is not over.
    assert_eq!(send(&service, post("k")).await.served, Served::Executed);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_after_the_work_does_not_take_the_answer() {
    let ((rig, faulty), runs) = (faulty_rig(), Runs::default());
    let (counted, breaks) = (runs.clone(), faulty.clone());
    let service = rig.service(Policy::new(), move |_| {
        counted.begin();
        breaks.set(Fault::Down);
        async { Ok::<_, Infallible>(answer(201, "charged")) }
    });
    let first = send(&service, post("k")).await;
    assert_eq!((first.status, first.body.as_str()), (201, "charged"));

    faulty.set(Fault::None);
    // The write is tried on in the background.
    let retry = loop {
        let retry = send(&service, post("k")).await;
        if retry.served != Served::InProgress {
            break retry;
        }
        sleep(Duration::from_millis(10)).await;
    };
    assert!(retry.replayed);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn what_was_spooled_lands_in_the_next_process() {
    let (rig, faulty) = faulty_rig();
    let folder = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(folder.path().join("spool"));
    let open =
        || Idempotency::new(rig.store.clone(), Secret::from_bytes(b"test"), Some(spool.clone()));
    let runs = Runs::default();

    let first = Rig { idempotency: open(), store: rig.store.clone(), clock: rig.clock.clone() };
    let (counted, breaks) = (runs.clone(), faulty.clone());
    let service = first.service(Policy::new(), move |_| {
        counted.begin();
        breaks.set(Fault::Down);
        async { Ok::<_, Infallible>(answer(201, "charged")) }
    });
    assert_eq!(send(&service, post("k")).await.status, 201);
    assert_eq!(spool.waiting().expect("readable").len(), 1);

    // A new engine, as after a restart; its predecessor's tries are not what lands it.
    faulty.set(Fault::None);
    let next = Rig { idempotency: open(), store: rig.store.clone(), clock: rig.clock.clone() };
    next.idempotency.land_spooled().await;
    assert_eq!(spool.waiting().expect("readable").len(), 0);
    let service =
        next.service(Policy::new(), |_| async { Ok::<_, Infallible>(answer(500, "ran")) });
    let retry = send(&service, post("k")).await;
    assert_eq!((retry.replayed, retry.body.as_str(), runs.count()), (true, "charged", 1));
}

#[tokio::test]
async fn what_could_not_be_spooled_is_spooled_once_that_works() {
    for status in [201, 503] {
        let (rig, faulty) = faulty_rig();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("spool");
        let spool = Spool::new(&path);
        let secret = Secret::from_bytes(b"test");
        let idempotency = Idempotency::new(rig.store.clone(), secret, Some(spool.clone()));
        let first = Rig { idempotency, ..rig };
        // Store and spool fail together, as they do where both are on one disk.
        std::fs::write(&path, "no folder").expect("the folder is there");
        let service = first.service(Policy::new(), move |_| {
            faulty.set(Fault::Down);
            async move { Ok::<_, Infallible>(answer(status, "answered")) }
        });
        assert_eq!(send(&service, post("k")).await.status, status);
        std::fs::remove_file(&path).expect("it is there");
        let is_spooled = async {
            while !path.exists() || spool.waiting().expect("readable").is_empty() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(60), is_spooled).await;
        assert!(in_time.is_ok(), "it is in the spool of the next process");
    }
}
