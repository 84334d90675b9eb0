//! The bytes of every kind of frame, as committed in `tests/golden`, are written and read by
//! this build. A difference means that stores in the field can no longer be read: make a new
//! version and keep reading the old one.
//!
//! Only for a new version or a new kind of frame, write the files with
//! `SELFSAME_WRITE_GOLDEN=1 cargo test -p selfsame-core --test golden`, and commit them.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;
use std::{env, fs};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use selfsame_core::wire::{self, WireError};
use selfsame_core::{
    Answer, AnswerBody, AttemptId, Birth, Checkpoint, Fence, Fingerprint, Keepsake, KeptRequest,
    Key, Label, Lease, Note, Phase, Record, RecordId, Recover, Release, State, TenantTag,
    Timestamp,
};

const ID: [u8; RecordId::LEN] = [0x1d; RecordId::LEN];

type Read = dyn Fn(&[u8]) -> Result<bool, WireError>;

/// One golden file: its name, the frame of its value, and whether bytes give that value back.
struct Golden {
    name: &'static str,
    frame: Vec<u8>,
    read: Box<Read>,
}

impl Golden {
    fn new<T: PartialEq + Debug + 'static>(
        name: &'static str,
        value: T,
        encode: impl Fn(&T) -> Vec<u8>,
        decode: impl Fn(&[u8]) -> Result<T, WireError> + 'static,
    ) -> Self {
        let frame = encode(&value);
        Self { name, frame, read: Box::new(move |bytes| Ok(decode(bytes)? == value)) }
    }

    fn path(&self) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        folder.join(format!("v{}-{}.bin", self.frame[2], self.name))
    }

    fn committed(&self) -> Vec<u8> {
        static WRITTEN: Once = Once::new();
        if env::var_os("SELFSAME_WRITE_GOLDEN").is_some() {
            WRITTEN.call_once(write_all);
        }
        fs::read(self.path()).expect("the file is committed")
    }
}

fn write_all() {
    for golden in all() {
        fs::write(golden.path(), &golden.frame).expect("the folder can be written");
    }
}

fn all() -> Vec<Golden> {
    let id = RecordId::from_bytes(ID);
    let claimed = State::Claimed { lease_until: at(30_000) };
    let claimed_again = claimed.clone();
    let completed = State::Completed { at: at(1_500), answer: answer() };
    let held = State::Held { since: at(31_000) };
    let encode_landing = |(lease, answer): &(Lease, Answer)| wire::encode_landing(lease, answer);
    let not_kept = Answer { body: AnswerBody::NotKept, ..answer() };
    vec![
        golden_record("record-claimed", Record { checkpoint: None, ..record(claimed) }),
        golden_record("record-claimed-keepsake", keeping(record(claimed_again))),
        golden_record("record-completed", record(completed)),
        golden_record("record-failed", Record { recover: Recover::Auto, ..record(State::Failed) }),
        golden_record("record-held", Record { recover: Recover::Hold, ..record(held) }),
        golden_record("record-tombstone", bare(record(State::Tombstone))),
        golden_answer("answer", answer()),
        golden_answer("answer-not-kept", not_kept),
        golden_answer("answer-sealed", sealed_answer()),
        Golden::new("bare-answer", answer(), wire::encode_bare_answer, wire::decode_bare_answer),
        Golden::new(
            "checkpoint",
            checkpoint(),
            move |value| wire::encode_checkpoint(&id, value),
            move |bytes| wire::decode_checkpoint(&id, bytes),
        ),
        Golden::new(
            "keepsake",
            keepsake(),
            move |value| wire::encode_keepsake(&id, value),
            move |bytes| wire::decode_keepsake(&id, bytes),
        ),
        Golden::new(
            "keepsake-noted",
            noted_keepsake(),
            move |value| wire::encode_keepsake(&id, value),
            move |bytes| wire::decode_keepsake(&id, bytes),
        ),
        Golden::new(
            "checkpoint-sealed",
            sealed_checkpoint(),
            move |value| wire::encode_checkpoint(&id, value),
            move |bytes| wire::decode_checkpoint(&id, bytes),
        ),
        Golden::new("request", request(), wire::encode_request, wire::decode_request),
        Golden::new("landing", (lease(), answer()), encode_landing, wire::decode_landing),
        Golden::new(
            "landing-sealed",
            (lease(), sealed_answer()),
            encode_landing,
            wire::decode_landing,
        ),
        Golden::new(
            "release",
            (lease(), Release::Forget),
            |(lease, release)| wire::encode_release(lease, *release),
            wire::decode_release,
        ),
        Golden::new(
            "cancellation",
            (lease().id, lease().attempt_id),
            |(id, attempt_id)| wire::encode_cancellation(id, *attempt_id),
            wire::decode_cancellation,
        ),
        Golden::new("phase", phase(), wire::encode_phase, wire::decode_phase),
    ]
}

/// A store's own frame says whose it is and has a checksum: a compact one has neither.
#[test]
fn every_frame_is_the_same_after_it_was_compact() {
    let id = RecordId::from_bytes(ID);
    for golden in all() {
        let compact = wire::compact(&golden.frame, &id);
        let expanded = wire::expand(&compact, &id).expect("it was just compacted");
        assert_eq!(*expanded, *golden.frame, "{}", golden.name);
        assert!(compact.len() < golden.frame.len(), "{}", golden.name);
        for len in 0..compact.len() {
            if let Ok(expanded) = wire::expand(&compact[..len], &id) {
                assert_ne!(*expanded, *golden.frame, "{} of {len} bytes", golden.name);
            }
        }
        // Those that were written before there was a compact form.
        assert_eq!(wire::expand(&golden.frame, &id).ok().as_deref(), Some(&*golden.frame));
    }
}

#[test]
fn a_compact_record_is_as_committed() {
    let id = RecordId::from_bytes(ID);
    let golden = golden_record("record-failed", record(State::Failed));
    let path = golden.path().with_file_name("compact-record-failed.bin");
    let compact = wire::compact(&golden.frame, &id);
    if env::var_os("SELFSAME_WRITE_GOLDEN").is_some() {
        fs::write(&path, &compact).expect("the folder can be written");
    }
    assert_eq!(fs::read(&path).expect("the file is committed"), compact);
}

fn golden_record(name: &'static str, record: Record) -> Golden {
    Golden::new(name, record, wire::encode_record, wire::decode_record)
}

fn golden_answer(name: &'static str, answer: Answer) -> Golden {
    let id = RecordId::from_bytes(ID);
    let encode = move |value: &Answer| wire::encode_answer(&id, value);
    Golden::new(name, answer, encode, move |bytes| wire::decode_answer(&id, bytes))
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000 + millis)
}

fn record(state: State) -> Record {
    let fingerprint: [u8; Fingerprint::LEN] =
        std::array::from_fn(|at| u8::try_from(at).expect("a fingerprint is short"));
    Record {
        id: RecordId::from_bytes(ID),
        fingerprint: Fingerprint::from_bytes(fingerprint),
        state,
        fence: Fence::from_number(0x0102_0304_0506_0708),
        attempt: 3,
        attempt_id: AttemptId::from_bytes([0xa7; AttemptId::LEN]),
        birth: Birth::from_bytes([0xb1; Birth::LEN]),
        recover: Recover::Resume,
        checkpoint: Some(checkpoint()),
        created_at: at(0),
        expires_at: at(86_400_000),
        retention: Duration::from_secs(86_400),
        remember: Duration::from_secs(30 * 86_400),
        label: Label {
            tenant: TenantTag::from_bytes([0x7e; TenantTag::LEN]),
            tenant_name: Some("acme".into()),
            key: Key::parse(b"order-1").expect("valid"),
            route: "POST /charges".into(),
        },
        keepsake: None,
    }
}

fn keepsake() -> Keepsake {
    Keepsake {
        outline: Some(Bytes::from_static(b"\x01\x02outline")),
        request: Some(Bytes::from_static(b"\x00sealed\xff")),
        ..Keepsake::default()
    }
}

fn noted_keepsake() -> Keepsake {
    let note = Note { at: at(40_000), ..Note::new("alice", Some("no such charge")) };
    Keepsake {
        line: Some(Keepsake::line(&Method::POST, "/charges/7")),
        note: Some(Box::new(note)),
        ..keepsake()
    }
}

fn request() -> KeptRequest {
    KeptRequest {
        method: Method::POST,
        target: "/charges?currency=eur".to_owned(),
        headers: headers(&[("content-type", "application/json"), ("idempotency-key", "k")]),
        body: Bytes::from_static(br#"{"amount":10}"#),
    }
}

fn keeping(record: Record) -> Record {
    Record { keepsake: Some(Box::new(keepsake())), ..record }
}

/// Without anything that may be absent.
fn bare(record: Record) -> Record {
    let label = Label { tenant_name: None, ..record.label };
    Record { checkpoint: None, label, ..record }
}

fn phase() -> Phase {
    Phase {
        id: RecordId::from_bytes(ID),
        birth: Birth::from_bytes([0xb1; Birth::LEN]),
        ordinal: 2,
        name: "charge_created".to_owned(),
        output: Bytes::from_static(br#"{"charge":"ch_1"}"#),
    }
}

fn answer() -> Answer {
    let pairs = [("content-type", "text/plain"), ("link", "</b>"), ("link", "</a>")];
    Answer {
        status: StatusCode::CREATED,
        headers: headers(&pairs),
        body: AnswerBody::Kept(Bytes::from_static(b"\x00charged\xff")),
        trailers: headers(&[("grpc-status", "0")]),
    }
}

/// As an answer is kept for whoever has the key.
fn sealed_answer() -> Answer {
    let (headers, trailers) = (HeaderMap::new(), HeaderMap::new());
    let body = AnswerBody::Sealed(Bytes::from_static(b"\x01\x03key\x00sealed"));
    Answer { headers, body, trailers, ..answer() }
}

fn sealed_checkpoint() -> Checkpoint {
    Checkpoint { is_sealed: true, ..checkpoint() }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for &(name, value) in pairs {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
}

fn checkpoint() -> Checkpoint {
    Checkpoint::new("charge_created", &br#"{"charge":"ch_1"}"#[..])
}

fn lease() -> Lease {
    Lease {
        id: RecordId::from_bytes(ID),
        fence: Fence::from_number(2),
        attempt_id: AttemptId::from_bytes([0xa7; AttemptId::LEN]),
        length: Duration::from_secs(30),
    }
}

/// The frame with a checksum that fits again.
fn resealed(mut frame: Vec<u8>) -> Vec<u8> {
    frame.truncate(frame.len() - 4);
    let sum = crc32fast::hash(&frame);
    frame.extend_from_slice(&sum.to_le_bytes());
    frame
}

#[test]
fn each_value_is_written_as_it_was_committed() {
    for golden in all() {
        assert_eq!(golden.frame, golden.committed(), "{}", golden.name);
    }
}

#[test]
fn each_committed_file_is_read_as_its_value() {
    for golden in all() {
        assert_eq!((golden.read)(&golden.committed()), Ok(true), "{}", golden.name);
    }
}

#[test]
fn each_flipped_bit_is_an_error() {
    for golden in all() {
        let frame = golden.committed();
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!((golden.read)(&damaged).is_err(), "{}, bit {bit}", golden.name);
        }
    }
}

#[test]
fn a_cut_off_or_prolonged_frame_is_an_error() {
    for golden in all() {
        let frame = golden.committed();
        for len in 0..frame.len() {
            assert!((golden.read)(&frame[..len]).is_err(), "{}, {len} bytes", golden.name);
        }
        let longer = [&frame[..], &[0]].concat();
        assert!((golden.read)(&longer).is_err(), "{}", golden.name);
    }
}

#[test]
fn no_frame_makes_its_reader_panic() {
    for golden in all() {
        let frame = golden.committed();
        for bit in 0..frame.len() * 8 {
            let mut strange = frame.clone();
            strange[bit / 8] ^= 1 << (bit % 8);
            // What it reads is open; a checksum that fits must not be all that protects memory.
            let _ = (golden.read)(&resealed(strange));
        }
        for len in 8..frame.len() {
            let _ = (golden.read)(&resealed(frame[..len].to_vec()));
        }
    }
}

#[test]
fn an_unknown_version_is_an_error_and_names_it() {
    for golden in all() {
        for found in [0, wire::VERSION + 1, u8::MAX] {
            let mut frame = golden.committed();
            frame[2] = found;
            let read = (golden.read)(&resealed(frame));
            assert_eq!(read, Err(WireError::Version { found }), "{}", golden.name);
        }
    }
}

#[test]
fn a_frame_of_another_kind_or_record_is_an_error() {
    let goldens = all();
    for golden in &goldens {
        for other in &goldens {
            let kind = |golden: &Golden| golden.frame[3];
            if kind(golden) != kind(other) {
                let read = (golden.read)(&other.committed());
                assert_eq!(read, Err(WireError::Misplaced), "{} as {}", other.name, golden.name);
            }
        }
    }
    let other = RecordId::from_bytes([0x2d; RecordId::LEN]);
    let id = RecordId::from_bytes(ID);
    let answer_frame = wire::encode_answer(&id, &answer());
    assert_eq!(wire::decode_answer(&other, &answer_frame), Err(WireError::Misplaced));
    let checkpoint_frame = wire::encode_checkpoint(&id, &checkpoint());
    assert_eq!(wire::decode_checkpoint(&other, &checkpoint_frame), Err(WireError::Misplaced));
    let keepsake_frame = wire::encode_keepsake(&id, &keepsake());
    assert_eq!(wire::decode_keepsake(&other, &keepsake_frame), Err(WireError::Misplaced));
}
