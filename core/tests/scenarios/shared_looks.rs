//! Many calls of one moment: the reads of the store and the looks at the target that they cost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use rollhook_conformance::{Fault, Faulty, Plan, samples};
use rollhook_core::{
    app::Policy,
    deploy::Revision,
    ports::{BuildTrigger, Clock, HistoryStore, RolloutDriver},
    request::{PolicyChange, Refusal, SourceChange, TargetChange},
    service::{BuildPorts, Deployer},
};
use serde_json::json;

use crate::world::{self, World};

/// A replica that counts its looks at targets at rest, of which each takes 10 ms, and fails while it is told to.
fn counting_looks(world: &World) -> (Deployer, Arc<AtomicUsize>, Arc<AtomicBool>) {
    let (looks, is_away) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, away) = (Arc::clone(&looks), Arc::clone(&is_away));
    let plan: Plan = Arc::new(move |call| match call {
        "rollouts.at_rest" => {
            counted.fetch_add(1, Ordering::Relaxed);
            if away.load(Ordering::Relaxed) { Fault::Lost } else { Fault::Late(Duration::from_millis(10)) }
        }
        // Only calls have the target looked at.
        "rollouts.target_changes" => Fault::Lost,
        _ => Fault::None,
    });
    let cluster: Arc<dyn RolloutDriver> = world.cluster.clone();
    let rollouts = Arc::new(Faulty::new(cluster, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    (Deployer::new(world.ports(9).with(|ports| ports.rollouts = rollouts), "one"), looks, is_away)
}

#[test]
fn callers_that_wait_for_one_deploy_share_their_looks_at_the_store() {
    let world = World::new(Duration::ZERO);
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let plan: Plan = Arc::new(move |call| match call {
        "history.load" | "history.page" | "history.archived" => {
            counted.fetch_add(1, Ordering::Relaxed);
            Fault::Late(Duration::from_millis(10))
        }
        _ => Fault::None,
    });
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let store: Arc<dyn HistoryStore> = world.store.clone();
        let history = Arc::new(Faulty::new(store, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
        let deployer = Deployer::new(
            world.ports(9).with(|ports| {
                ports.history = history;
                ports.builder = None;
            }),
            "two",
        );
        let waits = (0..100).map(|_| deployer.changed(&access, Revision::FIRST, u32::MAX, Duration::from_secs(10)));
        let entries = join_all(waits).await;
        assert!(entries.iter().all(|entry| entry.as_ref().is_ok_and(|(_, entry)| !entry.is_terminal())));
    });
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads <= 20, "100 waiting callers made {reads} reads in 10 s");
}

#[test]
fn callers_that_ask_for_the_condition_of_one_app_share_their_looks_at_the_target() {
    let world = World::new(Duration::ZERO);
    let (deployer, looks, is_away) = counting_looks(&world);
    world.run_beside(&deployer, async {
        let access = world.app("api", Policy::default()).await;
        world.sleep(120).await;
        let state = deployer.state(&access).await.unwrap();
        let asked = async || {
            looks.store(0, Ordering::Relaxed);
            let conditions = join_all((0..100).map(|_| deployer.condition(&state))).await;
            assert!(conditions.iter().all(|condition| *condition == conditions[0]));
            (conditions[0].drift.is_some(), looks.load(Ordering::Relaxed))
        };
        assert_eq!(asked().await, (false, 1), "calls of one moment");
        let target = &state.app.target;
        assert!(world.cluster.meddle(&state.app.id, target, &samples::image("hotfix")));
        world.clock.sleep(Duration::from_millis(400)).await;
        assert_eq!(asked().await, (false, 0), "calls within half a second of an answer");
        world.clock.sleep(Duration::from_millis(100)).await;
        assert_eq!(asked().await, (true, 1), "calls after that");

        world.sleep(1).await;
        is_away.store(true, Ordering::Relaxed);
        assert_eq!(asked().await, (true, 1), "calls while the cluster is away are answered by what is known");
        world.sleep(1).await;
        assert_eq!(asked().await, (true, 0));
        is_away.store(false, Ordering::Relaxed);
        world.sleep(1).await;
        assert_eq!(asked().await, (true, 1));

        // Another deploy is another target.
        world.deployed(&access, &world::api("v2")).await;
        let state = deployer.state(&access).await.unwrap();
        looks.store(0, Ordering::Relaxed);
        assert_eq!(deployer.condition(&state).await.drift, None);
    });
}

#[test]
fn callers_that_follow_the_log_of_one_build_share_their_looks_at_it() {
    let world = World::new(Duration::ZERO);
    let (reads, looks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (of_store, of_builds) = (Arc::clone(&reads), Arc::clone(&looks));
    let plan: Plan = Arc::new(move |call| match call {
        "history.load" | "history.page" | "history.archived" => {
            of_store.fetch_add(1, Ordering::Relaxed);
            Fault::Late(Duration::from_millis(10))
        }
        "builds.observe" => {
            of_builds.fetch_add(1, Ordering::Relaxed);
            Fault::Late(Duration::from_millis(10))
        }
        // They wait, and nothing wakes them.
        "builds.changed" => Fault::Lost,
        _ => Fault::None,
    });
    world.run(async {
        let access = world.git_app(Policy::default()).await;
        world.deploy_commit(&access, "a1").await.unwrap();
        world.sleep(5).await;
        let store: Arc<dyn HistoryStore> = world.store.clone();
        let history = Arc::new(Faulty::new(store, Arc::clone(&world.clock) as Arc<dyn Clock>, Arc::clone(&plan)));
        let builds: Arc<dyn BuildTrigger> = world.builds.clone();
        let builds = Arc::new(Faulty::new(builds, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
        let ports = world.ports(9).with(|ports| {
            ports.history = history;
            ports.builder = Some(BuildPorts::new(builds, world.builds.clone()));
        });
        let deployer = Deployer::new(ports, "two");
        let written = deployer.build_log(&access, Revision::FIRST, 0, false).await.unwrap().bytes.len() as u64;
        looks.store(0, Ordering::Relaxed);
        reads.store(0, Ordering::Relaxed);
        let follow = || deployer.build_log(&access, Revision::FIRST, written, true);
        let parts = join_all((0..100).map(|_| follow())).await;
        assert!(parts.iter().all(|part| *part == parts[0]), "{:?}", parts[0]);
    });
    // 25 s of a build, or until it writes.
    let (reads, looks) = (reads.load(Ordering::Relaxed), looks.load(Ordering::Relaxed));
    assert!(looks <= 60, "100 callers looked {looks} times at the build");
    assert!(reads <= 100 + 60, "100 callers made {reads} reads of the store");
}

#[test]
fn settings_that_are_too_large_are_refused_before_those_of_other_apps_are_read() {
    let world = World::new(Duration::ZERO);
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let plan: Plan = Arc::new(move |call| {
        counted.fetch_add(usize::from(call == "history.list"), Ordering::Relaxed);
        Fault::None
    });
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let store: Arc<dyn HistoryStore> = world.store.clone();
        let history = Arc::new(Faulty::new(store, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
        let deployer = Deployer::new(world.ports(9).with(|ports| ports.history = history), "two");
        let change = async |env: &str| {
            let settings = samples::settings(json!({ "template": { "env": { "A": env } } }));
            let target = TargetChange { settings, ..TargetChange::default() };
            deployer.change(&access, PolicyChange::default(), SourceChange::default(), target).await
        };
        let refused = change(&"x".repeat(64 * 1024)).await;
        assert!(matches!(refused, Err(Refusal::Workload(_))), "{refused:?}");
        assert_eq!(lists.load(Ordering::Relaxed), 0);
        drop(change("x").await);
        assert_eq!(lists.load(Ordering::Relaxed), 1, "of the namespace");
    });
}
