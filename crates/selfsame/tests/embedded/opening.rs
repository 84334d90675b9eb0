//! What can be opened, and what is refused with its reason.

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
    let log = only_segment(&folder);
    let mut bytes = fs::read(&log).expect("the log is there");
    bytes[8] = 99;
    let sum = crc32fast::hash(&bytes[..24]);
    bytes[24..28].copy_from_slice(&sum.to_le_bytes());
    fs::write(&log, bytes).expect("the log can be written");
    let error = refused(folder.path());
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
}

#[test]
fn a_file_that_is_not_ours_is_refused_and_left_alone() {
    let folder = folder();
    let theirs = folder.path().join("records-00000001.log");
    for text in ["something else, long enough for a beginning", "short", ""] {
        fs::write(&theirs, text).expect("the folder can be written");
        assert!(matches!(refused(folder.path()), OpenError::Foreign { .. }));
        assert_eq!(fs::read_to_string(&theirs).expect("it is there"), text);
    }
}

#[test]
fn the_records_of_an_earlier_version_are_refused_and_left_alone() {
    let folder = folder();
    fs::write(folder.path().join("records.db"), "SQLite format 3").expect("it can be written");
    let error = refused(folder.path());
    assert!(matches!(error, OpenError::Earlier { .. }), "{error}");
    assert!(error.to_string().contains("earlier version"), "{error}");
}

#[test]
fn a_second_store_is_refused_though_the_lock_file_was_removed() {
    let folder = folder();
    let first = open(&folder);
    fs::remove_file(folder.path().join("lock")).expect("it is there");
    assert!(matches!(refused(folder.path()), OpenError::InUse { .. }));
    drop(first);
    open(&folder);
}

pub(super) type Harm = fn(&Path);

/// What is done to a file of a store that was closed.
pub(super) const HARMS: [(&str, Harm); 3] = [
    ("removed", |path| fs::remove_file(path).expect("it can be removed")),
    ("cut in half", |path| {
        let bytes = fs::read(path).expect("it can be read");
        fs::write(path, &bytes[..bytes.len() / 2]).expect("it can be written");
    }),
    ("without its last page", |path| {
        let mut bytes = fs::read(path).expect("it can be read");
        let start = bytes.len().saturating_sub(4096);
        bytes[start..].fill(0);
        fs::write(path, bytes).expect("it can be written");
    }),
];

/// A store of 40 keys in several segments, some of which were left behind, and of several tables.
pub(crate) async fn fill(folder: &TempDir, clock: &Arc<SettableClock>) -> Vec<Ask> {
    let options = || EmbeddedOptions::default().clock(clock.clone());
    let store = reopen(folder, options());
    store.set_fact("secret", b"hidden").await.expect("the store works");
    complete_with(&store, "expired", &vec![7; 1024 * 1024]).await;
    clock.pass(RETENTION);
    let mut asks = Vec::new();
    for at in 0..20 {
        asks.push(complete_with(&store, &format!("first-{at}"), &vec![7; 200 * 1024]).await);
    }
    clock.pass(MARGIN);
    sweep_all(&store).await;
    expiry::eventually("the first file is gone", || {
        !segments(folder)[0].ends_with("records-00000001.log")
    })
    .await;
    drop(store);
    let store = reopen(folder, options());
    for at in 0..20 {
        asks.push(complete_with(&store, &format!("second-{at}"), b"done").await);
    }
    asks
}

pub(crate) fn all_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    paths.flat_map(|path| if path.is_dir() { all_files(&path) } else { vec![path] }).collect()
}

/// Whichever file is harmed: the store does not open and names it, or no key runs again.
#[tokio::test]
async fn no_key_runs_again_in_silence_because_a_file_is_gone_or_cut() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    let asks = fill(&folder, &clock).await;
    let files = all_files(folder.path());
    let tables = files.iter().filter(|path| path.parent() != Some(folder.path())).count();
    assert!(segments(&folder).len() > 2 && tables > 1, "{files:?}");
    let (mut refused, mut whole) = (0, 0);
    for file in files {
        for (name, harm) in HARMS {
            let copy = copy_of(&folder);
            let harmed = copy.path().join(file.strip_prefix(folder.path()).expect("it is in it"));
            harm(&harmed);
            let options = EmbeddedOptions::default().clock(clock.clone());
            let store = match EmbeddedStore::open(copy.path(), options) {
                Ok(store) => store,
                Err(error @ (OpenError::Damaged { .. } | OpenError::Foreign { .. })) => {
                    assert!(
                        error.to_string().contains(".log") || error.to_string().contains("facts")
                    );
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{} {name}: {error}", file.display()),
            };
            for ask in &asks {
                match store.claim(&retry(ask)).await {
                    Ok(Claimed::Replay(_)) => {}
                    Err(error) if error.is_damaged() => {}
                    other => panic!("{} {name}: {other:?}", file.display()),
                }
            }
            whole += 1;
        }
    }
    assert!(refused > 5 && whole > 5, "{refused} refused, {whole} whole");
}

/// Files that are written while the process is killed are the end of the log, no more.
#[tokio::test]
async fn the_oldest_and_the_newest_file_are_missed() {
    let (folder, clock) = (folder(), Arc::new(SettableClock::new()));
    fill(&folder, &clock).await;
    let segments = segments(&folder);
    for has_index in [true, false] {
        for missing in &segments {
            let copy = copy_of(&folder);
            if !has_index {
                remove_index(&copy);
            }
            let name = missing.file_name().expect("a file has a name");
            fs::remove_file(copy.path().join(name)).expect("it can be removed");
            let error = refused(copy.path());
            let is_last = missing == segments.last().expect("there are segments");
            let text = if is_last { "after it is missing" } else { "is missing" };
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}

#[tokio::test]
async fn a_flipped_bit_in_the_facts_is_noticed() {
    let folder = folder();
    let store = open(&folder);
    store.set_fact("secret", b"hidden").await.expect("the store works");
    drop(store);
    let facts = folder.path().join("facts");
    let sound = fs::read(&facts).expect("they are there");
    for at in 0..sound.len() {
        let mut flipped = sound.clone();
        flipped[at] ^= 1;
        fs::write(&facts, flipped).expect("they can be written");
        assert!(matches!(refused(folder.path()), OpenError::Damaged { .. }));
    }
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
fn a_folder_and_its_files_are_made_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let path = folder.path().join("one/two");
    let store = EmbeddedStore::open(&path, EmbeddedOptions::default()).expect("it is made");
    let mode = fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    for name in ["facts", "records-00000001.log"] {
        let mode = fs::metadata(path.join(name)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    drop(store);
}
