//! The limit of calls to the API server for callers that this replica would refuse.

use std::{sync::Mutex, time::Duration};

use crate::{lock, store::clock::StoreClock};

/// The time between two calls, however many callers there are.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// The calls that may be made for callers without a valid token.
pub(crate) struct Budget {
    clock: StoreClock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When the next call may be made, by the clock.
    free_at: Duration,
    /// The number of callers that wait for it; callers that cannot wait let them go first.
    waiting: usize,
}

impl Budget {
    pub(crate) fn new(clock: StoreClock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Whether a call may be made now.
    pub(crate) fn take_now(&self) -> bool {
        let now = self.clock.elapsed();
        let mut state = lock(&self.state);
        let free = state.waiting == 0 && now >= state.free_at;
        if free {
            state.free_at = now + INTERVAL;
        }
        free
    }

    /// Returns when a call may be made.
    pub(crate) async fn take(&self) {
        let _waiting = Waiting::of(self);
        loop {
            let now = self.clock.elapsed();
            let free_at = {
                let mut state = lock(&self.state);
                if now >= state.free_at {
                    state.free_at = now + INTERVAL;
                    return;
                }
                state.free_at
            };
            tokio::time::sleep(free_at - now).await;
        }
    }
}

/// A waiting caller, until this is dropped: callers hang up.
struct Waiting<'a>(&'a Budget);

impl<'a> Waiting<'a> {
    fn of(budget: &'a Budget) -> Self {
        lock(&budget.state).waiting += 1;
        Self(budget)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::secrets::tests::HandClock;

    #[test]
    fn one_call_in_each_interval() {
        let clock = HandClock::default();
        let budget = Budget::new(clock.clock());
        let takes = || [(); 3].map(|()| budget.take_now());
        assert_eq!(takes(), [true, false, false]);
        clock.advance(INTERVAL - Duration::from_millis(1));
        assert_eq!(takes(), [false; 3]);
        clock.advance(Duration::from_millis(1));
        assert_eq!(takes(), [true, false, false]);
        clock.advance(10 * INTERVAL);
        assert_eq!(takes(), [true, false, false], "what was not used is not saved up");
    }

    #[tokio::test]
    async fn waiting_caller_goes_first_and_one_that_hangs_up_blocks_none() {
        let clock = HandClock::default();
        let budget = Budget::new(clock.clock());
        assert!(budget.take_now());
        let turn = async {
            budget.take().await;
            assert!(!budget.take_now(), "this was its turn");
        };
        let pass = async {
            tokio::task::yield_now().await;
            clock.advance(INTERVAL);
            assert!(!budget.take_now(), "a caller waits for this one");
        };
        futures_util::join!(turn, pass);
        assert!(tokio::time::timeout(Duration::from_millis(1), budget.take()).await.is_err(), "it hangs up");
        clock.advance(INTERVAL);
        assert!(budget.take_now());
    }
}
