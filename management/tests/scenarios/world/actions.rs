//! Each action of the table as a call of the service.

#![allow(clippy::wildcard_enum_match_arm, reason = "a new action without a call here fails the test")]

use rollhook_core::{
    action::Action as AppAction,
    app::{AppId, FullName, Policy},
    deploy::{Revision, Ruling},
    request::{
        ConfigureRequest, DeployRequest, PolicyChange, PromoteRequest, Refusal as CoreRefusal, Registration,
        RollbackRequest, RunRequest,
    },
    service::{Authorized, Outcome as CoreOutcome},
};
use rollhook_management::{
    Management, Outcome, Refusal,
    access::{Action, Grant, NewApiToken, Principal, Realm, Role},
    locks::NewLock,
};

use super::ManagedWorld;

/// The realm of one environment.
pub fn realm(project: &str, environment: &str) -> Realm {
    Realm::Environment { project: project.parse().unwrap(), environment: environment.parse().unwrap() }
}

/// A caller with the role deployer in `shop-test`.
pub fn deployer(name: &str) -> Principal {
    Principal::new(name, [Grant { role: Role::Deployer, realm: realm("shop", "test") }])
}

/// A call that the caller is allowed.
pub async fn allow(world: &ManagedWorld, who: &Principal, id: &AppId, action: AppAction) {
    world.management.allow(who, id, action).await.unwrap();
}

/// Registers `PROJECT-ENVIRONMENT/api`.
pub async fn register(world: &ManagedWorld, project: &str, environment: &str) -> AppId {
    let app = super::registration("api", Policy::default());
    let app = app.with(|app| {
        app.project = project.parse().unwrap();
        app.environment = environment.parse().unwrap();
    });
    world.management.register(&world.operator, app, None).await.unwrap().app.app.id.clone()
}

fn image() -> DeployRequest {
    DeployRequest::image("registry.example.com/api:2".parse().unwrap())
}

/// Does something to an app for a principal that may do this action there.
pub async fn allowed<T>(
    management: &Management,
    who: &Principal,
    id: &AppId,
    action: AppAction,
    act: impl AsyncFnOnce(Authorized) -> CoreOutcome<T>,
) -> Outcome<T> {
    let access = management.allow(who, id, action).await?;
    Ok(act(access).await?)
}

/// Tries an action, and returns the refusal for lack of a role or permission, if it is that.
pub async fn refusal(management: &Management, who: &Principal, id: &AppId, action: Action) -> Option<Refusal> {
    fn of<T>(outcome: Outcome<T>) -> Option<Refusal> {
        let refusal = outcome.err()?;
        let is_of_access = matches!(
            refusal,
            Refusal::Forbidden(..)
                | Refusal::NotGranted(_)
                | Refusal::Core(CoreRefusal::AppNotFound(_) | CoreRefusal::NotAllowed(_))
        );
        is_of_access.then_some(refusal)
    }
    let other = FullName {
        project: "shop".parse().unwrap(),
        environment: "prod".parse().unwrap(),
        name: "api".parse().unwrap(),
    };
    let deployer = management.deployer();
    match action {
        Action::Read => of(management.open(who, id).await),
        Action::Deploy => {
            let act = async |access| deployer.submit(&access, image()).await;
            of(allowed(management, who, id, AppAction::Deploy, act).await)
        }
        Action::Rebuild => {
            let act = async |access| deployer.rebuild(&access, None, None).await;
            of(allowed(management, who, id, AppAction::Rebuild, act).await)
        }
        Action::Promote => of(management.promote(who, id, PromoteRequest::new(other)).await),
        Action::Rollback => {
            let act = async |access| deployer.rollback(&access, RollbackRequest::default()).await;
            of(allowed(management, who, id, AppAction::Rollback, act).await)
        }
        Action::Cancel => {
            let act = async |access| deployer.cancel(&access, Revision::FIRST).await;
            of(allowed(management, who, id, AppAction::Cancel, act).await)
        }
        Action::Decide => {
            let act = async |access| deployer.decide(&access, Revision::FIRST, Ruling::Pass).await;
            of(allowed(management, who, id, AppAction::Decide, act).await)
        }
        Action::Run => {
            let command = vec!["bin/fix".to_owned()];
            of(management.begin_run(who, id, RunRequest::new(command)).await)
        }
        Action::ReadConfiguration => {
            let act = async |access| deployer.configuration(&access, None).await;
            of(allowed(management, who, id, AppAction::ReadConfiguration, act).await)
        }
        Action::Configure => of(management.configure(who, id, ConfigureRequest::default(), None).await),
        Action::ReleaseHold => {
            let act = async |access| deployer.release_hold(&access).await;
            of(allowed(management, who, id, AppAction::ReleaseHold, act).await)
        }
        Action::Lock => of(management.lock(who, id, lock()).await),
        Action::Unlock => {
            let _ = management.lock(&Principal::trusted("another"), id, lock()).await;
            of(management.unlock(who, id).await)
        }
        Action::BreakGlass => of(management.break_glass(who, id, &lock().reason).await),
        Action::EnableWebhook => {
            let act = async |access| deployer.enable_webhook(&access).await;
            of(allowed(management, who, id, AppAction::EnableWebhook, act).await)
        }
        Action::ReadToken => {
            let act = async |access| deployer.webhook(&access).await;
            of(allowed(management, who, id, AppAction::ReadToken, act).await)
        }
        Action::ReadCalls => of(management.webhook_calls(who, id).await),
        Action::TestCheck => of(management.test_check(who, id, &"front".parse().unwrap()).await),
        Action::DisableWebhook => of(management.disable_webhook(who, id).await),
        Action::ChangeTrusts => of(management.remove_trust(who, id, &"0123456789abcdef".parse().unwrap()).await),
        Action::Register => {
            let app = super::registration("second", Policy::default());
            of(management.register(who, app, None).await)
        }
        Action::Change => {
            let act = async |access| deployer.change_policy(&access, PolicyChange::default()).await;
            of(allowed(management, who, id, AppAction::Change, act).await)
        }
        Action::Require => of(management.end_requirement(who, &realm("shop", "test")).await),
        Action::ManageTokens => of(management.create_api_token(who, token("other", Role::Viewer)).await),
        Action::ManageSessions => of(management.end_sessions_of(who, "nobody").await),
        Action::ManageReceivers => of(management.receivers(who).await),
        Action::ReadAudit => of(management.audited(who, None, 10).await),
        Action::Delete => of(management.delete(who, id).await),
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
