//! A client that says exactly what it is told to, and can leave at any moment.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;
use super::message::{self, Headers};

/// A request to be sent, whole or not.
#[derive(Clone)]
pub(crate) struct Request {
    to: SocketAddr,
    method: String,
    target: String,
    headers: Headers,
    body: Vec<u8>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Headers,
}

impl Request {
    pub(crate) fn new(to: SocketAddr, method: &str, target: &str) -> Self {
        let headers = vec![("Host".into(), to.to_string())];
        Self { to, method: method.into(), target: target.into(), headers, body: Vec::new() }
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("Idempotency-Key", key)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// To another host than the one it is sent to.
    pub(crate) fn host(mut self, host: &str) -> Self {
        self.headers.retain(|(name, _)| name != "Host");
        self.header("Host", host)
    }

    pub(crate) fn json(self, body: &str) -> Self {
        self.header("Content-Type", "application/json").body(body.as_bytes())
    }

    pub(crate) fn body(mut self, body: &[u8]) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it on a connection of its own and waits for the answer.
    pub(crate) fn send(&self) -> Answer {
        self.try_send().expect("an answer")
    }

    /// As [`Request::send`], where there may be no answer.
    pub(crate) fn try_send(&self) -> std::io::Result<Answer> {
        let mut connection = self.connect()?;
        connection.write_all(&self.bytes())?;
        read_answer(&mut BufReader::new(connection))
    }

    /// Sends all of it, and leaves the connection open for the test to read, or to drop.
    pub(crate) fn begin(&self) -> TcpStream {
        let mut connection = self.connect().expect("a connection");
        connection.write_all(&self.bytes()).expect("sent");
        connection
    }

    /// Sends all but the last `missing` bytes of the body, and hangs up.
    pub(crate) fn hang_up_before_the_last(&self, missing: usize) {
        let bytes = self.bytes();
        let mut connection = self.connect().expect("a connection");
        connection.write_all(&bytes[..bytes.len() - missing]).expect("sent");
    }

    /// A connection for requests one after the other.
    pub(crate) fn open(&self) -> BufReader<TcpStream> {
        BufReader::new(self.connect().expect("a connection"))
    }

    /// Sends it on a connection that is open already, and waits for the answer.
    pub(crate) fn send_on(
        &self,
        connection: &mut BufReader<impl Read + Write>,
    ) -> std::io::Result<Answer> {
        connection.get_mut().write_all(&self.bytes())?;
        read_answer(connection)
    }

    /// The request as it goes over the wire.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let framed = |name: &str| {
            name.eq_ignore_ascii_case("content-length")
                || name.eq_ignore_ascii_case("transfer-encoding")
        };
        if !self.headers.iter().any(|(name, _)| framed(name)) {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        [head.as_bytes(), b"\r\n", &self.body].concat()
    }

    pub(crate) fn connect(&self) -> std::io::Result<TcpStream> {
        let connection = TcpStream::connect(self.to)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_nodelay(true)?;
        Ok(connection)
    }
}

impl Answer {
    /// Reads the next answer on a connection.
    pub(crate) fn read(connection: &mut BufReader<impl Read>) -> std::io::Result<Self> {
        read_answer(connection)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        message::find(&self.headers, name)
    }

    /// Every value of a header, in its order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.iter().filter(|(found, _)| found == name);
        lines.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The `#slug` of a problem, and nothing for any other answer.
    pub(crate) fn problem(&self) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        let kind = body.get("type")?.as_str()?;
        Some(kind.split_once('#')?.1.to_owned())
    }
}

/// Reads until `text` has come.
pub(crate) fn read_up_to(connection: &mut impl Read, text: &str) -> String {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(text) {
        let mut byte = [0];
        connection.read_exact(&mut byte).expect("more to read");
        read.push(byte[0]);
    }
    String::from_utf8_lossy(&read).into_owned()
}

fn read_answer(connection: &mut BufReader<impl Read>) -> std::io::Result<Answer> {
    loop {
        let message =
            message::read(connection, true)?.ok_or(std::io::ErrorKind::ConnectionAborted)?;
        let status = message.start.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status: u16 = status.ok_or(std::io::ErrorKind::InvalidData)?;
        if status >= 200 {
            let message::Message { headers, body, trailers, .. } = message;
            return Ok(Answer { status, headers, body, trailers });
        }
    }
}
