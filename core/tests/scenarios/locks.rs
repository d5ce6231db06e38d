//! Locks of apps, and rotated tokens, on the whole engine under simulated time.

use std::time::Duration;

use rollhook_core::{
    action::Action,
    app::Policy,
    deploy::{Status, Trigger},
    lock::{Lock, LockScope, PrincipalKey},
    request::{IdempotencyKey, KeyHeader, Refusal},
    service::{Authorized, NewLock, Outcome},
    token::{Credentials, Token},
};
use rollhook_memory::Script;

use crate::world::{World, request, sha};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: u64 = 3600;

fn freeze(ttl: Option<u64>) -> NewLock {
    NewLock {
        reason: "no deploys before the fair".parse().unwrap(),
        owner: PrincipalKey::of("name", &["alice"]),
        ttl: ttl.map(Duration::from_secs),
    }
}

/// Locks an app that is not locked.
async fn lock(world: &World, access: &Authorized, ttl: Option<u64>) -> Lock {
    let state = world.deployer.set_lock(access, None, Some(freeze(ttl))).await.unwrap();
    state.app.locks.app.clone().unwrap()
}

/// Ends the lock of an app.
async fn unlock(world: &World, access: &Authorized, present: Lock) {
    world.deployer.set_lock(access, Some(present), None).await.unwrap();
}

#[track_caller]
fn locked<T: std::fmt::Debug>(answer: Outcome<T>) -> LockScope {
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
        let ci = world.webhook(&access).await;
        let present = lock(&world, &access, None).await;
        assert_eq!(locked(world.deploy(&access, "api:v3").await), LockScope::App);
        assert_eq!(locked(world.deploy(&ci, "api:v3").await), LockScope::App);
        let back = world.rolled_back(&access).await;
        assert_eq!((back.status(), back.trigger), (Status::Succeeded, Trigger::Rollback));
        assert_eq!(world.history(&access).await.len(), 3, "a refused deploy is not recorded");
        unlock(&world, &access, present).await;
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
        lock(&world, &access, None).await;
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
        lock(&world, &access, Some(HOUR)).await;
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
        let keyed = || request("api:v2").with(|request| request.key = Some(key.clone()));
        let first = world.deployer.submit(&access, keyed()).await.unwrap();
        lock(&world, &access, None).await;
        let again = world.deployer.submit(&access, keyed()).await.unwrap();
        assert!(again.replayed);
        assert_eq!(again.deploy.revision, first.deploy.revision);
    });
}

#[test]
fn polled_head_is_deployed_once_the_lock_has_ended() {
    let world = World::new(SECOND);
    world.run(async {
        let policy = Policy::default().with(|policy| policy.poll = Some(Duration::from_secs(60)));
        let access = world.git_app(policy).await;
        lock(&world, &access, Some(2 * HOUR)).await;
        world.builds.set_head(&rollhook_conformance::samples::git_source(), Some(sha("a1")));
        world.sleep(HOUR).await;
        assert_eq!(world.history(&access).await.len(), 0);
        world.sleep(HOUR + 130).await;
        assert_eq!(world.ended(&access, 1).await.commit, Some(sha("a1")));
    });
}

#[test]
fn rotated_token_lets_the_one_before_in_until_the_overlap_is_over() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let (id, overlap) = (access.app(), Duration::from_secs(HOUR));
        let early = world.deployer.rotate_webhook(&access, overlap).await;
        assert_eq!(early.unwrap_err(), Refusal::NoWebhook);
        let opens = async |token: &Token| {
            let credentials = Credentials::token(token.expose().as_bytes());
            let opens = world.deployer.authorize(id, &credentials, b"{}").await.is_ok();
            let is_known = world.deployer.recognizes(id, &credentials, b"{}");
            assert!(is_known || !opens, "whoever is let in is recognised");
            opens
        };
        let first = world.deployer.enable_webhook(&access).await.unwrap().token;
        assert!(opens(&first).await);
        let second = world.deployer.rotate_webhook(&access, overlap).await.unwrap();
        assert_eq!(second.previous.as_ref().map(|previous| previous.token.expose()), Some(first.expose()));
        world.deployer.webhook(&access).await.unwrap();
        let second = second.token;
        assert!(opens(&first).await && opens(&second).await);
        let (_, until) = world.deployer.webhook_times(&access).await.unwrap();
        assert!(until.is_some());
        world.sleep(HOUR + 1).await;
        assert!(!opens(&first).await && opens(&second).await);
        assert_eq!(world.deployer.webhook_times(&access).await.unwrap().1, None);
        let third = world.deployer.rotate_webhook(&access, overlap).await.unwrap().token;
        assert!(opens(&third).await && opens(&second).await && !opens(&first).await);
        let fourth = world.deployer.enable_webhook(&access).await.unwrap().token;
        assert!(opens(&fourth).await, "enable regenerates");
        assert!(!opens(&third).await && !opens(&second).await, "and takes both away at once");
    });
}

#[test]
fn previous_token_is_refused_as_unavailable_until_the_stores_clock_is_known() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let first = world.deployer.enable_webhook(&access).await.unwrap().token;
        let overlap = Duration::from_secs(HOUR);
        let second = world.deployer.rotate_webhook(&access, overlap).await.unwrap().token;
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
fn lock_is_changed_only_by_those_who_saw_the_one_before() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let first = lock(&world, &access, None).await;
        assert_eq!(first.by, world.operator);
        for present in [None, Some(Lock { reason: "another".parse().unwrap(), ..first.clone() })] {
            for wanted in [None, Some(freeze(Some(HOUR)))] {
                let refused = world.deployer.set_lock(&access, present.clone(), wanted).await;
                assert_eq!(refused.unwrap_err(), Refusal::Busy);
            }
        }
        assert_eq!(world.view(&access).await.app.locks.app.as_ref(), Some(&first), "nothing is changed");
        let state = world.deployer.set_lock(&access, Some(first), Some(freeze(Some(HOUR)))).await.unwrap();
        let second = state.app.locks.app.clone().unwrap();
        assert_eq!(second.until, Some(second.at.after(Duration::from_secs(HOUR))));
    });
}

#[test]
fn copied_lock_of_an_environment_refuses_deploys_until_a_later_copy_ends_it() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let app = world.view(&access).await.app;
        let lock = freeze(None).set(access.actor(), world.now());
        let copy = async |lock: Option<&Lock>, sequence| {
            world.deployer.copy_environment_lock(&app, lock.cloned(), sequence).await.unwrap();
        };
        copy(Some(&lock), 3).await;
        assert_eq!(locked(world.deploy(&access, "api:v2").await), LockScope::Environment);
        // A replica that was paused copies the end of an earlier lock.
        copy(None, 2).await;
        assert_eq!(locked(world.deploy(&access, "api:v2").await), LockScope::Environment);
        assert_eq!(world.history(&access).await.len(), 1, "a refused deploy is not recorded");
        copy(None, 4).await;
        assert_eq!(world.deployed(&access, "api:v2").await.status(), Status::Succeeded);
        world.deployer.delete(&access).await.unwrap();
        copy(Some(&lock), 5).await;
    });
}

#[test]
fn deploy_in_spite_of_locks_takes_a_proof_of_that_and_leaves_the_lock() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        lock(&world, &access, None).await;
        let actions = [Action::Read, Action::Deploy];
        let deployer = world.deployer.allow(world.operator.clone(), access.app(), &actions).await.unwrap();
        let refused = deployer.in_spite_of_locks();
        assert_eq!(refused.unwrap_err(), Refusal::NotAllowed(Action::BreakGlass));
        let broken = access.clone().in_spite_of_locks().unwrap();
        assert_eq!(world.deployed(&broken, "api:v2").await.status(), Status::Succeeded);
        assert_eq!(locked(world.deploy(&access, "api:v3").await), LockScope::App, "the lock stays");
    });
}
