//! Time that passes when a test says so.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use event_listener::Event;
use rollhook_core::ports::Clock;

/// A clock that stands still until it is moved.
#[derive(Default)]
pub struct ManualClock {
    elapsed: Mutex<Duration>,
    moved: Event,
}

impl ManualClock {
    /// Moves the clock ahead.
    pub fn advance(&self, time: Duration) {
        *self.elapsed.lock().unwrap_or_else(PoisonError::into_inner) += time;
        self.moved.notify(usize::MAX);
    }
}

#[async_trait]
impl Clock for ManualClock {
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
