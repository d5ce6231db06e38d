//! Waiting for an app to change.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod world;

use std::time::Duration;

use futures_util::future::join;
use rollhook_core::{app::Policy, ports::Clock};
use world::{World, api};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_new_deploy_is_seen_before_the_next_poll() {
    let world = World::new(Duration::ZERO);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let deployer = &world.deployer;
        let seen = deployer.state(&access).await.unwrap();
        let begin = world.clock.elapsed();
        let (changed, deployed) = join(deployer.state_changed(&access, &seen, LIMIT), async {
            world.sleep(1).await;
            world.deploy(&access, &api("v2")).await
        })
        .await;
        let (changed, revision) = (changed.unwrap(), deployed.unwrap().deploy.revision);
        assert_eq!(changed.latest, Some(revision));
        assert!(world.clock.elapsed() - begin < Duration::from_secs(2), "the commit itself is told");
    });
}

#[test]
fn an_app_that_does_not_change_is_returned_when_the_time_is_over() {
    let world = World::new(Duration::ZERO);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let seen = world.deployer.state(&access).await.unwrap();
        let begin = world.clock.elapsed();
        let unchanged = world.deployer.state_changed(&access, &seen, LIMIT).await.unwrap();
        assert_eq!(unchanged, seen);
        assert_eq!(world.clock.elapsed() - begin, LIMIT);
    });
}
