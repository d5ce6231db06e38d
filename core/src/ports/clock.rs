//! Time and randomness, as arguments.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::time::Timestamp;

/// A monotonic clock of this process; wall-clock times come from the store alone.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Returns the time since some fixed point of this process's life; never decreases.
    fn elapsed(&self) -> Duration;

    /// Returns after at least this duration.
    async fn sleep(&self, duration: Duration);
}

/// The clock of a store that has none of its own: it returns the time that is stored.
pub type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A source of randomness.
pub trait Rng: Send + Sync {
    /// Fills the bytes with random ones that are fit for secrets.
    fn fill(&self, bytes: &mut [u8]);
}

impl dyn Rng + '_ {
    /// Returns 128 random bits.
    pub fn bits(&self) -> u128 {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        u128::from_le_bytes(bytes)
    }
}
