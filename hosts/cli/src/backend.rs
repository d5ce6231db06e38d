//! The two ways to run: against a server, or on the store and the cluster directly. Both answer in the wire's types, so
//! that what is printed is the same.

use std::time::Duration;

use async_trait::async_trait;
use rollhook_api::{
    App, AppList, AppPatch, CreateApp, Deploy, DeployAnswer, DeployList, DeployPost, Promote, Rebuild, Registered,
    Rollback, RollbackAnswer, Webhook,
};
use rollhook_core::{
    app::{AppId, Namespace},
    deploy::Revision,
};

use crate::exit::Failure;

/// Who does what the commands ask for.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// Registers an app.
    async fn create(&self, app: CreateApp) -> Result<Registered, Failure>;

    /// A part of the list of apps.
    async fn apps(&self, namespace: Option<&Namespace>, after: Option<&str>) -> Result<AppList, Failure>;

    /// One app.
    async fn app(&self, id: &AppId) -> Result<App, Failure>;

    /// Changes an app's policy and source.
    async fn change(&self, id: &AppId, patch: AppPatch) -> Result<App, Failure>;

    /// Removes an app.
    async fn delete(&self, id: &AppId) -> Result<(), Failure>;

    /// Makes a new webhook token.
    async fn enable(&self, id: &AppId) -> Result<Webhook, Failure>;

    /// The webhook with its token.
    async fn webhook(&self, id: &AppId) -> Result<Webhook, Failure>;

    /// Closes the webhook.
    async fn disable(&self, id: &AppId) -> Result<(), Failure>;

    /// A part of the history, newest first.
    async fn history(&self, id: &AppId, before: Option<Revision>, limit: usize) -> Result<DeployList, Failure>;

    /// One entry with its evidence.
    async fn entry(&self, id: &AppId, revision: Revision) -> Result<Deploy, Failure>;

    /// The entry once it is past `seen` steps, or as it is when `limit` is over or the backend has looked once.
    async fn changed(&self, id: &AppId, revision: Revision, seen: u32, limit: Duration) -> Result<Deploy, Failure>;

    /// Deploys an image.
    async fn deploy(&self, id: &AppId, post: DeployPost) -> Result<DeployAnswer, Failure>;

    /// Builds a commit of a git app again; without one, what is current.
    async fn rebuild(&self, id: &AppId, rebuild: Rebuild) -> Result<DeployAnswer, Failure>;

    /// A build's log from this byte on, as much as there is now.
    async fn build_log(&self, id: &AppId, revision: Revision, from: u64) -> Result<Vec<u8>, Failure>;

    /// Ends a deploy.
    async fn cancel(&self, id: &AppId, revision: Revision) -> Result<Deploy, Failure>;

    /// Returns to an earlier revision.
    async fn rollback(&self, id: &AppId, rollback: Rollback) -> Result<RollbackAnswer, Failure>;

    /// Deploys what another environment runs.
    async fn promote(&self, id: &AppId, promote: Promote) -> Result<DeployAnswer, Failure>;

    /// Lifts all holds.
    async fn release_hold(&self, id: &AppId) -> Result<App, Failure>;

    /// Whether nobody else may be there to drive deploys, so that this process has to stay until they have ended.
    fn drives(&self) -> bool;

    /// What this process still has to see to its end: a deploy that is unfinished, or is about to put a failed one
    /// right. Nothing where somebody else drives.
    async fn left_to_do(&self, id: &AppId) -> Result<Option<Revision>, Failure>;

    /// Gives up what it drives, so that nobody has to wait for it.
    async fn close(&self);
}

/// Who the history will say it was.
pub(crate) fn user() -> String {
    let named = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    named("USER").or_else(|| named("LOGNAME")).unwrap_or_else(|| "cli".to_owned())
}
