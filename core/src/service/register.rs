//! Registering apps: the registration and its first deploy are one commit.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::TryStreamExt;

use super::{
    Authorized, Deployer, Outcome, Principal,
    apps::checked,
    audit::Subject,
    auth::{Place, Reach},
    journal::Snapshot,
    refused, unwritten,
};
use crate::{
    access::{Action, Role},
    app::{App, AppId, AppUid, Namespace, POLL_MAX, Policy, Settings, Source},
    deploy::{Deploy, Trigger},
    error::{Entity, Error},
    image::ImageRef,
    ledger::{Admission, Admitted, Change, KeyLookup, NewDeploy, registration},
    lock::{LockRule, Locks},
    ports::{AppPage, AppRef, TargetRequest, Validated},
    request::{Field, IdempotencyKey, Refusal, Registration},
    service::run::TTL,
    source::{AllowedSources, SourceRefused},
    time::Timestamp,
};

/// A registered app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The state of the app.
    pub app: crate::ledger::AppState,
    /// Revision 1: the running image, or the one that the workload is created with; `None` for a git app without
    /// either, whose first build creates it.
    pub deploy: Option<Deploy>,
    /// Whether the workload existed.
    pub adopted: bool,
}

/// The sources that apps may have here.
#[derive(Clone, Debug)]
pub(super) struct SourceRules {
    /// The sources that a builder may read; `None`: there is no builder.
    allowed: Option<AllowedSources>,
    min_poll: Duration,
}

impl SourceRules {
    /// Returns `Ok` if apps of this source can be built here.
    pub(super) fn buildable(&self, source: &Source) -> Outcome<()> {
        let Source::Git(git) = source else { return Ok(()) };
        let Some(allowed) = &self.allowed else {
            let why = "Git apps need a builder, and this server has none; register an image app, and let CI build.";
            return Err(Refusal::WrongKind(why.to_owned()));
        };
        allowed.check(&git.url).map_err(|refused| {
            let rule = match refused {
                SourceRefused::Local => {
                    "must be https:// or ssh:// to another machine; sources on this one, on link-local addresses and \
                     without encryption are the operator's to allow (--allow-local-sources)."
                }
                SourceRefused::Host => "must be on one of the hosts that the operator allows (--source-host).",
            };
            Refusal::InvalidField(Field::SourceUrl, rule.to_owned())
        })
    }

    /// Returns `Ok` if apps of this source can be polled as the policy says.
    pub(super) fn pollable(&self, policy: &Policy, source: &Source) -> Outcome<()> {
        let Some(interval) = policy.poll else { return Ok(()) };
        let refused = |why: String| Err(Refusal::InvalidField(Field::PolicyPoll, why));
        if *source == Source::Image {
            return refused("an image app has no source to look at; CI posts its images.".to_owned());
        }
        if self.allowed.is_none() {
            return refused("this server has no builder, and reads no sources.".to_owned());
        }
        if interval < self.min_poll || interval > POLL_MAX {
            let (least, most) = (self.min_poll.as_secs_f64(), POLL_MAX.as_secs() / 3600);
            return refused(format!("must be off, or from {least} s to {most} h."));
        }
        Ok(())
    }
}

impl Deployer {
    pub(super) fn source_rules(&self) -> SourceRules {
        let allowed = self.ports.builder.as_ref().map(|builder| builder.sources.clone());
        SourceRules { allowed, min_poll: self.min_poll }
    }

    /// Registers an app. An existing workload is adopted: nothing is patched, and revision 1 is the running image. A
    /// repeated call with the same key returns the app that the first one made.
    ///
    /// # Errors
    /// The refusal; nothing is registered then.
    pub async fn register(
        &self,
        principal: &Principal,
        wanted: Registration,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Registered> {
        let rules = self.source_rules();
        rules.buildable(&wanted.source)?;
        let namespace = Namespace::of(&wanted.project, &wanted.environment)
            .map_err(|invalid| Refusal::InvalidField(Field::Environment, invalid.to_string()))?;
        let id = AppId { namespace, name: wanted.name.clone() };
        let realm = wanted.realm();
        let granted = self.may(principal, Action::Register, Place::app(&id, &realm)).await?;
        self.audit(principal.actor(), Action::Register, Subject::app(&id, realm), granted).await?;
        // Apps of another pair that spells this namespace are none of the caller's business.
        let page = AppPage { namespace: Some(id.namespace.clone()), after: None, limit: 1 };
        let first = self.ports.history.list(page).await.map_err(refused)?;
        if let Some(Ok(first)) = first.first()
            && first.app.realm() != wanted.realm()
            && !self.may(principal, Action::Read, Place::app(&first.app.id, &first.app.realm())).await?.is_yes()
        {
            let taken = format!(
                "the namespace {} belongs to another project; choose names that spell another one.",
                id.namespace
            );
            return Err(Refusal::InvalidField(Field::Environment, taken));
        }
        if let Some(app) = self.journal.load(AppRef::Name(&id)).await.map_err(refused)? {
            return self.registered(app, &wanted, key.as_ref()).await;
        }
        self.registration_lock(&wanted.project, &wanted.environment).await?;
        let wanted = Registration { policy: checked(wanted.policy)?, ..wanted };
        rules.pollable(&wanted.policy, &wanted.source)?;
        let request = TargetRequest {
            app: id.clone(),
            settings: wanted.target.clone(),
            image: wanted.image.clone(),
            built: wanted.source != Source::Image,
            take_over: wanted.take_over,
            others: self.others(&id).await?,
        };
        let validated = self.ports.rollouts.validate(&request).await.map_err(|error| {
            tracing::warn!(app = %id, error = %error.chain(), "validating the target failed");
            match error {
                // Permissions may be granted, and an API server that has just started denies those that it will grant.
                Error::Denied { what, .. } => Refusal::ClusterDenied(what),
                Error::Unavailable { .. } | Error::Conflict(_) => Refusal::ClusterUnavailable,
                Error::NotFound(_) | Error::Invalid { .. } | Error::Corrupt { .. } => {
                    Refusal::Workload(error.to_string())
                }
            }
        })?;
        let adopted = matches!(validated, Validated::Adopt { .. });
        let (target, image) = registration::target(&wanted, validated)?;
        let app = App {
            id,
            uid: AppUid::from_bits(self.ports.rng.bits()),
            project: wanted.project.clone(),
            environment: wanted.environment.clone(),
            source: wanted.source.clone(),
            target,
            policy: wanted.policy.clone(),
            holds: Vec::new(),
            locks: Locks::default(),
            created_at: self.store_time().await?,
        };
        self.create(principal, app, (image, adopted), &wanted, key).await
    }

    /// Returns the other apps of a namespace, with the settings of their targets.
    async fn others(&self, id: &AppId) -> Outcome<Vec<(AppId, Settings)>> {
        let mut others = Vec::new();
        let mut pages = pin!(self.apps_of(&id.namespace));
        while let Some(listed) = pages.try_next().await? {
            let apps = listed.into_iter().flatten().map(|state| state.app);
            others.extend(apps.map(|app| (app.id.clone(), app.target.settings.clone())));
        }
        Ok(others)
    }

    /// Returns the store's clock.
    pub(super) async fn store_time(&self) -> Outcome<Timestamp> {
        match self.journal.now() {
            Some(now) => Ok(now),
            None => Ok(self.journal.heartbeat(&self.replica, TTL).await.map_err(refused)?.now),
        }
    }

    /// Returns the app that an earlier call with the same key registered.
    async fn registered(
        &self,
        app: Snapshot,
        wanted: &Registration,
        key: Option<&IdempotencyKey>,
    ) -> Outcome<Registered> {
        let (id, uid) = (app.state.app.id.clone(), app.state.app.uid);
        let Some(key) = key else { return Err(Refusal::AppExists(id)) };
        let cause = crate::request::Cause { trigger: Trigger::Manual, actor: crate::deploy::Actor::Service };
        let (reach, locks) = (Reach::Role(Role::Admin, wanted.realm()), LockRule::Respected);
        match self
            .replay(&Authorized { id: id.clone(), uid, cause, reach, presented: None, locks, trace: None }, key)
            .await?
        {
            (app, Some(deploy)) => Ok(Registered { adopted: deploy.adopted, app, deploy: Some(deploy) }),
            // No entry could carry the key: a call with equal contents counts as the same call.
            (app, None) if registration::waits_for_a_build(&app.app) && registration::made(&app.app, wanted) => {
                Ok(Registered { adopted: false, app, deploy: None })
            }
            (_, None) => Err(Refusal::AppExists(id)),
        }
    }

    async fn create(
        &self,
        principal: &Principal,
        app: App,
        (image, adopted): (Option<ImageRef>, bool),
        wanted: &Registration,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Registered> {
        let (id, now) = (app.id.clone(), app.created_at);
        let mut change = Change::register(app.clone());
        let deploy = image.and_then(|image| {
            let deploy = NewDeploy { image: Some(image), adopted, ..NewDeploy::new(&principal.cause(Trigger::Manual)) };
            let (id, driver) = (self.admission_id(), self.driver());
            let admission = Admission { key: key.clone(), driver, ..Admission::plain(id, deploy) };
            let Admitted::New { deploy, .. } = change.admit(admission, KeyLookup::Unread, now) else { return None };
            Some(Deploy::clone(&deploy))
        });
        let state = match self.journal.register(change).await {
            Ok(snapshot) => snapshot.into_state(),
            Err(Error::Conflict(Entity::Namespace)) => return Err(self.namespace_taken(app).await),
            Err(Error::Conflict(_)) => {
                let app = self.find(&id).await?;
                return self.registered(app, wanted, key.as_ref()).await;
            }
            Err(error) if error.is_unavailable() => self.look_for_registration(&app, &error).await?,
            Err(error) => return Err(unwritten(&id, error)),
        };
        tracing::info!(app = %id, uid = %app.uid, adopted, "registered");
        self.lock_registered(&app).await?;
        self.changed_here(app.uid);
        Ok(Registered { app: state, deploy, adopted })
    }

    /// Looks for a registration whose answer was lost once, by its own uid.
    async fn look_for_registration(&self, app: &App, error: &Error) -> Outcome<crate::ledger::AppState> {
        tracing::warn!(app = %app.id, error = %error.chain(), "confirming a registration failed");
        match self.journal.load(AppRef::Uid(app.uid)).await {
            Ok(Some(snapshot)) => Ok(snapshot.into_state()),
            Ok(None) | Err(_) => Err(Refusal::StoreUnavailable { maybe_recorded: true }),
        }
    }

    async fn namespace_taken(&self, app: App) -> Refusal {
        let page = AppPage { namespace: Some(app.id.namespace.clone()), after: None, limit: 1 };
        let other = self.ports.history.list(page).await.ok().and_then(|apps| apps.into_iter().flatten().next());
        let owner = other.map_or_else(|| Arc::new(app.clone()), |other| other.app);
        let (project, environment) = (owner.project.clone(), owner.environment.clone());
        Refusal::NamespaceTaken { id: app.id, project, environment }
    }
}
