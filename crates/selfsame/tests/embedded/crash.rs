//! What a power cut may leave of the log: everything that was acknowledged, and any part of what was
//! being written.

use super::*;

const SECTOR: usize = 512;

/// A log, and up to where it was written when each key's answer was acknowledged.
struct Written {
    log: Vec<u8>,
    keys: Vec<(Ask, usize)>,
}

impl Written {
    /// As it lies there while the store is open, so that nothing says it was closed.
    async fn by(bodies: &[usize]) -> (TempDir, Self) {
        let folder = folder();
        let store = open(&folder);
        let mut keys = Vec::new();
        for (at, body) in bodies.iter().enumerate() {
            let ask = complete_with(&store, &format!("key-{at}"), &vec![b'x'; *body]).await;
            keys.push((ask, written(&fs::read(only_segment(&folder)).expect("the log is there"))));
        }
        let log = fs::read(only_segment(&folder)).expect("the log is there");
        (folder, Self { log, keys })
    }

    /// Opens the store with this log: what was acknowledged before `cut` is there, and it can be
    /// written on.
    async fn assert_whole_before(&self, cut: usize, folder: &TempDir, log: &[u8]) {
        fs::write(only_segment(folder), log).expect("the log can be written");
        remove_index(folder);
        for round in 0..2 {
            let store = reopen(folder, EmbeddedOptions::default().leases(Leases::Keep));
            for (ask, _) in self.keys.iter().filter(|(_, end)| *end <= cut) {
                let claimed = store.claim(&retry(ask)).await;
                assert!(matches!(claimed, Ok(Claimed::Replay(_))), "cut at {cut}: {claimed:?}");
            }
            complete(&store, &format!("new-{round}")).await;
        }
        let store = open(folder);
        for round in 0..2 {
            assert!(is_replayed(&store, &ask(&format!("new-{round}"))).await, "cut at {cut}");
        }
    }
}

#[tokio::test]
async fn a_log_that_ends_anywhere_is_whole_up_to_there() {
    let (folder, written) = Written::by(&[10, 1500, 0, 700]).await;
    let end = written.keys.last().expect("there are keys").1;
    for cut in (28..end + 1).step_by(29) {
        for rest in [0, 0xff, 0xf5] {
            let mut log = written.log.clone();
            log[cut..end].fill(rest);
            written.assert_whole_before(cut, &folder, &log).await;
        }
    }
}

#[tokio::test]
async fn of_the_last_batch_any_sectors_may_be_missing() {
    let (folder, written) = Written::by(&[10, 6000]).await;
    let [(_, begin), (_, end)] = written.keys[..] else { panic!("two keys") };
    // The claim is a batch of its own: what is cut belongs to the completion.
    let begin = begin + SECTOR;
    for from in (begin..end).step_by(SECTOR) {
        for to in (from + 1..end + SECTOR).step_by(SECTOR) {
            let mut log = written.log.clone();
            log[from..to.min(end)].fill(0);
            written.assert_whole_before(from.min(begin), &folder, &log).await;
        }
    }
}

#[tokio::test]
async fn a_body_that_looks_like_a_log_is_none() {
    let (other, _) = Written::by(&[10; 5]).await;
    let body = fs::read(only_segment(&other)).expect("the log is there");
    let body = body[..written(&body)].to_vec();
    let folder = folder();
    let store = open(&folder);
    let first = complete(&store, "first").await;
    let lease = run(&store, &ask("second")).await;
    let end = written(&fs::read(only_segment(&folder)).expect("the log is there"));
    let recorded = store.complete(&lease, &answer(body)).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))));
    let mut torn = fs::read(only_segment(&folder)).expect("the log is there");
    drop(store);
    // Its batch is torn at its beginning, and its end is full of heads.
    torn[end..end + 8].fill(0);
    fs::write(only_segment(&folder), &torn).expect("the log can be written");
    remove_index(&folder);
    assert!(is_replayed(&open(&folder), &first).await);
}

#[tokio::test]
async fn what_an_earlier_attempt_left_behind_the_end_is_not_read() {
    let folder = folder();
    let store = open(&folder);
    let first = complete(&store, "first").await;
    let second = run(&store, &ask("second")).await;
    let end = written(&fs::read(only_segment(&folder)).expect("the log is there"));
    let recorded = store.complete(&second, &answer(vec![b'x'; 9000])).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))));
    let log = fs::read(only_segment(&folder)).expect("the log is there");
    drop(store);

    // The power went while the second's answer was being written; then something shorter was written there.
    let mut torn = log.clone();
    torn[end..end + 8].fill(0);
    fs::write(only_segment(&folder), &torn).expect("the log can be written");
    remove_index(&folder);
    let store = open(&folder);
    let third = complete(&store, "third").await;
    drop(store);
    let store = open(&folder);
    assert!(is_replayed(&store, &first).await && is_replayed(&store, &third).await);
    let count = store.count().await.expect("the store works");
    assert_eq!(count, Count { completed: 2, claimed: 1, ..Count::default() });
}
