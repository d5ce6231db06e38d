//! How a deploy ended and which entry restored it, on the whole engine under simulated time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    app::{OnFailure, Policy},
    deploy::{Deploy, Revision, Status},
    ledger::restore::Restoration,
    ports::{Clock, HistoryStore, Page},
    request::PolicyChange,
    service::{Authorized, Deployer, Waited},
};
use rollhook_memory::{BuildScript, Script};

use crate::world::{World, api, leave};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(600);

fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

fn restored(waited: &Waited) -> Option<u64> {
    waited.restore().map(|entry| entry.revision.get())
}

#[test]
fn restore_of_a_git_app_is_found_behind_the_commit_that_was_being_built() {
    let world = World::new(SECOND);
    world.cluster.script(":b2", Script::missing());
    world.builds.script("d4", BuildScript::fails());
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        world.deploy_commit(&access, "c3").await.unwrap();
        let failed = world.deployer.wait(&access, revision(2), LONG).await.unwrap();
        assert_eq!((failed.last().status(), restored(&failed)), (Status::Failed, Some(4)));
        let restore = world.deployer.wait(&access, revision(4), LONG).await.unwrap();
        assert!(restore.deploy.is_restore() && restore.deploy.status() == Status::Succeeded, "{restore:?}");
        assert_eq!(restore.restore, Some(Restoration::NotOwed));

        // The next deploys do not change the answer, and a failed build is restored by none.
        let built = world.deploy_commit(&access, "d4").await.unwrap().deploy.revision;
        world.quiet(&access).await;
        let again = world.deployer.wait(&access, revision(2), LONG).await.unwrap();
        assert_eq!((restored(&again), again.restore().map(Deploy::status)), (Some(4), Some(Status::Succeeded)));
        let built = world.deployer.wait(&access, built, LONG).await.unwrap();
        assert_eq!((built.last().status(), built.restore), (Status::Failed, Some(Restoration::NotOwed)));
    });
}

#[test]
fn each_entry_of_a_page_has_its_restore_also_where_that_is_on_another_page() {
    let world = World::new(SECOND);
    world.cluster.script(":bad", Script::crashes());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        for bad in ["bad1", "bad2"] {
            world.deploy(&access, &api(bad)).await.unwrap();
            world.quiet(&access).await;
        }
        let restores = async |before: Option<u64>| {
            let page = Page::newest(20).below(before.and_then(Revision::new));
            let (state, entries) = world.deployer.history(&access, page).await.unwrap();
            let found = world.deployer.restorations(&state, &entries).await.unwrap();
            found.iter().map(|restore| restore.entry().map(|entry| entry.revision.get())).collect::<Vec<_>>()
        };
        assert_eq!(restores(None).await, [None, Some(5), None, Some(3), None]);
        assert_eq!(restores(Some(5)).await, [Some(5), None, Some(3), None]);
        assert_eq!(restores(Some(3)).await, [Some(3), None]);
    });
}

#[test]
fn restores_of_a_page_take_a_few_reads_however_many_entries_it_has() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let plan: Plan = Arc::new(move |call| {
        counted.fetch_add(usize::from(call.starts_with("history.")), Ordering::Relaxed);
        Fault::None
    });
    let store: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(store, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    let counting = Deployer::new(world.ports(9).with(|ports| ports.history = history), "two");
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(2).await;
        for number in 0..30 {
            world.deploy(&access, &api(&format!("late{number}"))).await.unwrap();
        }
        // The newest is cancelled before it touched the cluster, as the others were superseded.
        let last = world.rollback(&access).await.unwrap().deploy.revision;
        world.deployer.cancel(&access, last).await.unwrap();
        world.quiet(&access).await;
        for (before, limit) in [(None, 100), (Some(34), 20), (Some(30), 20), (Some(14), 12)] {
            let page = Page::newest(limit).below(before.and_then(Revision::new));
            let (state, entries) = world.deployer.history(&access, page).await.unwrap();
            reads.store(0, Ordering::Relaxed);
            let together = counting.restorations(&state, &entries).await.unwrap();
            assert!(reads.load(Ordering::Relaxed) <= 4, "{} reads for {before:?}", reads.load(Ordering::Relaxed));
            for (entry, restoration) in entries.iter().zip(together) {
                let alone = world.deployer.restoration(&state, entry).await.unwrap();
                assert_eq!(restoration, alone, "revision {}", entry.revision);
            }
        }
    });
}

#[test]
fn large_lists_of_one_environment_take_turns_and_two_are_under_way() {
    let world = World::new(SECOND);
    world.idle(async {
        let mut apps = Vec::new();
        for name in ["api", "web"] {
            apps.push(world.register(name, Policy::default()).await);
        }
        let turn = |app: &Authorized, entries| {
            let (deployer, app) = (Arc::clone(&world.deployer), app.clone());
            Box::pin(async move { deployer.history_turn(&app, entries).await })
        };
        let first = turn(&apps[0], 200).await;
        let mut second = turn(&apps[1], 200);
        assert!((&mut second).now_or_never().is_none(), "another app of the environment waits");
        assert!(turn(&apps[1], 20).now_or_never().is_some(), "a small list waits for no large one");
        drop(first);
        assert!((&mut second).now_or_never().is_some());
    });
}

#[test]
fn wait_returns_without_a_restore_where_none_is_owed() {
    let world = World::new(SECOND);
    world.cluster.script(":bad", Script::crashes());
    world.run(async {
        let left = world.app("left", leave()).await;
        world.deploy(&left, &api("bad")).await.unwrap();
        let waited = world.deployer.wait(&left, revision(2), LONG).await.unwrap();
        assert_eq!((waited.last().status(), waited.restore), (Status::Failed, Some(Restoration::NotOwed)));
        // A person's rollback takes over.
        let access = world.app("api", Policy::default()).await;
        world.deploy(&access, &api("v2")).await.unwrap();
        world.quiet(&access).await;
        world.deploy(&access, &api("bad")).await.unwrap();
        world.sleep(1).await;
        world.rollback(&access).await.unwrap();
        world.quiet(&access).await;
        let waited = world.deployer.wait(&access, revision(3), LONG).await.unwrap();
        assert_eq!((waited.last().status(), waited.restore), (Status::Superseded, Some(Restoration::NotOwed)));
    });
}

#[test]
fn owed_restore_that_nothing_begins_delays_a_wait_for_seconds_only() {
    let world = World::new(SECOND);
    world.cluster.script(":bad", Script::crashes());
    let access = world.run(async {
        let access = world.app("api", leave()).await;
        world.deploy(&access, &api("bad")).await.unwrap();
        world.quiet(&access).await;
        access
    });
    world.idle(async {
        let change = PolicyChange { on_failure: Some(OnFailure::Restore), ..PolicyChange::default() };
        world.deployer.change_policy(&access, change).await.unwrap();
        let begun = world.clock.elapsed();
        let waited = world.deployer.wait(&access, revision(2), LONG).await.unwrap();
        let Some(Restoration::Owed(current)) = &waited.restore else { panic!("{waited:?}") };
        assert_eq!((current.revision, waited.restore()), (Revision::FIRST, None));
        assert!(world.clock.elapsed() - begun < 10 * SECOND);
    });
}

#[test]
fn progressed_returns_at_the_next_progress_and_changed_at_the_next_step() {
    let world = World::new(30 * SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deploy(&access, &api("v2")).await.unwrap();
        world.sleep(5).await;
        let step = world.entry(&access, 2).await.step;
        let (_, progressed) = world.deployer.progressed(&access, revision(2), (step, None), LONG).await.unwrap();
        assert_eq!((progressed.status(), progressed.step), (Status::RollingOut, step), "it settles");
        let (_, changed) = world.deployer.changed(&access, revision(2), step, LONG).await.unwrap();
        assert_eq!((changed.status(), changed.step), (Status::Succeeded, step + 1));
    });
}

#[test]
fn what_was_observed_between_two_calls_is_returned_at_once() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(5).await;
        let (state, entry) = world.deployer.entry_and_state(&access, revision(2)).await.unwrap();
        let mark = world.deployer.progress(&state, &entry).unwrap().mark();
        let progressed = async |mark: &str| {
            let begun = world.clock.elapsed();
            let seen = (entry.step, Some(mark));
            world.deployer.progressed(&access, revision(2), seen, 10 * SECOND).await.unwrap();
            world.clock.elapsed() - begun
        };
        assert_eq!(progressed("00000000").await, Duration::ZERO, "it shows something else");
        assert_eq!(progressed(&mark).await, 10 * SECOND, "it shows just that");
    });
}

#[test]
fn deploy_that_never_replaced_what_it_superseded_has_its_restore() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(2).await;
        let back = world.rollback(&access).await.unwrap().deploy.revision;
        world.deployer.cancel(&access, back).await.unwrap();
        for number in [2, 3] {
            let waited = world.deployer.wait(&access, revision(number), LONG).await.unwrap();
            assert_eq!(restored(&waited), Some(4), "revision {number}: {waited:?}");
        }
        assert_eq!(world.ended(&access, 4).await.status(), Status::Succeeded);
    });
}
