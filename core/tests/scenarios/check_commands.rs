//! Checks of kind `command`: each rule as a scenario on the whole engine under simulated time.

use std::time::Duration;

use rollhook_core::{
    app::{Policy, Settings},
    check::{Check, CheckKind, Verdict},
    deploy::{Deploy, Reason, Revision, State, Status},
    ports::{Clock, ReleaseRun, ReleaseRunner, ReleaseState},
    request::{Field, PolicyChange, Refusal},
    service::Authorized,
};
use rollhook_memory::{Reading, SimulatedVerifier};

use crate::world::{World, api, reason, statuses};

const SECOND: Duration = Duration::from_secs(1);

/// A check by a command: what it does follows from its words.
fn command(name: &str, words: &[&str]) -> Check {
    let mut settings = Settings::new();
    settings.insert(Check::COMMAND_SETTING.to_owned(), words.into());
    Check::new(name.parse().unwrap(), CheckKind::COMMAND.parse().unwrap(), settings)
}

fn with_checks(checks: impl IntoIterator<Item = Check>) -> Policy {
    let checks: Vec<Check> = checks.into_iter().collect();
    Policy::default().with(|policy| policy.checks.clone_from(&checks))
}

/// What was measured by a check, one letter each, and its last message.
fn measured(deploy: &Deploy, name: &str) -> (String, String) {
    let verification = deploy.verification.as_deref().unwrap();
    let result = verification.checks.iter().find(|result| result.name.as_str() == name).unwrap();
    let letter = |verdict: Verdict| verdict.as_str().chars().next().unwrap();
    let letters = result.measurements.iter().map(|measurement| letter(measurement.verdict));
    (letters.collect(), result.last().map(|last| last.message.clone()).unwrap_or_default())
}

impl World {
    /// The commands of checks that have begun for a revision.
    fn commands_begun(&self, revision: u64) -> Vec<ReleaseRun> {
        let begun = self.cluster.commands_of_checks().into_iter();
        let runs = begun.map(|begun| ReleaseRun { app: "shop-test/api".parse().unwrap(), id: begun.run });
        runs.filter(|run| run.deploy_id().revision.get() == revision).collect()
    }

    async fn state(&self, run: &ReleaseRun) -> ReleaseState {
        self.cluster.observe(run).await.unwrap()
    }

    /// Deploys an image, and waits until a command of its checks has begun.
    async fn until_begun(&self, access: &Authorized, image: &str) -> Revision {
        let revision = self.deploy(access, &api(image)).await.unwrap().deploy.revision;
        for _ in 0..1_000 {
            if !self.commands_begun(revision.get()).is_empty() {
                return revision;
            }
            self.sleep(1).await;
        }
        panic!("no command of revision {revision} has begun");
    }

    async fn until_ended(&self, run: &ReleaseRun) {
        for _ in 0..100 {
            if self.state(run).await.is_ended() {
                return;
            }
            self.sleep(1).await;
        }
        panic!("{run:?} goes on");
    }
}

#[test]
fn command_that_succeeds_is_run_once_with_the_new_image() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([command("smoke", &["bin/smoke", "--fast"])])).await;
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!(done.state, State::Succeeded { note: None });
        assert_eq!(measured(&done, "smoke"), ("p".to_owned(), "The command ended with exit code 0.".to_owned()));
        world.quiet(&access).await;
        let begun: Vec<_> = world.cluster.commands_of_checks();
        let begun: Vec<_> = begun.iter().filter(|begun| begun.image.tag() == Some("v2")).collect();
        assert_eq!(begun.len(), 1);
        assert_eq!(begun[0].command, ["bin/smoke", "--fast"]);
        assert!(world.cluster.releases().is_empty(), "it is no release command");
    });
}

#[test]
fn command_that_fails_brings_the_version_before_back() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let change = PolicyChange {
            checks: Some(vec![command("smoke", &["bin/smoke", "fail-3"])]),
            ..PolicyChange::default()
        };
        world.deployer.change_policy(&access, change).await.unwrap();
        let failed = world.deployed(&access, &api("v2")).await;
        let (code, message) = reason(&failed);
        assert_eq!(code, Reason::CHECK_FAILED);
        let expected = "The check smoke failed 3 times in a row: exit code 3, expected exit code 0. The command ended with exit \
                        code 3. Its last lines: running bin/smoke fail-3 with";
        assert!(message.starts_with(expected) && message.contains("/ it failed"), "{message}");
        assert_eq!(measured(&failed, "smoke").0, "fff");
        let history = world.quiet(&access).await;
        assert_eq!(statuses(&history), [(1, Status::Succeeded), (2, Status::Failed), (3, Status::Succeeded)]);
        assert_eq!((world.commands_begun(2).len(), world.commands_begun(3).len()), (3, 0));
    });
}

#[test]
fn command_that_waits_for_a_slot_says_so() {
    let world = World::new(SECOND);
    world.run(async {
        let mut waiting = Vec::new();
        for name in ["api", "web", "worker"] {
            let smoke = command("smoke", &["hang"]).with(|check| (check.timeout, check.failures) = (SECOND * 60, 1));
            waiting.push((Revision::FIRST, world.app(name, with_checks([smoke])).await));
        }
        for (revision, access) in &mut waiting {
            *revision = world.deploy(access, &api("v2")).await.unwrap().deploy.revision;
        }
        world.sleep(30).await;
        let shown = async |waiting: &[(Revision, Authorized)]| {
            let mut shown = Vec::new();
            for (revision, access) in waiting {
                let state = world.deployer.state(access).await.unwrap();
                let entry = world.entry(access, revision.get()).await;
                assert_eq!(entry.status(), Status::Verifying);
                shown.push(world.deployer.progress(&state, &entry).and_then(|progress| progress.message));
            }
            shown
        };
        let says = |says: &Option<String>| says.as_ref().is_some_and(|says| says.ends_with("smoke (waits for a slot)"));
        let queued: Vec<bool> = shown(&waiting).await.iter().map(says).collect();
        assert_eq!(queued.iter().filter(|waits| **waits).count(), 1, "two of an environment run at once");
        let last = waiting.remove(queued.iter().position(|waits| *waits).unwrap());
        for (revision, access) in waiting {
            world.deployer.cancel(&access, revision).await.unwrap();
        }
        world.sleep(5).await;
        assert_eq!(shown(&[last]).await, [Some("waits for the verdicts of the checks smoke".to_owned())]);
    });
}

#[test]
fn command_that_takes_too_long_is_ended_and_says_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let smoke = command("smoke", &["hang"]).with(|check| (check.timeout, check.failures) = (SECOND * 30, 2));
        let access = world.app("api", with_checks([smoke])).await;
        let done = world.deployed(&access, &api("v2")).await;
        let why = "The command did not end within 30 s, and was ended.";
        assert_eq!(measured(&done, "smoke"), ("nn".to_owned(), why.to_owned()));
        let note = format!("not verified: smoke: {}", why.trim_end_matches('.'));
        assert_eq!(done.state, State::Succeeded { note: Some(note) });
        for run in world.commands_begun(2) {
            world.until_ended(&run).await;
        }
    });
}

#[test]
fn requests_are_measured_on_while_a_command_runs() {
    let world = World::new(SECOND);
    world.run(async {
        world.verifier.reads(|spec| Reading::Value(if spec.image.tag() == Some("v2") { 1.0 } else { 0.0 }));
        let smoke = command("smoke", &["hang"]).with(|check| check.timeout = SECOND * 600);
        let errors = SimulatedVerifier::check_of("errors".parse().unwrap(), 0.01);
        let access = world.app("api", Policy::default()).await;
        let change = PolicyChange { checks: Some(vec![smoke, errors]), ..PolicyChange::default() };
        world.deployer.change_policy(&access, change).await.unwrap();
        let begin = world.clock.elapsed();
        let failed = world.deployed(&access, &api("v2")).await;
        assert!(world.clock.elapsed() - begin < SECOND * 90, "the fails of the other check are not waited for");
        assert!(reason(&failed).1.starts_with("The check errors failed 3 times in a row"));
        assert_eq!(measured(&failed, "smoke").0, "");
        world.quiet(&access).await;
        let begun = world.commands_begun(2);
        assert_eq!(begun.len(), 1);
        world.until_ended(&begun[0]).await;
    });
}

#[test]
fn end_of_a_verification_ends_its_command() {
    let world = World::new(SECOND);
    world.run(async {
        let smoke = command("smoke", &["hang"]).with(|check| check.timeout = SECOND * 600);
        let access = world.app("api", with_checks([smoke])).await;
        let cancelled = world.until_begun(&access, "v2").await;
        world.deployer.cancel(&access, cancelled).await.unwrap();
        world.until_ended(&world.commands_begun(cancelled.get())[0]).await;
        let overtaken = world.until_begun(&access, "v3").await;
        world.deploy(&access, &api("v4")).await.unwrap();
        world.until_ended(&world.commands_begun(overtaken.get())[0]).await;
    });
}

#[test]
fn process_that_takes_over_waits_for_the_command_that_runs() {
    let world = World::new(SECOND * 20);
    let access = world.run(async {
        let access = world.app("api", with_checks([command("smoke", &["bin/smoke"])])).await;
        world.until_begun(&access, "v2").await;
        access
    });
    world.run_beside(&world.replica("two", 5), async {
        let done = world.ended(&access, 2).await;
        assert_eq!(done.state, State::Succeeded { note: None });
        assert_eq!((measured(&done, "smoke").0.as_str(), world.commands_begun(2).len()), ("p", 1));
    });
}

#[test]
fn platform_that_loses_the_command_says_nothing() {
    let world = World::new(SECOND * 20);
    world.run(async {
        let smoke = command("smoke", &["bin/smoke"]).with(|check| check.failures = 1);
        let access = world.app("api", with_checks([smoke])).await;
        let revision = world.until_begun(&access, "v2").await;
        world.cluster.lose_releases();
        let done = world.ended(&access, revision.get()).await;
        let why = "The platform knows nothing of the command's run any more.";
        assert_eq!(measured(&done, "smoke"), ("n".to_owned(), why.to_owned()));
        assert_eq!(done.status(), Status::Succeeded);
    });
}

#[test]
fn command_is_tried_out_with_what_runs_and_ended_if_it_takes_too_long() {
    let world = World::new(SECOND);
    world.run(async {
        let checks = [command("smoke", &["bin/smoke"]), command("broken", &["fail-2"]), command("slow", &["hang"])];
        let policy =
            with_checks(checks.map(|check| check.with(|check| check.mode = rollhook_core::check::CheckMode::Observe)));
        let access = world.app("api", policy).await;
        let before = world.commands_begun(1).len();
        let [smoke, broken, slow] = ["smoke", "broken", "slow"].map(|name| name.parse().unwrap());
        let tried = |name| world.deployer.test_check(&access, name);
        let good = tried(&smoke).await;
        let good = good.unwrap();
        assert_eq!((good.measurement.verdict, good.condition.as_str()), (Verdict::Pass, "exit code 0"));
        assert!(good.request.starts_with("bin/smoke in ") && good.request.contains("/api:v1"), "{}", good.request);
        let bad = tried(&broken).await;
        assert_eq!(bad.unwrap().measurement.value.as_deref(), Some("exit code 2"));
        let late = tried(&slow).await;
        assert_eq!(late.unwrap().measurement.message, "The command did not end within 25 s, and was ended.");
        let begun = world.commands_begun(1);
        assert_eq!(begun.len(), before + 3, "each is a run of its own");
        // A caller that goes away ends what it has begun.
        let away = futures_util::FutureExt::now_or_never(tried(&slow));
        assert!(away.is_none());
        futures_util::select_biased! {
            _ = futures_util::FutureExt::fuse(tried(&slow)) => panic!("it hangs"),
            () = futures_util::FutureExt::fuse(world.sleep(10)) => {}
        }
        for run in world.commands_begun(1) {
            world.until_ended(&run).await;
        }
    });
}

#[test]
fn command_that_cannot_be_run_is_refused_with_the_reason() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let nothing = command("smoke", &[]);
        let text = command("smoke", &[]).with(|check| {
            check.settings.insert("command".to_owned(), "bin/smoke --fast".into());
        });
        let unknown = command("smoke", &["bin/smoke"]).with(|check| {
            check.settings.insert("url".to_owned(), "https://shop.example.com".into());
        });
        let long = command("smoke", &["bin/smoke"]).with(|check| check.timeout = SECOND * 601);
        let blank = command("smoke", &[" "]);
        for (check, expected) in [
            (nothing, "smoke: command must be a list of a program and its arguments."),
            (text, "smoke: command must be a list of a program and its arguments."),
            (unknown, "smoke: command has no setting \"url\"; it has command."),
            (long, "a measurement of smoke must take at most 1s to 600s, as all of kind command."),
            (blank, "smoke: command must begin with the name of a program, and have no NUL characters."),
        ] {
            let refused = world.deployer.set_check(&access, check, None).await.unwrap_err();
            assert_eq!(refused, Refusal::InvalidField(Field::PolicyChecks, expected.to_owned()));
        }
        let kinds = world.deployer.check_kinds();
        assert!(kinds.iter().any(|kind| kind.kind.is_command()));
        // A process without a verifier has this kind all the same.
        let bare = rollhook_core::service::Deployer::new(world.ports(9).with(|ports| ports.verifier = None), "bare");
        assert_eq!(bare.set_check(&access, command("smoke", &["x"]), None).await.unwrap().timeout, SECOND * 60);
    });
}

#[test]
fn commands_of_a_deleted_app_are_ended() {
    for watch_for in [Duration::ZERO, SECOND * 3_600] {
        let world = World::new(SECOND);
        world.run(async {
            let hangs = command("smoke", &["hang"]).with(|check| {
                check.every = SECOND;
                check.timeout = SECOND * 60;
            });
            let first = if watch_for.is_zero() { hangs.clone() } else { command("smoke", &["bin/smoke"]) };
            let policy = with_checks([first]).with(|policy| policy.watch_for = watch_for);
            let access = world.app("api", policy).await;
            let revision = world.until_begun(&access, "v2").await;
            if !watch_for.is_zero() {
                world.ended(&access, 2).await;
                let change = PolicyChange { checks: Some(vec![hangs]), ..PolicyChange::default() };
                world.deployer.change_policy(&access, change).await.unwrap();
                world.sleep(10).await;
            }
            let run = world.commands_begun(revision.get()).pop().unwrap();
            assert_eq!(world.state(&run).await, ReleaseState::Running);
            world.deployer.delete(&access).await.unwrap();
            world.until_ended(&run).await;
            let begun = world.cluster.commands_of_checks().len();
            world.sleep(120).await;
            assert_eq!(world.cluster.commands_of_checks().len(), begun, "none begins after that");
        });
    }
}

#[test]
fn watch_does_not_count_the_runs_of_a_check_that_was_replaced_in_the_verification() {
    let world = World::new(SECOND);
    world.run(async {
        let every = |check: &mut Check| check.every = SECOND * 5;
        let bad = |failures| {
            command("smoke", &["bin/smoke", "fail-2"]).with(|check| {
                every(check);
                check.failures = failures;
            })
        };
        let access = world.app("api", Policy::default()).await;
        let set = async |check: Check| {
            let change = PolicyChange {
                checks: Some(vec![check]),
                verify_for: Some(SECOND * 60),
                watch_for: Some(SECOND * 3_600),
                ..PolicyChange::default()
            };
            world.deployer.change_policy(&access, change).await.unwrap();
        };
        set(bad(100)).await;
        world.deploy(&access, &api("v2")).await.unwrap();
        world.sleep(45).await;
        set(command("smoke", &["bin/other"]).with(every)).await;
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        let begun = world.commands_begun(2).len();
        set(bad(3)).await;
        world.sleep(60).await;
        assert!(world.commands_begun(2).len() >= begun + 3, "the check is measured by runs of its own");
        // The same within the watch: one pass, another check, and the first one again.
        let good = command("smoke", &["bin/other"]).with(every);
        set(good.clone()).await;
        let newest = world.deployed(&access, &api("v3")).await.revision.get();
        for check in [good.clone(), command("front", &["bin/front"]).with(every), good] {
            let begun = world.commands_begun(newest).len();
            set(check).await;
            world.sleep(12).await;
            let now = world.commands_begun(newest).len();
            assert!(now > begun, "a run that has ended is measured by no more: {begun}");
        }
    });
}
