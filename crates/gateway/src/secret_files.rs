//! Files that hold secrets.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Warns of a file that every user of this machine can read or change. It is not refused: orchestrators
/// mount secrets so.
pub(crate) fn warn_if_open_to_everybody(setting: &str, path: &Path) {
    let Ok(file) = fs::metadata(path) else { return };
    if file.permissions().mode() & 0o007 != 0 {
        let path = path.display();
        tracing::warn!(setting, %path, "every user of this machine has access to this secret: chmod 600");
    }
}
