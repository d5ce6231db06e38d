//! Apps and calls: registering, tokens, keys, limits and the end; each rule as a scenario on the whole engine under
//! simulated time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod world;

use std::time::Duration;

use rollhook_conformance::samples;
use rollhook_core::{
    app::{Policy, Target},
    deploy::{Revision, Status, Trigger},
    request::{DeployRequest, IdempotencyKey, KeyHeader, PolicyChange, Refusal},
    token::Credentials,
};
use rollhook_memory::Script;
use serde_json::json;
use world::{World, api, git, hold_all, image, registration, request, tag};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn token_is_checked_first_and_opens_one_app() {
    let world = World::new(SECOND);
    world.run(async {
        let api = world.app("api", Policy::default()).await;
        let web = world.app("web", Policy::default()).await;
        let secret = world.deployer.enable_webhook(&world.operator, api.app()).await.unwrap();
        let other = world.deployer.enable_webhook(&world.operator, web.app()).await.unwrap();
        let with = |text: &str| Credentials::token(text.as_bytes());
        let try_ = async |id: &str, credentials: Credentials| {
            world.deployer.authorize(&id.parse().unwrap(), &credentials, b"{}").await.map(|access| access.uid())
        };
        let denied = Err(Refusal::Unauthorized);
        assert_eq!(try_("shop-test/api", with(secret.token.expose())).await, Ok(api.uid()));
        assert_eq!(try_("shop-test/api", with(other.token.expose())).await, denied);
        assert_eq!(try_("shop-test/api", with("nonsense")).await, denied);
        assert_eq!(try_("shop-test/api", Credentials::default()).await, denied);
        assert_eq!(try_("shop-test/none", with(secret.token.expose())).await, denied);
        assert_eq!(try_("shop-prod/api", with(secret.token.expose())).await, denied);
        // Enable regenerates.
        let renewed = world.deployer.enable_webhook(&world.operator, api.app()).await.unwrap();
        assert_eq!(try_("shop-test/api", with(secret.token.expose())).await, denied);
        assert_eq!(try_("shop-test/api", with(renewed.token.expose())).await, Ok(api.uid()));
        world.deployer.disable_webhook(&world.operator, api.app()).await.unwrap();
        assert_eq!(try_("shop-test/api", with(renewed.token.expose())).await, denied);
    });
}

#[test]
fn deleting_an_app_ends_its_deploys_and_leaves_the_workload() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let ci = world.webhook(access.app()).await;
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(2).await;
        let before = world.effects();
        world.deployer.delete(&world.operator, access.app()).await.unwrap();
        world.sleep(60).await;
        assert_eq!(world.effects(), before);
        let late = world.deployer.submit(&ci, request(&api("v9"))).await.unwrap_err();
        assert!(matches!(late, Refusal::AppNotFound(_)));
        // A new registration of the name starts clean, and must say that it takes the workload over.
        let refused = world.deployer.register(&world.operator, registration("api", Policy::default()), None).await;
        assert!(matches!(refused, Err(Refusal::WorkloadTaken(_))), "{refused:?}");
        let wanted = rollhook_core::request::Registration { take_over: true, ..registration("api", Policy::default()) };
        let again = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        assert_ne!(again.app.app.uid, access.uid());
        assert_eq!(again.deploy.unwrap().revision, Revision::FIRST);
        assert!(again.adopted);
        let late = world.deployer.submit(&ci, request(&api("v9"))).await.unwrap_err();
        assert!(matches!(late, Refusal::AppNotFound(_)), "the old registration's token opens nothing");
        let access = world.deployer.open(&world.operator, &again.app.app.id).await.unwrap();
        assert_eq!(world.deployed(&access, &api("v5")).await.status(), Status::Succeeded);
    });
}

#[test]
fn taken_over_workload_is_current_for_any_revision_it_carries() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        world.deployer.delete(&world.operator, access.app()).await.unwrap();
        let wanted = rollhook_core::request::Registration { take_over: true, ..registration("api", Policy::default()) };
        let again = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        let access = world.deployer.open(&world.operator, &again.app.app.id).await.unwrap();
        let first = world.ended(&access, 1).await;
        assert_eq!((first.status(), tag(&first).as_str()), (Status::Succeeded, "v2"), "{first:?}");
        world.deployed(&access, &api("v3")).await;
        assert_eq!(world.rolled_back(&access).await.effective.get(), 1);
    });
}

#[test]
fn at_most_a_hundred_are_unfinished() {
    let world = World::new(SECOND);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let keyed = |key: &str, body: u8| DeployRequest {
            key: Some(IdempotencyKey::new(KeyHeader::IdempotencyKey, key, [body; 32]).unwrap()),
            ..request(&api("v2"))
        };
        let first = world.deployer.submit(&access, keyed("run-1", 1)).await.unwrap();
        for n in 0..98 {
            world.deploy(&access, &api(&format!("n{n}"))).await.unwrap();
        }
        assert_eq!(world.deploy(&access, &api("more")).await, Err(Refusal::TooManyUnfinished));
        assert_eq!(world.deployer.submit(&access, keyed("run-2", 1)).await, Err(Refusal::TooManyUnfinished));
        let again = world.deployer.submit(&access, keyed("run-1", 1)).await.unwrap();
        assert_eq!(
            (again.deploy.revision, again.replayed),
            (first.deploy.revision, true),
            "a known key is answered first"
        );
        assert_eq!(world.deployer.submit(&access, keyed("run-1", 2)).await, Err(Refusal::KeyReused));
        assert_eq!(world.history(&access).await.len(), 100);
    });
}

#[test]
fn a_key_makes_one_deploy_and_shows_its_present_state() {
    let world = World::new(SECOND);
    let keyed = |image_tag: &str, key: &str, body: u8| DeployRequest {
        key: Some(IdempotencyKey::new(KeyHeader::IdempotencyKey, key, [body; 32]).unwrap()),
        ..request(&api(image_tag))
    };
    world.run(async {
        let access = world.app("api", hold_all()).await;
        let calls = (0..50).map(|_| world.deployer.submit(&access, keyed("v2", "run-1", 1)));
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(|a| a.as_ref().unwrap().deploy.revision.get() == 2));
        assert_eq!(answers.iter().filter(|a| !a.as_ref().unwrap().replayed).count(), 1);
        world.ended(&access, 2).await;
        let replay = world.deployer.submit(&access, keyed("v2", "run-1", 1)).await.unwrap();
        assert!(replay.replayed);
        assert_eq!(replay.deploy.status(), Status::Succeeded);
        let reused = world.deployer.submit(&access, keyed("v3", "run-1", 2)).await;
        assert_eq!(reused, Err(Refusal::KeyReused));
        // A repeated call is the same call, even where a new one would be refused by now.
        world.rolled_back(&access).await;
        let ci = world.webhook(access.app()).await;
        assert!(matches!(world.deployer.submit(&ci, keyed("v2", "run-2", 3)).await, Err(Refusal::ImageHeld { .. })));
        let again = world.deployer.submit(&ci, keyed("v2", "run-1", 1)).await.unwrap();
        assert_eq!((again.deploy.revision.get(), again.replayed), (2, true));
        world.sleep(25 * 3600).await;
        let fresh = world.deployer.submit(&access, keyed("v4", "run-1", 4)).await.unwrap();
        assert!(!fresh.replayed);
    });
}

#[test]
fn adopted_workload_is_recorded_and_not_patched() {
    let world = World::new(SECOND);
    world.cluster.seed(&"shop-test/api".parse().unwrap(), &Target::default(), &image("registry.example.com/api"));
    world.run(async {
        let wanted = rollhook_core::request::Registration { image: None, ..registration("api", Policy::default()) };
        let registered = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        assert!(registered.adopted);
        let access = world.deployer.open(&world.operator, &registered.app.app.id).await.unwrap();
        let first = world.ended(&access, 1).await;
        assert_eq!((first.status(), first.trigger), (Status::Succeeded, Trigger::Manual));
        assert_eq!(tag(&first), "latest");
        assert_eq!(world.effects(), Vec::<u64>::new());
        world.deployed(&access, &api("v2")).await;
        assert_eq!(world.rolled_back(&access).await.effective.get(), 1);
    });
}

#[test]
fn promotion_deploys_the_image_of_the_other_environment() {
    let world = World::new(SECOND);
    world.run(async {
        let test = world.app("api", Policy::default()).await;
        world.deployed(&test, &api("v2")).await;
        let mut wanted = registration("api", Policy::default());
        wanted.environment = "prod".parse().unwrap();
        let prod = world.deployer.register(&world.operator, wanted, None).await.unwrap().app;
        let accepted = world.deployer.promote(&world.operator, &prod.app.id, test.app(), None).await.unwrap();
        assert_eq!(accepted.deploy.trigger, Trigger::Promotion);
        let access = world.deployer.open(&world.operator, &prod.app.id).await.unwrap();
        let done = world.ended(&access, 2).await;
        assert_eq!(done.status(), Status::Succeeded);
        assert_eq!(done.digest, world.view(&test).await.current.unwrap().digest);
        assert!(done.image.unwrap().digest().is_some());
    });
}

#[test]
fn registering_again_with_the_same_key_answers_what_it_made() {
    let world = World::new(SECOND);
    world.idle(async {
        let key = |text: &str, body| Some(IdempotencyKey::new(KeyHeader::IdempotencyKey, text, [body; 32]).unwrap());
        let register =
            async |key| world.deployer.register(&world.operator, registration("api", Policy::default()), key).await;
        let made = register(key("one", 1)).await.unwrap();
        assert_eq!(register(key("one", 1)).await.unwrap(), made);
        assert_eq!(register(key("one", 2)).await, Err(Refusal::KeyReused));
        assert!(matches!(register(key("two", 1)).await, Err(Refusal::AppExists(_))));
        assert!(matches!(register(None).await, Err(Refusal::AppExists(_))));
    });
}

#[test]
fn invalid_registrations_are_refused() {
    let world = World::new(SECOND);
    world.run(async {
        let field = |refused: Refusal| {
            let Refusal::InvalidField(field, _) = refused else { panic!("{refused:?}") };
            field
        };
        for (settle, deadline) in [(10, 10), (20, 10), (0, 0)] {
            let (settle, rollout_deadline) = (Duration::from_secs(settle), Duration::from_secs(deadline));
            let wanted = registration("api", Policy { settle, rollout_deadline, ..Policy::default() });
            let refused = world.deployer.register(&world.operator, wanted, None).await.unwrap_err();
            assert_eq!(field(refused).as_str(), "policy.rollout_deadline");
        }
        let settings = samples::settings(json!({ "kind": "Pod" }));
        let wanted =
            rollhook_core::request::Registration { target: settings, ..registration("api", Policy::default()) };
        let refused = world.deployer.register(&world.operator, wanted, None).await.unwrap_err();
        let Refusal::InvalidSetting(setting, _) = refused else { panic!("{refused:?}") };
        assert_eq!(setting, "workload.kind", "what the driver refuses is refused");
        let access = world.app("api", Policy::default()).await;
        let change = PolicyChange { settle: Some(Duration::from_secs(3600)), ..PolicyChange::default() };
        let refused = world.deployer.change_policy(&world.operator, access.app(), change).await.unwrap_err();
        assert_eq!(field(refused).as_str(), "policy.rollout_deadline");
    });
}

#[test]
fn names_of_a_taken_namespace_are_refused() {
    let world = World::new(SECOND);
    world.idle(async {
        let mut wanted = registration("api", Policy::default());
        wanted.project = "a-b".parse().unwrap();
        wanted.environment = "c".parse().unwrap();
        world.deployer.register(&world.operator, wanted, None).await.unwrap();
        let mut other = registration("web", Policy::default());
        other.project = "a".parse().unwrap();
        other.environment = "b-c".parse().unwrap();
        let refused = world.deployer.register(&world.operator, other, None).await.unwrap_err();
        assert!(matches!(refused, Refusal::NamespaceTaken { .. }), "{refused:?}");
    });
}

#[test]
fn registration_of_another_pair_is_not_answered_with_its_app() {
    let world = World::new(SECOND);
    world.idle(async {
        let of_pair = |project: &str, environment: &str| rollhook_core::request::Registration {
            project: project.parse().unwrap(),
            environment: environment.parse().unwrap(),
            ..git("api", Policy::default())
        };
        let key = || Some(IdempotencyKey::new(KeyHeader::IdempotencyKey, "run-1", [1; 32]).unwrap());
        world.deployer.register(&world.operator, of_pair("a-b", "c"), key()).await.unwrap();
        assert!(world.deployer.register(&world.operator, of_pair("a-b", "c"), key()).await.is_ok());
        let other = world.deployer.register(&world.operator, of_pair("a", "b-c"), key()).await;
        assert!(matches!(other, Err(Refusal::AppExists(_))), "{other:?}");
    });
}

#[test]
fn token_is_recognised_after_any_read_of_it_and_recognition_lets_nobody_in() {
    let world = World::new(SECOND);
    world.run(async {
        let api = world.app("api", Policy::default()).await;
        let with = |text: &str| Credentials::token(text.as_bytes());
        let recognized = |text: &str| world.deployer.recognizes(api.app(), &with(text), b"{}");
        let enable = async || {
            let secret = world.deployer.enable_webhook(&world.operator, api.app()).await.unwrap();
            secret.token.expose().to_owned()
        };
        let refused = async |text: &str| {
            let answer = world.deployer.authorize(api.app(), &with(text), b"{}").await;
            assert_eq!(answer.map(|access| access.uid()), Err(Refusal::Unauthorized));
        };
        let first = enable().await;
        assert!(!recognized(&first), "nothing was read");
        refused("nonsense").await;
        assert!(recognized(&first) && !recognized("nonsense"), "the stranger's call has read the token");
        let renewed = enable().await;
        assert!(recognized(&first) && !recognized(&renewed), "the token as it was last read");
        refused(&first).await;
        assert!(!recognized(&first) && recognized(&renewed), "every read corrects what is remembered");
        world.deployer.disable_webhook(&world.operator, api.app()).await.unwrap();
        refused(&renewed).await;
        assert!(!recognized(&renewed));
        let other = world.app("web", Policy::default()).await;
        assert!(!world.deployer.recognizes(other.app(), &with(&first), b"{}"));
    });
}
