//! Rates: a number of events at once, and one more per interval.

use std::{
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A number of events at once, and one more per interval (the generic cell rate algorithm).
pub(crate) struct Rate {
    pub(crate) every: Duration,
    pub(crate) burst: u32,
}

impl Rate {
    /// Returns the time at which one more event is paid off, if it may happen.
    pub(crate) fn take(&self, paid: Duration, now: Duration) -> Option<Duration> {
        let next = paid.max(now) + self.every;
        (next.saturating_sub(now) <= self.every * self.burst).then_some(next)
    }
}

/// The lines of one kind: 10 per second, 1,000 at once.
const LINES: Rate = Rate { every: Duration::from_millis(100), burst: 1_000 };

/// Bounds the lines of the log that refused callers cause: anyone can have a call refused, as fast as it is answered.
#[derive(Default)]
pub struct RefusalLines(Mutex<Written>);

#[derive(Default)]
struct Written {
    paid: Duration,
    left_out: u64,
}

impl RefusalLines {
    /// Writes a line at `now`, the time since some start, unless there were too many; it has the number of those that were
    /// left out since the line before.
    pub fn write(&self, now: Duration, line: impl FnOnce(Option<u64>)) {
        let left_out = {
            let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(paid) = LINES.take(written.paid, now) else {
                written.left_out += 1;
                return;
            };
            written.paid = paid;
            mem::take(&mut written.left_out)
        };
        line((left_out > 0).then_some(left_out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_after_those_that_were_left_out_counts_them() {
        let lines = RefusalLines::default();
        let written = |number: usize, now| {
            let mut written = Vec::new();
            (0..number).for_each(|_| lines.write(now, |left_out| written.push(left_out)));
            written
        };
        assert_eq!(written(3_000, Duration::ZERO), [None; 1_000]);
        assert_eq!(written(2, Duration::from_millis(100)), [Some(2_000)]);
        assert_eq!(written(2, Duration::from_secs(60)), [Some(1), None]);
    }
}
