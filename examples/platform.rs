//! What a platform on tokio gives to rollhook beside stores and a cluster: time, and chance.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use rollhook_core::{
    ports::{Clock, Rng},
    time::Timestamp,
};
use tokio::time::Instant;

/// The process's own time; sleeps on the tokio runtime that polls it.
pub struct TokioClock(Instant);

impl TokioClock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

#[async_trait]
impl Clock for TokioClock {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// The operating system's random bytes.
pub struct OsEntropy;

impl Rng for OsEntropy {
    #[expect(clippy::expect_used, reason = "without randomness no secret can be made, and it does not come back")]
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system gives random bytes");
    }
}

/// The wall clock, for a store.
#[expect(clippy::disallowed_methods, reason = "a store's clock is the wall clock")]
pub fn wall_clock() -> Timestamp {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
