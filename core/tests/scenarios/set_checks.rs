//! Checks of apps: completed by the verifier when they are set, and left alone once they are stored.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::{
    action::Action,
    app::{Policy, Settings},
    check::{Check, CheckKind, CheckSecret, Measurement, Verdict},
    error::Result,
    ports::{ConfigurationStore, KindOfCheck, MeasureSpec, Measured, Verifier},
    request::{Field, PolicyChange, Refusal},
    service::{Authorized, Deployer, Outcome},
};

use crate::world::{World, registration};

/// A verifier of one kind, whose setting `url` is needed, and `method` is completed.
#[derive(Default)]
struct OneKind {
    measured: Mutex<Vec<MeasureSpec>>,
}

#[async_trait]
impl Verifier for OneKind {
    fn describe(&self) -> Vec<KindOfCheck> {
        vec![KindOfCheck { kind: "http".parse().unwrap(), about: "A request.", settings: &[], secret: None }]
    }

    fn check(&self, kind: &CheckKind, settings: &Settings) -> std::result::Result<Settings, String> {
        assert_eq!(kind.as_str(), "http");
        let mut settings = settings.clone();
        settings.get("url").ok_or("url must be given.")?;
        settings.entry("method").or_insert_with(|| "GET".into());
        Ok(settings)
    }

    fn secret_for(&self, _: &CheckKind, settings: &Settings) -> Option<String> {
        settings.get("login")?;
        Some(settings.get("url")?.as_str()?.to_owned())
    }

    fn check_secret(&self, _: &CheckKind, _: &Settings, secret: &CheckSecret) -> std::result::Result<(), String> {
        if secret.expose() == "short" { Err("must be longer.".to_owned()) } else { Ok(()) }
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

        let why = refused(deployer.set_check(&access, check("front", "ping", &[]), None).await);
        assert_eq!(why, "front: the kind ping is unknown here; there are http, command.");
        let second = deployer.set_check(&access, check("second", "http", &[("url", "y")]), None).await.unwrap();
        assert_eq!(second, check("second", "http", &[("url", "y"), ("method", "GET")]));
        let changed = check("front", "http", &[("url", "z"), ("method", "POST")]);
        deployer.set_check(&access, changed.clone(), None).await.unwrap();
        assert_eq!(stored(&deployer, &access).await, [changed, second.clone()], "in its place");
        let large = check("large", "http", &[("url", &"x".repeat(20_000))]);
        assert!(refused(deployer.set_check(&access, large, None).await).contains("16384 bytes"));
        let hasty = second.clone().with(|check| check.every = Duration::ZERO);
        assert!(refused(deployer.set_check(&access, hasty, None).await).contains("every 1s to 1h"));

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
        assert_eq!(bare.set_check(&access, front.clone(), None).await, Ok(front.clone()), "it is stored already");
        let why = refused(bare.set_check(&access, check("second", "http", &[("url", "y")]), None).await);
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

#[test]
fn secret_of_a_check_is_stored_beside_it_and_goes_with_its_address() {
    let world = World::new(Duration::ZERO);
    let verifier = Arc::default();
    let deployer = verifying(&world, &verifier);
    world.run_beside(&deployer, async {
        let policy = Policy::default().with(|policy| policy.settle = Duration::ZERO);
        let app = deployer.register(&world.operator, registration("api", policy), None).await.unwrap();
        let access = deployer.allow(world.operator.clone(), app.id(), Action::ALL).await.unwrap();
        deployer.wait(&access, app.deploy.unwrap().revision, Duration::from_secs(60)).await.unwrap();
        let uid = app.app.app.uid;
        let kept = async || {
            let mut kept: Vec<_> = world.store.list(uid).await.unwrap().into_iter().map(|one| one.id).collect();
            kept.sort_unstable();
            kept
        };
        let secret = |text: &str| Some(text.parse::<CheckSecret>().unwrap());
        let front =
            |more: &[(&str, &str)]| check("front", "http", &[&[("url", "x"), ("login", "bearer")], more].concat());
        let refused = |outcome: Outcome<Check>| match outcome {
            Err(Refusal::InvalidField(Field::CheckSecret, rule)) => rule,
            other => panic!("{other:?}"),
        };
        let measured = async || {
            deployer.test_check(&access, &"front".parse().unwrap()).await.unwrap();
            verifier.measured.lock().unwrap().pop().unwrap().secret
        };
        let why = refused(deployer.set_check(&access, front(&[]), None).await);
        assert_eq!(why, "must be given: front has none that is kept for x.");
        assert_eq!(refused(deployer.set_check(&access, front(&[]), secret("short")).await), "must be longer.");
        let bare = check("front", "http", &[("url", "x")]);
        assert!(refused(deployer.set_check(&access, bare.clone(), secret("hunter2")).await).contains("no use for one"));
        assert_eq!(kept().await, [], "nothing is left of what was refused");

        let first = deployer.set_check(&access, front(&[]), secret("hunter2")).await.unwrap();
        assert_eq!(kept().await, [first.secret.unwrap()]);
        assert_eq!(measured().await, secret("hunter2"));
        // Other settings, at the same address; and what is there already.
        let same = deployer.set_check(&access, front(&[("method", "HEAD")]), None).await.unwrap();
        assert_eq!(same.secret, first.secret);
        assert_eq!(deployer.set_check(&access, front(&[("method", "HEAD")]), None).await.unwrap(), same);
        assert_eq!(measured().await, secret("hunter2"));
        let replaced = deployer.set_check(&access, front(&[]), secret("hunter3")).await.unwrap();
        assert_ne!((replaced.secret, replaced.fingerprint()), (first.secret, first.fingerprint()));
        assert_eq!((kept().await, measured().await), (vec![replaced.secret.unwrap()], secret("hunter3")));
        // Another address, name or kind takes a secret of its own.
        let elsewhere = check("front", "http", &[("url", "y"), ("login", "bearer")]);
        assert!(refused(deployer.set_check(&access, elsewhere.clone(), None).await).contains("kept for y"));
        let second = check("second", "http", &[("url", "x"), ("login", "bearer")]);
        assert!(refused(deployer.set_check(&access, second, None).await).contains("second has none"));
        assert_eq!(kept().await, [replaced.secret.unwrap()], "a refusal changes nothing");
        let moved = deployer.set_check(&access, elsewhere.clone(), secret("hunter4")).await.unwrap();
        assert_eq!((kept().await, measured().await), (vec![moved.secret.unwrap()], secret("hunter4")));
        // A policy that names the secret of another check, or one at another address, does not get it.
        let borrowed = front(&[]).with(|check| check.secret = moved.secret);
        let change = PolicyChange { checks: Some(vec![borrowed]), ..PolicyChange::default() };
        assert!(matches!(
            deployer.change_policy(&access, change).await,
            Err(Refusal::InvalidField(Field::CheckSecret, _))
        ));

        assert_eq!(deployer.set_check(&access, bare, None).await.unwrap().secret, None);
        assert_eq!((kept().await, measured().await), (vec![], None), "it goes with the login");
        deployer.set_check(&access, front(&[]), secret("hunter5")).await.unwrap();
        deployer.remove_check(&access, &"front".parse().unwrap()).await.unwrap();
        assert_eq!(kept().await, [], "it goes with the check");
    });
}

#[test]
fn secret_that_is_not_at_hand_is_no_verdict() {
    let world = World::new(Duration::ZERO);
    let verifier = Arc::default();
    let deployer = verifying(&world, &verifier);
    world.run_beside(&deployer, async {
        let policy = Policy::default().with(|policy| policy.settle = Duration::ZERO);
        let app = deployer.register(&world.operator, registration("api", policy), None).await.unwrap();
        let access = deployer.allow(world.operator.clone(), app.id(), Action::ALL).await.unwrap();
        deployer.wait(&access, app.deploy.unwrap().revision, Duration::from_secs(60)).await.unwrap();
        let front = check("front", "http", &[("url", "x"), ("login", "bearer")]);
        let set = deployer.set_check(&access, front, "hunter2".parse().ok()).await.unwrap();
        world.store.remove(app.app.app.uid, &[set.secret.unwrap()]).await.unwrap();
        let measured = deployer.test_check(&access, &set.name).await.unwrap().measurement;
        assert_eq!(measured.verdict, Verdict::None);
        assert!(measured.message.contains("set the check anew with its secret"), "{}", measured.message);
        assert!(verifier.measured.lock().unwrap().is_empty(), "nothing is asked without it");
    });
}
