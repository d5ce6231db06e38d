//! Each action of the table as a call of the service.

#![allow(clippy::wildcard_enum_match_arm, reason = "a new action without a call here fails the test")]

use rollhook_core::{
    access::{Action, Grant, Realm, Role},
    app::{AppId, FullName, Policy},
    deploy::Revision,
    request::{DeployRequest, PolicyChange, PromoteRequest, Refusal, Registration, RollbackRequest},
    service::{Deployer, NewApiToken, NewLock, Outcome, Principal},
};

use super::World;

/// The realm of one environment.
pub fn realm(project: &str, environment: &str) -> Realm {
    Realm::Environment { project: project.parse().unwrap(), environment: environment.parse().unwrap() }
}

/// Registers `PROJECT-ENVIRONMENT/api`.
pub async fn register(world: &World, project: &str, environment: &str) -> AppId {
    let app = super::registration("api", Policy::default());
    let app = Registration { project: project.parse().unwrap(), environment: environment.parse().unwrap(), ..app };
    world.deployer.register(&world.operator, app, None).await.unwrap().app.app.id.clone()
}

fn image() -> DeployRequest {
    DeployRequest { image: Some("registry.example.com/api:2".parse().unwrap()), commit: None, key: None }
}

/// Tries an action, and returns the refusal for lack of a role or permission, if it is that.
pub async fn refusal(deployer: &Deployer, who: &Principal, id: &AppId, action: Action) -> Option<Refusal> {
    fn of<T>(outcome: Outcome<T>) -> Option<Refusal> {
        match outcome {
            Err(refusal @ (Refusal::Forbidden(..) | Refusal::NotGranted(_) | Refusal::AppNotFound(_))) => Some(refusal),
            _ => None,
        }
    }
    let other = FullName {
        project: "shop".parse().unwrap(),
        environment: "prod".parse().unwrap(),
        name: "api".parse().unwrap(),
    };
    match action {
        Action::Read => of(deployer.open(who, id).await),
        Action::Deploy => match deployer.open(who, id).await {
            Ok(access) => of(deployer.submit(&access, image()).await),
            refused => of(refused),
        },
        Action::Rebuild => of(deployer.rebuild(who, id, None, None).await),
        Action::Promote => of(deployer.promote(who, id, PromoteRequest::new(other)).await),
        Action::Rollback => of(deployer.rollback(who, id, RollbackRequest::default()).await),
        Action::Cancel => of(deployer.cancel(who, id, Revision::FIRST).await),
        Action::ReleaseHold => of(deployer.release_hold(who, id).await),
        Action::Lock => of(deployer.lock(who, id, lock()).await),
        Action::Unlock => {
            let _ = deployer.lock(&Principal::trusted("another"), id, lock()).await;
            of(deployer.unlock(who, id).await)
        }
        Action::BreakGlass => of(deployer.break_glass(who, id, &lock().reason).await),
        Action::EnableWebhook => of(deployer.enable_webhook(who, id).await),
        Action::ReadToken => of(deployer.webhook(who, id).await),
        Action::ReadCalls => of(deployer.webhook_calls(who, id).await),
        Action::DisableWebhook => of(deployer.disable_webhook(who, id).await),
        Action::ChangeTrusts => of(deployer.remove_trust(who, id, &"0123456789abcdef".parse().unwrap()).await),
        Action::Register => {
            let app = super::registration("second", Policy::default());
            of(deployer.register(who, app, None).await)
        }
        Action::Change => of(deployer.change_policy(who, id, PolicyChange::default()).await),
        Action::ManageTokens => of(deployer.create_api_token(who, token("other", Role::Viewer)).await),
        Action::ManageReceivers => of(deployer.receivers(who).await),
        Action::ReadAudit => of(deployer.audited(who, None, 10).await),
        Action::Delete => of(deployer.delete(who, id).await),
        other => panic!("{other} has no call here"),
    }
}

fn lock() -> NewLock {
    NewLock { reason: "a freeze".parse().unwrap(), ttl: None }
}

/// A token of this role on `shop-test`.
pub fn token(name: &str, role: Role) -> NewApiToken {
    NewApiToken { name: name.parse().unwrap(), grant: Grant { role, realm: realm("shop", "test") }, ttl: None }
}
