//! Backups of a store that is in use: all that was acknowledged before is in them, and nothing that was
//! erased before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use selfsame::stores::{Backup, BackupError};
use selfsame_core::Erased;

use super::verifying::verified;
use super::*;

/// Bodies are told apart by their keys, and by their ends where they are cut.
fn body(key: &str, len: usize) -> Vec<u8> {
    let mut body = format!("<{key}>").into_bytes();
    body.resize(len, b'.');
    body.extend_from_slice(format!("</{key}>").as_bytes());
    body
}

fn long(key: &str) -> Ask {
    Ask { retention: Duration::MAX, ..ask(key) }
}

/// Claims and completes a key. False where its time was over before.
async fn record(store: &EmbeddedStore, ask: &Ask, body: Vec<u8>) -> bool {
    let lease = run(store, ask).await;
    let recorded = store.complete(&lease, &answer(body)).await.expect("the store works");
    matches!(recorded, Recorded::Until(_))
}

/// Makes a store of a backup, as a restore does.
fn unmark(backup: &Path) {
    fs::remove_file(backup.join("backup")).expect("it is a backup");
}

fn open_at(path: &Path, clock: &Arc<SettableClock>) -> EmbeddedStore {
    let options = EmbeddedOptions::default().leases(Leases::Keep).clock(clock.clone());
    EmbeddedStore::open(path, options).expect("it is a store")
}

/// What was acknowledged of a store.
#[derive(Default)]
struct Model {
    completed: Mutex<BTreeMap<String, usize>>,
    erased: Mutex<BTreeSet<String>>,
    /// Keys of erasures that may have begun.
    erasing: Mutex<BTreeSet<String>>,
    is_over: AtomicBool,
    next: AtomicUsize,
    removed: AtomicUsize,
}

impl Model {
    /// Claims and completes until it is over; most of the keys expire soon.
    async fn complete(&self, store: &EmbeddedStore) {
        while !self.is_over.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            // Not so fast that the copies take minutes to be looked through.
            tokio::time::sleep(Duration::from_millis(2)).await;
            let key = format!("key-{number}");
            let len = [10, 3000, 20_000][number % 3];
            if number.is_multiple_of(4) {
                if record(store, &long(&key), body(&key, len)).await {
                    self.completed.lock().insert(key, len);
                }
            } else {
                let _expired = record(store, &ask(&key), body(&key, len)).await;
            }
        }
    }

    /// Erases some of the completed keys until it is over.
    async fn erase(&self, store: &EmbeddedStore) {
        while !self.is_over.load(Ordering::Relaxed) {
            let picked = {
                let mut completed = self.completed.lock();
                let few = completed.len() < 20;
                let key = completed.keys().nth(completed.len() / 2).filter(|_| !few).cloned();
                // It is not claimed to be there from the moment on in which its erasure may begin.
                if let Some(key) = &key {
                    completed.remove(key);
                }
                self.erasing.lock().extend(key.clone());
                key
            };
            let Some(key) = picked else {
                tokio::task::yield_now().await;
                continue;
            };
            let erased = store.erase(&[long(&key).id]).await.expect("the store works");
            assert_eq!(erased, [Erased::Done]);
            self.erased.lock().insert(key);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Lets keys expire, and sweeps, until it is over.
    async fn sweep(&self, store: &EmbeddedStore, clock: &SettableClock) {
        while !self.is_over.load(Ordering::Relaxed) {
            clock.pass(RETENTION + MARGIN);
            for _ in 0..100 {
                let swept = store.sweep(1000).await.expect("the store works");
                self.removed.fetch_add(swept.removed, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backup_under_load_has_all_that_was_acknowledged_and_nothing_that_was_erased() {
    let (folder, target) = (folder(), self::folder());
    let clock = Arc::new(SettableClock::new());
    let (store, model) = (open_at(folder.path(), &clock), Model::default());
    store.set_fact("secret", b"hidden").await.expect("the store works");
    let (store, model) = (&store, &model);
    let first_segment = segments(&folder).remove(0);
    let load = join_all((0..8).map(|_| model.complete(store)));
    let backups = async {
        expiry::eventually("old files go", || !first_segment.exists()).await;
        for round in 0..4 {
            let path = target.path().join(round.to_string());
            let (completed, erased) = (model.completed.lock().clone(), model.erased.lock().clone());
            let made = store.backup(&path).await.expect("there is room");
            println!("{round}: {made:?}, {} keys, {} erased", completed.len(), erased.len());
            let during = model.erasing.lock().difference(&erased).cloned().collect::<BTreeSet<_>>();
            assert!(made.damaged == 0 && made.records > 0, "{made:?}");
            check(&path, &clock, &completed, &erased, &during).await;
        }
        model.is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(load, model.erase(store), model.erase(store), model.sweep(store, &clock), backups);
    assert!(model.removed.load(Ordering::Relaxed) > 0 && model.erased.lock().len() > 50);
}

/// Checks that a backup has what it must have.
async fn check(
    backup: &Path,
    clock: &Arc<SettableClock>,
    completed: &BTreeMap<String, usize>,
    erased: &BTreeSet<String>,
    erased_meanwhile: &BTreeSet<String>,
) {
    let sound = verified(backup);
    assert_eq!(sound.damage, [], "what was erased meanwhile is no damage");
    let refused = super::refused(backup);
    assert!(matches!(refused, OpenError::Backup { .. }), "{refused}");
    for file in opening::all_files(backup) {
        for key in keys_in(&fs::read(&file).expect("it can be read")) {
            assert!(!erased.contains(&key), "{key} was erased, and is in {}", file.display());
        }
    }
    unmark(backup);
    for has_index in [true, false] {
        if !has_index {
            fs::remove_dir_all(backup.join("index")).expect("it is there");
        }
        let store = open_at(backup, clock);
        assert_eq!(store.fact_or("secret", b"other").await.expect("works"), b"hidden");
        for (key, len) in completed {
            match store.claim(&retry(&long(key))).await {
                Ok(Claimed::Replay(replay)) => {
                    assert!(replay.answer == answer(body(key, *len)), "{key} has another answer");
                }
                Ok(Claimed::Expired) if erased_meanwhile.contains(key) => {}
                other => panic!("{key}: {other:?}"),
            }
        }
        for key in erased {
            let claimed = store.claim(&retry(&long(key))).await;
            assert!(matches!(claimed, Ok(Claimed::Expired)), "{key}: {claimed:?}");
        }
    }
}

/// The keys of the bodies that end in a file.
fn keys_in(bytes: &[u8]) -> BTreeSet<String> {
    let ends = bytes.split(|byte| *byte == b'>');
    let keys = ends.filter_map(|text| {
        let start = text.len().saturating_sub(20);
        let text = &text[start..];
        let at = text.windows(2).position(|window| window == b"</")?;
        String::from_utf8(text[at + 2..].to_vec()).ok()
    });
    keys.collect()
}

/// A small store is copied in one round, the last. What is erased meanwhile is overwritten behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_erased_while_a_small_store_is_copied_is_no_damage() {
    let (folder, target) = (folder(), self::folder());
    let store = open(&folder);
    for round in 0..3 {
        let mut ids = Vec::new();
        for at in 0..20 {
            let key = format!("{round}-{at}");
            ids.push(complete_with(&store, &key, &vec![7; 100 * 1024]).await.id);
        }
        let path = target.path().join(round.to_string());
        let erasing = async {
            for id in ids {
                assert_eq!(store.erase(&[id]).await.expect("works"), [Erased::Done]);
            }
        };
        let (made, ()) = tokio::join!(store.backup(&path), erasing);
        assert_eq!(made.expect("nothing is damaged").damaged, 0);
        assert_eq!(verified(&path).damage, []);
    }
}

/// A store that takes a while to copy.
async fn filled(folder: &TempDir) -> EmbeddedStore {
    let store = open(folder);
    for at in 0..24 {
        complete_with(&store, &format!("large-{at}"), &vec![7; 1024 * 1024]).await;
    }
    store
}

#[tokio::test]
async fn one_backup_is_made_at_a_time() {
    let (folder, target) = (folder(), self::folder());
    let store = filled(&folder).await;
    let paths = ["one", "two"].map(|name| target.path().join(name));
    let [one, two] = paths.each_ref().map(|path| store.backup(path));
    let (one, two) = tokio::join!(one, two);
    assert!(one.is_ok() && matches!(two, Err(BackupError::InProgress)), "{one:?} {two:?}");
    assert!(!paths[1].exists());
    store.backup(&paths[1]).await.expect("the first one is done");
    assert!(verified(&paths[0]).is_sound() && verified(&paths[1]).is_sound());
}

#[tokio::test]
async fn a_backup_that_was_cut_off_is_refused_and_the_next_one_is_made() {
    let (folder, target) = (folder(), self::folder());
    let store = filled(&folder).await;
    let path = target.path().join("copy");
    {
        let backup = store.backup(&path);
        tokio::pin!(backup);
        let is_begun = || segments_in(&path) > 0;
        loop {
            tokio::select! {
                biased;
                made = &mut backup => panic!("it is made already: {made:?}"),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            if is_begun() {
                break;
            }
        }
    }
    assert!(path.join("backup.incomplete").exists() && !path.join("backup").exists());
    for refused in
        [super::refused(&path), EmbeddedStore::verify(&path).expect_err("it is not complete")]
    {
        assert!(matches!(refused, OpenError::IncompleteBackup { .. }), "{refused}");
        assert!(refused.to_string().contains("not finished"), "{refused}");
    }
    let again = store.backup(&path).await;
    assert!(matches!(again, Err(BackupError::Exists { .. })), "{again:?}");
    store.backup(target.path().join("other")).await.expect("there is room");
}

fn segments_in(path: &Path) -> usize {
    let names = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with("records-")).count()
}

#[tokio::test]
async fn a_backup_overwrites_nothing_and_is_never_in_the_store() {
    let (folder, target) = (folder(), self::folder());
    let store = open(&folder);
    complete(&store, "key").await;
    let used = target.path().join("used");
    fs::create_dir(&used).and_then(|()| fs::write(used.join("file"), "mine")).expect("made");
    let file = target.path().join("file");
    fs::write(&file, "mine").expect("written");
    let (empty, link) = (target.path().join("empty"), target.path().join("link"));
    fs::create_dir(&empty).expect("made");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&empty, &link).expect("made");
    for path in [&used, &file, &link] {
        let refused = store.backup(path).await;
        assert!(matches!(refused, Err(BackupError::Exists { .. })), "{refused:?}");
    }
    for path in [folder.path().join("copy"), folder.path().join("index/copy")] {
        let refused = store.backup(&path).await;
        assert!(matches!(refused, Err(BackupError::InStore { .. })), "{refused:?}");
    }
    let above = target.path().join("missing/copy");
    assert!(matches!(store.backup(&above).await, Err(BackupError::Folder { .. })));
    assert_eq!(fs::read(used.join("file")).ok().as_deref(), Some(&b"mine"[..]));
    assert_eq!(fs::read(&file).ok().as_deref(), Some(&b"mine"[..]));
    store.backup(&empty).await.expect("an empty folder will do");
    drop(store);
    open(&folder);
}

#[cfg(unix)]
#[tokio::test]
async fn a_backup_is_for_its_owner_alone_and_says_what_it_is() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, target) = (folder(), self::folder());
    let store = open(&folder);
    for at in 0..3 {
        complete(&store, &format!("key-{at}")).await;
    }
    let (path, open_to_all) = (target.path().join("new"), target.path().join("open"));
    fs::create_dir(&open_to_all).expect("made");
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).expect("ours");
    for path in [&path, &open_to_all] {
        let Backup { records, bytes, damaged, .. } = store.backup(path).await.expect("made");
        assert_eq!((records, damaged), (3, 0));
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(path), mode(&path.join("index"))), (0o700, 0o700));
        let files = opening::all_files(path);
        assert!(files.len() >= 3 && files.iter().all(|file| mode(file) == 0o600), "{files:?}");
        let len = |file: &&PathBuf| fs::metadata(file).expect("it is there").len();
        let of_files: u64 =
            files.iter().filter(|file| !file.ends_with("backup")).map(|it| len(&it)).sum();
        assert_eq!(of_files, bytes);
        let mark = fs::read_to_string(path.join("backup")).expect("it is a backup");
        let lines: Vec<&str> = mark.lines().collect();
        let [first, made, told, size] = *lines else { panic!("{mark}") };
        assert_eq!((first, told), ("selfsame backup 1", "records: 3"));
        assert_eq!(size, format!("bytes: {bytes}"));
        let date = made.strip_prefix("made: ").expect("it says when");
        assert!(date.len() == 20 && date.ends_with('Z'), "{date}");
        let refused = super::refused(path).to_string();
        for part in ["is a backup", "selfsame store restore"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(!path.join("lock").exists(), "nothing was written to it");
    }
}

#[tokio::test]
async fn a_damaged_record_is_backed_up_as_it_is() {
    let (folder, target) = (folder(), self::folder());
    let store = open(&folder);
    let sound = complete(&store, "sound").await;
    let damaged = complete_with(&store, "damaged", b"a body to be found").await;
    let log = only_segment(&folder);
    let mut bytes = fs::read(&log).expect("the log is there");
    let at = position(&bytes, b"a body to be found");
    bytes[at] ^= 1;
    fs::write(&log, &bytes).expect("the log can be written");
    let path = target.path().join("copy");
    let made = store.backup(&path).await.expect("what is sound is worth a backup");
    assert_eq!((made.records, made.damaged), (2, 1));
    let mark = fs::read_to_string(path.join("backup")).expect("it is a backup");
    assert!(mark.ends_with("damaged: 1\n"), "{mark}");
    drop(store);
    unmark(&path);
    let store = EmbeddedStore::open(&path, EmbeddedOptions::default()).expect("it is a store");
    assert!(is_replayed(&store, &sound).await);
    let error = store.claim(&retry(&damaged)).await.expect_err("it is damaged");
    assert!(error.is_damaged());
}
