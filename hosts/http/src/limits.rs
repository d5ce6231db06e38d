//! How often a source may fail to authenticate, and an app may be deployed; per replica, in memory, bounded.

use std::{
    collections::HashMap,
    hash::Hash,
    mem,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rollhook_core::app::AppUid;
use tokio::time::Instant;

use crate::failure::Failure;

/// Failed authentications of one source: 5 per second, 50 at once.
const FAILURES: Rate = Rate { every: Duration::from_millis(200), burst: 50 };
/// Webhook calls of one app: 10 per second, 100 at once.
const CALLS: Rate = Rate { every: Duration::from_millis(100), burst: 100 };
/// Keys that each of a table's two generations may hold.
const GENERATION: usize = 20_000;

/// Both limits, or none.
pub(crate) struct Limits(Option<Tables>);

struct Tables {
    start: Instant,
    sources: Table<IpAddr>,
    apps: Table<AppUid>,
}

impl Limits {
    pub(crate) fn new(on: bool) -> Self {
        let tables = || Tables { start: Instant::now(), sources: Table::new(FAILURES), apps: Table::new(CALLS) };
        Self(on.then(tables))
    }

    /// Refuses a source that failed too often, before anything is read for it.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn admit(&self, source: IpAddr) -> Result<(), Failure> {
        let Some(tables) = &self.0 else { return Ok(()) };
        tables
            .sources
            .check(&network(source), tables.start.elapsed())
            .map_err(|wait| Failure::rate_limited("Too many failed authentications came from this address.", wait))
    }

    /// Counts a failed authentication.
    pub(crate) fn failed(&self, source: IpAddr) {
        if let Some(tables) = &self.0 {
            tables.sources.spend(network(source), tables.start.elapsed());
        }
    }

    /// Counts a call of an app, and refuses it where there were too many.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn call(&self, app: AppUid) -> Result<(), Failure> {
        let Some(tables) = &self.0 else { return Ok(()) };
        tables
            .apps
            .take(app, tables.start.elapsed())
            .map_err(|wait| Failure::rate_limited("This app's webhook is called too often.", wait))
    }
}

/// Who a source is: an IPv4 address, or the /64 that an IPv6 customer has for itself.
fn network(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => source,
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

/// So many at once, and one more every so often.
#[derive(Clone, Copy)]
struct Rate {
    every: Duration,
    burst: u32,
}

impl Rate {
    /// How long until one more is allowed, of a key whose debt is paid off at `paid` (the generic cell rate algorithm).
    fn wait(self, paid: Duration, now: Duration) -> Duration {
        let debt = paid.saturating_sub(now);
        (debt + self.every).saturating_sub(self.every * self.burst)
    }
}

/// When each key's debt is paid off. Two generations bound it: the older is forgotten as a whole once the newer is full,
/// so that a flood of new keys costs neither memory nor a search for what may go.
struct Table<K> {
    rate: Rate,
    generations: Mutex<(HashMap<K, Duration>, HashMap<K, Duration>)>,
}

impl<K: Hash + Eq> Table<K> {
    fn new(rate: Rate) -> Self {
        Self { rate, generations: Mutex::default() }
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<K, Duration>, &HashMap<K, Duration>) -> T) -> T {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let (newer, older) = &mut *generations;
        if newer.len() >= GENERATION {
            *older = mem::take(newer);
        }
        act(newer, older)
    }

    fn check(&self, key: &K, now: Duration) -> Result<(), Duration> {
        let paid = self.with(|newer, older| newer.get(key).or_else(|| older.get(key)).copied().unwrap_or_default());
        match self.rate.wait(paid, now) {
            Duration::ZERO => Ok(()),
            wait => Err(wait),
        }
    }

    fn spend(&self, key: K, now: Duration) {
        self.with(|newer, older| {
            let paid = newer.get(&key).or_else(|| older.get(&key)).copied().unwrap_or_default();
            newer.insert(key, paid.max(now) + self.rate.every);
        });
    }

    fn take(&self, key: K, now: Duration) -> Result<(), Duration> {
        self.with(|newer, older| {
            let paid = newer.get(&key).or_else(|| older.get(&key)).copied().unwrap_or_default();
            match self.rate.wait(paid, now) {
                Duration::ZERO => {
                    newer.insert(key, paid.max(now) + self.rate.every);
                    Ok(())
                }
                wait => Err(wait),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    #[test]
    fn a_burst_then_a_rate() {
        let table = Table::new(CALLS);
        for _ in 0..100 {
            assert!(table.take(1, START).is_ok());
        }
        assert_eq!(table.take(1, START), Err(Duration::from_millis(100)));
        assert!(table.take(2, START).is_ok(), "another key has its own");
        assert!(table.take(1, START + Duration::from_millis(100)).is_ok());
        assert!(table.take(1, START + Duration::from_millis(100)).is_err());
        let later = START + Duration::from_secs(60);
        assert_eq!((0..200).filter(|_| table.take(1, later).is_ok()).count(), 100);
    }

    #[test]
    fn a_check_costs_nothing() {
        let table = Table::new(FAILURES);
        for _ in 0..1000 {
            assert!(table.check(&1, START).is_ok());
        }
        for _ in 0..50 {
            table.spend(1, START);
        }
        assert_eq!(table.check(&1, START), Err(Duration::from_millis(200)));
        assert!(table.check(&1, START + Duration::from_millis(200)).is_ok());
    }

    #[test]
    fn a_flood_of_keys_is_bounded() {
        let table = Table::new(FAILURES);
        for key in 0..10 * GENERATION {
            table.spend(key, START);
        }
        table.with(|newer, older| assert!(newer.len() <= GENERATION && older.len() <= GENERATION));
    }

    #[test]
    fn an_ipv6_source_is_its_64() {
        let address = |text: &str| network(text.parse().unwrap());
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_ne!(address("10.0.0.1"), address("10.0.0.2"));
    }
}
