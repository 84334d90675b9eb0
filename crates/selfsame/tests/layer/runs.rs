//! Runs that end badly, late, or without anyone waiting.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use selfsame::{Policy, Recover, Run, SaveError, Served};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::support::{Rig, Runs, answer, post, send};

#[derive(Debug, PartialEq)]
struct CardDeclined;

#[tokio::test]
async fn the_inner_services_error_passes_untouched() {
    let rig = Rig::new();
    let service = rig.service(Policy::new(), |_| async { Err(CardDeclined) });
    let error = service.clone().oneshot(post("k")).await.map(drop);
    assert_eq!(error, Err(CardDeclined));
}

#[tokio::test]
async fn after_an_error_or_a_panic_recover_decides() {
    for (recover, served) in [(Recover::Resume, Served::Resumed), (Recover::Hold, Served::Held)] {
        for panics in [false, true] {
            let (rig, runs) = (Rig::new(), Runs::default());
            let service = rig.service(Policy::new().recover(recover), move |_| {
                let first = runs.begin() == 1;
                async move {
                    assert!(!(first && panics), "the handler panics");
                    if first { Err(CardDeclined) } else { Ok(answer(201, "charged")) }
                }
            });
            // On a task of its own, because the panic reaches the caller.
            let mut caller = JoinSet::from_iter([service.clone().oneshot(post("k"))]);
            let ended = caller.join_next().await.expect("one task");
            assert_eq!(ended.is_err_and(|error| error.is_panic()), panics);
            assert_eq!(send(&service, post("k")).await.served, served, "{recover:?} {panics}");
        }
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_cancel_the_work() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (counted, begins, waits) = (runs.clone(), begun.clone(), go_on.clone());
    let service = rig.service(Policy::new(), move |_| {
        counted.begin();
        let (begins, waits) = (begins.clone(), waits.clone());
        async move {
            begins.notify_one();
            waits.notified().await;
            Ok::<_, Infallible>(answer(201, "charged"))
        }
    });
    let call = service.clone().oneshot(post("k"));
    tokio::select! {
        _ = call => panic!("the work waits"),
        () = begun.notified() => {}
    }
    go_on.notify_one();
    rig.idempotency.drained().await;
    assert!(send(&service, post("k")).await.replayed);
    assert_eq!(runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_run_is_answered_504_and_its_answer_is_kept() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let counted = runs.clone();
    let policy = Policy::new().response_timeout(Duration::from_secs(2));
    let service = rig.service(policy, move |_| {
        counted.begin();
        async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok::<_, Infallible>(answer(201, "at last"))
        }
    });
    assert_eq!(send(&service, post("k")).await.status, 504);
    rig.idempotency.drained().await;
    let retry = send(&service, post("k")).await;
    assert_eq!((retry.status, retry.body.as_str(), runs.count()), (201, "at last", 1));
}

#[tokio::test(start_paused = true)]
async fn a_run_past_its_time_limit_has_an_unknown_outcome() {
    let rig = Rig::new();
    let policy = Policy::new()
        .recover(Recover::Hold)
        .response_timeout(Duration::from_secs(5))
        .run_timeout(Duration::from_secs(5));
    let service = rig.service(policy, |_| async {
        std::future::pending::<()>().await;
        Ok::<_, Infallible>(answer(201, "never"))
    });
    assert!(send(&service, post("k")).await.status >= 502);
    rig.idempotency.drained().await;
    assert_eq!(send(&service, post("k")).await.served, Served::Held);
}

#[tokio::test]
async fn a_handler_goes_on_from_its_checkpoint() {
    let rig = Rig::new();
    let service = rig.service(Policy::new(), |run: Option<Run>| async move {
        let run = run.expect("a keyed request has a run");
        match run.recovery_point() {
            None => {
                run.save("charged", "ch_1").await.expect("saved");
                Ok::<_, Infallible>(answer(500, "the receipt failed"))
            }
            Some(point) => {
                let data = &run.checkpoint().expect("a recovery point has data").data;
                let data = String::from_utf8_lossy(data);
                Ok(answer(201, format!("{point} {data} in attempt {}", run.attempt())))
            }
        }
    });
    assert_eq!(send(&service, post("k")).await.status, 500);
    assert_eq!(send(&service, post("k")).await.body, "charged ch_1 in attempt 2");
}

#[tokio::test]
async fn each_attempt_derives_the_same_key_for_a_phase() {
    let rig = Rig::new();
    let service = rig.service(Policy::new(), |run: Option<Run>| async move {
        let run = run.expect("a keyed request has a run");
        let (charge, receipt) = (run.derived_key("charged"), run.derived_key("receipt_sent"));
        assert_ne!(charge, receipt);
        Ok::<_, Infallible>(answer(500, charge.as_str().to_owned()))
    });
    let first = send(&service, post("k")).await.body;
    assert_eq!(send(&service, post("k")).await.body, first);
    assert_ne!(send(&service, post("another")).await.body, first);
}

#[tokio::test]
async fn a_checkpoint_that_is_too_large_is_refused() {
    let rig = Rig::new();
    let service = rig.service(Policy::new(), |run: Option<Run>| async move {
        let saved = run.expect("keyed").save("large", vec![0; 64 * 1024 + 1]).await;
        Ok::<_, Infallible>(answer(
            200,
            format!("{}", matches!(saved, Err(SaveError::TooLarge { .. }))),
        ))
    });
    assert_eq!(send(&service, post("k")).await.body, "true");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lost_its_claim_can_write_nothing_and_tells_the_stored_truth() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let go_on = Arc::new(Notify::new());
    let (counted, waits, clock) = (runs.clone(), go_on.clone(), rig.clock.clone());
    let policy = Policy::new().lease(Duration::from_secs(3));
    let service = rig.service(policy, move |run: Option<Run>| {
        let number = counted.begin();
        let (waits, clock) = (waits.clone(), clock.clone());
        async move {
            // As if the process had been stopped past its lease.
            clock.pass(Duration::from_secs(10));
            waits.notified().await;
            let saved = run.expect("keyed").save("late", "").await;
            assert!(matches!(saved, Err(SaveError::Lost)));
            Ok::<_, Infallible>(answer(201, format!("charge {number}")))
        }
    });
    let stale = service.clone().oneshot(post("k"));
    // Another process: this one never takes over its own run.
    let other = Rig::on(rig.store.clone(), rig.clock.clone());
    let counted = runs.clone();
    let elsewhere = other.service(Policy::new().lease(Duration::from_secs(3)), move |_| {
        let number = counted.begin();
        async move { Ok::<_, Infallible>(answer(201, format!("charge {number}"))) }
    });
    let winner = async {
        while runs.count() == 0 {
            tokio::task::yield_now().await;
        }
        let seen = send(&elsewhere, post("k")).await;
        go_on.notify_one();
        seen
    };
    let (stale, winner) = tokio::join!(stale, winner);
    assert_eq!((winner.served, winner.body.as_str()), (Served::Resumed, "charge 2"));
    let stale = crate::support::see(stale.expect("no error")).await;
    assert_eq!((stale.replayed, stale.body), (true, winner.body));
}
