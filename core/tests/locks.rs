//! Locks of apps and environments, and rotated tokens, on the whole engine under simulated time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod world;

use std::{sync::Arc, time::Duration};

use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    access::{Grant, PrincipalKey, Realm, Role},
    app::{Environment, Policy, Project},
    deploy::{Status, Trigger},
    lock::{LockScope, Locks},
    ports::{Clock, HistoryStore, RecordKind, RecordStore},
    request::{DeployRequest, IdempotencyKey, KeyHeader, Refusal, Registration},
    service::{Deployer, NewLock, Ports, Principal},
    token::{Credentials, Token},
};
use rollhook_memory::Script;
use world::{World, git, registration, request, sha};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: u64 = 3600;

fn freeze(ttl: Option<u64>) -> NewLock {
    NewLock { reason: "no deploys before the fair".parse().unwrap(), ttl: ttl.map(Duration::from_secs) }
}

fn place(environment: &str) -> (Project, Environment) {
    ("shop".parse().unwrap(), environment.parse().unwrap())
}

fn somebody(name: &str, role: Role) -> Principal {
    Principal::new(name, [Grant { role, realm: Realm::Everything }])
}

#[track_caller]
fn locked<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> LockScope {
    match answer {
        Err(Refusal::Locked(locked)) => locked.scope,
        other => panic!("not refused by a lock: {other:?}"),
    }
}

#[test]
fn lock_refuses_every_deploy_but_rollbacks() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, "api:v2").await;
        let ci = world.webhook(access.app()).await;
        world.deployer.lock(&world.operator, access.app(), freeze(None)).await.unwrap();
        assert_eq!(locked(world.deploy(&access, "api:v3").await), LockScope::App);
        assert_eq!(locked(world.deploy(&ci, "api:v3").await), LockScope::App);
        let back = world.rolled_back(&access).await;
        assert_eq!((back.status(), back.trigger), (Status::Succeeded, Trigger::Rollback));
        assert_eq!(world.history(&access).await.len(), 3, "a refused deploy is not recorded");
        world.deployer.unlock(&world.operator, access.app()).await.unwrap();
        assert_eq!(world.deployed(&ci, "api:v3").await.status(), Status::Succeeded);
    });
}

#[test]
fn deploys_that_were_accepted_before_a_lock_go_on_and_are_put_right() {
    let world = World::new(Duration::from_secs(20));
    world.cluster.script("broken", Script::crashes());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let accepted = world.deploy(&access, "api:broken").await.unwrap();
        world.deployer.lock(&world.operator, access.app(), freeze(None)).await.unwrap();
        assert_eq!(world.ended(&access, 2).await.status(), Status::Failed, "{accepted:?}");
        let restored = world.ended(&access, 3).await;
        assert_eq!((restored.status(), restored.trigger), (Status::Succeeded, Trigger::Rollback));
    });
}

#[test]
fn lock_ends_at_its_time_by_the_stores_clock() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployer.lock(&world.operator, access.app(), freeze(Some(HOUR))).await.unwrap();
        world.sleep(HOUR - 60).await;
        assert_eq!(locked(world.deploy(&access, "api:v2").await), LockScope::App);
        world.sleep(70).await;
        assert_eq!(world.deployed(&access, "api:v2").await.status(), Status::Succeeded);
    });
}

#[test]
fn repeated_call_is_answered_by_its_first_although_the_app_is_locked() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let key = IdempotencyKey::new(KeyHeader::IdempotencyKey, "run-1", [1; 32]).unwrap();
        let keyed = || DeployRequest { key: Some(key.clone()), ..request("api:v2") };
        let first = world.deployer.submit(&access, keyed()).await.unwrap();
        world.deployer.lock(&world.operator, access.app(), freeze(None)).await.unwrap();
        let again = world.deployer.submit(&access, keyed()).await.unwrap();
        assert!(again.replayed);
        assert_eq!(again.deploy.revision, first.deploy.revision);
    });
}

#[test]
fn lock_of_an_environment_is_on_all_of_its_apps_and_on_no_others() {
    let world = World::new(SECOND);
    world.run(async {
        let (api, web) = (world.app("api", Policy::default()).await, world.app("web", Policy::default()).await);
        let prod = Registration { environment: "prod".parse().unwrap(), ..registration("api", Policy::default()) };
        let prod = world.deployer.register(&world.operator, prod, None).await.unwrap().app.app.id.clone();
        let prod = world.deployer.open(&world.operator, &prod).await.unwrap();
        let (project, environment) = place("test");
        world.deployer.lock_environment(&world.operator, &project, &environment, freeze(None)).await.unwrap();
        for access in [&api, &web] {
            assert_eq!(locked(world.deploy(access, "api:v2").await), LockScope::Environment);
        }
        assert!(world.deploy(&prod, "api:v2").await.is_ok());
        let late = world.deployer.register(&world.operator, registration("late", Policy::default()), None).await;
        assert_eq!(locked(late), LockScope::Environment, "an app that is registered later is no way around it");
        // The app's own lock and the environment's are two.
        world.deployer.lock(&world.operator, web.app(), freeze(None)).await.unwrap();
        let locks = world.deployer.environment_locks(&world.operator).await.unwrap();
        assert_eq!(locks.iter().map(|lock| lock.environment.as_str()).collect::<Vec<_>>(), ["test"]);
        world.deployer.unlock_environment(&world.operator, &project, &environment).await.unwrap();
        assert!(world.deploy(&api, "api:v2").await.is_ok());
        assert_eq!(locked(world.deploy(&web, "api:v2").await), LockScope::App);
        assert!(world.deployer.environment_locks(&world.operator).await.unwrap().is_empty());
    });
}

#[test]
fn pair_that_spells_the_same_namespace_is_not_locked() {
    let world = World::new(SECOND);
    world.run(async {
        let named = |project: &str, environment: &str| Registration {
            project: project.parse().unwrap(),
            environment: environment.parse().unwrap(),
            ..registration("api", Policy::default())
        };
        let id = world.deployer.register(&world.operator, named("a-b", "c"), None).await.unwrap().app.app.id.clone();
        let access = world.deployer.open(&world.operator, &id).await.unwrap();
        let (project, environment) = ("a".parse().unwrap(), "b-c".parse().unwrap());
        world.deployer.lock_environment(&world.operator, &project, &environment, freeze(None)).await.unwrap();
        assert!(world.deploy(&access, "api:v2").await.is_ok());
    });
}

#[test]
fn deployer_ends_its_own_lock_and_no_others() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let (ada, bob) = (somebody("ada", Role::Deployer), somebody("bob", Role::Deployer));
        let (id, (project, environment)) = (access.app(), place("test"));
        let forbidden =
            |answer: Result<(), Refusal>| assert!(matches!(answer, Err(Refusal::Forbidden(..))), "{answer:?}");
        world.deployer.lock(&ada, id, freeze(None)).await.unwrap();
        forbidden(world.deployer.unlock(&bob, id).await.map(drop));
        forbidden(world.deployer.lock(&bob, id, freeze(Some(1))).await.map(drop));
        world.deployer.lock(&ada, id, freeze(Some(60))).await.unwrap();
        world.sleep(61).await;
        world.deployer.lock(&bob, id, freeze(None)).await.unwrap();
        world.deployer.unlock(&somebody("root", Role::Admin), id).await.unwrap();
        world.deployer.lock_environment(&ada, &project, &environment, freeze(None)).await.unwrap();
        forbidden(world.deployer.unlock_environment(&bob, &project, &environment).await);
        forbidden(world.deployer.lock_environment(&bob, &project, &environment, freeze(Some(1))).await.map(drop));
        world.deployer.unlock_environment(&ada, &project, &environment).await.unwrap();
        forbidden(world.deployer.lock(&somebody("eve", Role::Viewer), id, freeze(None)).await.map(drop));
    });
}

#[test]
fn lock_belongs_to_a_principal_and_not_to_its_name() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let of_provider = |subject: &str| {
            somebody("ada", Role::Deployer).known_as(PrincipalKey::of("person", &["id.example.com", subject]))
        };
        let (ada, other) = (of_provider("1"), of_provider("2"));
        world.deployer.lock(&ada, access.app(), freeze(None)).await.unwrap();
        let refused = world.deployer.unlock(&other, access.app()).await;
        assert!(matches!(refused, Err(Refusal::Forbidden(..))), "{refused:?}");
        world.deployer.unlock(&of_provider("1"), access.app()).await.unwrap();
    });
}

#[test]
fn admin_deploys_in_spite_of_a_lock_for_a_reason_that_the_audit_keeps() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployer.lock(&world.operator, access.app(), freeze(None)).await.unwrap();
        let reason = "the shop is down".parse().unwrap();
        let refused = world.deployer.break_glass(&somebody("ada", Role::Deployer), access.app(), &reason).await;
        assert!(matches!(refused, Err(Refusal::Forbidden(..))), "{refused:?}");
        let broken = world.deployer.break_glass(&world.operator, access.app(), &reason).await.unwrap();
        assert_eq!(world.deployed(&broken, "api:v2").await.status(), Status::Succeeded);
        assert_eq!(locked(world.deploy(&access, "api:v3").await), LockScope::App, "the lock stays");
        let (audited, _) = world.deployer.audited(&world.operator, None, 10).await.unwrap();
        let told: Vec<_> = audited.iter().map(|act| (act.entry.subject.as_str(), act.entry.is_allowed)).collect();
        let subject = "app shop-test/api: the shop is down";
        assert!(told.contains(&(subject, true)) && told.contains(&(subject, false)), "{told:?}");
        assert!(told.contains(&("app shop-test/api: no deploys before the fair", true)), "{told:?}");
        world.deployer.unlock(&world.operator, access.app()).await.unwrap();
        let (audited, _) = world.deployer.audited(&world.operator, None, 1).await.unwrap();
        assert_eq!(audited[0].entry.subject, "app shop-test/api: the lock is ended");
    });
}

#[test]
fn polled_head_is_deployed_once_the_lock_has_ended() {
    let world = World::new(SECOND);
    world.run(async {
        let policy = Policy { poll: Some(Duration::from_secs(60)), ..Policy::default() };
        let registered = world.deployer.register(&world.operator, git("api", policy), None).await.unwrap();
        let access = world.deployer.open(&world.operator, &registered.app.app.id).await.unwrap();
        world.deployer.lock(&world.operator, access.app(), freeze(Some(2 * HOUR))).await.unwrap();
        world.builds.set_head(&rollhook_conformance::samples::git_source(), Some(sha("a1")));
        world.sleep(HOUR).await;
        assert_eq!(world.history(&access).await.len(), 0);
        world.sleep(HOUR + 130).await;
        assert_eq!(world.ended(&access, 1).await.commit, Some(sha("a1")));
    });
}

#[test]
fn lock_that_a_stopped_replica_copied_in_part_is_copied_at_the_next_start() {
    let world = World::new(SECOND);
    let (api, web) = world.run(async {
        let (api, web) = (world.app("api", Policy::default()).await, world.app("web", Policy::default()).await);
        let (project, environment) = place("test");
        world.deployer.lock_environment(&world.operator, &project, &environment, freeze(None)).await.unwrap();
        // As if the copy had not come to this app.
        world.commit(&web, |change, _| Arc::make_mut(&mut change.state.app).locks = Locks::default()).await;
        (api, web)
    });
    let next = world.replica("two", 2);
    world.run_beside(&next, async {
        world.sleep(5).await;
        for access in [&api, &web] {
            assert_eq!(locked(next.submit(access, request("api:v2")).await), LockScope::Environment);
        }
    });
}

#[test]
fn lock_whose_copying_failed_reaches_the_apps_within_minutes() {
    let world = World::new(SECOND);
    let clock = Arc::clone(&world.clock);
    // The store answers no list of apps for a while.
    let plan: Plan = Arc::new(move |call| match call {
        "history.list" if (20 * SECOND..90 * SECOND).contains(&clock.elapsed()) => Fault::Before,
        _ => Fault::None,
    });
    let history: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(history, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    let deployer = Deployer::new(Ports { history, ..world.ports(9) }, "two");
    world.run_beside(&deployer, async {
        let registered =
            deployer.register(&world.operator, registration("api", Policy::default()), None).await.unwrap();
        let access = deployer.open(&world.operator, &registered.app.app.id).await.unwrap();
        let (project, environment) = place("test");
        world.sleep(20).await;
        let told = deployer.lock_environment(&world.operator, &project, &environment, freeze(None)).await;
        assert!(matches!(told, Err(Refusal::StoreUnavailable { .. })), "{told:?}");
        world.sleep(150).await;
        assert_eq!(locked(deployer.submit(&access, request("api:v2")).await), LockScope::Environment);
    });
}

#[test]
fn damaged_lock_of_an_environment_lets_no_app_be_registered() {
    let world = World::new(SECOND);
    world.run(async {
        let (project, environment) = place("test");
        world.deployer.lock_environment(&world.operator, &project, &environment, freeze(None)).await.unwrap();
        let records = Arc::clone(&world.store) as Arc<dyn RecordStore>;
        let record = records.list(RecordKind::EnvironmentLock, None, 1).await.unwrap().pop().unwrap();
        let damaged = rollhook_core::ports::NewRecord { key: record.key.clone(), document: "{}".to_owned(), ttl: None };
        records.write(RecordKind::EnvironmentLock, damaged, Some(record.version)).await.unwrap();
        let refused = world.deployer.register(&world.operator, registration("api", Policy::default()), None).await;
        assert_eq!(refused.unwrap_err(), Refusal::Internal);
    });
}

#[test]
fn rotated_token_lets_the_one_before_in_until_the_overlap_is_over() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let (id, overlap) = (access.app(), Duration::from_secs(HOUR));
        let early = world.deployer.rotate_webhook(&world.operator, id, overlap).await;
        assert_eq!(early.unwrap_err(), Refusal::NoWebhook);
        let opens = async |token: &Token| {
            let credentials = Credentials::token(token.expose().as_bytes());
            let opens = world.deployer.authorize(id, &credentials, b"{}").await.is_ok();
            let is_known = world.deployer.recognizes(id, &credentials, b"{}");
            assert!(is_known || !opens, "whoever is let in is recognised");
            opens
        };
        let first = world.deployer.enable_webhook(&world.operator, id).await.unwrap().token;
        assert!(opens(&first).await);
        let second = world.deployer.rotate_webhook(&world.operator, id, overlap).await.unwrap();
        assert_eq!(second.previous.as_ref().map(|previous| previous.token.expose()), Some(first.expose()));
        world.deployer.webhook(&world.operator, id).await.unwrap();
        let second = second.token;
        assert!(opens(&first).await && opens(&second).await);
        let (_, until) = world.deployer.webhook_times(&world.operator, id).await.unwrap();
        assert!(until.is_some());
        world.sleep(HOUR + 1).await;
        assert!(!opens(&first).await && opens(&second).await);
        assert_eq!(world.deployer.webhook_times(&world.operator, id).await.unwrap().1, None);
        let third = world.deployer.rotate_webhook(&world.operator, id, overlap).await.unwrap().token;
        assert!(opens(&third).await && opens(&second).await && !opens(&first).await);
        let fourth = world.deployer.enable_webhook(&world.operator, id).await.unwrap().token;
        assert!(opens(&fourth).await, "enable regenerates");
        assert!(!opens(&third).await && !opens(&second).await, "and takes both away at once");
    });
}

#[test]
fn previous_token_is_refused_as_unavailable_until_the_stores_clock_is_known() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let first = world.deployer.enable_webhook(&world.operator, access.app()).await.unwrap().token;
        let overlap = Duration::from_secs(HOUR);
        let second = world.deployer.rotate_webhook(&world.operator, access.app(), overlap).await.unwrap().token;
        let started = world.replica("two", 2);
        let call = async |token: &Token| {
            let credentials = Credentials::token(token.expose().as_bytes());
            started.authorize(access.app(), &credentials, b"{}").await.map(drop)
        };
        assert_eq!(call(&second).await, Ok(()));
        assert_eq!(call(&first).await, Err(Refusal::StoreUnavailable { maybe_recorded: false }));
        assert_eq!(call(&world.deployer.new_token()).await, Err(Refusal::Unauthorized));
    });
}

#[test]
fn late_copy_of_an_older_lock_changes_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let (project, environment) = place("test");
        let lock =
            async || world.deployer.lock_environment(&world.operator, &project, &environment, freeze(None)).await;
        lock().await.unwrap();
        world.deployer.unlock_environment(&world.operator, &project, &environment).await.unwrap();
        lock().await.unwrap();
        // A replica that was paused copies the end of the first lock.
        world.commit(&access, |change, now| change.copy_lock(None, 2, now)).await;
        assert_eq!(locked(world.deploy(&access, "api:v2").await), LockScope::Environment);
    });
}
