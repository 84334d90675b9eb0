//! A network that knows requests and answers: a [`Ledger`](super::Ledger) that sends on what it gets.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use super::{Answer, Effect, Request, Then};

impl Effect {
    /// The same request, to be sent on to `to`.
    pub(crate) fn onwards(&self, to: SocketAddr) -> Request {
        let request = Request::new(to, &self.method, &self.target).body(&self.body);
        let ours = ["host", "content-length"];
        let headers = self.headers.iter().filter(|(name, _)| !ours.contains(&name.as_str()));
        headers.fold(request, |request, (name, value)| request.header(name, value))
    }
}

impl Answer {
    /// So many quarters of an answer; where that is not all of it, the connection is cut.
    pub(crate) fn deliver(&self, quarters: usize, to: &mut TcpStream) -> Then {
        let mut bytes = format!("HTTP/1.1 {} Status\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend(format!("{name}: {value}\r\n").bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        to.write_all(&bytes[..bytes.len() * quarters / 4]).expect("written");
        if quarters == 4 { Then::KeepOpen } else { Then::Close }
    }
}
