//! A connection's bytes, with a limit of time for a peer that does not take them, and a least pace for one that takes a long
//! answer: the server holds all of it meanwhile.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// The longest time in which the peer of a connection takes nothing of what is sent to it.
pub(crate) const WRITE_TIME: Duration = Duration::from_secs(30);
/// The time over which the pace of a peer is measured that takes a long answer.
const PACE_TIME: Duration = Duration::from_secs(30);
/// The least bytes of a long answer that a peer takes in that time: 16 KiB in a second.
const PACE_BYTES: usize = 30 * 16 * 1024;

/// The long answers that a connection is sending.
#[derive(Clone, Debug, Default)]
pub(crate) struct LongAnswers(Arc<AtomicUsize>);

/// A long answer, until its last byte was taken.
#[derive(Debug)]
pub(crate) struct LongAnswer(LongAnswers);

impl LongAnswers {
    /// Begins one, which the peer has to take at the least pace.
    pub(crate) fn begin(&self) -> LongAnswer {
        self.0.fetch_add(1, Ordering::Relaxed);
        LongAnswer(self.clone())
    }

    fn are_sent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for LongAnswer {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that fails once its peer has taken nothing for a time, or too little of a long answer.
pub(crate) struct Stream<T> {
    inner: T,
    patience: Duration,
    /// The end of the time, while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    long_answers: LongAnswers,
    /// The time that is measured, while a long answer is sent.
    measured: Option<Measured>,
}

/// The bytes that a peer has taken in a time.
struct Measured {
    end: Pin<Box<Sleep>>,
    taken: usize,
}

impl<T> Stream<T> {
    pub(crate) fn new(inner: T, patience: Duration, long_answers: LongAnswers) -> Self {
        Self { inner, patience, stalled: None, long_answers, measured: None }
    }

    /// Fails once too little of a long answer was taken; `taken`: the bytes that were just taken.
    fn paced(&mut self, context: &mut Context<'_>, taken: usize) -> io::Result<()> {
        if self.long_answers.are_sent() {
            self.measured = None;
            return Ok(());
        }
        let measured = self.measured.get_or_insert_with(|| Measured { end: Box::pin(sleep(PACE_TIME)), taken: 0 });
        measured.taken += taken;
        if measured.end.as_mut().poll(context).is_pending() {
            return Ok(());
        }
        let is_too_slow = measured.taken < PACE_BYTES;
        self.measured = None;
        if is_too_slow {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer reads a long answer too slowly"));
        }
        // The next time begins now: its end has to wake this task too.
        self.paced(context, 0)
    }

    fn written(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let taken = if let Poll::Ready(Ok(taken)) = polled { taken } else { 0 };
        self.paced(context, taken)?;
        self.timed(context, polled)
    }

    fn timed<R>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
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
        self.paced(context, 0)?;
        self.timed(context, polled)
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
        let mut stream = Stream::new(ours, Duration::from_millis(20), LongAnswers::default());
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
