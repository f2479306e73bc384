//! The listener of a Unix socket whose clients may name its path as the authority of their requests.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};

use crate::authority::Rewriter;

/// Bytes that are taken from a client at once.
const READ_BYTES: usize = 16 << 10;

/// Such a listener.
pub struct TolerantListener(pub UnixListener);

/// A connection.
pub struct TolerantStream {
    stream: UnixStream,
    rewriter: Rewriter,
    /// Rewritten bytes that the server has not read yet, and how many it has.
    ready: Vec<u8>,
    read: usize,
}

impl Listener for TolerantListener {
    type Io = TolerantStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TolerantStream, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        (TolerantStream { stream, rewriter: Rewriter::default(), ready: Vec::new(), read: 0 }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl AsyncRead for TolerantStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.read == this.ready.len() {
            let mut bytes = [0; READ_BYTES];
            let mut taken = ReadBuf::new(&mut bytes);
            std::task::ready!(Pin::new(&mut this.stream).poll_read(context, &mut taken))?;
            if taken.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            (this.read, this.ready) = (0, Vec::new());
            this.rewriter.take(taken.filled(), &mut this.ready);
        }
        let count = into.remaining().min(this.ready.len() - this.read);
        into.put_slice(&this.ready[this.read..this.read + count]);
        this.read += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TolerantStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
