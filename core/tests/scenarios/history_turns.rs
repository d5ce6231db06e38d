//! Reads of archives take turns of the environments, on the whole engine under simulated time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{FutureExt, future::join_all};
use rollhook_conformance::{Fault, Faulty, Plan, samples::git_source};
use rollhook_core::{
    app::Policy,
    delivery::{Before, Delivery, Event, GitHost, Head, Push, RefUpdate, Reference},
    deploy::{Deploy, Status},
    ports::{Clock, HistoryStore, Page},
    request::RollbackRequest,
    service::{Authorized, Deployer},
    slots::Slot,
};
use rollhook_memory::Script;

use crate::world::{World, api, git, sha};

const SECOND: Duration = Duration::from_secs(1);
/// The most reads of the archives of one environment at a time, of each kind.
const AT_ONCE: usize = 4;

/// Another process, whose store takes a second for a page of an archive, and the number of reads that began at each time.
fn slow(world: &World) -> (Deployer, Arc<Mutex<BTreeMap<Duration, usize>>>) {
    let begun = Arc::new(Mutex::new(BTreeMap::new()));
    let (noted, clock) = (Arc::clone(&begun), Arc::clone(&world.clock) as Arc<dyn Clock>);
    let now = Arc::clone(&clock);
    let plan: Plan = Arc::new(move |call| {
        if call != "history.page" {
            return Fault::None;
        }
        *noted.lock().unwrap().entry(now.elapsed()).or_default() += 1;
        Fault::Late(SECOND)
    });
    let store: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(store, clock, plan));
    (Deployer::new(world.ports(9).with(|ports| ports.history = history), "two"), begun)
}

/// Asserts that reads have begun, and no more at a time than may.
#[track_caller]
fn assert_in_turns(begun: &Mutex<BTreeMap<Duration, usize>>) {
    let begun = std::mem::take(&mut *begun.lock().unwrap());
    assert_eq!(begun.values().max(), Some(&AT_ONCE), "{begun:?}");
}

/// An app whose newest deploy was superseded before it touched the cluster.
async fn superseded(world: &World) -> (Authorized, Deploy) {
    let access = world.app("api", Policy::default()).await;
    world.deploy(&access, &api("hang")).await.unwrap();
    world.sleep(2).await;
    for image in ["v3", "v4"] {
        world.deploy(&access, &api(image)).await.unwrap();
    }
    world.quiet(&access).await;
    let entry = world.entry(&access, 3).await;
    assert!(entry.status() == Status::Superseded && !entry.touched, "{entry:?}");
    (access, entry)
}

/// The turns of all lists that an environment may have at once.
async fn lists(world: &World, access: &Authorized) -> Vec<Slot> {
    let small = (0..AT_ONCE).map(|_| world.deployer.history_turn(access, 20));
    let mut held = join_all(small).await;
    held.push(world.deployer.history_turn(access, 200).await);
    held
}

fn push(digits: &str) -> Delivery {
    let head = Some(Head::new(sha(digits), "Mend it"));
    let reference = Reference::Branch("main".to_owned());
    let updates = vec![RefUpdate { reference, before: Before::Unreported, head }];
    Delivery { host: GitHost::named("GitHub"), event: Event::Push(Push { pusher: None, updates }) }
}

#[test]
fn entry_that_is_shown_alone_reads_the_archive_in_its_turn() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let (access, entry) = superseded(&world).await;
        let (deployer, begun) = slow(&world);
        let shown = join_all((0..20).map(|_| deployer.wait_for_restore(&access, &entry, Duration::ZERO))).await;
        assert!(shown.iter().all(Result::is_ok));
        assert_in_turns(&begun);
        // Lists have the turn of their callers.
        let (state, entries) = world.deployer.history(&access, Page::newest(20)).await.unwrap();
        let held = lists(&world, &access).await;
        assert!(world.deployer.restorations(&state, &entries).now_or_never().is_some());
        assert!(world.deployer.restoration(&state, &entry).now_or_never().is_none());
        drop(held);
        assert!(world.deployer.restoration(&state, &entry).now_or_never().is_some());
    });
}

#[test]
fn warning_of_two_triggers_reads_the_archive_in_its_turn() {
    let world = World::new(SECOND);
    let poll = Policy::default().with(|policy| policy.poll = Some(Duration::from_secs(60)));
    world.run(async {
        let access = world.registered(git("site", poll)).await;
        let app = world.view(&access).await.app;
        let (deployer, begun) = slow(&world);
        let warnings = join_all((0..20).map(|_| deployer.warning(&access, &app))).await;
        assert!(warnings.iter().all(Result::is_ok));
        assert_in_turns(&begun);
    });
}

#[test]
fn rollbacks_search_in_turns_of_their_own() {
    let world = World::new(SECOND);
    world.run(async {
        let mut apps = Vec::new();
        for number in 0..10 {
            let access = world.app(&format!("app-{number}"), Policy::default()).await;
            world.deployed(&access, &api("v2")).await;
            apps.push(world.access(access.app()).await);
        }
        let (deployer, begun) = slow(&world);
        // Viewers who list all the time hold up no rollback.
        let held = lists(&world, &apps[0]).await;
        assert!(world.deployer.rollback(&apps[0], RollbackRequest::default()).now_or_never().is_some());
        drop(held);
        let back = join_all(apps[1..].iter().map(|app| deployer.rollback(app, RollbackRequest::default()))).await;
        assert!(back.iter().all(Result::is_ok), "{back:?}");
        assert_in_turns(&begun);
    });
}

#[test]
fn pushes_read_the_archive_in_turns_of_their_own_which_end_before_the_source_is_asked() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.webhook(&world.built_app(Policy::default()).await).await;
        let (deployer, begun) = slow(&world);
        world.builds.set_head(&git_source(), Some(sha("a1")));
        let held = lists(&world, &access).await;
        // The source names another commit, so that each push asks it again for seconds.
        let late = push("b2");
        let pushed = join_all((0..12).map(|_| deployer.push(&access, &late, None))).await;
        assert!(pushed.iter().all(Result::is_ok), "{pushed:?}");
        drop(held);
        let times = begun.lock().unwrap().keys().copied().collect::<Vec<_>>();
        assert!(times[2] - times[0] <= 2 * SECOND, "{times:?}");
        assert_in_turns(&begun);
    });
}
