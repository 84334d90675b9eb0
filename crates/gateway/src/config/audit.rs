//! `[audit]`: where it is noted what happened to keys.

use std::path::PathBuf;

use super::StoreUrl;
use super::file::Section;
use super::mistakes::Mistakes;
use super::values::{Kind, Wrong, text};

/// Where events are noted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditTo {
    /// With the records: in a file in the store's folder, or in a table of its database.
    Store,
    /// In this file.
    File(PathBuf),
}

const TO: Kind<AuditTo> = Kind {
    expected: r#""store" or a file like "file:/var/log/selfsame/audit.log""#,
    read: |value| match text(value)? {
        "store" => Ok(AuditTo::Store),
        other => match other.strip_prefix("file:") {
            Some(path) if !path.is_empty() => Ok(AuditTo::File(path.into())),
            _ => Err(Wrong::Form),
        },
    },
};

/// What `section` says, if it is there.
pub(super) fn read(
    mut section: Section<'_>,
    store: &StoreUrl,
    mistakes: &mut Mistakes,
) -> Option<AuditTo> {
    let to = section.get("to", &TO);
    if section.is_written() && to.is_none() {
        section.missing("to", "is missing; write to = \"store\" or to = \"file:PATH\"");
    }
    if to == Some(AuditTo::Store) && *store == StoreUrl::Memory {
        let text = "a store in memory does not outlive its records; name a file";
        section.clash(&["to"], text);
    }
    section.finish(mistakes);
    to
}
