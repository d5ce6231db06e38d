//! Rolling out: what succeeds, what fails, what gives way, and what time and restarts change about it; each rule as a
//! scenario on the whole engine under simulated time.

use std::time::Duration;

use rollhook_core::{
    app::{AppUid, Policy},
    deploy::{Newer, Revision, Sequence, State, Status},
    ledger::restore::Restoration,
    ports::{HistoryStore, RolloutFailureKind},
    request::DeployRequest,
};
use rollhook_memory::Script;

use crate::world::{self, World, api, image, leave, reason, request, statuses};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_deploy_succeeds_once_it_was_observed_and_settled() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let begun = world.now();
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!(done.status(), Status::Succeeded);
        assert!(done.updated_at.since(begun) >= Duration::from_secs(11), "rollout and settle");
        assert!(done.digest.is_some());
        let view = world.view(&access).await;
        assert_eq!(view.current.as_ref().map(|d| d.revision.get()), Some(2));
        assert_eq!(view.current.as_ref(), view.on_cluster());
        assert_eq!(statuses(&world.quiet(&access).await), [(1, Status::Succeeded), (2, Status::Succeeded)]);
        assert_eq!(world.effects(), [1, 2]);
    });
}

#[test]
fn healthy_old_version_does_not_make_the_new_one_succeed() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", leave()).await;
        let failed = world.deployed(&access, &api("hang")).await;
        assert_eq!(failed.status(), Status::Failed);
        let (code, message) = reason(&failed);
        assert_eq!(code, "rollout-deadline-exceeded");
        assert!(message.contains("600 s"), "{message}");
        let view = world.view(&access).await;
        assert_eq!(view.current.as_ref().unwrap().revision.get(), 1);
        assert_eq!(view.on_cluster().unwrap().revision.get(), 2);
    });
}

#[test]
fn container_that_dies_while_settling_fails_the_deploy() {
    let world = World::new(SECOND);
    world.cluster.script("dies", Script::dies_after(Duration::from_secs(3)));
    world.run(async {
        let access = world.app("api", leave()).await;
        let failed = world.deployed(&access, &api("dies")).await;
        assert_eq!(failed.status(), Status::Failed);
    });
}

#[test]
fn container_that_is_ready_between_its_ends_is_no_success() {
    let world = World::new(SECOND);
    // Each of its lives but the first is longer than the settling time.
    world.cluster.script("relapses", Script::relapses(Duration::from_secs(8), Duration::from_secs(14)));
    world.run(async {
        let access = world.app("api", leave()).await;
        let failed = world.deployed(&access, &api("relapses")).await;
        assert_eq!(reason(&failed).0, "containers-restarting");
    });
}

#[test]
fn container_that_crashed_and_got_well_succeeds_once_it_has_outlived_its_crashes() {
    let world = World::new(SECOND);
    world.cluster.script("heals", Script::crashes().healing_after(Duration::from_secs(25)));
    world.run(async {
        let access = world.app("api", leave()).await;
        assert_eq!(world.deployed(&access, &api("heals")).await.status(), Status::Succeeded);
    });
}

#[test]
fn app_that_is_down_for_a_new_version_is_put_right_in_a_minute() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs().stopping_first());
    world.cluster.script("crash", Script::crashes().stopping_first());
    world.run(async {
        let access = world.app("api", leave()).await;
        let begun = world.now();
        let failed = world.deployed(&access, &api("hang")).await;
        assert_eq!(reason(&failed).0, "not-ready");
        let down = failed.updated_at.since(begun);
        assert!(down >= Duration::from_secs(60) && down < Duration::from_secs(80), "{down:?}");
        let begun = world.now();
        let failed = world.deployed(&access, &api("crash")).await;
        assert_eq!(reason(&failed).0, "CrashLoopBackOff");
        let down = failed.updated_at.since(begun);
        assert!(down < Duration::from_secs(10), "the first end is enough: {down:?}");
    });
}

#[test]
fn failure_is_given_patience_and_then_named_with_its_evidence() {
    let world = World::new(SECOND);
    let unanswered = Script::fails(RolloutFailureKind::Image, "ImagePullBackOff", "the registry does not answer");
    world.cluster.script("flaky", unanswered.healing_after(Duration::from_secs(50)));
    world.run(async {
        let access = world.app("api", leave()).await;
        assert_eq!(world.deployed(&access, &api("flaky")).await.status(), Status::Succeeded);
        let failed = world.deployed(&access, &api("missing")).await;
        let State::Failed { reason, message, evidence } = failed.state else { panic!("{:?}", failed.state) };
        assert_eq!(reason.as_str(), "ImagePullBackOff");
        assert!(!message.is_empty());
        assert_eq!(evidence.unwrap().container.as_deref(), Some("api"));
    });
}

#[test]
fn only_the_highest_rolls_out_and_every_other_ends() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let deploys = (0..50).map(|n| world.deployer.submit(&access, request(&api(&format!("n{n}")))));
        let accepted = futures_util::future::join_all(deploys).await;
        let mut revisions: Vec<u64> = accepted.iter().map(|a| a.as_ref().unwrap().deploy.revision.get()).collect();
        revisions.sort_unstable();
        assert_eq!(revisions, (2..=51).collect::<Vec<_>>());
        let history = world.quiet(&access).await;
        assert_eq!(history.len(), 51);
        assert_eq!(history[50].status(), Status::Succeeded);
        assert!(history[1..50].iter().all(|d| matches!(d.status(), Status::Superseded | Status::Succeeded)));
        let effects = world.effects();
        assert!(effects.is_sorted(), "{effects:?}");
        assert_eq!(effects.last(), Some(&51));
    });
}

#[test]
fn a_rollout_without_progress_gives_way_and_one_with_progress_does_not() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let hung = world.deploy(&access, &api("hang")).await.unwrap().deploy.revision.get();
        world.sleep(2).await;
        let begun = world.now();
        let next = world.deployed(&access, &api("v3")).await;
        assert_eq!(next.status(), Status::Succeeded);
        let gave_way = world.entry(&access, hung).await;
        assert_eq!(gave_way.state, State::Superseded { by: next.revision, rollback: false, newer: None });
        let waited = gave_way.updated_at.since(begun);
        assert!(waited >= Duration::from_secs(5) && waited <= Duration::from_secs(12), "{waited:?}");
    });
}

#[test]
fn a_rollout_that_settles_is_not_without_progress() {
    for settle in [10, 60] {
        let world = World::new(SECOND);
        world.run(async {
            let policy = Policy::default().with(|policy| policy.settle = Duration::from_secs(settle));
            let access = world.app("api", policy).await;
            let good = world.deploy(&access, &api("v2")).await.unwrap().deploy.revision.get();
            world.sleep(3).await;
            let next = world.deploy(&access, &api("v3")).await.unwrap().deploy.revision.get();
            assert_eq!(world.ended(&access, good).await.status(), Status::Succeeded, "settle {settle} s");
            assert_eq!(world.ended(&access, next).await.status(), Status::Succeeded, "settle {settle} s");
        });
    }
}

#[test]
fn a_rollout_that_only_waits_for_old_pods_succeeds_as_it_gives_way() {
    let world = World::new(SECOND);
    world.cluster.script("drains", Script::completes().terminating_for(Duration::from_secs(300)));
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        // Alone, it waits for them.
        let begun = world.now();
        let waited = world.deployed(&access, &api("drains")).await;
        assert!(waited.updated_at.since(begun) >= Duration::from_secs(300));
        assert_eq!(waited.state, State::Succeeded { note: None });
        for after in [3, 60] {
            let first = world.deploy(&access, &api("drains")).await.unwrap().deploy.revision.get();
            world.sleep(after).await;
            let begun = world.now();
            let next = world.deployed(&access, &api("v3")).await;
            assert_eq!(next.status(), Status::Succeeded);
            let first = world.entry(&access, first).await;
            let note = Some("pods of the version before still terminate".to_owned());
            assert_eq!(first.state, State::Succeeded { note }, "after {after} s");
            let waited = first.updated_at.since(begun);
            assert!(waited <= Duration::from_secs(10), "the newer one waited for {waited:?}");
        }
        // One that has not settled is as every other.
        let dies = Script::dies_after(Duration::from_secs(3)).terminating_for(Duration::from_secs(300));
        world.cluster.script("dies", dies);
        let first = world.deploy(&access, &api("dies")).await.unwrap().deploy.revision.get();
        world.sleep(3).await;
        world.deployed(&access, &api("v3")).await;
        assert_ne!(world.entry(&access, first).await.status(), Status::Succeeded);
    });
}

#[test]
fn posting_the_same_image_again_is_a_rollout_of_its_own() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        world.deployed(&access, &api("v2")).await;
        assert_eq!(world.effects(), [1, 2, 3]);
    });
}

#[test]
fn time_in_which_the_cluster_is_away_does_not_count() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.cluster.set_reachable(false);
        let revision = world.deploy(&access, &api("v2")).await.unwrap().deploy.revision.get();
        world.sleep(30 * 60).await;
        assert_eq!(world.entry(&access, revision).await.status(), Status::RollingOut);
        world.cluster.set_reachable(true);
        assert_eq!(world.ended(&access, revision).await.status(), Status::Succeeded);
        world.cluster.set_reachable(false);
        let lost = world.deployed(&access, &api("v3")).await;
        assert_eq!(reason(&lost).0, "cluster-unreachable");
        world.cluster.set_reachable(true);
        world.quiet(&access).await;
    });
}

#[test]
fn time_in_which_the_cluster_denies_permission_does_not_count() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.cluster.set_permitted(false);
        let revision = world.deploy(&access, &api("v2")).await.unwrap().deploy.revision.get();
        world.sleep(30 * 60).await;
        assert_eq!(world.entry(&access, revision).await.status(), Status::RollingOut);
        world.cluster.set_permitted(true);
        assert_eq!(world.ended(&access, revision).await.status(), Status::Succeeded);
        world.cluster.set_permitted(false);
        let (reason, message) = reason(&world.deployed(&access, &api("v3")).await);
        assert_eq!(reason, "cluster-unreachable");
        assert!(
            message.contains("denied permission for an hour (the simulated cluster denies every call)"),
            "{message}"
        );
        world.cluster.set_permitted(true);
        world.quiet(&access).await;
    });
}

#[test]
fn a_deadline_survives_a_restart_and_a_take_over() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    let access = world.run(async {
        let access = world.app("api", leave()).await;
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(5 * 60).await;
        access
    });
    // The first process is gone without a word; another one takes over.
    let other = world.replica("two", 2);
    let begun = world.now();
    let failed = world::block_on(&world.clock, async {
        use futures_util::{FutureExt, select_biased};
        let mut engine = std::pin::pin!(other.run(std::future::pending()).fuse());
        let mut scenario = std::pin::pin!(world.ended(&access, 2).fuse());
        select_biased! { end = engine => panic!("{end:?}"), value = scenario => value }
    });
    assert_eq!(reason(&failed).0, "rollout-deadline-exceeded");
    let waited = failed.updated_at.since(begun);
    assert!(waited < Duration::from_secs(5 * 60 + 10), "{waited:?}");
}

#[test]
fn restarted_replica_takes_its_leases_at_once_and_others_within_30_seconds() {
    for (name, most) in [("one", 14), ("two", 30 + 14)] {
        let world = World::new(SECOND);
        let access = world.run(async {
            let access = world.app("api", Policy::default()).await;
            world.deploy(&access, &api("v2")).await.unwrap();
            world.sleep(3).await;
            access
        });
        let begun = world.now();
        let next = world.replica(name, 7);
        let done = world::block_on(&world.clock, async {
            use futures_util::{FutureExt, select_biased};
            let mut engine = std::pin::pin!(next.run(std::future::pending()).fuse());
            let mut scenario = std::pin::pin!(world.ended(&access, 2).fuse());
            select_biased! { end = engine => panic!("{end:?}"), value = scenario => value }
        });
        assert_eq!(done.status(), Status::Succeeded);
        let waited = done.updated_at.since(begun);
        assert!(waited <= Duration::from_secs(most), "{name}: {waited:?}");
    }
}

#[test]
fn a_wait_follows_the_deploy_that_took_its_place() {
    let world = World::new(Duration::from_secs(30));
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deploy(&access, &api("v2")).await.unwrap();
        world.sleep(1).await;
        let middle = world.deploy(&access, &api("v3")).await.unwrap().deploy.revision;
        let last = world.deploy(&access, &api("v4")).await.unwrap().deploy.revision;
        let short = world.deployer.wait(&access, middle, Duration::from_secs(5)).await.unwrap();
        assert!(!short.last().is_terminal());
        let long = world.deployer.wait(&access, middle, Duration::from_secs(300)).await.unwrap();
        assert_eq!(long.deploy.status(), Status::Superseded);
        assert_eq!(long.last().revision, last);
        assert_eq!(long.last().status(), Status::Succeeded);
    });
}

#[test]
fn refused_apply_does_not_count_as_touched() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let app = world.view(&access).await.app;
        // Somebody else's registration has the workload by now.
        world.cluster.delete(&app.id, &app.target);
        let foreign = rollhook_core::app::App { uid: AppUid::from_bits(77), ..(*app).clone() };
        let id = rollhook_core::ports::DeployId { app: foreign.uid, revision: Revision::FIRST };
        let (target, image) = (app.target.clone(), image(&api("theirs")));
        let order = rollhook_core::ports::RolloutSpec::new(app.id.clone(), id, target, image);
        rollhook_core::ports::RolloutDriver::apply(&*world.cluster, &order).await.unwrap();
        let refused = world.deployed(&access, &api("v2")).await;
        assert_eq!(reason(&refused).0, "foreign-target");
        assert!(!refused.touched);
        let history = world.quiet(&access).await;
        assert_eq!(history.len(), 2, "nothing is owed");
        assert_eq!(world.view(&access).await.on_cluster().unwrap().revision.get(), 1);
    });
}

#[test]
fn stepping_an_idle_app_does_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("missing")).await;
        let before = (world.quiet(&access).await, world.effects());
        world.sleep(24 * 3600).await;
        assert_eq!((world.history(&access).await, world.effects()), before);
        assert_eq!(world.store.work(&[], 10).await.unwrap(), Vec::<AppUid>::new(), "no work is left");
        assert!(world.store.archived(access.uid(), Revision::FIRST).await.unwrap().is_some());
    });
}

/// The request of a pipeline of this number.
fn of_run(tag: &str, number: u64) -> DeployRequest {
    request(&api(tag)).with(|request| request.order = Sequence::new(number).into())
}

#[test]
fn webhook_deploy_of_an_older_run_ends_as_the_newer_one_and_changes_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let webhook = world.webhook(&access).await;
        let newer = world.deployer.submit(&webhook, of_run("v3", 12)).await.unwrap().deploy.revision;
        let late = world.deployer.submit(&webhook, of_run("v2", 11)).await.unwrap();
        let state = State::Superseded { by: newer, rollback: false, newer: Sequence::new(12).map(Newer::Sequence) };
        assert_eq!((late.deploy.revision.get(), &late.deploy.state, late.replayed), (3, &state, false));
        assert_eq!(late.superseded, []);
        let waited = world.deployer.wait(&webhook, late.deploy.revision, Duration::from_secs(60)).await.unwrap();
        let last = (waited.last().revision, waited.last().status());
        assert_eq!(last, (newer, Status::Succeeded), "its caller is answered by the end of the newer one");
        assert_eq!(waited.restore, Some(Restoration::NotOwed));
        let history = world.quiet(&access).await;
        let ends = [Status::Succeeded, Status::Succeeded, Status::Superseded];
        assert_eq!(statuses(&history).iter().map(|(_, status)| *status).collect::<Vec<_>>(), ends);
        assert_eq!(world.effects(), [1, 2]);
        let view = world.view(&access).await;
        assert_eq!((view.lease, view.queued_at), (None, None), "nothing is left to do");

        // A person's deploy is in order whenever it comes, and does not count.
        assert_eq!(world.deployer.submit(&access, of_run("v2", 1)).await.unwrap().deploy.sequence, None);
        assert_eq!(world.ended(&access, 4).await.status(), Status::Succeeded);
        let late = world.deployer.submit(&webhook, of_run("v2", 11)).await.unwrap();
        assert_eq!(late.deploy.state, state);
        let equal = world.deployer.submit(&webhook, of_run("v3", 12)).await.unwrap();
        assert_eq!(world.ended(&access, equal.deploy.revision.get()).await.status(), Status::Succeeded);
    });
}

#[test]
fn pipeline_of_an_older_run_fails_with_the_newer_one() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", leave()).await;
        let webhook = world.webhook(&access).await;
        world.deployer.submit(&webhook, of_run("hang", 12)).await.unwrap();
        let late = world.deployer.submit(&webhook, of_run("v2", 11)).await.unwrap().deploy.revision;
        let waited = world.deployer.wait(&webhook, late, Duration::from_secs(3_600)).await.unwrap();
        assert_eq!((waited.last().revision.get(), waited.last().status()), (2, Status::Failed));
    });
}

#[test]
fn enabled_webhook_counts_its_sequences_anew() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let webhook = world.webhook(&access).await;
        world.deployer.submit(&webhook, of_run("v2", 4_711)).await.unwrap();
        world.deployer.rotate_webhook(&access, Duration::from_secs(60)).await.unwrap();
        assert_eq!(world.view(&access).await.highest_sequence.map(|highest| highest.sequence), Sequence::new(4_711));
        let webhook = world.webhook(&access).await;
        assert_eq!(world.view(&access).await.highest_sequence, None);
        let first = world.deployer.submit(&webhook, of_run("v3", 1)).await.unwrap().deploy.revision;
        assert_eq!(world.ended(&access, first.get()).await.status(), Status::Succeeded);
    });
}
