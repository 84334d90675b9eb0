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

#[tokio::test]
async fn a_missing_file_is_a_store_that_does_not_open() {
    let folder = folder();
    let store = open(&folder);
    for at in 0..3 {
        complete_with(&store, &format!("key-{at}"), &vec![7; 1024 * 1024]).await;
    }
    drop(store);
    let segments = segments(&folder);
    assert!(segments.len() > 2);
    let facts = folder.path().join("facts");
    for missing in segments[1..].iter().chain([&facts]) {
        let aside = folder.path().join("aside");
        fs::rename(missing, &aside).expect("it can be moved");
        let error = refused(folder.path());
        assert!(matches!(error, OpenError::Damaged { .. } | OpenError::File { .. }), "{error}");
        fs::rename(&aside, missing).expect("it can be moved");
    }
    open(&folder);
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
