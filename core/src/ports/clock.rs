//! Time and chance, as arguments.

use std::time::Duration;

use async_trait::async_trait;

/// This process's own sense of passing time; wall-clock times come from the store alone.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Time since some fixed point of this process's life; never decreases.
    fn elapsed(&self) -> Duration;

    /// Returns after at least this long.
    async fn sleep(&self, duration: Duration);
}

/// Where randomness comes from.
pub trait Rng: Send + Sync {
    /// Fills the bytes with random ones, fit for secrets.
    fn fill(&self, bytes: &mut [u8]);
}

impl dyn Rng + '_ {
    /// 128 random bits.
    pub fn bits(&self) -> u128 {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        u128::from_le_bytes(bytes)
    }
}
