//! Builds a new store of what was salvaged.

use std::fs;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use selfsame_core::{Record, RecordId, State, Timestamp};

use super::salvage::{Fate, Salvage};
use super::{CLOSED_FOR_MIN, Job, RepairError, Repaired, failed};
use crate::private_files;
use crate::stores::embedded::closed::{self, CLOSED_UNTIL};
use crate::stores::embedded::facts::FactsFile;
use crate::stores::embedded::frame::{HEAD_LEN, Head, Kind, Marks};
use crate::stores::embedded::kept_time::KeptTime;
use crate::stores::embedded::records::{BITE_BYTES, Bite};
use crate::stores::embedded::segment::{START, Segment};
use crate::stores::embedded::store_clock::{StartRules, StoreClock};
use crate::stores::embedded::time_source::TimeSource;
use crate::stores::embedded::trouble::{Failure, Trouble};
use crate::stores::embedded::{EmbeddedStore, FIRST_SEGMENT, Leases, OpenError};

/// The folder of the index that is needed only meanwhile.
const SCRATCH: &str = "scratch";

/// Records that are written at once, at most.
const RECORDS_AT_ONCE: usize = 1024;

/// How long a batch may take on a slow disk.
const TIME_OUT: Duration = Duration::from_secs(5 * 60);

/// A record as the new store gets it.
enum Item {
    Record(Box<Record>),
    Damaged(RecordId),
}

/// Builds the new store in the folder `new`.
pub(super) async fn build(
    job: &Job<'_>,
    new: &Path,
    facts: Vec<(String, Vec<u8>)>,
) -> Result<Repaired, RepairError> {
    let failed = |error| failed(new, error);
    let scratch = new.join(SCRATCH);
    private_files::make_folder(&scratch).map_err(failed)?;
    let time = job.options.time_source();
    let salvage = Salvage::read(job.source, &scratch, time.clock())?;
    let (now, kept) = start_of_time(&salvage, &time);
    let longest = salvage.longest_life.max(job.repair.longest_life).max(CLOSED_FOR_MIN);
    let closed_until = now + job.repair.closed_for.unwrap_or(longest);
    let before = facts.iter().find(|(name, _)| name == CLOSED_UNTIL);
    let before = before.map(|(_, fact)| closed::decode(fact)).unwrap_or_default();
    let closed_until = closed_until.max(before);

    let mut new_facts = FactsFile::open(new, true)?;
    let closing = (CLOSED_UNTIL.to_owned(), closed::encode(closed_until));
    let others = facts.into_iter().filter(|(name, _)| name != CLOSED_UNTIL);
    for (name, value) in others.chain([closing]) {
        new_facts.set(&name, value).map_err(|failure| {
            let (Failure::Refused(error) | Failure::Disk(error)) = failure;
            failed(error)
        })?;
    }
    begin_log(new, kept).map_err(failed)?;

    let options = job.options.clone().leases(Leases::Keep).any_clock_gap().time_out(TIME_OUT);
    let store = EmbeddedStore::open_silently(new, options)?;
    let mut repaired = Repaired {
        damaged_places: salvage.damaged_places,
        first_places: salvage.first_places.clone(),
        closed_for: closed_until.since(now),
        ..Repaired::default()
    };
    write_all(&store, &salvage, now, &mut repaired).await?;
    drop(store);
    drop(salvage);
    fs::remove_dir_all(&scratch).map_err(failed)?;
    Ok(repaired)
}

/// The new store's time, and how its log keeps it. It is not before anything that was read.
fn start_of_time(salvage: &Salvage, time: &TimeSource) -> (Timestamp, Option<KeptTime>) {
    match time {
        TimeSource::Told(clock) => (clock.now().max(salvage.latest), None),
        TimeSource::Kept { clock, .. } => {
            let clock: &StoreClock = clock;
            clock.start(salvage.time, StartRules::default()).expect("any gap is believed");
            let kept = clock.to_keep();
            let kept = match kept.store >= salvage.latest {
                true => kept,
                false => KeptTime { store: salvage.latest, behind: Duration::ZERO, ..kept },
            };
            (kept.store, Some(kept))
        }
    }
}

/// Makes the first file of the log, which begins with the time from which the store's time goes on.
fn begin_log(folder: &Path, time: Option<KeptTime>) -> std::io::Result<()> {
    let segment = Segment::create(folder, 1, FIRST_SEGMENT)?;
    let Some(time) = time else { return Ok(()) };
    let payload = time.encode();
    let head = Head {
        kind: Kind::Time,
        closes: true,
        batch: 1,
        id: RecordId::from_bytes([0; RecordId::LEN]),
        marks: Marks::NONE,
        payload_len: u32::try_from(payload.len()).expect("a time is short"),
        payload_sum: crc32fast::hash(&payload),
    };
    segment.write(&head.encode(segment.salt), START)?;
    segment.write(&payload, START + HEAD_LEN as u64)?;
    segment.sync()
}

async fn write_all(
    store: &EmbeddedStore,
    salvage: &Salvage,
    now: Timestamp,
    repaired: &mut Repaired,
) -> Result<(), RepairError> {
    let mut from = Bound::Unbounded;
    loop {
        let Bite { found, next } = salvage.records.ids(from).map_err(unreadable)?;
        let (mut items, mut bytes) = (Vec::new(), 0);
        for id in found {
            let entry = salvage.records.entry(&id).map_err(unreadable)?;
            let fate = salvage.fate(&id, now).map_err(|failure| unreadable(failure.into()))?;
            items.extend(item(id, fate, now, repaired));
            bytes += entry.map_or(0, |entry| entry.bytes());
            if items.len() >= RECORDS_AT_ONCE || bytes >= BITE_BYTES {
                write(store, std::mem::take(&mut items)).await?;
                bytes = 0;
            }
        }
        write(store, items).await?;
        match next {
            Some(last) => from = Bound::Excluded(last),
            None => return Ok(()),
        }
    }
}

/// Counts a record, and makes of it what the new store gets.
fn item(id: RecordId, fate: Fate, now: Timestamp, repaired: &mut Repaired) -> Option<Item> {
    match fate {
        Fate::Expired => {
            repaired.expired += 1;
            None
        }
        Fate::Damaged => {
            repaired.damaged += 1;
            Some(Item::Damaged(id))
        }
        // Fence and attempt id stay: an answer of this attempt may wait in the spool.
        Fate::Open(record) => {
            repaired.newly_held += 1;
            let held = Record { state: State::Held { since: now }, ..record };
            Some(Item::Record(Box::new(held)))
        }
        Fate::Kept(mut record) => {
            record.bury(now);
            *match record.state {
                State::Held { .. } => &mut repaired.held,
                State::Tombstone => &mut repaired.tombstones,
                _ => &mut repaired.completed,
            } += 1;
            Some(Item::Record(Box::new(record)))
        }
    }
}

async fn write(store: &EmbeddedStore, items: Vec<Item>) -> Result<(), RepairError> {
    // Quicker than the index can be written, and it would refuse new records.
    store.looks.ask(|records| Ok(records.index.wait_at_start())).await?;
    let writing = store.writes.ask(move |ledger| {
        for item in items {
            match item {
                Item::Record(record) => drop(ledger.import(*record)?),
                Item::Damaged(id) => ledger.import_damaged(id)?,
            }
        }
        Ok(())
    });
    Ok(writing.await?)
}

fn unreadable(trouble: Trouble) -> RepairError {
    let path = SCRATCH.into();
    let source = match trouble {
        Trouble::Failed(Failure::Refused(error) | Failure::Disk(error)) => error.into(),
        other => format!("{other:?}").into(),
    };
    RepairError::Open(OpenError::File { path, source })
}
