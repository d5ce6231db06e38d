//! Readers of logs: one for each deploy's Job whose log is read here, however many follow it.
//!
//! The API gives a log from its beginning, or onward as it grows. So a reader keeps what it has read, and all who follow the
//! log take their parts of that. It ends a while after the last of them, and what it has read with it. An environment has a
//! share of the readers and of what they keep: one with many followers leaves some to the others.

use std::{
    collections::BTreeMap,
    future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream::BoxStream};
use rollhook_core::{
    Result,
    ports::RunId,
    slots::{Slot, Slots},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};

use super::text::Text;
use crate::lock;

/// The most logs that are read at once, and those of one environment.
const READERS: usize = 64;
const READERS_OF_ONE: usize = 16;
/// The most blocks of logs that are kept, and those of one environment.
const BLOCKS: usize = 1024;
const BLOCKS_OF_ONE: usize = 256;
/// How long a reader goes on without being asked.
const UNASKED: Duration = Duration::from_secs(10);
/// How long a log that grows is silent before all of it counts as read, as far as it goes now.
const QUIET: Duration = Duration::from_millis(200);
/// The same for a log that has not begun: the API server answers with its first line.
const BEGIN: Duration = Duration::from_secs(2);
/// The least time between two readers of a log whose reading ended before its Job.
const PAUSE: Duration = Duration::from_secs(2);

/// The log of a container, in pieces of any size.
pub(crate) type Pieces = BoxStream<'static, Result<Vec<u8>>>;

/// A run, or a build as that of its deploy, as a key.
type Key = RunId;

/// The state of a container whose log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    /// The container runs: its log is read onward.
    Running,
    /// The container has ended: its log is read to its end.
    Ended,
}

/// The readers of this process.
#[derive(Default)]
pub(crate) struct LogReaders(Arc<All>);

struct All {
    readers: Mutex<BTreeMap<Key, Known>>,
    /// The places of readers, and of the blocks that they keep, in shares of the environments.
    places: Slots<String>,
    blocks: Slots<String>,
}

/// A reader in its place.
struct Known {
    reader: Arc<Reader>,
    place: Slot<String>,
}

impl Default for All {
    fn default() -> Self {
        Self {
            readers: Mutex::default(),
            places: Slots::with_share(READERS, READERS_OF_ONE),
            blocks: Slots::with_share(BLOCKS, BLOCKS_OF_ONE),
        }
    }
}

/// A reader of the log of one pod.
pub(crate) struct Reader {
    deploy: Key,
    /// The pod's uid.
    pod: String,
    container: Container,
    /// The text before the log.
    pub(crate) preamble: String,
    begun: Instant,
    text: Mutex<Text>,
    /// Wakes those who wait for a part.
    grown: Notify,
    /// Ends a reader in whose place another one reads.
    replaced: Notify,
    environment: String,
    blocks: Slots<String>,
}

/// Why a reader reads no further.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// All was read.
    All,
    /// The reading of a log that grows has ended: as a rule, with the container.
    Ended,
    /// No more is kept.
    Full,
    Failed(rollhook_core::Error),
}

impl LogReaders {
    /// Returns the reader of a Job whose container ran when it was last asked for, as long as it reads.
    pub(crate) fn reading(&self, deploy: Key) -> Option<Arc<Reader>> {
        let readers = lock(&self.0.readers);
        let Known { reader, .. } = readers.get(&deploy)?;
        let reads = reader.container == Container::Running && reader.text().end.is_none();
        reads.then(|| reader.asked())
    }

    /// Notes that a Job was seen to have ended: what its container wrote last may not have been read onward by now.
    pub(crate) fn over(&self, deploy: Key) {
        let readers = lock(&self.0.readers);
        let known = readers.get(&deploy).map(|known| &known.reader);
        if let Some(reader) = known.filter(|reader| reader.container == Container::Running) {
            reader.end(End::Ended);
        }
    }

    /// Returns the reader of this pod's log, which may begin now; `None` if no place is free for this environment.
    pub(crate) fn join(
        &self,
        (environment, deploy): (&str, Key),
        (pod, container): (&str, Container),
        preamble: &str,
        open: impl FnOnce() -> Pieces,
    ) -> Option<Arc<Reader>> {
        let mut readers = lock(&self.0.readers);
        let place = match readers.get(&deploy) {
            Some(Known { reader, .. }) if reader.pod == pod && reader.serves(container) => return Some(reader.asked()),
            Some(Known { reader, .. }) => {
                reader.replaced.notify_one();
                // Those who wait for its next piece ask anew.
                reader.end(End::Ended);
                readers.remove(&deploy)?.place
            }
            None => place(&self.0.places, environment)?,
        };
        let now = Instant::now();
        let reader = Arc::new(Reader {
            deploy,
            pod: pod.to_owned(),
            container,
            preamble: preamble.to_owned(),
            begun: now,
            text: Mutex::new(Text::new(now)),
            grown: Notify::new(),
            replaced: Notify::new(),
            environment: environment.to_owned(),
            blocks: self.0.blocks.clone(),
        });
        readers.insert(deploy, Known { reader: reader.clone(), place });
        tokio::spawn(run(self.0.clone(), reader.clone(), open()));
        Some(reader)
    }
}

/// Returns a place that is free for this environment now.
fn place(places: &Slots<String>, environment: &str) -> Option<Slot<String>> {
    places.acquire(&environment.to_owned()).now_or_never()
}

/// Reads until nobody asks any more, or another one reads in its place.
async fn run(all: Arc<All>, reader: Arc<Reader>, pieces: Pieces) {
    let reading = async {
        reader.read(pieces).await;
        future::pending::<()>().await;
    };
    tokio::select! {
        () = reading => {}
        () = reader.replaced.notified() => {}
        () = all.unasked(&reader) => {}
    }
}

impl All {
    /// Removes the reader once it was not asked for a while.
    async fn unasked(&self, reader: &Arc<Reader>) {
        loop {
            let asked_at = reader.text().asked_at;
            sleep_until(asked_at + UNASKED).await;
            let mut readers = lock(&self.readers);
            if reader.text().asked_at != asked_at {
                continue;
            }
            if readers.get(&reader.deploy).is_some_and(|known| Arc::ptr_eq(&known.reader, reader)) {
                readers.remove(&reader.deploy);
            }
            drop(readers);
            reader.end(End::Ended);
            return;
        }
    }
}

impl Reader {
    /// Returns a part of the log from this byte on, once there is one; empty if there is no more for now. `None`: the log
    /// goes on, and is not kept.
    pub(crate) async fn part(&self, from: usize) -> Result<Option<Vec<u8>>> {
        loop {
            let mut grown = pin!(self.grown.notified());
            grown.as_mut().enable();
            let quiet_at = {
                let mut text = self.text();
                text.asked_at = Instant::now();
                if let Some(part) = text.part(from) {
                    return Ok(Some(part.to_vec()));
                }
                match &text.end {
                    Some(End::Failed(error)) => return Err(error.clone()),
                    Some(End::Full) => return Ok(None),
                    Some(End::All | End::Ended) => return Ok(Some(Vec::new())),
                    None => {}
                }
                match self.container {
                    Container::Running => Some(text.grown_at.map_or(self.begun + BEGIN, |at| at + QUIET)),
                    Container::Ended => None,
                }
            };
            match quiet_at {
                Some(at) => {
                    if timeout_at(at, grown).await.is_err() {
                        return Ok(Some(Vec::new()));
                    }
                }
                None => grown.await,
            }
        }
    }

    /// Returns the reader, which goes on for a while.
    fn asked(self: &Arc<Self>) -> Arc<Self> {
        self.text().asked_at = Instant::now();
        self.clone()
    }

    /// Returns whether parts of a log are still to be had here, now that its container is in this state.
    fn serves(&self, container: Container) -> bool {
        let just_begun = self.begun + PAUSE > Instant::now();
        match &self.text().end {
            Some(End::All | End::Full) => true,
            None => self.container == Container::Ended || container == Container::Running,
            Some(End::Ended) => just_begun && container == Container::Running,
            Some(End::Failed(_)) => just_begun,
        }
    }

    async fn read(&self, mut pieces: Pieces) {
        let end = loop {
            match pieces.next().await {
                Some(Ok(piece)) if self.keep(&piece) => {}
                Some(Ok(_)) => break End::Full,
                Some(Err(error)) => break End::Failed(error),
                None if self.container == Container::Running => break End::Ended,
                None => break End::All,
            }
        };
        self.end(end);
    }

    fn end(&self, end: End) {
        self.text().end.get_or_insert(end);
        self.grown.notify_waiters();
    }

    /// Keeps a piece, and returns whether there was room for all of it.
    fn keep(&self, piece: &[u8]) -> bool {
        let kept = self.text().push(piece, || place(&self.blocks, &self.environment));
        self.grown.notify_waiters();
        kept
    }

    fn text(&self) -> MutexGuard<'_, Text> {
        lock(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use rollhook_core::{Error, app::AppUid, deploy::Revision, ports::DeployId};
    use tokio::sync::mpsc;

    use super::{super::text::BLOCK, *};

    const ENVIRONMENT: &str = "shop-test";

    fn build(number: u64) -> RunId {
        DeployId { app: AppUid::from_bits(7), revision: Revision::new(number).unwrap() }.into()
    }

    /// The log of a container, to which a test adds.
    #[derive(Default)]
    struct Log {
        opened: Mutex<usize>,
        writer: Mutex<Option<mpsc::UnboundedSender<Result<Vec<u8>>>>>,
    }

    impl Log {
        fn open(&self) -> Pieces {
            *lock(&self.opened) += 1;
            let (writer, mut reader) = mpsc::unbounded_channel();
            *lock(&self.writer) = Some(writer);
            stream::poll_fn(move |context| reader.poll_recv(context)).boxed()
        }

        fn write(&self, text: &str) {
            lock(&self.writer).as_ref().unwrap().send(Ok(text.as_bytes().to_vec())).unwrap();
        }

        fn opened(&self) -> usize {
            *lock(&self.opened)
        }

        fn is_read(&self) -> bool {
            lock(&self.writer).as_ref().is_some_and(|writer| !writer.is_closed())
        }
    }

    fn join(readers: &LogReaders, log: &Log, container: Container) -> Arc<Reader> {
        readers.join((ENVIRONMENT, build(1)), ("uid", container), "", || log.open()).unwrap()
    }

    async fn part(reader: &Reader, from: usize) -> String {
        String::from_utf8(reader.part(from).await.unwrap().unwrap()).unwrap()
    }

    async fn pause(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_follow_a_build_share_one_reading_of_its_log() {
        let (readers, log) = (LogReaders::default(), Log::default());
        let first = join(&readers, &log, Container::Running);
        log.write("one\n");
        assert_eq!(part(&first, 0).await, "one\n");
        assert_eq!(part(&first, 4).await, "", "it is quiet");
        for _ in 0..100 {
            let another = join(&readers, &log, Container::Running);
            assert_eq!((part(&another, 0).await, part(&another, 2).await), ("one\n".to_owned(), "e\n".to_owned()));
        }
        log.write("two\n");
        pause(1).await;
        assert_eq!(part(&readers.reading(build(1)).unwrap(), 4).await, "two\n");
        assert_eq!(log.opened(), 1);
        // The container has ended: its log is read again, to its end, once for all.
        readers.over(build(1));
        assert!(readers.reading(build(1)).is_none());
        let last = join(&readers, &log, Container::Ended);
        log.write("one\ntwo\n");
        log.write("three\n");
        *lock(&log.writer) = None;
        assert_eq!(part(&last, 8).await, "three\n");
        assert_eq!(
            (part(&last, 14).await, part(&join(&readers, &log, Container::Ended), 0).await.len()),
            (String::new(), 14)
        );
        assert_eq!(log.opened(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn reader_ends_when_no_one_follows_any_more() {
        let (readers, log) = (LogReaders::default(), Log::default());
        let reader = join(&readers, &log, Container::Running);
        log.write("one\n");
        for _ in 0..10 {
            pause(9).await;
            assert_eq!(part(&reader, 0).await, "one\n");
        }
        assert!(log.is_read() && !readers.0.blocks.is_unused());
        drop(reader);
        pause(11).await;
        assert!(!log.is_read() && lock(&readers.0.readers).is_empty());
        assert!(readers.0.places.is_unused() && readers.0.blocks.is_unused());
    }

    #[tokio::test(start_paused = true)]
    async fn log_of_a_container_that_has_ended_is_read_to_its_end() {
        let (readers, log) = (LogReaders::default(), Log::default());
        let running = join(&readers, &log, Container::Running);
        log.write("one\n");
        assert_eq!(part(&running, 0).await, "one\n");
        // What was written last is still on its way.
        let ended = join(&readers, &log, Container::Ended);
        let mut rest = Box::pin(part(&ended, 4));
        tokio::select! {
            rest = &mut rest => panic!("{rest:?} is not all"),
            () = pause(5) => {}
        }
        log.write("one\ntwo\n");
        assert_eq!((rest.await, log.opened()), ("two\n".to_owned(), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn reading_that_ends_before_its_build_is_begun_again_after_a_while() {
        let (readers, log) = (LogReaders::default(), Log::default());
        let reader = join(&readers, &log, Container::Running);
        lock(&log.writer).as_ref().unwrap().send(Err(Error::invalid("no"))).unwrap();
        assert!(reader.part(0).await.is_err());
        assert!(join(&readers, &log, Container::Running).part(0).await.is_err());
        assert_eq!(log.opened(), 1);
        pause(2).await;
        let reader = join(&readers, &log, Container::Running);
        log.write("one\n");
        assert_eq!((part(&reader, 0).await, log.opened()), ("one\n".to_owned(), 2));
        let other =
            readers.join((ENVIRONMENT, build(1)), ("another pod", Container::Running), "", || log.open()).unwrap();
        assert_eq!((part(&other, 0).await, log.opened()), (String::new(), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn readers_and_what_they_keep_are_bounded_for_each_environment_and_in_all() {
        const KEPT_OF_ONE: usize = BLOCKS_OF_ONE * BLOCK;
        let (readers, logs) = (LogReaders::default(), Log::default());
        let of_pod = |pod, environment: &str, number| {
            readers.join((environment, build(number)), (pod, Container::Ended), "", || logs.open())
        };
        let join = |environment: &str, number| of_pod("uid", environment, number);
        let first = join("a", 1).unwrap();
        logs.write(&"x".repeat(KEPT_OF_ONE - 1));
        logs.write("yz");
        assert_eq!(part(&first, BLOCK + 1).await.len(), BLOCK - 1);
        assert_eq!(part(&first, KEPT_OF_ONE - 1).await, "y");
        assert_eq!(first.part(KEPT_OF_ONE).await.unwrap(), None, "the rest is not kept");
        let others: Vec<_> = (2..=16).map(|number| join("a", number)).collect();
        assert!(others.iter().all(Option::is_some) && join("a", 17).is_none() && join("a", 16).is_some());
        let anew = of_pod("another pod", "a", 16);
        assert!(anew.is_some(), "in the place of the one before");
        let other = join("b", 17).unwrap();
        logs.write("one\n");
        assert_eq!(part(&other, 0).await, "one\n");
        let more: Vec<_> = (18..=64).map(|number| join(&format!("e{}", number % 8), number)).collect();
        assert!(more.iter().all(Option::is_some) && join("c", 65).is_none());
        drop((first, others, anew, other, more));
        pause(11).await;
        assert!(readers.0.places.is_unused() && readers.0.blocks.is_unused());
        assert!(join("a", 65).is_some());
    }
}
