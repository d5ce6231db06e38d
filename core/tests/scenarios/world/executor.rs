//! One thread, a clock that moves only when nothing else can, and randomness that is the same in every run.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::ports::{Clock, Rng};

/// A clock that the executor moves.
#[derive(Default)]
pub struct SimClock {
    now: Mutex<Duration>,
    sleepers: Mutex<BTreeMap<(Duration, u64), Waker>>,
    slept: AtomicU64,
}

impl SimClock {
    /// Moves to the end of the next sleep; returns `false` if there is none.
    fn advance(&self) -> bool {
        let Some(((at, _), waker)) = self.sleepers.lock().unwrap().pop_first() else { return false };
        let mut now = self.now.lock().unwrap();
        *now = at.max(*now);
        drop(now);
        waker.wake();
        true
    }
}

struct Sleep<'a> {
    clock: &'a SimClock,
    key: (Duration, u64),
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if *self.clock.now.lock().unwrap() >= self.key.0 {
            return Poll::Ready(());
        }
        self.clock.sleepers.lock().unwrap().insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.clock.sleepers.lock().unwrap().remove(&self.key);
    }
}

#[async_trait]
impl Clock for SimClock {
    fn elapsed(&self) -> Duration {
        *self.now.lock().unwrap()
    }

    async fn sleep(&self, duration: Duration) {
        let at = self.elapsed() + duration;
        let key = (at, self.slept.fetch_add(1, Ordering::Relaxed));
        Sleep { clock: self, key }.await;
    }
}

/// Randomness that is the same in every run.
pub struct SimRng(AtomicU64);

impl SimRng {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x1234_5678_9abc_def1)))
    }
}

impl Rng for SimRng {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            // SplitMix64.
            let seed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *byte = (mixed >> 56) as u8;
        }
    }
}

/// Whether the future was woken.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs a future to its end, moving the clock whenever it waits for nothing else.
pub fn block_on<T>(clock: &SimClock, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&flag));
    for _ in 0..50_000_000 {
        if flag.0.swap(false, Ordering::SeqCst) {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return value;
            }
        } else {
            assert!(clock.advance(), "the future waits, and nothing sleeps");
        }
    }
    panic!("no end in sight");
}
