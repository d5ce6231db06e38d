//! Principals: callers of the management API who were authenticated.

use std::sync::Arc;

use rollhook_core::{
    deploy::{Actor, Trigger},
    lock::PrincipalKey,
    request::Cause,
};

use crate::{
    access::{Action, Grant, KnownCaller, Realm, Role},
    ports::{BearerToken, RecordKey, ReviewedCaller},
};

/// A caller of the management API who was authenticated, with its grants.
#[derive(Clone, Debug)]
pub struct Principal {
    actor: Actor,
    key: PrincipalKey,
    grants: Arc<[Grant]>,
    /// The caller in place of grants, where an authority outside of the service decides.
    caller: Option<Arc<ReviewedCaller>>,
    /// The realm whose admins made the principal's token.
    made_in: Realm,
    proof: Option<Proof>,
}

/// The record that proved a principal.
#[derive(Clone, Debug)]
pub(crate) enum Proof {
    /// An API token's, and the name that the caller gave itself.
    Token(RecordKey, Option<String>),
    /// The session of a token or a person.
    Session(RecordKey),
    /// A token that an authority outside of the service is asked about.
    Reviewed(BearerToken),
}

impl Principal {
    /// Returns a principal that may do everything: for a platform that decides by itself, or a program that has the
    /// store anyway.
    pub fn trusted(name: &str) -> Self {
        Self::new(name, [Grant::ALL])
    }

    /// Returns a principal with these grants, whom the caller has authenticated.
    pub fn new(name: &str, grants: impl IntoIterator<Item = Grant>) -> Self {
        // The history shows the service itself as `auto`.
        let name = if name == Actor::Service.to_string() { "a person named auto" } else { name };
        let key = PrincipalKey::of("name", &[name]);
        let grants = grants.into_iter().collect();
        Self { actor: Actor::person(name), key, grants, caller: None, made_in: Realm::Everything, proof: None }
    }

    /// Returns the principal under a key of its own: for callers whose names two of them may have.
    #[must_use]
    pub fn known_as(self, key: PrincipalKey) -> Self {
        Self { key, ..self }
    }

    /// Returns the principal of a caller whose rights an authority outside of the service is asked for.
    pub(crate) fn reviewed(actor: Actor, caller: ReviewedCaller, token: BearerToken) -> Self {
        // An account of the same name that is made later is another one.
        let key = PrincipalKey::of("reviewed", &[&caller.name, caller.uid.as_deref().unwrap_or_default()]);
        let (caller, proof) = (Some(Arc::new(caller)), Some(Proof::Reviewed(token)));
        Self { actor, key, grants: Arc::default(), caller, made_in: Realm::Everything, proof }
    }

    /// Returns the principal of a token that the admins of this realm make.
    pub(crate) fn known_in(self, realm: Realm) -> Self {
        Self { made_in: realm, ..self }
    }

    /// The realm whose admins make the principal's token; everything for people.
    pub(crate) const fn made_in(&self) -> &Realm {
        &self.made_in
    }

    /// Returns the caller as a host counts what it holds.
    pub(crate) fn known_caller(&self) -> KnownCaller {
        match self.caller.as_deref().and_then(ReviewedCaller::account_namespace) {
            Some(namespace) => KnownCaller::made_in_namespace(self.key.clone(), namespace),
            None => KnownCaller::made_in(self.key.clone(), &self.made_in),
        }
    }

    pub(crate) const fn caller(&self) -> Option<&Arc<ReviewedCaller>> {
        self.caller.as_ref()
    }

    /// Returns whether an authority outside of the service is asked for the principal's rights, call by call: it has no
    /// grants then.
    pub const fn is_reviewed(&self) -> bool {
        self.caller.is_some()
    }

    /// Returns the principal with the record that proves it.
    pub(crate) fn proven_by(self, proof: Proof) -> Self {
        Self { proof: Some(proof), ..self }
    }

    pub(crate) const fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }

    /// The actor that the history names.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// The key that no other principal has.
    pub const fn key(&self) -> &PrincipalKey {
        &self.key
    }

    /// The roles, and what they are for.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns whether a grant allows the action on all of the realm; never for a principal that has none, because an
    /// authority outside of the service is asked for its rights.
    pub fn may(&self, action: Action, realm: &Realm) -> bool {
        self.grants.iter().any(|grant| grant.allows(action, realm))
    }

    /// Returns the greatest role on all of the realm.
    pub fn role_on(&self, realm: &Realm) -> Option<Role> {
        self.grants.iter().filter(|grant| grant.realm.contains(realm)).map(|grant| grant.role).max()
    }

    pub(crate) fn cause(&self) -> Cause {
        Cause { trigger: Trigger::Manual, actor: self.actor.clone() }
    }
}
