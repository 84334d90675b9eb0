use std::net::Ipv4Addr;

use tokio::task::JoinHandle;

use super::*;
use crate::background;

/// One worker's tasks, and the order in which they were polled.
struct Worker {
    share: Arc<FairShare>,
    polled: Arc<Mutex<Vec<&'static str>>>,
}

fn address(last: u8) -> Arc<BusyTime> {
    Arc::new(BusyTime::new(ClientAddress::V4(Ipv4Addr::new(192, 0, 2, last))))
}

impl Worker {
    fn new() -> Self {
        let share = FairShare::for_each(1).next().expect("one worker");
        let (serving, polled) = (share.clone(), Arc::default());
        background::spawn(async move { serving.run().await });
        Self { share, polled }
    }

    /// An address whose tasks have taken this much time.
    fn busy(&self, last: u8, busy: Duration) -> Arc<BusyTime> {
        let address = address(last);
        address.add(self.share.half_life_at(Instant::now()), busy);
        address
    }

    /// Makes a task ready that is polled once.
    fn spawn(&self, name: &'static str, address: Option<&Arc<BusyTime>>) -> JoinHandle<()> {
        let polled = self.polled.clone();
        let once = async move { polled.lock().push(name) };
        background::spawn(self.share.schedule(address.cloned(), once))
    }

    /// Makes 100 tasks of `busy` ready and one of `other`. Returns how many were polled before that one.
    async fn polled_before(&self, busy: &Arc<BusyTime>, other: Option<&Arc<BusyTime>>) -> usize {
        self.polled.lock().clear();
        let mut tasks: Vec<_> = (0..100).map(|_| self.spawn("busy", Some(busy))).collect();
        tasks.push(self.spawn("other", other));
        for task in tasks {
            task.await.expect("it does not panic");
        }
        let polled = self.polled.lock();
        assert_eq!(polled.len(), 101, "nobody waits for ever");
        polled.iter().position(|name| *name == "other").expect("it was polled")
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_busy_address_are_polled_after_others() {
    let worker = Worker::new();
    let busy = worker.busy(1, SHARE * 2);
    let before = worker.polled_before(&busy, Some(&address(2))).await;
    assert!(before <= 1, "{before}");
}

#[tokio::test(start_paused = true)]
async fn of_two_busy_addresses_the_less_busy_one_is_polled_first() {
    let worker = Worker::new();
    let (more, less) = (worker.busy(1, SHARE * 20), worker.busy(2, SHARE * 10));
    let before = worker.polled_before(&more, Some(&less)).await;
    assert!(before <= 1, "{before}");
}

#[tokio::test(start_paused = true)]
async fn an_address_within_its_share_waits_for_nobody() {
    let worker = Worker::new();
    let busy = worker.busy(1, SHARE);
    assert_eq!(worker.polled_before(&busy, Some(&address(2))).await, 100);
}

#[tokio::test(start_paused = true)]
async fn an_address_alone_waits_for_nobody() {
    let worker = Worker::new();
    let other = address(2);
    worker.spawn("other", Some(&other)).await.expect("polled");
    let busy = worker.busy(1, SHARE * 2);
    worker.spawn("busy", Some(&busy)).await.expect("polled");
    tokio::time::advance(CONTENDED_FOR).await;
    worker.share.note(Some(&busy), Instant::now());
    busy.add(worker.share.half_life_at(Instant::now()), SHARE * 1000);
    assert_eq!(worker.polled_before(&busy, Some(&other)).await, 100);
}

#[tokio::test(start_paused = true)]
async fn tasks_that_wait_go_on_once_their_address_is_alone() {
    let worker = Worker::new();
    let busy = worker.busy(1, SHARE * 2);
    worker.spawn("other", Some(&address(2))).await.expect("polled");
    let _tasks: Vec<_> = (0..100).map(|_| worker.spawn("busy", Some(&busy))).collect();
    tokio::task::yield_now().await;
    assert!(worker.polled.lock().len() < 10, "they wait");
    tokio::time::advance(CONTENDED_FOR).await;
    let mut turns = 0;
    while worker.polled.lock().len() < 101 {
        tokio::task::yield_now().await;
        turns += 1;
    }
    assert!(turns < 10, "{turns}");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_of_many_clients_never_waits() {
    let worker = Worker::new();
    let busy = worker.busy(1, SHARE * 2);
    let before = worker.polled_before(&busy, None).await;
    assert!(before <= 1, "{before}");
}

#[tokio::test(start_paused = true)]
async fn time_counts_less_the_longer_ago_it_was_taken() {
    let worker = Worker::new();
    let busy = worker.busy(1, SHARE * 4);
    let is_busy = || worker.share.is_busy(&busy, worker.share.half_life_at(Instant::now()));
    assert!(is_busy());
    tokio::time::advance(HALF_LIFE).await;
    assert!(is_busy());
    tokio::time::advance(HALF_LIFE).await;
    assert!(!is_busy());
    tokio::time::advance(HALF_LIFE * 100).await;
    assert_eq!(busy.in_half_life(worker.share.half_life_at(Instant::now())), 0);
}

#[test]
fn one_worker_of_many_is_enough_to_be_busy() {
    for workers in [1, 2, 50, 10_000_000] {
        let share = FairShare::for_each(workers).next().expect("one worker");
        let busy = address(1);
        busy.add(0, HALF_LIFE / 2);
        assert!(share.is_busy(&busy, 0), "{workers} workers");
    }
}

#[test]
fn time_has_an_upper_bound() {
    let busy = address(1);
    busy.add(0, Duration::from_secs(100));
    assert_eq!(busy.in_half_life(0), u32::MAX);
}

#[tokio::test(start_paused = true)]
async fn requests_in_the_foreground_count_until_they_end_and_not_for_long() {
    let share = FairShare::for_each(1).next().expect("one worker");
    assert!(!share.has_foreground());
    let (first, second) = (share.count_foreground(), share.count_foreground());
    drop(first);
    assert!(share.has_foreground());
    drop(second);
    assert!(!share.has_foreground());
    let waiting = share.count_foreground();
    tokio::time::advance(FOREGROUND_FOR).await;
    assert!(!share.has_foreground());
    let next = share.count_foreground();
    assert!(share.has_foreground());
    drop((waiting, next));
}
