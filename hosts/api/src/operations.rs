//! The operations of the management API, as one trait: on a deployer in this process, or on a server.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_core::{
    action::Action,
    app::{AppId, Environment, Project},
    deploy::Revision,
    ledger::AppState,
    ports::{AppPage, ListedApp, Page, WebhookSecret, listed_id},
    request::{IdempotencyKey, PromoteRequest, Refusal as CoreRefusal},
    service::{Authorized, Deployer},
    time::Timestamp,
};
use rollhook_management::{
    Management, Refusal,
    access::{Principal, SessionId, TokenName},
    keyless::TrustId,
    notifications::ReceiverName,
    ports::RecordPlace,
};

use crate::{
    AddReceiver, AddTrust, AddedReceiver, ApiToken, App, AppList, AppPatch, AuditList, CreateApp, CreateToken,
    CreatedToken, Deploy, DeployAnswer, DeployList, DeployPost, Drift, EndedSessions, LockList, LockRequest,
    LockedEnvironment, Polling, Promote, Rebuild, Receiver, ReceiverList, Registered, Rollback, RollbackAnswer, Rotate,
    RotateReceiver, RotatedReceiver, SessionList, Standing, TestedReceiver, TokenList, Trust, TrustList, Until,
    Webhook, WebhookCallList, Whoami,
};

/// The operations on apps. Requests and answers are the wire's types, so that a program works the same on a server and
/// on a deployer of its own.
#[async_trait]
pub trait Operations: Send + Sync {
    /// The reason why an operation failed.
    type Error;

    /// Registers an app.
    async fn create(&self, app: CreateApp) -> Result<Registered, Self::Error>;

    /// Returns a page of the apps, in the order of their ids.
    async fn apps(&self, page: AppPage) -> Result<AppList, Self::Error>;

    /// Returns an app with the last reading of its branch and a warning to its owner.
    async fn app(&self, id: &AppId) -> Result<App, Self::Error>;

    /// Changes an app's policy and source, and returns the app.
    async fn change(&self, id: &AppId, patch: AppPatch) -> Result<App, Self::Error>;

    /// Removes an app with its token and history.
    async fn delete(&self, id: &AppId) -> Result<(), Self::Error>;

    /// Gives an app's webhook a new token.
    async fn enable_webhook(&self, id: &AppId) -> Result<Webhook, Self::Error>;

    /// Gives an app's webhook a new token, and lets the present one in for a time.
    async fn rotate_webhook(&self, id: &AppId, rotate: Rotate) -> Result<Webhook, Self::Error>;

    /// Returns an app's webhook with its token.
    async fn webhook(&self, id: &AppId) -> Result<Webhook, Self::Error>;

    /// Returns an app's webhook without its token.
    async fn masked_webhook(&self, id: &AppId) -> Result<Webhook, Self::Error>;

    /// Closes an app's webhook.
    async fn disable_webhook(&self, id: &AppId) -> Result<(), Self::Error>;

    /// Returns the last calls of an app's webhook that reached this process, or the server's.
    async fn webhook_calls(&self, id: &AppId) -> Result<WebhookCallList, Self::Error>;

    /// Returns the pipelines that an app trusts.
    async fn trusts(&self, id: &AppId) -> Result<TrustList, Self::Error>;

    /// Lets a pipeline call an app's webhook by its id_tokens.
    async fn add_trust(&self, id: &AppId, trust: AddTrust) -> Result<Trust, Self::Error>;

    /// Ends the trust in a pipeline.
    async fn remove_trust(&self, id: &AppId, trust: &TrustId) -> Result<(), Self::Error>;

    /// Returns at most `limit` entries older than `before`, newest first, without evidence.
    async fn history(&self, id: &AppId, before: Option<Revision>, limit: usize) -> Result<DeployList, Self::Error>;

    /// Returns an entry with its evidence.
    async fn entry(&self, id: &AppId, revision: Revision) -> Result<Deploy, Self::Error>;

    /// Returns an entry once it is past `seen` steps or its rollout has progressed, or as it is after `limit` at the
    /// latest. An entry that has ended is returned once the restore that it owes exists.
    async fn changed(&self, id: &AppId, revision: Revision, seen: u32, limit: Duration) -> Result<Deploy, Self::Error>;

    /// Deploys an image, or builds a commit of a git app.
    async fn deploy(&self, id: &AppId, post: DeployPost) -> Result<DeployAnswer, Self::Error>;

    /// Builds a commit of a git app again; without a commit, the current one.
    async fn rebuild(&self, id: &AppId, rebuild: Rebuild) -> Result<DeployAnswer, Self::Error>;

    /// Returns the log of a build as it is now, from this byte on.
    async fn build_log(&self, id: &AppId, revision: Revision, from: u64) -> Result<Vec<u8>, Self::Error>;

    /// Ends an unfinished deploy.
    async fn cancel(&self, id: &AppId, revision: Revision) -> Result<Deploy, Self::Error>;

    /// Returns an app to an earlier revision.
    async fn rollback(&self, id: &AppId, rollback: Rollback) -> Result<RollbackAnswer, Self::Error>;

    /// Deploys the current image of another environment's app.
    async fn promote(&self, id: &AppId, promote: Promote) -> Result<DeployAnswer, Self::Error>;

    /// Releases all holds of an app.
    async fn release_hold(&self, id: &AppId) -> Result<App, Self::Error>;

    /// Locks an app: new deploys are refused, except rollbacks.
    async fn lock(&self, id: &AppId, lock: LockRequest) -> Result<App, Self::Error>;

    /// Ends an app's own lock.
    async fn unlock(&self, id: &AppId) -> Result<App, Self::Error>;

    /// Locks all apps of an environment.
    async fn lock_environment(
        &self,
        project: &Project,
        environment: &Environment,
        lock: LockRequest,
    ) -> Result<LockedEnvironment, Self::Error>;

    /// Ends the lock of an environment.
    async fn unlock_environment(&self, project: &Project, environment: &Environment) -> Result<(), Self::Error>;

    /// Returns the locked environments.
    async fn locked_environments(&self) -> Result<LockList, Self::Error>;

    /// Makes an API token.
    async fn create_token(&self, token: CreateToken) -> Result<CreatedToken, Self::Error>;

    /// Returns the API tokens that the caller may manage.
    async fn tokens(&self) -> Result<TokenList, Self::Error>;

    /// Revokes an API token.
    async fn revoke_token(&self, name: &TokenName) -> Result<(), Self::Error>;

    /// Returns at most `limit` sessions that the caller may end after this place, newest first.
    async fn sessions(&self, after: Option<RecordPlace>, limit: usize) -> Result<SessionList, Self::Error>;

    /// Ends a session.
    async fn end_session(&self, id: &SessionId) -> Result<(), Self::Error>;

    /// Ends every session of a token or person.
    async fn end_sessions(&self, actor: &str) -> Result<EndedSessions, Self::Error>;

    /// Returns at most `limit` entries of the audit after this place, newest first.
    async fn audit(&self, after: Option<RecordPlace>, limit: usize) -> Result<AuditList, Self::Error>;

    /// Adds a receiver of notifications.
    async fn add_receiver(&self, receiver: AddReceiver) -> Result<AddedReceiver, Self::Error>;

    /// Returns the receivers that the caller may manage.
    async fn receivers(&self) -> Result<ReceiverList, Self::Error>;

    /// Removes a receiver.
    async fn remove_receiver(&self, name: &ReceiverName) -> Result<(), Self::Error>;

    /// Replaces a receiver's secret.
    async fn rotate_receiver(
        &self,
        name: &ReceiverName,
        rotate: RotateReceiver,
    ) -> Result<RotatedReceiver, Self::Error>;

    /// Sends a test to a receiver.
    async fn test_receiver(&self, name: &ReceiverName) -> Result<TestedReceiver, Self::Error>;

    /// Returns the caller, as its credentials prove.
    async fn whoami(&self) -> Result<Whoami, Self::Error>;
}

/// The operations on the management plane in this process, for one caller.
pub struct Local<E = Refusal> {
    management: Arc<Management>,
    principal: Principal,
    base_url: Arc<str>,
    key: Option<IdempotencyKey>,
    error: PhantomData<fn() -> E>,
}

impl<E: From<Refusal> + From<CoreRefusal> + Send> Local<E> {
    /// Returns the operations that `principal` may perform; webhook URLs begin with `base_url`.
    pub fn new(management: Arc<Management>, principal: Principal, base_url: Arc<str>) -> Self {
        Self { management, principal, base_url, key: None, error: PhantomData }
    }

    /// Returns the same operations, repeatable under this key. A key belongs to one request: it is for one operation.
    #[must_use]
    pub fn with_key(self, key: Option<IdempotencyKey>) -> Self {
        Self { key, ..self }
    }

    /// Opens an app to the caller, for calls of the deployer that no operation makes.
    ///
    /// # Errors
    /// As [`Management::open`].
    pub async fn open(&self, id: &AppId) -> Result<Authorized, Refusal> {
        self.management.open(&self.principal, id).await
    }

    /// Returns the caller's proof that it may do this to an app.
    async fn allow(&self, id: &AppId, action: Action) -> Result<Authorized, Refusal> {
        self.management.allow(&self.principal, id, action).await
    }

    fn deployer(&self) -> &Deployer {
        self.management.deployer()
    }

    /// Opens an app as [`Local::open`] does, to the caller as its token is now: for a call that lasts.
    ///
    /// # Errors
    /// [`CoreRefusal::Unauthorized`] once the token was revoked; as [`Management::open`].
    pub async fn reopen(&self, id: &AppId) -> Result<Authorized, Refusal> {
        let principal = self.management.confirm(&self.principal).await?;
        self.management.open(&principal, id).await
    }

    fn shown(&self, state: &AppState) -> App {
        App::of(state, self.deployer().time())
    }

    fn with_token(&self, id: &AppId, secret: &WebhookSecret) -> Webhook {
        Webhook::of(&self.base_url, id, secret, self.deployer().sealing(), self.deployer().time())
    }
}

#[async_trait]
impl<E: From<Refusal> + From<CoreRefusal> + Send> Operations for Local<E> {
    type Error = E;

    async fn create(&self, app: CreateApp) -> Result<Registered, E> {
        let of_creation = app.of_creation();
        let registered = self.management.register(&self.principal, app.parse()?, self.key.clone()).await?;
        let state = registered.app;
        let deploy = registered.deploy.map(|deploy| Deploy::of(&state.app.id, &deploy, Standing::of(&state)));
        let ignored = if registered.adopted { of_creation } else { Vec::new() };
        Ok(Registered { app: self.shown(&state), deploy, adopted: registered.adopted, ignored })
    }

    async fn apps(&self, page: AppPage) -> Result<AppList, E> {
        let limit = page.limit;
        let apps = self.management.apps(&self.principal, page).await?;
        // A first load tells the store's clock, by which locks end.
        if self.deployer().time() == Timestamp::default()
            && let Some(Ok(first)) = apps.first()
        {
            self.open(&first.app.id).await?;
        }
        let id = |listed: &ListedApp| listed_id(listed).to_string();
        let next = apps.last().filter(|_| apps.len() == limit).map(id);
        let unreadable = apps.iter().filter(|listed| listed.is_err()).map(id).collect();
        let app = |state: &AppState| {
            let drift = self.deployer().known_drift(state).as_ref().map(Drift::of);
            App { drift, ..self.shown(state) }
        };
        Ok(AppList { apps: apps.iter().flatten().map(app).collect(), unreadable, next })
    }

    async fn app(&self, id: &AppId) -> Result<App, E> {
        let access = self.open(id).await?;
        let state = self.deployer().state(&access).await?;
        let polling = self.deployer().polled(access.uid()).as_ref().map(Polling::of);
        let warning = self.deployer().warning(&access, &state.app).await?;
        let drift = self.deployer().drift(&state).await.as_ref().map(Drift::of);
        Ok(App { drift, polling, warning, ..self.shown(&state) })
    }

    async fn change(&self, id: &AppId, patch: AppPatch) -> Result<App, E> {
        // The audit has no change that cannot be read.
        let policy = patch.policy.parse()?;
        let source = patch.source.parse()?;
        self.deployer().change(&self.allow(id, Action::Change).await?, policy, source).await?;
        self.app(id).await
    }

    async fn delete(&self, id: &AppId) -> Result<(), E> {
        Ok(self.management.delete(&self.principal, id).await?)
    }

    async fn enable_webhook(&self, id: &AppId) -> Result<Webhook, E> {
        Ok(self.with_token(id, &self.deployer().enable_webhook(&self.allow(id, Action::EnableWebhook).await?).await?))
    }

    async fn rotate_webhook(&self, id: &AppId, rotate: Rotate) -> Result<Webhook, E> {
        let overlap = rotate.parse()?;
        Ok(self.with_token(
            id,
            &self.deployer().rotate_webhook(&self.allow(id, Action::EnableWebhook).await?, overlap).await?,
        ))
    }

    async fn webhook(&self, id: &AppId) -> Result<Webhook, E> {
        Ok(self.with_token(id, &self.deployer().webhook(&self.allow(id, Action::ReadToken).await?).await?))
    }

    async fn masked_webhook(&self, id: &AppId) -> Result<Webhook, E> {
        let times = self.deployer().webhook_times(&self.open(id).await?).await?;
        Ok(Webhook::masked(&self.base_url, id, times, self.deployer().sealing()))
    }

    async fn disable_webhook(&self, id: &AppId) -> Result<(), E> {
        Ok(self.management.disable_webhook(&self.principal, id).await?)
    }

    async fn webhook_calls(&self, id: &AppId) -> Result<WebhookCallList, E> {
        Ok(WebhookCallList::of(&self.management.webhook_calls(&self.principal, id).await?))
    }

    async fn trusts(&self, id: &AppId) -> Result<TrustList, E> {
        Ok(TrustList::of(&self.base_url, id, &self.management.trusts(&self.principal, id).await?))
    }

    async fn add_trust(&self, id: &AppId, trust: AddTrust) -> Result<Trust, E> {
        let trust = trust.parse(self.base_url.trim_end_matches('/'))?;
        let added = Trust::of(&trust);
        self.management.add_trust(&self.principal, id, trust).await?;
        Ok(added)
    }

    async fn remove_trust(&self, id: &AppId, trust: &TrustId) -> Result<(), E> {
        Ok(self.management.remove_trust(&self.principal, id, trust).await?)
    }

    async fn history(&self, id: &AppId, before: Option<Revision>, limit: usize) -> Result<DeployList, E> {
        let access = self.open(id).await?;
        let (state, entries) = self.deployer().history(&access, Page { before, succeeded: false, limit }).await?;
        let oldest = entries.last().map(|entry| entry.revision);
        let next = oldest.filter(|oldest| entries.len() == limit && *oldest > Revision::FIRST);
        let restorations = self.deployer().restorations(&state, &entries).await?;
        let deploy = |(entry, restoration)| {
            Deploy::shown(self.deployer(), &state, entry).restored(restoration).without_evidence()
        };
        let deploys = entries.iter().zip(&restorations).map(deploy).collect();
        Ok(DeployList { deploys, next })
    }

    async fn entry(&self, id: &AppId, revision: Revision) -> Result<Deploy, E> {
        let access = self.open(id).await?;
        Ok(Deploy::read(self.deployer(), &access, revision, (Until::Ended, Duration::ZERO)).await?)
    }

    async fn changed(&self, id: &AppId, revision: Revision, seen: u32, limit: Duration) -> Result<Deploy, E> {
        let access = self.open(id).await?;
        Ok(Deploy::read(self.deployer(), &access, revision, (Until::Changed(seen), limit)).await?)
    }

    async fn deploy(&self, id: &AppId, post: DeployPost) -> Result<DeployAnswer, E> {
        let request = post.parse(self.key.clone())?;
        let access = match post.break_glass()? {
            Some(reason) => self.management.break_glass(&self.principal, id, &reason).await?,
            None => self.allow(id, Action::Deploy).await?,
        };
        Ok(DeployAnswer::accepted(id, &self.deployer().submit(&access, request).await?))
    }

    async fn rebuild(&self, id: &AppId, rebuild: Rebuild) -> Result<DeployAnswer, E> {
        let commit = rebuild.parse()?;
        let accepted =
            self.deployer().rebuild(&self.allow(id, Action::Rebuild).await?, commit, self.key.clone()).await?;
        Ok(DeployAnswer::accepted(id, &accepted))
    }

    async fn build_log(&self, id: &AppId, revision: Revision, from: u64) -> Result<Vec<u8>, E> {
        let access = self.open(id).await?;
        Ok(self.deployer().build_log(&access, revision, from, false).await?.bytes)
    }

    async fn cancel(&self, id: &AppId, revision: Revision) -> Result<Deploy, E> {
        self.deployer().cancel(&self.allow(id, Action::Cancel).await?, revision).await?;
        self.entry(id, revision).await
    }

    async fn rollback(&self, id: &AppId, rollback: Rollback) -> Result<RollbackAnswer, E> {
        let request = rollback.parse(self.key.clone());
        Ok(RollbackAnswer::of(id, &self.deployer().rollback(&self.allow(id, Action::Rollback).await?, request).await?))
    }

    async fn promote(&self, id: &AppId, promote: Promote) -> Result<DeployAnswer, E> {
        let (from, key) = (promote.parse(id)?, self.key.clone());
        let request = PromoteRequest { from, if_current: promote.if_current, key };
        let accepted = self.management.promote(&self.principal, id, request).await?;
        Ok(DeployAnswer::accepted(id, &accepted))
    }

    async fn release_hold(&self, id: &AppId) -> Result<App, E> {
        Ok(self.shown(&self.deployer().release_hold(&self.allow(id, Action::ReleaseHold).await?).await?))
    }

    async fn lock(&self, id: &AppId, lock: LockRequest) -> Result<App, E> {
        Ok(self.shown(&self.management.lock(&self.principal, id, lock.parse()?).await?))
    }

    async fn unlock(&self, id: &AppId) -> Result<App, E> {
        Ok(self.shown(&self.management.unlock(&self.principal, id).await?))
    }

    async fn lock_environment(
        &self,
        project: &Project,
        environment: &Environment,
        lock: LockRequest,
    ) -> Result<LockedEnvironment, E> {
        let locked = self.management.lock_environment(&self.principal, project, environment, lock.parse()?).await?;
        Ok(LockedEnvironment::of(&locked))
    }

    async fn unlock_environment(&self, project: &Project, environment: &Environment) -> Result<(), E> {
        Ok(self.management.unlock_environment(&self.principal, project, environment).await?)
    }

    async fn locked_environments(&self) -> Result<LockList, E> {
        let locks = self.management.environment_locks(&self.principal).await?;
        Ok(LockList { locks: locks.iter().map(LockedEnvironment::of).collect() })
    }

    async fn create_token(&self, token: CreateToken) -> Result<CreatedToken, E> {
        let (api_token, token) = self.management.create_api_token(&self.principal, token.parse()?).await?;
        Ok(CreatedToken::of(&api_token, &token))
    }

    async fn tokens(&self) -> Result<TokenList, E> {
        let tokens = self.management.api_tokens(&self.principal).await?;
        Ok(TokenList { tokens: tokens.iter().map(ApiToken::of).collect() })
    }

    async fn revoke_token(&self, name: &TokenName) -> Result<(), E> {
        Ok(self.management.revoke_api_token(&self.principal, name).await?)
    }

    async fn sessions(&self, after: Option<RecordPlace>, limit: usize) -> Result<SessionList, E> {
        let (sessions, next) = self.management.sessions(&self.principal, after, limit).await?;
        Ok(SessionList::of(&sessions, next.as_ref()))
    }

    async fn end_session(&self, id: &SessionId) -> Result<(), E> {
        Ok(self.management.end_session_of_id(&self.principal, id).await?)
    }

    async fn end_sessions(&self, actor: &str) -> Result<EndedSessions, E> {
        Ok(EndedSessions { ended: self.management.end_sessions_of(&self.principal, actor).await? })
    }

    async fn audit(&self, after: Option<RecordPlace>, limit: usize) -> Result<AuditList, E> {
        let (entries, next) = self.management.audited(&self.principal, after, limit).await?;
        Ok(AuditList::of(&entries, next.as_ref()))
    }

    async fn add_receiver(&self, receiver: AddReceiver) -> Result<AddedReceiver, E> {
        let (added, secret) = self.management.add_receiver(&self.principal, receiver.parse()?).await?;
        Ok(AddedReceiver::of(&added, secret.as_ref()))
    }

    async fn receivers(&self) -> Result<ReceiverList, E> {
        let receivers = self.management.receivers(&self.principal).await?;
        Ok(ReceiverList { receivers: receivers.iter().map(|(known, status)| Receiver::of(known, status)).collect() })
    }

    async fn remove_receiver(&self, name: &ReceiverName) -> Result<(), E> {
        Ok(self.management.remove_receiver(&self.principal, name).await?)
    }

    async fn rotate_receiver(&self, name: &ReceiverName, rotate: RotateReceiver) -> Result<RotatedReceiver, E> {
        let made = self.management.rotate_receiver(&self.principal, name, rotate.parse()?).await?;
        Ok(RotatedReceiver { secret: made.map(|secret| secret.expose().to_owned()) })
    }

    async fn test_receiver(&self, name: &ReceiverName) -> Result<TestedReceiver, E> {
        let tested = self.management.test_receiver(&self.principal, name).await?;
        let (delivered, answer) = match tested {
            Ok(taken) => (true, taken.answer),
            Err(failure) => (false, failure.message),
        };
        Ok(TestedReceiver { delivered, answer })
    }

    async fn whoami(&self) -> Result<Whoami, E> {
        Ok(Whoami::of(&self.principal))
    }
}
