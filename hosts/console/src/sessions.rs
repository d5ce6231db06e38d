//! Sessions: who is signed in. A store keeps only the SHA-256 of a session's id, so that its copy opens nothing.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::time::Timestamp;
use sha2::{Digest, Sha256};

use crate::host::{Failure, Principal};

/// The time without a call after which a session ends.
pub const IDLE: Duration = Duration::from_secs(8 * 3600);
/// The time after which a session ends, however it is used.
pub const ABSOLUTE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most sessions that are kept in memory; the one that was idle longest ends for a new one.
const SESSIONS: usize = 10_000;

/// The SHA-256 of a session's id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionHash([u8; 32]);

impl SessionHash {
    /// Returns the hash of an id.
    pub fn of(id: &str) -> Self {
        Self(Sha256::digest(id.as_bytes()).into())
    }

    /// The hash's bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SessionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionHash(…)")
    }
}

/// A signed-in person on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The person.
    pub principal: Principal,
    /// The time of the sign-in.
    pub begun_at: Timestamp,
    /// The time of the last call.
    pub used_at: Timestamp,
}

impl Session {
    /// Returns the session of a person who signs in now.
    pub fn begin(principal: Principal, now: Timestamp) -> Self {
        Self { principal, begun_at: now, used_at: now }
    }

    /// Returns whether the session is over by either time-out.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now.since(self.used_at) >= IDLE || now.since(self.begun_at) >= ABSOLUTE
    }
}

/// The sessions of all people. Each replica must see those of the others at once.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Begins a session.
    async fn begin(&self, id: SessionHash, session: Session) -> Result<(), Failure>;

    /// Returns a session that is not over at `now`.
    async fn find(&self, id: SessionHash, now: Timestamp) -> Result<Option<Session>, Failure>;

    /// Notes a call of a session. A store may write this once a minute only.
    async fn touch(&self, id: SessionHash, now: Timestamp) -> Result<(), Failure>;

    /// Ends a session.
    async fn end(&self, id: SessionHash) -> Result<(), Failure>;

    /// Ends all sessions of a principal.
    async fn end_all(&self, principal: &Principal) -> Result<(), Failure>;

    /// Returns the principal of a session that this process knows without a read of a store. The result proves nothing: it only lets
    /// a call pass the limit of failed authentications.
    fn recognized(&self, id: SessionHash, now: Timestamp) -> Option<Principal>;
}

/// Sessions in this process, which end with it.
#[derive(Debug, Default)]
pub struct InMemory(Mutex<HashMap<SessionHash, Session>>);

impl InMemory {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionHash, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: SessionHash, now: Timestamp) -> Option<Session> {
        let mut sessions = self.lock();
        if sessions.get(&id)?.is_over(now) {
            sessions.remove(&id);
        }
        sessions.get(&id).cloned()
    }
}

#[async_trait]
impl Sessions for InMemory {
    async fn begin(&self, id: SessionHash, session: Session) -> Result<(), Failure> {
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS {
            sessions.retain(|_, known| !known.is_over(session.used_at));
        }
        if sessions.len() >= SESSIONS
            && let Some(idle) = sessions.iter().min_by_key(|(_, known)| known.used_at).map(|(id, _)| *id)
        {
            sessions.remove(&idle);
        }
        sessions.insert(id, session);
        Ok(())
    }

    async fn find(&self, id: SessionHash, now: Timestamp) -> Result<Option<Session>, Failure> {
        Ok(self.get(id, now))
    }

    async fn touch(&self, id: SessionHash, now: Timestamp) -> Result<(), Failure> {
        if let Some(session) = self.lock().get_mut(&id) {
            session.used_at = session.used_at.max(now);
        }
        Ok(())
    }

    async fn end(&self, id: SessionHash) -> Result<(), Failure> {
        self.lock().remove(&id);
        Ok(())
    }

    async fn end_all(&self, principal: &Principal) -> Result<(), Failure> {
        self.lock().retain(|_, session| session.principal != *principal);
        Ok(())
    }

    fn recognized(&self, id: SessionHash, now: Timestamp) -> Option<Principal> {
        self.get(id, now).map(|session| session.principal)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const BEGIN: Timestamp = Timestamp::from_millis(1_767_323_045_678);

    fn principal(name: &str) -> Principal {
        Principal { token: [1; 32], name: name.to_owned() }
    }

    fn now<T>(future: impl Future<Output = Result<T, Failure>>) -> T {
        future.now_or_never().unwrap().unwrap()
    }

    #[test]
    fn an_idle_session_ends_and_so_does_one_in_use_for_too_long() {
        let (sessions, id) = (InMemory::default(), SessionHash::of("a"));
        now(sessions.begin(id, Session::begin(principal("ada"), BEGIN)));
        let mut time = BEGIN;
        while time < BEGIN.after(ABSOLUTE) {
            assert!(now(sessions.find(id, time)).is_some());
            now(sessions.touch(id, time));
            time = time.after(IDLE / 2);
        }
        assert!(now(sessions.find(id, time)).is_none(), "the absolute time-out");
        now(sessions.begin(id, Session::begin(principal("ada"), BEGIN)));
        assert!(now(sessions.find(id, BEGIN.after(IDLE))).is_none(), "the idle time-out");
        assert!(sessions.recognized(id, BEGIN).is_none(), "what is over is forgotten");
    }

    #[test]
    fn one_person_s_sessions_end_together_and_others_stay() {
        let sessions = InMemory::default();
        let [first, second, other] = ["1", "2", "3"].map(SessionHash::of);
        for (id, name) in [(first, "ada"), (second, "ada"), (other, "lin")] {
            now(sessions.begin(id, Session::begin(principal(name), BEGIN)));
        }
        now(sessions.end_all(&principal("ada")));
        assert!(sessions.recognized(first, BEGIN).is_none() && sessions.recognized(second, BEGIN).is_none());
        assert_eq!(sessions.recognized(other, BEGIN), Some(principal("lin")));
        now(sessions.end(other));
        assert!(sessions.recognized(other, BEGIN).is_none());
    }

    #[test]
    fn the_number_is_bounded() {
        let sessions = InMemory::default();
        for number in 0..=SESSIONS {
            let time = BEGIN.after(Duration::from_millis(number as u64));
            now(sessions.begin(SessionHash::of(&number.to_string()), Session::begin(principal("ada"), time)));
        }
        assert_eq!(sessions.lock().len(), SESSIONS);
        assert!(sessions.recognized(SessionHash::of("0"), BEGIN).is_none(), "the one that was idle longest");
    }
}
