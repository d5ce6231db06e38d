//! Operations of the API: what a call sends, what it gets, and what it does.

use std::{sync::Arc, time::Duration};

use rollhook_core::{
    action::Action,
    app::AppId,
    deploy::Revision,
    ledger::AppState,
    request::IdempotencyKey,
    service::{Authorized, Deployer},
};
use rollhook_management::{Management, Refusal, access::Principal};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    App, Deploy,
    endpoint::{Endpoint, Subject},
    operations::DeployQuery,
};

/// An operation of the API. Input and answer are the wire's types, so that a program works the same on a server and on a
/// management plane of its own.
pub trait Operation: Send + Sync + 'static {
    /// What the path names.
    type Subject: Subject;
    /// What a call sends: as the query of a call that reads or removes, else as the body; `()` for nothing.
    type Input: Serialize + DeserializeOwned + JsonSchema + Send + Sync;
    /// What a call gets; `()` for nothing.
    type Answer: Serialize + DeserializeOwned + JsonSchema + Send;

    /// The endpoint.
    const ENDPOINT: Endpoint;

    /// Reads an answer, as a server has sent it: JSON, or nothing for `()`.
    ///
    /// # Errors
    /// That it is no such answer.
    fn read(answer: &[u8]) -> serde_json::Result<Self::Answer> {
        serde_json::from_slice(if answer.is_empty() { b"null" } else { answer })
    }

    /// Performs the operation for the caller.
    fn perform(
        caller: &Local,
        subject: &Self::Subject,
        input: Self::Input,
    ) -> impl Future<Output = Result<Self::Answer, Refusal>> + Send;
}

/// The management plane in this process, for one caller.
pub struct Local {
    pub(crate) management: Arc<Management>,
    pub(crate) principal: Principal,
    pub(crate) base_url: Arc<str>,
    pub(crate) key: Option<IdempotencyKey>,
}

impl Local {
    /// Returns the management plane for `principal`; webhook URLs begin with `base_url`.
    pub fn new(management: Arc<Management>, principal: Principal, base_url: Arc<str>) -> Self {
        Self { management, principal, base_url, key: None }
    }

    /// Returns the same, for an operation that is repeatable under this key. A key belongs to one request.
    #[must_use]
    pub fn with_key(self, key: Option<IdempotencyKey>) -> Self {
        Self { key, ..self }
    }

    /// Performs an operation.
    ///
    /// # Errors
    /// The refusal of the management plane, or of the deployer below it.
    pub async fn call<O: Operation>(
        &self,
        _operation: O,
        subject: &O::Subject,
        input: O::Input,
    ) -> Result<O::Answer, Refusal> {
        O::perform(self, subject, input).await
    }

    /// Opens an app to the caller, for calls of the deployer that no operation makes.
    ///
    /// # Errors
    /// As [`Management::open`].
    pub async fn open(&self, id: &AppId) -> Result<Authorized, Refusal> {
        self.management.open(&self.principal, id).await
    }

    /// Opens an app as [`Local::open`] does, to the caller as its token is now: for a call that lasts.
    ///
    /// # Errors
    /// [`Refusal::UNAUTHORIZED`] once the token was revoked; as [`Management::open`].
    pub async fn reopen(&self, id: &AppId) -> Result<Authorized, Refusal> {
        let principal = self.management.confirm(&self.principal).await?;
        self.management.open(&principal, id).await
    }

    /// Returns an entry of the history once it is past what was seen of it, or as it is after
    /// `limit` at the latest. An entry that has ended is returned once the restore that it owes exists.
    ///
    /// # Errors
    /// As [`Management::open`] and [`Deploy::read`].
    pub async fn changed(
        &self,
        (id, revision): &(AppId, Revision),
        seen: &DeployQuery,
        limit: Duration,
    ) -> Result<Deploy, Refusal> {
        let access = self.open(id).await?;
        Ok(Deploy::read(self.deployer(), &access, *revision, (seen.until(), limit)).await?)
    }

    /// Returns the caller's proof that it may do this to an app.
    pub(crate) async fn allow(&self, id: &AppId, action: Action) -> Result<Authorized, Refusal> {
        self.management.allow(&self.principal, id, action).await
    }

    pub(crate) fn management(&self) -> &Management {
        &self.management
    }

    pub(crate) fn deployer(&self) -> &Deployer {
        self.management.deployer()
    }

    pub(crate) fn shown(&self, state: &AppState) -> App {
        App::of(state, self.deployer().time())
    }
}
