//! Waiting for an app to change, and confirming an operator by the hash of the token.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod world;

use std::time::Duration;

use futures_util::future::join;
use rollhook_core::{app::Policy, ports::Clock, request::Refusal};
use sha2::{Digest, Sha256};
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

#[test]
fn the_hash_of_a_replaced_token_confirms_nobody() {
    let world = World::new(Duration::ZERO);
    world.idle(async {
        let deployer = &world.deployer;
        let token = deployer.new_token();
        assert!(deployer.adopt_operator_token(&token).await.unwrap());
        let hash = |text: &str| -> [u8; 32] { Sha256::digest(text.as_bytes()).into() };
        let operator = deployer.confirm_operator(&hash(token.expose()), "ada").await.unwrap();
        assert_eq!(operator.actor().to_string(), "ada");
        assert!(deployer.recognizes_operator_hash(&hash(token.expose())));
        let other = deployer.new_token();
        let refused = deployer.confirm_operator(&hash(other.expose()), "ada").await;
        assert_eq!(refused.unwrap_err(), Refusal::Unauthorized);
        assert!(!deployer.recognizes_operator_hash(&hash(other.expose())));
    });
}
