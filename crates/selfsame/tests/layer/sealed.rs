//! Records that are sealed, and keys that are rotated, removed or wrong.

use std::convert::Infallible;
use std::sync::Arc;

use selfsame::seal::{Keyring, Seal};
use selfsame::stores::{MemoryStore, SealedStore};
use selfsame::{Idempotency, OnStoreError, Policy, Served, Spool};
use selfsame_core::conformance::SettableClock;
use selfsame_core::{Answer, AnswerBody, Find, FullStore, Inspect, Secret, State, Store};

use crate::faulty::{Fault, Faulty};
use crate::support::{Rig, Runs, answer, post, send};

const OLD: &str = "old AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const NEW: &str = "new AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

fn keys(text: &str) -> Option<Keyring> {
    Some(Keyring::parse(text).expect("valid"))
}

/// A rig on a sealed store in memory, the store below the seal, and the seal.
fn sealed_rig() -> (Rig, Arc<Faulty>, Seal) {
    let clock = Arc::new(SettableClock::new());
    let below = Arc::new(Faulty::new(Arc::new(MemoryStore::with_clock(clock.clone()))));
    let seal = Seal::new(keys(OLD).expect("keys"));
    let store = Arc::new(SealedStore::new(below.clone(), seal.clone()));
    (Rig::on(store, clock), below, seal)
}

async fn answer_below(below: &dyn FullStore, key: &str) -> Answer {
    let found = below.find(&Find::Key(key.to_owned()), 1).await.expect("the store works");
    match &found[0].state {
        State::Completed { answer, .. } => answer.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_is_kept_closed_and_replayed_open() {
    let (rig, below, _) = sealed_rig();
    let service =
        rig.service(Policy::new(), |_| async { Ok::<_, Infallible>(answer(201, "charged")) });
    assert_eq!(send(&service, post("k")).await.served, Served::Executed);
    let kept = answer_below(&*below, "k").await;
    assert_eq!((kept.status.as_u16(), kept.headers.len()), (201, 0));
    let AnswerBody::Sealed(sealed) = kept.body else { panic!("{:?}", kept.body) };
    assert!(!sealed.windows(7).any(|part| part == b"charged"));
    let retry = send(&service, post("k")).await;
    assert_eq!((retry.replayed, retry.status, &*retry.body), (true, 201, "charged"));
}

#[tokio::test]
async fn a_record_without_its_key_is_an_error_and_not_a_second_run() {
    let ((rig, _, seal), runs) = (sealed_rig(), Runs::default());
    let counted = runs.clone();
    // Not even where requests bypass a store that is down.
    let policy = Policy::new().on_store_error(OnStoreError::Bypass);
    let service = rig.service(policy, move |_| {
        counted.begin();
        async { Ok::<_, Infallible>(answer(201, "charged")) }
    });
    send(&service, post("k")).await;
    seal.replace(keys(&format!("{NEW}\n{OLD}")));
    assert!(send(&service, post("k")).await.replayed, "rotated");
    for (wrong, what) in
        [(keys(NEW), "removed"), (keys(&NEW.replace("new", "old")), "wrong"), (None, "off")]
    {
        seal.replace(wrong);
        let refused = send(&service, post("k")).await;
        assert_eq!((refused.status, refused.replayed), (500, false), "{what}");
        assert_eq!(refused.served, Served::StoreError, "{what}");
    }
    assert_eq!(runs.count(), 1);
    seal.replace(keys(OLD));
    assert!(send(&service, post("k")).await.replayed, "it is there again");
}

#[tokio::test]
async fn what_was_recorded_in_the_clear_is_still_replayed() {
    let (rig, below, seal) = sealed_rig();
    let service =
        rig.service(Policy::new(), |_| async { Ok::<_, Infallible>(answer(201, "charged")) });
    seal.replace(None);
    send(&service, post("k")).await;
    assert!(matches!(answer_below(&*below, "k").await.body, AnswerBody::Kept(_)));
    seal.replace(keys(NEW));
    assert!(send(&service, post("k")).await.replayed);
}

#[tokio::test]
async fn an_engine_that_knows_of_no_seal_serves_nothing_sealed() {
    let ((rig, below, _), runs) = (sealed_rig(), Runs::default());
    let service =
        rig.service(Policy::new(), |_| async { Ok::<_, Infallible>(answer(201, "charged")) });
    send(&service, post("k")).await;
    let without = Rig::on(below, rig.clock.clone());
    let counted = runs.clone();
    let service = without.service(Policy::new(), move |_| {
        counted.begin();
        async { Ok::<_, Infallible>(answer(201, "charged")) }
    });
    let refused = send(&service, post("k")).await;
    assert_eq!((refused.status, runs.count()), (500, 0));
}

#[tokio::test]
async fn an_answer_in_the_place_of_another_is_not_served() {
    let (rig, below, _) = sealed_rig();
    let stolen = below.clone();
    let service = rig.service(Policy::new(), move |run| {
        let below = stolen.clone();
        async move {
            let run = run.expect("a keyed request");
            if run.attempt() == 1 && below.count().await.expect("works").completed == 1 {
                let other = answer_below(&*below, "theirs").await;
                let _until = below.complete(run.lease(), &other).await.expect("works");
            }
            Ok::<_, Infallible>(answer(201, "charged"))
        }
    });
    send(&service, post("theirs")).await;
    send(&service, post("mine")).await;
    let refused = send(&service, post("mine")).await;
    assert_eq!((refused.status, refused.replayed), (500, false));
    assert!(send(&service, post("theirs")).await.replayed);
}

#[tokio::test]
async fn a_run_goes_on_from_a_checkpoint_only_once_it_can_be_opened() {
    let ((rig, below, seal), runs) = (sealed_rig(), Runs::default());
    let counted = runs.clone();
    let service = rig.service(Policy::new(), move |run| {
        let runs = counted.begin();
        async move {
            let run = run.expect("a keyed request");
            if runs == 1 {
                run.save("charged", "ch_1").await.expect("saved");
                return Ok(answer(500, "the receipt failed"));
            }
            let data = run.checkpoint().expect("saved").data.clone();
            Ok::<_, Infallible>(answer(201, format!("{} {data:?}", run.attempt())))
        }
    });
    assert_eq!(send(&service, post("k")).await.status, 500);
    let found = below.find(&Find::Key("k".to_owned()), 1).await.expect("the store works");
    let kept = found[0].checkpoint.clone().expect("saved");
    assert!(kept.is_sealed && kept.recovery_point == "charged");
    assert!(!kept.data.windows(4).any(|part| part == b"ch_1"));

    seal.replace(keys(NEW));
    for _ in 0..3 {
        let refused = send(&service, post("k")).await;
        assert_eq!((refused.status, runs.count()), (500, 1));
    }
    seal.replace(keys(OLD));
    let resumed = send(&service, post("k")).await;
    assert_eq!((resumed.served, &*resumed.body), (Served::Resumed, "2 b\"ch_1\""));
}

#[tokio::test]
async fn a_spool_holds_nothing_in_the_clear_and_lands_without_the_key() {
    let ((rig, below, seal), runs) = (sealed_rig(), Runs::default());
    let folder = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(folder.path());
    let open =
        || Idempotency::new(rig.store.clone(), Secret::from_bytes(b"test"), Some(spool.clone()));
    let first = Rig { idempotency: open(), store: rig.store.clone(), clock: rig.clock.clone() };
    let (counted, breaks) = (runs.clone(), below.clone());
    let service = first.service(Policy::new(), move |_| {
        counted.begin();
        breaks.set(Fault::Down);
        async { Ok::<_, Infallible>(answer(201, "charged")) }
    });
    assert_eq!(send(&service, post("k")).await.body, "charged");
    let file = std::fs::read_dir(folder.path()).expect("readable").next().expect("spooled");
    let bytes = std::fs::read(file.expect("readable").path()).expect("readable");
    assert!(!bytes.windows(7).any(|part| part == b"charged"));

    below.set(Fault::None);
    seal.replace(None);
    let next = Rig { idempotency: open(), store: rig.store.clone(), clock: rig.clock.clone() };
    next.idempotency.land_spooled().await;
    assert_eq!(spool.waiting().expect("readable").len(), 0);
    let service =
        next.service(Policy::new(), |_| async { Ok::<_, Infallible>(answer(500, "ran")) });
    assert_eq!(send(&service, post("k")).await.status, 500);
    seal.replace(keys(OLD));
    let retry = send(&service, post("k")).await;
    assert_eq!((retry.replayed, &*retry.body, runs.count()), (true, "charged", 1));
}
