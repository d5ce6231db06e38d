//! Records of receivers: removed, damaged and sealed ones.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use rollhook_core::service::Authorized;
use rollhook_management::{
    notifications::ReceiverStatus,
    ports::{NewRecord, RecordKind, RecordStore},
};

use crate::{
    notifications::bench::{BAD, Bench, FakeSealer, GOOD, OF_TWO_DEPLOYS, app, name, replica, replica_with},
    world::{self, ManagedWorld},
};

#[test]
fn removed_receiver_is_told_nothing_and_leaves_nothing() {
    let bench = Bench::new();
    let world = &bench.world;
    bench.run(async {
        let access = app(world, "api").await;
        world.sleep(1).await;
        bench.add("ops", GOOD, &[]).await;
        bench.add("other", BAD, &[]).await;
        world.deployed(&access, &world::api("v2")).await;
        world.sleep(40).await;
        bench.management.remove_receiver(&world.operator, &name("ops")).await.unwrap();
        world.sleep(1).await;
        world.deployed(&access, &world::api("v3")).await;
        world.sleep(5).await;
        assert_eq!((bench.taken(GOOD).len(), bench.taken(BAD).len()), (2, 4));
    });
    // The next process forgets what is left of it, and of deleted apps.
    let next = replica(world, &bench.notifier, "teller", 8);
    world.run_managed(&next, async {
        world.sleep(30).await;
        let cursors = world.store.list(RecordKind::ReceiverCursor, None, 10).await.unwrap();
        assert_eq!(cursors.len(), 1);
        next.delete(&world.operator, &"shop-test/api".parse().unwrap()).await.unwrap();
        world.sleep(90).await;
        assert_eq!(world.store.list(RecordKind::ReceiverCursor, None, 10).await.unwrap(), []);
    });
}

/// Registers an app and the receiver `ops`, which is told of the app's second version.
async fn told_of_v2(bench: &Bench) -> Authorized {
    let world = &bench.world;
    let access = app(world, "api").await;
    world.sleep(1).await;
    bench.add("ops", GOOD, &[]).await;
    world.deployed(&access, &world::api("v2")).await;
    world.sleep(40).await;
    access
}

/// Stores a document in the place of the one of the receiver `ops`, and returns that.
async fn replace(world: &ManagedWorld, kind: RecordKind, document: &str) -> String {
    let listed = world.store.list(kind, None, 10).await.unwrap();
    let is_of_ops = |key: &str| kind != RecordKind::Receiver || key == "ops";
    let known = listed.into_iter().find(|record| is_of_ops(record.key.as_str())).unwrap();
    let record = NewRecord { key: known.key, document: document.to_owned(), ttl: None };
    world.store.write(kind, record, Some(known.version)).await.unwrap();
    known.document
}

#[test]
fn receiver_whose_secret_cannot_be_opened_for_a_while_is_told_nothing_twice() {
    let bench = Bench::new();
    let world = &bench.world;
    let access = bench.run(async {
        let access = app(world, "api").await;
        world.sleep(1).await;
        bench.add("ops", GOOD, &[]).await;
        bench.add("other", BAD, &[]).await;
        world.deployed(&access, &world::api("v2")).await;
        world.sleep(40).await;
        access
    });
    let sealer = Arc::new(FakeSealer { lacks_key: AtomicBool::new(true) });
    let next = replica_with(world, &bench.notifier, &sealer, "teller", 8);
    world.run_managed(&next, async {
        world.sleep(100).await;
        assert_eq!(world.store.list(RecordKind::ReceiverCursor, None, 10).await.unwrap().len(), 2);
        world.deployed(&access, &world::api("v3")).await;
        world.sleep(100).await;
        assert_eq!(bench.notifier.calls.lock().unwrap().len(), 4);
        sealer.lacks_key.store(false, Ordering::Relaxed);
        world.sleep(100).await;
    });
    assert_eq!((bench.taken(GOOD), bench.taken(BAD)), (OF_TWO_DEPLOYS.to_vec(), OF_TWO_DEPLOYS.to_vec()));
    assert_eq!(bench.notifier.calls.lock().unwrap().len(), 8, "each once");
}

#[test]
fn receiver_that_cannot_be_read_for_a_while_is_told_nothing_twice() {
    // The same replica tells all the time, or another one begins meanwhile.
    for is_restarted in [false, true] {
        let bench = Bench::new();
        let world = &bench.world;
        let before = async {
            let access = app(world, "api").await;
            world.sleep(1).await;
            bench.add("ops", GOOD, &[]).await;
            bench.add("other", BAD, &[]).await;
            world.deployed(&access, &world::api("v2")).await;
            world.sleep(40).await;
            let document = replace(world, RecordKind::Receiver, r#"{"receiver":"of a later version"}"#).await;
            world.sleep(100).await;
            (access, document)
        };
        let after = async |(access, document): (Authorized, String)| {
            world.sleep(100).await;
            world.deployed(&access, &world::api("v3")).await;
            world.sleep(100).await;
            assert_eq!((bench.taken(GOOD).len(), bench.taken(BAD).len()), (2, 4));
            replace(world, RecordKind::Receiver, &document).await;
            world.sleep(100).await;
        };
        if is_restarted {
            let known = bench.run(before);
            world.run_managed(&replica(world, &bench.notifier, "teller", 8), after(known));
        } else {
            bench.run(async { after(before.await).await });
        }
        assert_eq!((bench.taken(GOOD), bench.taken(BAD)), (OF_TWO_DEPLOYS.to_vec(), OF_TWO_DEPLOYS.to_vec()));
        assert_eq!(bench.notifier.calls.lock().unwrap().len(), 8, "each once");
    }
}

#[test]
fn status_that_cannot_be_read_stops_neither_notifications_nor_the_list() {
    let bench = Bench::new();
    let world = &bench.world;
    let access = bench.run(told_of_v2(&bench));
    let next = replica(world, &bench.notifier, "teller", 8);
    world.idle(replace(world, RecordKind::ReceiverStatus, "[]"));
    world.run_managed(&next, async {
        world.sleep(40).await;
        let listed = next.receivers(&world.operator).await.unwrap();
        assert!(listed.len() == 1 && listed[0].1 == ReceiverStatus::default(), "{listed:?}");
        world.deployed(&access, &world::api("v3")).await;
        world.sleep(40).await;
        let listed = next.receivers(&world.operator).await.unwrap();
        assert!(listed[0].1.last_delivered_at.is_some(), "written anew: {listed:?}");
    });
    assert_eq!(bench.taken(GOOD), OF_TWO_DEPLOYS);
}

#[test]
fn without_receivers_nothing_is_written() {
    let bench = Bench::new();
    let world = &bench.world;
    bench.run(async {
        let access = app(world, "api").await;
        world.deployed(&access, &world::api("v2")).await;
        world.sleep(100).await;
        for kind in [RecordKind::ReceiverCursor, RecordKind::ReceiverStatus, RecordKind::NotifierLease] {
            assert_eq!(world.store.list(kind, None, 10).await.unwrap(), [], "{kind}");
        }
    });
}

#[test]
fn history_is_not_told_again_if_nobody_knows_how_far_it_was_told() {
    let bench = Bench::new();
    let world = &bench.world;
    let access = bench.run(told_of_v2(&bench));
    world.idle(replace(world, RecordKind::ReceiverCursor, r#"{"of":"a later version"}"#));
    let next = replica(world, &bench.notifier, "teller", 8);
    world.run_managed(&next, async {
        world.sleep(100).await;
        assert_eq!(bench.notifier.calls.lock().unwrap().len(), 2);
        world.deployed(&access, &world::api("v3")).await;
        world.sleep(40).await;
    });
    assert_eq!(bench.taken(GOOD), OF_TWO_DEPLOYS);
    assert_eq!(bench.notifier.calls.lock().unwrap().len(), 4, "each once");
}

#[test]
fn lease_that_cannot_be_read_is_waited_for_and_a_removed_receivers_status_is_forgotten() {
    let bench = Bench::new();
    let world = &bench.world;
    let access = bench.run(told_of_v2(&bench));
    world.idle(async {
        let damaged = |key: &str, ttl| NewRecord { key: key.parse().unwrap(), document: "[]".to_owned(), ttl };
        let lease = world.store.list(RecordKind::NotifierLease, None, 10).await.unwrap().pop();
        let record = damaged("lease", Some(std::time::Duration::from_secs(15)));
        world.store.write(RecordKind::NotifierLease, record, lease.map(|lease| lease.version)).await.unwrap();
        let orphan = damaged("0123456789abcdef0123456789abcdef", None);
        world.store.write(RecordKind::ReceiverStatus, orphan, None).await.unwrap();
    });
    let next = replica(world, &bench.notifier, "teller", 8);
    world.run_managed(&next, async {
        world.deployed(&access, &world::api("v3")).await;
        world.sleep(60).await;
        assert_eq!(world.store.list(RecordKind::ReceiverStatus, None, 10).await.unwrap().len(), 1);
    });
    assert_eq!(bench.taken(GOOD), OF_TWO_DEPLOYS);
}
