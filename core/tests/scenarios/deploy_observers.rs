//! Observers of deploys are notified of what is stored, once, whatever becomes of the store's answers.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    action::Action,
    app::{AppUid, Policy},
    deploy::{Deploy, Status},
    ledger::AppState,
    ports::{Clock, ConfirmedCommit, DeployObserver},
    service::Deployer,
};

use crate::world::{self, World, registration, request};

/// Notes the calls.
#[derive(Default)]
struct Noted {
    lines: Mutex<Vec<String>>,
    loaded: Mutex<Option<AppState>>,
}

impl Noted {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }

    fn put(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }
}

/// A deploy's revision and status, or `-` for none.
fn status(deploy: Option<&Arc<Deploy>>) -> String {
    deploy.map_or("-".to_owned(), |deploy| deploy.status().to_string())
}

impl DeployObserver for Noted {
    fn committed(&self, commit: &ConfirmedCommit<'_>) {
        for (before, after) in commit.deploys() {
            self.put(format!("{}: {} > {}", after.revision, status(before), status(Some(after))));
        }
    }

    fn loaded(&self, state: &AppState) {
        *self.loaded.lock().unwrap() = Some(state.clone());
    }

    fn removed(&self, _: AppUid) {
        self.put("removed".to_owned());
    }
}

/// An observer that panics whenever it is called.
struct Panicking(AtomicUsize);

impl DeployObserver for Panicking {
    fn committed(&self, _: &ConfirmedCommit<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("an observer is broken");
    }
}

/// A process on the world's store, the commits of which meet these faults in turn, again and again, and its observers.
fn observed(world: &World, faults: &'static [Fault], observers: Vec<Arc<dyn DeployObserver>>) -> Deployer {
    let commits = AtomicUsize::new(0);
    let plan: Plan = Arc::new(move |call| match call {
        "history.commit" => faults[commits.fetch_add(1, Ordering::Relaxed) % faults.len()],
        _ => Fault::None,
    });
    let history = Arc::new(Faulty::new(world.store.clone(), world.clock.clone() as Arc<dyn Clock>, plan));
    Deployer::new(
        world.ports(9).with(|ports| {
            ports.history = history;
            ports.observers = observers;
            ports.builder = None;
        }),
        "two",
    )
}

/// Registers an app, deploys twice and rolls back; every call is repeated until it is answered.
async fn work(world: &World, deployer: &Deployer) -> Vec<Deploy> {
    let wanted = registration("api", Policy::default());
    let registered = loop {
        match deployer.register(&world.operator, wanted.clone(), None).await {
            Ok(registered) => break registered,
            Err(_) => world.sleep(1).await,
        }
    };
    let access = deployer.allow(world.operator.clone(), registered.id(), Action::ALL).await.unwrap();
    world.quiet(&access).await;
    for image in ["registry.example.com/api:v2", "registry.example.com/api:v3"] {
        while deployer.submit(&access, request(image)).await.is_err() {
            world.sleep(1).await;
        }
        world.quiet(&access).await;
    }
    while deployer.rollback(&access, Default::default()).await.is_err() {
        world.sleep(1).await;
    }
    let history = world.quiet(&access).await;
    // The last answer may be late, and one that was lost is made good by a load.
    world.sleep(60).await;
    deployer.state(&access).await.unwrap();
    history
}

#[test]
fn commits_are_observed_once_as_they_are_stored() {
    const PATTERNS: [&[Fault]; 5] = [
        &[Fault::None],
        &[Fault::Lost],
        &[Fault::None, Fault::Lost],
        &[Fault::Before, Fault::None, Fault::Lost],
        &[Fault::Before, Fault::Lost, Fault::Late(Duration::from_secs(20))],
    ];
    for faults in PATTERNS {
        let world = World::new(Duration::from_secs(1));
        let noted = Arc::new(Noted::default());
        let deployer = observed(&world, faults, vec![noted.clone()]);
        let history = world.run_beside(&deployer, work(&world, &deployer));
        let lines = noted.take();
        assert!(history.len() >= 4, "{faults:?}: {history:?}");
        for deploy in &history {
            let of_deploy = || lines.iter().filter_map(|line| line.strip_prefix(&format!("{}: ", deploy.revision)));
            let accepts = of_deploy().filter(|line| line.starts_with("- >")).count();
            let ends = of_deploy().filter(|line| line.ends_with(deploy.status().as_str())).count();
            assert_eq!((accepts, ends), (1, 1), "{faults:?}, revision {}: {lines:?}", deploy.revision);
        }
        let others =
            lines.iter().filter(|line| !history.iter().any(|it| line.starts_with(&format!("{}:", it.revision))));
        assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new(), "{faults:?}: they are not stored");
    }
}

#[test]
fn commits_of_other_processes_are_theirs_to_observe() {
    let world = World::new(Duration::from_secs(1));
    let noted = Arc::new(Noted::default());
    let deployer = observed(&world, &[Fault::None], vec![noted.clone()]);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &world::api("v2")).await;
        let access = deployer.allow(world.operator.clone(), access.app(), Action::ALL).await.unwrap();
        let state = deployer.state(&access).await.unwrap();
        assert_eq!(noted.loaded.lock().unwrap().take(), Some(state));
        assert_eq!(noted.take(), Vec::<String>::new());
        deployer.submit(&access, request(&world::api("v3"))).await.unwrap();
        assert_eq!(noted.take(), ["3: - > queued"], "before the caller is answered");
        world.ended(&access, 3).await;
        assert_eq!(noted.take(), Vec::<String>::new(), "the other process drives it");
    });
}

#[test]
fn removal_by_any_process_is_observed() {
    let world = World::new(Duration::from_secs(1));
    let noted = Arc::new(Noted::default());
    let deployer = observed(&world, &[Fault::None], vec![noted.clone()]);
    world.run_beside(&deployer, async {
        for (name, remover) in [("api", &deployer), ("web", &*world.deployer)] {
            let access = world.app(name, Policy::default()).await;
            noted.take();
            remover.delete(&access).await.unwrap();
            world.sleep(1).await;
            assert_eq!(noted.take().first().map(String::as_str), Some("removed"));
        }
    });
}

#[test]
fn observer_that_panics_harms_no_deploy_and_no_other_observer() {
    let world = World::new(Duration::from_secs(1));
    let (noted, broken) = (Arc::new(Noted::default()), Arc::new(Panicking(AtomicUsize::new(0))));
    let deployer = observed(&world, &[Fault::None], vec![broken.clone(), noted.clone()]);
    let history = world.run_beside(&deployer, work(&world, &deployer));
    assert!(history.iter().all(|deploy| deploy.status() == Status::Succeeded), "{history:?}");
    assert!(broken.0.load(Ordering::Relaxed) > 4);
    let accepts = noted.take().iter().filter(|line| line.contains(": - >")).count();
    assert_eq!(accepts, history.len());
}
