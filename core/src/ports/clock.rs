//! Time and randomness, as arguments.

use std::time::Duration;

use async_trait::async_trait;

/// A monotonic clock of this process; wall-clock times come from the store alone.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Returns the time since some fixed point of this process's life; never decreases.
    fn elapsed(&self) -> Duration;

    /// Returns after at least this duration.
    async fn sleep(&self, duration: Duration);
}

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
