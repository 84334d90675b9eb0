//! The same promise for any async function.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use selfsame::stores::MemoryStore;
use selfsame::{Idempotency, Key, OnConflict, Once, OnceError, Policy, Recover, Tenant};
use selfsame_core::conformance::SettableClock;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Receipt {
    number: usize,
    to: String,
}

#[derive(Debug, PartialEq)]
struct MailboxFull;

struct Office {
    idempotency: Idempotency,
    sent: Arc<AtomicUsize>,
}

impl Office {
    async fn open() -> Self {
        Self::on(MemoryStore::new()).await
    }

    async fn on(store: MemoryStore) -> Self {
        let store = Arc::new(store);
        let idempotency = Idempotency::open(store).await.expect("a store in memory opens");
        Self { idempotency, sent: Arc::default() }
    }

    fn call(&self, key: &str) -> Once {
        let key = Key::parse(key.as_bytes()).expect("a key");
        self.idempotency.once("send_receipt", key)
    }

    /// Sends a receipt, which takes a moment.
    async fn send(&self, call: Once) -> Result<Receipt, OnceError<MailboxFull>> {
        let sent = self.sent.clone();
        call.run(|_| async move {
            sleep(Duration::from_millis(10)).await;
            let number = sent.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(Receipt { number, to: "ann".into() })
        })
        .await
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn the_second_call_gets_the_first_result() {
    let office = Office::open().await;
    let first = office.send(office.call("order-1")).await.expect("sent");
    let again = office.send(office.call("order-1")).await.expect("known");
    let other = office.send(office.call("order-2")).await.expect("sent");
    assert_eq!((&first, first.number, other.number), (&again, 1, 2));
    assert_eq!(office.sent(), 2);
}

#[tokio::test]
async fn a_remembered_call_is_not_made_again_when_its_result_is_gone() {
    let clock = Arc::new(SettableClock::new());
    let office = Office::on(MemoryStore::with_clock(clock.clone())).await;
    let day = Duration::from_secs(24 * 60 * 60);
    let call = || office.call("k").policy(Policy::new().remember(day));
    office.send(call()).await.expect("sent");
    clock.pass(day);
    assert!(matches!(office.send(call()).await, Err(OnceError::Expired)));
    clock.pass(day);
    assert_eq!(office.send(call()).await.expect("sent").number, 2);
}

#[tokio::test]
async fn functions_and_tenants_have_keys_of_their_own() {
    let office = Office::open().await;
    office.send(office.call("k")).await.expect("sent");
    let acme = Tenant::named("account", "acme");
    office.send(office.call("k").tenant(acme)).await.expect("sent");
    let key = Key::parse(b"k").expect("a key");
    office.send(office.idempotency.once("send_reminder", key)).await.expect("sent");
    assert_eq!(office.sent(), 3);
}

#[tokio::test]
async fn another_input_under_the_same_key_is_an_error() {
    let office = Office::open().await;
    office.send(office.call("k").input(&("ann", 20))).await.expect("sent");
    office.send(office.call("k").input(&("ann", 20))).await.expect("known");
    let other = office.send(office.call("k").input(&("ann", 21))).await;
    assert!(matches!(other, Err(OnceError::KeyReused)), "{other:?}");
    assert_eq!(office.sent(), 1);
}

#[tokio::test]
async fn of_many_calls_at_once_one_runs() {
    let office = Office::open().await;
    let wait = || Policy::new().on_conflict(OnConflict::Wait);
    let (rude, patient) = tokio::join!(
        futures_util::future::join_all((0..20).map(|_| office.send(office.call("rude")))),
        futures_util::future::join_all(
            (0..20).map(|_| office.send(office.call("patient").policy(wait())))
        ),
    );
    let refused = rude.iter().filter(|call| matches!(call, Err(OnceError::InProgress))).count();
    assert_eq!(refused, 19);
    assert!(patient.iter().all(Result::is_ok));
    assert_eq!(office.sent(), 2);
}

#[tokio::test]
async fn a_failure_frees_the_key() {
    let office = Office::open().await;
    let failed: Result<Receipt, _> = office.call("k").run(|_| async { Err(MailboxFull) }).await;
    assert!(matches!(failed, Err(OnceError::Failed(MailboxFull))), "{failed:?}");
    assert_eq!(office.send(office.call("k")).await.expect("sent").number, 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_finds_the_result() {
    let office = Office::open().await;
    tokio::select! {
        _ = office.send(office.call("k")) => panic!("it takes a moment"),
        () = tokio::task::yield_now() => {}
    }
    office.idempotency.drained().await;
    assert_eq!(office.send(office.call("k")).await.expect("known").number, 1);
    assert_eq!(office.sent(), 1);
}

#[tokio::test]
async fn after_a_panic_recover_decides_and_the_caller_sees_it() {
    for (recover, held) in [(Recover::Resume, false), (Recover::Hold, true)] {
        let office = Office::open().await;
        let policy = || Policy::new().recover(recover);
        let doomed = office.call("k").policy(policy()).run(|_| async {
            assert!(false_for_now(), "the function panics");
            Ok::<Receipt, MailboxFull>(Receipt { number: 0, to: String::new() })
        });
        let ended = JoinSet::from_iter([doomed]).join_next().await.expect("one task");
        assert!(ended.is_err_and(|error| error.is_panic()));
        let next = office.send(office.call("k").policy(policy())).await;
        assert_eq!(matches!(next, Err(OnceError::OutcomeUnknown)), held, "{next:?}");
    }
}

/// Hidden from the compiler, which would call the rest unreachable.
fn false_for_now() -> bool {
    std::hint::black_box(false)
}

#[tokio::test]
async fn a_function_goes_on_from_its_checkpoint() {
    let office = Office::open().await;
    let step = || {
        office.call("k").run(|run| async move {
            if run.recovery_point().is_none() {
                run.save("printed", "page 1").await.expect("saved");
                return Err(MailboxFull);
            }
            let data = run.checkpoint().expect("a recovery point has data").data.clone();
            Ok(String::from_utf8_lossy(&data).into_owned())
        })
    };
    assert!(step().await.is_err());
    assert_eq!(step().await.expect("sent"), "page 1");
}

#[tokio::test]
async fn a_result_that_cannot_be_kept_is_given_once_and_never_made_again() {
    let office = Office::open().await;
    let large = || office.call("k").run(|_| async { Ok::<_, MailboxFull>("x".repeat(2 << 20)) });
    assert_eq!(large().await.expect("made").len(), 2 << 20);
    assert!(matches!(large().await, Err(OnceError::NotKept)));
}

#[tokio::test]
async fn a_result_of_another_type_is_an_error_and_not_a_second_run() {
    let office = Office::open().await;
    office.send(office.call("k")).await.expect("sent");
    let wrong: Result<u64, OnceError<MailboxFull>> =
        office.call("k").run(|_| async { Ok(7) }).await;
    assert!(matches!(wrong, Err(OnceError::Unreadable(_))), "{wrong:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_past_its_time_limit_is_dropped() {
    let office = Office::open().await;
    let policy = Policy::new().recover(Recover::Hold).run_timeout(Duration::from_secs(2));
    let slow = office.call("k").policy(policy.clone());
    let slow: Result<Receipt, OnceError<MailboxFull>> = slow.run(|_| std::future::pending()).await;
    assert!(matches!(slow, Err(OnceError::TimedOut)), "{slow:?}");
    let next = office.send(office.call("k").policy(policy)).await;
    assert!(matches!(next, Err(OnceError::OutcomeUnknown)), "{next:?}");
}
