//! What a caller's calls leave behind is bounded.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    action::Action,
    app::{AppId, Policy},
    ports::{AppPage, Clock, HistoryStore},
    request::{Refusal as CoreRefusal, RunRequest},
    service::Deployer,
};
use rollhook_management::{
    ENVIRONMENT_APPS_MAX, Management, PROJECT_APPS_MAX, Ports, Refusal, STORED_SESSIONS_MAX,
    access::{AuditEntry, Grant, GroupGrant, NewApiToken, Person, Principal, Realm, Role, SignInGrants},
    locks::NewLock,
    ports::{NewRecord, RecordKey, RecordKind},
};

use crate::world::{
    ManagedWorld,
    actions::{allow, deployer, realm, register},
    registration,
};

const SECOND: Duration = Duration::from_secs(1);

/// Makes a token of this realm, and returns its principal.
async fn token_of(world: &ManagedWorld, name: &str, realm: Realm) -> Principal {
    let grant = Grant { role: Role::Deployer, realm };
    let wanted = NewApiToken { name: name.parse().unwrap(), grant, ttl: None };
    let text = world.management.create_api_token(&world.operator, wanted).await.unwrap().1;
    world.management.authenticate(text.expose().as_bytes(), None).await.unwrap()
}

/// The entries of this caller, oldest first.
async fn entries(world: &ManagedWorld, who: &Principal) -> Vec<AuditEntry> {
    let mut found = all_entries(world).await;
    found.retain(|entry| entry.actor == *who.actor());
    found
}

/// All entries, oldest first.
async fn all_entries(world: &ManagedWorld) -> Vec<AuditEntry> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let (page, next) = world.management.audited(&world.operator, after, 200).await.unwrap();
        found.extend(page.into_iter().map(|audited| audited.entry));
        after = next;
        if after.is_none() {
            break;
        }
    }
    found.reverse();
    found
}

#[test]
fn repeated_reads_of_a_token_are_one_entry_of_the_audit_per_hour_which_counts_them() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        let id = register(&world, "shop", "test").await;
        let (eve, ada) = (deployer("eve"), deployer("ada"));
        allow(&world, &ada, &id, Action::ReadToken).await;
        for _ in 0..300 {
            allow(&world, &eve, &id, Action::ReadToken).await;
        }
        let of_eve = entries(&world, &eve).await;
        assert_eq!(of_eve.iter().map(|entry| entry.times).collect::<Vec<_>>(), [300]);
        assert!(of_eve[0].until.is_some() && of_eve[0].is_allowed);
        assert_eq!(entries(&world, &ada).await.iter().map(|entry| entry.times).collect::<Vec<_>>(), [1]);
        world.clock.sleep(Duration::from_secs(3600)).await;
        allow(&world, &eve, &id, Action::ReadToken).await;
        assert_eq!(entries(&world, &eve).await.len(), 2, "the next hour has its own");
    });
}

#[test]
fn reads_on_several_replicas_are_counted_in_one_entry() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        let id = register(&world, "shop", "test").await;
        let (eve, other) = (deployer("eve"), world.managed_replica("two", 7));
        other.open(&eve, &id).await.unwrap();
        world.clock.sleep(Duration::from_secs(1)).await;
        for _ in 0..10 {
            let (one, two) = futures_util::future::join(
                world.management.allow(&eve, &id, Action::ReadToken),
                other.allow(&eve, &id, Action::ReadToken),
            )
            .await;
            assert!(one.is_ok() && two.is_ok());
        }
        assert_eq!(entries(&world, &eve).await.iter().map(|entry| entry.times).sum::<u32>(), 20);
        assert!(entries(&world, &eve).await.len() <= 2, "two replicas may differ in the hour");
    });
}

#[test]
fn caller_that_does_very_much_has_a_bounded_number_of_entries_per_hour() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        let id = register(&world, "shop", "test").await;
        let (eve, ada) = (deployer("eve"), deployer("ada"));
        for _ in 0..3_000 {
            allow(&world, &eve, &id, Action::ReleaseHold).await;
        }
        let of_eve = entries(&world, &eve).await;
        assert_eq!((of_eve.len(), of_eve.iter().map(|entry| entry.times).sum::<u32>()), (1_001, 3_000));
        allow(&world, &ada, &id, Action::ReleaseHold).await;
        assert_eq!(entries(&world, &ada).await.len(), 1, "others' acts have their own");
    });
}

#[test]
fn call_that_a_rate_or_the_state_of_the_app_refuses_leaves_nothing_in_the_audit() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        let (id, management) = (register(&world, "shop", "test").await, &world.management);
        let eve = Principal::new("eve", [Grant { role: Role::Admin, realm: realm("shop", "test") }]);
        let (project, environment) = ("shop".parse().unwrap(), "test".parse().unwrap());
        let times = async || entries(&world, &eve).await.iter().map(|entry| entry.times).sum::<u32>();
        for _ in 0..15 {
            management.test_check(&eve, &id, &"front".parse().unwrap()).await.unwrap_err();
        }
        assert_eq!(times().await, 10, "tests of checks");
        for _ in 0..70 {
            let _ = management.discard_configuration(&eve, &id).await;
        }
        assert_eq!(times().await, 70, "changes of configurations");
        for _ in 0..25 {
            let _ = management.unlock_environment(&eve, &project, &environment).await;
        }
        assert_eq!(times().await, 90, "changes of locks");
        let run = RunRequest::new(vec!["bin/fix".to_owned()]);
        let refused = management.begin_run(&eve, &id, run.clone()).await.unwrap_err();
        assert_eq!(refused, Refusal::Core(CoreRefusal::NothingRuns(id.clone())));
        let access = world.access(&id).await;
        world.ended(&access, 1).await;
        let first = management.begin_run(&eve, &id, run.clone()).await.unwrap().run.number;
        let refused = management.begin_run(&eve, &id, run).await.unwrap_err();
        assert_eq!(refused, Refusal::Core(CoreRefusal::RunUnfinished(first)));
        management.cancel_run(&eve, &id, first).await.unwrap();
        let none = "7".parse().unwrap();
        let refused = management.cancel_run(&eve, &id, none).await.unwrap_err();
        assert_eq!(refused, Refusal::Core(CoreRefusal::RunNotFound(none)));
        assert_eq!(times().await, 92, "a run that began, and its end");
        // A call that is not allowed takes nothing of the rate of those that are.
        world.sleep(60).await;
        let viewer = Principal::new("viewer", [Grant { role: Role::Viewer, realm: realm("shop", "test") }]);
        for _ in 0..15 {
            let refused = management.test_check(&viewer, &id, &"front".parse().unwrap()).await.unwrap_err();
            assert!(matches!(refused, Refusal::Forbidden(..)), "{refused}");
        }
        let tested = management.test_check(&eve, &id, &"front".parse().unwrap()).await.unwrap_err();
        assert!(!matches!(tested, Refusal::TooManyTests(_)), "{tested}");
    });
}

#[test]
fn looks_at_images_have_a_rate_per_environment_which_only_those_who_may_deploy_use_up() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        let (id, management) = (register(&world, "shop", "test").await, &world.management);
        let other = register(&world, "shop", "prod").await;
        let holder = |role| Principal::new("eve", [Grant { role, realm: Realm::Everything }]);
        let image = "registry.example.com/api:v1".parse().unwrap();
        let look =
            async |role: Role, id: &AppId| management.look_up_image(&holder(role), id, Some(&image)).await.unwrap_err();
        for _ in 0..30 {
            assert!(matches!(look(Role::Viewer, &id).await, Refusal::Forbidden(..)));
        }
        for _ in 0..20 {
            assert_eq!(look(Role::Deployer, &id).await, Refusal::Core(CoreRefusal::NoRegistry));
        }
        assert_eq!(look(Role::Admin, &id).await, Refusal::TooManyLooks(realm("shop", "test")));
        assert_eq!(look(Role::Deployer, &other).await, Refusal::Core(CoreRefusal::NoRegistry), "another environment");
        world.sleep(2).await;
        assert_eq!(look(Role::Deployer, &id).await, Refusal::Core(CoreRefusal::NoRegistry));
    });
}

#[test]
fn callers_of_one_environment_have_a_bounded_number_of_entries_per_day() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        let id = register(&world, "shop", "test").await;
        for number in 0..7 {
            let caller = token_of(&world, &format!("caller-{number}"), realm("shop", "test")).await;
            for _ in 0..900 {
                allow(&world, &caller, &id, Action::ReleaseHold).await;
            }
        }
        let found = all_entries(&world).await;
        let (own, shared): (Vec<_>, Vec<_>) = found
            .into_iter()
            .filter(|entry| entry.actor != *world.operator.actor())
            .partition(|entry| entry.times == 1);
        assert_eq!((own.len(), shared.iter().map(|entry| entry.times).sum::<u32>()), (5_000, 1_300));
        assert_eq!(shared.len(), 1);
        assert_eq!(shared[0].actor.to_string(), "several callers of project shop, environment test");
        assert!(shared[0].subject.ends_with(", by caller-6") && shared[0].realm == realm("shop", "test"));

        let elsewhere = register(&world, "shop", "prod").await;
        let other = token_of(&world, "other", realm("shop", "prod")).await;
        allow(&world, &other, &elsewhere, Action::ReleaseHold).await;
        assert_eq!(entries(&world, &other).await.len(), 1, "another environment has its own");
        world.clock.sleep(Duration::from_secs(24 * 3600)).await;
        let caller = token_of(&world, "caller-7", realm("shop", "test")).await;
        allow(&world, &caller, &id, Action::ReleaseHold).await;
        assert_eq!(entries(&world, &caller).await.len(), 1, "the next day has its own");
    });
}

#[test]
fn callers_of_one_project_have_a_bounded_number_of_refusals_per_day() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        for number in 0..14 {
            let environment = format!("e{number}");
            let caller = token_of(&world, &format!("caller-{number}"), realm("shop", &environment)).await;
            for _ in 0..90 {
                let wanted = NewApiToken {
                    name: "more".parse().unwrap(),
                    grant: Grant { role: Role::Viewer, realm: realm("shop", &environment) },
                    ttl: None,
                };
                assert!(world.management.create_api_token(&caller, wanted).await.is_err());
            }
        }
        let refused = all_entries(&world).await.into_iter().filter(|entry| !entry.is_allowed).count();
        assert_eq!(refused, 1_000);
        let caller = token_of(&world, "other", realm("blog", "test")).await;
        let wanted = NewApiToken { name: "more".parse().unwrap(), grant: Grant::ALL, ttl: None };
        assert!(world.management.create_api_token(&caller, wanted).await.is_err());
        assert_eq!(entries(&world, &caller).await.len(), 1, "another project has its own");
    });
}

#[test]
fn tokens_and_webhooks_of_one_environment_share_its_part() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        let id = register(&world, "shop", "test").await;
        let management = &world.management;
        let grant = Grant { role: Role::Viewer, realm: realm("shop", "test") };
        let wanted = NewApiToken { name: "viewer".parse().unwrap(), grant, ttl: None };
        let text = management.create_api_token(&world.operator, wanted).await.unwrap().1;
        management.authenticate(text.expose().as_bytes(), None).await.unwrap();
        let token = management.known_caller(text.expose().as_bytes()).unwrap();
        management.read_environment(&id).await;
        let webhook = management.webhook_caller(&id);
        assert_ne!(webhook.party, token.party);
        assert!(webhook.environment.is_some() && webhook.project.is_some());
        assert_eq!((webhook.environment, webhook.project), (token.environment, token.project));
        let unread = management.webhook_caller(&"blog-test/api".parse().unwrap());
        assert!(unread.environment.is_some() && unread.environment != management.webhook_caller(&id).environment);
        assert_eq!(unread.project, None);
    });
}

#[test]
fn page_of_the_audit_reads_no_more_entries_than_it_returns() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.run(async {
        let id = register(&world, "shop", "test").await;
        let eve = deployer("eve");
        for _ in 0..120 {
            allow(&world, &eve, &id, Action::ReleaseHold).await;
        }
        let all = world.records().list(RecordKind::Audit, None, 1_000).await.unwrap();
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let (page, next) = world.management.audited(&world.operator, after, 50).await.unwrap();
            assert!(page.len() <= 50);
            found.extend(page.into_iter().map(|audited| audited.place));
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, all.iter().map(rollhook_management::ports::Record::place).collect::<Vec<_>>());
    });
}

#[test]
fn store_keeps_a_bounded_number_of_sessions_and_the_newest_of_them() {
    let world = ManagedWorld::new(Duration::ZERO);
    let grant = Grant { role: Role::Viewer, realm: realm("shop", "test") };
    let grants = [GroupGrant { group: "viewers".to_owned(), grant }].into();
    world.management.let_people_in(SignInGrants { provider: "login.example.com".to_owned(), grants });
    world.run(async {
        let document = r#"{"subject":["login.example.com","0"],"person":"ada","groups":["viewers"]}"#;
        for number in 0..STORED_SESSIONS_MAX as u128 {
            let key = RecordKey::of_bits(number);
            let record = NewRecord { key, document: document.to_owned(), ttl: Some(Duration::from_secs(8 * 3600)) };
            world.records().write(RecordKind::Session, record, None).await.unwrap();
        }
        world.clock.sleep(Duration::from_secs(1)).await;
        let mut newest = None;
        for number in 1..=1_000 {
            let person = Person {
                subject: number.to_string(),
                name: "ada".to_owned(),
                provider: "login.example.com".to_owned(),
                groups: vec!["viewers".to_owned()],
            };
            newest = Some(world.management.begin_person_session(person).await.unwrap());
        }
        world.clock.sleep(Duration::from_secs(61)).await;
        let stored = world.records().list(RecordKind::Session, None, 30_000).await.unwrap();
        assert_eq!(stored.len(), STORED_SESSIONS_MAX);
        assert!(world.management.session(&newest.unwrap()).await.is_ok());
    });
}

#[test]
fn admin_of_one_environment_uses_up_its_own_tokens_and_no_others() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.idle(async {
        let admin = Principal::new("eve", [Grant { role: Role::Admin, realm: realm("shop", "test") }]);
        let make = async |who: &Principal, name: String, environment: &str| {
            let grant = Grant { role: Role::Viewer, realm: realm("shop", environment) };
            let wanted = NewApiToken { name: name.parse().unwrap(), grant, ttl: None };
            world.management.create_api_token(who, wanted).await.map(drop)
        };
        for number in 0..200 {
            make(&admin, format!("token-{number}"), "test").await.unwrap();
        }
        let refused = make(&admin, "one-more".to_owned(), "test").await.unwrap_err();
        assert_eq!(refused, Refusal::TooManyTokens(200, realm("shop", "test")));
        make(&world.operator, "elsewhere".to_owned(), "prod").await.unwrap();
    });
}

/// A replica whose store takes a second for each list and write, so that calls at the same time see the same records.
fn slow(world: &ManagedWorld) -> Arc<Management> {
    let plan: Plan = Arc::new(|call| match call {
        "records.list" | "records.write" => Fault::Late(Duration::from_secs(1)),
        _ => Fault::None,
    });
    let records = Faulty::new(world.records(), Arc::clone(&world.clock) as Arc<dyn Clock>, plan);
    world.managed(world.replica("two", 7), Ports::new(Arc::new(records)))
}

#[test]
fn calls_at_the_same_time_do_not_pass_the_bound_of_locks() {
    let world = ManagedWorld::new(Duration::ZERO);
    let management = slow(&world);
    world.run_managed(&management, async {
        let lock = async |number: usize| {
            let (project, environment) = ("shop".parse().unwrap(), format!("made-up-{number}").parse().unwrap());
            let wanted = NewLock { reason: "no deploys".parse().unwrap(), ttl: None };
            management.lock_environment(&world.operator, &project, &environment, wanted).await
        };
        let locked = join_all((0..120).map(lock)).await;
        let refused = locked.iter().filter(|locked| matches!(locked, Err(Refusal::TooManyLocks(100, _)))).count();
        assert_eq!((locked.iter().filter(|locked| locked.is_ok()).count(), refused), (100, 20));
    });
}

#[test]
fn calls_at_the_same_time_do_not_pass_the_bound_of_tokens() {
    let world = ManagedWorld::new(Duration::ZERO);
    let management = slow(&world);
    world.run_managed(&management, async {
        let make = async |number: usize| {
            let grant = Grant { role: Role::Viewer, realm: realm("shop", "test") };
            let wanted = NewApiToken { name: format!("token-{number}").parse().unwrap(), grant, ttl: None };
            management.create_api_token(&world.operator, wanted).await
        };
        let made = join_all((0..220).map(make)).await;
        let refused = made.iter().filter(|made| matches!(made, Err(Refusal::TooManyTokens(200, _)))).count();
        assert_eq!((made.iter().filter(|made| made.is_ok()).count(), refused), (200, 20));
    });
}

#[test]
fn registrations_at_the_same_time_do_not_pass_the_bound_of_an_environment() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.idle(async {
        let admin = Principal::new("eve", [Grant { role: Role::Admin, realm: realm("shop", "test") }]);
        let wanted = |number: usize, environment: &str| {
            let app = registration(&format!("app-{number}"), Policy::default());
            app.with(|app| app.environment = environment.parse().unwrap())
        };
        let register = |number: usize| world.management.register(&admin, wanted(number, "test"), None);
        for number in 0..ENVIRONMENT_APPS_MAX - 5 {
            world.deployer.register(admin.actor(), wanted(number, "test"), None).await.unwrap();
        }
        let more = join_all((0..20).map(|number| register(ENVIRONMENT_APPS_MAX + number))).await;
        let most = Refusal::TooManyApps(ENVIRONMENT_APPS_MAX, realm("shop", "test"));
        let refused = more.iter().filter(|app| app.as_ref().is_err_and(|refusal| *refusal == most)).count();
        assert_eq!((more.iter().filter(|app| app.is_ok()).count(), refused), (5, 15));
        assert!(register(0).await.is_err_and(|refusal| refusal != most), "it is registered already");
        world.management.register(&world.operator, wanted(0, "prod"), None).await.unwrap();
        let id = "shop-test/app-0".parse().unwrap();
        world.management.delete(&admin, &id).await.unwrap();
        register(0).await.unwrap();
    });
}

#[test]
fn registrations_of_a_project_wait_for_their_turn_and_a_bounded_number_of_them() {
    let world = ManagedWorld::new(Duration::ZERO);
    // A registration that has its turn looks for a lock of the environment.
    let plan: Plan =
        Arc::new(|call| if call == "records.read" { Fault::Late(Duration::from_secs(1)) } else { Fault::None });
    let records = Faulty::new(world.records(), Arc::clone(&world.clock) as Arc<dyn Clock>, plan);
    let management = world.managed(world.replica("two", 7), Ports::new(Arc::new(records)));
    world.run_managed(&management, async {
        let wanted = |number: usize, project: &str| {
            let app = registration(&format!("app-{number}"), Policy::default());
            let environment = if number.is_multiple_of(2) { "test" } else { "stage" };
            app.with(|app| {
                app.project = project.parse().unwrap();
                app.environment = environment.parse().unwrap();
            })
        };
        let register = |number: usize| {
            let mut wanted = wanted(number, if number == 98 { "blog" } else { "shop" });
            if number == 99 {
                wanted.target.insert("note".to_owned(), "x".repeat(40_000).into());
            }
            management.register(&world.operator, wanted, None)
        };
        let registered = join_all((0..100).map(register)).await;
        assert!(registered[..51].iter().all(Result::is_ok), "one has its turn, and fifty wait");
        let shop = Realm::Project { project: "shop".parse().unwrap() };
        let refused = Refusal::TooManyRegistrations(50, shop);
        assert!(registered[51..98].iter().all(|app| app.as_ref().is_err_and(|refusal| *refusal == refused)));
        assert!(registered[98].is_ok(), "another project waits for none of them");
        assert!(registered[99].as_ref().is_err_and(|refusal| refusal.to_string().contains("may take 32768")));
        management.register(&world.operator, wanted(60, "shop"), None).await.unwrap();
    });
}

#[test]
fn lists_of_apps_are_read_in_turns_of_the_environments_whose_callers_ask() {
    let world = ManagedWorld::new(Duration::ZERO);
    let plan: Plan = Arc::new(|call| if call == "history.list" { Fault::Late(SECOND) } else { Fault::None });
    let history: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(history, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    let deployer = Arc::new(Deployer::new(world.ports(9).with(|ports| ports.history = history), "two"));
    let management = world.managed(deployer, Ports::new(world.records()));
    world.idle(async {
        let eves = [
            token_of(&world, "eve", realm("shop", "test")).await,
            token_of(&world, "eva", realm("shop", "test")).await,
        ];
        let ada = token_of(&world, "ada", realm("blog", "test")).await;
        let begun = world.clock.elapsed();
        let ended = async |who: &Principal| {
            management.apps(who, AppPage::first(200)).await.unwrap();
            (world.clock.elapsed() - begun).as_secs()
        };
        let lists = (0..10).map(|number| &eves[number % 2]).chain([&ada; 2]).chain([&world.operator; 2]);
        let ended = join_all(lists.map(ended)).await;
        assert_eq!(ended, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 1, 1, 1, 1], "two at once of each");
    });
}

#[test]
fn admin_of_a_project_uses_up_its_own_apps_and_no_others() {
    let world = ManagedWorld::new(Duration::ZERO);
    world.idle(async {
        let project = Realm::Project { project: "shop".parse().unwrap() };
        let admin = Principal::new("eve", [Grant { role: Role::Admin, realm: project.clone() }]);
        let wanted = |project: &str, environment: usize, app: usize| {
            registration(&format!("app-{app}"), Policy::default()).with(|app| {
                app.project = project.parse().unwrap();
                app.environment = format!("of-{environment}").parse().unwrap();
            })
        };
        let register = async |who: &Principal, project: &str, environment: usize, app: usize| {
            world.management.register(who, wanted(project, environment, app), None).await.map(drop)
        };
        // Namespaces of another project lie between those of this one.
        register(&world.operator, "shop-of", 1, 0).await.unwrap();
        for number in 0..PROJECT_APPS_MAX {
            let app = wanted("shop", number / 30, number % 30);
            world.deployer.register(admin.actor(), app, None).await.unwrap();
        }
        let refused = register(&admin, "shop", 500, 0).await.unwrap_err();
        assert_eq!(refused, Refusal::TooManyApps(PROJECT_APPS_MAX, project));
        register(&world.operator, "shop-of", 2, 0).await.unwrap();
        register(&world.operator, "other", 1, 0).await.unwrap();
    });
}
