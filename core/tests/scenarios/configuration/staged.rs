//! Staged changes: repeated by their keys, and withdrawn.

use super::*;

fn keyed(request: ConfigureRequest, name: &str, body: u8) -> ConfigureRequest {
    let key = IdempotencyKey::new(KeyHeader::IdempotencyKey, name, [body; 32]).unwrap();
    request.with(|request| request.key = Some(key))
}

#[test]
fn repeated_staged_change_is_answered_as_the_first_was() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        let first = keyed(staged(set(&[("A", "one")])), "first", 1);
        let is_replayed = |replayed| Ok(Configured::Staged { replayed });
        assert_eq!(world.configure(&access, first.clone()).await, is_replayed(false));
        assert_eq!(world.configure(&access, staged(set(&[("A", "two")]))).await, is_replayed(false));
        let before = world.stored(&access).await;
        assert_eq!(world.configure(&access, first.clone()).await, is_replayed(true));
        assert_eq!(world.stored(&access).await, before, "it changes nothing twice");
        for other in [staged(set(&[("B", "one")])), set(&[("B", "one")])] {
            assert_eq!(world.configure(&access, keyed(other, "first", 2)).await, Err(Refusal::KeyReused));
        }
        // Nor is it free for a call of another kind.
        let key = keyed(set(&[]), "first", 3).key;
        let deploy = rollhook_core::request::DeployRequest::image(api("v2").parse().unwrap());
        let deploy = deploy.with(|deploy| deploy.key = key);
        let refused = world.deployer.submit(&access, deploy).await;
        assert!(matches!(refused, Err(Refusal::KeyReused)), "{refused:?}");
        world.deployed(&access, &api("v2")).await;
        world.runs(&access, &[("A", "two")]).await;
        assert_eq!(world.configure(&access, first).await, is_replayed(true), "also once it was deployed");
        // So many keys are known: the oldest is free again.
        for number in 0..20_u8 {
            let value = number.to_string();
            let next = keyed(staged(set(&[("A", &value)])), &format!("next {number}"), number);
            assert_eq!(world.configure(&access, next).await, is_replayed(false));
        }
        let first = keyed(staged(set(&[("A", "one")])), "first", 1);
        assert_eq!(world.configure(&access, first).await, is_replayed(false));
    });
}

#[test]
fn staged_change_can_be_withdrawn() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configured(&access, &[("A", "one")]).await;
        let running = world.stored(&access).await;
        world.configure(&access, staged(set(&[("A", "two")]))).await.unwrap();
        assert_eq!(world.stored(&access).await.len(), running.len() + 1);
        assert_eq!(world.deployer.discard_configuration(&access).await, Ok(true));
        assert_eq!(world.stored(&access).await, running, "its values are gone");
        assert_eq!(world.names(&access, None).await.1, None);
        assert_eq!(world.deployer.discard_configuration(&access).await, Ok(false));
        world.deployed(&access, &api("v2")).await;
        world.runs(&access, &[("A", "one")]).await;
        // A deploy that has begun with it goes on, and keeps the values.
        world.configure(&access, staged(set(&[("A", "two")]))).await.unwrap();
        let begun = world.deploy(&access, &api("v3")).await.unwrap().deploy.revision;
        while world.view(&access).await.rolling_out().is_none() {
            world.sleep(1).await;
        }
        assert_eq!(world.deployer.discard_configuration(&access).await, Ok(true));
        assert_eq!(world.ended(&access, begun.get()).await.status(), Status::Succeeded);
        world.runs(&access, &[("A", "two")]).await;
    });
}
