//! How much one tenant may have at once, and what others notice of that.

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderValue, Request};
use selfsame::{Key, OnceError, Policy, Served};
use tokio::time::sleep;

use crate::support::{Body, Rig, Runs, answer, post, send};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn of(tenant: &'static str, key: &str) -> Request<Body> {
    let mut request = post(key);
    request.headers_mut().insert("authorization", HeaderValue::from_static(tenant));
    request
}

#[tokio::test(start_paused = true)]
async fn one_key_too_many_is_refused_and_known_ones_are_answered() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let counted = runs.clone();
    let policy = Policy::new().max_live_keys(Some(2)).retention(2 * HOUR);
    let service = rig.service(policy, move |_| {
        let number = counted.begin();
        async move { Ok::<_, Infallible>(answer(201, number.to_string())) }
    });
    for key in ["a", "b"] {
        assert_eq!(send(&service, of("ann", key)).await.served, Served::Executed);
    }
    let refused = send(&service, of("ann", "c")).await;
    assert_eq!((refused.status, refused.served), (429, Served::TooManyKeys));
    assert!(refused.body.contains("too-many-keys"), "{}", refused.body);
    assert!(refused.body.contains("\"retryable\":true"), "{}", refused.body);

    let replay = send(&service, of("ann", "a")).await;
    assert_eq!((replay.served, replay.body.as_str()), (Served::Replayed, "1"));
    let reused = {
        let mut other = of("ann", "a");
        *other.uri_mut() = "/refunds".parse().expect("a path");
        send(&service, other).await
    };
    assert_eq!(reused.served, Served::KeyReused);
    assert_eq!(send(&service, of("bob", "c")).await.served, Served::Executed);
    assert_eq!(runs.count(), 3);

    rig.clock.pass(3 * HOUR);
    tokio::time::advance(3 * HOUR).await;
    assert_eq!(send(&service, of("ann", "c")).await.served, Served::Executed);
}

#[tokio::test(start_paused = true)]
async fn one_run_too_many_is_refused_until_another_ends() {
    let rig = Rig::new();
    let service = rig.service(Policy::new().max_claims(Some(2)), move |_| async move {
        sleep(Duration::from_secs(3)).await;
        Ok::<_, Infallible>(answer(201, "charged"))
    });
    let (first, second, others) =
        tokio::join!(send(&service, of("ann", "a")), send(&service, of("ann", "b")), async {
            sleep(Duration::from_secs(1)).await;
            let third = send(&service, of("ann", "c")).await;
            // Whoever asks for what runs is told so: it takes no place.
            (third, send(&service, of("ann", "a")).await)
        });
    assert_eq!((first.served, second.served), (Served::Executed, Served::Executed));
    assert_eq!(
        (others.0.status, others.0.served, others.1.served),
        (429, Served::TooManyKeys, Served::InProgress)
    );
    assert_eq!(send(&service, of("ann", "c")).await.served, Served::Executed);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_expired_is_new_also_where_too_many_run() {
    let rig = Rig::new();
    let policy = Policy::new().max_claims(Some(1)).retention(2 * HOUR);
    let service = rig.service(policy, move |_| async move {
        sleep(Duration::from_secs(3)).await;
        Ok::<_, Infallible>(answer(201, "charged"))
    });
    assert_eq!(send(&service, of("ann", "a")).await.served, Served::Executed);
    rig.clock.pass(2 * HOUR - Duration::from_secs(10));
    let retries = async {
        sleep(Duration::from_secs(1)).await;
        let known = send(&service, of("ann", "a")).await.served;
        rig.clock.pass(Duration::from_secs(10));
        (known, send(&service, of("ann", "a")).await.served)
    };
    let (other, retries) = tokio::join!(send(&service, of("ann", "b")), retries);
    assert_eq!(other.served, Served::Executed);
    assert_eq!(retries, (Served::Replayed, Served::TooManyKeys));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_freed_takes_no_second_place() {
    let (rig, runs) = (Rig::new(), Runs::default());
    let service = rig.service(Policy::new().max_live_keys(Some(1)), move |_| {
        let status = match runs.begin() {
            1 => 403,
            2 => 503,
            _ => 201,
        };
        async move { Ok::<_, Infallible>(answer(status, "")) }
    });
    // Of this one no record stays.
    assert_eq!(send(&service, of("ann", "a")).await.status, 403);
    assert_eq!(send(&service, of("ann", "b")).await.status, 503);
    assert_eq!(send(&service, of("ann", "c")).await.served, Served::TooManyKeys);
    assert_eq!(send(&service, of("ann", "b")).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn functions_are_counted_too() {
    let rig = Rig::new();
    let call = |key: &str| {
        let key = Key::parse(key.as_bytes()).expect("a key");
        let policy = Policy::new().max_live_keys(Some(1));
        let once = rig.idempotency.once("send", key).policy(policy);
        once.run(|_| async { Ok::<_, Infallible>(1) })
    };
    assert_eq!(call("a").await.expect("it ran"), 1);
    assert!(matches!(call("b").await, Err(OnceError::TooManyKeys)));
    assert_eq!(call("a").await.expect("it is known"), 1);
}
