//! Locks of environments, and the principals that lock, on the whole service under simulated time.

use std::{sync::Arc, time::Duration};

use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    action::Action as AppAction,
    app::{Environment, Policy, Project},
    deploy::Status,
    lock::{LockScope, Locks},
    ports::{Clock, HistoryStore},
    request::Refusal as CoreRefusal,
    service::Deployer,
};
use rollhook_management::{
    Ports, Refusal,
    access::{Grant, Principal, PrincipalKey, Realm, Role},
    locks::NewLock,
    ports::{NewRecord, RecordKind},
};

use crate::world::{ManagedWorld, registration, request};

const SECOND: Duration = Duration::from_secs(1);

fn freeze(ttl: Option<u64>) -> NewLock {
    NewLock { reason: "no deploys before the fair".parse().unwrap(), ttl: ttl.map(Duration::from_secs) }
}

fn place(environment: &str) -> (Project, Environment) {
    ("shop".parse().unwrap(), environment.parse().unwrap())
}

fn somebody(name: &str, role: Role) -> Principal {
    Principal::new(name, [Grant { role, realm: Realm::Everything }])
}

/// Returns the apps that the lock is on which refused a call, of the deployer or of the management plane.
#[track_caller]
fn locked<T: std::fmt::Debug>(answer: Result<T, impl Into<Refusal>>) -> LockScope {
    match answer.map_err(Into::into) {
        Err(Refusal::Core(CoreRefusal::Locked(locked))) => locked.scope,
        other => panic!("not refused by a lock: {other:?}"),
    }
}

#[test]
fn lock_of_an_environment_is_on_all_of_its_apps_and_on_no_others() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let (api, web) = (world.app("api", Policy::default()).await, world.app("web", Policy::default()).await);
        let prod = registration("api", Policy::default()).with(|app| app.environment = "prod".parse().unwrap());
        let prod = world.management.register(&world.operator, prod, None).await.unwrap().app.app.id.clone();
        let prod = world.management.allow(&world.operator, &prod, AppAction::Deploy).await.unwrap();
        let (project, environment) = place("test");
        world.management.lock_environment(&world.operator, &project, &environment, freeze(None)).await.unwrap();
        for access in [&api, &web] {
            assert_eq!(locked(world.deploy(access, "api:v2").await), LockScope::Environment);
        }
        assert!(world.deploy(&prod, "api:v2").await.is_ok());
        let late = world.management.register(&world.operator, registration("late", Policy::default()), None).await;
        assert_eq!(locked(late), LockScope::Environment, "an app that is registered later is no way around it");
        // The app's own lock and the environment's are two.
        world.management.lock(&world.operator, web.app(), freeze(None)).await.unwrap();
        let locks = world.management.environment_locks(&world.operator).await.unwrap();
        assert_eq!(locks.iter().map(|lock| lock.environment.as_str()).collect::<Vec<_>>(), ["test"]);
        world.management.unlock_environment(&world.operator, &project, &environment).await.unwrap();
        assert!(world.deploy(&api, "api:v2").await.is_ok());
        assert_eq!(locked(world.deploy(&web, "api:v2").await), LockScope::App);
        assert!(world.management.environment_locks(&world.operator).await.unwrap().is_empty());
    });
}

#[test]
fn pair_that_spells_the_same_namespace_is_not_locked() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let named = |project: &str, environment: &str| {
            registration("api", Policy::default()).with(|app| {
                app.project = project.parse().unwrap();
                app.environment = environment.parse().unwrap();
            })
        };
        let id = world.management.register(&world.operator, named("a-b", "c"), None).await.unwrap().app.app.id.clone();
        let access = world.management.allow(&world.operator, &id, AppAction::Deploy).await.unwrap();
        let (project, environment) = ("a".parse().unwrap(), "b-c".parse().unwrap());
        world.management.lock_environment(&world.operator, &project, &environment, freeze(None)).await.unwrap();
        assert!(world.deploy(&access, "api:v2").await.is_ok());
    });
}

#[test]
fn deployer_ends_its_own_lock_and_no_others() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let (ada, bob) = (somebody("ada", Role::Deployer), somebody("bob", Role::Deployer));
        let (id, (project, environment)) = (access.app(), place("test"));
        let forbidden =
            |answer: Result<(), Refusal>| assert!(matches!(answer, Err(Refusal::Forbidden(..))), "{answer:?}");
        world.management.lock(&ada, id, freeze(None)).await.unwrap();
        forbidden(world.management.unlock(&bob, id).await.map(drop));
        forbidden(world.management.lock(&bob, id, freeze(Some(1))).await.map(drop));
        world.management.lock(&ada, id, freeze(Some(60))).await.unwrap();
        world.sleep(61).await;
        world.management.lock(&bob, id, freeze(None)).await.unwrap();
        world.management.unlock(&somebody("root", Role::Admin), id).await.unwrap();
        world.management.lock_environment(&ada, &project, &environment, freeze(None)).await.unwrap();
        forbidden(world.management.unlock_environment(&bob, &project, &environment).await);
        forbidden(world.management.lock_environment(&bob, &project, &environment, freeze(Some(1))).await.map(drop));
        world.management.unlock_environment(&ada, &project, &environment).await.unwrap();
        forbidden(world.management.lock(&somebody("eve", Role::Viewer), id, freeze(None)).await.map(drop));
    });
}

#[test]
fn lock_belongs_to_a_principal_and_not_to_its_name() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let of_provider = |subject: &str| {
            somebody("ada", Role::Deployer).known_as(PrincipalKey::of("person", &["id.example.com", subject]))
        };
        let (ada, other) = (of_provider("1"), of_provider("2"));
        world.management.lock(&ada, access.app(), freeze(None)).await.unwrap();
        let refused = world.management.unlock(&other, access.app()).await;
        assert!(matches!(refused, Err(Refusal::Forbidden(..))), "{refused:?}");
        world.management.unlock(&of_provider("1"), access.app()).await.unwrap();
    });
}

#[test]
fn admin_deploys_in_spite_of_a_lock_for_a_reason_that_the_audit_keeps() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.management.lock(&world.operator, access.app(), freeze(None)).await.unwrap();
        let reason = "the shop is down".parse().unwrap();
        let refused = world.management.break_glass(&somebody("ada", Role::Deployer), access.app(), &reason).await;
        assert!(matches!(refused, Err(Refusal::Forbidden(..))), "{refused:?}");
        let broken = world.management.break_glass(&world.operator, access.app(), &reason).await.unwrap();
        assert_eq!(world.deployed(&broken, "api:v2").await.status(), Status::Succeeded);
        assert_eq!(locked(world.deploy(&access, "api:v3").await), LockScope::App, "the lock stays");
        let (audited, _) = world.management.audited(&world.operator, None, 10).await.unwrap();
        let told: Vec<_> = audited.iter().map(|act| (act.entry.subject.as_str(), act.entry.is_allowed)).collect();
        let subject = "app shop-test/api: the shop is down";
        assert!(told.contains(&(subject, true)) && told.contains(&(subject, false)), "{told:?}");
        assert!(told.contains(&("app shop-test/api: no deploys before the fair", true)), "{told:?}");
        world.management.unlock(&world.operator, access.app()).await.unwrap();
        let (audited, _) = world.management.audited(&world.operator, None, 1).await.unwrap();
        assert_eq!(audited[0].entry.subject, "app shop-test/api: the lock is ended");
    });
}

#[test]
fn lock_that_a_stopped_replica_copied_in_part_is_copied_at_the_next_start() {
    let world = ManagedWorld::new(SECOND);
    let (api, web) = world.run(async {
        let (api, web) = (world.app("api", Policy::default()).await, world.app("web", Policy::default()).await);
        let (project, environment) = place("test");
        world.management.lock_environment(&world.operator, &project, &environment, freeze(None)).await.unwrap();
        // As if the copy had not come to this app.
        world.commit(&web, |change, _| Arc::make_mut(&mut change.state.app).locks = Locks::default()).await;
        (api, web)
    });
    let next = world.managed_replica("two", 2);
    world.run_managed(&next, async {
        world.sleep(5).await;
        for access in [&api, &web] {
            assert_eq!(locked(next.deployer().submit(access, request("api:v2")).await), LockScope::Environment);
        }
    });
}

#[test]
fn lock_whose_copying_failed_reaches_the_apps_within_minutes() {
    let world = ManagedWorld::new(SECOND);
    let clock = Arc::clone(&world.clock);
    // The store answers no list of apps for a while.
    let plan: Plan = Arc::new(move |call| match call {
        "history.list" if (20 * SECOND..90 * SECOND).contains(&clock.elapsed()) => Fault::Before,
        _ => Fault::None,
    });
    let history: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(history, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    let deployer = Arc::new(Deployer::new(world.ports(9).with(|ports| ports.history = history), "two"));
    let management = world.managed(deployer, Ports::new(world.records()));
    world.run_managed(&management, async {
        let registered =
            management.register(&world.operator, registration("api", Policy::default()), None).await.unwrap();
        let id = &registered.app.app.id;
        let access = management.allow(&world.operator, id, AppAction::Deploy).await.unwrap();
        let (project, environment) = place("test");
        world.sleep(20).await;
        let told = management.lock_environment(&world.operator, &project, &environment, freeze(None)).await;
        assert!(matches!(told, Err(Refusal::Core(CoreRefusal::StoreUnavailable { .. }))), "{told:?}");
        world.sleep(150).await;
        assert_eq!(locked(management.deployer().submit(&access, request("api:v2")).await), LockScope::Environment);
    });
}

#[test]
fn damaged_lock_of_an_environment_lets_no_app_be_registered() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let (project, environment) = place("test");
        world.management.lock_environment(&world.operator, &project, &environment, freeze(None)).await.unwrap();
        let records = world.records();
        let record = records.list(RecordKind::EnvironmentLock, None, 1).await.unwrap().pop().unwrap();
        let damaged = NewRecord { key: record.key.clone(), document: "{}".to_owned(), ttl: None };
        records.write(RecordKind::EnvironmentLock, damaged, Some(record.version)).await.unwrap();
        let refused = world.management.register(&world.operator, registration("api", Policy::default()), None).await;
        assert_eq!(refused.unwrap_err(), Refusal::INTERNAL);
    });
}

#[test]
fn locks_of_environments_without_apps_are_bounded_and_ended_ones_go() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let (eve, management) = (somebody("eve", Role::Deployer), &world.management);
        let stored = async || world.records().list(RecordKind::EnvironmentLock, None, 1_000).await.unwrap();
        let mut refused = 0;
        for number in 0..120 {
            let (project, environment) = place(&format!("made-up-{number}"));
            management.unlock_environment(&eve, &project, &environment).await.unwrap();
            match management.lock_environment(&eve, &project, &environment, freeze(None)).await {
                Ok(locked) => {
                    assert!(locked.notes[0].contains("has no app"), "{:?}", locked.notes);
                    management.unlock_environment(&eve, &project, &environment).await.unwrap();
                }
                Err(Refusal::TooManyLocks(100, Realm::Project { .. })) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((stored().await.len(), refused), (100, 20));
        let (project, environment) = place("test");
        let lock = async || management.lock_environment(&eve, &project, &environment, freeze(None)).await.unwrap();
        assert_eq!(lock().await.notes, Vec::<String>::new());
        assert_eq!(locked(world.deploy(&access, "api:v2").await), LockScope::Environment, "an environment with apps");
        management.unlock_environment(&eve, &project, &environment).await.unwrap();
        world.sleep(3_700).await;
        let left = stored().await;
        assert_eq!(left.len(), 1, "{left:?}");
        // The record of the environment goes as well, and the next lock is a later change all the same.
        world.records().remove(RecordKind::EnvironmentLock, &left[0].key).await.unwrap();
        lock().await;
        assert_eq!(locked(world.deploy(&access, "api:v2").await), LockScope::Environment);
    });
}

#[test]
fn environment_is_locked_and_unlocked_at_a_bounded_rate() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        world.app("api", Policy::default()).await;
        let (eve, management) = (somebody("eve", Role::Deployer), &world.management);
        let (project, environment) = place("test");
        let lock = async || management.lock_environment(&eve, &project, &environment, freeze(None)).await;
        for _ in 0..10 {
            lock().await.unwrap();
            management.unlock_environment(&eve, &project, &environment).await.unwrap();
        }
        let refused = lock().await.unwrap_err();
        assert!(matches!(refused, Refusal::TooManyLockChanges(_)), "{refused}");
        let (_, another) = place("live");
        management.lock_environment(&eve, &project, &another, freeze(None)).await.unwrap();
        world.sleep(2).await;
        lock().await.unwrap();
    });
}

#[test]
fn late_copy_of_an_older_lock_changes_nothing() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let (project, environment) = place("test");
        let lock =
            async || world.management.lock_environment(&world.operator, &project, &environment, freeze(None)).await;
        lock().await.unwrap();
        world.management.unlock_environment(&world.operator, &project, &environment).await.unwrap();
        lock().await.unwrap();
        // A replica that was paused copies the end of the first lock.
        world.commit(&access, |change, now| change.copy_lock(None, 2, now)).await;
        assert_eq!(locked(world.deploy(&access, "api:v2").await), LockScope::Environment);
    });
}
