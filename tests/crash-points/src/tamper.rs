//! Event logs of stores with a planted bug: what a checker must find.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use crate::body;
use crate::disk::{Disk, index};
use crate::event::Event;
use crate::recorder::EIO;

/// The log of a store that acknowledges before its files are synced: no sync of a file.
pub fn without_file_syncs(events: &[Event]) -> Vec<Event> {
    let folders = folders(events);
    without_syncs(events, |path| !folders.contains(path))
}

/// The log of a store that forgets to sync folders after a change of their names.
pub fn without_folder_syncs(events: &[Event]) -> Vec<Event> {
    let folders = folders(events);
    without_syncs(events, |path| folders.contains(path))
}

/// The log of a store that forgets one sync of a file, the `number`th.
pub fn without_one_sync(events: &[Event], number: usize) -> Vec<Event> {
    let folders = folders(events);
    let mut seen = 0;
    without_syncs(events, |path| {
        seen += usize::from(!folders.contains(path));
        !folders.contains(path) && seen == number + 1
    })
}

/// The log of a store that swallows the failure of a sync of a file, the `number`th.
pub fn with_a_swallowed_failure(events: &[Event], number: usize) -> Vec<Event> {
    let kept = without_one_sync(events, number);
    let is_kept = |sync: u64| {
        kept.iter()
            .any(|event| matches!(event, Event::SyncEnd { sync: other, .. } if *other == sync))
    };
    let failed = |event: &Event| match event {
        Event::SyncEnd { fd, sync, .. } if !is_kept(*sync) => {
            Event::SyncEnd { fd: *fd, sync: *sync, error: EIO }
        }
        other => other.clone(),
    };
    events.iter().map(failed).collect()
}

/// The log of a store whose writes are torn unnoticed: one byte in the middle of each is another.
pub fn with_damaged_writes(events: &[Event]) -> Vec<Event> {
    let damaged = |event: &Event| match event {
        Event::Write { fd, offset, data } if data.len() > 64 => {
            let mut data = data.to_vec();
            let middle = data.len() / 2;
            data[middle] ^= 0x10;
            Event::Write { fd: *fd, offset: *offset, data: Bytes::from(data) }
        }
        other => other.clone(),
    };
    events.iter().map(damaged).collect()
}

/// The log of a store whose erasure leaves what was written: no body is written over.
pub fn without_overwriting(events: &[Event]) -> Vec<Event> {
    let (mut disk, mut kept) = (Disk::new(), Vec::new());
    for event in events {
        let overwrites = match event {
            Event::Write { fd, offset, data } => {
                let before = disk.content_of(*fd).unwrap_or_default();
                let start = index(*offset).min(before.len());
                let end = (start + data.len()).min(before.len());
                !body::tags(&before[start..end]).is_empty() && body::tags(data).is_empty()
            }
            _ => false,
        };
        if !overwrites {
            disk.apply(event);
            kept.push(event.clone());
        }
    }
    kept
}

/// The folders there ever were.
fn folders(events: &[Event]) -> HashSet<String> {
    let made = events.iter().filter_map(|event| match event {
        Event::MakeFolder { path } => Some(path.clone()),
        _ => None,
    });
    made.chain([String::new()]).collect()
}

fn without_syncs(events: &[Event], mut drops: impl FnMut(&str) -> bool) -> Vec<Event> {
    let (mut open, mut dropped) = (HashMap::new(), HashSet::new());
    let mut kept = Vec::new();
    for event in events {
        match event {
            Event::Open { fd, path, .. } => drop(open.insert(*fd, path.clone())),
            Event::Duplicate { fd, copy } => {
                let path = open.get(fd).cloned().expect("it is open");
                open.insert(*copy, path);
            }
            Event::SyncBegin { fd, sync } if drops(&open[fd]) => {
                dropped.insert(*sync);
                continue;
            }
            Event::SyncEnd { sync, .. } if dropped.contains(sync) => continue,
            _ => {}
        }
        kept.push(event.clone());
    }
    kept
}
