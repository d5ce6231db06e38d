//! Time, chance and names, as the operating system has them.

use std::{fs, time::Duration};

use async_trait::async_trait;
use rollhook_core::ports::{Clock, Rng};
use tokio::time::Instant;

/// The process's own clock; sleeps on the tokio runtime that polls it.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: Instant,
}

impl TokioClock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

#[async_trait]
impl Clock for TokioClock {
    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// The operating system's random bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    #[expect(clippy::expect_used, reason = "a system without randomness cannot make secrets, and does not come back")]
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system gives no random bytes");
    }
}

/// This machine's name, by which replicas are told apart.
pub fn hostname() -> String {
    let given = std::env::var("HOSTNAME").ok();
    let name = given.or_else(|| fs::read_to_string("/proc/sys/kernel/hostname").ok()).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '.').collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}
