//! Waiting for an app to change.

use std::time::Duration;

use futures_util::future::join;
use rollhook_core::{app::Policy, ports::Clock};

use crate::world::{World, api};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_new_deploy_is_seen_before_the_next_poll() {
    let world = World::new(Duration::ZERO);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let deployer = &world.deployer;
        let seen = deployer.state(&access).await.unwrap();
        let begin = world.clock.elapsed();
        let (changed, deployed) = join(deployer.state_changed(&access, (&seen, None), LIMIT), async {
            world.sleep(1).await;
            world.deploy(&access, &api("v2")).await
        })
        .await;
        let ((changed, _), revision) = (changed.unwrap(), deployed.unwrap().deploy.revision);
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
        let unchanged = world.deployer.state_changed(&access, (&seen, None), LIMIT).await.unwrap();
        assert_eq!(unchanged, (seen, None));
        assert_eq!(world.clock.elapsed() - begin, LIMIT);
    });
}

#[test]
fn the_pods_of_a_rollout_are_seen_while_its_entry_stays_as_it_is() {
    let world = World::new(Duration::from_secs(20));
    world.run(async {
        let access = world.register("api", Policy::default()).await;
        let deployed = world.deploy(&access, &api("v2")).await.unwrap().deploy.revision;
        let (mut state, mut progress) = (world.deployer.state(&access).await.unwrap(), None);
        let mut pods = Vec::new();
        while state.current.as_ref().is_none_or(|current| current.revision != deployed) {
            let seen = (&state, progress.as_ref());
            (state, progress) = world.deployer.state_changed(&access, seen, LIMIT).await.unwrap();
            pods.extend(progress.as_ref().and_then(|progress| progress.instances).map(|pods| pods.ready));
        }
        pods.dedup();
        assert!(pods.len() > 1 && pods.is_sorted(), "{pods:?}");
        assert_eq!(world.deployer.progress(&state, &world.entry(&access, 2).await), None);
    });
}
