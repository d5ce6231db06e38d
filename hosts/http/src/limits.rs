//! Limits on a client's failed authentications, a known caller's calls and an app's deploys; per replica, in memory,
//! bounded.
//!
//! A client over the limit of failures costs no read of the store, except for callers whose credentials this process
//! recognises by its last read of the token (`Deployer::recognizes`). A client gets over the limit of an app by calls
//! that each made the process read that app's token; so an app's own callers are recognised, however many strangers
//! share their address. After a restart each app's token is read once (`Deployer::read_tokens`), since strangers'
//! made-up names may use up what follows. A token that was replaced meanwhile, by another replica for example, is read
//! anew by one [`Limits::spare`] call per app and second, whoever makes it: the correct caller's next try is
//! recognised. An API token that this process has not read is known after [`State::read_new_tokens`](crate::state::State).
//! Where people sign in ([`Target::is_sign_in`]) failures count by themselves, and calls over the limit are let in by
//! themselves: failures elsewhere, of strangers at the same address, use up nothing there.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    mem,
    net::IpAddr,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rollhook_core::app::AppUid;
use rollhook_management::Rate;
use tokio::time::Instant;

use crate::{args::RateLimit, callers::Caller, error_reply::ErrorReply, target::Target};

/// Failed authentications of one client at one app: 5 per second, 50 at once.
const FAILURES: Rate = Rate { every: Duration::from_millis(200), burst: 50 };
/// Failed authentications of one client at all apps: 50 per second, 500 at once. Anyone can make up names of apps.
const CLIENT_FAILURES: Rate = Rate { every: Duration::from_millis(20), burst: 500 };
/// Calls of unknown callers over a limit that are authenticated even so: 1 per second at each app.
const SPARE: Rate = Rate { every: Duration::from_secs(1), burst: 1 };
/// The same at all apps: 20 per second.
const SPARE_TOTAL: Rate = Rate { every: Duration::from_millis(50), burst: 20 };
/// The same where people sign in: 5 per second at each such place, 20 at once.
const SIGN_IN_SPARE: Rate = Rate { every: Duration::from_millis(200), burst: 20 };
/// Calls of one known caller: 100 per second, 1,000 at once.
const CALLER: Rate = Rate { every: Duration::from_millis(10), burst: 1_000 };
/// Calls of the callers of one environment: 500 per second, 5,000 at once; of one project twice as many.
const ENVIRONMENT: Rate = Rate { every: Duration::from_millis(2), burst: 5_000 };
const PROJECT: Rate = Rate { every: Duration::from_millis(1), burst: 10_000 };
/// Webhook calls of one app: 10 per second, 100 at once.
const CALLS: Rate = Rate { every: Duration::from_millis(100), burst: 100 };
const HOUR: Duration = Duration::from_secs(3600);
/// The most keys of each of a table's two generations.
const GENERATION: usize = 20_000;

/// The limits of failed authentications and of calls; empty if limits are off.
pub(crate) struct Limits(Option<(Instant, Tables)>);

/// The counted calls. Times are since the start.
struct Tables {
    /// Makes targets small keys that no caller can choose.
    hasher: RandomState,
    failures: Table<(IpAddr, u64)>,
    clients: Table<IpAddr>,
    spares: Table<u64>,
    spare_total: Table<()>,
    sign_in_spares: Table<u64>,
    /// By the party.
    callers: Table<u64>,
    environments: Table<u64>,
    projects: Table<u64>,
    calls: Table<AppUid>,
    deploys: Table<AppUid>,
}

impl Limits {
    pub(crate) fn new(limit: RateLimit, deploys_per_hour: NonZeroU32) -> Self {
        Self((limit == RateLimit::On).then(|| (Instant::now(), Tables::new(deploys_per_hour))))
    }

    pub(crate) fn are_on(&self) -> bool {
        self.0.is_some()
    }

    /// Refuses a client that failed too often, before the store is read.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn admit(&self, client: IpAddr, target: &Target) -> Result<(), ErrorReply> {
        let wait = self.now().map(|(tables, now)| tables.failures_wait(client, target, now));
        refuse("Too many failed authentications came from this address.", wait)
    }

    /// Returns whether an unknown caller over the limit is authenticated all the same, and counts the call.
    pub(crate) fn spare(&self, target: &Target) -> bool {
        self.now().is_none_or(|(tables, now)| tables.spare(target, now))
    }

    /// Counts a failed authentication.
    pub(crate) fn failed(&self, client: IpAddr, target: &Target) {
        if let Some((tables, now)) = self.now() {
            tables.failed(client, target, now);
        }
    }

    /// Counts a call of a known caller, and refuses it if there were too many.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn caller(&self, caller: Caller) -> Result<(), ErrorReply> {
        let Some((tables, now)) = self.now() else { return Ok(()) };
        let wait = tables.callers.take(caller.party, now);
        refuse("Too many calls came from this caller, or to this app's webhook.", Some(wait))?;
        let environment = caller.environment.map(|key| tables.environments.take(key, now));
        refuse("Too many calls came from the callers of this environment.", environment)?;
        let project = caller.project.map(|key| tables.projects.take(key, now));
        refuse("Too many calls came from the callers of this project.", project)
    }

    /// Counts a call of an app, and refuses it if there were too many.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn call(&self, app: AppUid) -> Result<(), ErrorReply> {
        let wait = self.now().map(|(tables, now)| tables.calls.take(app, now));
        refuse("This app's webhook is called too often.", wait)
    }

    /// Refuses an app that has had its deploys of an hour, before anything is recorded.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn deploy(&self, app: AppUid) -> Result<(), ErrorReply> {
        let wait = self.now().map(|(tables, now)| tables.deploys.check(app, now));
        refuse("This app's webhook has accepted as many deploys as it may in an hour.", wait)
    }

    /// Counts an accepted deploy of an app.
    pub(crate) fn deployed(&self, app: AppUid) {
        if let Some((tables, now)) = self.now() {
            tables.deploys.spend(app, now);
        }
    }

    fn now(&self) -> Option<(&Tables, Duration)> {
        self.0.as_ref().map(|(start, tables)| (tables, start.elapsed()))
    }
}

impl Tables {
    fn new(deploys_per_hour: NonZeroU32) -> Self {
        let deploys = Rate { every: HOUR / deploys_per_hour.get(), burst: deploys_per_hour.get() };
        Self {
            hasher: RandomState::new(),
            failures: Table::new(FAILURES),
            clients: Table::new(CLIENT_FAILURES),
            spares: Table::new(SPARE),
            spare_total: Table::new(SPARE_TOTAL),
            sign_in_spares: Table::new(SIGN_IN_SPARE),
            callers: Table::new(CALLER),
            environments: Table::new(ENVIRONMENT),
            projects: Table::new(PROJECT),
            calls: Table::new(CALLS),
            deploys: Table::new(deploys),
        }
    }

    fn key(&self, target: &Target) -> u64 {
        self.hasher.hash_one(target)
    }

    fn failures_wait(&self, client: IpAddr, target: &Target, now: Duration) -> Duration {
        let client = network(client);
        let here = self.failures.check((client, self.key(target)), now);
        if target.is_sign_in() { here } else { here.max(self.clients.check(client, now)) }
    }

    fn failed(&self, client: IpAddr, target: &Target, now: Duration) {
        let client = network(client);
        self.failures.spend((client, self.key(target)), now);
        if !target.is_sign_in() {
            self.clients.spend(client, now);
        }
    }

    fn spare(&self, target: &Target, now: Duration) -> bool {
        let key = self.key(target);
        if target.is_sign_in() {
            return self.sign_in_spares.take(key, now).is_zero();
        }
        let free = self.spares.check(key, now).is_zero() && self.spare_total.take((), now).is_zero();
        if free {
            self.spares.spend(key, now);
        }
        free
    }
}

fn refuse(detail: &str, wait: Option<Duration>) -> Result<(), ErrorReply> {
    wait.filter(|wait| !wait.is_zero()).map_or(Ok(()), |wait| Err(ErrorReply::rate_limited(detail, wait)))
}

/// Returns what a client is counted by: its IPv4 address, or the /64 that an IPv6 customer has for itself.
pub(crate) fn network(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

/// The time at which each key's debt is paid off. Two generations bound the table: the older is dropped as a whole once
/// the newer is full, so that a flood of new keys costs neither memory nor a search for expired ones.
pub(crate) struct Table<K> {
    rate: Rate,
    generations: Mutex<(HashMap<K, Duration>, HashMap<K, Duration>)>,
}

impl<K: Hash + Eq + Copy> Table<K> {
    pub(crate) fn new(rate: Rate) -> Self {
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
        self.update(key, |paid| Some(self.rate.spend(paid, now)));
    }

    /// Counts one event against the key unless it has to wait; returns the time to wait.
    pub(crate) fn take(&self, key: K, now: Duration) -> Duration {
        let paid = self.update(key, |paid| self.rate.take(paid, now));
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

    fn app(name: &str) -> Target {
        Target::App(format!("shop-test/{name}").parse().unwrap())
    }

    #[test]
    fn failures_count_per_client_and_app() {
        let tables = Tables::new(NonZeroU32::MIN);
        let (ours, theirs) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let is_over = |client, target: &Target| !tables.failures_wait(client, target, START).is_zero();
        for _ in 0..50 {
            assert!(!is_over(ours, &app("api")));
            tables.failed(ours, &app("api"), START);
        }
        assert!(is_over(ours, &app("api")) && !is_over(theirs, &app("api")));
        assert!([app("web"), Target::Management, Target::Nothing].iter().all(|other| !is_over(ours, other)));
        for index in 0..450 {
            tables.failed(ours, &app(&format!("made-up-{index}")), START);
        }
        assert!(is_over(ours, &app("web")), "made-up names do not help");
        assert!(!is_over(theirs, &app("web")));
    }

    #[test]
    fn one_unknown_caller_over_the_limit_is_authenticated_per_app_and_second() {
        let tables = Tables::new(NonZeroU32::MIN);
        let second = Duration::from_secs(1);
        let is_spared = |name: &str, now| tables.spare(&app(name), now);
        assert!(is_spared("api", START) && !is_spared("api", START) && is_spared("web", START));
        assert!(is_spared("api", START + second) && !is_spared("api", START + second));
        let later = START + 2 * second;
        assert_eq!((0..100).filter(|index| is_spared(&format!("made-up-{index}"), later)).count(), 20);
    }

    #[test]
    fn failures_elsewhere_use_up_nothing_where_people_sign_in() {
        let tables = Tables::new(NonZeroU32::MIN);
        let client = IpAddr::from([10, 0, 0, 1]);
        for index in 0..1000 {
            for target in [Target::Management, app(&format!("made-up-{index}")), Target::Nothing] {
                tables.failed(client, &target, START);
                tables.spare(&target, START);
            }
        }
        assert!(!tables.failures_wait(client, &Target::Management, START).is_zero());
        for (place, others) in [
            (Target::SignIn, [Target::ProviderCallback, Target::Login]),
            (Target::ProviderCallback, [Target::SignIn, Target::Login]),
            (Target::Login, [Target::SignIn, Target::ProviderCallback]),
        ] {
            let tables = Tables::new(NonZeroU32::MIN);
            for _ in 0..1000 {
                for other in &others {
                    tables.failed(client, other, START);
                    tables.spare(other, START);
                }
            }
            assert!(tables.failures_wait(client, &place, START).is_zero(), "{place:?}");
            assert!(tables.spare(&place, START), "{place:?}");
            assert!(tables.failures_wait(client, &Target::Management, START).is_zero(), "{place:?}");
        }
        for place in [Target::SignIn, Target::ProviderCallback, Target::Login] {
            assert!(tables.failures_wait(client, &place, START).is_zero(), "{place:?}");
            assert!(tables.spare(&place, START), "{place:?}");
        }
    }

    #[test]
    fn callers_of_an_environment_share_its_calls_and_leave_others_theirs() {
        let tables = Tables::new(NonZeroU32::MIN);
        let at = Duration::from_secs(1);
        let calls = |environment| (0..6_000).filter(|_| tables.environments.take(environment, at).is_zero()).count();
        assert_eq!((calls(1), calls(1), calls(2)), (5_000, 0, 5_000));
        let limits = Limits(Some((Instant::now(), tables)));
        let caller = |party, environment| Caller { party, environment: Some(environment), project: None };
        assert!(limits.caller(caller(7, 1)).is_err(), "whichever of its callers it is");
        assert!(limits.caller(caller(7, 3)).is_ok() && limits.caller(caller(8, 3)).is_ok());
    }

    #[test]
    fn an_app_has_its_deploys_of_an_hour_and_one_more_whenever_its_share_of_time_is_over() {
        let tables = Tables::new(NonZeroU32::new(60).unwrap());
        let minute = Duration::from_secs(60);
        for _ in 0..60 {
            assert!(tables.deploys.check(AppUid::from_bits(1), START).is_zero());
            tables.deploys.spend(AppUid::from_bits(1), START);
        }
        assert_eq!(tables.deploys.check(AppUid::from_bits(1), START), minute);
        assert!(tables.deploys.check(AppUid::from_bits(2), START).is_zero());
        assert!(tables.deploys.check(AppUid::from_bits(1), START + minute).is_zero());
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
