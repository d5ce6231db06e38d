//! A connection's bytes, with a limit of time for a peer that does not take them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// The longest time in which the peer of a connection takes nothing of what is sent to it.
pub(crate) const WRITE_TIME: Duration = Duration::from_secs(30);

/// A connection that fails once its peer has taken nothing for a time.
pub(crate) struct Stream<T> {
    inner: T,
    patience: Duration,
    /// The end of the time, while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> Stream<T> {
    pub(crate) fn new(inner: T, patience: Duration) -> Self {
        Self { inner, patience, stalled: None }
    }

    fn written<R>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stream<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.written(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        self.written(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_peer_that_takes_nothing_loses_the_connection() {
        let (ours, mut theirs) = duplex(4);
        let mut stream = Stream::new(ours, Duration::from_millis(20));
        stream.write_all(b"0123").await.unwrap();
        let error = stream.write_all(b"4567").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // Once the peer reads, its time begins anew.
        let mut taken = [0; 4];
        theirs.read_exact(&mut taken).await.unwrap();
        stream.write_all(b"89ab").await.unwrap();
        assert_eq!(stream.write_all(b"c").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
