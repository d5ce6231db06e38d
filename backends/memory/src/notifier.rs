//! Hints of commits for all streams in this process, without a runtime.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use event_listener::Event;
use futures_util::stream::{self, BoxStream, StreamExt};
use rollhook_core::ports::AppChange;

/// How many hints a slow stream may lag behind before it is told that any app may have changed.
const KEPT: usize = 1024;

/// A broadcast of hints.
#[derive(Default)]
pub(crate) struct Notifier {
    event: Event,
    sent: Mutex<Sent>,
}

#[derive(Default)]
struct Sent {
    /// How many were sent, ever.
    count: u64,
    /// The last of them.
    recent: VecDeque<AppChange>,
}

impl Notifier {
    pub(crate) fn send(&self, change: AppChange) {
        {
            let mut sent = self.lock();
            sent.count += 1;
            if sent.recent.len() == KEPT {
                sent.recent.pop_front();
            }
            sent.recent.push_back(change);
        }
        self.event.notify(usize::MAX);
    }

    /// The hints from now on.
    pub(crate) fn stream(self: &Arc<Self>) -> BoxStream<'static, AppChange> {
        let seen = self.lock().count;
        stream::unfold((Arc::clone(self), seen), |(notifier, seen)| async move {
            loop {
                // Listening starts before looking, so that nothing is missed in between.
                let listener = notifier.event.listen();
                if let Some((change, seen)) = notifier.after(seen) {
                    return Some((change, (notifier, seen)));
                }
                listener.await;
            }
        })
        .boxed()
    }

    /// The hint that follows the first `seen` ones, and how many are seen with it.
    fn after(&self, seen: u64) -> Option<(AppChange, u64)> {
        let sent = self.lock();
        let missing = usize::try_from(sent.count - seen).unwrap_or(usize::MAX);
        if missing == 0 {
            return None;
        }
        let recent = sent.recent.len().checked_sub(missing).and_then(|index| sent.recent.get(index));
        Some(recent.map_or((AppChange::Any, sent.count), |change| (*change, seen + 1)))
    }

    fn lock(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
