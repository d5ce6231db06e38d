//! How long to wait before something that was away is tried again.

use std::time::Duration;

/// Half a second, then twice as long each time, up to five seconds.
pub fn backoff(failures: u32) -> Duration {
    Duration::from_millis(500).saturating_mul(1 << failures.min(4)).min(Duration::from_secs(5))
}
