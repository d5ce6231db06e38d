//! Registering apps: the registration and its first deploy are one commit.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::TryStreamExt;

use crate::{
    app::{
        App, AppId, AppUid, FOLLOW_SETTLE_MAX, Namespace, POLL_MAX, Policy, Resolve, Settings, Source, VALUE_BYTES,
        settings_bytes,
    },
    deploy::{Actor, Deploy, Trigger},
    error::{Entity, Error},
    ledger::{
        Admission, Admitted, AppState, Change, KeyLookup, NewDeploy,
        registration::{self, NewTarget},
    },
    lock::Locks,
    ports::{AppPage, AppRef, ImageVerifier, TargetRequest, Validated},
    request::{Cause, Field, IdempotencyKey, Refusal, Registration},
    requirement::{Requirement, RequirementCopies},
    service::{Deployer, Outcome, accept::apps::checked, drive::TTL, journal::Snapshot, unwritten},
    source::AllowedSources,
    time::Timestamp,
};

/// The most that the settings of a workload may take: every replica keeps them in memory, of each app.
const SETTINGS_MAX: usize = 32 * 1024;

/// A registered app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The state of the app.
    pub app: AppState,
    /// Revision 1: the running image, or the one that the workload is created with; `None` for a git app without
    /// either, whose first build creates it.
    pub deploy: Option<Deploy>,
    /// Whether the workload existed.
    pub adopted: bool,
    /// The names of the given settings that were not used, as the workload existed.
    pub unused: Vec<String>,
    /// What the person should know of this workload's deploys, in sentences.
    pub notes: Vec<String>,
}

impl Registered {
    /// The app that was registered.
    pub fn id(&self) -> &AppId {
        &self.app.app.id
    }
}

/// The sources that apps may have here.
#[derive(Clone)]
pub(crate) struct SourceRules {
    /// The sources that a builder may read; `None`: there is no builder.
    allowed: Option<AllowedSources>,
    min_poll: Duration,
    /// Why no registry is read, a clause; `None`: registries are read.
    reads_none: Option<&'static str>,
    image_verifier: Option<Arc<dyn ImageVerifier>>,
}

impl SourceRules {
    /// Returns `Ok` if apps of this source can be built here.
    pub(crate) fn buildable(&self, source: &Source) -> Outcome<()> {
        let Source::Git(git) = source else { return Ok(()) };
        let Some(allowed) = &self.allowed else {
            let why = "Git apps need a builder, and this server has none; register an image app, and let CI build.";
            return Err(Refusal::WrongKind(why.to_owned()));
        };
        allowed.check(&git.url).map_err(Refusal::SourceNotAllowed)
    }

    /// Returns `Ok` if apps of this source can be polled as the policy says.
    pub(crate) fn pollable(&self, policy: &Policy, source: &Source) -> Outcome<()> {
        let invalid = |field, why: &str| Err(Refusal::InvalidField(field, why.to_owned()));
        let refused = |why: String| invalid(Field::PolicyPoll, &why);
        match (source, &policy.follow, self.reads_none) {
            (Source::Git(_), Some(_), _) => {
                return invalid(
                    Field::PolicyFollow,
                    "a git app builds the commits of its branch, and follows no tags.",
                );
            }
            (Source::Image, Some(_), Some(why)) => {
                return invalid(Field::PolicyFollow, &format!("no app can follow its repository here: {why}."));
            }
            (Source::Image, Some(_), None) if policy.poll.is_none() => {
                return refused("an app that follows its repository is polled; end following instead.".to_owned());
            }
            (Source::Git(_) | Source::Image, _, _) => {}
        }
        if policy.follow_settle > FOLLOW_SETTLE_MAX {
            let why = format!("must be at most {} minutes.", FOLLOW_SETTLE_MAX.as_secs() / 60);
            return invalid(Field::PolicyFollowSettle, &why);
        }
        let Some(interval) = policy.poll else { return Ok(()) };
        if *source == Source::Image && policy.follow.is_none() {
            let why = "an image app has no source to look at: CI posts its images, unless it follows its repository.";
            return refused(why.to_owned());
        }
        if *source != Source::Image && self.allowed.is_none() {
            return refused("this server has no builder, and reads no sources.".to_owned());
        }
        if interval < self.min_poll || interval > POLL_MAX {
            let (least, most) = (self.min_poll.as_secs_f64(), POLL_MAX.as_secs() / 3600);
            return refused(format!("must be off, or from {least} s, the least of this server, to {most} h."));
        }
        Ok(())
    }

    /// Returns `Ok` if the digests that the policy requires can be found here.
    pub(crate) fn resolvable(&self, policy: &Policy, source: &Source) -> Outcome<()> {
        let is_required = policy.resolve == Resolve::Require && *source == Source::Image;
        match self.reads_none.filter(|_| is_required) {
            Some(why) => {
                let why = format!("require needs the answer of a registry, and {why}: set it to auto.");
                Err(Refusal::InvalidField(Field::PolicyResolve, why))
            }
            None => Ok(()),
        }
    }

    /// Returns `Ok` if the signatures that the policy requires can be verified here.
    pub(crate) fn verifiable(&self, policy: &Policy, source: &Source) -> Outcome<()> {
        let Some(requirement) = &policy.signed else { return Ok(()) };
        let field = if requirement.signers().is_empty() {
            Field::PolicyRequireAttestation
        } else {
            Field::PolicyRequireSignature
        };
        let refused = |why: String| Err(Refusal::InvalidField(field, why));
        if *source != Source::Image {
            return refused("a git app's image is built here, and carries no signature.".to_owned());
        }
        if policy.resolve == Resolve::Off {
            let why = "what is signed is the digest, which resolve off does not look up: set it to auto or require.";
            return refused(why.to_owned());
        }
        self.verifies(requirement).or_else(refused)
    }

    /// Returns `Ok` if a requirement can be verified here.
    ///
    /// # Errors
    /// A sentence that says why it cannot.
    fn verifies(&self, requirement: &Requirement) -> Result<(), String> {
        let refused = |why: &str| Err(format!("no signature can be required here: {why}."));
        match (self.reads_none, &self.image_verifier) {
            (Some(why), _) => refused(why),
            (None, Some(verifier)) => verifier.check(requirement),
            (None, None) => refused("this server verifies none"),
        }
    }

    /// Returns `Ok` if an app of this source can meet the requirements of its project and its environment.
    fn meets(&self, requirements: &RequirementCopies, source: &Source) -> Outcome<()> {
        match requirements.in_force().next() {
            Some((scope, requirement)) if *source != Source::Image => Err(Refusal::WrongKind(format!(
                "The {scope} requires that images are {}; a git app's image is built here, and carries no signature: register an \
                 image app.",
                requirement.summary()
            ))),
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns `Ok` if the settings of a workload take no more than an app may have of every replica's memory.
///
/// # Errors
/// [`Refusal::Workload`], with their size and the bound.
pub fn check_settings(settings: &Settings) -> Result<(), Refusal> {
    let size = settings_bytes(settings);
    if size > SETTINGS_MAX {
        return Err(Refusal::Workload(format!(
            "The settings of the workload take {size} bytes, of which {VALUE_BYTES} for each value, and may take \
             {SETTINGS_MAX}: keep some elsewhere, such as in a Secret or a file."
        )));
    }
    Ok(())
}

impl Deployer {
    pub(crate) fn source_rules(&self) -> SourceRules {
        let allowed = self.ports.builder.as_ref().map(|builder| builder.sources.clone());
        SourceRules {
            allowed,
            min_poll: self.min_poll,
            reads_none: self.reads_none(),
            image_verifier: self.ports.image_verifier.clone(),
        }
    }

    /// Returns `Ok` if this process can verify that images meet a requirement.
    ///
    /// # Errors
    /// A clause that says why it cannot.
    pub fn check_requirement(&self, requirement: &Requirement) -> Result<(), String> {
        self.source_rules().verifies(requirement)
    }

    /// Registers an app. An existing workload is adopted: nothing is patched, and revision 1 is the running image. A
    /// repeated call with the same key returns the app that the first one made.
    /// A dropped call may have been recorded or not: see [Cancellation](Deployer#cancellation).
    ///
    /// The caller has judged that the actor may register apps in this project and environment.
    ///
    /// # Errors
    /// The refusal; nothing is registered then.
    pub async fn register(
        &self,
        actor: &Actor,
        wanted: Registration,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Registered> {
        let rules = self.source_rules();
        rules.buildable(&wanted.source)?;
        let namespace = Namespace::of(&wanted.project, &wanted.environment)
            .map_err(|invalid| Refusal::InvalidField(Field::Environment, invalid.to_string()))?;
        let id = AppId { namespace, name: wanted.name.clone() };
        let policy = self.check_rules().completed(wanted.policy, &[])?;
        let wanted = Registration { policy, ..wanted };
        if let Some(app) = self.journal.load(AppRef::Name(&id)).await.map_err(Refusal::of_store)? {
            return self.registered(app, &wanted, key.as_ref()).await;
        }
        let wanted = Registration { policy: checked(wanted.policy)?, ..wanted };
        rules.pollable(&wanted.policy, &wanted.source)?;
        rules.resolvable(&wanted.policy, &wanted.source)?;
        rules.verifiable(&wanted.policy, &wanted.source)?;
        rules.meets(&wanted.requirements, &wanted.source)?;
        // Before the settings of all other apps of the namespace are read.
        check_settings(&wanted.target)?;
        let request = TargetRequest {
            app: id.clone(),
            settings: wanted.target.clone(),
            image: wanted.image.clone(),
            built: wanted.source != Source::Image,
            take_over: wanted.take_over,
            registered: None,
            others: self.others(&id).await?,
        };
        let found = registration::target(&wanted, self.validated(&request).await?)?;
        let app = App {
            id,
            uid: AppUid::from_bits(self.ports.rng.bits()),
            project: wanted.project.clone(),
            environment: wanted.environment.clone(),
            source: wanted.source.clone(),
            target: found.target.clone(),
            policy: wanted.policy.clone(),
            holds: Vec::new(),
            locks: Locks::default(),
            requirements: wanted.requirements.clone(),
            created_at: self.store_time().await?,
        };
        Box::pin(self.create(actor, app, found, &wanted, key)).await
    }

    /// Returns the rollout driver's answer about a target.
    pub(super) async fn validated(&self, request: &TargetRequest) -> Outcome<Validated> {
        self.ports.rollouts.validate(request).await.map_err(|error| Self::refusal_of_target(&request.app, error))
    }

    /// Returns the refusal where the rollout driver did not answer about a target.
    pub(super) fn refusal_of_target(app: &AppId, error: Error) -> Refusal {
        tracing::warn!(%app, error = %error.chain(), "validating the target failed");
        match error {
            // Permissions may be granted, and an API server that has just started denies those that it will grant.
            Error::Denied { what, .. } => Refusal::ClusterDenied(what),
            Error::Unavailable { .. } | Error::Conflict(_) => Refusal::ClusterUnavailable,
            Error::NotFound(_) | Error::Invalid { .. } | Error::Corrupt { .. } => Refusal::Workload(error.to_string()),
        }
    }

    /// Returns the other apps of a namespace, with the settings of their targets.
    pub(super) async fn others(&self, id: &AppId) -> Outcome<Vec<(AppId, Settings)>> {
        let mut others = Vec::new();
        let mut pages = pin!(self.apps_of(&id.namespace));
        while let Some(listed) = pages.try_next().await? {
            let apps = listed.into_iter().flatten().map(|state| state.app).filter(|app| app.id != *id);
            others.extend(apps.map(|app| (app.id.clone(), app.target.settings.clone())));
        }
        Ok(others)
    }

    /// Returns the store's clock.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn store_time(&self) -> Outcome<Timestamp> {
        match self.journal.now() {
            Some(now) => Ok(now),
            None => Ok(self.journal.heartbeat(&self.replica, TTL).await.map_err(Refusal::of_store)?.now),
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
        match self.replay(&id, uid, key).await? {
            (app, Some(deploy)) => Ok(Registered {
                adopted: deploy.adopted,
                app,
                deploy: Some(deploy),
                unused: Vec::new(),
                notes: Vec::new(),
            }),
            // No entry could carry the key: a call with equal contents counts as the same call.
            (app, None) if registration::waits_for_a_build(&app.app) && registration::made(&app.app, wanted) => {
                Ok(Registered { adopted: false, app, deploy: None, unused: Vec::new(), notes: Vec::new() })
            }
            (_, None) => Err(Refusal::AppExists(id)),
        }
    }

    async fn create(
        &self,
        actor: &Actor,
        app: App,
        found: NewTarget,
        wanted: &Registration,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Registered> {
        let (id, now) = (app.id.clone(), app.created_at);
        let mut change = Change::register(app.clone());
        let cause = Cause { trigger: Trigger::Manual, actor: actor.clone() };
        let NewTarget { image, adopted, unused, notes, .. } = found;
        let deploy = image.and_then(|image| {
            let deploy = NewDeploy { image: Some(image), adopted, ..NewDeploy::new(&cause) };
            let resolves = self.is_to_be_resolved()(&app, &deploy);
            let deploy = NewDeploy { resolves, ..deploy };
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
        self.changed_here(app.uid);
        Ok(Registered { app: state, deploy, adopted, unused, notes })
    }

    /// Looks for a registration whose answer was lost once, by its own uid.
    async fn look_for_registration(&self, app: &App, error: &Error) -> Outcome<AppState> {
        tracing::warn!(app = %app.id, error = %error.chain(), "confirming a registration failed");
        match self.journal.load(AppRef::Uid(app.uid)).await {
            Ok(Some(snapshot)) => Ok(snapshot.into_state()),
            Ok(None) | Err(_) => Err(Refusal::StoreUnavailable { maybe_recorded: true }),
        }
    }

    async fn namespace_taken(&self, app: App) -> Refusal {
        let page = AppPage::first(1).of(app.id.namespace.clone());
        let other = self.ports.history.list(page).await.ok().and_then(|apps| apps.into_iter().flatten().next());
        let owner = other.map_or_else(|| Arc::new(app.clone()), |other| other.app);
        let (project, environment) = (owner.project.clone(), owner.environment.clone());
        Refusal::NamespaceTaken { id: app.id, project, environment }
    }
}
