//! Requests that would rather wait for the run of their key than be refused.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::{HeaderValue, Request};
use selfsame::{OnConflict, Policy, Recover, Served};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::support::{Body, Rig, Runs, answer, post, see, send};

const RUN_TAKES: Duration = Duration::from_secs(3);

fn preferring(wait: &'static str) -> Request<Body> {
    let mut request = post("k");
    request.headers_mut().insert("prefer", HeaderValue::from_static(wait));
    request
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_get_the_one_answer() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let counted = runs.clone();
    let service = rig.service(Policy::new().on_conflict(OnConflict::Wait), move |_| {
        let number = counted.begin();
        async move {
            sleep(RUN_TAKES).await;
            Ok::<_, Infallible>(answer(201, format!("charge {number}")))
        }
    });
    let begun = Instant::now();
    let seen = join_all((0..200).map(|_| send(&service, post("k")))).await;

    assert!(begun.elapsed() < RUN_TAKES + Duration::from_millis(100));
    assert!(seen.iter().all(|seen| (seen.status, seen.body.as_str()) == (201, "charge 1")));
    let waited = seen.iter().filter(|seen| seen.served == Served::Waited && seen.replayed).count();
    assert_eq!((waited, runs.count()), (199, 1));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_longer_than_the_route_allows() {
    let rig = Rig::new();
    let policy = Policy::new().on_conflict(OnConflict::Wait).wait_max(Duration::from_secs(2));
    let service = rig.service(policy, |_| async {
        sleep(RUN_TAKES).await;
        Ok::<_, Infallible>(answer(201, "charged"))
    });
    let begun = Instant::now();
    let waits = async {
        let refused = send(&service, post("k")).await;
        (refused.status, refused.served, begun.elapsed())
    };
    let (first, second) = tokio::join!(send(&service, post("k")), waits);
    assert_eq!(first.status, 201);
    assert_eq!((second.0, second.1), (409, Served::InProgress));
    assert!(second.2 >= Duration::from_secs(2) && second.2 < RUN_TAKES);
}

#[tokio::test(start_paused = true)]
async fn a_client_may_ask_to_wait_and_is_told_for_how_long() {
    let rig = Rig::new();
    let policy = Policy::new().wait_max(Duration::from_secs(5));
    let service = rig.service(policy, |_| async {
        sleep(RUN_TAKES).await;
        Ok::<_, Infallible>(answer(201, "charged"))
    });
    let ask = |wait| service.clone().oneshot(preferring(wait));
    let (first, impatient, patient, greedy) =
        tokio::join!(send(&service, post("k")), ask("wait=1"), ask("wait=4"), ask("wait=600"));
    assert_eq!(first.served, Served::Executed);
    let impatient = impatient.expect("no error");
    assert_eq!(
        (impatient.status().as_u16(), &impatient.headers()["preference-applied"]),
        (409, &HeaderValue::from_static("wait=1"))
    );
    for (waited, applied) in [(patient, "wait=4"), (greedy, "wait=5")] {
        let waited = waited.expect("no error");
        assert_eq!(waited.headers()["preference-applied"], applied);
        assert_eq!(see(waited).await.served, Served::Waited);
    }
    // Where nothing had to be waited for, no preference was applied.
    let replay = ask("wait=4").await.expect("no error");
    assert!(!replay.headers().contains_key("preference-applied"));
}

#[tokio::test(start_paused = true)]
async fn a_client_in_a_hurry_does_not_wait_even_where_the_route_would() {
    let rig = Rig::new();
    let service = rig.service(Policy::new().on_conflict(OnConflict::Wait), |_| async {
        sleep(RUN_TAKES).await;
        Ok::<_, Infallible>(answer(201, "charged"))
    });
    let begun = Instant::now();
    let hurries = async {
        let refused = service.clone().oneshot(preferring("wait=0")).await.expect("no error");
        (refused.status().as_u16(), begun.elapsed())
    };
    let (_, (status, took)) = tokio::join!(send(&service, post("k")), hurries);
    assert_eq!(status, 409);
    assert!(took < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn when_the_key_is_freed_one_of_those_who_wait_runs_and_the_rest_wait_on() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let counted = runs.clone();
    let service = rig.service(Policy::new().on_conflict(OnConflict::Wait), move |_| {
        let number = counted.begin();
        async move {
            sleep(Duration::from_secs(1)).await;
            // Twice the service was busy, which frees the key; the third run is the last word.
            let status = if number < 3 { 503 } else { 201 };
            Ok::<_, Infallible>(answer(status, format!("run {number}")))
        }
    });
    let seen = join_all((0..50).map(|_| send(&service, post("k")))).await;
    let busy = seen.iter().filter(|seen| seen.status == 503).count();
    let paid = seen.iter().filter(|seen| seen.body == "run 3").count();
    assert_eq!((busy, paid, runs.count()), (2, 48, 3));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_dead_claim_takes_over_when_its_lease_ends() {
    let rig = Rig::new();
    let lease = Duration::from_secs(3);
    let policy =
        || Policy::new().lease(lease).recover(Recover::Resume).on_conflict(OnConflict::Wait);
    die_running(&rig, policy());

    let alive = rig.service(policy(), |_| async { Ok::<_, Infallible>(answer(201, "taken over")) });
    let clock = rig.clock.clone();
    let time_passes = async {
        for _ in 0..50 {
            sleep(Duration::from_millis(100)).await;
            clock.pass(Duration::from_millis(100));
        }
    };
    let (seen, ()) = tokio::join!(send(&alive, post("k")), time_passes);
    assert_eq!((seen.served, seen.body.as_str()), (Served::Resumed, "taken over"));
}

/// Leaves a claim behind whose process is gone: a runtime of its own ends in the middle of the run.
fn die_running(rig: &Rig, policy: Policy) {
    let (store, clock) = (rig.store.clone(), rig.clock.clone());
    let dies = move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let begun = Arc::new(Notify::new());
            let begins = begun.clone();
            let service = Rig::on(store, clock).service(policy, move |_| {
                begins.notify_one();
                std::future::pending::<Result<_, Infallible>>()
            });
            tokio::select! {
                _ = service.oneshot(post("k")) => panic!("the run does not end"),
                () = begun.notified() => {}
            }
        });
        runtime.shutdown_background();
    };
    std::thread::spawn(dies).join().expect("it dies as planned");
}
