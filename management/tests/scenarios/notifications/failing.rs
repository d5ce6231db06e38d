//! Receivers that fail, or refuse.

use std::collections::BTreeSet;

use EventKind::{Accepted, Succeeded};
use rollhook_management::notifications::EventKind;

use crate::{
    notifications::bench::{BAD, Bench, Call, Fault, GOOD, OF_TWO_DEPLOYS, app, name},
    world,
};

#[test]
fn dead_receiver_hurts_no_other_and_is_told_when_it_is_back() {
    for fault in [Fault::Fails, Fault::Hangs] {
        let bench = Bench::new();
        let world = &bench.world;
        bench.set(Some(fault));
        bench.run(async {
            let (one, two) = (app(world, "one").await, app(world, "two").await);
            world.sleep(1).await;
            bench.add("bad", BAD, &[]).await;
            bench.add("good", GOOD, &[]).await;
            for tag in ["v2", "v3"] {
                world.deployed(&one, &world::api(tag)).await;
                world.deployed(&two, &world::api(tag)).await;
            }
            world.sleep(5).await;
            assert_eq!((bench.taken(GOOD).len(), bench.taken(BAD).len()), (8, 0), "{fault:?}");
            let listed = bench.management.receivers(&world.operator).await.unwrap();
            let failing = &listed.iter().find(|(receiver, _)| receiver.name == name("bad")).unwrap().1;
            assert!(
                failing.failing_since.is_some() && failing.failure.is_some() && failing.last_delivered_at.is_none()
            );
            world.sleep(3600).await;
            let attempts = bench.notifier.calls.lock().unwrap().iter().filter(|call| call.url == BAD).count();
            assert!(attempts < 30, "{attempts} attempts in an hour");
            bench.set(None);
            world.sleep(1200).await;
            let told = bench.taken(BAD);
            let ends = told.iter().filter(|(_, event)| *event == Succeeded).count();
            assert_eq!((told.len(), ends), (8, 4), "{fault:?}");
            let listed = bench.management.receivers(&world.operator).await.unwrap();
            assert!(
                listed.iter().all(|(_, status)| status.failing_since.is_none() && status.last_delivered_at.is_some())
            );
            let calls = bench.notifier.calls.lock().unwrap();
            let tries = |event| {
                let of_first = calls
                    .iter()
                    .filter(|call| call.url == BAD && call.event == Some(event) && call.revision == Some(2));
                of_first.map(|call| call.id.clone()).collect::<BTreeSet<_>>().len()
            };
            assert_eq!(tries(Accepted), 2, "every attempt has the id of its app's event");
        });
    }
}

#[test]
fn notification_that_is_refused_for_good_is_given_up() {
    let bench = Bench::new();
    let world = &bench.world;
    bench.run(async {
        let (poison, other) = (app(world, "poison").await, app(world, "other").await);
        world.sleep(1).await;
        bench.add("bad", BAD, &[]).await;
        bench.set(Some(Fault::RefusesForGood));
        world.deployed(&poison, &world::api("v2")).await;
        world.sleep(6 * 3600).await;
        let attempts = |revision, event| {
            let calls = bench.notifier.calls.lock().unwrap();
            let of_it = |call: &&Call| call.revision == Some(revision) && call.event == Some(event);
            calls.iter().filter(of_it).count()
        };
        assert_eq!((attempts(2, Accepted), attempts(2, Succeeded)), (20, 20));
        let status = async || bench.management.receivers(&world.operator).await.unwrap().remove(0).1;
        let failing = status().await;
        assert!(failing.last_delivered_at.is_none() && failing.failure.unwrap().contains("given up"));
        // Another app's are told beside it, and one that is refused for a while is told.
        world.deployed(&poison, &world::api("v3")).await;
        world.deployed(&other, &world::api("v2")).await;
        world.sleep(1300).await;
        assert_eq!(bench.taken(BAD), [(2, Accepted), (2, Succeeded)]);
        bench.set(None);
        world.sleep(600).await;
        assert_eq!(bench.taken(BAD), OF_TWO_DEPLOYS);
        assert!((2..20).contains(&attempts(3, Accepted)) && status().await.failure.is_none());
    });
}

#[test]
fn refused_app_holds_up_no_other_one() {
    let bench = Bench::new();
    let world = &bench.world;
    bench.run(async {
        let (poison, other) = (app(world, "poison").await, app(world, "other").await);
        world.sleep(1).await;
        bench.add("bad", BAD, &[Succeeded]).await;
        bench.set(Some(Fault::RefusesForGood));
        world.deployed(&poison, &world::api("v2")).await;
        // By now, minutes lie between two attempts.
        world.sleep(1800).await;
        assert_eq!(bench.taken(BAD), []);
        world.deployed(&other, &world::api("v2")).await;
        world.sleep(2).await;
        assert_eq!(bench.taken(BAD), [(2, Succeeded)], "told at once");
        let refused = bench.notifier.calls.lock().unwrap().iter().filter(|call| !call.is_taken).count();
        assert!(refused < 20, "{refused} attempts");
    });
}
