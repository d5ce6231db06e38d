//! A clock that is moved by hand.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use event_listener::Event;
use rollhook_core::ports::Clock;

/// Stands still until it is moved.
#[derive(Default)]
pub(crate) struct ByHand {
    elapsed: Mutex<Duration>,
    moved: Event,
}

impl ByHand {
    /// Moves it.
    pub(crate) fn advance(&self, time: Duration) {
        *self.elapsed.lock().unwrap_or_else(PoisonError::into_inner) += time;
        self.moved.notify(usize::MAX);
    }
}

#[async_trait]
impl Clock for ByHand {
    fn elapsed(&self) -> Duration {
        *self.elapsed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn sleep(&self, duration: Duration) {
        let end = self.elapsed() + duration;
        loop {
            let listener = self.moved.listen();
            if self.elapsed() >= end {
                return;
            }
            listener.await;
        }
    }
}
