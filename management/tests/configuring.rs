//! Changes of configurations: how often, and what the audit keeps of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod world;

use std::time::Duration;

use rollhook_core::{
    configuration::{Variable, VariablesChange},
    deploy::Status,
    request::{ConfigureRequest, RollbackRequest},
    service::Configured,
};
use rollhook_management::{
    Outcome, Refusal,
    access::{Action, Grant, Principal, Role},
};
use world::{
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

#[test]
fn rollback_to_what_an_admin_took_away_is_for_admins() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.cluster.take_settings();
    world.run(async {
        let id = register(&world, "shop", "test").await;
        let access = world.access(&id).await;
        world.ended(&access, 1).await;
        let made_with = async |volume: serde_json::Value| {
            let settings = [("volumes".to_owned(), volume)].into_iter().collect();
            let change = VariablesChange { settings, ..VariablesChange::default() };
            let request = ConfigureRequest::default().with(|request| request.change = change);
            let configured = world.management.configure(&world.operator, &id, request, None).await.unwrap();
            let Configured::Deploy(accepted) = configured else { panic!("{configured:?}") };
            let revision = accepted.deploy.revision;
            assert_eq!(world.ended(&access, revision.get()).await.status(), Status::Succeeded);
            revision
        };
        let mounted = made_with("/var/run/docker.sock:/s".into()).await;
        let without = made_with(serde_json::Value::Null).await;
        let back = async |role, revision| -> Outcome<()> {
            let who = Principal::new("somebody", [Grant { role, realm: realm("shop", "test") }]);
            let request = RollbackRequest::default()
                .with(|request| (request.revision, request.with_configuration) = (Some(revision), true));
            let accepted = world.management.roll_back(&who, &id, request).await?;
            world.ended(&access, accepted.deploy.revision.get()).await;
            Ok(())
        };
        let refused = back(Role::Deployer, mounted).await.unwrap_err();
        assert_eq!(refused, Refusal::Forbidden(Action::Change, Some(Role::Deployer)));
        back(Role::Deployer, without).await.unwrap();
        back(Role::Admin, mounted).await.unwrap();
        let refused = back(Role::Deployer, without).await.unwrap_err();
        assert_eq!(refused, Refusal::Forbidden(Action::Change, Some(Role::Deployer)), "nor is anything taken away");
    });
}
