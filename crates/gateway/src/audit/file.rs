//! A file of entries: JSON, one object a line, only ever added to.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use selfsame::stores::AuditEntry;
use serde::Serialize;

use crate::printable::printable_json;

pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
}

/// An entry as a line has it.
#[derive(Serialize)]
struct Line<'a> {
    at: String,
    event: &'a str,
    record: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl AuditFile {
    /// The file, which is made if it is missing; readable by its owner only.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file =
            file.with_context(|| format!("the audit log {} cannot be opened", path.display()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Adds a line for each of `entries`. If that fails, none is there: what was begun is cut off again.
    pub(super) fn append(&mut self, entries: &[AuditEntry], is_moved: bool) -> Result<()> {
        if is_moved {
            *self = Self::open(&self.path)?;
        }
        let mut lines = String::new();
        for entry in entries {
            lines.push_str(&printable_json(&serde_json::to_string(&Line::of(entry))?));
            lines.push('\n');
        }
        let before = self.file.metadata()?.len();
        self.file.write_all(lines.as_bytes()).or_else(|error| {
            self.file.set_len(before)?;
            Err(error).with_context(|| format!("{}", self.path.display()))
        })
    }
}

impl<'a> Line<'a> {
    fn of(entry: &'a AuditEntry) -> Self {
        let at = UNIX_EPOCH + Duration::from_millis(entry.at.as_millis());
        Self {
            at: humantime::format_rfc3339_millis(at).to_string(),
            event: entry.event,
            record: entry.record.to_string(),
            tenant: entry.tenant.map(|tag| tag.to_string()),
            route: entry.route.as_deref(),
            key: entry.key.as_deref(),
            attempt: entry.attempt,
            fence: entry.fence,
            status: entry.status,
            by: entry.by.as_deref(),
            reason: entry.reason.as_deref(),
        }
    }
}
