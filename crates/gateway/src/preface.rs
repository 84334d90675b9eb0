//! [`Spoken`]: which HTTP a connection speaks, told by its first bytes, which are then given again.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What every HTTP/2 connection begins with, and no request of HTTP/1.1 ever does.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How much is read at first: a whole request of the usual size, so that the look at its beginning
/// costs HTTP/1.1 no read more.
const FIRST_READ: usize = 8 * 1024;

/// Which HTTP a connection speaks.
pub(crate) enum Spoken {
    Http1(Begun),
    Http2(Begun),
}

impl Spoken {
    /// Reads until it is clear.
    pub(crate) async fn on(stream: TcpStream) -> io::Result<Self> {
        let mut begun = BytesMut::new();
        loop {
            stream.readable().await?;
            let known = begun.len();
            // Not before: a connection that says nothing holds no buffer.
            begun.resize(FIRST_READ, 0);
            let read = stream.try_read(&mut begun[known..]);
            begun.truncate(known + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            if begun.starts_with(PREFACE) {
                return Ok(Self::Http2(Begun { bytes: begun.freeze(), stream }));
            }
            if !PREFACE.starts_with(&begun) {
                break;
            }
        }
        Ok(Self::Http1(Begun { bytes: begun.freeze(), stream }))
    }
}

/// A connection whose first bytes were read already.
pub(crate) struct Begun {
    bytes: Bytes,
    stream: TcpStream,
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let given = self.bytes.len().min(buf.remaining());
        buf.put_slice(&self.bytes[..given]);
        self.bytes.advance(given);
        if self.bytes.is_empty() {
            // Its memory is not held for as long as the connection lives.
            self.bytes = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Begun {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
