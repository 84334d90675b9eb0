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
