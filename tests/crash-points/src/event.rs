//! [`Event`]: what the recorder notes, in the order in which it happened.
//!
//! An event log is a row of events, each a head of 40 bytes, one or two paths, and data. Two kinds
//! are not the recorder's: a log that goes on after a crash begins with the notes of before, the
//! crash, the disk that it left, and the point from which on states are explored.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

const HEAD_LEN: usize = 40;
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// A change of the files below the recorded folder, or a note about it.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the calls")]
pub enum Event {
    Open {
        fd: i32,
        path: String,
        created: bool,
        truncated: bool,
    },
    Close {
        fd: i32,
    },
    Write {
        fd: i32,
        offset: u64,
        data: Bytes,
    },
    SetLen {
        fd: i32,
        len: u64,
    },
    /// Begins a sync, which covers what was written before.
    SyncBegin {
        fd: i32,
        sync: u64,
    },
    /// Ends a sync; with an error number if it failed.
    SyncEnd {
        fd: i32,
        sync: u64,
        error: i32,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    MakeFolder {
        path: String,
    },
    RemoveFolder {
        path: String,
    },
    /// A line of the workload's.
    Note {
        line: String,
    },
    /// An error that the recorder injected.
    Fault {
        call: String,
        number: u64,
        error: i32,
    },
    Duplicate {
        fd: i32,
        copy: i32,
    },
    /// The machine stopped: what was under way stays unknown.
    Crash,
    /// States are explored from here on.
    Start,
}

impl Event {
    /// Reads an event log whose paths are below `root`.
    ///
    /// # Panics
    ///
    /// If it is none.
    pub fn read_all(mut log: Bytes, root: &str) -> Vec<Self> {
        let mut events = Vec::new();
        while let Some(event) = Self::read(&mut log, root) {
            events.push(event);
        }
        events
    }

    /// The next event. A process that ended while a thread wrote its last one has not made that call.
    fn read(log: &mut Bytes, root: &str) -> Option<Self> {
        let head = log.get(..HEAD_LEN)?.to_vec();
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let len = HEAD_LEN + [28, 32, 36].map(|at| number(at) as usize).iter().sum::<usize>();
        if log.len() < len {
            return None;
        }
        let _head = log.split_to(HEAD_LEN);
        let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let (fd, error) = (number(4).cast_signed(), number(24).cast_signed());
        let (offset, len) = (long(8), long(16));
        let mut path = |at: usize| {
            let path = log.split_to(number(at) as usize);
            let path = String::from_utf8(path.to_vec()).expect("paths are UTF-8");
            let below = path.strip_prefix(root).map(|below| below.trim_start_matches('/'));
            below.map_or(path.clone(), str::to_owned)
        };
        let (path, to) = (path(28), path(32));
        let mut data = log.split_to(number(36) as usize);
        if data.is_empty() && len > 0 {
            data = zeros(len);
        }
        Some(match number(0) {
            1 => Self::Open { fd, path, created: offset & 1 != 0, truncated: offset & 2 != 0 },
            2 => Self::Close { fd },
            3 => Self::Write { fd, offset, data },
            4 => Self::SetLen { fd, len },
            5 => Self::SyncBegin { fd, sync: offset },
            6 => Self::SyncEnd { fd, sync: offset, error },
            7 => Self::Rename { from: path, to },
            8 => Self::Link { from: path, to },
            9 => Self::Unlink { path },
            10 => Self::MakeFolder { path },
            11 => Self::RemoveFolder { path },
            12 => Self::Note { line: String::from_utf8_lossy(&data).into_owned() },
            13 => Self::Fault { call: path, number: offset, error },
            14 => Self::Duplicate { fd, copy: i32::try_from(len).expect("a descriptor") },
            20 => Self::Crash,
            21 => Self::Start,
            kind => panic!("an event log has no events of kind {kind}"),
        })
    }

    /// Writes an event log, with paths as they are.
    pub fn write_all(events: &[Self]) -> Bytes {
        let mut log = BytesMut::new();
        for event in events {
            event.write(&mut log);
        }
        log.freeze()
    }

    fn write(&self, log: &mut BytesMut) {
        let none = Bytes::new();
        let (kind, fd, offset, len, error, path, to, data): (u32, _, _, _, _, &str, &str, _) =
            match self {
                Self::Open { fd, path, created, truncated } => {
                    let flags = u64::from(*created) | u64::from(*truncated) << 1;
                    (1, *fd, flags, 0, 0, path, "", none)
                }
                Self::Close { fd } => (2, *fd, 0, 0, 0, "", "", none),
                Self::Write { fd, offset, data } => {
                    let len = data.len() as u64;
                    let data = if is_zeros(data) { none } else { data.clone() };
                    (3, *fd, *offset, len, 0, "", "", data)
                }
                Self::SetLen { fd, len } => (4, *fd, 0, *len, 0, "", "", none),
                Self::SyncBegin { fd, sync } => (5, *fd, *sync, 0, 0, "", "", none),
                Self::SyncEnd { fd, sync, error } => (6, *fd, *sync, 0, *error, "", "", none),
                Self::Rename { from, to } => (7, -1, 0, 0, 0, from, to, none),
                Self::Link { from, to } => (8, -1, 0, 0, 0, from, to, none),
                Self::Unlink { path } => (9, -1, 0, 0, 0, path, "", none),
                Self::MakeFolder { path } => (10, -1, 0, 0, 0, path, "", none),
                Self::RemoveFolder { path } => (11, -1, 0, 0, 0, path, "", none),
                Self::Note { line } => {
                    let line = Bytes::from(line.clone());
                    (12, -1, 0, line.len() as u64, 0, "", "", line)
                }
                Self::Fault { call, number, error } => (13, -1, *number, 0, *error, call, "", none),
                Self::Duplicate { fd, copy } => {
                    (14, *fd, 0, u64::from(copy.cast_unsigned()), 0, "", "", none)
                }
                Self::Crash => (20, -1, 0, 0, 0, "", "", none),
                Self::Start => (21, -1, 0, 0, 0, "", "", none),
            };
        let number = |len: usize| u32::try_from(len).expect("parts of events are small");
        log.put_u32_le(kind);
        log.put_i32_le(fd);
        log.put_u64_le(offset);
        log.put_u64_le(len);
        log.put_i32_le(error);
        for len in [path.len(), to.len(), data.len()] {
            log.put_u32_le(number(len));
        }
        log.put_slice(path.as_bytes());
        log.put_slice(to.as_bytes());
        log.put_slice(&data);
    }

    /// Tells whether the disk is another after the event, or may become another.
    pub fn is_of_disk(&self) -> bool {
        match self {
            Self::Open { created, truncated, .. } => *created || *truncated,
            Self::Write { .. }
            | Self::SetLen { .. }
            | Self::SyncEnd { .. }
            | Self::Rename { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::MakeFolder { .. }
            | Self::RemoveFolder { .. } => true,
            _ => false,
        }
    }
}

fn zeros(len: u64) -> Bytes {
    let len = usize::try_from(len).expect("it was in memory");
    match len <= ZEROS.len() {
        true => Bytes::from_static(&ZEROS[..len]),
        false => vec![0; len].into(),
    }
}

/// Tells zeros by a comparison that is quick also without optimization.
fn is_zeros(data: &[u8]) -> bool {
    data.len() >= 4096 && data[0] == 0 && data[1..] == data[..data.len() - 1]
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { fd, path, created, truncated } => {
                let how = match (created, truncated) {
                    (true, _) => "create",
                    (_, true) => "open and empty",
                    _ => "open",
                };
                write!(f, "{how} {path} as {fd}")
            }
            Self::Close { fd } => write!(f, "close {fd}"),
            Self::Write { fd, offset, data } => {
                let what = if is_zeros(data) { "zeros" } else { "bytes" };
                write!(f, "write {} {what} to {fd} at {offset}", data.len())
            }
            Self::SetLen { fd, len } => write!(f, "set the size of {fd} to {len}"),
            Self::SyncBegin { fd, sync } => write!(f, "begin sync {sync} of {fd}"),
            Self::SyncEnd { sync, error: 0, .. } => write!(f, "end sync {sync}"),
            Self::SyncEnd { sync, error, .. } => write!(f, "end sync {sync}: it FAILED ({error})"),
            Self::Rename { from, to } => write!(f, "rename {from} to {to}"),
            Self::Link { from, to } => write!(f, "link {from} as {to}"),
            Self::Unlink { path } => write!(f, "unlink {path}"),
            Self::MakeFolder { path } => write!(f, "make the folder {path}"),
            Self::RemoveFolder { path } => write!(f, "remove the folder {path}"),
            Self::Note { line } => write!(f, "note: {}", line.trim_end()),
            Self::Fault { call, number, error } => {
                write!(f, "INJECTED: call {number}, {call}, fails ({error})")
            }
            Self::Duplicate { fd, copy } => write!(f, "duplicate {fd} as {copy}"),
            Self::Crash => f.write_str("the power is cut"),
            Self::Start => f.write_str("states are explored from here on"),
        }
    }
}
