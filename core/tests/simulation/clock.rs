//! Simulated time: one for the world, and for each process a clock of its own that may jump ahead.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::ports::Clock;

/// The world's time, which only the run moves.
#[derive(Default)]
pub(crate) struct Time {
    nanos: AtomicU64,
    clocks: Mutex<Vec<Weak<OwnClock>>>,
}

impl Time {
    pub(crate) fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// A process's clock.
    pub(crate) fn clock(self: &Arc<Self>) -> Arc<OwnClock> {
        let clock = Arc::new(OwnClock { time: Arc::clone(self), ahead: AtomicU64::new(0), sleepers: Mutex::default() });
        self.clocks.lock().unwrap().push(Arc::downgrade(&clock));
        clock
    }

    /// When the next sleeper wakes, on whichever clock.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.clocks.lock().unwrap().iter().filter_map(|clock| clock.upgrade()?.next()).min()
    }

    /// Moves on, and wakes whoever has slept enough.
    pub(crate) fn advance(&self, to: Duration) {
        let to = u64::try_from(to.as_nanos()).unwrap();
        self.nanos.fetch_max(to, Ordering::Relaxed);
        let mut clocks = self.clocks.lock().unwrap();
        clocks.retain(|clock| clock.strong_count() > 0);
        clocks.iter().filter_map(Weak::upgrade).for_each(|clock| clock.ring());
    }
}

type Alarm = (Duration, u64);

/// A clock that is ahead of the world's time by what it has jumped.
pub(crate) struct OwnClock {
    time: Arc<Time>,
    ahead: AtomicU64,
    sleepers: Mutex<(u64, BTreeMap<Alarm, Waker>)>,
}

impl OwnClock {
    /// Time passes here that passes nowhere else, as on a machine that was suspended.
    pub(crate) fn jump(&self, by: Duration) {
        self.ahead.fetch_add(u64::try_from(by.as_nanos()).unwrap(), Ordering::Relaxed);
        self.ring();
    }

    fn alarm(&self, after: Duration) -> Alarm {
        let mut sleepers = self.sleepers.lock().unwrap();
        sleepers.0 += 1;
        (self.elapsed() + after, sleepers.0)
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.ahead.load(Ordering::Relaxed))
    }

    fn next(&self) -> Option<Duration> {
        let first = self.sleepers.lock().unwrap().1.first_key_value().map(|((at, _), _)| *at)?;
        Some(first.saturating_sub(self.ahead()))
    }

    fn ring(&self) {
        let now = self.elapsed();
        let mut sleepers = self.sleepers.lock().unwrap();
        while let Some(first) = sleepers.1.first_entry().filter(|first| first.key().0 <= now) {
            first.remove().wake();
        }
    }
}

#[async_trait]
impl Clock for OwnClock {
    fn elapsed(&self) -> Duration {
        self.time.now() + self.ahead()
    }

    async fn sleep(&self, duration: Duration) {
        Sleep { clock: self, alarm: self.alarm(duration), begun: false }.await;
    }
}

/// Gives way to others at least once, also where there is nothing to wait for.
struct Sleep<'a> {
    clock: &'a OwnClock,
    alarm: Alarm,
    begun: bool,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let due = self.alarm.0 <= self.clock.elapsed();
        if due && self.begun {
            return Poll::Ready(());
        }
        self.begun = true;
        if due {
            context.waker().wake_by_ref();
        } else {
            self.clock.sleepers.lock().unwrap().1.insert(self.alarm, context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.clock.sleepers.lock().unwrap().1.remove(&self.alarm);
    }
}
