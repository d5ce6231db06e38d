//! Hints of commits, for the watchers of a store.

use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use rollhook_core::ports::AppChange;
use tokio::sync::broadcast::{self, error::RecvError};

/// The number of hints that a watcher may be behind before it gets [`AppChange::Any`] in their place.
const BEHIND: usize = 1024;

/// Passes hints on to every watcher; clones reach the same watchers.
#[derive(Clone, Debug)]
pub struct Hints(broadcast::Sender<AppChange>);

impl Default for Hints {
    fn default() -> Self {
        Self(broadcast::Sender::new(BEHIND))
    }
}

impl Hints {
    /// Sends a hint to all watchers, of whom there may be none.
    pub fn send(&self, change: AppChange) {
        let _ = self.0.send(change);
    }

    /// Returns a stream of the hints from now on, which ends with the last sender.
    pub fn watch(&self) -> BoxStream<'static, AppChange> {
        let next = |mut hints: broadcast::Receiver<AppChange>| async {
            let change = match hints.recv().await {
                Ok(change) => change,
                Err(RecvError::Lagged(_)) => AppChange::Any,
                Err(RecvError::Closed) => return None,
            };
            Some((change, hints))
        };
        stream::unfold(self.0.subscribe(), next).boxed()
    }
}
