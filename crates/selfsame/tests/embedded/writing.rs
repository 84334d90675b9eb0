//! Batches that share a sync, and calls that get no answer in time.

use super::*;

/// How many batches were written: each frame's head has its payload's length and its batch's number.
fn batches(folder: &TempDir) -> u64 {
    let log = fs::read(only_segment(folder)).expect("the log is there");
    let (mut at, mut last) = (28, 0);
    while log[at..at + 2] == [0xf5, 0x5e] {
        let payload = u32::from_le_bytes(log[at + 4..at + 8].try_into().expect("4 bytes"));
        last = u64::from_le_bytes(log[at + 12..at + 20].try_into().expect("8 bytes"));
        at += 68 + payload as usize;
    }
    last
}

#[tokio::test]
async fn many_callers_share_a_sync() {
    let folder = folder();
    let store = open(&folder);
    let asks: Vec<_> = (0..256).map(|at| ask(&format!("key-{at}"))).collect();
    join_all(asks.iter().map(|ask| run(&store, ask))).await;
    let batches = batches(&folder);
    assert!((1..64).contains(&batches), "256 claims took {batches} batches");
}

#[tokio::test]
async fn a_write_without_an_answer_in_time_may_have_landed() {
    let folder = folder();
    let store = reopen(&folder, EmbeddedOptions::default().time_out(Duration::from_millis(1)));
    let error =
        store.set_fact("name", &vec![7; 64 * 1024 * 1024]).await.expect_err("no disk is so fast");
    assert_eq!(error.kind(), StoreErrorKind::MayHaveLanded);
}

#[tokio::test]
async fn an_answer_larger_than_a_segment_has_one_of_its_own() {
    let folder = folder();
    let store = open(&folder);
    let before = complete(&store, "before").await;
    let body = vec![7; 5 * 1024 * 1024];
    let large = complete_with(&store, "large", &body).await;
    let behind = complete(&store, "behind").await;
    for store in [store, open(&copy_of(&folder))] {
        assert!(is_replayed(&store, &before).await && is_replayed(&store, &behind).await);
        let claimed = store.claim(&retry(&large)).await.expect("the store works");
        assert!(
            matches!(claimed, Claimed::Replay(replay) if replay.answer == answer(body.clone()))
        );
    }
    assert!(segments(&folder).len() > 1);
}

#[tokio::test]
async fn many_large_answers_at_once_are_written_in_parts() {
    let folder = folder();
    // A slow disk takes long for hundreds of syncs.
    let patient = EmbeddedOptions::default().time_out(Duration::from_secs(120));
    let store = reopen(&folder, patient);
    let body = vec![7; 12 * 1024 * 1024];
    let asks: Vec<_> = (0..8).map(|at| ask(&format!("key-{at}"))).collect();
    let leases = join_all(asks.iter().map(|ask| run(&store, ask))).await;
    let answer = answer(body.clone());
    let recorded = join_all(leases.iter().map(|lease| store.complete(lease, &answer))).await;
    assert!(recorded.iter().all(|recorded| matches!(recorded, Ok(Recorded::Until(_)))));
    drop(store);
    let store = open(&folder);
    for ask in &asks {
        let claimed = store.claim(&retry(ask)).await.expect("the store works");
        assert!(matches!(claimed, Claimed::Replay(replay) if replay.answer == answer));
    }
}
