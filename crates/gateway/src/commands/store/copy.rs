//! `selfsame store copy`: all records of a store, as they are, into another.
//!
//! A mark in the target says that a copy is unfinished; until it is finished no gateway serves from there,
//! because it would take keys that are still to come for new ones. A copy that was cut off is made again, and
//! goes on: what is there already is compared.

use anyhow::{Context, Result, bail, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use selfsame::stores::Imported;
use selfsame_core::{Record, RecordId};

use super::open::Opened;
use crate::installation::COPYING;

/// Records that are under way at once.
const AT_ONCE: usize = 32;

/// Counts of copied records.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Copied {
    /// Records that are in the target now.
    pub(super) records: usize,
    /// Those of them that an earlier, unfinished copy had put there.
    pub(super) known: usize,
    /// Records that had expired.
    pub(super) expired: usize,
}

pub(super) async fn copy(from: &Opened, to: &Opened) -> Result<Copied> {
    to.must_be_idle().await?;
    let facts = from.store.facts().await?;
    let is_copying = |name: &str| name == COPYING;
    if facts.iter().any(|(name, value)| is_copying(name) && !value.is_empty()) {
        bail!("{} is itself the target of a copy that is not finished", from.place);
    }
    begin(from, to).await?;
    for (name, value) in facts.iter().filter(|(name, _)| !is_copying(name)) {
        to.store.set_fact(name, value).await?;
    }
    let ids = from.store.ids().await?;
    let copies = stream::iter(ids.into_iter().map(|id| one(from, to, id)));
    let copied =
        copies.buffer_unordered(AT_ONCE).try_fold(Copied::default(), |sum, one| async move {
            Ok(match one {
                None => Copied { expired: sum.expired + 1, ..sum },
                Some(Imported::Done) => Copied { records: sum.records + 1, ..sum },
                Some(Imported::Known) => {
                    Copied { records: sum.records + 1, known: sum.known + 1, ..sum }
                }
            })
        });
    let copied = copied.await?;
    let there = to.store.facts().await?;
    for fact in facts.iter().filter(|(name, _)| !is_copying(name)) {
        ensure!(there.contains(fact), "{} does not keep {:?} as it was written", to.place, fact.0);
    }
    // Nobody may have begun to serve meanwhile: its changes would not be in the target.
    from.must_be_idle().await?;
    to.store.set_fact(COPYING, b"").await?;
    Ok(copied)
}

/// Marks the target, which must be empty, or marked by an earlier copy from the same store.
async fn begin(from: &Opened, to: &Opened) -> Result<()> {
    let marked = to.store.facts().await?.into_iter().find(|(name, _)| name == COPYING);
    let mark = marked.map(|(_, value)| value).unwrap_or_default();
    if mark == from.place.as_bytes() {
        return Ok(());
    }
    if !mark.is_empty() {
        let other = String::from_utf8_lossy(&mark).into_owned();
        bail!("a copy from {other} to {} is not finished: finish that, or empty it", to.place);
    }
    let others = to.store.ids().await?.len();
    if others > 0 {
        bail!("{} has {others} records of its own; copy to an empty store", to.place);
    }
    Ok(to.store.set_fact(COPYING, from.place.as_bytes()).await?)
}

/// Copies one record, and reads it back.
async fn one(from: &Opened, to: &Opened, id: RecordId) -> Result<Option<Imported>> {
    let name = id.short();
    let unreadable = || format!("the record {name} of {} cannot be read", from.place);
    let Some(record) = from.store.get(&id).await.with_context(unreadable)? else { return Ok(None) };
    let phases = match record.checkpoint {
        Some(_) => from.store.phases(&record).await?,
        None => Vec::new(),
    };
    let imported = to.store.import(&record).await;
    let imported = imported.with_context(|| format!("the record {name} cannot be written"))?;
    for row in &phases {
        let written = to.store.import_phase(row).await;
        written.with_context(|| format!("a phase of the record {name} cannot be written"))?;
    }
    let is_there = same(to.store.get(&id).await?, &record, to).await?
        && to.store.phases(&record).await? == phases;
    if !is_there {
        bail!(
            "the record {name} in {} is not what was copied: if {} was used since an earlier copy, \
             empty the target and begin anew",
            to.place,
            from.place
        );
    }
    Ok(Some(imported))
}

/// Compares a record with what was read back; nothing is right, too, where it expired meanwhile.
async fn same(found: Option<Record>, record: &Record, to: &Opened) -> Result<bool> {
    match found {
        Some(found) => Ok(found == *record),
        None => Ok(record.is_expired(to.store.now().await?)),
    }
}
