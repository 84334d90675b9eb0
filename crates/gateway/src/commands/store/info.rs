//! `selfsame store info`: what is in a store, and who uses it.

use std::time::Duration;

use anyhow::Result;
use futures_util::{StreamExt, TryStreamExt, stream};
use selfsame::admin::date;
use selfsame::stores::StoreSummary;
use selfsame_core::{AnswerBody, Count, Record, State, StateName, Timestamp};

use super::open::{CLOCK_DIFFERENCE_MAX_MS, Opened};
use crate::installation::COPYING;
use crate::printable::printable;

/// Records that are read at once.
const AT_ONCE: usize = 32;

/// Summary of all records.
#[derive(Debug, Default)]
struct Seen {
    count: Count,
    oldest: Option<Timestamp>,
    newest: Option<Timestamp>,
    /// Answers, checkpoints and requests, and how many of them are encrypted.
    kept: u64,
    encrypted: u64,
    damaged: u64,
}

/// Facts about a store, one a line.
pub(super) async fn info(opened: &Opened) -> Result<String> {
    let Opened { store, place, clock_offset_ms, embedded } = opened;
    let users = store.users().await?;
    let summary = match embedded {
        Some(store) => Some(store.summary().await?),
        None => None,
    };
    let seen = match &summary {
        Some(summary) => Seen::of(summary),
        None => look(opened).await?,
    };
    let Count { claimed, completed, failed, held, tombstone } = seen.count;
    let all = claimed + completed + failed + held + tombstone;
    let shown = |at: Option<Timestamp>| at.map_or_else(|| "none".to_owned(), date);
    let mut facts = vec![
        ("store", place.clone()),
        ("version", store.version().await?),
        ("in use", users.map_or_else(|| "no".to_owned(), |users| format!("yes, by {users}"))),
        (
            "records",
            format!(
                "{all}: {claimed} claimed, {completed} completed, {failed} failed, {held} held, \
                 {tombstone} tombstones"
            ),
        ),
        ("oldest", shown(seen.oldest)),
        ("newest", shown(seen.newest)),
        ("encrypted", format!("{} of {} answers and checkpoints", seen.encrypted, seen.kept)),
    ];
    facts.extend(summary.iter().flat_map(in_folder));
    if clock_offset_ms.unsigned_abs() > CLOCK_DIFFERENCE_MAX_MS.unsigned_abs() {
        let side = if *clock_offset_ms > 0 { "behind" } else { "ahead of" };
        let seconds = clock_offset_ms.unsigned_abs() / 1000;
        facts.push(("time", format!("{seconds} s {side} the wall clock")));
    }
    if seen.damaged > 0 {
        facts.push(("damaged", format!("{} more records, which are refused", seen.damaged)));
    }
    if let Some(left) = opened.closed_for() {
        let left = humantime::format_duration(Duration::from_secs(left.as_secs().max(1)));
        facts.push(("closed", format!("to keys that it does not know, for {left} more")));
    }
    let copying = store.facts().await?.into_iter().find(|(name, _)| name == COPYING);
    if let Some((_, source)) = copying.filter(|(_, source)| !source.is_empty()) {
        let source = String::from_utf8_lossy(&source).into_owned();
        facts.push(("copy", format!("not finished, from {source}: run it again")));
    }
    Ok(facts.iter().map(|(name, value)| line(name, value)).collect())
}

/// Facts about a store in a folder.
fn in_folder(summary: &StoreSummary) -> Vec<(&'static str, String)> {
    let StoreSummary { log_bytes, index_bytes, live_bytes, day_records, day_bytes, .. } = summary;
    vec![
        (
            "on disk",
            format!("{} bytes: log {log_bytes}, index {index_bytes}", log_bytes + index_bytes),
        ),
        ("needed", format!("{live_bytes} bytes of the log")),
        ("waste", format!("{} bytes of the log", log_bytes.saturating_sub(*live_bytes))),
        ("last day", format!("{day_records} new records, {day_bytes} bytes of the log")),
        ("clock", format!("{}, the store's time", date(summary.time))),
    ]
}

/// Summary of a folder that another process has open.
pub(super) fn in_use(place: &str, holder: &str) -> String {
    let records = "known to that process: see its /metrics and `selfsame keys show`";
    let facts = [("store", place), ("in use", &format!("yes, by {holder}")), ("records", records)];
    facts.iter().map(|(name, value)| line(name, value)).collect()
}

fn line(name: &str, value: &str) -> String {
    format!("{name:<9} {}\n", printable(value))
}

async fn look(opened: &Opened) -> Result<Seen> {
    let store = &opened.store;
    let now = store.now().await?;
    let ids = store.ids().await?;
    let records = stream::iter(ids.into_iter().map(|id| async move { store.get(&id).await }));
    let records = records.buffer_unordered(AT_ONCE).map(|record| match record {
        Ok(record) => Ok(Ok(record)),
        Err(error) if error.is_damaged() => Ok(Err(error)),
        Err(error) => Err(error),
    });
    let seen = records.try_fold(Seen::default(), |mut seen, record| async move {
        match record {
            Ok(Some(record)) => seen.add(&record, now),
            Ok(None) => {}
            Err(_) => seen.damaged += 1,
        }
        Ok(seen)
    });
    Ok(seen.await?)
}

impl Seen {
    fn of(summary: &StoreSummary) -> Self {
        let StoreSummary { count, oldest, newest, kept, encrypted, damaged, .. } = *summary;
        Self { count, oldest, newest, kept, encrypted, damaged }
    }

    fn add(&mut self, record: &Record, now: Timestamp) {
        *match record.state_name(now) {
            StateName::Claimed => &mut self.count.claimed,
            StateName::Completed => &mut self.count.completed,
            StateName::Failed => &mut self.count.failed,
            StateName::Held => &mut self.count.held,
            StateName::Tombstone => &mut self.count.tombstone,
        } += 1;
        let at = record.created_at;
        self.oldest = Some(self.oldest.map_or(at, |oldest| oldest.min(at)));
        self.newest = Some(self.newest.map_or(at, |newest| newest.max(at)));
        if let State::Completed { answer, .. } = &record.state {
            self.kept += u64::from(!matches!(answer.body, AnswerBody::NotKept));
            self.encrypted += u64::from(matches!(answer.body, AnswerBody::Sealed(_)));
        }
        if let Some(checkpoint) = &record.checkpoint {
            self.kept += 1;
            self.encrypted += u64::from(checkpoint.is_sealed);
        }
    }
}
