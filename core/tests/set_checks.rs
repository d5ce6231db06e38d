//! Checks of apps: completed by the verifier when they are set, and left alone once they are stored.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod world;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::{
    action::Action,
    app::{Policy, Settings},
    check::{Check, CheckKind, Measurement, Verdict},
    error::Result,
    ports::{KindOfCheck, MeasureSpec, Measured, Verifier},
    request::{Field, PolicyChange, Refusal},
    service::{Authorized, Deployer},
};
use world::{World, registration};

/// A verifier of one kind, whose setting `url` is needed, and `method` is completed.
#[derive(Default)]
struct OneKind {
    measured: Mutex<Vec<MeasureSpec>>,
}

#[async_trait]
impl Verifier for OneKind {
    fn describe(&self) -> Vec<KindOfCheck> {
        vec![KindOfCheck { kind: "http".parse().unwrap(), about: "A request.", settings: &[] }]
    }

    fn check(&self, kind: &CheckKind, settings: &Settings) -> std::result::Result<Settings, String> {
        assert_eq!(kind.as_str(), "http");
        let mut settings = settings.clone();
        settings.get("url").ok_or("url must be given.")?;
        settings.entry("method").or_insert_with(|| "GET".into());
        Ok(settings)
    }

    async fn measure(&self, spec: &MeasureSpec) -> Result<Measured> {
        self.measured.lock().unwrap().push(spec.clone());
        let measurement = Measurement::new(spec.now, Verdict::Pass, "It is well.");
        Ok(Measured { request: "GET".to_owned(), condition: "status 200".to_owned(), measurement })
    }
}

fn check(name: &str, kind: &str, settings: &[(&str, &str)]) -> Check {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    Check::new(name.parse().unwrap(), kind.parse().unwrap(), settings)
}

fn verifying(world: &World, verifier: &Arc<OneKind>) -> Deployer {
    Deployer::new(world.ports(7).with(|ports| ports.verifier = Some(verifier.clone())), "two")
}

fn refused<T>(outcome: std::result::Result<T, Refusal>) -> String {
    match outcome.err() {
        Some(Refusal::InvalidField(Field::PolicyChecks, rule)) => rule,
        other => panic!("{other:?}"),
    }
}

async fn stored(deployer: &Deployer, access: &Authorized) -> Vec<Check> {
    deployer.state(access).await.unwrap().app.policy.checks.clone()
}

#[test]
fn checks_are_completed_when_they_are_set_and_refused_by_their_name() {
    let world = World::new(Duration::ZERO);
    let deployer = verifying(&world, &Arc::default());
    let complete = check("front", "http", &[("url", "x"), ("method", "GET")]);
    world.idle(async {
        let policy = |checks| Policy::default().with(|policy| policy.checks = checks);
        let with = |checks| registration("api", policy(checks));
        let why = refused(deployer.register(&world.operator, with(vec![check("front", "http", &[])]), None).await);
        assert_eq!(why, "front: url must be given.");
        let app = with(vec![check("front", "http", &[("url", "x")])]);
        let app = deployer.register(&world.operator, app, None).await.unwrap();
        assert_eq!(app.app.app.policy.checks, [complete]);
        let access = deployer.allow(world.operator.clone(), app.id(), Action::ALL).await.unwrap();

        let why = refused(deployer.set_check(&access, check("front", "ping", &[])).await);
        assert_eq!(why, "front: the kind ping is unknown here; there are http, command.");
        let second = deployer.set_check(&access, check("second", "http", &[("url", "y")])).await.unwrap();
        assert_eq!(second, check("second", "http", &[("url", "y"), ("method", "GET")]));
        let changed = check("front", "http", &[("url", "z"), ("method", "POST")]);
        deployer.set_check(&access, changed.clone()).await.unwrap();
        assert_eq!(stored(&deployer, &access).await, [changed, second.clone()], "in its place");
        let large = check("large", "http", &[("url", &"x".repeat(20_000))]);
        assert!(refused(deployer.set_check(&access, large).await).contains("16384 bytes"));
        let hasty = second.clone().with(|check| check.every = Duration::ZERO);
        assert!(refused(deployer.set_check(&access, hasty).await).contains("every 1s to 1h"));

        let name = "front".parse().unwrap();
        deployer.remove_check(&access, &name).await.unwrap();
        assert_eq!(deployer.remove_check(&access, &name).await, Err(Refusal::CheckNotFound(name.clone())));
        assert_eq!(deployer.test_check(&access, &name).await, Err(Refusal::CheckNotFound(name)));
        assert_eq!(stored(&deployer, &access).await, [second]);
    });
}

#[test]
fn stored_checks_stay_where_their_kind_is_unknown_or_nothing_measures() {
    let world = World::new(Duration::ZERO);
    let verifier = Arc::default();
    let deployer = verifying(&world, &verifier);
    world.idle(async {
        let front = check("front", "http", &[("url", "x"), ("method", "GET")]);
        let app = registration("api", Policy::default().with(|policy| policy.checks = vec![front.clone()]));
        let app = deployer.register(&world.operator, app, None).await.unwrap();
        // This process has no verifier.
        let bare = &Deployer::new(world.ports(9).with(|ports| ports.verifier = None), "bare");
        let access = bare.allow(world.operator.clone(), app.id(), Action::ALL).await.unwrap();
        let change =
            PolicyChange { keep: Some(20), verify_for: Some(Duration::from_secs(60)), ..PolicyChange::default() };
        let changed = bare.change_policy(&access, change).await.unwrap();
        assert_eq!((changed.app.policy.checks.as_slice(), changed.app.policy.keep), ([front.clone()].as_slice(), 20));
        assert_eq!(bare.set_check(&access, front.clone()).await, Ok(front.clone()), "it is stored already");
        let why = refused(bare.set_check(&access, check("second", "http", &[("url", "y")])).await);
        assert_eq!(why, "second: this service measures no checks.");
        let checks = Some(vec![front.clone(), check("second", "http", &[("url", "y")])]);
        let change = PolicyChange { checks, ..PolicyChange::default() };
        assert_eq!(refused(bare.change_policy(&access, change).await), why);
        assert!(refused(bare.test_check(&access, &front.name).await).contains("measures no checks"));
        bare.remove_check(&access, &front.name).await.unwrap();
        assert_eq!(stored(bare, &access).await, []);
    });
}

#[test]
fn check_is_tried_out_on_the_current_version_over_the_time_that_it_serves() {
    let world = World::new(Duration::ZERO);
    let verifier = Arc::default();
    let deployer = verifying(&world, &verifier);
    world.run_beside(&deployer, async {
        let front = check("front", "http", &[("url", "x"), ("method", "GET")]);
        let policy = Policy::default().with(|policy| {
            policy.settle = Duration::ZERO;
            policy.checks = vec![front.clone().with(|check| check.mode = rollhook_core::check::CheckMode::Observe)];
        });
        let app = deployer.register(&world.operator, registration("api", policy), None).await.unwrap();
        let access = deployer.allow(world.operator.clone(), app.id(), Action::ALL).await.unwrap();
        let ended = deployer.wait(&access, app.deploy.unwrap().revision, Duration::from_secs(60)).await.unwrap();
        assert!(ended.deploy.status().is_terminal());
        world.sleep(5).await;
        verifier.measured.lock().unwrap().clear();
        deployer.test_check(&access, &front.name).await.unwrap();
        let first = verifier.measured.lock().unwrap().pop().unwrap();
        assert_eq!((first.deploy.revision.get(), first.since), (1, ended.deploy.updated_at));
        assert_eq!((first.rollout_began, first.app), (ended.deploy.created_at, access.app().clone()));
        assert!((Duration::from_secs(4)..=Duration::from_secs(6)).contains(&first.window), "{:?}", first.window);
        world.sleep(600).await;
        deployer.test_check(&access, &front.name).await.unwrap();
        let later = verifier.measured.lock().unwrap().pop().unwrap();
        assert_eq!(later.window, Duration::from_secs(300), "as far as a verification looks back");
    });
}
