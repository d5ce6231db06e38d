//! Locks: new deploys of an app, or of all apps of an environment, are refused until the lock ends.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    app::InvalidName,
    deploy::Actor,
    text::{checked_text, hash_of, hex, words},
    time::Timestamp,
};

/// The longest reason, in characters.
pub const REASON_MAX: usize = 200;

checked_text! {
    /// The reason for a lock, or for a deploy in spite of one: 1 to 200 characters in one line.
    LockReason, InvalidName, reason
}

fn reason(text: &str) -> Result<String, InvalidName> {
    let text = text.trim();
    if (1..=REASON_MAX).contains(&text.chars().count()) && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(InvalidName::new("reason", text, "must be 1 to 200 characters in one line"))
}

/// The key of a principal, by which it is recognised: names are for people, and two principals may share one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PrincipalKey(String);

impl PrincipalKey {
    /// Returns the key of a principal of this kind that these parts name together, as a hash: it reveals nothing of them.
    pub fn of(kind: &str, parts: &[&str]) -> Self {
        let parts = std::iter::once(kind).chain(parts.iter().copied());
        Self(hex(&hash_of(parts)))
    }
}

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// The reason, for those whose deploys are refused.
    pub reason: LockReason,
    /// The party that set the lock, as it is shown.
    pub by: Actor,
    /// The principal that set the lock, and may end it as a deployer. A name may be given twice; this is not.
    pub owner: PrincipalKey,
    /// The time at which it was set.
    pub at: Timestamp,
    /// The time at which it ends by itself; `None`: it is ended by hand.
    pub until: Option<Timestamp>,
}

impl Lock {
    /// Returns whether the lock still refuses deploys.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// Returns the lock as the one that refuses a deploy, while it is in force.
    pub fn refusing(&self, scope: LockScope, now: Timestamp) -> Option<Locked> {
        let left = self.until.map(|until| until.since(now));
        self.is_in_force(now).then(|| Locked { scope, lock: self.clone(), left })
    }
}

/// The apps that a lock is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockScope {
    /// One app.
    App,
    /// All apps of an environment.
    Environment,
}

words! { LockScope:
    App = "app",
    Environment = "environment",
}

/// The locks on one app. Those whose time is over stay until others take their place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    /// The app's own lock.
    pub app: Option<Lock>,
    /// The lock of the app's environment.
    pub environment: Option<Lock>,
    /// The number of the environment's change that `environment` is a copy of: a late copy of an older one is ignored.
    pub sequence: u64,
}

impl Locks {
    /// Returns the locks that refuse deploys now.
    pub fn in_force(&self, now: Timestamp) -> impl Iterator<Item = (LockScope, &Lock)> {
        let own = self.app.iter().map(|lock| (LockScope::App, lock));
        let all = own.chain(self.environment.iter().map(|lock| (LockScope::Environment, lock)));
        all.filter(move |(_, lock)| lock.is_in_force(now))
    }

    /// Returns the lock that refuses a deploy now: the one that lasts longest.
    pub fn refusing(&self, now: Timestamp) -> Option<Locked> {
        let end = |(_, lock): &(LockScope, &Lock)| lock.until.map_or(i64::MAX, Timestamp::as_millis);
        let (scope, lock) = self.in_force(now).max_by_key(end)?;
        lock.refusing(scope, now)
    }
}

/// The effect of locks on a deploy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRule {
    /// A lock refuses the deploy, unless it is a rollback.
    Respected,
    /// The deploy is accepted in spite of locks.
    Overridden,
}

/// The lock that refused a deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locked {
    /// The apps that the lock is on.
    pub scope: LockScope,
    /// The lock.
    pub lock: Lock,
    /// The time until the lock ends by itself.
    pub left: Option<Duration>,
}

impl fmt::Display for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, lock, left } = self;
        let what = match scope {
            LockScope::App => "Deploys of this app",
            LockScope::Environment => "Deploys of all apps of this environment",
        };
        let by = crate::text::escaped(&lock.by.to_string());
        write!(f, "{what} are locked by {by}: \"{}\". ", crate::text::escaped(lock.reason.as_str()))?;
        match left.map(|left| left.as_secs().div_ceil(60).max(1)) {
            Some(minutes @ ..120) => write!(f, "The lock ends in {minutes} min. ")?,
            Some(minutes) => write!(f, "The lock ends in {} h. ", minutes.div_ceil(60))?,
            None => write!(f, "The lock lasts until somebody ends it. ")?,
        }
        write!(f, "Rollbacks stay possible, and an admin may deploy all the same.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(until: Option<i64>) -> Lock {
        let (reason, at) = ("release \u{1b}[2J freeze".replace('\u{1b}', ""), Timestamp::from_millis(0));
        let (by, owner) = (Actor::person("ada"), PrincipalKey::of("name", &["ada"]));
        Lock { reason: reason.parse().unwrap(), by, owner, at, until: until.map(Timestamp::from_millis) }
    }

    #[test]
    fn a_reason_is_one_line() {
        for text in ["", "  ", "a\nb", "\u{1b}[2J", &"é".repeat(201)] {
            assert!(text.parse::<LockReason>().is_err(), "{text:?}");
        }
        assert_eq!(" no deploys on Friday ".parse::<LockReason>().unwrap().as_str(), "no deploys on Friday");
        assert!("é".repeat(200).parse::<LockReason>().is_ok());
    }

    #[test]
    fn a_lock_ends_at_its_time_and_not_before() {
        let at = Timestamp::from_millis;
        assert!(lock(Some(10)).is_in_force(at(9)));
        assert!(!lock(Some(10)).is_in_force(at(10)));
        assert!(lock(None).is_in_force(at(i64::MAX)));
    }

    #[test]
    fn the_lock_that_lasts_longest_is_told() {
        let locks = Locks { app: Some(lock(Some(3_600_000))), environment: Some(lock(Some(60_000))), sequence: 1 };
        let told = |locks: &Locks, now| locks.refusing(Timestamp::from_millis(now)).map(|locked| locked.scope);
        assert_eq!(told(&locks, 0), Some(LockScope::App));
        assert_eq!(told(&locks, 60_000), Some(LockScope::App));
        assert_eq!(told(&locks, 3_600_000), None);
        let endless = Locks { environment: Some(lock(None)), ..locks };
        assert_eq!(told(&endless, 0), Some(LockScope::Environment));
        let sentence = endless.refusing(Timestamp::from_millis(0)).unwrap().to_string();
        assert!(sentence.contains("locked by ada: \"release [2J freeze\""), "{sentence}");
    }
}
