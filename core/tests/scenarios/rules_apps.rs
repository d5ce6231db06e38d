//! Apps and calls: registering, tokens, keys, limits and the end; each rule as a scenario on the whole engine under
//! simulated time.

use std::time::Duration;

use rollhook_conformance::samples;
use rollhook_core::{
    app::{BUILD_DEADLINE_MAX, FullName, Policy, Target},
    deploy::{Revision, Status, Trigger},
    request::{
        Field, Hint, IdempotencyKey, KeyHeader, PolicyChange, PromoteRequest, Refusal, Registration, SourceChange,
        TargetChange,
    },
    token::Credentials,
};
use rollhook_memory::Script;
use serde_json::json;

use crate::world::{World, api, git, hold_all, image, reason, registration, request, tag};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn token_is_checked_first_and_opens_one_app() {
    let world = World::new(SECOND);
    world.run(async {
        let api = world.app("api", Policy::default()).await;
        let web = world.app("web", Policy::default()).await;
        let secret = world.deployer.enable_webhook(&api).await.unwrap();
        let other = world.deployer.enable_webhook(&web).await.unwrap();
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
        let renewed = world.deployer.enable_webhook(&api).await.unwrap();
        assert_eq!(try_("shop-test/api", with(secret.token.expose())).await, denied);
        assert_eq!(try_("shop-test/api", with(renewed.token.expose())).await, Ok(api.uid()));
        world.deployer.disable_webhook(&api).await.unwrap();
        assert_eq!(try_("shop-test/api", with(renewed.token.expose())).await, denied);
    });
}

#[test]
fn registration_that_the_cluster_denies_permission_for_may_be_tried_again() {
    let world = World::new(SECOND);
    world.run(async {
        world.cluster.set_permitted(false);
        let register = async || {
            world.deployer.register(&world.operator, registration("api", Policy::default()), None).await.map(drop)
        };
        let refusal = register().await.unwrap_err();
        assert!(matches!(refusal, Refusal::ClusterDenied(_)), "{refusal:?}");
        world.cluster.set_reachable(false);
        assert_eq!(register().await, Err(Refusal::ClusterUnavailable));
        world.cluster.set_reachable(true);
        world.cluster.set_permitted(true);
        assert_eq!(register().await, Ok(()));
    });
}

#[test]
fn deleting_an_app_ends_its_deploys_and_leaves_the_workload() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let ci = world.webhook(&access).await;
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(2).await;
        let before = world.effects();
        world.deployer.delete(&access).await.unwrap();
        world.sleep(60).await;
        assert_eq!(world.effects(), before);
        let late = world.deployer.submit(&ci, request(&api("v9"))).await.unwrap_err();
        assert!(matches!(late, Refusal::AppNotFound(_)));
        // A new registration of the name starts clean, and must say that it takes the workload over.
        let refused = world.deployer.register(&world.operator, registration("api", Policy::default()), None).await;
        assert!(matches!(refused, Err(Refusal::WorkloadTaken(_))), "{refused:?}");
        let wanted = registration("api", Policy::default()).with(|app| app.take_over = true);
        let again = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        assert_ne!(again.app.app.uid, access.uid());
        assert_eq!(again.deploy.unwrap().revision, Revision::FIRST);
        assert!(again.adopted);
        let late = world.deployer.submit(&ci, request(&api("v9"))).await.unwrap_err();
        assert!(matches!(late, Refusal::AppNotFound(_)), "the old registration's token opens nothing");
        let access = world.access(&again.app.app.id).await;
        assert_eq!(world.deployed(&access, &api("v5")).await.status(), Status::Succeeded);
    });
}

#[test]
fn taken_over_workload_is_current_for_any_revision_it_carries() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        world.deployer.delete(&access).await.unwrap();
        let wanted = registration("api", Policy::default()).with(|app| app.take_over = true);
        let again = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        let access = world.access(&again.app.app.id).await;
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
        let keyed = |key: &str, body: u8| {
            request(&api("v2")).with(|request| {
                request.key = Some(IdempotencyKey::new(KeyHeader::IdempotencyKey, key, [body; 32]).unwrap())
            })
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
    let keyed = |image_tag: &str, key: &str, body: u8| {
        request(&api(image_tag)).with(|request| {
            request.key = Some(IdempotencyKey::new(KeyHeader::IdempotencyKey, key, [body; 32]).unwrap())
        })
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
        let ci = world.webhook(&access).await;
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
        let wanted = registration("api", Policy::default()).with(|app| app.image = None);
        let registered = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        assert!(registered.adopted);
        let access = world.access(&registered.app.app.id).await;
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
        let prod = world.registered(wanted).await;
        let unseen =
            PromoteRequest::new(full_name("shop", "test")).with(|request| request.if_current = Some(Revision::FIRST));
        let refused = world.deployer.promote(&prod, unseen).await.unwrap_err();
        assert_eq!(refused, Refusal::CurrentChanged { expected: Revision::FIRST, current: Revision::new(2) });
        let accepted = world.deployer.promote(&prod, PromoteRequest::new(full_name("shop", "test"))).await.unwrap();
        assert_eq!(accepted.deploy.trigger, Trigger::Promotion);
        let done = world.ended(&prod, 2).await;
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
            let wanted = registration(
                "api",
                Policy::default().with(|policy| {
                    policy.settle = settle;
                    policy.rollout_deadline = rollout_deadline;
                }),
            );
            let refused = world.deployer.register(&world.operator, wanted, None).await.unwrap_err();
            assert_eq!(field(refused).as_str(), "policy.rollout_deadline");
        }
        let second_more = BUILD_DEADLINE_MAX + SECOND;
        let wanted = registration("api", Policy::default().with(|policy| policy.build_deadline = second_more));
        let refused = world.deployer.register(&world.operator, wanted, None).await.unwrap_err();
        assert_eq!(field(refused).as_str(), "policy.build_deadline");
        let settings = samples::settings(json!({ "kind": "Pod" }));
        let wanted = registration("api", Policy::default()).with(|app| app.target = settings);
        let refused = world.deployer.register(&world.operator, wanted, None).await.unwrap_err();
        let Refusal::InvalidSetting(setting, _) = refused else { panic!("{refused:?}") };
        assert_eq!(setting, "workload.kind", "what the driver refuses is refused");
        let access = world.app("api", Policy::default()).await;
        let change = PolicyChange { settle: Some(Duration::from_secs(3600)), ..PolicyChange::default() };
        let refused = world.deployer.change_policy(&access, change).await.unwrap_err();
        assert_eq!(field(refused).as_str(), "policy.rollout_deadline");
        let change = |deadline| PolicyChange { build_deadline: Some(deadline), ..PolicyChange::default() };
        let refused = world.deployer.change_policy(&access, change(second_more)).await.unwrap_err();
        assert_eq!(field(refused).as_str(), "policy.build_deadline");
        world.deployer.change_policy(&access, change(BUILD_DEADLINE_MAX)).await.unwrap();
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
        let of_pair = |project: &str, environment: &str| {
            git("api", Policy::default()).with(|app| {
                app.project = project.parse().unwrap();
                app.environment = environment.parse().unwrap();
            })
        };
        let key = || Some(IdempotencyKey::new(KeyHeader::IdempotencyKey, "run-1", [1; 32]).unwrap());
        world.deployer.register(&world.operator, of_pair("a-b", "c"), key()).await.unwrap();
        assert!(world.deployer.register(&world.operator, of_pair("a-b", "c"), key()).await.is_ok());
        let other = world.deployer.register(&world.operator, of_pair("a", "b-c"), key()).await;
        assert!(matches!(other, Err(Refusal::AppExists(_))), "{other:?}");
    });
}

/// The name of `api` in this environment.
fn full_name(project: &str, environment: &str) -> FullName {
    let (project, environment) = (project.parse().unwrap(), environment.parse().unwrap());
    FullName { project, environment, name: "api".parse().unwrap() }
}

#[test]
fn promotion_is_from_the_named_project_and_environment_alone() {
    let world = World::new(SECOND);
    world.run(async {
        let register = async |project: &str, environment: &str| {
            let mut wanted = registration("api", Policy::default());
            (wanted.project, wanted.environment) = (project.parse().unwrap(), environment.parse().unwrap());
            world.registered(wanted).await
        };
        let (secret, to) = (register("a-b", "c").await, register("a", "prod").await);
        world.sleep(60).await;
        let promote = async |from: FullName| world.deployer.promote(&to, PromoteRequest::new(from)).await;
        let other = full_name("a", "b-c");
        assert_eq!(other.id().unwrap(), *secret.app(), "both spell one namespace");
        let refusal = promote(other.clone()).await.unwrap_err();
        assert_eq!(refusal.to_string(), "There is no app api in project a, environment b-c.");
        assert_eq!(refusal, Refusal::AppNotFoundIn(other));
        let missing = full_name("a", "test");
        assert_eq!(promote(missing.clone()).await.unwrap_err(), Refusal::AppNotFoundIn(missing));
        assert!(promote(full_name("a-b", "c")).await.is_ok());
    });
}

#[test]
fn nothing_is_promoted_from_an_environment_to_itself() {
    let world = World::new(SECOND);
    world.run(async {
        let test = world.app("api", Policy::default()).await;
        let promoted = world.deployer.promote(&test, PromoteRequest::new(full_name("shop", "test"))).await;
        let Err(Refusal::InvalidField(Field::FromEnvironment, why)) = promoted else { panic!("{promoted:?}") };
        assert!(why.contains("is the app itself"), "{why}");
        assert_eq!(world.quiet(&test).await.len(), 1, "nothing is recorded");
    });
}

#[test]
fn workload_of_another_app_is_refused_at_registration_before_either_was_deployed() {
    let world = World::new(SECOND);
    world.idle(async {
        let named = |app: &str| {
            git(app, Policy::default())
                .with(|app| app.target = samples::settings(json!({ "name": "web", "template": { "replicas": 1 } })))
        };
        let register = async |wanted: Registration| world.deployer.register(&world.operator, wanted, None).await;
        register(named("api")).await.unwrap();
        let refused = register(named("other")).await.unwrap_err();
        let Refusal::WorkloadTaken(why) = &refused else { panic!("{refused:?}") };
        assert!(why.contains("shop-test/api"), "it names the other app: {why}");
        assert!(register(git("other", Policy::default())).await.is_ok(), "its own workload is free");
        assert!(register(named("third").take_over()).await.is_ok(), "a person may insist");
        let elsewhere = named("api").with(|app| app.environment = "prod".parse().unwrap());
        assert!(register(elsewhere).await.is_ok(), "another namespace has its own workloads");
    });
}

#[test]
fn registration_that_describes_a_new_workload_adopts_no_other_one() {
    let world = World::new(SECOND);
    world.run(async {
        let id = "shop-test/db".parse().unwrap();
        world.cluster.seed(
            &id,
            &Target { settings: samples::settings(json!({ "name": "db" })), ..Target::default() },
            &image("postgres:16"),
        );
        let wanted = registration("db", Policy::default()).with(|app| app.adopt = false);
        let register = async |wanted: Registration| world.deployer.register(&world.operator, wanted, None).await;
        let refused = register(wanted.clone()).await.unwrap_err();
        let Refusal::WorkloadExists { image: runs, unused } = &refused else { panic!("{refused:?}") };
        assert_eq!(
            (runs, unused.as_slice()),
            (&image("postgres:16"), &["image".to_owned(), "template.replicas".to_owned()][..])
        );
        assert_eq!(refused.hint(), Some(Hint::AdoptWorkload));
        let other = wanted.clone().with(|app| app.target = samples::settings(json!({})));
        assert!(matches!(register(other.clone()).await, Err(Refusal::WorkloadExists { .. })), "another image alone");
        assert!(world.effects().is_empty(), "nothing was changed");
        let same = other.with(|app| app.image = Some(image("postgres:16")));
        let adopted = register(same).await.unwrap();
        assert!(adopted.adopted && adopted.unused.is_empty(), "{adopted:?}");
        world.deployer.delete(&world.access(&id).await).await.unwrap();
        let adopted = register(wanted.adopt()).await.unwrap();
        assert!(adopted.adopted, "{adopted:?}");
        assert_eq!(adopted.unused, ["image", "template.replicas"]);
    });
}

#[test]
fn app_whose_workload_was_taken_over_takes_it_back_with_its_history() {
    let world = World::new(SECOND);
    world.run(async {
        let api_app = world.app("api", Policy::default()).await;
        world.deployed(&api_app, &api("v2")).await;
        let target = samples::settings(json!({ "name": "api", "template": { "replicas": 2 } }));
        let wanted = registration("other", Policy::default()).with(|app| app.target = target).take_over();
        let other = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        let other = world.access(other.id()).await;
        world.deployed(&other, &api("v3")).await;
        let refused = world.deployed(&api_app, &api("v4")).await;
        assert_eq!(reason(&refused).0, "foreign-target");
        let change = |take_over| {
            let target = TargetChange { take_over, ..TargetChange::default() };
            world.deployer.change(&api_app, PolicyChange::default(), SourceChange::default(), target)
        };
        let state = change(true).await.unwrap().state;
        assert_eq!(state.app.target.take_over, Some(other.uid()));
        assert!(state.app.target.settings["template"].is_object(), "what it is made with stays");
        assert_eq!(change(true).await.unwrap().state.app.target, state.app.target);
        let deployed = world.deployed(&api_app, &api("v5")).await;
        assert_eq!(deployed.status(), Status::Succeeded, "{deployed:?}");
        let history = world.history(&api_app).await;
        assert!(history.iter().any(|deploy| deploy.revision == Revision::FIRST), "{history:?}");
    });
}

#[test]
fn replica_whose_clock_is_a_day_ahead_makes_no_key_expire_for_the_others() {
    let world = World::new(SECOND);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let keyed = || {
            let key = IdempotencyKey::new(KeyHeader::IdempotencyKey, "run-1", [1; 32]).ok();
            world.deployer.submit(&access, request(&api("v2")).with(|request| request.key = key))
        };
        let first = keyed().await.unwrap();
        let set = async |skew: i64| {
            *world.skew.lock().unwrap() = skew;
            // The clock is read with the app.
            world.view(&access).await
        };
        set((24 * 3600 + 1800) * 1000).await;
        world.deploy(&access, &api("v3")).await.unwrap();
        assert!(set(0).await.updated_at > world.now().after(Duration::from_secs(24 * 3600)), "the app is ahead");
        let repeated = keyed().await.unwrap();
        assert_eq!((repeated.deploy.revision, repeated.replayed), (first.deploy.revision, true));
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
            let secret = world.deployer.enable_webhook(&api).await.unwrap();
            secret.token.expose().to_owned()
        };
        let refused = async |text: &str| {
            let answer = world.deployer.authorize(api.app(), &with(text), b"{}").await;
            assert_eq!(answer.map(|access| access.uid()), Err(Refusal::Unauthorized));
        };
        let first = enable().await;
        assert!(recognized(&first) && !recognized("nonsense"), "it was made here");
        let renewed = enable().await;
        assert!(!recognized(&first) && recognized(&renewed), "it was replaced here");
        let elsewhere = world.replica("two", 7);
        let first = renewed;
        let renewed = elsewhere.enable_webhook(&api).await.unwrap();
        let renewed = renewed.token.expose().to_owned();
        let here = |text: &str| elsewhere.recognizes(api.app(), &with(text), b"{}");
        assert!(here(&renewed) && recognized(&first) && !recognized(&renewed), "the token as it was last read");
        refused(&first).await;
        assert!(!recognized(&first) && recognized(&renewed), "every read corrects what is remembered");
        world.deployer.disable_webhook(&api).await.unwrap();
        refused(&renewed).await;
        assert!(!recognized(&renewed));
        let other = world.app("web", Policy::default()).await;
        assert!(!world.deployer.recognizes(other.app(), &with(&first), b"{}"));
    });
}

#[test]
fn registration_whose_settings_are_large_is_refused() {
    let world = World::new(SECOND);
    world.run(async {
        let wanted = |name: &str, length: usize| {
            let env = json!({ "name": name, "template": { "env": { "NOTE": "x".repeat(length) } } });
            registration(name, Policy::default()).with(|app| app.target = samples::settings(env))
        };
        let register = async |wanted: Registration| world.deployer.register(&world.operator, wanted, None).await;
        let refused = register(wanted("api", 40_000)).await.unwrap_err();
        assert!(matches!(&refused, Refusal::Workload(why) if why.contains("32768")), "{refused:?}");
        let many: serde_json::Map<_, _> = (0..500).map(|number| (format!("A{number}"), json!(""))).collect();
        let many = registration("api", Policy::default())
            .with(|app| app.target = samples::settings(json!({ "name": "api", "template": { "env": many } })));
        assert!(matches!(register(many).await, Err(Refusal::Workload(_))), "empty values take memory too");
        let repositories = vec!["registry.example.com/shop".to_owned(); 200];
        let policy = Policy::default().with(|policy| policy.repositories = repositories.try_into().unwrap());
        let refused = register(registration("api", policy)).await.unwrap_err();
        assert!(matches!(&refused, Refusal::InvalidField(Field::PolicyRepositories, _)), "{refused:?}");
        assert!(world.deployer.find_app(&"shop-test/api".parse().unwrap()).await.unwrap().is_none());
    });
}
