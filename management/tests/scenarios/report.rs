//! Activity and delivery measures over the histories of all apps, on the whole service under simulated time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    app::Policy,
    deploy::{AdmissionId, Deploy, Revision},
    ports::{Clock, HistoryStore},
    service::{Authorized, Deployer},
};
use rollhook_management::{
    Management, Ports, Refusal,
    access::{Grant, Principal, Role},
    report::{ActivityFilter, ActivityPlace, Apps, READ_MAX, StatusFilter},
};

use crate::world::{self, ManagedWorld, actions::realm, api, registration};

const SECOND: Duration = Duration::from_secs(1);

/// The app and revision of an entry.
type Named = (String, u64);

fn named(app: &Authorized, deploy: &Deploy) -> Named {
    (app.app().to_string(), deploy.revision.get())
}

/// Registers `shop-prod/api`.
async fn in_prod(world: &ManagedWorld) -> Authorized {
    let app = registration("api", Policy::default()).with(|app| app.environment = "prod".parse().unwrap());
    world.registered(app).await
}

/// All parts of activity, of this length each.
async fn parts(world: &ManagedWorld, who: &Principal, filter: &ActivityFilter, limit: usize) -> Vec<Named> {
    let mut after: Option<ActivityPlace> = None;
    let mut all = Vec::new();
    loop {
        let part = world.management.activity(who, filter, after.as_ref(), limit).await.unwrap();
        assert!(part.deploys.len() <= limit && !part.truncated);
        all.extend(part.deploys.iter().map(|(app, deploy)| (app.id.to_string(), deploy.revision.get())));
        match part.next {
            // As a caller sends it.
            Some(next) => after = Some(next.to_string().parse().unwrap()),
            None => return all,
        }
    }
}

#[test]
fn activity_has_every_deploy_of_the_readable_apps_once_and_newest_first() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let apps = [
            world.app("api", Policy::default()).await,
            world.app("web", Policy::default()).await,
            in_prod(&world).await,
        ];
        for round in 0..20 {
            for (number, app) in apps.iter().enumerate() {
                if number == 0 || round % (number * 3) == 0 {
                    let tag = if round % 5 == 4 { "missing" } else { &format!("v{round}") };
                    world.deploy(app, &api(tag)).await.unwrap();
                }
            }
            world.sleep(if round % 3 == 0 { 0 } else { 40 }).await;
        }
        // One is under way.
        world.deploy(&apps[1], &api("hang")).await.unwrap();
        world.sleep(2).await;
        let mut expected = Vec::new();
        for app in &apps {
            expected.extend(world.history(app).await.into_iter().map(|deploy| (app, deploy)));
        }
        expected.sort_by(|(one, a), (other, b)| {
            let newest = b.created_at.cmp(&a.created_at);
            newest.then(one.app().cmp(other.app())).then(b.revision.cmp(&a.revision))
        });
        let all: Vec<Named> = expected.iter().map(|(app, deploy)| named(app, deploy)).collect();
        assert!(all.len() > 30, "{}", all.len());
        let filter = ActivityFilter::default();
        for limit in [1, 7, 20, 200] {
            assert_eq!(parts(&world, &world.operator, &filter, limit).await, all, "{limit}");
        }
        let only = |keep: &dyn Fn(&Authorized, &Deploy) -> bool| {
            let kept = expected.iter().filter(|(app, deploy)| keep(app, deploy));
            kept.map(|(app, deploy)| named(app, deploy)).collect::<Vec<_>>()
        };
        let viewer = Principal::new("eve", [Grant { role: Role::Viewer, realm: realm("shop", "test") }]);
        let of_test = only(&|app, _| app.app().namespace.as_str() == "shop-test");
        assert_eq!(parts(&world, &viewer, &filter, 9).await, of_test, "of the apps that the viewer may read");
        let stranger = Principal::new("bob", [Grant { role: Role::Admin, realm: realm("blog", "test") }]);
        assert_eq!(parts(&world, &stranger, &filter, 9).await, []);
        let failed = ActivityFilter { status: Some(StatusFilter::Failed), ..filter.clone() };
        let expected = only(&|_, deploy| StatusFilter::Failed.as_str() == deploy.status().as_str());
        assert!(!expected.is_empty());
        assert_eq!(parts(&world, &world.operator, &failed, 2).await, expected);
        let unfinished = ActivityFilter { status: Some(StatusFilter::Unfinished), ..filter.clone() };
        assert_eq!(parts(&world, &world.operator, &unfinished, 2).await, only(&|_, deploy| !deploy.is_terminal()));
        let by_the_service = ActivityFilter { actor: Some("AUTO".to_owned()), ..filter.clone() };
        assert_eq!(parts(&world, &world.operator, &by_the_service, 5).await, only(&|_, deploy| deploy.is_restore()));
        let prod = Apps { project: Some("shop".parse().unwrap()), environment: Some("prod".parse().unwrap()) };
        let of_prod = ActivityFilter { apps: prod, ..filter };
        let expected = only(&|app, _| app.app().namespace.as_str() == "shop-prod");
        assert_eq!(parts(&world, &world.operator, &of_prod, 5).await, expected);
    });
}

#[test]
fn report_measures_each_environment_by_what_its_apps_did() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let (test, prod) = (world.app("api", Policy::default()).await, in_prod(&world).await);
        let committed_at = world.now().before(SECOND * 3600);
        let request = world::request(&api("v2")).at(committed_at);
        let request = request.with(|request| request.commit = Some("v2".parse().unwrap()));
        world.deployer.submit(&test, request).await.unwrap();
        world.quiet(&test).await;
        world.deployed(&test, &api("missing")).await;
        world.quiet(&test).await;
        world.deployed(&prod, &api("v1")).await;
        world.deployed(&prod, &api("v2")).await;
        world.rolled_back(&prod).await;
        let report = world.management.delivery_report(&world.operator, &Apps::default(), 7).await.unwrap();
        assert!(!report.truncated);
        let place = |environment: &str| ("shop".parse().unwrap(), environment.parse().unwrap());
        let of_test = &report.environments[&place("test")];
        // The first revision is what was registered.
        let image = world.history(&test).await.len();
        assert_eq!((of_test.deployments, of_test.failed, of_test.returns, of_test.unrecovered), (image - 1, 1, 1, 0));
        let lead_time = of_test.lead_time.unwrap();
        assert!(of_test.lead_times == 1 && lead_time >= SECOND * 3600 && lead_time < SECOND * 3900, "{lead_time:?}");
        assert!(of_test.recovery.is_some_and(|recovery| recovery < SECOND * 60));
        let of_prod = &report.environments[&place("prod")];
        assert_eq!(
            (of_prod.failed, of_prod.returns, of_prod.lead_times),
            (1, 1, 0),
            "the one that was rolled back from"
        );
        let viewer = Principal::new("eve", [Grant { role: Role::Viewer, realm: realm("shop", "test") }]);
        let seen = world.management.delivery_report(&viewer, &Apps::default(), 7).await.unwrap();
        assert_eq!(seen.environments.keys().collect::<Vec<_>>(), [&place("test")]);
    });
}

/// Archives so many more deploys of an app, a second after the other.
async fn archived(world: &ManagedWorld, app: &Authorized, count: u64) {
    let one = world.deployed(app, &api("v1")).await;
    for first in (1..=count).step_by(1_000) {
        world
            .commit(app, |change, _| {
                for number in first..=count.min(first + 999) {
                    let revision = Revision::new(one.revision.get() + number).unwrap();
                    let id = AdmissionId(u128::from(number));
                    let at = one.created_at.after(SECOND * u32::try_from(number).unwrap());
                    let copy =
                        Deploy { id, revision, effective: revision, created_at: at, updated_at: at, ..one.clone() };
                    change.ended.push(Arc::new(copy));
                }
                let last = change.ended.last().cloned();
                change.state.latest = last.as_ref().map(|deploy| deploy.revision);
                change.state.updated_at = last.as_ref().unwrap().created_at;
                change.state.current = last;
            })
            .await;
    }
}

/// The management plane of another process, whose calls of the history are as planned.
fn planned(world: &ManagedWorld, plan: Plan) -> Arc<Management> {
    let store: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(store, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    let deployer = Deployer::new(world.ports(9).with(|ports| ports.history = history), "two");
    world.managed(Arc::new(deployer), Ports::new(world.records()))
}

/// The management plane of another process, whose pages of archives are counted.
fn counted(world: &ManagedWorld) -> (Arc<Management>, Arc<AtomicUsize>) {
    let pages = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&pages);
    let plan: Plan = Arc::new(move |call| {
        counted.fetch_add(usize::from(call == "history.page"), Ordering::Relaxed);
        Fault::None
    });
    (planned(world, plan), pages)
}

#[test]
fn app_whose_entries_cannot_be_read_is_named_and_takes_nothing_from_the_others() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        for name in ["one", "two"] {
            let app = world.app(name, Policy::default()).await;
            archived(&world, &app, 30).await;
        }
        let reads = AtomicUsize::new(0);
        let plan: Plan = Arc::new(move |call| match call {
            "history.page" if reads.fetch_add(1, Ordering::Relaxed) == 0 => Fault::Corrupt,
            _ => Fault::None,
        });
        let management = planned(&world, plan);
        let activity = management.activity(&world.operator, &ActivityFilter::default(), None, 100).await.unwrap();
        let [unreadable] = &activity.unreadable[..] else { panic!("{:?}", activity.unreadable) };
        let shown = |of_it: bool| activity.deploys.iter().filter(|(app, _)| (app.id == *unreadable) == of_it).count();
        assert!(shown(true) < 30);
        assert!(shown(false) > 30);
        let report = management.delivery_report(&world.operator, &Apps::default(), 90).await.unwrap();
        assert_eq!(report.unreadable, [], "the second reading is whole");
    });
}

#[test]
fn call_reads_a_bounded_number_of_entries_and_says_what_it_left_out() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let app = world.app("api", Policy::default()).await;
        archived(&world, &app, 12_000).await;
        let (management, pages) = counted(&world);
        let nobody = ActivityFilter { actor: Some("nobody".to_owned()), ..ActivityFilter::default() };
        let activity = management.activity(&world.operator, &nobody, None, 50).await.unwrap();
        assert!(activity.deploys.is_empty() && activity.next.is_none() && activity.truncated);
        // Pages of 10, 20, 40, 80 and 160 entries, and of 200 each.
        assert!((50..60).contains(&pages.swap(0, Ordering::Relaxed)));
        let report = management.delivery_report(&world.operator, &Apps::default(), 90).await.unwrap();
        assert!(report.truncated);
        let measures = report.environments.values().next().unwrap();
        assert!((READ_MAX..READ_MAX + 210).contains(&measures.deployments), "{}", measures.deployments);
        let newest = management.activity(&world.operator, &ActivityFilter::default(), None, 5).await.unwrap();
        assert!(newest.deploys.len() == 5 && newest.next.is_some() && !newest.truncated);
        assert!(pages.load(Ordering::Relaxed) < 60);
    });
}

#[test]
fn newest_deploys_of_many_apps_are_found_by_few_reads() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        for number in 0..60 {
            world.app(&format!("app-{number}"), Policy::default()).await;
        }
        let (management, pages) = counted(&world);
        let newest = management.activity(&world.operator, &ActivityFilter::default(), None, 10).await.unwrap();
        assert_eq!(newest.deploys.len(), 10);
        assert_eq!(pages.load(Ordering::Relaxed), 0, "the states of the apps have them");
    });
}

#[test]
fn entries_that_a_caller_reads_are_bounded_in_a_minute() {
    let world = ManagedWorld::new(SECOND);
    world.run(async {
        let app = world.app("api", Policy::default()).await;
        archived(&world, &app, 12_000).await;
        let report = async |who: &Principal| {
            world.management.delivery_report(who, &Apps::default(), 90).await.map(|report| report.truncated)
        };
        let eve = Principal::new("eve", [Grant { role: Role::Viewer, realm: realm("shop", "test") }]);
        let mut calls = 0;
        let refused = loop {
            match report(&eve).await {
                Ok(_) => calls += 1,
                Err(refused) => break refused,
            }
            assert!(calls < 100);
        };
        assert_eq!((refused, calls), (Refusal::TooManyReports, 10));
        assert!(report(&world.operator).await.is_ok(), "others have their own");
        world.sleep(2).await;
        assert!(report(&eve).await.is_ok());
    });
}
