//! What a rate bounds: the events of a realm or another party, and the lines of refusals.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

pub use rollhook_core::rate::Rate;

use crate::access::Realm;

/// The events of each party: as many as their rate allows.
pub(crate) struct Rates<K>(Mutex<BTreeMap<K, Duration>>);

/// The events of each realm, such as the tests of its receivers.
pub(crate) type OfRealms = Rates<String>;

impl<K> Default for Rates<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl OfRealms {
    /// Counts an event of a realm before it happens. Returns whether it may.
    pub(crate) fn take(&self, rate: Rate, realm: &Realm, now: Duration) -> bool {
        let mut paid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paid.retain(|_, until| *until > now);
        let key = realm.to_string();
        let next = rate.take(paid.get(&key).copied().unwrap_or_default(), now);
        next.map(|until| paid.insert(key, until)).is_some()
    }
}

impl<K: Ord + Clone> Rates<K> {
    /// Returns whether a party has paid off its events but those that may happen at once.
    pub(crate) fn may(&self, rate: Rate, party: &K, now: Duration) -> bool {
        let paid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rate.wait(paid.get(party).copied().unwrap_or_default(), now).is_zero()
    }

    /// Counts so many events of a party that have happened.
    pub(crate) fn spend(&self, rate: Rate, party: K, times: usize, now: Duration) {
        if times == 0 {
            return;
        }
        let mut paid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paid.retain(|_, until| *until > now);
        let until = paid.entry(party).or_default();
        (0..times).for_each(|_| *until = rate.spend(*until, now));
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
        if let Some(left_out) = self.take(now) {
            line((left_out > 0).then_some(left_out));
        }
    }

    /// Takes a line at `now`. Returns the number of those that were left out since the line before; `None` if this one is
    /// left out too.
    pub fn take(&self, now: Duration) -> Option<u64> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(paid) = LINES.take(written.paid, now) else {
            written.left_out += 1;
            return None;
        };
        written.paid = paid;
        Some(mem::take(&mut written.left_out))
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
