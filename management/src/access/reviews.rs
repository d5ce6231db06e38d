//! Callers whom a cluster knows: it says by their token who they are, and for each action whether they may do it.
//!
//! No answer that lets a caller in is remembered. Strangers' tokens cost the cluster little: one that names another
//! audience, whose time is over, or whose signature is none of the cluster's, is refused unasked, and tokens that never
//! proved anything here are asked about at a bounded rate (`unknown_tokens.rs`). Those of known callers are
//! asked about in any case.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    str,
};

use futures_util::future::join_all;
use sha2::{Digest, Sha256};

use rollhook_core::{
    app::{AppId, Namespace},
    deploy::Actor,
    error::Error,
    request::{Field, Refusal as CoreRefusal},
    text::{escaped, hex},
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Granted, Place, Principal, Realm, Resource, api_tokens::key_of, unknown_tokens::Share},
    keyless::{Claims, LEEWAY},
    ports::{AccessReviewer, BearerToken, RecordKey, ReviewScope, ReviewedCaller, SERVICE_ACCOUNT, SignatureCheck},
};

/// The most namespaces that one call asks about.
const NAMESPACES_MAX: usize = 500;
/// The most questions of one call at the same time.
const AT_ONCE: usize = 16;
/// The longest name that the history shows whole.
const NAME_MAX: usize = 100;

/// Returns the actor of a caller of this authority: service accounts by their own name, others with the authority's behind
/// it, so that no other credential has a name like it. Two long names stay two.
fn actor(name: &str, authority: &str) -> Actor {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | ':');
    let is_account = name.starts_with(SERVICE_ACCOUNT) && name.chars().all(is_plain);
    // Names of API tokens, and those that their holders give themselves, never end like this.
    let suffix = if is_account { String::new() } else { format!(" ({authority})") };
    let shown = escaped(name);
    if shown.chars().count() <= NAME_MAX {
        return Actor::person(&format!("{shown}{suffix}"));
    }
    let hash = hex(&Sha256::digest(name)[..4]);
    let begin: String = shown.chars().take(NAME_MAX).collect();
    Actor::person(&format!("{begin}…{hash}{suffix}"))
}

/// Returns the key of the account that a signed token names, or of the token if it names none.
fn account_of(claims: &Claims, presented: &[u8]) -> RecordKey {
    claims.text("sub").map_or_else(|| key_of(presented), |account| key_of(account.as_bytes()))
}

/// Returns the refusal for a failure of the authority, which is logged: never a yes, and never a 401.
fn unreviewed(error: &Error) -> Refusal {
    if matches!(error, Error::Denied { .. }) {
        tracing::error!(error = %error.chain(), "reviewing a caller was denied: the authority does not answer this process");
    } else {
        tracing::warn!(error = %error.chain(), "reviewing a caller failed");
    }
    Refusal::ReviewUnavailable
}

impl Management {
    /// Returns the token that the authority is asked about, and its unverified claims; `None` if it is no such token.
    fn reviewable(&self, presented: &[u8]) -> Option<(&dyn AccessReviewer, BearerToken, Claims)> {
        let reviewer = self.reviewer.as_deref()?;
        let text = str::from_utf8(presented).ok()?;
        Some((reviewer, BearerToken::new(text), Claims::unverified(text)?))
    }

    /// Returns whether an authority, and not the store, knows the holder of this token.
    pub(crate) fn is_reviewed(&self, presented: &[u8]) -> bool {
        self.reviewable(presented).is_some()
    }

    /// Returns the principal that a token proves to the authority; `None` if the token is not for it to judge.
    pub(crate) async fn by_review(&self, presented: &[u8], network: Option<IpAddr>) -> Option<Outcome<Principal>> {
        let (reviewer, token, claims) = self.reviewable(presented)?;
        let is_past = claims.time("exp").is_none_or(|end| end.after(LEEWAY) <= self.deployer.time());
        if !claims.are_for(reviewer.audience()) || is_past {
            self.known_callers.read(&key_of(presented), None);
            return Some(Err(Refusal::UNAUTHORIZED));
        }
        if !self.known_callers.contain(presented) {
            let share = match reviewer.signature(&token).await {
                // The authority's own word: an account that mints tokens has the rate of one.
                SignatureCheck::Valid => Share::Signed(account_of(&claims, presented)),
                SignatureCheck::Invalid => return Some(Err(Refusal::UNAUTHORIZED)),
                SignatureCheck::Unknown => Share::Network(network),
            };
            if !self.unknown_tokens.take(&share, self.deployer.ports().clock.elapsed()) {
                tracing::debug!(?network, "too many unknown tokens to review");
                return Some(Err(Refusal::ReviewUnavailable));
            }
        }
        Some(match reviewer.authenticate(&token).await {
            Ok(caller) => {
                let principal =
                    caller.map(|caller| Principal::reviewed(actor(&caller.name, reviewer.authority()), caller, token));
                self.known_callers.read(&key_of(presented), principal.as_ref().map(Principal::known_caller));
                principal.ok_or(Refusal::UNAUTHORIZED)
            }
            Err(error) => Err(unreviewed(&error)),
        })
    }

    /// Returns whether the authority lets the caller do this now.
    pub(crate) async fn review(&self, caller: &ReviewedCaller, action: Action, place: Place<'_>) -> Outcome<bool> {
        let namespace = match (action.permission().resource, place.realm) {
            (Resource::ApiTokens | Resource::Sessions | Resource::Receivers | Resource::Audit, _) => None,
            (Resource::Apps, Realm::Environment { project, environment }) => {
                // No app is where no namespace can be.
                let Ok(namespace) = Namespace::of(project, environment) else { return Ok(false) };
                Some(namespace)
            }
            (Resource::Apps, Realm::Everything | Realm::Project { .. }) => None,
        };
        let scope = match (&namespace, place.app) {
            (Some(_), Some(app)) => ReviewScope::App(&app.namespace, &app.name),
            (Some(namespace), None) => ReviewScope::Namespace(namespace),
            (None, _) => ReviewScope::Everything,
        };
        self.asked(caller, action, scope).await
    }

    /// Returns whether the authority lets the caller do this to the app of this name, whether there is one or not.
    pub(crate) async fn review_of_app(&self, caller: &ReviewedCaller, action: Action, id: &AppId) -> Outcome<bool> {
        self.asked(caller, action, ReviewScope::App(&id.namespace, &id.name)).await
    }

    async fn asked(&self, caller: &ReviewedCaller, action: Action, scope: ReviewScope<'_>) -> Outcome<bool> {
        let Some(reviewer) = &self.reviewer else { return Err(Refusal::UNAUTHORIZED) };
        reviewer.allows(caller, action.permission(), scope).await.map_err(|error| unreviewed(&error))
    }

    /// Returns whether the principal may do this: by its roles, or by the authority's word of this moment.
    ///
    /// # Errors
    /// [`Refusal::ReviewUnavailable`] while the authority is away.
    pub(crate) async fn may(&self, principal: &Principal, action: Action, place: Place<'_>) -> Outcome<Granted> {
        match principal.caller() {
            None => Ok(Granted::by_role(principal.may(action, place.realm), principal.role_on(place.realm))),
            Some(caller) => Ok(Granted::by_review(self.review(caller, action, place).await?)),
        }
    }

    /// Returns what the principal may read of lists.
    pub(crate) fn readable<'a>(&'a self, principal: &'a Principal) -> Readable<'a> {
        Readable { management: self, principal, everything: None, known: HashMap::new() }
    }
}

/// The part of a list that a principal may read. A cluster is asked for everything, and if that is refused for each
/// namespace once.
pub(crate) struct Readable<'a> {
    management: &'a Management,
    principal: &'a Principal,
    everything: Option<bool>,
    known: HashMap<Namespace, bool>,
}

impl Readable<'_> {
    /// Asks for those of the namespaces that are not known yet.
    ///
    /// # Errors
    /// [`Refusal::ReviewUnavailable`]; [`InvalidField`](rollhook_core::request::Refusal::InvalidField) if there are too many namespaces to ask for.
    pub(crate) async fn ask(&mut self, namespaces: impl Iterator<Item = &Namespace>) -> Outcome<()> {
        let (management, Some(caller)) = (self.management, self.principal.caller()) else { return Ok(()) };
        let everything = match self.everything {
            Some(known) => known,
            None => *self.everything.insert(management.review(caller, Action::Read, Place::everything()).await?),
        };
        if everything {
            return Ok(());
        }
        let new: BTreeSet<&Namespace> = namespaces.filter(|namespace| !self.known.contains_key(*namespace)).collect();
        let new: Vec<Namespace> = new.into_iter().cloned().collect();
        if self.known.len() + new.len() > NAMESPACES_MAX {
            let rule = format!("name one: the cluster is asked about at most {NAMESPACES_MAX} namespaces in one call.");
            return Err(CoreRefusal::InvalidField(Field::Namespace, rule).into());
        }
        let ask = |namespace| management.asked(caller, Action::Read, ReviewScope::Namespace(namespace));
        for some in new.chunks(AT_ONCE) {
            let asked = join_all(some.iter().map(ask)).await;
            for (namespace, answer) in some.iter().zip(asked) {
                self.known.insert(namespace.clone(), answer?);
            }
        }
        Ok(())
    }

    /// Returns whether what is in this namespace and realm may be read.
    pub(crate) fn contains(&self, namespace: &Namespace, realm: &Realm) -> bool {
        match self.principal.caller() {
            None => self.principal.may(Action::Read, realm),
            Some(_) => self.everything == Some(true) || self.known.get(namespace) == Some(&true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_credential_has_a_name_like_a_cluster_s_caller() {
        let shown = |name: &str| actor(name, "kubernetes").to_string();
        assert_eq!(shown("system:serviceaccount:ci:deployer"), "system:serviceaccount:ci:deployer");
        for (name, expected) in [
            ("ci-shop", "ci-shop (kubernetes)"),
            ("admin", "admin (kubernetes)"),
            ("auto", "auto (kubernetes)"),
            ("ada (admin)", "ada (admin) (kubernetes)"),
            ("ada via login.example.com", "ada via login.example.com (kubernetes)"),
            ("system:serviceaccount:x (admin)", "system:serviceaccount:x (admin) (kubernetes)"),
            ("a\u{1b}[2J", "a\\u{1b}[2J (kubernetes)"),
        ] {
            assert_eq!(shown(name), expected);
        }
    }

    #[test]
    fn long_names_that_begin_alike_stay_two() {
        let name = |last: char| format!("system:serviceaccount:ci:{}{last}", "x".repeat(250));
        let actor = |name: &str| super::actor(name, "kubernetes");
        assert_ne!(actor(&name('a')), actor(&name('b')));
        let long = format!("{}{}", "y".repeat(300), "ada (admin)");
        assert!(actor(&long).to_string().ends_with(" (kubernetes)"), "{}", actor(&long));
    }
}
