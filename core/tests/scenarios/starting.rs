//! Which apps a process drives: those of its own driver, under a name of its own, and only the work that it can do.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, select_biased};
use rollhook_conformance::samples;
use rollhook_core::{
    app::{AppId, Policy},
    deploy::{Deploy, Status},
    ports::{Binding, DriverIdentity, HistoryStore},
    request::{Refusal, RollbackRequest},
    service::{Authorized, Deployer, Scope, StartError},
    token::Credentials,
};

use crate::world::{World, api, request, statuses};

const SECOND: Duration = Duration::from_secs(1);

impl World {
    /// Binds the store to a driver, whatever it was bound to.
    async fn bind(&self, driver: &str) {
        self.store.bind_driver(&DriverIdentity(driver.to_owned()), Binding::Replace).await.unwrap();
    }

    /// A process without a builder.
    fn without_builder(&self, name: &str, seed: u64) -> Deployer {
        Deployer::new(self.ports(seed).with(|ports| ports.builder = None), name)
    }

    /// A git app that runs revision 2, and has revision 1 to go back to.
    async fn app_built_twice(&self, policy: Policy) -> Authorized {
        let access = self.built_app(policy).await;
        self.deploy_commit(&access, "b2").await.unwrap();
        assert_eq!(self.ended(&access, 2).await.status(), Status::Succeeded);
        access
    }

    /// Runs an engine for some seconds.
    async fn engine(&self, engine: &Deployer, seconds: u64) {
        let mut engine = Box::pin(engine.run(self.sleep(seconds)).fuse());
        let mut late = Box::pin(self.sleep(seconds + 100).fuse());
        select_biased! {
            end = engine => end.unwrap(),
            () = late => panic!("the engine does not stop"),
        }
    }
}

#[test]
fn process_with_another_driver_is_refused_and_records_nothing() {
    let world = World::new(SECOND);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        world.bind("kubernetes 7").await;
        let error = world.deployer.bind_driver().await.unwrap_err();
        let told = error.to_string();
        assert!(matches!(error, StartError::OtherDriver { .. }), "{told}");
        assert!(
            told.contains("\"kubernetes 7\"") && told.contains("\"simulated\"") && told.contains("rebind"),
            "{told}"
        );
        let end = world.deployer.run(std::future::pending()).await;
        assert!(matches!(end, Err(StartError::OtherDriver { .. })), "{end:?}");
        assert_eq!((statuses(&world.history(&access).await), world.effects()), (vec![(1, Status::Queued)], vec![]));
    });
    world.idle(world.bind("simulated"));
    world.run(async {
        let access = world.webhook(&world.access(&"shop-test/api".parse().unwrap()).await).await;
        assert_eq!(world.ended(&access, 1).await.status(), Status::Succeeded, "the next engine is the right one");
    });
}

#[test]
fn first_driver_of_a_store_is_recorded() {
    let world = World::new(SECOND);
    world.run(async {
        world.app("api", Policy::default()).await;
        world.deployer.bind_driver().await.unwrap();
        let other = DriverIdentity("kubernetes 7".to_owned());
        assert_eq!(world.store.bind_driver(&other, Binding::First).await.unwrap().0, "simulated");
    });
}

#[test]
fn engine_whose_store_is_bound_to_another_driver_meanwhile_stops() {
    let world = World::new(SECOND);
    let access = world.run(async { world.app("api", Policy::default()).await });
    world.idle(async {
        let mut engine = Box::pin(world.deployer.run(std::future::pending()).fuse());
        let mut late = Box::pin(
            async {
                world.sleep(5).await;
                world.bind("kubernetes 7").await;
                world.sleep(15).await;
            }
            .fuse(),
        );
        select_biased! {
            end = engine => assert!(matches!(end, Err(StartError::OtherDriver { .. })), "{end:?}"),
            () = late => panic!("the engine goes on"),
        }
        let asks = samples::replica("asks", 7);
        let alive = world.store.heartbeat(&asks, Duration::ZERO).await.unwrap().alive;
        assert_eq!(alive, [], "its leases are released");
        let deploy = world.deploy(&access, &api("v2")).await.unwrap().deploy;
        assert_eq!(world.entry(&access, deploy.revision.get()).await.status(), Status::Queued);
    });
}

#[test]
fn callers_of_every_app_are_recognised_soon_after_a_restart() {
    let world = World::new(SECOND);
    let ids: Vec<AppId> = (0..300).map(|index| format!("shop-test/app-{index}").parse().unwrap()).collect();
    let mut known = Vec::new();
    world.idle(async {
        for id in &ids {
            let access = world.register(id.name.as_str(), Policy::default()).await;
            let secret = world.deployer.enable_webhook(&access).await.unwrap();
            known.push(Credentials::token(secret.token.expose().as_bytes()));
        }
        let restarted = world.replica("one", 2);
        let recognised = || ids.iter().zip(&known).filter(|(id, good)| restarted.recognizes(id, good, b"")).count();
        assert_eq!(recognised(), 0);
        let mut read = Box::pin(restarted.read_tokens().fuse());
        let mut second = Box::pin(world.sleep(1).fuse());
        select_biased! {
            () = read => panic!("300 reads at once"),
            () = second => assert!((1..=100).contains(&recognised())),
        }
        read.await;
        assert_eq!(recognised(), 300);
        let wrong = Credentials::token(b"rh_wrong");
        assert!(!ids.iter().any(|id| restarted.recognizes(id, &wrong, b"")));
    });
}

#[test]
fn living_twin_is_refused_and_the_first_one_goes_on() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.sleep(3).await;
        let twin = world.replica("one", 2);
        assert!(matches!(twin.refuse_twin().await, Err(StartError::Twin(name)) if name == "one"));
        world.replica("two", 3).refuse_twin().await.unwrap();
        assert_eq!(world.deployed(&access, &api("v2")).await.status(), Status::Succeeded);
    });
}

#[test]
fn process_that_was_killed_is_no_twin() {
    let world = World::new(SECOND);
    world.run(async { world.app("api", Policy::default()).await });
    // The engine was dropped without releasing anything, as by SIGKILL.
    let restarted = world.replica("one", 2);
    world.idle(restarted.refuse_twin()).unwrap();
    world.run_beside(&restarted, async {
        let access = world.webhook(&world.access(&"shop-test/api".parse().unwrap()).await).await;
        assert_eq!(world.deployed(&access, &api("v2")).await.status(), Status::Succeeded);
    });
}

#[test]
fn command_line_drives_only_the_app_that_it_was_called_for() {
    let world = World::new(SECOND);
    let [ours, others] =
        world.run(async { [world.app("api", Policy::default()).await, world.app("web", Policy::default()).await] });
    world.idle(async {
        // No server is left, and both apps have work.
        world.sleep(60).await;
        world.deploy(&others, &api("v2")).await.unwrap();
    });
    let command = Deployer::new(world.ports(2), "cli-1").with_scope(Scope::OwnCalls);
    world.run_beside(&command, async {
        let revision = command.submit(&ours, request(&api("v2"))).await.unwrap().deploy.revision;
        assert_eq!(world.ended(&ours, revision.get()).await.status(), Status::Succeeded);
        world.sleep(60).await;
        assert_eq!(world.entry(&others, 2).await.status(), Status::Queued, "it is a server's to drive");
    });
    world.run(async { assert_eq!(world.ended(&others, 2).await.status(), Status::Succeeded) });
}

#[test]
fn command_line_takes_its_app_over_from_a_server_that_died() {
    let world = World::new(Duration::from_secs(60));
    let access = world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deploy(&access, &api("v2")).await.unwrap();
        world.sleep(1).await;
        access
    });
    let command = Deployer::new(world.ports(2), "cli-1").with_scope(Scope::OwnCalls);
    world.run_beside(&command, async {
        let back = command.rollback(&access, RollbackRequest::default()).await.unwrap().deploy;
        assert_eq!(world.ended(&access, back.revision.get()).await.status(), Status::Succeeded);
    });
}

#[test]
fn queued_build_is_left_to_a_replica_with_a_builder() {
    let world = World::new(SECOND);
    let access = world.idle(async {
        let access = world.git_app(Policy::default()).await;
        world.deploy_commit(&access, "a1").await.unwrap();
        world.engine(&world.without_builder("two", 2), 120).await;
        assert_eq!(world.entry(&access, 1).await.status(), Status::Queued);
        access
    });
    world.run(async { assert_eq!(world.ended(&access, 1).await.status(), Status::Succeeded) });
}

#[test]
fn process_without_a_builder_refuses_to_build_and_still_rolls_back() {
    let world = World::new(SECOND);
    let access = world.run(world.app_built_twice(Policy::default()));
    let command = Arc::new(world.without_builder("cli-1", 2).with_scope(Scope::OwnCalls));
    world.run_beside(&command, async {
        let refused = command.rebuild(&access, None, None).await;
        assert!(matches!(refused, Err(Refusal::NoBuilder)));
        let back = command.rollback(&access, RollbackRequest::default()).await.unwrap().deploy;
        assert_eq!(world.ended(&access, back.revision.get()).await.status(), Status::Succeeded);
        assert_eq!(world.history(&access).await.iter().filter(|deploy| !Deploy::is_terminal(deploy)).count(), 0);
    });
}

#[test]
fn build_that_arrives_during_a_rollback_without_a_builder_is_left_to_a_server() {
    let world = World::new(Duration::from_secs(20));
    let access = world.run(world.app_built_twice(Policy::default()));
    let command = world.without_builder("cli-1", 2).with_scope(Scope::OwnCalls);
    world.run_beside(&command, async {
        command.rollback(&access, RollbackRequest::default()).await.unwrap();
        world.sleep(5).await;
        world.deploy_commit(&access, "c3").await.unwrap();
        world.sleep(60).await;
        assert_eq!(world.entry(&access, 4).await.status(), Status::Queued);
    });
    world.run(async {
        assert_eq!(world.ended(&access, 4).await.status(), Status::Succeeded);
        let history = world.history(&access).await;
        assert!(history.iter().all(Deploy::is_terminal), "{:?}", statuses(&history));
    });
}

#[test]
fn polled_app_is_rolled_back_by_a_process_without_a_builder() {
    let world = World::new(SECOND);
    let polled = Policy::default().with(|policy| policy.poll = Some(Duration::from_secs(60)));
    let access = world.run(world.app_built_twice(polled));
    let command = world.without_builder("cli-1", 2).with_scope(Scope::OwnCalls);
    world.run_beside(&command, async {
        world.sleep(60).await;
        let back = command.rollback(&access, RollbackRequest::default()).await.unwrap().deploy;
        assert_eq!(world.ended(&access, back.revision.get()).await.status(), Status::Succeeded);
        world.sleep(60).await;
        assert_eq!(world.view(&access).await.lease, None, "polling is left to a server");
    });
}

#[test]
fn rollout_under_way_is_finished_without_a_builder_and_the_build_behind_it_is_left() {
    let world = World::new(Duration::from_secs(60));
    let access = world.run(async {
        let access = world.git_app(Policy::default()).await;
        world.deploy_commit(&access, "a1").await.unwrap();
        world.sleep(40).await;
        assert_eq!(world.entry(&access, 1).await.status(), Status::RollingOut);
        world.deploy_commit(&access, "b2").await.unwrap();
        access
    });
    world.run_beside(&world.without_builder("two", 2), async {
        assert_eq!(world.ended(&access, 1).await.status(), Status::Succeeded);
        world.sleep(60).await;
        assert!(!world.entry(&access, 2).await.is_terminal(), "the build is for a replica with a builder");
    });
    world.run(async { assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded) });
}
