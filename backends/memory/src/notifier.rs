//! Hints of commits for all streams in this process, without a runtime.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use event_listener::Event;
use futures_util::stream::{self, BoxStream, StreamExt};
use rollhook_core::ports::AppChange;

/// The number of hints that a stream may be behind before it gets [`AppChange::Any`] in their place.
const BEHIND: usize = 1024;

/// A broadcast of hints.
#[derive(Default)]
pub(crate) struct Notifier {
    event: Event,
    sent: Mutex<Sent>,
}

#[derive(Default)]
struct Sent {
    /// The number of all hints that were sent.
    count: u64,
    /// The last of them.
    recent: VecDeque<AppChange>,
}

impl Notifier {
    pub(crate) fn send(&self, change: AppChange) {
        {
            let mut sent = self.lock();
            sent.count += 1;
            if sent.recent.len() == BEHIND {
                sent.recent.pop_front();
            }
            sent.recent.push_back(change);
        }
        self.event.notify(usize::MAX);
    }

    /// Returns a stream of the hints from now on.
    pub(crate) fn stream(self: &Arc<Self>) -> BoxStream<'static, AppChange> {
        let read = self.lock().count;
        stream::unfold((Arc::clone(self), read), |(notifier, read)| async move {
            loop {
                // Listening starts before the hints are read, so that none is missed.
                let listener = notifier.event.listen();
                if let Some((change, read)) = notifier.after(read) {
                    return Some((change, (notifier, read)));
                }
                listener.await;
            }
        })
        .boxed()
    }

    /// Returns the hint that follows the first `read` ones, and the number of those read with it.
    fn after(&self, read: u64) -> Option<(AppChange, u64)> {
        let sent = self.lock();
        let missing = usize::try_from(sent.count - read).unwrap_or(usize::MAX);
        if missing == 0 {
            return None;
        }
        let recent = sent.recent.len().checked_sub(missing).and_then(|index| sent.recent.get(index));
        Some(recent.map_or((AppChange::Any, sent.count), |change| (*change, read + 1)))
    }

    fn lock(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
