//! Frames of HTTP/2 that attackers send.

/// The beginning of a connection, with settings of this payload.
pub(super) fn preface(settings: &[u8]) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(0x4, 0, 0, settings));
    bytes
}

/// A client's word that the server's settings count: its larger windows do from then on.
pub(super) fn settings_taken() -> Vec<u8> {
    frame(0x4, 0x1, 0, &[])
}

/// The setting that gives every stream a window of this size.
pub(super) fn initial_window(size: u32) -> [u8; 6] {
    let [a, b, c, d] = size.to_be_bytes();
    [0, 4, a, b, c, d]
}

/// The head of a keyed POST, without an end of its stream.
pub(super) fn post(stream: u32, path: &str, key: &str, length: usize) -> Vec<u8> {
    let (length, credential) = (length.to_string(), format!("Bearer {key}"));
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
        ("authorization", &credential),
        ("idempotency-key", key),
        ("content-type", "application/json"),
        ("content-length", &length),
    ] {
        // Literals without an index and without Huffman coding.
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend(text.as_bytes());
        }
    }
    frame(0x1, 0x4, stream, &block)
}

/// A part of a body.
pub(super) fn data(stream: u32, bytes: &[u8], is_last: bool) -> Vec<u8> {
    frame(0x0, u8::from(is_last), stream, bytes)
}

/// A client's word that it no longer wants the response.
pub(super) fn reset(stream: u32) -> Vec<u8> {
    frame(0x3, 0, stream, &8_u32.to_be_bytes())
}

pub(super) fn ping() -> Vec<u8> {
    frame(0x6, 0, 0, b"selfsame")
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}
