//! The pauses between retries.

use std::time::Duration;

/// Returns half a second, doubled with each failure, at most five seconds.
pub fn backoff(failures: u32) -> Duration {
    Duration::from_millis(500).saturating_mul(1 << failures.min(4)).min(Duration::from_secs(5))
}
