//! A server's management API: each operation is one call.

mod server;

use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use rollhook_api::{
    AddReceiver, AddTrust, AddedReceiver, App, AppList, AppPatch, AuditList, CreateApp, CreateToken, CreatedToken,
    Deploy, DeployAnswer, DeployList, DeployPost, EndedSessions, LockList, LockRequest, LockedEnvironment, Operations,
    Promote, Rebuild, ReceiverList, Registered, Rollback, RollbackAnswer, Rotate, RotateReceiver, RotatedReceiver,
    SessionList, TestedReceiver, TokenList, Trust, TrustList, Webhook, WebhookCallList, Whoami, access, path,
};
use rollhook_core::{
    app::{AppId, Environment, Project},
    deploy::Revision,
    ports::AppPage,
};
use rollhook_management::{
    access::{SessionId, TokenName},
    keyless::TrustId,
    notifications::ReceiverName,
    ports::RecordPlace,
};

pub(crate) use self::server::{Server, is_loopback, random_hex};
use crate::exit::CliError;

/// The shortest time of a wait in which nothing has changed: a server that cannot let a call wait answers it at once.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest wait of one call, well within the time limit of a call.
const WAIT_MAX: Duration = Duration::from_secs(20);

#[async_trait]
impl Operations for Server {
    type Error = CliError;

    async fn create(&self, app: CreateApp) -> Result<Registered, CliError> {
        self.send(Method::POST, "/api/v1/apps", &app).await
    }

    async fn apps(&self, page: AppPage) -> Result<AppList, CliError> {
        let namespace = page.namespace.map(|namespace| format!("&namespace={namespace}")).unwrap_or_default();
        // Ids are labels around a slash, and a slash may stand in a query as it is (RFC 3986 section 3.4).
        let after = page.after.map(|after| format!("&after={after}")).unwrap_or_default();
        self.get(&format!("/api/v1/apps?limit={}{namespace}{after}", page.limit)).await
    }

    async fn app(&self, id: &AppId) -> Result<App, CliError> {
        self.get(&path::app(id)).await
    }

    async fn change(&self, id: &AppId, patch: AppPatch) -> Result<App, CliError> {
        self.send(Method::PATCH, &path::app(id), &patch).await
    }

    async fn delete(&self, id: &AppId) -> Result<(), CliError> {
        match self.counted(Method::DELETE, &path::app(id), None).await {
            // An earlier attempt has removed it, and its answer was lost.
            Err((CliError::Problem(problem), 2..)) if problem.status == 404 => Ok(()),
            other => other.map(drop).map_err(|(failure, _)| failure),
        }
    }

    async fn enable_webhook(&self, id: &AppId) -> Result<Webhook, CliError> {
        self.read(&self.call(Method::POST, &format!("{}/webhook", path::app(id)), None).await?)
    }

    async fn rotate_webhook(&self, id: &AppId, rotate: Rotate) -> Result<Webhook, CliError> {
        self.once(Method::POST, &format!("{}/webhook/rotate", path::app(id)), &rotate).await
    }

    async fn webhook(&self, id: &AppId) -> Result<Webhook, CliError> {
        self.get(&format!("{}/webhook", path::app(id))).await
    }

    async fn masked_webhook(&self, id: &AppId) -> Result<Webhook, CliError> {
        self.get(&format!("{}/webhook?masked=true", path::app(id))).await
    }

    async fn disable_webhook(&self, id: &AppId) -> Result<(), CliError> {
        self.call(Method::DELETE, &format!("{}/webhook", path::app(id)), None).await.map(drop)
    }

    async fn webhook_calls(&self, id: &AppId) -> Result<WebhookCallList, CliError> {
        self.get(&path::webhook_calls(id)).await
    }

    async fn trusts(&self, id: &AppId) -> Result<TrustList, CliError> {
        self.get(&path::trusts(id)).await
    }

    async fn add_trust(&self, id: &AppId, trust: AddTrust) -> Result<Trust, CliError> {
        self.send(Method::POST, &path::trusts(id), &trust).await
    }

    async fn remove_trust(&self, id: &AppId, trust: &TrustId) -> Result<(), CliError> {
        match self.counted(Method::DELETE, &path::trust(id, trust), None).await {
            // An earlier attempt has removed it, and its answer was lost.
            Err((CliError::Problem(problem), 2..)) if problem.status == 404 => Ok(()),
            other => other.map(drop).map_err(|(failure, _)| failure),
        }
    }

    async fn history(&self, id: &AppId, before: Option<Revision>, limit: usize) -> Result<DeployList, CliError> {
        let before = before.map(|before| format!("&before={before}")).unwrap_or_default();
        self.get(&format!("{}/deploys?limit={limit}{before}", path::app(id))).await
    }

    async fn entry(&self, id: &AppId, revision: Revision) -> Result<Deploy, CliError> {
        self.get(&path::deploy(id, revision)).await
    }

    async fn changed(&self, id: &AppId, revision: Revision, seen: u32, limit: Duration) -> Result<Deploy, CliError> {
        let pause = tokio::time::sleep(PAUSE.min(limit));
        let path = format!("{}?seen={seen}", path::deploy(id, revision));
        let entry: Deploy = self.read(&self.waiting(&path, limit.min(WAIT_MAX)).await?)?;
        if entry.step <= seen && !entry.status.is_terminal() {
            pause.await;
        }
        Ok(entry)
    }

    async fn deploy(&self, id: &AppId, post: DeployPost) -> Result<DeployAnswer, CliError> {
        self.send(Method::POST, &format!("{}/deploys", path::app(id)), &post).await
    }

    async fn rebuild(&self, id: &AppId, rebuild: Rebuild) -> Result<DeployAnswer, CliError> {
        self.send(Method::POST, &format!("{}/rebuild", path::app(id)), &rebuild).await
    }

    async fn build_log(&self, id: &AppId, revision: Revision, from: u64) -> Result<Vec<u8>, CliError> {
        let path = format!("{}/log?from={from}", path::deploy(id, revision));
        Ok(self.call(Method::GET, &path, None).await?.to_vec())
    }

    async fn cancel(&self, id: &AppId, revision: Revision) -> Result<Deploy, CliError> {
        self.read(&self.call(Method::POST, &format!("{}/cancel", path::deploy(id, revision)), None).await?)
    }

    async fn rollback(&self, id: &AppId, rollback: Rollback) -> Result<RollbackAnswer, CliError> {
        self.send(Method::POST, &format!("{}/rollback", path::app(id)), &rollback).await
    }

    async fn promote(&self, id: &AppId, promote: Promote) -> Result<DeployAnswer, CliError> {
        self.send(Method::POST, &format!("{}/promote", path::app(id)), &promote).await
    }

    async fn release_hold(&self, id: &AppId) -> Result<App, CliError> {
        self.read(&self.call(Method::DELETE, &format!("{}/hold", path::app(id)), None).await?)
    }

    async fn lock(&self, id: &AppId, lock: LockRequest) -> Result<App, CliError> {
        self.send(Method::PUT, &format!("{}/lock", path::app(id)), &lock).await
    }

    async fn unlock(&self, id: &AppId) -> Result<App, CliError> {
        self.read(&self.call(Method::DELETE, &format!("{}/lock", path::app(id)), None).await?)
    }

    async fn lock_environment(
        &self,
        project: &Project,
        environment: &Environment,
        lock: LockRequest,
    ) -> Result<LockedEnvironment, CliError> {
        self.send(Method::PUT, &path::lock(project, environment), &lock).await
    }

    async fn unlock_environment(&self, project: &Project, environment: &Environment) -> Result<(), CliError> {
        self.call(Method::DELETE, &path::lock(project, environment), None).await.map(drop)
    }

    async fn locked_environments(&self) -> Result<LockList, CliError> {
        self.get("/api/v1/locks").await
    }

    async fn create_token(&self, token: CreateToken) -> Result<CreatedToken, CliError> {
        self.send(Method::POST, "/api/v1/tokens", &token).await
    }

    async fn tokens(&self) -> Result<TokenList, CliError> {
        self.get("/api/v1/tokens").await
    }

    async fn revoke_token(&self, name: &TokenName) -> Result<(), CliError> {
        match self.counted(Method::DELETE, &format!("/api/v1/tokens/{name}"), None).await {
            // An earlier attempt has revoked it, and its answer was lost.
            Err((CliError::Problem(problem), 2..)) if problem.status == 404 => Ok(()),
            other => other.map(drop).map_err(|(failure, _)| failure),
        }
    }

    async fn sessions(&self, after: Option<RecordPlace>, limit: usize) -> Result<SessionList, CliError> {
        let after = after.map(|place| format!("&after={}", access::cursor(&place))).unwrap_or_default();
        self.get(&format!("{}?limit={limit}{after}", path::SESSIONS)).await
    }

    async fn end_session(&self, id: &SessionId) -> Result<(), CliError> {
        match self.counted(Method::DELETE, &path::session(id), None).await {
            // An earlier attempt has ended it, and its answer was lost.
            Err((CliError::Problem(problem), 2..)) if problem.status == 404 => Ok(()),
            other => other.map(drop).map_err(|(failure, _)| failure),
        }
    }

    async fn end_sessions(&self, actor: &str) -> Result<EndedSessions, CliError> {
        let actor: String = form_urlencoded::byte_serialize(actor.as_bytes()).collect();
        self.read(&self.call(Method::DELETE, &format!("{}?actor={actor}", path::SESSIONS), None).await?)
    }

    async fn audit(&self, after: Option<RecordPlace>, limit: usize) -> Result<AuditList, CliError> {
        let after = after.map(|place| format!("&after={}", access::cursor(&place))).unwrap_or_default();
        self.get(&format!("/api/v1/audit?limit={limit}{after}")).await
    }

    async fn add_receiver(&self, receiver: AddReceiver) -> Result<AddedReceiver, CliError> {
        self.once(Method::POST, path::RECEIVERS, &receiver).await
    }

    async fn receivers(&self) -> Result<ReceiverList, CliError> {
        self.get(path::RECEIVERS).await
    }

    async fn remove_receiver(&self, name: &ReceiverName) -> Result<(), CliError> {
        match self.counted(Method::DELETE, &path::receiver(name), None).await {
            // An earlier attempt has removed it, and its answer was lost.
            Err((CliError::Problem(problem), 2..)) if problem.status == 404 => Ok(()),
            other => other.map(drop).map_err(|(failure, _)| failure),
        }
    }

    async fn rotate_receiver(&self, name: &ReceiverName, rotate: RotateReceiver) -> Result<RotatedReceiver, CliError> {
        let path = format!("{}/rotate", path::receiver(name));
        self.once(Method::POST, &path, &rotate).await
    }

    async fn test_receiver(&self, name: &ReceiverName) -> Result<TestedReceiver, CliError> {
        self.read(&self.call(Method::POST, &format!("{}/test", path::receiver(name)), None).await?)
    }

    async fn whoami(&self) -> Result<Whoami, CliError> {
        self.get("/api/v1/whoami").await
    }
}
