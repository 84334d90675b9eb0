//! [`Client`]: one connection of HTTP/1.1, which sends a request and reads its response.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use socket2::{Domain, Socket, Type};

const TIMEOUT: Duration = Duration::from_secs(5);

/// A client that connects when it must.
pub(super) struct Client {
    from: Ipv4Addr,
    server: SocketAddr,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

/// A response, as far as somebody asks for it.
pub(super) struct Response<'a> {
    pub(super) status: u16,
    pub(super) body: &'a [u8],
}

impl Client {
    pub(super) fn new(server: SocketAddr) -> Self {
        Self::from_address(Ipv4Addr::LOCALHOST, server)
    }

    /// A client with an address of its own.
    pub(super) fn from_address(from: Ipv4Addr, server: SocketAddr) -> Self {
        Self { from, server, stream: None, buffer: Vec::new() }
    }

    /// Sends one request and reads its response.
    pub(super) fn exchange(&mut self, request: &[u8]) -> Result<Response<'_>> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(self.from, self.server)?,
        };
        stream.write_all(request)?;
        self.buffer.clear();
        let mut chunk = [0; 16 * 1024];
        loop {
            match stream.read(&mut chunk)? {
                0 => bail!("the server closed a connection before its response was whole"),
                read => self.buffer.extend_from_slice(&chunk[..read]),
            }
            let Some(end) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                continue;
            };
            let head = std::str::from_utf8(&self.buffer[..end])?.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.context("a response without a length")?.parse()?;
            if self.buffer.len() < end + 4 + length {
                continue;
            }
            let status = head.split(' ').nth(1).context("a response without a status")?.parse()?;
            if !head.contains("connection: close") {
                self.stream = Some(stream);
            }
            return Ok(Response { status, body: &self.buffer[end + 4..] });
        }
    }
}

fn connect(from: Ipv4Addr, server: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&server.into(), TIMEOUT)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}
