//! Changes of configurations: how often, and what the audit keeps of them.

use std::time::Duration;

use rollhook_core::{
    app::AppId,
    configuration::{Variable, VariableName, VariablesChange},
    deploy::{Revision, Status},
    request::{ConfigureRequest, RollbackRequest},
    service::Configured,
};
use rollhook_management::{
    Outcome, Refusal,
    access::{Action, Grant, Principal, Role},
};

use crate::world::{
    ManagedWorld,
    actions::{realm, register},
};

fn set(name: &str) -> ConfigureRequest {
    let set = [(name.parse().unwrap(), Variable::new("1".to_owned(), true))].into();
    let change = VariablesChange { set, ..VariablesChange::default() };
    ConfigureRequest::default().with(|request| (request.change, request.staged) = (change, true))
}

#[test]
fn configurations_of_an_environment_change_at_a_bounded_rate() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        let (here, there) = (register(&world, "shop", "test").await, register(&world, "shop", "prod").await);
        let configure = async |id, request| world.management.configure(&world.operator, id, request, None).await;
        for number in 0..60 {
            configure(&here, set(&format!("V{number}"))).await.unwrap();
        }
        let refused = configure(&here, set("LAST")).await.unwrap_err();
        assert!(matches!(refused, Refusal::TooManyConfigurationChanges(_)), "{refused}");
        configure(&there, set("LAST")).await.unwrap();
        world.sleep(2).await;
        configure(&here, set("LAST")).await.unwrap();
    });
}

#[test]
fn audit_keeps_the_beginning_of_a_long_change() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        let id = register(&world, "shop", "test").await;
        let settings = (0..20).map(|number| (format!("{number}{}", "\u{202e}".repeat(250)), 1.into())).collect();
        let change = VariablesChange { settings, ..VariablesChange::default() };
        let request = ConfigureRequest::default().with(|request| request.change = change);
        world.management.configure(&world.operator, &id, request, None).await.unwrap_err();
        let entries = world.management.audited(&world.operator, None, 10).await.unwrap().0;
        let longest = entries.iter().map(|audited| audited.entry.subject.len()).max().unwrap();
        assert!((600..700).contains(&longest), "{longest}");
    });
}

/// A change of what instances are made with.
fn made_with(volume: serde_json::Value) -> ConfigureRequest {
    let settings = [("volumes".to_owned(), volume)].into_iter().collect();
    let change = VariablesChange { settings, ..VariablesChange::default() };
    ConfigureRequest::default().with(|request| request.change = change)
}

fn staged(request: ConfigureRequest) -> ConfigureRequest {
    request.with(|request| request.staged = true)
}

fn somebody(role: Role) -> Principal {
    Principal::new("somebody", [Grant { role, realm: realm("shop", "test") }])
}

fn may_not_change() -> Refusal {
    Refusal::Forbidden(Action::Change, Some(Role::Deployer))
}

/// An app whose first version has succeeded.
async fn deployed(world: &ManagedWorld) -> AppId {
    let id = register(world, "shop", "test").await;
    world.ended(&world.access(&id).await, 1).await;
    id
}

/// Changes the configuration by a deploy, and returns its revision.
async fn configured(world: &ManagedWorld, id: &AppId, request: ConfigureRequest) -> Revision {
    let configured = world.management.configure(&world.operator, id, request, None).await.unwrap();
    let Configured::Deploy(accepted) = configured else { panic!("{configured:?}") };
    let ended = world.ended(&world.access(id).await, accepted.deploy.revision.get()).await;
    assert_eq!(ended.status(), Status::Succeeded);
    ended.revision
}

/// Returns with its configuration to a revision.
async fn back(world: &ManagedWorld, role: Role, id: &AppId, revision: Revision) -> Outcome<()> {
    let request = RollbackRequest::default()
        .with(|request| (request.revision, request.with_configuration) = (Some(revision), true));
    let accepted = world.management.roll_back(&somebody(role), id, request).await?;
    world.ended(&world.access(id).await, accepted.deploy.revision.get()).await;
    Ok(())
}

#[test]
fn what_an_admin_has_staged_of_containers_is_withdrawn_by_admins_alone() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.cluster.take_settings();
    world.run(async {
        let id = deployed(&world).await;
        let current = configured(&world, &id, made_with("data:/data".into())).await;
        let before = configured(&world, &id, set("A").with(|request| request.staged = false)).await;
        let stage = async |request| {
            let made = world.management.configure(&world.operator, &id, staged(request), None).await.unwrap();
            assert_eq!(made, Configured::Staged { replayed: false });
        };
        let discard = async |role| world.management.discard_configuration(&somebody(role), &id).await;
        stage(set("B")).await;
        assert!(discard(Role::Deployer).await.unwrap(), "variables are the deployers' own");
        stage(made_with("other:/data".into())).await;
        assert_eq!(discard(Role::Deployer).await.unwrap_err(), may_not_change());
        let refused = back(&world, Role::Deployer, &id, current).await.unwrap_err();
        assert_eq!(refused, may_not_change(), "a rollback with configuration withdraws what waits");
        assert!(discard(Role::Admin).await.unwrap());
        assert!(!discard(Role::Deployer).await.unwrap());
        back(&world, Role::Deployer, &id, current).await.unwrap();
        stage(made_with("other:/data".into())).await;
        back(&world, Role::Admin, &id, before).await.unwrap();
        assert!(!discard(Role::Deployer).await.unwrap(), "it went with the rollback");
    });
}

#[test]
fn variable_by_which_a_proxy_leads_requests_is_for_admins() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        let id = deployed(&world).await;
        let name: VariableName = "SIMULATED_ROUTE".parse().unwrap();
        let configure = async |role, request| world.management.configure(&somebody(role), &id, request, None).await;
        let now = |request: ConfigureRequest| request.with(|request| request.staged = false);
        let refusal = Refusal::ForbiddenVariable(name.clone(), Some(Role::Deployer));
        assert_eq!(configure(Role::Deployer, set("SIMULATED_ROUTE")).await.unwrap_err(), refusal);
        assert!(refusal.to_string().contains("SIMULATED_ROUTE here: a proxy leads requests"), "{refusal}");
        let steered = configured(&world, &id, now(set("SIMULATED_ROUTE"))).await;
        let unset = VariablesChange { unset: [name].into(), ..VariablesChange::default() };
        let unset = ConfigureRequest::default().with(|request| request.change = unset);
        assert_eq!(configure(Role::Deployer, staged(unset.clone())).await.unwrap_err(), refusal);
        configure(Role::Admin, staged(unset.clone())).await.unwrap();
        let refused = world.management.discard_configuration(&somebody(Role::Deployer), &id).await.unwrap_err();
        assert_eq!(refused, may_not_change());
        let plain = configured(&world, &id, now(set("A"))).await;
        let refused = back(&world, Role::Deployer, &id, steered).await.unwrap_err();
        assert_eq!(refused, may_not_change());
        back(&world, Role::Admin, &id, steered).await.unwrap();
        assert_eq!(back(&world, Role::Deployer, &id, plain).await.unwrap_err(), may_not_change());
        configure(Role::Deployer, set("OTHER")).await.unwrap();
    });
}

#[test]
fn rollback_to_what_an_admin_took_away_is_for_admins() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.cluster.take_settings();
    world.run(async {
        let id = deployed(&world).await;
        let mounted = configured(&world, &id, made_with("/var/run/docker.sock:/s".into())).await;
        let without = configured(&world, &id, made_with(serde_json::Value::Null)).await;
        assert_eq!(back(&world, Role::Deployer, &id, mounted).await.unwrap_err(), may_not_change());
        back(&world, Role::Deployer, &id, without).await.unwrap();
        back(&world, Role::Admin, &id, mounted).await.unwrap();
        let refused = back(&world, Role::Deployer, &id, without).await.unwrap_err();
        assert_eq!(refused, may_not_change(), "nor is anything taken away");
    });
}
