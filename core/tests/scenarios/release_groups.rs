//! Release groups: each rule as a scenario on the whole engine under simulated time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    app::Policy,
    deploy::{Deploy, Reason, Revision, Status},
    ports::{Clock, HistoryStore},
    request::{PolicyChange, RollbackRequest},
    service::{Authorized, Deployer},
};

use crate::world::{World, api, reason};

const SECOND: Duration = Duration::from_secs(1);
/// How long a rollout and a release command take.
const DELAY: Duration = Duration::from_secs(8);

fn command(word: &str) -> Vec<String> {
    vec!["bin/release".to_owned(), word.to_owned()]
}

fn of_group(group: &str) -> Policy {
    Policy::default().with(|policy| {
        policy.release_command = command("migrate");
        policy.release_group = group.parse().ok();
    })
}

impl World {
    /// The release commands that have begun since the first versions ran: app and revision.
    fn begun_releases(&self, apps: &[&Authorized]) -> Vec<(String, u64)> {
        let begun = self.cluster.releases().into_iter().filter(|begun| begun.revision() > Some(Revision::FIRST));
        begun
            .map(|begun| {
                let app = apps.iter().find(|app| app.uid() == begun.run.app).unwrap();
                (app.app().name.to_string(), begun.revision().unwrap().get())
            })
            .collect()
    }

    fn running_releases(&self, apps: &[&Authorized]) -> usize {
        apps.iter().map(|app| self.cluster.running_releases(app.uid())).sum()
    }

    /// Waits until an entry has ended, and no two commands run until then.
    async fn ends_alone(&self, apps: &[&Authorized], access: &Authorized, revision: u64) -> Deploy {
        for _ in 0..60_000 {
            assert!(self.running_releases(apps) <= 1, "{:?}", self.begun_releases(apps));
            let entry = self.entry(access, revision).await;
            if entry.is_terminal() {
                return entry;
            }
            self.clock.sleep(SECOND / 10).await;
        }
        panic!("revision {revision} never ends");
    }

    /// Waits until a command by this name has begun.
    async fn release_begins(&self, apps: &[&Authorized], app: &str, revision: u64) {
        for _ in 0..6000 {
            if self.begun_releases(apps).contains(&(app.to_owned(), revision)) {
                return;
            }
            self.clock.sleep(SECOND / 10).await;
        }
        panic!("the command of {app} never begins: {:?}", self.begun_releases(apps));
    }

    async fn policy(&self, access: &Authorized, change: PolicyChange) {
        self.deployer.change_policy(access, change).await.unwrap();
    }

    /// Has the app's commands never end by themselves.
    async fn hangs(&self, access: &Authorized) {
        self.policy(access, PolicyChange { release_command: Some(command("hang")), ..PolicyChange::default() }).await;
    }

    /// Two apps of a group: the command of the first one's revision 2 never ends, and that of the other one's waits for it.
    async fn two_of_a_group(&self, waiting: Policy) -> [Authorized; 2] {
        let holder = self.app("api", of_group("orders")).await;
        let waiting = self.app("web", waiting).await;
        self.hangs(&holder).await;
        self.deploy(&holder, &api("v2")).await.unwrap();
        self.release_begins(&[&holder, &waiting], "api", 2).await;
        self.deploy(&waiting, &api("v2")).await.unwrap();
        [holder, waiting]
    }

    /// What the entry's release step waits for.
    async fn waits_for(&self, access: &Authorized, revision: u64) -> Option<String> {
        let state = self.view(access).await;
        let entry = self.entry(access, revision).await;
        let progress = self.deployer.progress(&state, &entry)?;
        progress.message.inspect(|_| assert_eq!(progress.deadline, None))
    }
}

fn named(begun: &[(&str, u64)]) -> Vec<(String, u64)> {
    begun.iter().map(|(app, revision)| ((*app).to_owned(), *revision)).collect()
}

#[test]
fn commands_of_a_group_run_one_at_a_time_in_their_order() {
    let world = World::new(DELAY);
    world.run(async {
        let mut apps = Vec::new();
        for name in ["api", "web", "worker"] {
            apps.push(world.app(name, of_group("orders")).await);
        }
        let apps: Vec<&Authorized> = apps.iter().collect();
        for app in [apps[2], apps[0], apps[1]] {
            world.deploy(app, &api("v2")).await.unwrap();
            world.sleep(1).await;
        }
        world.sleep(5).await;
        let message = "waits for the release command of worker, revision 2: that time does not count";
        assert_eq!(world.waits_for(apps[0], 2).await.as_deref(), Some(message));
        for app in &apps {
            assert_eq!(world.ends_alone(&apps, app, 2).await.status(), Status::Succeeded);
        }
        assert_eq!(world.begun_releases(&apps), named(&[("worker", 2), ("api", 2), ("web", 2)]));
        for app in &apps {
            world.quiet(app).await;
            let state = world.view(app).await;
            assert_eq!((state.release_runs, state.release_turns), (vec![], vec![]));
        }
    });
}

#[test]
fn commands_at_the_same_moment_run_one_at_a_time() {
    let world = World::new(DELAY);
    world.run(async {
        let mut apps = Vec::new();
        for number in 0..6 {
            apps.push(world.app(&format!("app-{number}"), of_group("orders")).await);
        }
        let apps: Vec<&Authorized> = apps.iter().collect();
        for app in &apps {
            world.deploy(app, &api("v2")).await.unwrap();
        }
        for app in &apps {
            assert_eq!(world.ends_alone(&apps, app, 2).await.status(), Status::Succeeded);
        }
        assert_eq!(world.begun_releases(&apps).len(), 6);
    });
}

#[test]
fn another_group_and_no_group_wait_for_nobody() {
    let world = World::new(DELAY);
    world.run(async {
        let holder = world.app("api", of_group("orders")).await;
        let other = world.app("web", of_group("stock")).await;
        let alone = Policy::default().with(|policy| policy.release_command = command("migrate"));
        let alone = world.app("worker", alone).await;
        world.hangs(&holder).await;
        world.deploy(&holder, &api("v2")).await.unwrap();
        world.release_begins(&[&holder], "api", 2).await;
        for app in [&other, &alone] {
            assert_eq!(world.deployed(app, &api("v2")).await.status(), Status::Succeeded);
        }
        assert_eq!(world.entry(&holder, 2).await.status(), Status::Releasing);
    });
}

#[test]
fn waiting_does_not_count_towards_the_deadline() {
    let world = World::new(DELAY);
    world.run(async {
        let soon = of_group("orders").with(|policy| policy.release_deadline = 20 * SECOND);
        let [holder, waiting] = world.two_of_a_group(soon).await;
        let apps = [&holder, &waiting];
        assert_eq!(reason(&world.ends_alone(&apps, &holder, 2).await).0, Reason::RELEASE_DEADLINE, "after ten minutes");
        assert_eq!(world.ends_alone(&apps, &waiting, 2).await.status(), Status::Succeeded);
    });
}

#[test]
fn one_that_waits_can_be_cancelled_and_is_overtaken_by_a_newer_deploy() {
    let world = World::new(DELAY);
    world.run(async {
        let [holder, waiting] = world.two_of_a_group(of_group("orders")).await;
        let apps = [&holder, &waiting];
        world.sleep(20).await;
        world.deployer.cancel(&waiting, Revision::new(2).unwrap()).await.unwrap();
        let state = world.view(&waiting).await;
        assert_eq!((state.release_runs, state.release_turns), (vec![], vec![]), "nothing was made ready");
        world.deploy(&waiting, &api("v3")).await.unwrap();
        world.sleep(20).await;
        world.deploy(&waiting, &api("v4")).await.unwrap();
        assert_eq!(world.ended(&waiting, 3).await.status(), Status::Superseded);
        world.deployer.cancel(&holder, Revision::new(2).unwrap()).await.unwrap();
        assert_eq!(world.ends_alone(&apps, &waiting, 4).await.status(), Status::Succeeded);
        assert_eq!(world.begun_releases(&apps), named(&[("api", 2), ("web", 4)]));
    });
}

#[test]
fn turn_outlives_the_process_that_took_it() {
    let world = World::new(DELAY);
    let [holder, waiting] = world.run(world.two_of_a_group(of_group("orders")));
    let other = world.replica("two", 7);
    world.run_beside(&other, async {
        let apps = [&holder, &waiting];
        world.sleep(60).await;
        assert_eq!(world.begun_releases(&apps), named(&[("api", 2)]));
        other.cancel(&holder, Revision::new(2).unwrap()).await.unwrap();
        assert_eq!(world.ends_alone(&apps, &waiting, 2).await.status(), Status::Succeeded);
    });
}

#[test]
fn lost_run_and_deleted_app_free_the_group() {
    let world = World::new(DELAY);
    world.run(async {
        let [holder, waiting] = world.two_of_a_group(of_group("orders")).await;
        world.sleep(5).await;
        world.cluster.lose_releases();
        assert_eq!(reason(&world.ended(&holder, 2).await).0, Reason::RELEASE_UNKNOWN);
        assert_eq!(world.ended(&waiting, 2).await.status(), Status::Succeeded);
        world.deploy(&holder, &api("v3")).await.unwrap();
        world.release_begins(&[&holder, &waiting], "api", 3).await;
        world.deploy(&waiting, &api("v3")).await.unwrap();
        world.sleep(5).await;
        world.deployer.delete(&world.access(holder.app()).await).await.unwrap();
        assert_eq!(world.ended(&waiting, 3).await.status(), Status::Succeeded);
    });
}

#[test]
fn run_that_never_ends_holds_the_group_for_an_hour_after_its_deploy() {
    let world = World::new(DELAY);
    world.run(async {
        let [holder, waiting] = world.two_of_a_group(of_group("orders")).await;
        world.cluster.keep_releases(true);
        world.deployer.cancel(&holder, Revision::new(2).unwrap()).await.unwrap();
        world.sleep(3500).await;
        assert_eq!(world.entry(&waiting, 2).await.status(), Status::Releasing);
        assert_eq!(world.ended(&waiting, 2).await.status(), Status::Succeeded);
    });
}

/// A world whose process has this trouble with the history store.
fn with_history(plan: Plan) -> World {
    let world = World::new(DELAY);
    let store: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(store, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    let deployer = Arc::new(Deployer::new(world.ports(9).with(|ports| ports.history = history), "one"));
    World { deployer, ..world }
}

#[test]
fn deploys_of_a_group_that_wait_share_their_reads_of_it() {
    let (lists, counted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&lists);
    let plan: Plan = Arc::new(move |call| match call {
        "history.list" => {
            count.fetch_add(1, Ordering::Relaxed);
            Fault::Late(Duration::from_millis(10))
        }
        _ => Fault::None,
    });
    let world = with_history(plan);
    world.run(async {
        let holder = world.app("api", of_group("orders")).await;
        world.hangs(&holder).await;
        let mut waiting = Vec::new();
        for number in 0..30 {
            waiting.push(world.app(&format!("app-{number}"), of_group("orders")).await);
        }
        world.deploy(&holder, &api("v2")).await.unwrap();
        world.release_begins(&[&holder], "api", 2).await;
        for app in &waiting {
            world.deploy(app, &api("v2")).await.unwrap();
        }
        world.sleep(60).await;
        lists.store(0, Ordering::Relaxed);
        world.sleep(30).await;
        counted.store(lists.load(Ordering::Relaxed), Ordering::Relaxed);
        for app in &waiting {
            assert_eq!(world.entry(app, 2).await.status(), Status::Releasing);
        }
    });
    let counted = counted.load(Ordering::Relaxed);
    assert!(counted <= 40, "30 deploys that wait made {counted} reads in 30 s");
}

#[test]
fn rollback_waits_for_no_read_of_the_group() {
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = Arc::clone(&is_slow);
    let plan: Plan = Arc::new(move |call| match call {
        "history.list" if slow.load(Ordering::Relaxed) => Fault::Late(Duration::from_secs(24 * 3600)),
        _ => Fault::None,
    });
    let world = with_history(plan);
    world.run(async {
        let holder = world.app("api", of_group("orders")).await;
        let waiting = world.app("backoffice", of_group("orders")).await;
        world.hangs(&holder).await;
        world.deploy(&waiting, &api("v2")).await.unwrap();
        world.ended(&waiting, 2).await;
        world.deploy(&holder, &api("v2")).await.unwrap();
        world.release_begins(&[&holder, &waiting], "api", 2).await;
        world.deploy(&waiting, &api("v3")).await.unwrap();
        world.sleep(30).await;
        assert_eq!(world.entry(&waiting, 3).await.status(), Status::Releasing);
        is_slow.store(true, Ordering::Relaxed);
        world.sleep(30).await;
        let (asked, back) =
            (world.clock.elapsed(), RollbackRequest::default().with(|request| request.past_releases = true));
        let back = world.deployer.rollback(&waiting, back).await.unwrap().deploy.revision;
        assert_eq!(world.ended(&waiting, back.get()).await.status(), Status::Succeeded);
        assert!(world.clock.elapsed() - asked < Duration::from_secs(120));
    });
}
