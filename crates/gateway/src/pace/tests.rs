use std::future::{Pending, pending, poll_fn};

use hyper_util::server::graceful::GracefulShutdown;

use super::*;

const LIMITS: Limits = Limits {
    head_timeout: Duration::from_secs(1),
    body_timeout: Duration::from_secs(2),
    write_timeout: Duration::from_secs(3),
    idle_timeout: Duration::from_secs(5),
    answer_timeout: Duration::from_secs(60),
    tunnel_idle_timeout: Duration::from_secs(60),
    min_body_rate: Some(100),
    connections_max: 1,
    requests_max: 1,
    max_connections_per_address: 1,
    max_requests_per_address: 1,
    max_abandoned_requests: 1,
    max_new_keys_per_address: Some(1),
    max_buffered_bytes: 1,
    max_buffered_bytes_per_address: 1,
    max_upstream_connections: 1,
    streams_max: 1,
    headers_max: 1,
    header_bytes_max: 1,
};

/// How many seconds a connection lives that waits for these things, each for a while.
async fn seconds(waits: &[(Awaited, u32, u64)]) -> f64 {
    let begun = Instant::now();
    let mut lateness = Lateness::since(begun, Arc::new(LIMITS));
    for &(awaited, moves, millis) in waits {
        let late = poll_fn(|cx| lateness.poll((awaited, moves), None, cx));
        if tokio::time::timeout(Duration::from_millis(millis), late).await.is_ok() {
            break;
        }
    }
    begun.elapsed().as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn each_wait_has_its_limit() {
    use Awaited::{Answer, Body, Head, Next, Nothing, Taking};
    let near = |took: f64, expected: f64| assert!((took - expected).abs() < 0.01, "{took}");
    near(seconds(&[(Head, 0, 99_000)]).await, 1.0);
    near(seconds(&[(Body, 1, 99_000)]).await, 2.0);
    near(seconds(&[(Taking, 1, 99_000)]).await, 3.0);
    near(seconds(&[(Next, 1, 99_000)]).await, 5.0);
    near(seconds(&[(Answer, 1, 99_000)]).await, 60.0);
    near(seconds(&[(Nothing, 1, 99_000)]).await, 99.0);
    // A shorter wait after a longer one, for which the timer was set.
    near(seconds(&[(Next, 1, 1000), (Head, 1, 99_000)]).await, 2.0);
    // What goes on is not late.
    near(seconds(&[(Body, 1, 1900), (Body, 2, 1900), (Body, 3, 99_000)]).await, 5.8);
    // A head is to be whole in time, however often something of it comes.
    near(seconds(&[(Head, 0, 500), (Head, 0, 400), (Head, 0, 99_000)]).await, 1.0);
    near(seconds(&[(Next, 1, 4900), (Nothing, 2, 9000), (Next, 3, 99_000)]).await, 18.9);
}

/// Seconds until a body is cut off of which so many bytes come each second, but for some pauses.
async fn body_seconds(bytes_per_second: u64, pauses: &[u64]) -> f64 {
    let (begun, mut bytes, mut moves) = (Instant::now(), 0, 0);
    let mut lateness = Lateness::since(begun, Arc::new(LIMITS));
    for second in 0..100 {
        let (second_of_wait, nothing) = (Duration::from_secs(1), (Awaited::Nothing, moves));
        if pauses.contains(&second) {
            let busy = poll_fn(|cx| lateness.poll(nothing, None, cx));
            let _over = tokio::time::timeout(second_of_wait, busy).await;
            continue;
        }
        let progress = Some(BodyProgress { request: 1, bytes });
        let late = poll_fn(|cx| lateness.poll((Awaited::Body, moves), progress, cx));
        if let Ok(late) = tokio::time::timeout(second_of_wait, late).await {
            assert_eq!(late, Awaited::BodyRate);
            break;
        }
        (bytes, moves) = (bytes + bytes_per_second, moves + 1);
    }
    begun.elapsed().as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn a_body_keeps_to_the_least_rate() {
    let near = |took: f64, expected: f64| assert!((took - expected).abs() < 0.01, "{took}");
    near(body_seconds(100, &[]).await, 100.0);
    // Two seconds are free, and then each second needs a hundred bytes.
    near(body_seconds(60, &[]).await, 3.8);
    near(body_seconds(1, &[]).await, 2.02);
    // Time in which nobody asked for more does not count.
    near(body_seconds(60, &[1, 2]).await, 5.8);
}

#[tokio::test(start_paused = true)]
async fn each_request_is_measured_by_itself() {
    let mut lateness = Lateness::since(Instant::now(), Arc::new(LIMITS));
    for request in 1..=3 {
        let progress = Some(BodyProgress { request, bytes: 0 });
        let body = (Awaited::Body, request);
        let late = poll_fn(|cx| lateness.poll(body, progress, cx));
        let wait = Duration::from_millis(1900);
        assert!(tokio::time::timeout(wait, late).await.is_err(), "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_idle_is_asked_to_end_before_it_is_dropped() {
    struct Idle;
    impl Pulse for Idle {
        fn forget(&self) {}
        fn feel(&self) -> (Awaited, u32) {
            (Awaited::Next, 0)
        }
    }
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let ask = |_: Pin<&mut Pending<()>>| ASKED.store(1, Ordering::Relaxed);
    let (begun, stop) = (Instant::now(), CancellationToken::new());
    let watcher = GracefulShutdown::new().watcher();
    let terms =
        Terms { listener: Listener::Public, limits: Arc::new(LIMITS), begun, stop, watcher };
    let ended = terms.over(pending(), ask, Idle).await;
    assert_eq!((ended, ASKED.load(Ordering::Relaxed)), (None, 1));
    assert_eq!(begun.elapsed().as_secs(), 10);
}
