//! A limit of new keys, which requests bring along: who is refused by it, and what counts.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use selfsame::{IdempotencyService, Mode, NewKeyAllowance, NewKeyLimit, Policy, Served};
use tokio::time::sleep;

use crate::faulty::{Fault, faulty_rig};
use crate::support::{Body, Inner, Rig, Runs, Seen, answer, post, send};

const DETAIL: &str = "nothing was sent: this is a test";

/// A limit that the test sets, and counts.
#[derive(Default)]
struct Limit {
    is_reached: AtomicBool,
    counted: [AtomicUsize; 2],
    refused: [AtomicUsize; 2],
}

fn index(mode: Mode) -> usize {
    match mode {
        Mode::Enforce => 0,
        Mode::Observe => 1,
    }
}

impl NewKeyLimit for Limit {
    fn has_room(&self, _mode: Mode) -> bool {
        !self.is_reached.load(Ordering::SeqCst)
    }

    fn count(&self, mode: Mode) {
        self.counted[index(mode)].fetch_add(1, Ordering::SeqCst);
    }

    fn refuse(&self, mode: Mode) -> &'static str {
        self.refused[index(mode)].fetch_add(1, Ordering::SeqCst);
        DETAIL
    }
}

impl Limit {
    fn reach(&self) {
        self.is_reached.store(true, Ordering::SeqCst);
    }

    /// Counts of keys and of refusals where routes enforce, then where they observe.
    fn counts(&self) -> [usize; 4] {
        let [enforced, observed] = &self.counted;
        let [refused, passed] = &self.refused;
        [enforced, refused, observed, passed].map(|count| count.load(Ordering::SeqCst))
    }

    fn on(self: &Arc<Self>, mut request: Request<Body>) -> Request<Body> {
        request.extensions_mut().insert(NewKeyAllowance::new(self.clone()));
        request
    }
}

/// A service whose first run fails, and whose runs take three seconds.
fn charging(rig: &Rig, runs: &Runs, policy: Policy) -> IdempotencyService<impl Inner<Infallible>> {
    let runs = runs.clone();
    rig.service(policy, move |_| {
        let number = runs.begin();
        async move {
            sleep(Duration::from_secs(3)).await;
            Ok::<_, Infallible>(answer(if number == 1 { 503 } else { 201 }, number.to_string()))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn beyond_the_limit_new_keys_are_refused_and_known_ones_go_on() {
    let (rig, runs, limit) = (Rig::new(), Runs::default(), Arc::new(Limit::default()));
    let service = charging(&rig, &runs, Policy::new());
    let ask = |key: &str| send(&service, limit.on(post(key)));
    assert_eq!(ask("failed").await.status, 503);
    let done = ask("done").await;
    assert_eq!((done.served, limit.counts()), (Served::Executed, [2, 0, 0, 0]));

    let (running, others) = tokio::join!(ask("running"), async {
        sleep(Duration::from_secs(1)).await;
        limit.reach();
        (ask("running").await, ask("new").await)
    });
    assert_eq!((running.status, others.0.served), (201, Served::InProgress));
    let Seen { status, served, body, .. } = others.1;
    assert_eq!((status, served), (429, Served::TooManyKeys));
    for part in ["too-many-keys", DETAIL, "\"retryable\":true"] {
        assert!(body.contains(part), "{body}");
    }
    let replay = ask("done").await;
    assert_eq!((replay.replayed, replay.body), (true, done.body));
    let retried = ask("failed").await;
    assert_eq!((retried.status, retried.served), (201, Served::Resumed));
    // Without an allowance nothing is limited.
    assert_eq!(send(&service, post("new")).await.served, Served::Executed);
    assert_eq!((runs.count(), limit.counts()), (5, [3, 1, 0, 0]));
}

#[tokio::test(start_paused = true)]
async fn observed_keys_are_counted_apart_and_never_refused() {
    let (rig, limit) = (Rig::new(), Arc::new(Limit::default()));
    let observed = crate::observe::charging(&rig, Policy::new().mode(Mode::Observe));
    for key in ["a", "b", "b"] {
        assert_eq!(send(&observed, limit.on(post(key))).await.served, Served::Passed);
        rig.idempotency.drained().await;
    }
    limit.reach();
    for key in ["b", "c"] {
        assert_eq!(send(&observed, limit.on(post(key))).await.served, Served::Passed);
        rig.idempotency.drained().await;
    }
    assert_eq!(limit.counts(), [0, 0, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_not_taken_for_new_while_the_store_cannot_tell() {
    let (rig, faulty) = faulty_rig();
    let (runs, limit) = (Runs::default(), Arc::new(Limit::default()));
    let service = charging(&rig, &runs, Policy::new());
    limit.reach();
    faulty.set(Fault::Down);
    let seen = send(&service, limit.on(post("a"))).await;
    assert_eq!((seen.status, seen.served), (503, Served::StoreError));
    assert_eq!((runs.count(), limit.counts()), (0, [0; 4]));
}
