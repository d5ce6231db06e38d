//! Requirements on the images of a project or an environment, which its apps cannot loosen.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use rollhook_core::{
    app::{App, Source},
    deploy::Actor,
    request::{Field, Refusal as CoreRefusal},
    requirement::{Requirement, RequirementCopies, RequirementCopy, ScopedRequirement},
    service::{self, Deployer},
    time::Timestamp,
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Place, Principal, Realm, Subject},
    copies::{self, CHANGES, OnRealm},
    documents,
    ports::{Record, RecordKind},
    refused,
};

/// The most git apps that a note names.
const NAMED: usize = 5;
/// The most bytes of a requirement: every replica keeps it with each of the apps.
const SIZE_MAX: usize = 8 * 1024;

/// The requirement on the images of a project or an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealmRequirement {
    /// The project, or the environment.
    pub realm: Realm,
    /// The requirement.
    pub requirement: Requirement,
    /// The party that set it.
    pub by: Actor,
    /// The time at which it was set.
    pub at: Timestamp,
    /// What the person who has just set it should know, in sentences.
    pub notes: Vec<String>,
}

/// The document of a realm's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredRequirement {
    #[serde(flatten)]
    realm: Realm,
    requirement: Option<Requirement>,
    by: Actor,
    at: Timestamp,
    sequence: u64,
}

impl StoredRequirement {
    /// Returns the copy that the realm's apps have.
    fn copy(&self) -> Option<ScopedRequirement> {
        let copy = RequirementCopy { requirement: self.requirement.clone(), sequence: self.sequence };
        match self.realm {
            Realm::Environment { .. } => Some(ScopedRequirement::Environment(copy)),
            Realm::Project { .. } => Some(ScopedRequirement::Project(copy)),
            Realm::Everything => None,
        }
    }
}

impl OnRealm for StoredRequirement {
    const KIND: RecordKind = RecordKind::Requirement;

    fn realm(&self) -> Realm {
        self.realm.clone()
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn left(&self, _: Timestamp) -> Option<Duration> {
        self.requirement.is_none().then_some(Duration::ZERO)
    }

    fn too_many(most: usize, realm: Realm) -> Refusal {
        Refusal::TooManyRequirements(most, realm)
    }

    async fn copy_to(&self, deployer: &Deployer, app: &App) -> service::Outcome<()> {
        match self.copy() {
            Some(copy) => deployer.copy_requirement(app, copy).await,
            None => Ok(()),
        }
    }
}

impl Management {
    /// Sets the requirement on the images of a project or an environment: those of all of its apps, and of the apps that are
    /// registered later, must meet it beside their own. The running versions stay, and rollbacks to a digest that has
    /// succeeded are not verified.
    ///
    /// # Errors
    /// [`InvalidField`](CoreRefusal::InvalidField) for everything, and for a requirement that cannot be verified here;
    /// [`Refusal::Forbidden`]; [`Refusal::TooManyRequirementChanges`]; [`Refusal::TooManyRequirements`] where no app is;
    /// [`Busy`](CoreRefusal::Busy); [`StoreUnavailable`](CoreRefusal::StoreUnavailable), after which some apps may have it:
    /// repeat the call.
    pub async fn set_requirement(
        &self,
        principal: &Principal,
        realm: &Realm,
        requirement: Requirement,
    ) -> Outcome<RealmRequirement> {
        let (stored, apps) = self.change_requirement(principal, realm, Some(requirement.clone())).await?;
        let mut notes = Vec::new();
        if apps.is_empty() {
            notes.push(format!("There is no app of {realm}: those that are registered there have it from the start."));
        }
        notes.extend(self.note_of_built(principal, &apps).await);
        let StoredRequirement { realm, by, at, .. } = stored;
        Ok(RealmRequirement { realm, requirement, by, at, notes })
    }

    /// Returns `Ok` if a requirement can be verified here, and is small enough to be kept with each app.
    fn check_requirement(&self, requirement: &Requirement) -> Outcome<()> {
        let field = if requirement.signers().is_empty() { Field::RequireAttestation } else { Field::RequireSignature };
        let invalid = |why: String| Refusal::from(CoreRefusal::InvalidField(field, why));
        let size = serde_json::to_string(requirement).map_or(usize::MAX, |text| text.len());
        if size > SIZE_MAX {
            let why = format!(
                "a requirement on many apps takes at most {SIZE_MAX} bytes, and this one takes {size}: name fewer."
            );
            return Err(invalid(why));
        }
        self.deployer.check_requirement(requirement).map_err(invalid)
    }

    /// Ends the requirement on a project or an environment; those of its apps alone stay.
    ///
    /// # Errors
    /// As [`Management::set_requirement`].
    pub async fn end_requirement(&self, principal: &Principal, realm: &Realm) -> Outcome<()> {
        self.change_requirement(principal, realm, None).await.map(drop)
    }

    /// Returns the requirements on the projects and environments whose requirements the principal may set, newest first.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]; [`StoreUnavailable`](CoreRefusal::StoreUnavailable) while the store is away.
    pub async fn requirements(&self, principal: &Principal) -> Outcome<Vec<RealmRequirement>> {
        let realms = self.permit_somewhere(principal, Action::Require).await?;
        let _turn = self.record_lists.turn(principal).await;
        let stored: Vec<(Record, StoredRequirement)> =
            documents::all(&*self.records, RecordKind::Requirement).await.map_err(refused)?;
        let shown = stored.into_iter().filter_map(|(_, stored)| {
            let StoredRequirement { realm, requirement, by, at, .. } = stored;
            Some(RealmRequirement { realm, requirement: requirement?, by, at, notes: Vec::new() })
        });
        Ok(shown.filter(|shown| realms.contain(&shown.realm)).collect())
    }

    /// Sets or ends the requirement on a realm, if the principal may. Returns the record, and the realm's apps.
    async fn change_requirement(
        &self,
        principal: &Principal,
        realm: &Realm,
        requirement: Option<Requirement>,
    ) -> Outcome<(StoredRequirement, Vec<Arc<App>>)> {
        if *realm == Realm::Everything {
            let rule = "a requirement is on a project, or on one of its environments.".to_owned();
            return Err(CoreRefusal::InvalidField(Field::Project, rule).into());
        }
        copies::namespace(realm)?;
        let granted = self.may(principal, Action::Require, Place::realm(realm)).await?;
        if granted.is_yes() {
            requirement.as_ref().map_or(Ok(()), |requirement| self.check_requirement(requirement))?;
            if !self.requirement_changes.take(CHANGES, realm, self.deployer.ports().clock.elapsed()) {
                return Err(Refusal::TooManyRequirementChanges(realm.clone()));
            }
        }
        let remark = requirement.as_ref().map_or_else(|| "the requirement is ended".to_owned(), Requirement::summary);
        let subject = Subject::new(realm.to_string(), realm.clone()).because(Some(&remark));
        self.audit(principal, Action::Require, subject, granted).await?;
        let present = copies::read::<StoredRequirement>(&*self.records, realm).await?;
        let now = self.deployer.store_time().await?;
        let has_apps = self.has_apps(principal, realm).await.unwrap_or(true);
        let changed = |sequence| StoredRequirement {
            realm: realm.clone(),
            requirement: requirement.clone(),
            by: principal.actor().clone(),
            at: now,
            sequence,
        };
        if present.is_none() && !has_apps && requirement.is_none() {
            return Ok((changed(0), Vec::new()));
        }
        self.change_on(principal, present, (has_apps, now), changed).await
    }

    /// Returns a sentence that names the git apps among these which the principal may read.
    async fn note_of_built(&self, principal: &Principal, apps: &[Arc<App>]) -> Option<String> {
        let built: Vec<_> = apps.iter().filter(|app| app.source != Source::Image).collect();
        let mut readable = self.readable(principal);
        if let Err(refusal) = readable.ask(built.iter().map(|app| &app.id.namespace)).await {
            tracing::warn!(%refusal, "asking for the readable git apps failed");
            return None;
        }
        let is_readable = |app: &&&Arc<App>| readable.contains(&app.id.namespace, &Realm::of_app(app));
        let names: Vec<String> = built.iter().filter(is_readable).map(|app| app.id.to_string()).collect();
        let (named, more) = names.split_at(names.len().min(NAMED));
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        let named = named.join(", ");
        let says =
            || format!("Builds of {named}{more} fail from now on: images that are built here carry no signature.");
        (!names.is_empty()).then(says)
    }

    /// Returns the copies that an app of an environment has from the start.
    pub(crate) async fn requirements_of(&self, environment: &Realm) -> Outcome<RequirementCopies> {
        let mut copies = RequirementCopies::default();
        for realm in environment.and_containing() {
            let stored = copies::read::<StoredRequirement>(&*self.records, &realm).await?;
            if let Some(copy) = stored.and_then(|(_, stored)| stored.copy()) {
                copies.take(copy);
            }
        }
        Ok(copies)
    }
}
