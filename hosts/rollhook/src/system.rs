//! The clock, randomness, signals and host name of the operating system.

use std::{
    fs, io,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use rollhook_core::{
    ports::{Clock, Rng},
    time::Timestamp,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};

/// A process's own clock; it sleeps on the tokio runtime that polls it.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: Instant,
}

impl TokioClock {
    /// Returns a clock that starts now.
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

/// Returns the machine's wall-clock time: what a store of one's own stores, see
/// [`WallClock`](rollhook_core::ports::WallClock).
#[expect(clippy::disallowed_methods, reason = "a store's clock is the wall clock")]
pub fn wall_clock() -> Timestamp {
    SystemTime::now().into()
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

/// The signals by which a person or the system stops a process: SIGINT and SIGTERM.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub fn catch() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Returns at the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Returns this machine's name and the begin of its boot id, which tell replicas apart: cloned machines have one host
/// name.
pub fn machine() -> String {
    let read = |path| fs::read_to_string(path).ok();
    let name = std::env::var("HOSTNAME").ok().or_else(|| read("/proc/sys/kernel/hostname")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '.').collect();
    let name = if name.is_empty() { "localhost" } else { &name };
    match read("/proc/sys/kernel/random/boot_id").as_deref().and_then(|id| id.get(..8)) {
        Some(boot) => format!("{name}-{boot}"),
        None => name.to_owned(),
    }
}
