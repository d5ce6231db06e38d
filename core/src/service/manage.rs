//! Registering apps, their webhooks, policy and holds, and ending deploys by hand.

use std::time::Duration;

use super::{ATTEMPTS, Authorized, Deployer, Operator, Outcome, refused, unwritten};
use crate::{
    app::{App, AppId, AppUid, Namespace, Policy, Source},
    decide::registration,
    deploy::{AdmissionId, Deploy, Reason, Revision, State, Status, Trigger},
    error::Error,
    image::ImageRef,
    ports::{Admission, Admitted, AppPage, HistoryExt, NewDeploy, Record, TargetRequest, Validated, WebhookSecret},
    request::{IdempotencyKey, PolicyChange, Refusal, Registration, SourceChange},
};

/// The longest that a registration waits for its first revision.
const HALF_MADE: Duration = Duration::from_secs(60);

/// A registered app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The registration.
    pub app: App,
    /// Revision 1: what runs already, or the image that the workload is made with; none for a git app that has neither,
    /// whose first build makes it.
    pub deploy: Option<Deploy>,
    /// Whether the workload existed.
    pub adopted: bool,
}

impl Deployer {
    /// Registers an app. A workload that exists is adopted: nothing is patched, and revision 1 is what runs. Repeating
    /// the call with its key answers what it made.
    ///
    /// # Errors
    /// The refusal; nothing is registered then.
    pub async fn register(
        &self,
        operator: &Operator,
        wanted: Registration,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Registered> {
        self.buildable(&wanted.source)?;
        let namespace = Namespace::of(&wanted.project, &wanted.environment)
            .map_err(|invalid| Refusal::InvalidField("environment", invalid.to_string()))?;
        let id = AppId { namespace, name: wanted.name.clone() };
        let mut left_behind = None;
        if let Some(app) = self.ports.apps.find(&id).await.map_err(|error| refused(&error))? {
            if !self.was_left_half_made(&app).await? {
                return self.registered(app, &wanted, key.as_ref()).await;
            }
            left_behind = Some(app.uid);
        }
        let wanted = Registration { policy: sound(wanted.policy)?, ..wanted };
        self.pollable(&wanted.policy, &wanted.source)?;
        let request = TargetRequest {
            app: id.clone(),
            settings: wanted.target.clone(),
            image: wanted.image.clone(),
            built: wanted.source != Source::Image,
            take_over: wanted.take_over,
        };
        let validated = self.ports.rollouts.validate(&request).await.map_err(|error| {
            tracing::warn!(app = %id, error = %error.chain(), "validating the target failed");
            match error {
                Error::Unavailable { .. } => Refusal::ClusterUnavailable,
                Error::NotFound(_)
                | Error::Conflict(_)
                | Error::Denied { .. }
                | Error::Invalid { .. }
                | Error::Corrupt { .. } => Refusal::Workload(error.to_string()),
            }
        })?;
        let adopted = matches!(validated, Validated::Adopt { .. });
        let (target, image) = registration::target(&wanted, validated)?;
        let app = App {
            id,
            uid: AppUid::from_bits(self.ports.entropy.bits()),
            project: wanted.project.clone(),
            environment: wanted.environment.clone(),
            source: wanted.source.clone(),
            target,
            policy: wanted.policy.clone(),
            holds: Vec::new(),
            guard: 0,
            created_at: crate::time::Timestamp::default(),
        };
        if let Some(uid) = left_behind {
            tracing::warn!(app = %app.id, "an earlier registration was never finished: it is made anew");
            self.ports.apps.remove(uid).await.map_err(|error| unwritten(&error))?;
        }
        self.create(operator, app, (image, adopted), &wanted, key).await
    }

    /// Whether apps of this source can be registered here.
    fn buildable(&self, source: &Source) -> Outcome<()> {
        let Source::Git(git) = source else { return Ok(()) };
        let Some(builder) = &self.ports.builder else {
            let why = "Git apps need a builder, and this server has none; register an image app, and let CI build.";
            return Err(Refusal::WrongKind(why.to_owned()));
        };
        if git.url.is_local() && !builder.local_sources {
            let rule = "must be https:// or ssh:// to another machine; sources on this one, on link-local addresses and \
                        without encryption are the operator's to allow (--allow-local-sources).";
            return Err(Refusal::InvalidField("source.url", rule.to_owned()));
        }
        Ok(())
    }

    /// What an earlier call under the same key has made.
    async fn registered(&self, app: App, wanted: &Registration, key: Option<&IdempotencyKey>) -> Outcome<Registered> {
        let Some(key) = key else { return Err(Refusal::AppExists(app.id)) };
        match self.ports.history.replay(app.uid, key).await.map_err(|error| refused(&error))? {
            Some(Admitted::Replay(deploy)) => Ok(Registered { adopted: deploy.adopted, app, deploy: Some(deploy) }),
            Some(Admitted::KeyReused) => Err(Refusal::KeyReused),
            // There is no entry that could know the key: a call for the very same is the same call.
            None if registration::waits_for_a_build(&app) && registration::made(&app, wanted) => {
                Ok(Registered { adopted: false, app, deploy: None })
            }
            Some(Admitted::New { .. } | Admitted::Stale | Admitted::Full) | None => Err(Refusal::AppExists(app.id)),
        }
    }

    /// Whether a process ended between registering the app and recording its first revision. One that is about to
    /// record it is given time to.
    async fn was_left_half_made(&self, app: &App) -> Outcome<bool> {
        match self.ports.history.view(app.uid).await {
            Ok(_) if registration::waits_for_a_build(app) => Ok(false),
            Ok(view) => Ok(view.last.is_none() && view.now.since(app.created_at) > HALF_MADE),
            Err(Error::NotFound(_)) => Ok(false),
            Err(error) => Err(refused(&error)),
        }
    }

    async fn create(
        &self,
        operator: &Operator,
        app: App,
        (image, adopted): (Option<ImageRef>, bool),
        wanted: &Registration,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Registered> {
        let (id, project, environment) = (app.id.clone(), app.project.clone(), app.environment.clone());
        let app = match self.ports.apps.create(app).await {
            Ok(app) => app,
            Err(Error::Conflict("namespace")) => return Err(self.namespace_taken(id, project, environment).await),
            Err(Error::Conflict(_)) => {
                let app = self.find(&id).await?;
                return self.registered(app, wanted, key.as_ref()).await;
            }
            Err(error) => return Err(unwritten(&error)),
        };
        tracing::info!(app = %app.id, uid = %app.uid, adopted, "registered");
        let Some(image) = image else { return Ok(Registered { app, deploy: None, adopted }) };
        let admission = Admission {
            app: app.uid,
            id: AdmissionId(self.ports.entropy.bits()),
            key,
            draft: NewDeploy {
                image: Some(image),
                commit: None,
                trigger: Trigger::Manual,
                actor: operator.actor().clone(),
                from: None,
                effective: None,
                adopted,
            },
            guard: app.guard,
            after: Some(None),
            supersede: false,
            hold: None,
        };
        let id = admission.id;
        let first = match self.ports.history.admit(admission).await {
            Ok(Admitted::New { deploy, .. }) => Some(deploy),
            // Somebody deployed to it in the moment since: what was accepted stays, and the app with it.
            Ok(Admitted::Stale) => return Err(Refusal::AppExists(app.id)),
            Ok(Admitted::Replay(_) | Admitted::KeyReused | Admitted::Full) => None,
            Err(_) => self.ports.history.admitted(app.uid, id).await.ok().flatten(),
        };
        let Some(deploy) = first else {
            // An app without its first revision would be half registered: repeating the call must be possible.
            let removed = self.ports.apps.remove(app.uid).await;
            return Err(Refusal::StoreUnavailable { maybe_recorded: removed.is_err() });
        };
        self.written(app.uid);
        Ok(Registered { app, deploy: Some(deploy), adopted })
    }

    async fn namespace_taken(
        &self,
        id: AppId,
        project: crate::app::Project,
        environment: crate::app::Environment,
    ) -> Refusal {
        let page = AppPage { namespace: Some(id.namespace.clone()), after: None, limit: 1 };
        match self.ports.apps.list(page).await.ok().and_then(|apps| apps.into_iter().next()) {
            Some(other) => Refusal::NamespaceTaken { id, project: other.project, environment: other.environment },
            None => Refusal::NamespaceTaken { id, project, environment },
        }
    }

    /// A part of the list of apps, sorted by namespace and name.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn apps(&self, _operator: &Operator, page: AppPage) -> Outcome<Vec<App>> {
        self.ports.apps.list(page).await.map_err(|error| refused(&error))
    }

    /// Changes an app's policy.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], [`Refusal::AppNotFound`], [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the
    /// store is away.
    pub async fn change_policy(&self, operator: &Operator, id: &AppId, change: PolicyChange) -> Outcome<App> {
        self.change(operator, id, change, SourceChange::default()).await
    }

    /// Changes an app's policy, and a git app's source, both at once. A build that has begun from another source ends.
    ///
    /// # Errors
    /// As [`Deployer::change_policy`]; [`Refusal::WrongKind`] for an image app's source.
    pub async fn change(
        &self,
        _operator: &Operator,
        id: &AppId,
        policy: PolicyChange,
        source: SourceChange,
    ) -> Outcome<App> {
        let changed = self.update(id, |app| {
            let policy = sound(policy.clone().apply(app.policy.clone()))?;
            let source = match app.source.clone() {
                other if source == SourceChange::default() => other,
                Source::Git(git) => Source::Git(source.clone().apply(git)),
                Source::Image => {
                    return Err(Refusal::WrongKind(format!(
                        "{} is an image app, which has no source to change.",
                        app.id
                    )));
                }
            };
            if source != app.source {
                self.buildable(&source)?;
            }
            // What was allowed once may stay as it is.
            if policy.poll != app.policy.poll {
                self.pollable(&policy, &source)?;
            }
            Ok(App { policy, source, ..app })
        });
        let app = changed.await?;
        if app.source != Source::Image {
            self.written(app.uid);
        }
        Ok(app)
    }

    /// Lifts all holds of an app.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`], [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn release_hold(&self, _operator: &Operator, id: &AppId) -> Outcome<App> {
        self.update(id, |app| Ok(App { holds: Vec::new(), ..app })).await
    }

    async fn update(&self, id: &AppId, change: impl Fn(App) -> Outcome<App> + Send + Sync) -> Outcome<App> {
        for _ in 0..ATTEMPTS {
            let app = self.find(id).await?;
            match self.ports.apps.update(change(app)?).await {
                Ok(app) => return Ok(app),
                Err(Error::Conflict(_)) => {}
                Err(Error::NotFound(_)) => return Err(Refusal::AppNotFound(id.clone())),
                Err(error) => return Err(unwritten(&error)),
            }
        }
        Err(Refusal::Busy)
    }

    /// Removes an app: its webhook closes, its unfinished deploys end, its history goes. The workload is not touched.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn delete(&self, operator: &Operator, id: &AppId) -> Outcome<()> {
        let access = self.open(operator, id).await?;
        self.ports.tokens.remove(access.uid).await.map_err(|error| unwritten(&error))?;
        let message = format!("{} deleted the app.", operator.actor());
        self.end_all(&access, Reason::new(Reason::APP_DELETED), &message).await?;
        self.end_builds(access.uid).await;
        self.ports.apps.remove(access.uid).await.map_err(|error| unwritten(&error))?;
        self.written(access.uid);
        tracing::info!(app = %id, uid = %access.uid, actor = %operator.actor(), "deleted");
        Ok(())
    }

    /// Ends whatever is unfinished, so that those who wait for it are told why.
    async fn end_all(&self, access: &Authorized, reason: Reason, message: &str) -> Outcome<()> {
        for _ in 0..ATTEMPTS {
            let view = self.view(access).await?;
            let state = || State::Cancelled { reason: reason.clone(), message: message.to_owned() };
            let changes: Vec<_> = view.unfinished.iter().map(|deploy| deploy.moved(state())).collect();
            if changes.is_empty() {
                return Ok(());
            }
            match self.record_cancel(access, changes).await {
                Ok(()) => return Ok(()),
                Err(Error::Conflict(_)) => {}
                Err(Error::NotFound(_)) => return Err(Refusal::AppNotFound(access.id.clone())),
                Err(error) => return Err(unwritten(&error)),
            }
        }
        Err(Refusal::Busy)
    }

    async fn record_cancel(&self, access: &Authorized, changes: Vec<Deploy>) -> Result<(), Error> {
        let record = Record { app: access.uid, claim: None, changes, lift: Vec::new(), rest: false };
        self.ports.history.record(record).await?;
        self.written(access.uid);
        Ok(())
    }

    /// Ends a deploy at once; one that was cancelled already stays so.
    ///
    /// # Errors
    /// [`Refusal::AlreadyEnded`], [`Refusal::RevisionNotFound`], [`Refusal::AppNotFound`], [`Refusal::Busy`];
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn cancel(&self, operator: &Operator, id: &AppId, revision: Revision) -> Outcome<Deploy> {
        let access = self.open(operator, id).await?;
        for _ in 0..ATTEMPTS {
            let entry = self.entry(&access, revision).await?;
            match entry.status() {
                Status::Cancelled => return Ok(entry),
                Status::Succeeded | Status::Failed | Status::Superseded => return Err(Refusal::AlreadyEnded(revision)),
                Status::Queued | Status::Building | Status::RollingOut => {}
            }
            let message = format!("{} cancelled it.", operator.actor());
            let state = State::Cancelled { reason: Reason::new(Reason::CANCELLED), message };
            match self.record_cancel(&access, vec![entry.moved(state)]).await {
                Ok(()) => return self.entry(&access, revision).await,
                Err(Error::Conflict(_)) => {}
                Err(Error::NotFound(_)) => return Err(Refusal::AppNotFound(id.clone())),
                Err(error) => return Err(unwritten(&error)),
            }
        }
        Err(Refusal::Busy)
    }

    /// Opens the app's webhook with a new token; the old one is refused from then on.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn enable_webhook(&self, operator: &Operator, id: &AppId) -> Outcome<WebhookSecret> {
        let access = self.open(operator, id).await?;
        match self.ports.tokens.put(access.uid, &self.new_token()).await {
            Err(Error::NotFound(_)) => Err(Refusal::AppNotFound(id.clone())),
            other => other.map_err(|error| unwritten(&error)),
        }
    }

    /// The app's webhook secret.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`], [`Refusal::NoWebhook`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn webhook(&self, operator: &Operator, id: &AppId) -> Outcome<WebhookSecret> {
        self.open(operator, id).await?;
        self.ports.tokens.find(id).await.map_err(|error| refused(&error))?.ok_or(Refusal::NoWebhook)
    }

    /// Closes the app's webhook.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn disable_webhook(&self, operator: &Operator, id: &AppId) -> Outcome<()> {
        let access = self.open(operator, id).await?;
        self.ports.tokens.remove(access.uid).await.map_err(|error| unwritten(&error))
    }

    /// Who keeps stored tokens from being read.
    pub fn sealing(&self) -> crate::ports::Sealing {
        self.ports.tokens.sealing()
    }
}

/// The policy, where a rollout can succeed under it.
fn sound(policy: Policy) -> Outcome<Policy> {
    if policy.settle < policy.rollout_deadline {
        return Ok(policy);
    }
    let rule = "must be longer than the time to settle: no rollout would be over before it.".to_owned();
    Err(Refusal::InvalidField("policy.rollout_deadline", rule))
}
