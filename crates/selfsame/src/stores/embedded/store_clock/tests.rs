use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Ask, Claimed, Recorded, Recover, Store, Sweep};
use tempfile::TempDir;

use super::super::machine_clocks::BootId;
use super::super::{EmbeddedOptions, EmbeddedStore, Leases, OpenError};
use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);
const SECOND: Duration = Duration::from_secs(1);
const NOON: u64 = 1_767_225_600_000;

/// Clocks that a test sets.
struct Clocks {
    readings: Mutex<Readings>,
}

#[derive(Clone, Copy)]
struct Readings {
    monotonic: Duration,
    wall: Timestamp,
    since_boot: Option<SinceBoot>,
}

impl Clocks {
    fn new() -> Arc<Self> {
        let since_boot = Some(SinceBoot { boot: BootId([1; 16]), elapsed: HOUR });
        let wall = Timestamp::from_millis(NOON);
        let readings = Readings { monotonic: Duration::ZERO, wall, since_boot };
        Arc::new(Self { readings: Mutex::new(readings) })
    }

    fn pass(&self, time: Duration) {
        self.readings.lock().monotonic += time;
        self.suspend(time);
    }

    fn suspend(&self, time: Duration) {
        let mut readings = self.readings.lock();
        readings.wall = readings.wall + time;
        if let Some(since_boot) = &mut readings.since_boot {
            since_boot.elapsed += time;
        }
    }

    fn set_wall(&self, by_hours: i64) {
        let mut readings = self.readings.lock();
        readings.wall = shifted(readings.wall, by_hours * signed_millis(HOUR));
    }

    fn boot(&self, off: Duration) {
        let mut readings = self.readings.lock();
        readings.wall = readings.wall + off;
        let id = readings.since_boot.map_or(0, |since_boot| since_boot.boot.0[0]);
        readings.since_boot = Some(SinceBoot { boot: BootId([id + 1; 16]), elapsed: SECOND });
    }

    fn forget_boot(&self) {
        self.readings.lock().since_boot = None;
    }
}

impl MachineClocks for Clocks {
    fn monotonic(&self) -> Duration {
        self.readings.lock().monotonic
    }

    fn wall(&self) -> Timestamp {
        self.readings.lock().wall
    }

    fn since_boot(&self) -> Option<SinceBoot> {
        self.readings.lock().since_boot
    }
}

fn started(clocks: &Arc<Clocks>, kept: Option<KeptTime>) -> StoreClock {
    let clock = StoreClock::new(clocks.clone());
    clock.start(kept, StartRules::default()).expect("no gap is refused");
    clock
}

fn minutes(time: Duration) -> u64 {
    (time.as_secs() + 30) / 60
}

/// Minutes that passed for the store between two starts, one true hour apart, with the wall clock
/// set by so many hours meanwhile.
fn minutes_between_starts(set_by_hours: i64, is_other_boot: bool) -> u64 {
    let clocks = Clocks::new();
    let clock = started(&clocks, None);
    let kept = clock.to_keep();
    match is_other_boot {
        true => clocks.boot(HOUR),
        false => clocks.pass(HOUR),
    }
    clocks.set_wall(set_by_hours);
    let next = started(&clocks, Some(kept));
    assert!(next.now() > kept.store);
    minutes(next.now().since(kept.store))
}

#[test]
fn within_a_boot_true_time_passes_between_two_starts_whatever_the_wall_clock_shows() {
    for set_by_hours in [0, 1, -1, 25, -25] {
        assert_eq!(minutes_between_starts(set_by_hours, false), 60, "{set_by_hours} h");
    }
}

#[test]
fn in_another_boot_the_store_follows_the_wall_clock_and_never_goes_back() {
    for (set_by_hours, expected) in [(0, 60), (1, 120), (-1, 0), (25, 26 * 60), (-25, 0)] {
        assert_eq!(minutes_between_starts(set_by_hours, true), expected, "{set_by_hours} h");
    }
}

#[test]
fn without_a_boot_id_each_start_is_one_of_another_boot() {
    let clocks = Clocks::new();
    clocks.forget_boot();
    let kept = started(&clocks, None).to_keep();
    clocks.pass(HOUR);
    clocks.set_wall(-2);
    let next = started(&clocks, Some(kept));
    assert_eq!(next.now(), kept.store + KEEP_EVERY);
}

#[test]
fn a_step_while_running_is_kept_as_the_offset_for_the_next_boot() {
    for set_by_hours in [1, -1, 25, -25] {
        let clocks = Clocks::new();
        let clock = started(&clocks, None);
        let begun = clock.now();
        clock.kept(&clock.to_keep());
        assert!(!clock.is_overdue());
        clocks.pass(SECOND);
        clocks.set_wall(set_by_hours);
        clock.check();
        assert!(clock.is_overdue(), "the log does not know of it");
        assert_eq!(clock.now(), begun + SECOND);
        assert_eq!(clock.offset_ms(), set_by_hours * signed_millis(HOUR));
        let kept = clock.to_keep();
        clock.kept(&kept);
        assert!(!clock.is_overdue());
        clocks.boot(2 * HOUR);
        let next = started(&clocks, Some(kept));
        assert_eq!(minutes(next.now().since(begun)), 120, "{set_by_hours} h");
    }
}

#[test]
fn a_small_offset_is_given_up_by_the_next_boot() {
    let clocks = Clocks::new();
    let clock = started(&clocks, None);
    clocks.readings.lock().wall = Timestamp::from_millis(NOON + 50_000);
    clock.check();
    let kept = clock.to_keep();
    clocks.boot(HOUR);
    let next = started(&clocks, Some(kept));
    // Not at once: no lease ends early for it.
    assert!(next.is_behind());
    assert_eq!(next.now(), kept.store + HOUR);
    next.catch_up();
    assert_eq!(next.now(), clocks.wall());
}

#[test]
fn a_suspension_counts_when_the_store_catches_up() {
    let clocks = Clocks::new();
    let clock = started(&clocks, None);
    let begun = clock.now();
    clocks.suspend(8 * HOUR);
    clock.check();
    assert_eq!(clock.now(), begun);
    assert!(clock.is_behind() && clock.is_overdue());
    for is_other_boot in [false, true] {
        let clocks = Arc::new(Clocks { readings: Mutex::new(*clocks.readings.lock()) });
        let kept = clock.to_keep();
        match is_other_boot {
            true => clocks.boot(HOUR),
            false => clocks.pass(HOUR),
        }
        let next = started(&clocks, Some(kept));
        assert_eq!(minutes(next.now().since(begun)), 60);
        next.catch_up();
        assert_eq!(minutes(next.now().since(begun)), 9 * 60);
        assert!(!next.is_behind());
        next.check();
        assert_eq!(next.offset_ms(), 0);
    }
}

#[test]
fn a_gap_between_boots_is_refused_where_that_was_asked_for() {
    let clocks = Clocks::new();
    let kept = started(&clocks, None).to_keep();
    clocks.boot(25 * HOUR);
    let start = |rules| StoreClock::new(clocks.clone()).start(Some(kept), rules);
    let rules = StartRules { gap_max: Some(24 * HOUR), ..StartRules::default() };
    assert_eq!(start(rules), Err(TooLongGap { kept: kept.wall, wall: clocks.wall() }));
    assert_eq!(start(StartRules { gap_max: Some(26 * HOUR), ..rules }), Ok(()));
    assert_eq!(start(StartRules { adopts_wall: true, ..rules }), Ok(()));
}

fn options(clocks: &Arc<Clocks>) -> EmbeddedOptions {
    EmbeddedOptions::default().leases(Leases::Keep).machine_clocks(clocks.clone())
}

fn open(folder: &TempDir, clocks: &Arc<Clocks>) -> EmbeddedStore {
    EmbeddedStore::open(folder.path(), options(clocks)).expect("the folder is the test's own")
}

async fn claim(store: &EmbeddedStore, ask: &Ask) -> Claimed {
    store.claim(ask).await.expect("the store works")
}

async fn complete(store: &EmbeddedStore, ask: &Ask) {
    let Claimed::Run(grant) = claim(store, ask).await else { panic!("it is new") };
    let recorded = store.complete(&grant.lease, &answer("done")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))));
}

/// The clock was a day behind at the start, and was set right while the gateway served.
#[tokio::test]
async fn a_young_key_outlives_a_clock_that_was_set_right() {
    for is_closed in [true, false] {
        let (folder, clocks) = (TempDir::new().expect("a folder"), Clocks::new());
        let first = Ask { retention: 24 * HOUR, ..ask("young") };
        let store = open(&folder, &clocks);
        complete(&store, &first).await;
        clocks.set_wall(25);
        // Nothing more is written but by the reaper.
        store.sweep(10).await.expect("the store works");
        let crashed = TempDir::new().expect("a folder");
        copy(folder.path(), crashed.path());
        drop(store);
        clocks.boot(SECOND);
        let store = open(if is_closed { &folder } else { &crashed }, &clocks);
        store.sweep(10).await.expect("the store works");
        assert!(matches!(claim(&store, &retry(&first)).await, Claimed::Replay(_)), "{is_closed}");
        assert_eq!(store.clock_offset_ms() / signed_millis(HOUR), 25);

        drop(store);
        let adopting = options(&clocks).adopt_wall_clock();
        drop(EmbeddedStore::open(folder.path(), adopting).expect("it opens"));
        let store = open(&folder, &clocks);
        assert_eq!(store.clock_offset_ms(), 0);
        if is_closed {
            assert!(matches!(claim(&store, &retry(&first)).await, Claimed::Run(_)));
        }
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("it is there") {
        let path = entry.expect("readable").path();
        let copied = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &copied),
            false => match std::fs::copy(&path, &copied) {
                // Threads of the store take files away meanwhile.
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
                _ => {}
            },
        }
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_between_two_starts_prolongs_no_lease() {
    for is_other_boot in [false, true] {
        let (folder, clocks) = (TempDir::new().expect("a folder"), Clocks::new());
        let first = Ask { recover: Recover::Resume, lease: 30 * SECOND, ..ask("k") };
        let store = open(&folder, &clocks);
        complete(&store, &ask("other")).await;
        clocks.pass(SECOND / 2);
        let claimed = claim(&store, &first).await;
        assert!(matches!(claimed, Claimed::Run(_)), "{claimed:?}");
        let crashed = TempDir::new().expect("a folder");
        copy(folder.path(), crashed.path());
        drop(store);
        if is_other_boot {
            clocks.boot(SECOND);
        }
        clocks.set_wall(-1);
        let store = open(&crashed, &clocks);
        assert!(matches!(claim(&store, &retry(&first)).await, Claimed::Busy { .. }));
        clocks.pass(30 * SECOND);
        assert!(matches!(claim(&store, &retry(&first)).await, Claimed::Run(_)));
    }
}

#[tokio::test]
async fn a_suspension_ends_no_lease_and_counts_for_keys_when_no_work_is_under_way() {
    let (folder, clocks) = (TempDir::new().expect("a folder"), Clocks::new());
    let store = open(&folder, &clocks);
    let old = Ask { retention: 2 * HOUR, ..ask("old") };
    complete(&store, &old).await;
    let running = Ask { lease: 30 * SECOND, ..ask("running") };
    let Claimed::Run(grant) = claim(&store, &running).await else { panic!("it is new") };
    clocks.suspend(8 * HOUR);
    store.sweep(10).await.expect("the store works");
    assert!(matches!(claim(&store, &retry(&running)).await, Claimed::Busy { .. }));
    assert!(matches!(claim(&store, &retry(&old)).await, Claimed::Replay(_)));
    clocks.pass(2 * SECOND);
    let recorded = store.complete(&grant.lease, &answer("done")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))));
    clocks.pass(2 * SECOND);
    complete(&store, &ask("next")).await;
    assert!(matches!(claim(&store, &retry(&old)).await, Claimed::Run(_)));
}

/// The time is kept though segments go, and though the index is lost.
#[tokio::test]
async fn the_time_outlives_the_segments_that_kept_it() {
    let (folder, clocks) = (TempDir::new().expect("a folder"), Clocks::new());
    let store = open(&folder, &clocks);
    clocks.set_wall(25);
    for round in 0..3 {
        for at in 0..24 {
            let large = Ask { retention: HOUR, ..ask(&format!("{round}-{at}")) };
            let Claimed::Run(grant) = claim(&store, &large).await else { panic!("it is new") };
            let recorded = store.complete(&grant.lease, &answer(vec![7; 1024 * 1024])).await;
            assert!(matches!(recorded, Ok(Recorded::Until(_))));
        }
        clocks.pass(2 * HOUR);
        while !store.sweep(1000).await.expect("the store works").finished {}
    }
    assert!(store.records.segments.oldest() > 1);
    let oldest = format!("records-{:08}.log", store.records.segments.oldest() - 1);
    while folder.path().join(&oldest).exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let kept = store.records.clock.now();
    let crashed = TempDir::new().expect("a folder");
    copy(folder.path(), crashed.path());
    drop(store);
    std::fs::remove_dir_all(crashed.path().join("index")).expect("it is there");
    let store = open(&crashed, &clocks);
    assert_eq!(store.records.clock.now(), kept);
}

#[test]
fn a_store_says_which_gap_it_refuses() {
    let (folder, clocks) = (TempDir::new().expect("a folder"), Clocks::new());
    drop(open(&folder, &clocks));
    clocks.boot(25 * HOUR);
    let strict = options(&clocks).clock_gap_max(24 * HOUR);
    let refused = EmbeddedStore::open(folder.path(), strict.clone()).expect_err("a gap");
    assert!(matches!(&refused, OpenError::ClockGap { .. }), "{refused}");
    assert!(refused.to_string().contains("Fri, 02 Jan 2026 01:00:00 GMT"), "{refused}");
    // Who only looks does not make it count.
    drop(EmbeddedStore::open(folder.path(), options(&clocks).leave_kept_time()).expect("opened"));
    EmbeddedStore::open(folder.path(), strict.clone()).expect_err("a gap");
    drop(EmbeddedStore::open(folder.path(), strict.clone().adopt_wall_clock()).expect("adopted"));
    drop(EmbeddedStore::open(folder.path(), strict).expect("it is the same boot"));
}

#[tokio::test]
async fn a_repair_goes_on_from_the_time_that_was_kept_and_never_goes_back() {
    for keeps_time in [true, false] {
        let (folder, clocks) = (TempDir::new().expect("a folder"), Clocks::new());
        let store = open(&folder, &clocks);
        clocks.pass(HOUR);
        let Claimed::Run(grant) = claim(&store, &ask("done")).await else { panic!("it is new") };
        let recorded = store.complete(&grant.lease, &answer("done")).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))));
        let before = store.records.clock.now();
        drop(store);
        let log = folder.path().join("records-00000001.log");
        let mut bytes = std::fs::read(&log).expect("readable");
        bytes[..8].fill(0);
        while let Some(at) = bytes.windows(3).position(|head| head == [0xf5, 0x5e, 8])
            && !keeps_time
        {
            bytes[at] = 0;
        }
        std::fs::write(&log, bytes).expect("writable");
        std::fs::remove_dir_all(folder.path().join("index")).expect("it is there");

        clocks.set_wall(-25);
        let repair = crate::stores::RepairOptions::default();
        let repaired = EmbeddedStore::repair(folder.path(), options(&clocks), repair).await;
        assert_eq!(repaired.expect("it works").expect("it was damaged").completed, 1);
        let store = open(&folder, &clocks);
        assert_eq!(store.records.clock.now(), before, "{keeps_time}");
        let day = Duration::from_secs(24 * 60 * 60);
        assert_eq!(store.health().closed_for(), Some(day));
        clocks.pass(day);
        assert_eq!(store.health().closed_for(), None);
    }
}
