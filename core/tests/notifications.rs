//! Receivers are told of deploys from the history itself: at least once, in order, whatever fails or ends in between.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod world;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::FutureExt;
use rollhook_conformance::samples;
use rollhook_core::{
    Error, Result,
    access::{Grant, Realm, Role},
    app::Policy,
    notification::{Content, Destination, EventKind, Events, Notification, ReceiverApps, ReceiverName, ReceiverSecret},
    ports::{Delivered, DeliveryFailure, NewRecord, Notifier, RecordKind, RecordStore, Sealer},
    request::{Field, Refusal},
    service::{Authorized, Deployer, NewReceiver, Notifications, Ports, Principal, ReceiverStatus},
};
use rollhook_memory::Script;
use world::World;
use zeroize::Zeroizing;

const SECOND: Duration = Duration::from_secs(1);
const GOOD: &str = "https://good.example.com/";
const BAD: &str = "https://bad.example.com/";

/// What a receiver was told, or an attempt to tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    url: String,
    id: String,
    event: Option<EventKind>,
    revision: Option<u64>,
    is_taken: bool,
}

/// How receivers at [`BAD`] answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Fails,
    Hangs,
    /// Notifications of the app `poison` alone.
    RefusesForGood,
}

#[derive(Default)]
struct FakeNotifier {
    calls: Mutex<Vec<Call>>,
    fault: Mutex<Option<Fault>>,
    secrets: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl Notifier for FakeNotifier {
    fn check(&self, destination: &Destination) -> Result<(), String> {
        if destination.place().contains("169.254.") { Err("must not be there".to_owned()) } else { Ok(()) }
    }

    async fn send(
        &self,
        destination: &Destination,
        secret: &ReceiverSecret,
        notification: &Notification,
        _reference: Option<&str>,
    ) -> Result<Delivered, DeliveryFailure> {
        let url = destination.place();
        let is_poison = notification.app().is_some_and(|app| app.id.name.as_str() == "poison");
        let concerns = |fault: &Fault| url == BAD && (is_poison || *fault != Fault::RefusesForGood);
        let fault = self.fault.lock().unwrap().filter(concerns);
        let revision = match &notification.content {
            Content::Deploy { deploy, .. } => Some(deploy.revision.get()),
            Content::Drift { .. } | Content::Test => None,
        };
        let (id, event) = (notification.id.to_string(), notification.event());
        self.secrets.lock().unwrap().insert(secret.expose().to_owned());
        self.calls.lock().unwrap().push(Call { url, id, event, revision, is_taken: fault.is_none() });
        let failure = |is_final| DeliveryFailure { message: "it answered 500".to_owned(), retry_after: None, is_final };
        match fault {
            None => Ok(Delivered::default()),
            Some(Fault::Fails) => Err(failure(false)),
            Some(Fault::RefusesForGood) => Err(failure(true)),
            Some(Fault::Hangs) => std::future::pending().await,
        }
    }
}

/// A sealer that turns texts around, unless its key is missing.
#[derive(Default)]
struct FakeSealer {
    lacks_key: AtomicBool,
}

impl Sealer for FakeSealer {
    fn seal(&self, text: &str, purpose: &str) -> Result<String> {
        Ok(format!("{purpose} {}", text.chars().rev().collect::<String>()))
    }

    fn open(&self, sealed: &str, purpose: &str) -> Result<Zeroizing<String>> {
        if self.lacks_key.load(Ordering::Relaxed) {
            return Err(Error::invalid("the key is missing"));
        }
        let text = sealed.strip_prefix(&format!("{purpose} ")).ok_or_else(|| Error::invalid("another purpose"))?;
        Ok(Zeroizing::new(text.chars().rev().collect()))
    }
}

/// A world whose replicas tell receivers.
struct Bench {
    world: World,
    notifier: Arc<FakeNotifier>,
    deployer: Deployer,
}

impl Bench {
    fn new() -> Self {
        let (world, notifier) = (World::new(SECOND), Arc::new(FakeNotifier::default()));
        let deployer = replica(&world, &notifier, "teller", 3);
        Self { world, notifier, deployer }
    }

    fn run<T>(&self, scenario: impl Future<Output = T>) -> T {
        self.world.run_beside(&self.deployer, scenario)
    }

    async fn add(&self, name: &str, url: &str, events: &[EventKind]) {
        self.add_of(name, url, events, Realm::Everything).await;
    }

    async fn add_of(&self, name: &str, url: &str, events: &[EventKind], realm: Realm) {
        let wanted = wanted(name, url, events, realm);
        self.deployer.add_receiver(&self.world.operator, wanted).await.unwrap();
    }

    /// What receivers at this URL have taken, each once: the events of revisions, in order.
    fn taken(&self, url: &str) -> Vec<(u64, EventKind)> {
        let mut ids = BTreeSet::new();
        let calls = self.notifier.calls.lock().unwrap();
        let taken = calls.iter().filter(|call| call.url == url && call.is_taken && ids.insert(call.id.clone()));
        taken.filter_map(|call| Some((call.revision?, call.event?))).collect()
    }

    fn set(&self, fault: Option<Fault>) {
        *self.notifier.fault.lock().unwrap() = fault;
    }
}

fn replica(world: &World, notifier: &Arc<FakeNotifier>, name: &str, seed: u64) -> Deployer {
    replica_with(world, notifier, &Arc::default(), name, seed)
}

fn replica_with(
    world: &World,
    notifier: &Arc<FakeNotifier>,
    sealer: &Arc<FakeSealer>,
    name: &str,
    seed: u64,
) -> Deployer {
    let notifications = Notifications { notifier: notifier.clone(), sealer: sealer.clone() };
    Deployer::new(Ports { notifications: Some(notifications), builder: None, ..world.ports(seed) }, name)
}

fn wanted(name: &str, url: &str, events: &[EventKind], realm: Realm) -> NewReceiver {
    NewReceiver {
        name: name.parse().unwrap(),
        apps: ReceiverApps::new(realm, None).unwrap(),
        destination: Destination::Webhook { url: url.parse().unwrap() },
        events: Events::new(events.iter().copied()),
        secret: None,
    }
}

fn name(text: &str) -> ReceiverName {
    text.parse().unwrap()
}

/// An app that runs version 1 of its image.
async fn app(world: &World, name: &str) -> Authorized {
    world.app(name, Policy { settle: Duration::ZERO, ..Policy::default() }).await
}

use EventKind::{Accepted, Drift, Failed, PutRight, RolledBack, Succeeded};

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
            let listed = bench.deployer.receivers(&world.operator).await.unwrap();
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
            let listed = bench.deployer.receivers(&world.operator).await.unwrap();
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
        let status = async || bench.deployer.receivers(&world.operator).await.unwrap().remove(0).1;
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
fn deploy_that_ended_while_no_replica_told_is_told_after_the_start() {
    let bench = Bench::new();
    let world = &bench.world;
    let access = world.run(async { app(world, "api").await });
    world.idle(bench.add("ops", GOOD, &[]));
    // This replica tells nobody.
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
        world.run_beside(&process, async {
            world.deploy(&access, &world::api(&format!("r{round}"))).await.unwrap();
            // Killed in the midst of it, without a farewell.
            rollhook_core::ports::Clock::sleep(&*world.clock, Duration::from_millis(round * 97)).await;
        });
        told.push(round + 2);
    }
    let last = replica(world, &bench.notifier, "another", 999);
    world.run_beside(&last, async {
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
    world.run_beside(&other, async {
        let access = app(world, "api").await;
        world.sleep(1).await;
        bench.add("ops", GOOD, &[]).await;
        bench.world.sleep(20).await;
        {
            let mut second = std::pin::pin!(bench.deployer.run(std::future::pending()).fuse());
            let mut both = std::pin::pin!(
                async {
                    world.deployed(&access, &world::api("v2")).await;
                    world.sleep(60).await;
                }
                .fuse()
            );
            futures_util::select_biased! {
                () = second => unreachable!("nothing shuts it down"),
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
        bench.deployer.remove_receiver(&world.operator, &name("ops")).await.unwrap();
        world.sleep(1).await;
        world.deployed(&access, &world::api("v3")).await;
        world.sleep(5).await;
        assert_eq!((bench.taken(GOOD).len(), bench.taken(BAD).len()), (2, 4));
    });
    // The next process forgets what is left of it, and of deleted apps.
    let next = replica(world, &bench.notifier, "teller", 8);
    world.run_beside(&next, async {
        world.sleep(30).await;
        let cursors = world.store.list(RecordKind::ReceiverCursor, None, 10).await.unwrap();
        assert_eq!(cursors.len(), 1);
        next.delete(&world.operator, &"shop-test/api".parse().unwrap()).await.unwrap();
        world.sleep(90).await;
        assert_eq!(world.store.list(RecordKind::ReceiverCursor, None, 10).await.unwrap(), []);
    });
}

/// Stores a document in the place of the one of the receiver `ops`, and returns that.
async fn replace(world: &World, kind: RecordKind, document: &str) -> String {
    let listed = world.store.list(kind, None, 10).await.unwrap();
    let is_of_ops = |key: &str| kind != RecordKind::Receiver || key == "ops";
    let known = listed.into_iter().find(|record| is_of_ops(record.key.as_str())).unwrap();
    let record = NewRecord { key: known.key, document: document.to_owned(), ttl: None };
    world.store.write(kind, record, Some(known.version)).await.unwrap();
    known.document
}

const OF_TWO_DEPLOYS: [(u64, EventKind); 4] = [(2, Accepted), (2, Succeeded), (3, Accepted), (3, Succeeded)];

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
    world.run_beside(&next, async {
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
            world.run_beside(&replica(world, &bench.notifier, "teller", 8), after(known));
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
    let access = bench.run(async {
        let access = app(world, "api").await;
        world.sleep(1).await;
        bench.add("ops", GOOD, &[]).await;
        world.deployed(&access, &world::api("v2")).await;
        world.sleep(40).await;
        access
    });
    let next = replica(world, &bench.notifier, "teller", 8);
    world.idle(replace(world, RecordKind::ReceiverStatus, "[]"));
    world.run_beside(&next, async {
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
fn receivers_are_an_admins_and_their_secrets_are_sealed() {
    let bench = Bench::new();
    let (world, deployer) = (&bench.world, &bench.deployer);
    world.idle(async {
        let shop = Realm::Project { project: "shop".parse().unwrap() };
        let viewer = Principal::new("eve", [Grant { role: Role::Deployer, realm: shop.clone() }]);
        let admin = Principal::new("ada", [Grant { role: Role::Admin, realm: shop.clone() }]);
        let of = |realm: &Realm| wanted("ops", GOOD, &[], realm.clone());
        assert!(matches!(deployer.add_receiver(&viewer, of(&shop)).await, Err(Refusal::Forbidden(..))));
        assert!(matches!(deployer.receivers(&viewer).await, Err(Refusal::Forbidden(..))));
        assert!(matches!(deployer.add_receiver(&admin, of(&Realm::Everything)).await, Err(Refusal::Forbidden(..))));
        let (_, secret) = deployer.add_receiver(&admin, of(&shop)).await.unwrap();
        let secret = secret.unwrap();
        assert_eq!(secret.signing_key().unwrap().len(), 32);
        assert_eq!(deployer.add_receiver(&admin, of(&shop)).await, Err(Refusal::ReceiverExists(name("ops"))));
        let stored = world.store.list(RecordKind::Receiver, None, 10).await.unwrap();
        assert!(stored.len() == 1 && !stored[0].document.contains(secret.expose()));
        assert!(deployer.test_receiver(&admin, &name("ops")).await.unwrap().is_ok());
        assert_eq!(bench.notifier.secrets.lock().unwrap().iter().collect::<Vec<_>>(), [secret.expose()]);
        let local = wanted("local", "https://169.254.169.254/", &[], shop.clone());
        let refused = deployer.add_receiver(&admin, local).await;
        assert!(matches!(refused, Err(Refusal::InvalidField(Field::ReceiverUrl, _))));
        let weak = NewReceiver { secret: Some("hunter2".parse().unwrap()), ..wanted("weak", GOOD, &[], shop.clone()) };
        let refused = deployer.add_receiver(&admin, weak).await;
        assert!(matches!(refused, Err(Refusal::InvalidField(Field::ReceiverSecret, _))));
        bench.add("all", BAD, &[]).await;
        assert_eq!(deployer.receivers(&admin).await.unwrap().len(), 1, "another realm's is not listed");
        let unknown = deployer.remove_receiver(&admin, &name("all")).await;
        assert_eq!(unknown, Err(Refusal::ReceiverNotFound(name("all"))));
        deployer.remove_receiver(&admin, &name("ops")).await.unwrap();
        let (entries, _) = deployer.audited(&world.operator, None, 50).await.unwrap();
        let acts = entries.iter().filter(|entry| entry.entry.subject.starts_with("receiver ops")).count();
        assert!(acts >= 4, "{entries:?}");
    });
}
