//! What the embedded store promises beyond the laws of every store.
#![cfg(feature = "embedded")]

use std::fs;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rusqlite::Connection;
use selfsame::stores::{EmbeddedOptions, EmbeddedStore, Leases, OpenError};
use selfsame_core::conformance::SettableClock;
use selfsame_core::conformance::samples::{
    LEASE, MARGIN, REMEMBER, RETENTION, answer, ask, checkpoint, remembered, retry,
};
use selfsame_core::{
    Ask, Claimed, Count, Facts, Fenced, Find, Inspect, Lease, Recorded, Recover, State, Store,
    StoreError, StoreErrorKind, Sweep,
};
use tempfile::TempDir;

fn folder() -> TempDir {
    TempDir::new().expect("the system has a place for temporary folders")
}

fn open(folder: &TempDir) -> EmbeddedStore {
    reopen(folder, EmbeddedOptions::default())
}

fn reopen(folder: &TempDir, options: EmbeddedOptions) -> EmbeddedStore {
    EmbeddedStore::open(folder.path(), options).expect("the folder is the test's own")
}

fn refused(path: &Path) -> OpenError {
    EmbeddedStore::open(path, EmbeddedOptions::default()).expect_err("it cannot be opened")
}

/// What an operator has: the file, and `sqlite3`.
fn sqlite(folder: &TempDir) -> Connection {
    Connection::open(folder.path().join("records.db")).expect("the file is there")
}

fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).expect("the query fits the file")
}

async fn run(store: &EmbeddedStore, ask: &Ask) -> Lease {
    match store.claim(ask).await.expect("the store works") {
        Claimed::Run(grant) => grant.lease,
        other => panic!("{other:?}"),
    }
}

async fn complete(store: &EmbeddedStore, key: &str) -> Ask {
    complete_with(store, key, b"done").await
}

async fn complete_with(store: &EmbeddedStore, key: &str, body: &[u8]) -> Ask {
    let ask = ask(key);
    let lease = run(store, &ask).await;
    let recorded = store.complete(&lease, &answer(body.to_vec())).await.expect("the store works");
    assert!(matches!(recorded, Recorded::Until(_)));
    ask
}

async fn is_replayed(store: &EmbeddedStore, ask: &Ask) -> bool {
    let claimed = store.claim(&retry(ask)).await.expect("the store works");
    matches!(claimed, Claimed::Replay(replay) if replay.answer == answer("done"))
}

mod opening {
    use super::*;

    #[test]
    fn a_second_store_is_told_who_has_the_folder() {
        let folder = folder();
        let first = open(&folder);
        let error = refused(folder.path());
        assert!(matches!(error, OpenError::InUse { .. }));
        let text = error.to_string();
        assert!(text.contains(&folder.path().display().to_string()), "{text}");
        assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
        drop(first);
        open(&folder);
    }

    #[test]
    fn a_newer_format_is_refused() {
        let folder = folder();
        drop(open(&folder));
        sqlite(&folder).pragma_update(None, "user_version", 99).expect("the file can be written");
        let error = refused(folder.path());
        assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    }

    #[test]
    fn a_file_that_is_not_ours_is_refused() {
        let text = folder();
        fs::write(text.path().join("records.db"), "something else, long enough for a header")
            .expect("the folder can be written");
        assert!(matches!(refused(text.path()), OpenError::Foreign { .. }));

        let database = folder();
        sqlite(&database).execute_batch("CREATE TABLE theirs (x)").expect("it is empty");
        assert!(matches!(refused(database.path()), OpenError::Foreign { .. }));
        assert_eq!(number(&sqlite(&database), "SELECT count(*) FROM sqlite_schema"), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_with_the_reason() {
        let folder = folder();
        let file = folder.path().join("file");
        fs::write(&file, "").expect("the folder can be written");
        for path in [file.as_path(), &file.join("below"), Path::new("/proc/nope")] {
            let error = refused(path);
            assert!(matches!(error, OpenError::Folder { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(&path.display().to_string()), "{text}");
            assert!(text.contains("choose a folder"), "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_is_made_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        let path = folder.path().join("one/two");
        let store = EmbeddedStore::open(&path, EmbeddedOptions::default()).expect("it is made");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(store);
    }
}

mod restart {
    use super::*;

    #[tokio::test]
    async fn claims_of_an_earlier_boot_are_dead_where_they_died_with_it() {
        let folder = folder();
        let (resumed, held) = (ask("resumed"), Ask { recover: Recover::Hold, ..ask("held") });
        let store = open(&folder);
        run(&store, &resumed).await;
        run(&store, &held).await;
        assert!(matches!(store.claim(&retry(&resumed)).await, Ok(Claimed::Busy { .. })));
        drop(store);

        let store = open(&folder);
        let count = store.count().await.expect("the store works");
        assert_eq!(count, Count { claimed: 1, held: 1, ..Count::default() });
        let claimed = store.claim(&retry(&resumed)).await.expect("the store works");
        assert!(matches!(claimed, Claimed::Run(grant) if grant.took_over && grant.attempt == 2));
        assert!(matches!(store.claim(&retry(&held)).await, Ok(Claimed::Held { newly: true })));
        // A claim of this boot lives.
        assert!(matches!(store.claim(&retry(&resumed)).await, Ok(Claimed::Busy { .. })));
    }

    #[tokio::test]
    async fn claims_of_an_earlier_boot_live_on_where_they_are_kept() {
        let folder = folder();
        let first = ask("k");
        run(&open(&folder), &first).await;
        let store = reopen(&folder, EmbeddedOptions::default().leases(Leases::Keep));
        assert!(matches!(store.claim(&retry(&first)).await, Ok(Claimed::Busy { .. })));
    }

    #[tokio::test]
    async fn what_was_asked_for_is_done_before_the_folder_is_given_back() {
        let folder = folder();
        let first = ask("k");
        let store = open(&folder);
        let lease = run(&store, &first).await;
        let done = answer("done");
        // Asked for, and not awaited.
        tokio::select! {
            biased;
            _ = store.complete(&lease, &done) => panic!("no disk is that fast"),
            () = ready(()) => {}
        }
        drop(store);
        assert!(is_replayed(&open(&folder), &first).await);
    }

    #[tokio::test]
    async fn what_never_expires_is_still_there() {
        let folder = folder();
        let store = open(&folder);
        let forever = Ask { retention: Duration::MAX, ..ask("k") };
        let lease = run(&store, &forever).await;
        let recorded = store.complete(&lease, &answer("done")).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))));
        drop(store);
        let store = open(&folder);
        assert!(store.sweep(10).await.expect("the store works").finished);
        assert!(is_replayed(&store, &forever).await);
        let count = store.count().await.expect("the store works");
        assert_eq!(count, Count { completed: 1, ..Count::default() });
    }
}

mod damage {
    use super::*;

    async fn assert_shut(store: &EmbeddedStore, damaged: &Ask, what: &str) {
        let is_damaged = |error: Option<StoreError>| error.is_some_and(|error| error.is_damaged());
        let lease = Lease {
            id: damaged.id,
            fence: selfsame_core::Fence::FIRST,
            attempt_id: damaged.attempt_id,
            length: LEASE,
        };
        for _ in 0..2 {
            assert!(is_damaged(store.claim(&retry(damaged)).await.err()), "{what}");
            assert!(is_damaged(store.get(&damaged.id).await.err()), "{what}");
            assert!(is_damaged(store.renew(&lease).await.err()), "{what}");
            store.sweep(1000).await.expect("one bad record does not stop the sweep");
        }
    }

    #[tokio::test]
    async fn a_change_in_any_column_is_noticed() {
        let columns = [
            ("fingerprint", "zeroblob(37)"),
            ("state", "3"),
            ("state_at", "state_at + 1"),
            ("fence", "fence + 1"),
            ("attempt", "attempt + 1"),
            ("attempt_id", "zeroblob(16)"),
            ("birth", "zeroblob(16)"),
            ("recover", "2"),
            ("created_at", "created_at + 1"),
            ("expires_at", "0"),
            ("retention_ms", "retention_ms + 1"),
            ("remember_ms", "remember_ms + 1"),
            ("tenant", "zeroblob(16)"),
            ("tenant_name", "NULL"),
            ("key", "'another'"),
            ("route", "route || '?'"),
            ("recovery_point", "NULL"),
            ("recovery_point", "'another'"),
            ("boot", "boot + 1"),
            ("answer_bucket", "answer_bucket + 1"),
            ("answer_row", "answer_row - 1"),
            ("sum", "sum + 1"),
        ];
        let folder = folder();
        let store = open(&folder);
        let unharmed = complete(&store, "unharmed").await;
        let mut asks = Vec::new();
        for at in 0..columns.len() {
            let ask = ask(&format!("key-{at}"));
            let lease = run(&store, &ask).await;
            assert_eq!(
                store.checkpoint(&lease, &checkpoint("paid")).await.ok(),
                Some(Fenced::Applied)
            );
            let recorded = store.complete(&lease, &answer("done")).await;
            assert!(matches!(recorded, Ok(Recorded::Until(_))));
            asks.push(ask);
        }
        drop(store);

        for ((column, value), ask) in columns.iter().zip(&asks) {
            let sql = format!("UPDATE keys SET {column} = {value} WHERE id = ?1");
            let changed = sqlite(&folder).execute(&sql, [ask.id.as_bytes()]);
            assert_eq!(changed.expect("the file can be written"), 1);
        }

        let store = open(&folder);
        for ((column, _), ask) in columns.iter().zip(&asks) {
            assert_shut(&store, ask, column).await;
        }
        assert!(is_replayed(&store, &unharmed).await);
        let found = store.find(&Find::IdPrefix(String::new()), 100).await;
        assert_eq!(found.expect("bad records do not stop the search").len(), 1);
        complete(&store, "new").await;
    }

    #[tokio::test]
    async fn a_flipped_bit_in_an_answer_is_noticed() {
        let folder = folder();
        let store = open(&folder);
        let unharmed = complete(&store, "unharmed").await;
        let body = b"a body to be found";
        let damaged = complete_with(&store, "damaged", body).await;
        drop(store);

        let path = folder.path().join("records.db");
        let mut file = fs::read(&path).expect("the file is there");
        let at = file.windows(body.len()).position(|bytes| bytes == body);
        file[at.expect("the log is in the file when the store is closed")] ^= 1;
        fs::write(&path, file).expect("the file can be written");

        let store = open(&folder);
        for _ in 0..2 {
            let error = store.claim(&retry(&damaged)).await.expect_err("it is never served");
            assert!(error.is_damaged(), "{error}");
        }
        assert!(is_replayed(&store, &unharmed).await);
    }

    #[tokio::test]
    async fn a_lost_checkpoint_is_noticed() {
        let folder = folder();
        let store = open(&folder);
        let first = ask("k");
        let lease = run(&store, &first).await;
        assert_eq!(store.checkpoint(&lease, &checkpoint("paid")).await.ok(), Some(Fenced::Applied));
        sqlite(&folder).execute("DELETE FROM checkpoints", []).expect("the file can be written");
        assert_shut(&store, &first, "checkpoint").await;
    }
}

mod writing {
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
}

mod expiry {
    use super::*;

    const TABLES: &str = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'answers%'";

    #[tokio::test]
    async fn expired_answers_leave_with_their_table_and_their_pages_are_used_again() {
        let folder = folder();
        let clock = Arc::new(SettableClock::new());
        let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
        let file = sqlite(&folder);
        let mut pages = Vec::new();
        for round in 0..4 {
            for at in 0..20 {
                complete_with(&store, &format!("{round}-{at}"), &[7; 64 * 1024]).await;
            }
            assert_eq!(number(&file, TABLES), 1);
            pages.push(number(&file, "PRAGMA page_count"));
            clock.pass(RETENTION + Duration::from_secs(15 * 60) + MARGIN);
            let swept = store.sweep(100).await.expect("the store works");
            assert_eq!((swept.removed, swept.finished), (20, true));
            assert_eq!(number(&file, TABLES), 0);
            assert_eq!(number(&file, "SELECT count(*) FROM keys"), 0);
        }
        assert!(pages[3] <= pages[0] + pages[0] / 10, "the file grew: {pages:?} pages");
    }

    #[tokio::test]
    async fn a_full_table_leaves_in_slices_and_the_sweep_is_not_finished_before() {
        let folder = folder();
        let clock = Arc::new(SettableClock::new());
        let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
        for at in 0..12 {
            complete_with(&store, &format!("large-{at}"), &[7; 512 * 1024]).await;
        }
        clock.pass(RETENTION + Duration::from_secs(15 * 60) + MARGIN);
        complete(&store, "fresh").await;
        let mut steps = Vec::new();
        while steps.last().is_none_or(|(_, finished)| !finished) {
            let swept = store.sweep(100).await.expect("the store works");
            steps.push((swept.removed, swept.finished));
        }
        assert_eq!((steps[0], steps.len()), ((12, false), 4));
        assert_eq!(number(&sqlite(&folder), TABLES), 1);
        assert!(matches!(store.claim(&ask("fresh")).await, Ok(Claimed::Replay(_))));
    }

    #[tokio::test]
    async fn a_sweep_drops_one_table_at_a_time() {
        let folder = folder();
        let clock = Arc::new(SettableClock::new());
        let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
        let file = sqlite(&folder);
        for hour in 0..3 {
            complete(&store, &format!("hour-{hour}")).await;
            clock.pass(Duration::from_secs(60 * 60));
        }
        clock.pass(RETENTION);
        for left in [2, 1, 0, 0] {
            store.sweep(1).await.expect("the store works");
            assert_eq!(number(&file, TABLES), left);
        }
        // Their keys are new, swept or not.
        for hour in 0..3 {
            complete(&store, &format!("hour-{hour}")).await;
        }
    }

    #[tokio::test]
    async fn an_expired_checkpoint_leaves_with_its_key() {
        let folder = folder();
        let clock = Arc::new(SettableClock::new());
        let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
        for key in ["swept", "new-again"] {
            let lease = run(&store, &ask(key)).await;
            let saved = store.checkpoint(&lease, &checkpoint("paid")).await;
            assert_eq!(saved.ok(), Some(Fenced::Applied));
        }
        clock.pass(RETENTION + MARGIN);
        run(&store, &ask("new-again")).await;
        assert_eq!(store.sweep(100).await.expect("the store works").removed, 1);
        assert_eq!(number(&sqlite(&folder), "SELECT count(*) FROM checkpoints"), 0);
    }

    #[tokio::test]
    async fn a_tombstone_needs_no_answer_table_and_keeps_no_checkpoint() {
        let folder = folder();
        let clock = Arc::new(SettableClock::new());
        let store = reopen(&folder, EmbeddedOptions::default().clock(clock.clone()));
        let file = sqlite(&folder);
        let asks = [remembered("k"), Ask { remember: Duration::MAX, ..ask("for-ever") }];
        for ask in &asks {
            let lease = run(&store, ask).await;
            let saved = store.checkpoint(&lease, &checkpoint("paid")).await;
            assert_eq!(saved.ok(), Some(Fenced::Applied));
            let recorded = store.complete(&lease, &answer("done")).await;
            assert!(matches!(recorded, Ok(Recorded::Until(_))));
        }
        clock.pass(RETENTION + Duration::from_secs(15 * 60) + MARGIN);
        // Not one record is looked at, and their table goes.
        store.sweep(0).await.expect("the store works");
        assert_eq!(number(&file, TABLES), 0);
        for swept in [false, true] {
            for ask in &asks {
                let claimed = store.claim(&retry(ask)).await.expect("the store works");
                assert_eq!(claimed, Claimed::Expired, "swept: {swept}");
                let record = store.get(&ask.id).await.expect("the store works");
                assert!(record.is_some_and(|record| record.state == State::Tombstone));
            }
            let count = store.count().await.expect("the store works");
            assert_eq!(count, Count { tombstone: 2, ..Count::default() });
            store.sweep(100).await.expect("the store works");
        }
        assert_eq!(number(&file, "SELECT count(*) FROM checkpoints"), 0);
        assert_eq!(number(&file, "SELECT count(answer_row) FROM keys"), 0);
        clock.pass(REMEMBER * 1000);
        let count = store.count().await.expect("the store works");
        assert_eq!(count, Count { tombstone: 1, ..Count::default() });
    }
}
