//! The limit of reads of records that the watch has not shown.

use std::{sync::Mutex, time::Duration};

use crate::{lock, store::clock::StoreClock};

/// The time between two calls, however many callers there are.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// The calls that may be made for callers without a valid token.
pub(crate) struct Budget {
    clock: StoreClock,
    /// When the next call may be made, by the clock.
    free_at: Mutex<Duration>,
}

impl Budget {
    pub(crate) fn new(clock: StoreClock) -> Self {
        Self { clock, free_at: Mutex::default() }
    }

    /// Whether a call may be made now.
    pub(crate) fn take_now(&self) -> bool {
        let now = self.clock.elapsed();
        let mut free_at = lock(&self.free_at);
        let is_free = now >= *free_at;
        if is_free {
            *free_at = now + INTERVAL;
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use rollhook_core::time::Timestamp;

    use super::*;

    #[test]
    fn one_call_in_each_interval() {
        let millis = Arc::<AtomicU64>::default();
        let passed = millis.clone();
        let elapsed = move || Duration::from_millis(passed.load(Ordering::SeqCst));
        let budget = Budget::new(StoreClock::new(|| Timestamp::from_millis(0), elapsed));
        let pass = |more: u64| millis.fetch_add(more, Ordering::SeqCst);
        let takes = || [(); 3].map(|()| budget.take_now());
        assert_eq!(takes(), [true, false, false]);
        pass(999);
        assert_eq!(takes(), [false; 3]);
        pass(1);
        assert_eq!(takes(), [true, false, false]);
        pass(10_000);
        assert_eq!(takes(), [true, false, false], "what was not used is not saved up");
    }
}
