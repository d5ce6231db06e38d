//! What becomes of a workload at rest is shown, and left alone until a person deploys: changes by others, instances that
//! end again and again, and the recovery of a deploy that had failed.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt};
use rollhook_conformance::{Fault, Faulty, Plan, samples};
use rollhook_core::{
    app::Policy,
    deploy::{Reason, State, Status},
    image::ImageRef,
    ledger::AppState,
    ports::{Clock, RolloutDriver, RolloutFailureKind, TargetReader},
    request::{PolicyChange, RollbackRequest, SourceChange, TargetChange},
    service::{Authorized, Condition, Deployer},
};
use rollhook_memory::Script;
use serde_json::json;

use crate::world::{self, World};

const SECOND: Duration = Duration::from_secs(1);

async fn state(world: &World, access: &Authorized) -> AppState {
    world.deployer.state(access).await.unwrap()
}

/// The image that is told to run instead, by memory and by the cluster.
async fn told(world: &World, access: &Authorized) -> Option<String> {
    let state = state(world, access).await;
    let known = world.deployer.known_condition(&state);
    assert_eq!(world.deployer.drifted_apps(), usize::from(known.drift.is_some()));
    assert_eq!(world.deployer.condition(&state).await, known, "what is known is what is so");
    known.drift.map(|drift| drift.image.map_or(drift.message, |image| image.to_string()))
}

#[test]
fn image_that_another_set_is_told_and_the_current_one_can_be_deployed_again() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &world::api("v2")).await;
        world.sleep(5).await;
        assert_eq!(told(&world, &access).await, None);
        for (round, tag) in ["hotfix", "another"].into_iter().enumerate() {
            let app = state(&world, &access).await.app;
            assert!(world.cluster.meddle(&app.id, &app.target, &samples::image(tag)));
            world.sleep(5).await;
            assert_eq!(told(&world, &access).await, Some(samples::image(tag).to_string()));
            let before = world.effects();
            world.sleep(60).await;
            assert_eq!(world.effects(), before, "nothing is put right by itself");
            let current = state(&world, &access).await.current.unwrap();
            assert_eq!(current.image, Some(world::api("v2").parse().unwrap()), "the history says what was deployed");
            let again = if round == 0 {
                world.deployed(&access, &world::api("v2")).await
            } else {
                let request = RollbackRequest::default().with(|request| request.revision = Some(current.revision));
                let deploy = world.deployer.rollback(&access, request).await.unwrap().deploy;
                world.ended(&access, deploy.revision.get()).await
            };
            assert_eq!(again.status(), Status::Succeeded);
            assert_eq!(world.effects().last(), Some(&again.revision.get()));
            world.sleep(5).await;
            assert_eq!(told(&world, &access).await, None);
        }
    });
}

#[test]
fn start_looks_at_a_few_workloads_a_second() {
    let world = World::new(SECOND);
    let apps = world.run(async {
        let mut apps = Vec::new();
        for index in 0..40 {
            let access = world.app(&format!("app-{index:02}"), Policy::default()).await;
            apps.push(state(&world, &access).await.app);
        }
        apps
    });
    let mut hints = world.cluster.target_changes();
    for app in &apps {
        assert!(world.cluster.unstamp(&app.id, &app.target), "while nothing runs");
    }
    while hints.next().now_or_never().is_some() {}
    drop(hints);
    let restarted = world.replica("one", 2);
    world.run_beside(&restarted, async {
        world.sleep(2).await;
        let told = restarted.drifted_apps();
        assert!((1..=10).contains(&told), "{told} were looked at in 2 s");
        // A change that is told does not wait for the others.
        let last = &apps[39];
        assert!(world.cluster.meddle(&last.id, &last.target, &samples::image("hotfix")));
        world.sleep(1).await;
        let access = world.access(&last.id).await;
        assert!(restarted.known_condition(&state(&world, &access).await).drift.is_some());
        world.sleep(20).await;
        assert_eq!(restarted.drifted_apps(), 40);
    });
}

#[test]
fn workload_that_was_deleted_or_lost_its_id_is_told_also_after_a_restart() {
    let world = World::new(SECOND);
    let access = world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &world::api("v2")).await;
        access
    });
    let app = world.idle(state(&world, &access)).app;
    assert!(world.cluster.unstamp(&app.id, &app.target), "while nothing runs");
    world.run(async {
        world.sleep(5).await;
        assert!(told(&world, &access).await.unwrap().contains("deploy id"));
        assert!(world.cluster.delete(&app.id, &app.target));
        world.sleep(5).await;
        assert!(told(&world, &access).await.unwrap().contains("removed the workload"));
    });
}

/// The code of the trouble that is known of an app.
async fn trouble(deployer: &Deployer, access: &Authorized) -> Option<String> {
    let state = deployer.state(access).await.unwrap();
    let Condition { degraded, drift, .. } = deployer.known_condition(&state);
    assert_eq!(drift, None, "no other party changed anything");
    assert_eq!(deployer.degraded_apps(), usize::from(degraded.is_some()));
    degraded.map(|degraded| degraded.reason.to_string())
}

#[test]
fn container_that_exits_every_14_s_is_shown_within_half_a_minute_of_its_success() {
    let world = World::new(SECOND);
    world.cluster.script("v2", Script::restarts_every(14 * SECOND));
    let restarting = Some(Reason::RESTARTING.to_owned());
    let access = world.run(async {
        let access = world.app("api", Policy::default()).await;
        let app = state(&world, &access).await.app;
        assert!(world.cluster.scale(&app.id, &app.target, 1));
        let deployed = world.deployed(&access, &world::api("v2")).await;
        assert_eq!(deployed.status(), Status::Succeeded, "its first life is long enough");
        world.sleep(5).await;
        assert_eq!(trouble(&world.deployer, &access).await, None);
        world.sleep(25).await;
        assert_eq!(trouble(&world.deployer, &access).await, restarting);
        let (before, current) = (world.effects(), state(&world, &access).await.current.unwrap());
        world.sleep(600).await;
        assert_eq!(trouble(&world.deployer, &access).await, restarting, "it stays so");
        assert_eq!(world.effects(), before, "nothing is put right by itself");
        assert_eq!(world.entry(&access, current.revision.get()).await, *current, "the history says what was deployed");
        access
    });
    let restarted = world.replica("one", 2);
    world.run_beside(&restarted, async {
        world.sleep(40).await;
        assert_eq!(trouble(&restarted, &access).await, restarting, "memory holds nothing that a restart must know");
        world.cluster.script("v2", Script::completes());
        world.sleep(20).await;
        assert_eq!(trouble(&restarted, &access).await, restarting, "it may go on");
        world.sleep(40).await;
        assert_eq!(trouble(&restarted, &access).await, None, "it has outlived its lives before");
        world.cluster.script("v2", Script::crashes());
        world.sleep(10).await;
        assert_eq!(trouble(&restarted, &access).await, Some("CrashLoopBackOff".to_owned()));
        assert_eq!(world.deployed(&access, &world::api("v3")).await.status(), Status::Succeeded);
        world.sleep(5).await;
        assert_eq!(trouble(&restarted, &access).await, None, "the next version is well");
    });
}

#[test]
fn restore_that_failed_recovers_when_its_target_heals_and_the_history_says_so() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let quota = Script::fails(RolloutFailureKind::Capacity, "FailedCreate", "exceeded quota: small");
        world.cluster.script("v1", quota.healing_after(1_000 * SECOND));
        assert_eq!(world.deployed(&access, &world::api("missing")).await.status(), Status::Failed);
        let restore = world.ended(&access, 3).await;
        assert!(restore.is_restore() && restore.status() == Status::Failed);
        world.sleep(90).await;
        assert_eq!(trouble(&world.deployer, &access).await, None, "its failure tells of it, once");
        let shown = state(&world, &access).await;
        assert_eq!(shown.recovered_at(restore.revision), None);
        let before = world.effects();

        world.sleep(400).await;
        assert_eq!(trouble(&world.deployer, &access).await, None);
        let shown = state(&world, &access).await;
        assert!(shown.recovered_at(restore.revision).unwrap() > restore.updated_at);
        assert_eq!(shown.current.as_ref().unwrap().revision.get(), 1, "what runs");
        assert_eq!(world.entry(&access, 3).await, restore, "what is stored of an end stays");
        let changed = shown.updated_at;
        world.sleep(600).await;
        assert_eq!(state(&world, &access).await.updated_at, changed, "it is recorded once");
        assert_eq!(world.effects(), before, "and nothing is put right by itself");
        assert_eq!(world.history(&access).await.len(), 3, "which keeps the rules");
    });
}

#[test]
fn lost_instances_are_shown_after_the_patience_and_not_before() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default().with(|policy| policy.patience = 120 * SECOND)).await;
        world.sleep(20).await;
        world.cluster.script("v1", Script::hangs());
        world.sleep(110).await;
        assert_eq!(trouble(&world.deployer, &access).await, None, "a node is replaced, maybe");
        world.sleep(20).await;
        assert_eq!(trouble(&world.deployer, &access).await, Some(Reason::NOT_READY.to_owned()));
        world.cluster.script("v1", Script::completes());
        world.sleep(15).await;
        assert_eq!(trouble(&world.deployer, &access).await, None);
    });
}

#[test]
fn hotfix_during_a_rollout_ends_it_and_stays() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &world::api("v2")).await;
        let revision = world.deploy(&access, &world::api("hang")).await.unwrap().deploy.revision.get();
        world.sleep(2).await;
        let app = state(&world, &access).await.app;
        assert!(world.cluster.meddle(&app.id, &app.target, &samples::image("hotfix")));
        let ended = world.ended(&access, revision).await;
        let State::Failed { reason, message, .. } = &ended.state else { panic!("{ended:?}") };
        assert_eq!(reason.as_str(), Reason::REVERTED);
        assert!(message.contains("nothing is restored"), "{message}");
        let before = world.effects();
        world.sleep(60).await;
        assert_eq!(world.effects(), before, "nothing is put right by itself");
        assert_eq!(told(&world, &access).await, Some(samples::image("hotfix").to_string()));
        // The way on is a deploy, or a rollback to the version that ran.
        let request = RollbackRequest::default();
        let deploy = world.deployer.rollback(&access, request).await.unwrap().deploy;
        let back = world.ended(&access, deploy.revision.get()).await;
        let image = back.image.clone().map(ImageRef::unpinned);
        assert_eq!((back.status(), image), (Status::Succeeded, Some(world::api("v2").parse().unwrap())));
        world.sleep(5).await;
        assert_eq!(told(&world, &access).await, None);
    });
}

#[test]
fn targets_that_no_app_names_any_more_are_remembered_by_no_replica() {
    let world = World::new(Duration::ZERO);
    let other = world.replica("two", 2);
    let access = world.run(async {
        let access = world.app("api", Policy::default()).await;
        for number in 0..10 {
            let app = state(&world, &access).await.app;
            let worker = format!("worker-{number}");
            world.cluster.seed(&app.id, &samples::target(&worker), &world::image(&world::api("v1")));
            let settings = samples::settings(json!({ "also": [format!("Deployment/{worker}")] }));
            let change = TargetChange { settings, ..TargetChange::default() };
            world.deployer.change(&access, PolicyChange::default(), SourceChange::default(), change).await.unwrap();
            if number % 2 == 0 {
                world.deployed(&access, &world::api("v2")).await;
            }
            world.sleep(120).await;
            assert!(world.cluster.watched_targets(access.uid()) <= 2, "{number}");
        }
        world.deployed(&access, &world::api("v3")).await;
        world.sleep(5).await;
        assert_eq!(world.cluster.watched_targets(access.uid()), 2);
        access
    });
    world.run_beside(&other, async {
        world.sleep(60).await;
        assert_eq!(world.cluster.watched_targets(access.uid()), 2, "the other replica looks too");
        world.deployer.delete(&access).await.unwrap();
        world.sleep(120).await;
        assert_eq!(world.cluster.watched_targets(access.uid()), 0, "it hears of the deletion");
    });
}

/// A replica whose looks at targets at rest are answered after five seconds.
fn slow_to_look(world: &World) -> Deployer {
    let plan: Plan = Arc::new(|call| match call {
        "rollouts.at_rest" => Fault::Late(5 * SECOND),
        _ => Fault::None,
    });
    let cluster: Arc<dyn RolloutDriver> = world.cluster.clone();
    let rollouts = Arc::new(Faulty::new(cluster, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    Deployer::new(world.ports(9).with(|ports| ports.rollouts = rollouts), "two")
}

#[test]
fn change_during_a_look_is_found_by_the_next_one() {
    let world = World::new(SECOND);
    let access = world.run(world.app("api", Policy::default()));
    let slow = slow_to_look(&world);
    world.run_beside(&slow, async {
        let state = slow.state(&access).await.unwrap();
        world.sleep(1).await;
        assert!(world.cluster.meddle(&state.app.id, &state.app.target, &samples::image("hotfix")));
        world.sleep(5).await;
        let condition = slow.observed_condition(&state).expect("the first look has ended");
        assert_eq!(condition.drift, None, "it had read the target before the change");
        world.sleep(8).await;
        assert!(slow.known_condition(&state).drift.is_some());
    });
}

#[test]
fn app_that_is_deleted_during_a_look_is_not_remembered() {
    let world = World::new(SECOND);
    let access = world.run(world.app("api", Policy::default()));
    let slow = slow_to_look(&world);
    world.run_beside(&slow, async {
        let app = slow.state(&access).await.unwrap().app;
        world.sleep(10).await;
        assert!(world.cluster.meddle(&app.id, &app.target, &samples::image("hotfix")));
        world.sleep(1).await;
        world.deployer.delete(&access).await.unwrap();
        world.sleep(5).await;
        assert_eq!(slow.drifted_apps(), 1, "the look has ended since");
        world.sleep(60).await;
        assert_eq!((slow.drifted_apps(), world.cluster.watched_targets(app.uid)), (0, 0));
    });
}
