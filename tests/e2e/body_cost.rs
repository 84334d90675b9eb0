//! Bodies that are cheap to send cost little to receive.

use std::io::Write;

use crate::harness::{Gateway, Ledger};

/// In KiB.
const MIB: u64 = 1024;

/// `body` in chunks of `len` bytes.
fn chunked(body: &[u8], len: usize) -> Vec<u8> {
    let mut sent = Vec::new();
    for chunk in body.chunks(len) {
        sent.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        sent.extend_from_slice(chunk);
        sent.extend_from_slice(b"\r\n");
    }
    sent.extend_from_slice(b"0\r\n\r\n");
    sent
}

#[test]
fn a_body_in_one_byte_chunks_holds_no_more_memory_than_a_plain_one() {
    for settings in ["", "[idempotency]\nmode = \"observe\"\n"] {
        let ledger = Ledger::start();
        let gateway = Gateway::in_front_of(&ledger).with(settings).start();
        let body = vec![b'x'; 1_000_000];
        let post = |key: &str| gateway.post("/charges").key(key);
        assert_eq!(post("plain").body(&body).send().status, 201);
        let before = gateway.peak_resident_kib();

        let chunks = post("chunks").header("Transfer-Encoding", "chunked").body(&chunked(&body, 1));
        assert_eq!(chunks.send().status, 201);
        let grown = gateway.peak_resident_kib() - before;
        assert!(grown < 12 * MIB, "{grown} KiB for a body of 1 MB");
        assert!(ledger.of("chunks")[0].body == body);
    }
}

/// `body`, packed by gzip at `level`.
fn gzip(body: &[u8], level: u32) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
    packed.write_all(body).and_then(|()| packed.finish()).expect("packed")
}

#[test]
fn a_body_that_unpacks_to_far_more_than_was_sent_is_compared_as_it_was_sent() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let packed = |key: &str, body: &[u8], level: u32| {
        let post = gateway.post("/charges").key(key).header("Content-Encoding", "gzip");
        post.header("Content-Type", "application/json").body(&gzip(body, level)).send()
    };
    let bomb = [b"[", &b"1,".repeat(500_000)[..], b"1]"].concat();
    let first = packed("bomb", &bomb, 9);
    assert_eq!(first.status, 201);
    packed("bomb", &bomb, 9).replays(&first);
    packed("bomb", &bomb, 1).refused("key-reused");

    let usual = br#"{"amount":10,"currency":"eur"}"#.repeat(20);
    let first = packed("usual", &usual, 9);
    packed("usual", &usual, 1).replays(&first);
    assert_eq!(ledger.all().len(), 2);
}
