//! Recognises callers by the API tokens and sessions that this process last read, so that a host can tell a known caller
//! from strangers before it reads the store.
//!
//! Each is remembered with the party that it stands for, so that a host counts a party once, however many secrets it has.
//!
//! Recognition lets nobody in: a recognised caller is authenticated by a read of the store like every other. Each read
//! corrects what is remembered.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rollhook_core::{
    app::{App, AppId, Namespace},
    lock::PrincipalKey,
};

use crate::{
    Management,
    access::{Realm, api_tokens::key_of},
    ports::RecordKey,
    recent::Recent,
};

/// The most API tokens and sessions: one more makes the one forgotten that was read least lately.
const SECRETS: usize = 10_000;
/// The most namespaces: one more makes the one forgotten that was read least lately.
const NAMESPACES: usize = 10_000;

/// A caller of the management API as a host counts what it holds: the party itself, and those whose admins can make more
/// such callers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KnownCaller {
    /// The API token, the person, or the account of a cluster, whichever of its secrets the caller presented.
    pub party: PrincipalKey,
    /// The environment whose admins make such tokens, webhooks and accounts, or the namespace as long as its environment is
    /// not known.
    pub environment: Option<PrincipalKey>,
    /// The project whose admins make them.
    pub project: Option<PrincipalKey>,
}

impl KnownCaller {
    /// Returns a party that only admins of everything make.
    pub(crate) const fn new(party: PrincipalKey) -> Self {
        Self { party, environment: None, project: None }
    }

    /// Returns a party that the admins of this realm make.
    pub(crate) fn made_in(party: PrincipalKey, realm: &Realm) -> Self {
        let project = realm.project().map(|project| PrincipalKey::of("project", &[project.as_str()]));
        let environment = realm.project().zip(realm.environment());
        let environment = environment
            .map(|(project, environment)| PrincipalKey::of("environment", &[project.as_str(), environment.as_str()]));
        Self { party, environment, project }
    }

    /// Returns a party that the admins of this namespace make, whose environment may be known: see [`KnownNamespaces`].
    pub(crate) fn made_in_namespace(party: PrincipalKey, namespace: &str) -> Self {
        Self { party, environment: Some(key_of_namespace(namespace)), project: None }
    }
}

fn key_of_namespace(namespace: &str) -> PrincipalKey {
    PrincipalKey::of("namespace", &[namespace])
}

/// The environments whose apps have a namespace, as this process last read an app of it: two pairs of project and
/// environment may spell one namespace, and apps of one pair alone can be in it.
pub(crate) struct KnownNamespaces(Mutex<Recent<PrincipalKey, Realm>>);

impl Default for KnownNamespaces {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(NAMESPACES)))
    }
}

impl KnownNamespaces {
    /// Remembers the environment of an app's namespace.
    pub(crate) fn read(&self, app: &App) {
        let realm = Realm::of_app(app);
        self.lock().used(
            &key_of_namespace(app.id.namespace.as_str()),
            || realm.clone(),
            |known| known.clone_from(&realm),
        );
    }

    fn contain(&self, namespace: &Namespace) -> bool {
        self.lock().contains(&key_of_namespace(namespace.as_str()))
    }

    /// Returns the caller with the environment and project of its namespace, if they are known.
    pub(crate) fn resolve(&self, caller: KnownCaller) -> KnownCaller {
        let realm = caller.environment.as_ref().and_then(|key| self.lock().get(key).cloned());
        realm.map_or(caller.clone(), |realm| KnownCaller::made_in(caller.party, &realm))
    }

    fn lock(&self) -> MutexGuard<'_, Recent<PrincipalKey, Realm>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Management {
    /// Returns those who call an app's webhook, who are one caller: each of them may deploy the app.
    pub fn webhook_caller(&self, app: &AppId) -> KnownCaller {
        let (namespace, name) = (app.namespace.as_str(), app.name.as_str());
        let party = PrincipalKey::of("webhook", &[namespace, name]);
        self.known_namespaces.resolve(KnownCaller::made_in_namespace(party, namespace))
    }

    /// Reads the environment of an app's namespace unless it is known, so that callers are counted by it. A failure is made
    /// up for by the next call.
    pub async fn read_environment(&self, app: &AppId) {
        if self.known_namespaces.contain(&app.namespace) {
            return;
        }
        match self.deployer.find_app(app).await {
            Ok(Some(state)) => self.known_namespaces.read(&state.app),
            Ok(None) => {}
            Err(error) => tracing::debug!(%app, %error, "reading the environment of a namespace failed"),
        }
    }
}

/// The callers by the records of API tokens and of sessions that were valid when they were last read.
pub(crate) struct KnownCallers(Mutex<Recent<RecordKey, KnownCaller>>);

impl Default for KnownCallers {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(SECRETS)))
    }
}

impl KnownCallers {
    /// Remembers the caller of the API token or session of this record, as it was just read; `None` if it is not valid.
    pub(crate) fn read(&self, key: &RecordKey, caller: Option<KnownCaller>) {
        let mut known = self.lock();
        match caller {
            Some(caller) => known.used(key, || caller.clone(), |known| known.clone_from(&caller)),
            None => known.remove(key),
        }
    }

    /// Returns whether this is an API token or session that was valid when it was last read.
    pub(crate) fn contain(&self, presented: &[u8]) -> bool {
        self.lock().contains(&key_of(presented))
    }

    /// Returns the caller of the API token or session of this record, if it was valid when it was last read.
    pub(crate) fn of(&self, key: &RecordKey) -> Option<KnownCaller> {
        self.lock().get(key).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Recent<RecordKey, KnownCaller>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_callers_make_only_the_one_unknown_that_was_read_least_lately() {
        let known = KnownCallers::default();
        for number in 0..=SECRETS {
            let party = PrincipalKey::of("token", &[&number.to_string()]);
            known.read(&key_of(number.to_string().as_bytes()), Some(KnownCaller::new(party)));
        }
        assert!(!known.contain(b"0"));
        assert!((1..=SECRETS).all(|number| known.contain(number.to_string().as_bytes())));
    }

    #[test]
    fn realm_of_a_token_is_the_project_and_environment_whose_admins_make_it() {
        let party = || PrincipalKey::of("token", &["a"]);
        let realm = |project: &str, environment: Option<&str>| {
            let environment = environment.map(|environment| environment.parse().unwrap());
            KnownCaller::made_in(party(), &Realm::of(Some(project.parse().unwrap()), environment).unwrap())
        };
        assert_eq!(KnownCaller::made_in(party(), &Realm::Everything), KnownCaller::new(party()));
        let (test, prod) = (realm("shop", Some("test")), realm("shop", Some("prod")));
        assert!(test.environment.is_some() && test.environment != prod.environment && test.project == prod.project);
        assert_eq!(realm("shop", None), KnownCaller { environment: None, ..test });
        let account = || KnownCaller::made_in_namespace(party(), "shop-test");
        assert!(account().environment.is_some() && account().environment != test.environment);
        // Both spell one namespace.
        let (one, other) = (realm("a-b", Some("c")), realm("a", Some("b-c")));
        assert!(one.environment != other.environment && one.project != other.project);
    }
}
