//! Limits on a client's failed authentications and an app's calls; per replica, in memory, bounded.

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

use crate::{args::RateLimit, error_reply::ErrorReply};

/// Failed authentications of one source: 5 per second, 50 at once.
const FAILURES: Rate = Rate { every: Duration::from_millis(200), burst: 50 };
/// Webhook calls of one app: 10 per second, 100 at once.
const CALLS: Rate = Rate { every: Duration::from_millis(100), burst: 100 };
/// The most keys of each of a table's two generations.
const GENERATION: usize = 20_000;

/// The limits of failed authentications and of calls; empty if limits are off.
pub(crate) struct Limits(Option<Tables>);

struct Tables {
    start: Instant,
    clients: Table<IpAddr>,
    apps: Table<AppUid>,
}

impl Limits {
    pub(crate) fn new(limit: RateLimit) -> Self {
        let tables = || Tables { start: Instant::now(), clients: Table::new(FAILURES), apps: Table::new(CALLS) };
        Self((limit == RateLimit::On).then(tables))
    }

    /// Refuses a client that failed too often, before the store is read.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn admit(&self, client: IpAddr) -> Result<(), ErrorReply> {
        let wait = self.0.as_ref().map(|tables| tables.clients.check(network(client), tables.start.elapsed()));
        refuse("Too many failed authentications came from this address.", wait)
    }

    /// Counts a failed authentication.
    pub(crate) fn failed(&self, client: IpAddr) {
        if let Some(tables) = &self.0 {
            tables.clients.spend(network(client), tables.start.elapsed());
        }
    }

    /// Counts a call of an app, and refuses it if there were too many.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn call(&self, app: AppUid) -> Result<(), ErrorReply> {
        let wait = self.0.as_ref().map(|tables| tables.apps.take(app, tables.start.elapsed()));
        refuse("This app's webhook is called too often.", wait)
    }
}

fn refuse(detail: &str, wait: Option<Duration>) -> Result<(), ErrorReply> {
    wait.filter(|wait| !wait.is_zero()).map_or(Ok(()), |wait| Err(ErrorReply::rate_limited(detail, wait)))
}

/// Returns what a client is counted by: its IPv4 address, or the /64 that an IPv6 customer has for itself.
fn network(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

/// A number of events at once, and one more per interval.
#[derive(Clone, Copy)]
struct Rate {
    every: Duration,
    burst: u32,
}

impl Rate {
    /// Returns the time until one more event is allowed, for a key whose debt is paid off at `paid` (the generic cell rate
    /// algorithm).
    fn wait(self, paid: Duration, now: Duration) -> Duration {
        let debt = paid.saturating_sub(now);
        (debt + self.every).saturating_sub(self.every * self.burst)
    }
}

/// The time at which each key's debt is paid off. Two generations bound the table: the older is dropped as a whole once the
/// newer is full, so that a flood of new keys costs neither memory nor a search for expired ones.
struct Table<K> {
    rate: Rate,
    generations: Mutex<(HashMap<K, Duration>, HashMap<K, Duration>)>,
}

impl<K: Hash + Eq + Copy> Table<K> {
    fn new(rate: Rate) -> Self {
        Self { rate, generations: Mutex::default() }
    }

    /// Passes the time at which the key's debt is paid off to `act`, which may return a later one; returns the former.
    fn update(&self, key: K, act: impl FnOnce(Duration) -> Option<Duration>) -> Duration {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let (newer, older) = &mut *generations;
        if newer.len() >= GENERATION {
            *older = mem::take(newer);
        }
        let paid = newer.get(&key).or_else(|| older.get(&key)).copied().unwrap_or_default();
        if let Some(later) = act(paid) {
            newer.insert(key, later);
        }
        paid
    }

    /// Returns the time that the key has to wait.
    fn check(&self, key: K, now: Duration) -> Duration {
        self.rate.wait(self.update(key, |_| None), now)
    }

    /// Counts one event against the key.
    fn spend(&self, key: K, now: Duration) {
        self.update(key, |paid| Some(paid.max(now) + self.rate.every));
    }

    /// Counts one event against the key unless it has to wait; returns the time to wait.
    fn take(&self, key: K, now: Duration) -> Duration {
        let paid =
            self.update(key, |paid| self.rate.wait(paid, now).is_zero().then(|| paid.max(now) + self.rate.every));
        self.rate.wait(paid, now)
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
            assert_eq!(table.take(1, START), Duration::ZERO);
        }
        assert_eq!(table.take(1, START), Duration::from_millis(100));
        assert_eq!(table.take(2, START), Duration::ZERO, "another key has its own");
        assert!(table.take(1, START + Duration::from_millis(100)).is_zero());
        assert!(!table.take(1, START + Duration::from_millis(100)).is_zero());
        let later = START + Duration::from_secs(60);
        assert_eq!((0..200).filter(|_| table.take(1, later).is_zero()).count(), 100);
    }

    #[test]
    fn a_check_costs_nothing() {
        let table = Table::new(FAILURES);
        for _ in 0..1000 {
            assert!(table.check(1, START).is_zero());
        }
        for _ in 0..50 {
            table.spend(1, START);
        }
        assert_eq!(table.check(1, START), Duration::from_millis(200));
        assert!(table.check(1, START + Duration::from_millis(200)).is_zero());
    }

    #[test]
    fn a_flood_of_keys_is_bounded() {
        let table = Table::new(FAILURES);
        for key in 0..10 * GENERATION {
            table.spend(key, START);
        }
        let (newer, older) = &*table.generations.lock().unwrap();
        assert!(newer.len() <= GENERATION && older.len() <= GENERATION);
    }

    #[test]
    fn an_ipv6_client_is_its_64() {
        let address = |text: &str| network(text.parse().unwrap());
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_ne!(address("10.0.0.1"), address("10.0.0.2"));
    }
}
