//! Authorizations of calls: made of logins and of tokens, and kept until they end.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderValue, Request, header};
use rollhook_core::app::Namespace;
use rollhook_registry_logins::Login;
use serde::Deserialize;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::challenge::Challenge;

/// The longest time for which an authorization is kept: a login that is taken back ends with it.
const LIFE_MAX: Duration = Duration::from_secs(300);
/// The life of a token whose server names none, as Docker's specification of them says.
const LIFE: u64 = 60;
/// The time before a token's end at which it is used no more.
const MARGIN: Duration = Duration::from_secs(10);
/// The time for which a challenge is kept.
const CHALLENGE_LIFE: Duration = Duration::from_secs(3600);
/// The time for which it is kept which login was let in.
const WAY_LIFE: Duration = Duration::from_secs(24 * 3600);
/// The most authorizations, challenges, ways and pauses, each, that are kept.
const MOST: usize = 512;

/// What an environment reads: a repository of a registry.
pub(crate) type Place = (Namespace, String);

/// What stands for a login in this process.
pub(crate) type Mark = u64;

/// What an authorization is for: a place, and the login; without one, for anyone.
pub(crate) type Key = (Place, Option<Mark>);

/// The header that authorizes a call, with its end.
#[derive(Clone)]
pub(crate) struct Authorization {
    pub(crate) header: HeaderValue,
    /// Whether it is a token that anyone gets.
    pub(crate) is_anonymous: bool,
    until: Instant,
}

/// The authorizations that have not ended, the challenges that they met, and the registries that asked to be left alone.
#[derive(Default)]
pub(crate) struct Memory {
    authorizations: Expiring<Key, Authorization>,
    /// What registries want of those who call.
    challenges: Expiring<Place, Challenge>,
    /// The login of the platform that was let in last.
    ways: Expiring<Place, Mark>,
    /// The times until which registries are left alone.
    pauses: Expiring<Place, Instant>,
    marks: RandomState,
}

/// Values that end, at most [`MOST`] of them.
struct Expiring<K, V>(Mutex<BTreeMap<K, (V, Instant)>>);

/// An answer of a server of tokens.
#[derive(Deserialize)]
struct Answer {
    token: Option<Zeroizing<String>>,
    access_token: Option<Zeroizing<String>>,
    expires_in: Option<u64>,
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorization(…)")
    }
}

impl Authorization {
    fn new(text: &Zeroizing<String>, life: Duration, is_anonymous: bool) -> Option<Self> {
        let mut header = HeaderValue::from_str(text).ok()?;
        header.set_sensitive(true);
        Some(Self { header, is_anonymous, until: Instant::now() + life.min(LIFE_MAX) })
    }

    /// Returns the authorization of a login itself; `None` if it is a token for a server of tokens.
    pub(crate) fn basic(login: &Login) -> Option<Self> {
        let Login::Password { user, password } = login else { return None };
        let both = Zeroizing::new(format!("{user}:{}", **password));
        let text = Zeroizing::new(format!("Basic {}", *Zeroizing::new(BASE64_STANDARD.encode(both.as_bytes()))));
        Self::new(&text, Duration::from_secs(LIFE), false)
    }

    /// Returns the authorization of a server of tokens' answer; `None` if it has no token.
    pub(crate) fn bearer(body: &[u8], is_anonymous: bool) -> Option<Self> {
        let answer: Answer = serde_json::from_slice(body).ok()?;
        let token = answer.token.filter(|token| !token.is_empty()).or(answer.access_token)?;
        let life = Duration::from_secs(answer.expires_in.unwrap_or(LIFE)).saturating_sub(MARGIN);
        let text = Zeroizing::new(format!("Bearer {}", *token));
        if token.is_empty() { None } else { Self::new(&text, life, is_anonymous) }
    }
}

/// Returns the call of a server of tokens for one that lets read a repository, and nothing else, whatever it offers.
///
/// # Errors
/// If its URL cannot be called.
pub(crate) fn request(
    realm: &str,
    service: Option<&str>,
    path: &str,
    login: Option<&Login>,
) -> Result<Request<Vec<u8>>, http::Error> {
    let scope = format!("repository:{path}:pull");
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    pairs.extend_pairs(service.map(|service| ("service", service))).append_pair("scope", &scope);
    if let Some(Login::Identity(token)) = login {
        pairs.append_pair("grant_type", "refresh_token").append_pair("client_id", "rollhook");
        pairs.append_pair("refresh_token", token);
        let form = header::HeaderValue::from_static("application/x-www-form-urlencoded");
        return Request::post(realm).header(header::CONTENT_TYPE, form).body(pairs.finish().into_bytes());
    }
    let joint = if realm.contains('?') { '&' } else { '?' };
    let mut request = Request::get(format!("{realm}{joint}{}", pairs.finish()));
    if let Some(authorization) = login.and_then(Authorization::basic) {
        request = request.header(header::AUTHORIZATION, authorization.header);
    }
    request.body(Vec::new())
}

impl Memory {
    /// Returns the mark of a login.
    pub(crate) fn mark(&self, login: &Login) -> Mark {
        match login {
            Login::Password { user, password } => self.marks.hash_one((user, password.as_str())),
            Login::Identity(token) => self.marks.hash_one(token.as_str()),
        }
    }

    /// Returns the authorization with which an environment was let in, if it has not ended.
    pub(crate) fn authorization(&self, key: &Key) -> Option<Authorization> {
        self.authorizations.get(key)
    }

    /// Keeps an authorization.
    pub(crate) fn keep(&self, key: Key, authorization: Authorization) {
        let until = authorization.until;
        self.authorizations.put(key, authorization, until);
    }

    /// Forgets an authorization that the registry refuses.
    pub(crate) fn forget(&self, key: &Key) {
        self.authorizations.remove(key);
    }

    /// Returns which login of the platform was let in last.
    pub(crate) fn way(&self, place: &Place) -> Option<Mark> {
        self.ways.get(place)
    }

    /// Keeps which login of the platform was let in.
    pub(crate) fn keep_way(&self, place: Place, mark: Mark) {
        self.ways.put(place, mark, Instant::now() + WAY_LIFE);
    }

    /// Forgets which login of the platform was let in.
    pub(crate) fn forget_way(&self, place: &Place) {
        self.ways.remove(place);
    }

    /// Returns the challenge that was last met.
    pub(crate) fn challenge(&self, place: &Place) -> Option<Challenge> {
        self.challenges.get(place)
    }

    /// Keeps a challenge that was met.
    pub(crate) fn keep_challenge(&self, place: Place, challenge: Challenge) {
        self.challenges.put(place, challenge, Instant::now() + CHALLENGE_LIFE);
    }

    /// Forgets a challenge.
    pub(crate) fn forget_challenge(&self, place: &Place) {
        self.challenges.remove(place);
    }

    /// Returns the time for which a registry has asked an environment to leave it alone, from now.
    pub(crate) fn pause(&self, place: &Place) -> Option<Duration> {
        self.pauses.get(place).map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Leaves a registry alone.
    pub(crate) fn leave_alone(&self, place: Place, time: Duration) {
        let until = Instant::now() + time;
        self.pauses.put(place, until, until);
    }
}

impl<K, V> Default for Expiring<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Ord, V: Clone> Expiring<K, V> {
    /// Returns a value that has not ended.
    fn get(&self, key: &K) -> Option<V> {
        self.lock().get(key).filter(|(_, until)| Instant::now() < *until).map(|(value, _)| value.clone())
    }

    /// Keeps a value. Those that have ended make room, and of too many the one that ends first.
    fn put(&self, key: K, value: V, until: Instant) {
        let mut kept = self.lock();
        if kept.len() >= MOST {
            let now = Instant::now();
            kept.retain(|_, (_, until)| now < *until);
        }
        if kept.len() >= MOST {
            let first = kept.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| key.clone());
            first.and_then(|key| kept.remove(&key));
        }
        kept.insert(key, (value, until));
    }

    fn remove(&self, key: &K) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, (V, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(user: &str, password: &str) -> Login {
        Login::Password { user: user.to_owned(), password: Zeroizing::new(password.to_owned()) }
    }

    fn place(number: usize) -> Place {
        ("shop-test".parse().unwrap(), format!("r.example.com/{number}"))
    }

    #[test]
    fn authorization_is_that_of_the_login_or_of_the_token() {
        let basic = Authorization::basic(&password("ada", "hunter2")).unwrap();
        assert_eq!((basic.header.to_str().unwrap(), basic.header.is_sensitive()), ("Basic YWRhOmh1bnRlcjI=", true));
        assert_eq!(format!("{basic:?}"), "Authorization(…)");
        for body in [
            r#"{"token": "t", "access_token": "u"}"#,
            r#"{"access_token": "t"}"#,
            r#"{"token": "", "access_token": "t"}"#,
        ] {
            assert_eq!(Authorization::bearer(body.as_bytes(), true).unwrap().header, "Bearer t", "{body}");
        }
        for body in ["", "{}", r#"{"token": ""}"#, r#"{"token": "a\nb"}"#, r#"{"token": 7}"#] {
            assert!(Authorization::bearer(body.as_bytes(), true).is_none(), "{body}");
        }
    }

    #[test]
    fn token_is_asked_for_one_repository_and_to_read_it() {
        let realm = "https://auth.example.com/token";
        let asked = request(realm, Some("r"), "shop/api", Some(&password("ada", "hunter2"))).unwrap();
        assert_eq!(asked.uri(), "https://auth.example.com/token?service=r&scope=repository%3Ashop%2Fapi%3Apull");
        assert_eq!(asked.headers()[header::AUTHORIZATION], "Basic YWRhOmh1bnRlcjI=");
        let anonymous = request("https://auth.example.com/token?a=b", None, "shop/api", None).unwrap();
        assert_eq!(anonymous.uri().query(), Some("a=b&scope=repository%3Ashop%2Fapi%3Apull"));
        assert!(anonymous.headers().is_empty());
        let identity = Login::Identity(Zeroizing::new("t".to_owned()));
        let posted = request(realm, Some("r"), "api", Some(&identity)).unwrap();
        assert_eq!((posted.method().as_str(), posted.uri().query()), ("POST", None));
        let form = String::from_utf8(posted.into_body()).unwrap();
        assert!(form.contains("grant_type=refresh_token") && form.ends_with("refresh_token=t"), "{form}");
    }

    #[tokio::test(start_paused = true)]
    async fn authorizations_and_pauses_end_and_are_bounded() {
        let memory = Memory::default();
        let authorization = |body: &str| Authorization::bearer(body.as_bytes(), true).unwrap();
        memory.keep((place(0), None), authorization(r#"{"token": "t", "expires_in": 40}"#));
        memory.leave_alone(place(0), Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(
            memory.authorization(&(place(0), None)).is_some()
                && memory.pause(&place(0)) == Some(Duration::from_secs(1))
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(memory.authorization(&(place(0), None)).is_none() && memory.pause(&place(0)).is_none());
        memory.keep((place(1), None), authorization(r#"{"token": "t", "expires_in": 3600}"#));
        tokio::time::advance(LIFE_MAX).await;
        assert!(
            memory.authorization(&(place(1), None)).is_none(),
            "no token lives for longer than a login that was taken back may"
        );
        for number in 0..2 * MOST {
            memory.keep((place(number), None), authorization(r#"{"token": "t"}"#));
            memory.leave_alone(place(number), Duration::from_secs(30));
            memory.keep_challenge(place(number), Challenge::Basic);
        }
        assert_eq!(memory.challenge(&place(2 * MOST - 1)), Some(Challenge::Basic));
        assert_eq!(memory.challenges.lock().len(), MOST);
        assert_eq!((memory.authorizations.lock().len(), memory.pauses.lock().len()), (MOST, MOST));
        assert!(memory.authorization(&(place(2 * MOST - 1), None)).is_some());
        memory.forget(&(place(2 * MOST - 1), None));
        assert!(memory.authorization(&(place(2 * MOST - 1), None)).is_none());
    }
}
