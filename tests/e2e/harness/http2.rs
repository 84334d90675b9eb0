//! A client that speaks HTTP/2, all its requests on one connection.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Request};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::Answer;
use super::message::Headers;

/// A connection of a client's.
pub(crate) struct Http2 {
    sender: SendRequest<Bytes>,
    driving: JoinSet<Result<(), h2::Error>>,
}

impl Http2 {
    pub(crate) async fn connect(to: SocketAddr) -> Self {
        Self::over(TcpStream::connect(to).await.expect("a connection")).await
    }

    /// As [`connect`](Self::connect), from another address of this machine.
    pub(crate) async fn connect_from(source: Ipv4Addr, to: SocketAddr) -> Self {
        Self::over(connect_from(source, to).await).await
    }

    async fn over(stream: TcpStream) -> Self {
        let (sender, connection) = h2::client::handshake(stream).await.expect("a handshake");
        Self { sender, driving: JoinSet::from_iter([connection]) }
    }

    /// Sends a request and waits for the answer.
    pub(crate) async fn send(&self, request: Request<&str>) -> Answer {
        self.try_send(request).await.expect("an answer")
    }

    /// As [`send`](Self::send), where there may be no answer.
    pub(crate) async fn try_send(&self, request: Request<&str>) -> Result<Answer, h2::Error> {
        let (head, body) = request.into_parts();
        let ends = body.is_empty();
        let (answer, mut stream) = self.begin(Request::from_parts(head, ()), ends).await;
        if !ends {
            stream.send_data(Bytes::copy_from_slice(body.as_bytes()), true)?;
        }
        read(answer).await
    }

    /// Sends a head, and leaves the rest to the test.
    pub(crate) async fn begin(
        &self,
        request: Request<()>,
        ends: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut sender = self.sender.clone().ready().await.expect("an open connection");
        sender.send_request(request, ends).expect("sent")
    }

    /// Waits until the other end has closed the connection.
    pub(crate) async fn closed(mut self) -> Result<(), h2::Error> {
        self.driving.join_next().await.expect("a connection").expect("no panic")
    }
}

/// A connection from another address of this machine.
pub(crate) async fn connect_from(source: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((source, 0).into()).expect("an address of this machine");
    socket.connect(to).await.expect("a connection")
}

/// The whole answer.
pub(crate) async fn read(answer: ResponseFuture) -> Result<Answer, h2::Error> {
    let (head, mut stream) = answer.await?.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    let trailers = fields(&stream.trailers().await?.unwrap_or_default());
    Ok(Answer { status: head.status.as_u16(), headers: fields(&head.headers), body, trailers })
}

fn fields(headers: &HeaderMap) -> Headers {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
