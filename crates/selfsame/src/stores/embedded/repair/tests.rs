//! A repair that is killed at any step.

use std::fs;

use selfsame_core::conformance::samples::{answer, ask, retry};
use selfsame_core::{Ask, Claimed, Recorded, Store};
use tempfile::TempDir;

use super::*;

/// A damaged store that has answered `done`, and whose answer to `lost` cannot be found.
async fn damaged() -> (TempDir, Ask, Ask) {
    let folder = TempDir::new().expect("a folder");
    let store = EmbeddedStore::open(folder.path(), EmbeddedOptions::default()).expect("opened");
    let asks = [ask("lost"), ask("done")];
    for ask in &asks {
        let Ok(Claimed::Run(grant)) = store.claim(ask).await else { panic!("it is new") };
        let recorded = store.complete(&grant.lease, &answer("done")).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))));
    }
    drop(store);
    let log = folder.path().join("records-00000001.log");
    let mut bytes = fs::read(&log).expect("readable");
    while let Some(at) = bytes.windows(32).position(|window| window == asks[0].id.as_bytes()) {
        bytes[at - 32..at + 32].fill(0);
    }
    fs::write(log, bytes).expect("writable");
    fs::remove_dir_all(folder.path().join("index")).expect("it is there");
    fs::create_dir(folder.path().join("spool")).expect("writable");
    fs::write(folder.path().join("spool/waiting"), "an answer").expect("writable");
    let [lost, done] = asks;
    (folder, done, lost)
}

fn open(folder: &TempDir) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(folder.path(), EmbeddedOptions::default())
}

async fn repair(folder: &TempDir) -> Option<Repaired> {
    let (options, repair) = (EmbeddedOptions::default(), RepairOptions::default());
    EmbeddedStore::repair(folder.path(), options, repair).await.expect("it can be repaired")
}

/// The repair is done: what is known is answered, and nothing else runs.
async fn assert_repaired(folder: &TempDir, done: &Ask, lost: &Ask) {
    let store = open(folder).expect("it is repaired");
    assert!(matches!(store.claim(&retry(done)).await, Ok(Claimed::Replay(_))));
    let refused = store.claim(&retry(lost)).await.expect_err("it may have run");
    assert!(refused.is_of_lost_records(), "{refused}");
    for left in ["repair", "repair.new", "repairing"] {
        assert!(!folder.path().join(left).exists(), "{left}");
    }
    assert!(folder.path().join("spool/waiting").exists(), "what is not of the store stays");
}

#[tokio::test]
async fn a_repair_that_is_killed_at_any_step_is_finished_and_nobody_serves_before() {
    let mut steps = 0;
    for kill_at in 0.. {
        let (folder, done, lost) = damaged().await;
        let locked = Folder::open(folder.path()).expect("nobody has it");
        let job = Job {
            folder: &locked,
            source: folder.path(),
            command: Command::Repair,
            options: EmbeddedOptions::default(),
            repair: RepairOptions::default(),
        };
        job.build().await.expect("it can be built");
        let mut is_over = false;
        for _ in 0..kill_at {
            is_over |= swap::step(folder.path()).expect("it works").is_some();
            if is_over {
                break;
            }
        }
        drop(locked);
        if is_over {
            assert_repaired(&folder, &done, &lost).await;
            break;
        }
        let refused = open(&folder).expect_err("it is not finished");
        assert!(matches!(refused, OpenError::Unfinished { .. }), "{kill_at} steps: {refused}");
        let repaired = repair(&folder).await.expect("it was damaged");
        assert_eq!((repaired.completed, repaired.damaged_places), (1, 2), "{repaired:?}");
        assert!(repaired.set_aside.is_some_and(|folder| folder.join("facts").exists()));
        assert_repaired(&folder, &done, &lost).await;
        steps += 1;
    }
    assert!(steps > 6, "{steps} steps");
}

#[tokio::test]
async fn a_repair_that_was_killed_while_it_built_begins_anew() {
    let (folder, done, lost) = damaged().await;
    Marker::new(Command::Repair, Phase::Build).write(folder.path()).expect("written");
    let new = swap::new_folder(folder.path());
    drop(EmbeddedStore::open(&new, EmbeddedOptions::default()).expect("half of a store"));
    fs::write(new.join("records-00000007.log"), "half a file").expect("written");
    assert!(matches!(open(&folder), Err(OpenError::Unfinished { .. })));
    assert_eq!(repair(&folder).await.expect("it was damaged").completed, 1);
    assert_repaired(&folder, &done, &lost).await;
}

#[tokio::test]
async fn a_restore_that_is_killed_never_leaves_an_empty_store() {
    let (backup, done, lost) = damaged().await;
    let folder = TempDir::new().expect("a folder");
    let locked = Folder::open(folder.path()).expect("nobody has it");
    Marker::new(Command::Restore, Phase::Build).write(folder.path()).expect("written");
    drop(locked);
    assert!(matches!(open(&folder), Err(OpenError::Unfinished { .. })));
    let (options, with) = (EmbeddedOptions::default, RepairOptions::default);
    let other = EmbeddedStore::repair(folder.path(), options(), with()).await;
    assert!(matches!(other, Err(RepairError::Open(OpenError::Unfinished { .. }))), "{other:?}");
    assert!(matches!(open(&folder), Err(OpenError::Unfinished { .. })));
    let restored = EmbeddedStore::restore(backup.path(), folder.path(), options(), with()).await;
    assert_eq!(restored.expect("it can be restored").completed, 1);
    fs::create_dir(folder.path().join("spool")).expect("writable");
    fs::write(folder.path().join("spool/waiting"), "an answer").expect("writable");
    assert_repaired(&folder, &done, &lost).await;
}

#[test]
fn a_marker_is_read_as_it_was_written() {
    let repaired = Repaired {
        completed: 1,
        held: 2,
        newly_held: 3,
        tombstones: 4,
        damaged: 5,
        expired: 6,
        damaged_places: 7,
        first_places: vec!["records-00000001.log, bytes 1 to 2".to_owned()],
        closed_for: Duration::from_secs(8),
        set_aside: Some("damaged".into()),
    };
    let marker = Marker { repaired, ..Marker::new(Command::Restore, Phase::In) };
    let folder = TempDir::new().expect("a folder");
    assert_eq!(Marker::read(folder.path()).expect("readable"), None);
    marker.write(folder.path()).expect("written");
    assert_eq!(Marker::read(folder.path()).expect("readable"), Some(marker));
    fs::write(folder.path().join("repair"), "something else").expect("written");
    assert!(Marker::read(folder.path()).is_err());
    assert!(refuse_unfinished(folder.path()).is_err());
}
