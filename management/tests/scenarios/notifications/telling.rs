//! Deliveries to receivers, and the process that makes them.

use std::{collections::BTreeSet, time::Duration};

use EventKind::{Accepted, Degraded, Drift, Failed, PutRight, RolledBack, Succeeded, VerificationRevoked};
use futures_util::FutureExt;
use rollhook_conformance::samples;
use rollhook_core::request::PolicyChange;
use rollhook_management::{access::Realm, notifications::EventKind};
use rollhook_memory::{Reading, Script, SimulatedVerifier};

use crate::{
    notifications::bench::{BAD, Bench, GOOD, app, replica},
    world,
};

#[test]
fn accept_and_end_are_told_in_order_from_the_receivers_begin_on() {
    let bench = Bench::new();
    let world = &bench.world;
    bench.run(async {
        let access = app(world, "api").await;
        world.deployed(&access, &world::api("v2")).await;
        world.sleep(5).await;
        bench.add("ops", GOOD, &[]).await;
        world.sleep(100).await;
        assert_eq!(bench.taken(GOOD), [], "the history before is not told");
        world.deployed(&access, &world::api("v3")).await;
        world
            .cluster
            .script(":bad", Script::fails(rollhook_core::ports::RolloutFailureKind::Final, "Crash", "It ends."));
        world.deployed(&access, &world::api("bad")).await;
        world.quiet(&access).await;
        world.rolled_back(&access).await;
        world.sleep(5).await;
        let expected = [
            (3, Accepted),
            (3, Succeeded),
            (4, Accepted),
            (4, Failed),
            (5, Accepted),
            (5, PutRight),
            (6, Accepted),
            (6, RolledBack),
        ];
        assert_eq!(bench.taken(GOOD), expected);
        let calls = bench.notifier.calls.lock().unwrap().len();
        assert_eq!(calls, expected.len(), "each once");
        world.sleep(300).await;
        assert_eq!(bench.notifier.calls.lock().unwrap().len(), calls, "and none again");
    });
}

#[test]
fn receiver_is_told_of_its_events_and_apps_alone() {
    let bench = Bench::new();
    let world = &bench.world;
    bench.run(async {
        let access = app(world, "api").await;
        world.sleep(1).await;
        bench.add("failures", GOOD, &[Failed]).await;
        let elsewhere = Realm::Project { project: "blog".parse().unwrap() };
        bench.add_of("blog", BAD, &[], elsewhere).await;
        world.deployed(&access, &world::api("v2")).await;
        world.sleep(90).await;
        assert_eq!((bench.taken(GOOD), bench.taken(BAD)), (vec![], vec![]));
        world
            .cluster
            .script(":bad", Script::fails(rollhook_core::ports::RolloutFailureKind::Final, "Crash", "It ends."));
        world.deployed(&access, &world::api("bad")).await;
        world.sleep(5).await;
        assert_eq!((bench.taken(GOOD), bench.taken(BAD)), (vec![(3, Failed)], vec![]));
    });
}

#[test]
fn revoked_verification_is_told_once_and_to_those_who_were_there() {
    let bench = Bench::new();
    let world = &bench.world;
    bench.run(async {
        let access = app(world, "api").await;
        let check = SimulatedVerifier::check_of("errors".parse().unwrap(), 0.01);
        let change = PolicyChange {
            checks: Some(vec![check]),
            watch_for: Some(Duration::from_secs(1_800)),
            ..PolicyChange::default()
        };
        world.deployer.change_policy(&access, change).await.unwrap();
        world.verifier.reads(|spec| {
            let is_bad = spec.image.tag() == Some("v2") && spec.now.since(spec.since) > Duration::from_secs(60);
            Reading::Value(if is_bad { 1.0 } else { 0.0 })
        });
        bench.add("ops", GOOD, &[VerificationRevoked, PutRight]).await;
        world.deployed(&access, &world::api("v2")).await;
        world.sleep(200).await;
        assert_eq!(bench.taken(GOOD), [(2, VerificationRevoked), (3, PutRight)]);
        bench.add("late", BAD, &[]).await;
        world.sleep(300).await;
        assert_eq!(bench.taken(BAD), []);
        assert_eq!(bench.notifier.calls.lock().unwrap().len(), 2, "each once");
    });
}

#[test]
fn deploy_that_ended_while_no_replica_told_is_told_after_the_start() {
    let bench = Bench::new();
    let world = &bench.world;
    let access = world.run(async { app(world, "api").await });
    world.idle(bench.add("ops", GOOD, &[]));
    // This replica tells no receiver.
    world.run(world.deployed(&access, &world::api("v2")));
    bench.run(async {
        world.sleep(5).await;
        assert_eq!(bench.taken(GOOD), [(2, Accepted), (2, Succeeded)]);
    });
}

#[test]
fn process_that_ends_at_any_time_leaves_nothing_untold() {
    let bench = Bench::new();
    let world = &bench.world;
    let access = bench.run(async { app(world, "api").await });
    world.idle(bench.add("ops", GOOD, &[]));
    let mut told = Vec::new();
    for round in 0..30_u64 {
        let process = replica(world, &bench.notifier, "teller", 100 + round);
        world.run_managed(&process, async {
            world.deploy(&access, &world::api(&format!("r{round}"))).await.unwrap();
            // The process is killed in the midst of it, and releases nothing.
            rollhook_core::ports::Clock::sleep(&*world.clock, Duration::from_millis(round * 97)).await;
        });
        told.push(round + 2);
    }
    let last = replica(world, &bench.notifier, "another", 999);
    world.run_managed(&last, async {
        world.quiet(&access).await;
        world.sleep(100).await;
    });
    let taken = bench.taken(GOOD);
    for revision in told {
        let events: Vec<_> = taken.iter().filter(|(told, _)| *told == revision).map(|(_, event)| *event).collect();
        assert!(events.len() == 2 && events[0] == Accepted, "revision {revision}: {events:?}");
    }
}

#[test]
fn one_of_several_replicas_tells_and_another_takes_over() {
    let bench = Bench::new();
    let world = &bench.world;
    let other = replica(world, &bench.notifier, "other", 4);
    world.run_managed(&other, async {
        let access = app(world, "api").await;
        world.sleep(1).await;
        bench.add("ops", GOOD, &[]).await;
        bench.world.sleep(20).await;
        {
            let mut second = std::pin::pin!(bench.management.run(std::future::pending()).fuse());
            let mut both = std::pin::pin!(
                async {
                    world.deployed(&access, &world::api("v2")).await;
                    world.sleep(60).await;
                }
                .fuse()
            );
            futures_util::select_biased! {
                end = second => panic!("the replica has stopped: {end:?}"),
                () = both => {}
            }
        }
        world.sleep(60).await;
        world.deployed(&access, &world::api("v3")).await;
        world.sleep(60).await;
        assert_eq!(bench.taken(GOOD), [(2, Accepted), (2, Succeeded), (3, Accepted), (3, Succeeded)]);
        assert_eq!(bench.notifier.calls.lock().unwrap().len(), 4, "each by one replica");
    });
}

#[test]
fn drift_is_told_once_and_again_when_it_is_another() {
    let bench = Bench::new();
    let world = &bench.world;
    bench.run(async {
        let access = app(world, "api").await;
        world.sleep(5).await;
        bench.add("ops", GOOD, &[Drift]).await;
        let drifts = || bench.notifier.calls.lock().unwrap().iter().filter(|call| call.event == Some(Drift)).count();
        let app = world.view(&access).await.app;
        for (round, tag) in ["hotfix", "another"].into_iter().enumerate() {
            assert!(world.cluster.meddle(&app.id, &app.target, &samples::image(tag)));
            world.sleep(200).await;
            assert_eq!(drifts(), round + 1);
        }
        let ids: BTreeSet<_> = bench.notifier.calls.lock().unwrap().iter().map(|call| call.id.clone()).collect();
        assert_eq!(ids.len(), 2);
    });
}

#[test]
fn trouble_is_told_once_and_again_after_a_recovery() {
    let bench = Bench::new();
    let world = &bench.world;
    bench.run(async {
        let access = app(world, "api").await;
        world.sleep(5).await;
        bench.add("ops", GOOD, &[Degraded]).await;
        world.deployed(&access, &world::api("v2")).await;
        for round in 1..=2 {
            world.cluster.script("v2", Script::crashes());
            world.sleep(400).await;
            assert_eq!(bench.taken(GOOD).len(), 0, "no deploy is told");
            let told = || {
                let calls = bench.notifier.calls.lock().unwrap();
                calls.iter().filter(|call| call.event == Some(Degraded)).count()
            };
            assert_eq!(told(), round);
            world.cluster.script("v2", Script::completes());
            world.sleep(200).await;
        }
        let ids: BTreeSet<_> = bench.notifier.calls.lock().unwrap().iter().map(|call| call.id.clone()).collect();
        assert_eq!(ids.len(), 2);
    });
}
