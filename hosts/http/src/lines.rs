//! The lines of calls that were refused or failed, of which the log has a bounded number: anyone can make such calls, as
//! fast as the server answers.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

use crate::limits::{Rate, Table};

/// The lines of refused calls, and those of failed ones: 10 per second, 1,000 at once.
const LINES: Rate = Rate { every: Duration::from_millis(100), burst: 1_000 };

/// The lines that were written, by the first digit of the status.
pub(crate) struct Lines {
    start: Instant,
    written: Table<u16>,
    left_out: AtomicU64,
}

impl Default for Lines {
    fn default() -> Self {
        Self { start: Instant::now(), written: Table::new(LINES), left_out: AtomicU64::new(0) }
    }
}

impl Lines {
    /// Takes a line for a call with this status; returns how many were left out since the line before, or `None` if this
    /// one is left out too.
    pub(crate) fn take(&self, status: u16) -> Option<u64> {
        self.take_at(status, self.start.elapsed())
    }

    fn take_at(&self, status: u16, since_start: Duration) -> Option<u64> {
        let is_free = status < 300 || self.written.take(status / 100, since_start).is_zero();
        if !is_free {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_refused_calls_leave_room_to_others_and_count_those_left_out() {
        let lines = Lines::default();
        let take = |status| lines.take_at(status, Duration::ZERO);
        assert_eq!((0..3_000).filter(|_| take(401) == Some(0)).count(), 1_000);
        assert_eq!(take(404), None);
        let later = |status| lines.take_at(status, Duration::from_millis(100));
        assert_eq!([later(429), later(429)], [Some(2_001), None]);
        assert_eq!([later(503), later(503), later(202)], [Some(1), Some(0), Some(0)]);
        assert_eq!((0..3_000).filter(|_| take(303) == Some(0)).count(), 1_000, "a redirection is an answer to anybody");
    }
}
