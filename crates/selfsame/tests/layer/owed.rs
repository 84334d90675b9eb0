//! Writes that the store could not take: made as soon as it can, whatever became of the lease meanwhile.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use selfsame::stores::MemoryStore;
use selfsame::{
    Idempotency, IdempotencyService, OnConflict, Outcome, Policy, Probe, Recover, Served,
    ServerErrors, Spool,
};
use selfsame_core::conformance::SettableClock;
use selfsame_core::{Inspect, Secret};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::faulty::{Fault, Faulty, SLOW};
use crate::support::{Inner, Rig, Runs, Seen, answer, post, send};

const LEASE: Duration = Duration::from_secs(30);

/// Two processes on one store in memory, which the first cannot always reach.
struct Two {
    faulty: Arc<Faulty>,
    memory: Arc<MemoryStore>,
    first: Rig,
    second: Rig,
}

impl Two {
    fn new(spool: Option<Spool>) -> Self {
        let clock = Arc::new(SettableClock::new());
        let memory = Arc::new(MemoryStore::with_clock(clock.clone()));
        let faulty = Arc::new(Faulty::new(memory.clone()));
        let mut first = Rig::on(faulty.clone(), clock.clone());
        first.idempotency = Idempotency::new(faulty.clone(), Secret::from_bytes(b"test"), spool);
        Self { faulty, first, second: Rig::on(memory.clone(), clock), memory }
    }

    fn pass(&self, time: Duration) {
        self.first.clock.pass(time);
    }
}

fn held() -> Policy {
    Policy::new().recover(Recover::Hold).lease(LEASE)
}

/// Work that answers with the status it finds, and breaks the store as it runs if that is not 201.
fn breaking(
    rig: &Rig,
    faulty: &Arc<Faulty>,
    status: &Arc<AtomicU16>,
) -> IdempotencyService<impl Inner<Infallible>> {
    let (faulty, status) = (faulty.clone(), status.clone());
    rig.service(held(), move |_| {
        let status = status.load(Ordering::SeqCst);
        if status != 201 {
            faulty.set(Fault::Down);
        }
        async move { Ok::<_, Infallible>(answer(status, "answered")) }
    })
}

fn charging(rig: &Rig) -> IdempotencyService<impl Inner<Infallible>> {
    rig.service(held(), |_| async { Ok::<_, Infallible>(answer(201, "charged")) })
}

/// Work that is counted, and runs again after a lost lease.
fn resuming(rig: &Rig, runs: &Runs) -> IdempotencyService<impl Inner<Infallible>> {
    let runs = runs.clone();
    rig.service(Policy::new().recover(Recover::Resume).lease(LEASE), move |_| {
        let number = runs.begin();
        async move { Ok::<_, Infallible>(answer(201, format!("charge {number}"))) }
    })
}

/// Sends until the store is not found to be in the way any more.
async fn until_run(service: &IdempotencyService<impl Inner<Infallible>>, key: &str) -> Seen {
    loop {
        let seen = send(service, post(key)).await;
        if matches!(seen.served, Served::Executed | Served::Resumed) {
            return seen;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_is_made_once_the_store_is_back_however_late_that_is() {
    for leases in [0, 1, 3] {
        for transient in [503, 500, 429, 401] {
            let two = Two::new(None);
            let status = Arc::new(AtomicU16::new(transient));
            let service = breaking(&two.first, &two.faulty, &status);
            let first = send(&service, post("k")).await;
            assert_eq!((first.status, first.body.as_str()), (transient, "answered"));
            // Not outcome-unknown, and not a second run: it is not known yet that the key is free.
            two.pass(LEASE * leases + Duration::from_secs(1));
            assert_eq!(send(&service, post("k")).await.served, Served::StoreError);
            if leases > 0 {
                let rival = send(&charging(&two.second), post("k")).await;
                assert_eq!(rival.served, Served::Held, "the lease is over");
            }
            two.faulty.set(Fault::None);
            let begun = Instant::now();
            until_run(&charging(&two.second), "k").await;
            assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_here_has_a_release_made_first() {
    let two = Two::new(None);
    let status = Arc::new(AtomicU16::new(503));
    let service = breaking(&two.first, &two.faulty, &status);
    assert_eq!(send(&service, post("k")).await.status, 503);
    two.pass(LEASE * 2);
    two.faulty.set(Fault::None);
    status.store(201, Ordering::SeqCst);
    assert_eq!(send(&service, post("k")).await.served, Served::Resumed);
}

#[tokio::test(start_paused = true)]
async fn a_late_release_leaves_a_decision_and_a_later_run_alone() {
    let two = Two::new(None);
    let status = Arc::new(AtomicU16::new(503));
    let service = breaking(&two.first, &two.faulty, &status);
    assert_eq!(send(&service, post("k")).await.status, 503);
    two.pass(LEASE * 2);
    let found = two.memory.find(&selfsame_core::Find::Held, 1).await.expect("found");
    let free = selfsame_core::Resolution::free();
    let freed = two.memory.resolve(&found[0].id, found[0].fence, &free);
    assert_eq!(freed.await.expect("decided"), selfsame_core::Resolved::Done);
    let rival = charging(&two.second);
    assert_eq!(send(&rival, post("k")).await.served, Served::Resumed);
    two.faulty.set(Fault::None);
    sleep(Duration::from_secs(5)).await;
    for service in [&rival, &charging(&two.second)] {
        assert_eq!(send(service, post("k")).await.served, Served::Replayed);
    }
}

#[tokio::test]
async fn a_spooled_release_frees_its_key_in_the_next_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(folder.path().join("spool"));
    let two = Two::new(Some(spool.clone()));
    let status = Arc::new(AtomicU16::new(503));
    let service = breaking(&two.first, &two.faulty, &status);
    assert_eq!(send(&service, post("k")).await.status, 503);
    assert_eq!(spool.waiting().expect("readable").len(), 1, "before the client reads");

    // The first process is no more. Its successor starts while the store is still away.
    two.pass(LEASE * 2);
    let rival = charging(&two.second);
    assert_eq!(send(&rival, post("k")).await.served, Served::Held);
    let away = Arc::new(Faulty::new(two.memory.clone()));
    away.set(Fault::Down);
    let mut next = Rig::on(away.clone(), two.first.clock.clone());
    next.idempotency =
        Idempotency::new(away.clone(), Secret::from_bytes(b"test"), Some(spool.clone()));
    next.idempotency.land_spooled().await;
    assert_eq!(send(&charging(&next), post("k")).await.served, Served::StoreError);
    away.set(Fault::None);
    until_run(&rival, "k").await;
    while !spool.waiting().expect("readable").is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_landed_unheard_is_given_back_however_late_that_is() {
    for leases in [0, 1, 3] {
        let two = Two::new(None);
        let service = charging(&two.first);
        two.faulty.set(Fault::GoesDown);
        assert_eq!(send(&service, post("k")).await.served, Served::StoreError);
        two.pass(LEASE * leases + Duration::from_secs(1));
        sleep(LEASE * leases).await;
        assert_eq!(send(&service, post("k")).await.served, Served::StoreError);
        let rival = charging(&two.second);
        let expected = if leases > 0 { Served::Held } else { Served::InProgress };
        assert_eq!(send(&rival, post("k")).await.served, expected);
        two.faulty.set(Fault::None);
        let begun = Instant::now();
        until_run(&rival, "k").await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_lands_long_after_it_was_given_up_is_given_back() {
    let two = Two::new(None);
    let service = charging(&two.first);
    two.faulty.set(Fault::Late);
    assert_eq!(send(&service, post("k")).await.served, Served::StoreError);
    two.faulty.set(Fault::None);
    // The store is asked in vain: nothing has landed yet.
    sleep(Duration::from_secs(5)).await;
    two.faulty.deliver().await;
    let rival = charging(&two.second);
    assert_eq!(send(&rival, post("k")).await.served, Served::InProgress);
    two.pass(LEASE * 2);
    until_run(&rival, "k").await;
}

/// Sends a request beside a run, and loses its first claim, which may arrive yet.
async fn send_unheard(two: &Two, waiter: &IdempotencyService<impl Inner<Infallible>>) -> Seen {
    sleep(Duration::from_millis(10)).await;
    two.faulty.set(Fault::LateOnce);
    send(waiter, post("k")).await
}

/// Ends the run behind `gate`, and lets the next one go on for longer than a lost claim is looked for. Nobody else runs
/// meanwhile.
async fn let_run(two: &Two, gate: &Semaphore, runs: &Runs, end: &Semaphore) {
    sleep(Duration::from_secs(1)).await;
    gate.add_permits(1);
    while runs.count() < 1 {
        sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..150 {
        sleep(Duration::from_secs(1)).await;
        let other = send(&charging(&two.second), post("k")).await;
        assert_eq!(other.served, Served::InProgress);
    }
    end.add_permits(1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_not_heard_of_and_then_waited_runs_undisturbed() {
    let (two, gate) = (Two::new(None), Arc::new(Semaphore::new(0)));
    let at_gate = gate.clone();
    let rival = two.second.service(held(), move |_| {
        let gate = at_gate.clone();
        async move {
            gate.acquire().await.expect("open").forget();
            Ok::<_, Infallible>(answer(503, "not now"))
        }
    });
    let (runs, end) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let (counted, at_end) = (runs.clone(), end.clone());
    let policy = held().on_conflict(OnConflict::Wait).response_timeout(Duration::from_secs(600));
    let waiter = two.first.service(policy, move |_| {
        counted.begin();
        let end = at_end.clone();
        async move {
            end.acquire().await.expect("open").forget();
            Ok::<_, Infallible>(answer(201, "charged"))
        }
    });
    let (freed, waited, ()) = tokio::join!(
        send(&rival, post("k")),
        send_unheard(&two, &waiter),
        let_run(&two, &gate, &runs, &end)
    );
    assert_eq!((freed.status, waited.status, runs.count()), (503, 201, 1));
    assert_eq!(send(&charging(&two.second), post("k")).await.served, Served::Replayed);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_not_heard_of_and_then_asked_about_runs_undisturbed() {
    let (two, gate) = (Two::new(None), Arc::new(Semaphore::new(0)));
    let at_gate = gate.clone();
    let rival = two.second.service(held(), move |_| {
        let gate = at_gate.clone();
        async move {
            gate.acquire().await.expect("open").forget();
            let mut response = answer(201, "perhaps");
            response.extensions_mut().insert(Outcome::AnswerLost);
            Ok::<_, Infallible>(response)
        }
    });
    let (runs, end) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let (counted, at_end) = (runs.clone(), end.clone());
    let probe = Probe::parse("GET /keys/{key}").expect("valid");
    let policy = held().on_conflict(OnConflict::Wait).probe(Some(probe));
    let policy = policy.response_timeout(Duration::from_secs(600));
    let waiter = two.first.service(policy, move |run| {
        let is_probe = run.is_none();
        if !is_probe {
            counted.begin();
        }
        let end = at_end.clone();
        async move {
            if is_probe {
                return Ok::<_, Infallible>(answer(404, "not done"));
            }
            end.acquire().await.expect("open").forget();
            Ok(answer(201, "charged"))
        }
    });
    let (lost, waited, ()) = tokio::join!(
        send(&rival, post("k")),
        send_unheard(&two, &waiter),
        let_run(&two, &gate, &runs, &end)
    );
    assert_eq!((lost.status, waited.status, runs.count()), (502, 201, 1));
    assert_eq!(send(&charging(&two.second), post("k")).await.served, Served::Replayed);
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_that_takes_over_from_a_run_here_becomes_its_claim() {
    let (two, runs) = (Two::new(None), Runs::default());
    let end = Arc::new(Semaphore::new(0));
    let (counted, at_end) = (runs.clone(), end.clone());
    let policy = || {
        let timeout = Duration::from_secs(600);
        Policy::new().recover(Recover::Resume).lease(LEASE).response_timeout(timeout)
    };
    let service = two.first.service(policy(), move |_| {
        counted.begin();
        let end = at_end.clone();
        async move {
            end.acquire().await.expect("open").forget();
            Ok::<_, Infallible>(answer(201, "charged"))
        }
    });
    // The first claim is acknowledged when the second is given up, and its run not listed before.
    two.faulty.set(Fault::SlowAcknowledgement);
    let second = async {
        sleep(Duration::from_secs(1)).await;
        two.faulty.set(Fault::LateOnce);
        send(&service, post("k")).await
    };
    let others = async {
        while runs.count() < 1 {
            sleep(Duration::from_millis(100)).await;
        }
        two.pass(LEASE * 2);
        two.faulty.deliver().await;
        for _ in 0..100 {
            sleep(Duration::from_secs(1)).await;
            let other = send(&resuming(&two.second, &runs), post("k")).await;
            assert_eq!(other.served, Served::InProgress);
        }
        end.add_permits(1);
    };
    let (first, second, ()) = tokio::join!(send(&service, post("k")), second, others);
    assert_eq!((first.status, second.status, runs.count()), (201, 409, 1));
    let replay = send(&resuming(&two.second, &runs), post("k")).await;
    assert_eq!((replay.served, &*replay.body), (Served::Replayed, "charged"));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_waits_for_the_store_where_its_spool_cannot_be_written() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let two = Two::new(Some(Spool::new(file.path().join("no-folder"))));
    let status = Arc::new(AtomicU16::new(503));
    let service = breaking(&two.first, &two.faulty, &status);
    assert_eq!(send(&service, post("k")).await.status, 503);
    let drained = two.first.idempotency.drained();
    tokio::pin!(drained);
    let early = tokio::time::timeout(Duration::from_secs(60), drained.as_mut()).await;
    assert!(early.is_err(), "nobody else has it");
    two.faulty.set(Fault::None);
    drained.await;
    assert_eq!(send(&charging(&two.second), post("k")).await.served, Served::Resumed);
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_claim_that_lands_after_its_run_has_freed_the_key_is_given_back() {
    for transient in [401, 503, 500] {
        let two = Two::new(None);
        two.faulty.set(Fault::LateOnce);
        let service = two.first.service(held(), move |_| async move {
            Ok::<_, Infallible>(answer(transient, "answered"))
        });
        assert_eq!(send(&service, post("k")).await.status, transient);
        sleep(Duration::from_secs(2)).await;
        two.faulty.deliver().await;
        let rival = charging(&two.second);
        assert_eq!(send(&rival, post("k")).await.served, Served::InProgress, "{transient}");
        two.pass(LEASE * 2);
        let retry = async {
            loop {
                let seen = send(&rival, post("k")).await;
                if seen.status == 201 {
                    return;
                }
                sleep(Duration::from_millis(100)).await;
            }
        };
        let freed = tokio::time::timeout(Duration::from_secs(60), retry).await;
        assert!(freed.is_ok(), "nothing runs under that claim: {transient}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_waits_until_the_store_has_what_it_is_owed() {
    let two = Two::new(None);
    let status = Arc::new(AtomicU16::new(503));
    assert_eq!(send(&breaking(&two.first, &two.faulty, &status), post("k")).await.status, 503);
    let drained = two.first.idempotency.drained();
    tokio::pin!(drained);
    let early = tokio::time::timeout(Duration::from_secs(60), drained.as_mut()).await;
    assert!(early.is_err(), "the store is still away");
    two.faulty.set(Fault::None);
    drained.await;
    assert_eq!(send(&charging(&two.second), post("k")).await.served, Served::Resumed);
}

#[tokio::test]
async fn a_claim_that_landed_unheard_is_given_back_by_the_next_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(folder.path().join("spool"));
    let two = Two::new(Some(spool.clone()));
    two.faulty.set(Fault::GoesDown);
    assert_eq!(send(&charging(&two.first), post("k")).await.served, Served::StoreError);
    // It ends, and does not wait for a store that stays away.
    two.first.idempotency.drained().await;
    two.first.idempotency.spool_rest().await;
    assert_eq!(spool.waiting().expect("readable").len(), 1);

    two.pass(LEASE * 2);
    let rival = charging(&two.second);
    assert_eq!(send(&rival, post("k")).await.served, Served::Held);
    let mut next = Rig::on(two.memory.clone(), two.first.clock.clone());
    next.idempotency =
        Idempotency::new(two.memory.clone(), Secret::from_bytes(b"test"), Some(spool.clone()));
    next.idempotency.land_spooled().await;
    assert_eq!(send(&rival, post("k")).await.status, 201);
    assert_eq!(spool.waiting().expect("readable"), []);
}

/// Sends as many keys as make more than 64 MiB of answers, all of which end while the store is down.
async fn outgrow_memory(two: &Two, keys: usize, runs: &Runs) {
    let gate = Arc::new(Semaphore::new(0));
    let (counted, at_gate) = (runs.clone(), gate.clone());
    let service = two.first.service(held(), move |_| {
        counted.begin();
        let gate = at_gate.clone();
        async move {
            drop(gate.acquire().await);
            Ok::<_, Infallible>(answer(201, vec![b'a'; 1_000_000]))
        }
    });
    let all = join_all((0..keys).map(|key| {
        let service = service.clone();
        async move { send(&service, post(&format!("k{key}"))).await }
    }));
    let break_store = async {
        while runs.count() < keys {
            sleep(Duration::from_millis(5)).await;
        }
        two.faulty.set(Fault::Down);
        gate.add_permits(keys);
    };
    let (answers, ()) = futures_util::future::join(all, break_store).await;
    assert!(answers.iter().all(|seen| seen.status == 201 && seen.body.len() == 1_000_000));
}

#[tokio::test]
async fn answers_beyond_the_memory_for_them_wait_in_the_spool_alone() {
    const KEYS: usize = 80;
    let folder = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(folder.path());
    let (two, runs) = (Two::new(Some(spool.clone())), Runs::default());
    outgrow_memory(&two, KEYS, &runs).await;
    two.pass(LEASE * 2);
    let (service, rival) = (charging(&two.first), charging(&two.second));
    for key in [0, KEYS - 1] {
        let refused = send(&service, post(&format!("k{key}"))).await;
        assert_eq!(refused.served, Served::StoreError, "neither run again nor unknown");
    }
    two.faulty.set(Fault::None);
    // A retry has its answer read from the spool; the rest comes by itself.
    let last = send(&service, post(&format!("k{}", KEYS - 1))).await;
    assert_eq!((last.served, last.body.len()), (Served::Replayed, 1_000_000));
    for key in 0..KEYS {
        let key = format!("k{key}");
        let replay = loop {
            let seen = send(&rival, post(&key)).await;
            if seen.served != Served::Held {
                break seen;
            }
            sleep(Duration::from_millis(10)).await;
        };
        assert_eq!((replay.served, replay.body.len()), (Served::Replayed, 1_000_000), "{key}");
    }
    assert_eq!(runs.count(), KEYS);
    while !spool.waiting().expect("readable").is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn without_a_spool_answers_beyond_the_memory_for_them_are_recorded_without_their_bodies() {
    const KEYS: usize = 80;
    let (two, runs) = (Two::new(None), Runs::default());
    outgrow_memory(&two, KEYS, &runs).await;
    two.faulty.set(Fault::None);
    let service = charging(&two.first);
    let mut kept = 0;
    for key in 0..KEYS {
        let seen = send(&service, post(&format!("k{key}"))).await;
        assert!(matches!(seen.served, Served::Replayed | Served::NotKept), "{seen:?}");
        kept += usize::from(seen.served == Served::Replayed);
    }
    assert!((60..=67).contains(&kept), "{kept}");
    assert_eq!(runs.count(), KEYS);
}

#[tokio::test(start_paused = true)]
async fn many_answers_land_together_and_not_all_at_once_when_the_store_is_back() {
    const KEYS: usize = 2000;
    let (two, runs) = (Two::new(None), Runs::default());
    let gate = Arc::new(Semaphore::new(0));
    let (counted, at_gate) = (runs.clone(), gate.clone());
    let service = two.first.service(held(), move |_| {
        counted.begin();
        let gate = at_gate.clone();
        async move {
            drop(gate.acquire().await);
            Ok::<_, Infallible>(answer(201, "charged"))
        }
    });
    let all = join_all((0..KEYS).map(|key| send(&service, post(&format!("k{key}")))).map(Box::pin));
    let break_store = async {
        while runs.count() < KEYS {
            sleep(Duration::from_millis(1)).await;
        }
        two.faulty.set(Fault::Down);
        gate.add_permits(KEYS);
    };
    futures_util::future::join(all, break_store).await;
    // An hour's worth of failures does not make it slow.
    sleep(Duration::from_secs(3600)).await;
    two.faulty.set(Fault::None);
    two.faulty.watch_completions();
    let begun = Instant::now();
    while two.memory.count().await.expect("counted").completed < KEYS as u64 {
        sleep(Duration::from_millis(10)).await;
    }
    // Each takes ten milliseconds here.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let together = two.faulty.most_completions();
    assert!((8..=64).contains(&together), "{together}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_acknowledged_late_runs_with_a_renewed_lease() {
    let two = Two::new(None);
    let charge = charging(&two.first);
    two.faulty.set(Fault::SlowAcknowledgement);
    assert_eq!(send(&charge, post("k")).await.status, 201);
    assert_eq!(two.faulty.renewals(), 1, "before the work began");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_acknowledged_late_and_taken_over_does_not_run() {
    let (two, runs) = (Two::new(None), Runs::default());
    let (first, second) = (resuming(&two.first, &runs), resuming(&two.second, &runs));
    two.faulty.set(Fault::SlowAcknowledgement);
    let rival = async {
        sleep(SLOW / 2).await;
        two.pass(LEASE * 2);
        send(&second, post("k")).await
    };
    let (late, rival) = join(send(&first, post("k")), rival).await;
    assert_eq!((rival.status, &*rival.body), (201, "charge 1"));
    assert_eq!(late.status, 409, "{}", late.body);
    let retry = send(&first, post("k")).await;
    assert_eq!((retry.served, &*retry.body), (Served::Replayed, "charge 1"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_not_heard_of_and_is_held_since_is_cancelled() {
    for fault in [Fault::SlowlyLost, Fault::SlowlyResent] {
        let two = Two::new(None);
        let (first, second) = (charging(&two.first), charging(&two.second));
        two.faulty.set(fault);
        let rival = async {
            sleep(SLOW / 2).await;
            two.pass(LEASE * 2);
            send(&second, post("k")).await
        };
        let (unheard, rival) = join(send(&first, post("k")), rival).await;
        assert_eq!((unheard.served, rival.served), (Served::InProgress, Served::Held), "{fault:?}");
        assert_eq!(until_run(&first, "k").await.status, 201, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_another_left_held_is_held_however_slow_the_store_is() {
    let two = Two::new(None);
    let unknown = || async { Ok::<_, Infallible>(answer(500, "unknown")) };
    let policy = held().server_errors(ServerErrors::Hold);
    send(&two.second.service(policy, move |_| unknown()), post("k")).await;
    let charge = charging(&two.first);
    for fault in [Fault::SlowAcknowledgement, Fault::SlowlyLost, Fault::SlowlyResent] {
        two.faulty.set(fault);
        assert_eq!(send(&charge, post("k")).await.served, Served::Held, "{fault:?}");
    }
}
