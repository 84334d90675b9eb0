//! `[encryption]`: the keys that records are sealed with.

use selfsame::seal::Keyring;

use super::file::Section;
use super::mistakes::Mistakes;
use super::values::PATH;

/// What `section` says, if it is there. Its file is read, too: a wrong one is a mistake.
pub(super) fn read(mut section: Section<'_>, mistakes: &mut Mistakes) -> Option<Keyring> {
    let path = section.get("key_file", &PATH);
    if section.is_written() && path.is_none() {
        let text = "is missing; name a file with the line that `selfsame config new-key` prints";
        section.missing("key_file", text);
    }
    let keyring = path.and_then(|path| {
        let read = Keyring::read(&path);
        read.map_err(|error| section.clash(&["key_file"], error.to_string())).ok()
    });
    section.finish(mistakes);
    keyring
}
