//! The service is killed, and stopped, wherever it can hurt. Every ride is finished once.

mod stage;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rocket_rides::simulator::{Settings, order_until_answered, simulate};
use rocket_rides::stops::POINTS;
use stage::{ONCE, Process, Stage, free_address};
use tokio::task::spawn_blocking;

/// How often the service is killed at random: 20 times, unless this says otherwise.
const KILLS: &str = "ROCKET_RIDES_KILLS";

/// What `kill` waits for, on a thread where that is allowed.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.expect("it does not panic")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ride_that_is_killed_anywhere_is_finished_once() {
    let stage = Stage::set();
    for point in POINTS {
        let rider = point.replace([':', ' '], "");
        let service = stage.service("127.0.0.1:0", Some(point));
        let address = service.address.clone();
        let unanswered = async {
            let answer = order_until_answered(&address, &rider);
            tokio::time::timeout(Duration::from_secs(1), answer).await
        };
        let (unanswered, stopped_at) =
            tokio::join!(unanswered, blocking(move || (service.next_line(), service)));
        assert!(unanswered.is_err(), "{point}: nobody was answered");
        let (line, service) = stopped_at;
        assert_eq!(line, format!("stopped at {point}"));
        service.kill();

        let service = stage.service("127.0.0.1:0", None);
        let answer = order_until_answered(&service.address, &rider).await;
        assert_eq!(answer.0, 201, "{point}");
        assert_eq!(stage.done_for(&rider), ONCE, "{point}");
        assert_eq!(order_until_answered(&service.address, &rider).await, answer, "{point}");
        assert_eq!(stage.done_for(&rider), ONCE, "{point}");
    }
    let resumed = stage.rides("select count(*) from selfsame.keys where attempt > 1");
    assert_eq!(
        resumed, "7",
        "only the one that was killed behind its last commit did not run again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rides_are_finished_once_however_often_the_service_is_killed() {
    let kills: usize = match std::env::var(KILLS) {
        Ok(kills) => kills.parse().expect("a number of kills"),
        Err(_) => 20,
    };
    let stage = Stage::set();
    let address = free_address();
    let settings =
        Settings { service: format!("http://{address}"), rides: usize::MAX, riders: 8, seed: 7 };
    let is_over = AtomicBool::new(false);
    let killing = async {
        for kill in 0..kills {
            let service = stage.service(&address, None);
            // Some come early, some late.
            tokio::time::sleep(Duration::from_millis(40 + (kill as u64 * 97) % 400)).await;
            service.kill();
        }
        is_over.store(true, Ordering::Relaxed);
        stage.service(&address, None)
    };
    let (report, _service): (_, Process) =
        tokio::join!(simulate(&settings, || is_over.load(Ordering::Relaxed)), killing);
    let resumed = stage.rides("select count(*) from selfsame.keys where attempt > 1");
    println!("{kills} kills: {report}; {resumed} rides were resumed");

    assert!(report.rides >= 8 && report.hung_up > 0, "{report}");
    assert_ne!(resumed, "0", "no kill met a ride");
    assert_eq!(report.differing, 0);
    let rides = "select count(*), count(distinct rider) from rides where state = 'finished'";
    assert_eq!(stage.rides(rides), format!("{0}|{0}", report.rides), "one ride for each rider");
    assert_eq!(stage.rides("select count(*) from rides where state <> 'finished'"), "0");
    let charges = "select count(*), count(distinct rider) from charges";
    assert_eq!(stage.cards(charges), format!("{0}|{0}", report.rides), "one charge for each rider");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_stopped_past_its_lease_commits_nothing() {
    let stage = Stage::set();
    let fresh = stage.service("127.0.0.1:0", None);
    for point in ["ride_created: inside", "charge_created: charged", "finished: inside"] {
        let rider = point.replace([':', ' '], "");
        let stale = stage.service("127.0.0.1:0", Some(point));
        let (address, asked) = (stale.address.clone(), rider.clone());
        let waiting = tokio::task::JoinSet::from_iter([async move {
            order_until_answered(&address, &asked).await
        }]);
        let (line, stale) = blocking(move || (stale.next_line(), stale)).await;
        assert_eq!(line, format!("stopped at {point}"));

        let going_on = async {
            let attempt = format!("select attempt from selfsame.keys where key = '{rider}'");
            while stage.rides(&attempt) != "2" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            stale.go_on();
        };
        let (answer, ()) = tokio::join!(order_until_answered(&fresh.address, &rider), going_on);
        assert_eq!(answer.0, 201, "{point}");
        assert_eq!(waiting.join_all().await, [answer], "{point}: it tells what the other answered");
        assert_eq!(stage.done_for(&rider), ONCE, "{point}");
        let metrics = metrics(&stale.address).await;
        let fenced = metrics.lines().find(|line| line.starts_with("selfsame_fenced_writes_total "));
        assert!(fenced.is_some_and(|line| !line.ends_with(" 0")), "{point}: {metrics}");
    }
    assert_eq!(
        stage.cards("select max(times_asked) from charges"),
        "2",
        "the processor knew its key"
    );
}

async fn metrics(address: &str) -> String {
    use http_body_util::{BodyExt, Empty};
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;

    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
    let url = format!("{address}/metrics").parse().expect("an address");
    let body = client.get(url).await.expect("it answers").into_body().collect().await;
    String::from_utf8_lossy(&body.expect("whole").to_bytes()).into_owned()
}
