//! Rollbacks and restores beside builds, on the whole engine under simulated time.

use std::time::Duration;

use rollhook_core::{
    app::{OnFailure, Policy},
    deploy::{Origin, Revision, State, Status},
    ledger::UNFINISHED_MAX,
    request::{PolicyChange, Refusal},
};
use rollhook_memory::{BuildScript, Script};

use crate::world::{World, statuses};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn rollback_cancels_builds_and_the_next_waits_for_their_end() {
    let world = World::new(SECOND);
    world.builds.script("c3", BuildScript::hangs().dying_for(Duration::from_secs(20)));
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        world.deploy_commit(&access, "c3").await.unwrap();
        world.sleep(5).await;
        let accepted = world.rollback(&access).await.unwrap();
        assert_eq!(accepted.superseded, [Revision::new(3).unwrap()]);
        assert_eq!(accepted.deploy.from, Some(Origin::Revision(Revision::FIRST)));
        let begun = world.now();
        world.deploy_commit(&access, "d5").await.unwrap();
        let back = world.ended(&access, 4).await;
        assert_eq!(back.status(), Status::Succeeded);
        assert!(back.updated_at.since(begun) < Duration::from_secs(15), "it waits for no build");
        assert_eq!(world.entry(&access, 5).await.status(), Status::Queued, "the cancelled build still dies");
        assert_eq!(world.builds.running_now(access.uid()), 1);
        assert_eq!(world.ended(&access, 5).await.status(), Status::Succeeded);
        let times: Vec<_> = world.builds.begun().iter().map(|begun| begun.at).collect();
        assert!(times[3] - times[2] >= Duration::from_secs(20));
        assert!(matches!(world.entry(&access, 3).await.state, State::Superseded { rollback: true, .. }));
        world.quiet(&access).await;
    });
}

#[test]
fn restore_leaves_newer_builds_alone_and_they_run_behind_it() {
    let world = World::new(SECOND);
    world.cluster.script(":b2", Script::missing());
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        for commit in ["b2", "c3", "d4"] {
            world.deploy_commit(&access, commit).await.unwrap();
        }
        let failed = world.ended(&access, 2).await;
        assert_eq!(failed.status(), Status::Failed);
        let first = world.deployer.wait(&access, Revision::new(3).unwrap(), 600 * SECOND).await.unwrap();
        assert_eq!(first.last().status(), Status::Succeeded, "a wait follows to the new entry: {first:?}");

        let history = world.quiet(&access).await;
        let of = |number: usize| &history[number - 1];
        assert!(of(5).is_restore() && of(5).status() == Status::Succeeded, "{:?}", statuses(&history));
        for (first, anew) in [(3, 6), (4, 7)] {
            let by = Revision::new(anew as u64).unwrap();
            assert_eq!(of(first).state, State::Superseded { by, rollback: false, newer: None });
            assert_eq!(of(anew).from, Some(Origin::Built(of(first).revision)));
            assert_eq!((&of(anew).commit, of(anew).trigger), (&of(first).commit, of(first).trigger));
            assert_eq!(of(anew).status(), Status::Succeeded, "{:?}", statuses(&history));
        }
        assert_eq!(world.begun(), [1, 2, 3, 4], "each is built once");
        assert_eq!(world.effects(), [1, 2, 5, 6, 7], "and none goes backwards");
        let log = world.deployer.build_log(&access, of(7).revision, 0, false).await;
        assert_eq!(log, world.deployer.build_log(&access, of(4).revision, 0, false).await, "the log is its build's");
    });
}

#[test]
fn restore_is_not_refused_with_100_unfinished_deploys_and_a_stop_ends_the_engine() {
    let world = World::new(SECOND);
    world.cluster.script(":b2", Script::crashes());
    let scenario = async {
        let access = world.built_app(Policy::default().with(|policy| policy.on_failure = OnFailure::Leave)).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        assert_eq!(world.ended(&access, 2).await.status(), Status::Failed);
        // These are never built.
        for number in 0..UNFINISHED_MAX {
            world.deploy_commit(&access, &format!("888{number:03}")).await.unwrap();
        }
        assert_eq!(world.deploy_commit(&access, "c3").await.unwrap_err(), Refusal::TooManyUnfinished);
        let change = PolicyChange { on_failure: Some(OnFailure::Restore), ..PolicyChange::default() };
        world.deployer.change_policy(&access, change).await.unwrap();
        world.sleep(60).await;
        let number = UNFINISHED_MAX as u64 + 3;
        let restore = world.ended(&access, number).await;
        assert!(restore.is_restore() && restore.status() == Status::Succeeded, "{restore:?}");
        let state = world.view(&access).await;
        assert_eq!((state.unfinished.len(), state.latest), (UNFINISHED_MAX, Some(restore.revision)), "and only once");
    };
    world.idle(world.deployer.run(scenario)).unwrap();
}

#[test]
fn a_rollback_waits_for_no_builder() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        world.ended(&access, 2).await;
        world.deploy_commit(&access, "c3").await.unwrap();
        world.sleep(5).await;
        world.builds.set_reachable(false);
        let begun = world.now();
        let back = world.rolled_back(&access).await;
        assert_eq!(back.status(), Status::Succeeded);
        assert!(back.updated_at.since(begun) < Duration::from_secs(15));
        world.sleep(300).await;
        world.builds.set_reachable(true);
        world.quiet(&access).await;
        assert_eq!(world.builds.running_now(access.uid()), 0);
    });
}
