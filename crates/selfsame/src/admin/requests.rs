//! Bodies of the admin API's requests and responses.

use serde::{Deserialize, Serialize};

use super::Note;

/// The work of a held key was not done: the next retry runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeRequest {
    /// The fence that was seen: a key that has moved on is left alone.
    pub fence: u64,
    /// The person who decides.
    #[serde(default)]
    pub by: Option<String>,
    /// The reason.
    #[serde(default)]
    pub reason: Option<String>,
}

/// The work of a held key was done: retries get this answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    /// The fence that was seen: a key that has moved on is left alone.
    pub fence: u64,
    /// The status that retries get.
    pub status: u16,
    /// The headers that retries get.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The body that retries get.
    #[serde(default)]
    pub body: String,
    /// The person who decides.
    #[serde(default)]
    pub by: Option<String>,
    /// The reason.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Author and reason of an erasure. All of it may be left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EraseRequest {
    /// The person who decides.
    #[serde(default)]
    pub by: Option<String>,
    /// The reason.
    #[serde(default)]
    pub reason: Option<String>,
}

/// The tenant whose records are to be erased.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantRequest {
    /// The tenant's tag, as records show it.
    #[serde(default)]
    pub tag: Option<String>,
    /// The tenant's name, where it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// Where to go on, as the last response said.
    #[serde(default)]
    pub after: Option<String>,
    /// The person who decides.
    #[serde(default)]
    pub by: Option<String>,
    /// The reason.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Result for some of a tenant's records.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TenantErased {
    /// Records that are erased.
    pub erased: usize,
    /// Records that run, and were left alone.
    pub running: usize,
    /// Where to go on, unless that was all.
    pub next: Option<String>,
}

/// The note about a decision, if anything was said of it.
pub(super) fn note(by: Option<&str>, reason: Option<&str>) -> Option<Note> {
    match (by, reason) {
        (None, None) => None,
        (by, reason) => Some(Note::new(by.unwrap_or("somebody"), reason)),
    }
}
