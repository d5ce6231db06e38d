//! Parts of one answer are of one point in time, also if a deploy ends between two reads of the store.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt;
use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    action::Action,
    app::{AppUid, Policy},
    deploy::{Actor, AdmissionId, Deploy, Outage, Revision, State, Trigger},
    ledger::{Admission, AppState, Change, KeyLookup, NewDeploy, Record},
    ports::{AppCommit, AppRef, Clock, HistoryStore, HistoryStoreExt, Page},
    request::{Cause, PolicyChange, Refusal},
    service::Deployer,
    time::Timestamp,
};
use rollhook_memory::MemoryStore;

use crate::world::{World, image};

/// A step that another process takes.
type Step = fn(&mut Change, Timestamp);

/// Commits a step, as another process does.
fn take(store: &MemoryStore, app: AppUid, step: Step) {
    let loaded = store.load(AppRef::Uid(app), None).now_or_never().unwrap().unwrap().unwrap();
    let mut change = Change::on(loaded.state);
    step(&mut change, loaded.now);
    store.commit_one(AppCommit::Update(loaded.version, Box::new(change))).now_or_never().unwrap().unwrap();
}

/// The service on a store where another process takes the next of these steps before each read.
fn racing(world: &World, app: AppUid, steps: Vec<Step>) -> Deployer {
    let (store, steps) = (world.store.clone(), Mutex::new(steps.into_iter()));
    let plan: Plan = Arc::new(move |call| {
        let is_read = matches!(call, "history.load" | "history.page" | "history.archived");
        let step = if is_read { steps.lock().unwrap().next() } else { None };
        step.into_iter().for_each(|step| take(&store, app, step));
        Fault::None
    });
    let history: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(history, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    Deployer::new(
        world.ports(9).with(|ports| {
            ports.history = history;
            ports.builder = None;
        }),
        "two",
    )
}

fn nothing(_: &mut Change, _: Timestamp) {}

fn accepts(change: &mut Change, now: Timestamp) {
    let cause = Cause { trigger: Trigger::Webhook, actor: Actor::Ci };
    let deploy = NewDeploy { image: Some(image("registry.example.com/api:v2")), ..NewDeploy::new(&cause) };
    change.admit(Admission::plain(AdmissionId(2), deploy), KeyLookup::Unread, now);
}

fn moves(change: &mut Change, now: Timestamp, state: State) {
    let newest = change.state.unfinished.last().unwrap();
    let changes = vec![Deploy { touched: true, ..newest.moved(state) }];
    change.record(Record { changes, ..Record::default() }, now).unwrap();
}

fn rolls_out(change: &mut Change, now: Timestamp) {
    moves(change, now, State::RollingOut { since: now, outage: Outage::default() });
}

fn succeeds(change: &mut Change, now: Timestamp) {
    moves(change, now, State::Succeeded { note: None });
}

/// The state and the entry itself agree about an entry.
#[track_caller]
fn agree(state: &AppState, entry: &Deploy) {
    let is_current = state.current.as_ref().is_some_and(|current| current.revision == entry.revision);
    let unfinished = state.unfinished(entry.revision).map(|deploy| Deploy::clone(deploy));
    assert!(state.latest >= Some(entry.revision), "{entry:?} is newer than its state");
    assert!(!is_current || matches!(entry.state, State::Succeeded { .. }), "current, and {:?}", entry.state);
    assert_eq!(unfinished, Some(entry.clone()).filter(|entry| !entry.is_terminal()));
}

#[test]
fn entry_and_its_state_are_read_at_one_point_in_time() {
    let all: [Step; 3] = [accepts, rolls_out, succeeds];
    for before in 0..6 {
        let world = World::new(Duration::ZERO);
        world.idle(async {
            let access = world.register("api", Policy::default()).await;
            take(&world.store, access.uid(), rolls_out);
            take(&world.store, access.uid(), succeeds);
            let steps = std::iter::repeat_n(nothing as Step, before).chain(all).collect();
            let deployer = racing(&world, access.uid(), steps);
            let access = deployer.allow(world.operator.clone(), access.app(), Action::ALL).await.unwrap();
            let second = Revision::new(2).unwrap();
            for _ in 0..8 {
                match deployer.entry_and_state(&access, second).await {
                    Ok((state, entry)) => agree(&state, &entry),
                    Err(refusal) => assert_eq!(refusal, Refusal::RevisionNotFound(second)),
                }
                if let Ok((state, entry)) = deployer.changed(&access, second, 0, Duration::ZERO).await {
                    agree(&state, &entry);
                }
                let page = Page::newest(9);
                let (state, entries) = deployer.history(&access, page).await.unwrap();
                assert_eq!(entries.len() as u64, state.latest.unwrap().get());
                entries.iter().for_each(|entry| agree(&state, entry));
            }
        });
    }
}

#[test]
fn awaited_entry_is_not_current_before_it_has_succeeded() {
    let world = World::new(Duration::ZERO);
    world.run(async {
        let access = world.register("api", Policy::default()).await;
        let mut seen = 0;
        loop {
            let changed = world.deployer.changed(&access, Revision::FIRST, seen, Duration::from_secs(60)).await;
            let (state, entry) = changed.unwrap();
            agree(&state, &entry);
            if entry.is_terminal() {
                break;
            }
            seen = entry.step;
        }
    });
}

#[test]
fn change_that_changes_nothing_is_not_written_and_is_decided_on_the_state_of_now() {
    let world = World::new(Duration::from_secs(1));
    let other = world.replica("two", 7);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let settle = |seconds| PolicyChange { settle: Some(Duration::from_secs(seconds)), ..PolicyChange::default() };
        let present = other.change_policy(&access, settle(20)).await.unwrap();
        world.sleep(60).await;
        let same = other.change_policy(&access, settle(20)).await.unwrap();
        let released = other.release_hold(&access).await.unwrap();
        assert_eq!((&same, &released, &world.view(&access).await), (&present, &present, &present), "not touched");
        // What this process remembers is outdated by then.
        world.deployer.change_policy(&access, settle(30)).await.unwrap();
        let back = other.change_policy(&access, settle(20)).await.unwrap();
        assert_eq!(back.app.policy.settle, Duration::from_secs(20));
        assert_eq!(world.view(&access).await.app.policy.settle, Duration::from_secs(20));
    });
}
