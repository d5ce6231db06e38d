//! The lines of calls that were refused or failed, of which the log has a bounded number: anyone can make such calls, as
//! fast as the server answers.

use std::time::Duration;

use rollhook_management::RefusalLines;
use tokio::time::Instant;

/// The lines that were written, by the first digit of the status: those of each class leave room to the others.
pub(crate) struct Lines {
    start: Instant,
    classes: [RefusalLines; 3],
}

impl Default for Lines {
    fn default() -> Self {
        Self { start: Instant::now(), classes: Default::default() }
    }
}

impl Lines {
    /// Takes a line for a call with this status; returns how many of its class were left out since the line before, or
    /// `None` if this one is left out too.
    pub(crate) fn take(&self, status: u16) -> Option<u64> {
        self.take_at(status, self.start.elapsed())
    }

    fn take_at(&self, status: u16, since_start: Duration) -> Option<u64> {
        let class = usize::from(status / 100).checked_sub(3).and_then(|class| self.classes.get(class));
        class.map_or(Some(0), |class| class.take(since_start))
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
        assert_eq!([later(503), later(503), later(202)], [Some(0), Some(0), Some(0)]);
        assert_eq!((0..3_000).filter(|_| take(303) == Some(0)).count(), 1_000, "a redirection is an answer to anybody");
    }
}
