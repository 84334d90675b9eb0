//! Bodies that are cheap to send cost little to receive.

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
