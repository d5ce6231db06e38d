//! Registering apps, their webhooks, policy and holds, and ending deploys by hand.

use super::{ATTEMPTS, Authorized, Deployer, Operator, Outcome, refused, unwritten};
use crate::{
    app::{App, AppId, AppUid, Namespace, Policy, Source, Workload},
    deploy::{AdmissionId, Deploy, Reason, Revision, State, Status, Trigger},
    error::Error,
    image::ImageRef,
    ports::{Admission, Admitted, AppPage, Draft, Found, HistoryExt, Record, WebhookSecret},
    request::{IdempotencyKey, PolicyChange, Refusal, Registration},
};

/// A registered app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The registration.
    pub app: App,
    /// Revision 1: what runs already, or the image that the workload is made with.
    pub deploy: Deploy,
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
        if let Source::Git(_) = wanted.source {
            return Err(Refusal::WrongKind(
                "Git apps need a builder, and this server has none; register an image app, and let CI build."
                    .to_owned(),
            ));
        }
        let namespace = Namespace::of(&wanted.project, &wanted.environment)
            .map_err(|invalid| Refusal::InvalidField("environment", invalid.to_string()))?;
        let id = AppId { namespace, name: wanted.name.clone() };
        if let Some(app) = self.ports.apps.find(&id).await.map_err(|error| refused(&error))? {
            return self.registered(app, key.as_ref()).await;
        }
        let wanted = Registration { policy: sound(wanted.policy)?, ..wanted };
        let name = wanted.workload.clone().unwrap_or_else(|| wanted.name.to_string());
        if !is_object_name(&name) {
            let rule = "must be a name that Kubernetes takes: lower-case letters, digits, hyphens and dots.".to_owned();
            return Err(Refusal::InvalidField("workload.name", rule));
        }
        let found = self.ports.rollouts.inspect(&id, wanted.kind, &name).await.map_err(|error| {
            tracing::warn!(app = %id, error = %error.chain(), "the workload could not be looked at");
            match error {
                Error::Unavailable { .. } => Refusal::ClusterUnavailable,
                Error::NotFound(_)
                | Error::Conflict(_)
                | Error::Denied { .. }
                | Error::Invalid { .. }
                | Error::Corrupt { .. } => Refusal::Workload(error.to_string()),
            }
        })?;
        let adopted = found.is_some();
        let (workload, image) = match found {
            Some(found) => adopt(&wanted, name, &found)?,
            None => create(&wanted, name)?,
        };
        let app = App {
            id,
            uid: AppUid::from_bits(self.ports.entropy.bits()),
            project: wanted.project,
            environment: wanted.environment,
            source: wanted.source,
            workload,
            policy: wanted.policy,
            holds: Vec::new(),
            guard: 0,
            created_at: crate::time::Timestamp::default(),
        };
        self.create(operator, app, (image, adopted), key).await
    }

    /// What an earlier call under the same key has made.
    async fn registered(&self, app: App, key: Option<&IdempotencyKey>) -> Outcome<Registered> {
        let Some(key) = key else { return Err(Refusal::AppExists(app.id)) };
        match self.ports.history.replay(app.uid, key).await.map_err(|error| refused(&error))? {
            Some(Admitted::Replay(deploy)) => Ok(Registered { adopted: deploy.adopted, app, deploy }),
            Some(Admitted::KeyReused) => Err(Refusal::KeyReused),
            Some(Admitted::New { .. } | Admitted::Stale | Admitted::Full) | None => Err(Refusal::AppExists(app.id)),
        }
    }

    async fn create(
        &self,
        operator: &Operator,
        app: App,
        (image, adopted): (ImageRef, bool),
        key: Option<IdempotencyKey>,
    ) -> Outcome<Registered> {
        let (id, project, environment) = (app.id.clone(), app.project.clone(), app.environment.clone());
        let app = match self.ports.apps.create(app).await {
            Ok(app) => app,
            Err(Error::Conflict("namespace")) => return Err(self.namespace_taken(id, project, environment).await),
            Err(Error::Conflict(_)) => {
                let app = self.find(&id).await?;
                return self.registered(app, key.as_ref()).await;
            }
            Err(error) => return Err(unwritten(&error)),
        };
        let admission = Admission {
            app: app.uid,
            id: AdmissionId(self.ports.entropy.bits()),
            key,
            draft: Draft {
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
        tracing::info!(app = %app.id, uid = %app.uid, adopted, "registered");
        Ok(Registered { app, deploy, adopted })
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
    pub async fn change_policy(&self, _operator: &Operator, id: &AppId, change: PolicyChange) -> Outcome<App> {
        self.update(id, |app| Ok(App { policy: sound(change.clone().apply(app.policy.clone()))?, ..app })).await
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

/// A DNS-1123 subdomain, as Kubernetes wants its objects to be named.
fn is_object_name(name: &str) -> bool {
    let sound = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let part =
        |part: &str| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.bytes().all(sound);
    name.len() <= 253 && name.split('.').all(part)
}

/// Which workload is adopted, and what it runs.
fn adopt(wanted: &Registration, name: String, found: &Found) -> Outcome<(Workload, ImageRef)> {
    let what = format!("{} {name}", wanted.kind);
    if let Some(why) = &found.unsupported {
        return Err(Refusal::Workload(format!("{what} cannot be rolled out: {why}")));
    }
    let take_over = match found.stamp {
        Some(stamp) if !wanted.take_over => {
            return Err(Refusal::WorkloadTaken(format!(
                "{what} carries the stamp of another registration ({stamp}). If that one is gone, register with --take-over."
            )));
        }
        stamp => stamp.map(|stamp| stamp.app),
    };
    let containers = containers(wanted, &what, found)?;
    let mut images = found.containers.iter().filter(|container| containers.contains(&container.name));
    let image = images.next().map(|container| container.image.as_str()).unwrap_or_default();
    if let Some(other) = images.find(|container| container.image != image) {
        return Err(Refusal::Workload(format!(
            "{what}: container {} runs {}, another one {image}; an app's containers share one image.",
            other.name, other.image
        )));
    }
    let image: ImageRef = image
        .parse()
        .map_err(|invalid| Refusal::Workload(format!("{what} runs an image that cannot be read: {invalid}")))?;
    Ok((Workload { kind: wanted.kind, name, containers, create: None, take_over }, image.or_latest()))
}

fn containers(wanted: &Registration, what: &str, found: &Found) -> Outcome<Vec<String>> {
    let names: Vec<&str> = found.containers.iter().map(|container| container.name.as_str()).collect();
    let listed = || names.join(", ");
    if let Some(missing) = wanted.containers.iter().find(|container| !names.contains(&container.as_str())) {
        return Err(Refusal::Workload(format!("{what} has no container {missing}; it has: {}.", listed())));
    }
    match names.as_slice() {
        _ if !wanted.containers.is_empty() => Ok(wanted.containers.clone()),
        [only] => Ok(vec![(*only).to_owned()]),
        several if several.contains(&wanted.name.as_str()) => Ok(vec![wanted.name.to_string()]),
        _ => Err(Refusal::Workload(format!("{what} has several containers: say which one to deploy: {}.", listed()))),
    }
}

/// How the workload is made, and with what.
fn create(wanted: &Registration, name: String) -> Outcome<(Workload, ImageRef)> {
    let what = format!("{} {name}", wanted.kind);
    let Some(image) = wanted.image.clone() else {
        return Err(Refusal::Workload(format!("{what} does not exist; give an image to have a Deployment made.")));
    };
    if wanted.kind != crate::app::WorkloadKind::Deployment {
        return Err(Refusal::Workload(format!("{what} does not exist, and only a Deployment can be made.")));
    }
    if image.tag().is_none() && image.digest().is_none() {
        return Err(Refusal::InvalidField("image", format!("{image} names neither a tag nor a digest.")));
    }
    if wanted.template.readiness_path.is_some() && wanted.template.port.is_none() {
        return Err(Refusal::InvalidField("readiness_path", "needs a port.".to_owned()));
    }
    let containers = match wanted.containers.as_slice() {
        [] => vec![wanted.name.to_string()],
        [one] => vec![one.clone()],
        _ => return Err(Refusal::InvalidField("containers", "a Deployment is made with one container.".to_owned())),
    };
    let create = Some(wanted.template.clone());
    Ok((Workload { kind: wanted.kind, name, containers, create, take_over: None }, image))
}
