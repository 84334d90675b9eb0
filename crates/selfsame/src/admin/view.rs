//! [`RecordView`]: a record as an operator sees it. No bodies, no credentials.

use std::time::{Duration, UNIX_EPOCH};

use selfsame_core::{AnswerBody, Record, State, Timestamp};
use serde::{Deserialize, Serialize};

/// A record as an operator sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordView {
    /// The record's id, in hexadecimal.
    pub id: String,
    /// The key as the client sent it.
    pub key: String,
    /// The tenant's name, or the beginning of its tag where it is a credential.
    pub tenant: String,
    /// What stands for the tenant in the store.
    pub tenant_tag: String,
    /// The route that took it.
    pub route: String,
    /// The method of the first request, where it was kept.
    pub method: Option<String>,
    /// The path of the first request, where it was kept.
    pub path: Option<String>,
    /// The state, as [`StateName::as_str`](super::StateName::as_str) names it.
    pub state: String,
    /// Runs that may have been sent.
    pub attempt: u32,
    /// The fence, to show with a decision.
    pub fence: u64,
    /// The last recovery point.
    pub recovery_point: Option<String>,
    /// The time of the key's first use.
    pub created_at: String,
    /// When the key expires; none while it is held.
    pub expires_at: Option<String>,
    /// Until when the key is refused as used, where it is remembered past its expiry.
    pub remembered_until: Option<String>,
    /// Until when the claim lives, since when it is held, or when it was completed.
    pub state_at: Option<String>,
    /// The status of the answer.
    pub answer_status: Option<u16>,
    /// None where the body was not kept, and in a list with many large ones.
    pub answer_bytes: Option<usize>,
    /// The person who resolved the key last.
    pub resolved_by: Option<String>,
    /// Their reason.
    pub resolved_reason: Option<String>,
    /// The time of that decision.
    pub resolved_at: Option<String>,
    /// What an operator can do now.
    pub advice: String,
}

impl RecordView {
    /// The view of a record at this time.
    pub fn of(record: &Record, now: Timestamp) -> Self {
        let keepsake = record.keepsake.as_deref();
        let line = keepsake.and_then(|keepsake| keepsake.line.as_deref());
        let (method, path) = line.and_then(|line| line.split_once(' ')).unzip();
        let note = keepsake.and_then(|keepsake| keepsake.note.as_deref());
        let held = record.is_held(now);
        let remembered = record.known_until() > record.expires_at;
        let answer = match &record.state {
            State::Completed { answer, .. } => Some(answer),
            _ => None,
        };
        let state_at = match record.state {
            State::Claimed { lease_until } => Some(lease_until),
            State::Completed { at, .. } => Some(at),
            State::Held { since } => Some(since),
            State::Failed | State::Tombstone => None,
        };
        let tenant = match &record.label.tenant_name {
            Some(name) => name.to_string(),
            None => {
                let tag = record.label.tenant.to_string();
                format!("credential {}…", &tag[..8])
            }
        };
        Self {
            id: record.id.to_string(),
            key: record.label.key.as_str().to_owned(),
            tenant,
            tenant_tag: record.label.tenant.to_string(),
            route: record.label.route.to_string(),
            method: method.map(Into::into),
            path: path.map(Into::into),
            state: record.state_name(now).as_str().to_owned(),
            attempt: record.attempt,
            fence: record.fence.number(),
            recovery_point: record.checkpoint.as_ref().map(|at| at.recovery_point.clone()),
            created_at: date(record.created_at),
            expires_at: (!held).then(|| date(record.expires_at)),
            remembered_until: remembered.then(|| date(record.known_until())),
            state_at: state_at.map(date),
            answer_status: answer.map(|answer| answer.status.as_u16()),
            answer_bytes: answer.and_then(|answer| match &answer.body {
                AnswerBody::Kept(body) => Some(body.len()),
                AnswerBody::NotKept | AnswerBody::Sealed(_) => None,
            }),
            resolved_by: note.map(|note| note.by.to_string()),
            resolved_reason: note.and_then(|note| note.reason.as_deref()).map(Into::into),
            resolved_at: note.map(|note| date(note.at)),
            advice: advice(record, now).to_owned(),
        }
    }
}

fn advice(record: &Record, now: Timestamp) -> &'static str {
    match record.state {
        _ if record.label.is_observed() => {
            "Nothing: it was only observed, and whoever sends it again reaches the service."
        }
        _ if record.is_held(now) => {
            "Whether the work was done is unknown. Look it up behind the gateway. If it was not \
             done: free the key, and the next retry runs. If it was: complete the key with the \
             answer that retries shall get."
        }
        State::Claimed { .. } if record.is_leased(now) => "Nothing: it is running.",
        State::Claimed { .. } => "Nothing: the next retry goes on from where it stopped.",
        State::Completed { .. } => "Nothing: retries get the recorded answer.",
        State::Failed | State::Held { .. } => "Nothing: the next retry runs.",
        State::Tombstone => {
            "Nothing: the key was used, its answer is no longer kept, and retries get 410 key-expired."
        }
    }
}

/// A moment as people and programs read it.
pub fn date(moment: Timestamp) -> String {
    let since = Duration::from_millis(moment.as_millis());
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string()
}
