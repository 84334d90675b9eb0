//! Commits that are shared, and the log that they are written to.

use super::*;

/// How often the log was committed to: a frame that ends a commit names the file's length.
fn commits(folder: &TempDir) -> usize {
    let log = fs::read(folder.path().join("records.db-wal")).expect("the log is there");
    let (head, frames) = log.split_at(32);
    let is_of_this_log = |frame: &&[u8]| frame[8..16] == head[16..24];
    let page_bytes = head[8..12].iter().fold(0, |bytes, &byte| bytes << 8 | usize::from(byte));
    let frames = frames.chunks_exact(24 + page_bytes).filter(is_of_this_log);
    frames.filter(|frame| frame[4..8] != [0; 4]).count()
}

#[tokio::test]
async fn many_callers_share_a_commit() {
    let folder = folder();
    let store = open(&folder);
    let before = commits(&folder);
    let asks: Vec<_> = (0..256).map(|at| ask(&format!("key-{at}"))).collect();
    join_all(asks.iter().map(|ask| run(&store, ask))).await;
    let commits = commits(&folder) - before;
    assert!((1..64).contains(&commits), "256 claims took {commits} commits");
}

#[tokio::test]
async fn a_birth_takes_room_only_where_a_later_claim_hides_it() {
    const BIRTHS: &str = "SELECT count(birth) FROM keys";
    let folder = folder();
    let clock = Arc::new(SettableClock::new());
    let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
    let (once, twice) = (ask("once"), ask("twice"));
    run(&store, &once).await;
    run(&store, &twice).await;
    assert_eq!(number(&sqlite(&folder), BIRTHS), 0);
    clock.pass(LEASE + MARGIN);
    run(&store, &retry(&twice)).await;
    assert_eq!(number(&sqlite(&folder), BIRTHS), 1);
}

#[tokio::test]
async fn replays_are_served_while_nothing_can_be_written() {
    let folder = folder();
    let store = open(&folder);
    let first = complete(&store, "k").await;
    let rival = sqlite(&folder);
    rival.execute_batch("BEGIN IMMEDIATE").expect("nobody writes");
    let error = store.claim(&ask("new")).await.expect_err("nothing can be written");
    assert!(error.is_retryable(), "{error}");
    assert!(is_replayed(&store, &first).await);
    rival.execute_batch("COMMIT").expect("nothing was written");
    run(&store, &ask("new")).await;
}

#[tokio::test]
async fn a_write_without_an_answer_in_time_may_have_landed() {
    let folder = folder();
    let store = reopen(&folder, EmbeddedOptions::default().time_out(Duration::from_millis(1)));
    let rival = sqlite(&folder);
    rival.execute_batch("BEGIN IMMEDIATE").expect("nobody writes");
    let error = store.set_fact("name", b"value").await.expect_err("nothing can be written");
    assert_eq!(error.kind(), StoreErrorKind::MayHaveLanded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_short_under_steady_load() {
    const MIB: usize = 1024 * 1024;
    let folder = folder();
    let store = Arc::new(open(&folder));
    let log = folder.path().join("records.db-wal");
    let written = 512 * MIB;
    let body = vec![7; 64 * 1024];
    let callers = (0..16).map(|caller| {
        let (store, body, log) = (store.clone(), body.clone(), log.clone());
        async move {
            let mut longest = 0;
            for at in 0..written / body.len() / 16 {
                complete_with(&store, &format!("{caller}-{at}"), &body).await;
                longest = longest.max(fs::metadata(&log).expect("the log is there").len());
            }
            longest
        }
    });
    let longest = join_all(callers).await.into_iter().max().expect("there are callers");
    // It is to begin anew at 64 MiB; a busy disk may keep its thread from that for a while.
    assert!(longest < 400 * MIB as u64, "the log grew to {} MiB", longest / MIB as u64);
}
