//! Bytes of a connection that has left HTTP, copied both ways until an end closes or both are silent.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::sleep;

/// Parts of the idle timeout after each of which is checked for activity.
const CHECKS: u32 = 4;

/// The end of a tunnel.
#[derive(Debug)]
pub(crate) enum TunnelEnd {
    /// One of its ends closed it, or was lost.
    Closed(io::Result<()>),
    /// No byte went either way for too long.
    Idle,
}

/// Copies both ways. A silence is noticed no later than a quarter of `idle_timeout` after it was too long.
pub(crate) async fn splice<A, B>(client: A, server: B, idle_timeout: Duration) -> TunnelEnd
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let moves = AtomicU32::new(0);
    let mut client = Tracked { stream: client, moves: &moves };
    let mut server = Tracked { stream: server, moves: &moves };
    tokio::select! {
        ended = copy_bidirectional(&mut client, &mut server) => TunnelEnd::Closed(ended.map(drop)),
        () = silence(&moves, idle_timeout) => TunnelEnd::Idle,
    }
}

/// Waits until `moves` has been the same for `idle_timeout`. A clock that is read for each byte would cost
/// more than the copying.
async fn silence(moves: &AtomicU32, idle_timeout: Duration) {
    let (mut seen, mut silent) = (moves.load(Ordering::Relaxed), 0);
    while silent < CHECKS {
        sleep(idle_timeout / CHECKS).await;
        let now = moves.load(Ordering::Relaxed);
        silent = if now == seen { silent + 1 } else { 0 };
        seen = now;
    }
}

/// One end of a tunnel, which counts reads and writes that moved something.
struct Tracked<'a, S> {
    stream: S,
    moves: &'a AtomicU32,
}

impl<S> Tracked<'_, S> {
    fn count(&self, wrote: &Poll<io::Result<usize>>) {
        if matches!(wrote, Poll::Ready(Ok(1..))) {
            self.moves.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tracked<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let begun = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > begun {
            self.moves.fetch_add(1, Ordering::Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tracked<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.count(&wrote);
        wrote
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.count(&wrote);
        wrote
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_lives_while_either_end_speaks() {
        let ((mut client, near), (mut server, far)) = (duplex(64), duplex(64));
        let talk = async {
            for _ in 0..10 {
                sleep(IDLE * 4 / 5).await;
                client.write_all(b"a").await.expect("open");
                assert_eq!(server.read_u8().await.expect("open"), b'a');
                sleep(IDLE * 4 / 5).await;
                server.write_all(b"b").await.expect("open");
                assert_eq!(client.read_u8().await.expect("open"), b'b');
            }
            Instant::now()
        };
        let (end, spoke) = tokio::join!(splice(near, far, IDLE), talk);
        assert!(matches!(end, TunnelEnd::Idle), "{end:?}");
        let silent = spoke.elapsed();
        assert!(silent >= IDLE && silent <= IDLE * 5 / 4, "{silent:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_ends_with_its_ends() {
        let ((client, near), (server, far)) = (duplex(64), duplex(64));
        drop((client, server));
        let end = splice(near, far, IDLE).await;
        assert!(matches!(end, TunnelEnd::Closed(Ok(()))), "{end:?}");
    }
}
