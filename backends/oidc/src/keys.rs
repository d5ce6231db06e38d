//! The keys of one issuer, and the decision when to read them again.

use std::time::Duration;

use openidconnect::{
    JsonWebKey,
    core::{CoreJsonWebKey, CoreJsonWebKeySet},
};

/// How long keys are used without a look at their issuer.
const FRESH: Duration = Duration::from_secs(3600);
/// How long keys are used while their issuer does not answer.
const STALE_MAX: Duration = Duration::from_secs(12 * 3600);
/// The least time between two successful reads: a key may be so new that only the next one finds it.
const REFRESH: Duration = Duration::from_secs(60);
/// The least time after a failed read.
const RETRY: Duration = Duration::from_secs(5);

/// The keys of an issuer as they were last read.
#[derive(Default)]
pub(crate) struct Keys {
    set: Option<(CoreJsonWebKeySet, Duration)>,
    /// The end of the last read, and whether it succeeded.
    read: Option<(Duration, bool)>,
}

/// The way to a key.
#[derive(Debug, PartialEq)]
pub(crate) enum Lookup<'a> {
    /// The key is known.
    Known(&'a CoreJsonWebKey),
    /// The issuer is to be called.
    Read,
    /// The issuer has no such key.
    Unknown,
    /// The issuer did not answer a moment ago, and the key is not known.
    Away,
}

impl Keys {
    /// Returns the way to the key of this id at `now`.
    pub(crate) fn look_up(&self, id: &str, now: Duration) -> Lookup<'_> {
        let age = |at: Duration| now.saturating_sub(at);
        let may_read = self.read.is_none_or(|(at, was_good)| age(at) >= if was_good { REFRESH } else { RETRY });
        let (key, oldness) = match &self.set {
            Some((set, at)) => (find(set, id), age(*at)),
            None => (None, Duration::MAX),
        };
        match key {
            Some(key) if oldness < FRESH || (!may_read && oldness < STALE_MAX) => Lookup::Known(key),
            _ if may_read => Lookup::Read,
            None if self.read.is_some_and(|(_, was_good)| was_good) => Lookup::Unknown,
            Some(_) | None => Lookup::Away,
        }
    }

    /// Returns whether keys were read before.
    pub(crate) const fn are_known(&self) -> bool {
        self.set.is_some()
    }

    /// Takes the outcome of a read.
    pub(crate) fn take(&mut self, read: Option<CoreJsonWebKeySet>, now: Duration) {
        self.read = Some((now, read.is_some()));
        if let Some(set) = read {
            self.set = Some((set, now));
        }
    }
}

fn find<'a>(set: &'a CoreJsonWebKeySet, id: &str) -> Option<&'a CoreJsonWebKey> {
    set.keys().iter().find(|key| key.key_id().is_some_and(|known| known.as_str() == id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[&str]) -> CoreJsonWebKeySet {
        let key = |id: &&str| {
            serde_json::json!({
                "kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": id, "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
            })
        };
        let keys: Vec<_> = ids.iter().map(key).collect();
        serde_json::from_value(serde_json::json!({ "keys": keys })).unwrap()
    }

    const START: Duration = Duration::from_secs(100_000);

    fn after(seconds: u64) -> Duration {
        START + Duration::from_secs(seconds)
    }

    fn word(lookup: &Lookup<'_>) -> &'static str {
        match lookup {
            Lookup::Known(_) => "known",
            Lookup::Read => "read",
            Lookup::Unknown => "unknown",
            Lookup::Away => "away",
        }
    }

    #[test]
    fn an_unknown_key_is_looked_for_once_a_minute() {
        let mut keys = Keys::default();
        assert_eq!(word(&keys.look_up("a", START)), "read");
        keys.take(Some(set(&["a"])), START);
        assert_eq!(word(&keys.look_up("a", START)), "known");
        assert_eq!(word(&keys.look_up("b", after(59))), "unknown");
        assert_eq!(word(&keys.look_up("b", after(60))), "read");
        keys.take(Some(set(&["b"])), after(60));
        assert_eq!(word(&keys.look_up("b", after(61))), "known");
        assert_eq!(word(&keys.look_up("a", after(61))), "unknown", "a key that was withdrawn");
    }

    #[test]
    fn an_issuer_that_is_away_is_called_every_five_seconds_and_its_keys_last_for_half_a_day() {
        let mut keys = Keys::default();
        keys.take(None, START);
        assert_eq!(word(&keys.look_up("a", after(4))), "away");
        assert_eq!(word(&keys.look_up("a", after(5))), "read");
        keys.take(Some(set(&["a"])), after(5));
        assert_eq!(word(&keys.look_up("a", after(3604))), "known");
        assert_eq!(word(&keys.look_up("a", after(3605))), "read", "an old key is confirmed");
        keys.take(None, after(3605));
        assert_eq!(word(&keys.look_up("a", after(3609))), "known", "and used while that fails");
        assert_eq!(word(&keys.look_up("b", after(3609))), "away", "another one may be new");
        keys.take(None, after(5 + 12 * 3600));
        assert_eq!(word(&keys.look_up("a", after(6 + 12 * 3600))), "away");
    }
}
