//! The sources of git apps: those that the operator allows, and those that change while they are built.

use std::time::Duration;

use rollhook_conformance::samples::git_source;
use rollhook_core::{
    app::{Policy, Source},
    deploy::Status,
    request::{PolicyChange, Refusal, SourceChange, TargetChange},
    service::Deployer,
    source::{AllowedSources, GitSource, SourceRefused},
};

use crate::world::{World, git, reason};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn local_sources_are_the_operators_to_allow() {
    let world = World::new(SECOND);
    world.run(async {
        for url in ["http://git.example.com/a.git", "file:///srv/a.git", "https://127.0.0.1/a.git"] {
            let local = GitSource { url: url.parse().unwrap(), ..git_source() };
            let wanted = git("api", Policy::default()).with(|app| app.source = Source::Git(local));
            let refused = world.deployer.register(&world.operator, wanted, None).await.unwrap_err();
            assert!(matches!(refused, Refusal::SourceNotAllowed(_)), "{url}: {refused:?}");
        }
        let access = world.git_app(Policy::default()).await;
        let local = SourceChange { url: "file:///srv/a.git".parse().ok(), ..SourceChange::default() };
        let change = world.deployer.change(&access, PolicyChange::default(), local, TargetChange::default()).await;
        assert!(matches!(change, Err(Refusal::SourceNotAllowed(_))));
    });
}

#[test]
fn a_changed_source_ends_the_build_and_the_next_is_built_from_the_new_one() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        world.deploy_commit(&access, "c3").await.unwrap();
        world.sleep(5).await;
        let change =
            SourceChange { image_repository: "registry.example.com/shop/next".parse().ok(), ..SourceChange::default() };
        let change = world.deployer.change(&access, PolicyChange::default(), change, TargetChange::default()).await;
        assert!(change.is_ok());
        assert_eq!(reason(&world.ended(&access, 2).await).0, "source-changed");
        let next = world.ended(&access, 3).await;
        assert_eq!(next.status(), Status::Succeeded, "what had not begun is built from the new source");
        assert_eq!(next.image.unwrap().repository(), "registry.example.com/shop/next");
        assert_eq!(world.effects(), [1, 3]);
        world.quiet(&access).await;
    });
}

#[test]
fn source_changed_without_a_driver_cancels_the_build() {
    let world = World::new(SECOND);
    let access = world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        world.sleep(5).await;
        access
    });
    world.idle(async {
        let change = SourceChange { branch: "next".parse().ok(), ..SourceChange::default() };
        let change = world.deployer.change(&access, PolicyChange::default(), change, TargetChange::default()).await;
        assert!(change.is_ok());
        world.sleep(60).await;
    });
    let history = world.run(world.quiet(&access));
    assert_eq!(reason(&history[1]).0, "source-changed", "though the build had ended well by then");
    assert_eq!(world.effects(), [1]);
}

#[test]
fn sources_on_other_hosts_than_the_operators_are_refused() {
    let world = World::new(SECOND);
    world.run(async {
        let ports = world.ports(9);
        let sources = AllowedSources { local: false, hosts: vec!["*.corp.example".parse().unwrap()] };
        let ports = ports.with(|ports| ports.builder.as_mut().unwrap().sources = sources);
        let deployer = Deployer::new(ports, "bounded");
        let register = async |url: &str| {
            let source = Source::Git(GitSource { url: url.parse().unwrap(), ..git_source() });
            deployer
                .register(&world.operator, git("api", Policy::default()).with(|app| app.source = source), None)
                .await
        };
        let refused = register("https://git.evil.example/a.git").await.unwrap_err();
        assert_eq!(refused, Refusal::SourceNotAllowed(SourceRefused::Host));
        register("https://git.corp.example/a.git").await.unwrap();
    });
}
