//! The store's folder, looked at while no gateway has it open.

use std::fs;
use std::path::Path;

use selfsame::stores::{EmbeddedOptions, EmbeddedStore};
use selfsame_core::{Count, Find, Inspect};
use tempfile::TempDir;

/// Row 12: whatever was going on when the gateway died, the log is whole, and each record in it can be
/// read. A copy is looked at: the next gateway shall find the original as it was left.
pub(crate) fn assert_whole(folder: &Path) {
    let copy = copied(folder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let records = EmbeddedStore::open(copy.path(), EmbeddedOptions::default());
        let records = records.expect("what a crash leaves can be opened");
        let Count { claimed, completed, failed, held, tombstone } =
            records.count().await.expect("readable");
        let found = records.find(&Find::IdPrefix(String::new()), usize::MAX).await;
        let found = found.expect("readable").len() as u64;
        assert_eq!(found, claimed + completed + failed + held + tombstone);
    });
}

/// A copy of the store's files, without its index: a start makes that from the log.
pub(crate) fn copied(folder: &Path) -> TempDir {
    let copy = TempDir::new().expect("a temporary folder");
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let from = entry.expect("it can be read").path();
        if from.is_file() {
            let name = from.file_name().expect("a file has a name");
            fs::copy(&from, copy.path().join(name)).expect("copied");
        }
    }
    copy
}
