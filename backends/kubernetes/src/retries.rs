//! The pauses between the attempts of a watch that fails.
//!
//! A watcher begins each attempt with an item, so that a back-off which any item resets would never grow: a permission
//! that is missing would be asked for each second.

use std::time::Duration;

use kube::runtime::watcher::{Error, Event};

const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

/// The pauses of one watch, each twice as long as the one before, until the watch goes on.
#[derive(Debug)]
pub(crate) struct Retries {
    next: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Retries {
    /// Notes an event: a list that is complete, or a change, is what a watch is there for.
    pub(crate) fn note<K>(&mut self, event: &Event<K>) {
        if !matches!(event, Event::Init | Event::InitApply(_)) {
            *self = Self::default();
        }
    }

    /// Returns how long to wait before the next attempt.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = MOST.min(pause * 2);
        pause
    }
}

/// Whether the API server denies the watch.
pub(crate) fn is_denied(error: &Error) -> bool {
    match error {
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
            matches!(error, kube::Error::Api(status) if status.code == 403)
        }
        Error::WatchError(status) => status.code == 403,
        Error::NoResourceVersion => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_the_watch_goes_on() {
        let mut retries = Retries::default();
        let mut pauses = || {
            // Each attempt begins so.
            retries.note(&Event::<()>::Init);
            retries.pause().as_secs()
        };
        assert_eq!(std::array::from_fn(|_| pauses()), [1, 2, 4, 8, 16, 32, 60, 60]);
        retries.note(&Event::<()>::InitDone);
        assert_eq!(retries.pause(), FIRST);
    }
}
