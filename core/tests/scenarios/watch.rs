//! The watch over versions after their deploys have succeeded: each rule as a scenario on the whole engine under simulated time.

use std::time::Duration;

use rollhook_conformance::samples::git_source;
use rollhook_core::{
    app::{FullName, OnFailure, Policy},
    check::{Check, CheckMode, Verdict},
    deploy::{Deploy, Revision, Scale, Status, Watch, WatchEnd, WatchRestore},
    ledger::check::check as rules,
    lock::PrincipalKey,
    ports::{MeasureSpec, Page},
    request::{PolicyChange, PromoteRequest, Refusal, RollbackRequest, ScaleRequest},
    service::{Authorized, NewLock},
};
use rollhook_memory::{Reading, Script, SimulatedVerifier};

use crate::world::{World, api, registration, sha, statuses, tag};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn check(name: &str) -> Check {
    SimulatedVerifier::check_of(name.parse().unwrap(), 0.01)
}

/// Watches for half an hour by one check.
fn watched() -> Policy {
    Policy::default().with(|policy| {
        policy.checks = vec![check("errors")];
        policy.watch_for = MINUTE * 30;
    })
}

fn observed(check: Check) -> Check {
    check.with(|check| check.mode = CheckMode::Observe)
}

fn is(spec: &MeasureSpec, tag: &str) -> bool {
    spec.image.tag() == Some(tag)
}

/// `v2` serves until so many minutes after its rollout, and badly from then on.
fn turns_bad_after(minutes: u64) -> impl Fn(&MeasureSpec) -> Reading + Send + Sync + 'static {
    move |spec| {
        let is_bad = is(spec, "v2") && spec.now.since(spec.since) >= MINUTE * u32::try_from(minutes).unwrap();
        Reading::Value(if is_bad { 0.5 } else { 0.0 })
    }
}

fn why(watch: &Watch) -> &str {
    match &watch.end {
        Some(WatchEnd::Early { why } | WatchEnd::Revoked { restore: WatchRestore::Nothing { why }, .. }) => why,
        other => panic!("{other:?}"),
    }
}

impl World {
    async fn watch(&self, access: &Authorized, revision: u64) -> Watch {
        let view = self.view(access).await;
        view.watch_of(Revision::new(revision).unwrap()).cloned().unwrap_or_else(|| panic!("{:?}", view.watches))
    }

    async fn watches(&self, access: &Authorized) -> Vec<Watch> {
        self.view(access).await.watches
    }

    /// Lets time pass; all rules hold then.
    async fn later(&self, access: &Authorized, minutes: u64) -> Vec<Deploy> {
        self.sleep(minutes * 60).await;
        self.history(access).await
    }
}

#[test]
fn version_that_turns_bad_is_revoked_and_the_one_before_restored() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched()).await;
        world.verifier.reads(turns_bad_after(10));
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!(done.status(), Status::Succeeded);
        let watch = world.watch(&access, 2).await;
        assert_eq!(watch.until, done.updated_at.after(MINUTE * 30));
        let history = world.later(&access, 15).await;
        assert_eq!(statuses(&history), [(1, Status::Succeeded), (2, Status::Succeeded), (3, Status::Succeeded)]);
        assert!(history[2].is_restore() && tag(&history[2]) == "v1");
        let watch = world.watch(&access, 2).await;
        let (fail, restore) = watch.revoked().unwrap();
        assert_eq!(fail.message, "The check errors failed 3 times in a row: 0.5, expected <= 0.01.");
        assert_eq!(*restore, WatchRestore::Made { revision: Revision::new(3).unwrap() });
        let minutes = fail.at.since(done.updated_at).as_secs() / 60;
        assert!((9..=11).contains(&minutes), "{minutes}");
        let restored = world.view(&access).await;
        assert_eq!(restored.last_good().unwrap().revision.get(), 3);
        assert!(restored.watch().is_none() && restored.queued_at.is_none(), "a restore is not watched");
        let effects = world.effects();
        world.later(&access, 60).await;
        assert_eq!(world.effects(), effects, "a second one never follows");
    });
}

#[test]
fn version_that_serves_on_is_watched_to_the_end_and_the_app_rests() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched()).await;
        world.verifier.reads(|_| Reading::Value(0.0));
        let done = world.deployed(&access, &api("v2")).await;
        world.later(&access, 31).await;
        let watch = world.watch(&access, 2).await;
        assert_eq!(watch.end, Some(WatchEnd::Over));
        assert!(watch.until.since(done.updated_at) >= MINUTE * 30);
        assert_eq!(watch.measured.checks[0].measurements.len(), 20);
        let view = world.view(&access).await;
        assert!(view.queued_at.is_none() && view.good_before.is_none());
        // One at each interval, and the first of the deploy.
        let measured = world.verifier.reached().len();
        assert!((118..=122).contains(&measured), "{measured}");
        world.later(&access, 30).await;
        assert_eq!(world.verifier.reached().len(), measured);
    });
}

#[test]
fn watch_is_off_by_default_and_returns_are_not_watched() {
    let world = World::new(SECOND);
    world.run(async {
        let policy = Policy::default().with(|policy| policy.checks = vec![check("errors")]);
        let access = world.app("api", policy).await;
        world.deployed(&access, &api("v2")).await;
        assert_eq!(world.watches(&access).await, []);
        let change = PolicyChange { watch_for: Some(MINUTE), ..PolicyChange::default() };
        world.deployer.change_policy(&access, change).await.unwrap();
        world.rolled_back(&access).await;
        let stop = world.deployer.scale(&access, ScaleRequest::new(Scale::Stop)).await.unwrap().deploy.revision;
        world.ended(&access, stop.get()).await;
        world.deployed(&access, &api("v3")).await;
        assert_eq!(world.watches(&access).await, [], "of a rollback, a stop and a stopped app");
        let too_long = PolicyChange { watch_for: Some(MINUTE * 60 * 24 + SECOND), ..PolicyChange::default() };
        let refused = world.deployer.change_policy(&access, too_long).await.unwrap_err();
        assert_eq!(refused.to_string(), "policy.watch_for: must be at most 24h.");
        world.quiet(&access).await;
    });
}

#[test]
fn silence_revokes_nothing_and_interrupts_no_run_of_fails() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched().with(|policy| policy.watch_for = MINUTE * 120)).await;
        world.verifier.reads(|spec| {
            let minutes = spec.now.since(spec.since).as_secs() / 60;
            if is(spec, "v2") && (10..80).contains(&minutes) { Reading::Away } else { Reading::Value(0.0) }
        });
        world.deployed(&access, &api("v2")).await;
        assert_eq!(world.later(&access, 121).await.len(), 2, "the provider was away for more than an hour");
        assert_eq!(world.watch(&access, 2).await.end, Some(WatchEnd::Over));
        // Each fail has a measurement without a verdict after it.
        world.verifier.reads(|spec| {
            let seconds = spec.now.since(spec.since).as_secs();
            match seconds / 15 % 2 {
                _ if !is(spec, "v3") || seconds < 60 => Reading::Value(0.0),
                0 => Reading::Value(1.0),
                _ => Reading::NoData,
            }
        });
        world.deployed(&access, &api("v3")).await;
        let history = world.later(&access, 5).await;
        assert!(history.last().unwrap().is_restore());
        assert!(world.view(&access).await.is_revoked(Revision::new(3).unwrap()));
    });
}

#[test]
fn fails_are_counted_within_the_watch_and_a_pass_ends_a_run() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched()).await;
        // Two of three fail, again and again.
        world.verifier.reads(|spec| {
            let is_bad = is(spec, "v2") && spec.now.as_millis() / 15_000 % 3 != 0;
            Reading::Value(if is_bad { 1.0 } else { 0.0 })
        });
        world.deployed(&access, &api("v2")).await;
        assert_eq!(world.later(&access, 31).await.len(), 2);
        assert_eq!(world.watch(&access, 2).await.end, Some(WatchEnd::Over));
    });
}

#[test]
fn newer_deploy_rollback_stop_and_lock_end_the_watch() {
    for way in ["deploy", "rollback", "stop", "lock", "checks", "off"] {
        let world = World::new(SECOND);
        world.run(async {
            let access = world.app("api", watched()).await;
            world.verifier.reads(turns_bad_after(10));
            world.deployed(&access, &api("v2")).await;
            world.later(&access, 5).await;
            let change = |change: PolicyChange| world.deployer.change_policy(&access, change);
            let expected = match way {
                "deploy" => {
                    world.deploy(&access, &api("missing")).await.unwrap();
                    "revision 3 was accepted"
                }
                "rollback" => {
                    world.rollback(&access).await.unwrap();
                    "revision 3 was accepted"
                }
                "stop" => {
                    world.deployer.scale(&access, ScaleRequest::new(Scale::Stop)).await.unwrap();
                    "revision 3 was accepted"
                }
                "lock" => {
                    let owner = PrincipalKey::of("name", &["ada"]);
                    let lock = NewLock { reason: "freeze".parse().unwrap(), owner, ttl: Some(MINUTE) };
                    world.deployer.set_lock(&access, None, Some(lock)).await.unwrap();
                    "the app was locked"
                }
                "checks" => {
                    change(PolicyChange { checks: Some(Vec::new()), ..PolicyChange::default() }).await.unwrap();
                    "the app has no checks any more"
                }
                _ => {
                    change(PolicyChange { watch_for: Some(Duration::ZERO), ..PolicyChange::default() }).await.unwrap();
                    "the app's versions are watched no longer"
                }
            };
            let watch = world.watch(&access, 2).await;
            assert_eq!(why(&watch), expected);
            assert!(watch.until.since(watch.since()) <= MINUTE * 6);
            let before = world.quiet(&access).await;
            let after = world.later(&access, 40).await;
            assert_eq!(statuses(&before), statuses(&after), "{way}");
            assert!(world.view(&access).await.revocations().next().is_none());
        });
    }
}

#[test]
fn commit_that_comes_too_late_leaves_the_watch_alone() {
    let world = World::new(SECOND);
    world.run(async {
        for digits in ["a1", "b2", "c3"] {
            world.builds.set_head(&git_source(), Some(sha(digits)));
        }
        world.verifier.reads(|spec| {
            let is_bad = spec.deploy.revision.get() == 2 && spec.now.since(spec.since) >= MINUTE * 10;
            Reading::Value(if is_bad { 0.5 } else { 0.0 })
        });
        let access = world.git_app(watched()).await;
        let webhook = world.webhook(&access).await;
        for (digits, revision) in [("a1", 1), ("b2", 2)] {
            world.deploy_commit(&webhook, digits).await.unwrap();
            assert_eq!(world.ended(&access, revision).await.status(), Status::Succeeded);
        }
        let late = world.deploy_commit(&webhook, "a1").await.unwrap().deploy.revision.get();
        assert!(world.watch(&access, 2).await.is_under_way(), "while the source is asked");
        assert_eq!(world.ended(&access, late).await.status(), Status::Superseded);
        assert!(world.watch(&access, 2).await.is_under_way());
        let history = world.later(&access, 20).await;
        assert!(world.watch(&access, 2).await.revoked().is_some(), "it has gone on");
        assert_eq!(history.last().map(|entry| (entry.is_restore(), entry.effective.get())), Some((true, 1)));

        let newer = world.deploy_commit(&webhook, "c3").await.unwrap().deploy.revision.get();
        assert_eq!(world.ended(&access, newer).await.status(), Status::Succeeded);
        assert!(world.watch(&access, newer).await.is_under_way(), "a commit that is in order is watched");
    });
}

#[test]
fn policy_that_leaves_marks_and_restores_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched().with(|policy| policy.on_failure = OnFailure::Leave)).await;
        world.verifier.reads(turns_bad_after(10));
        world.deployed(&access, &api("v2")).await;
        assert_eq!(world.later(&access, 15).await.len(), 2);
        assert_eq!(why(&world.watch(&access, 2).await), "the policy on-failure is leave");
        let view = world.view(&access).await;
        assert_eq!(view.current.as_ref().unwrap().revision.get(), 2, "it is what runs");
        assert_eq!(view.last_good().unwrap().revision.get(), 1);
        let mut wanted = registration("api", Policy::default());
        wanted.environment = "prod".parse().unwrap();
        let prod = world.registered(wanted).await;
        let (project, environment) = ("shop".parse().unwrap(), "test".parse().unwrap());
        let from = FullName { project, environment, name: "api".parse().unwrap() };
        let Err(Refusal::NothingToRollBackTo(why)) = world.deployer.promote(&prod, PromoteRequest::new(from)).await
        else {
            panic!("it was promoted")
        };
        assert!(why.starts_with("Revision 2 of shop-test/api cannot be promoted: its check errors failed"), "{why}");
        // A later restore does not return to it, and neither does a rollback.
        let change = PolicyChange { on_failure: Some(OnFailure::Restore), ..PolicyChange::default() };
        world.deployer.change_policy(&access, change).await.unwrap();
        assert_eq!(world.quiet(&access).await.len(), 2, "what was decided stays");
        world.cluster.script("api:v3", Script::missing());
        assert_eq!(world.deployed(&access, &api("v3")).await.status(), Status::Failed);
        let history = world.quiet(&access).await;
        let restore = history.last().unwrap();
        assert!(restore.is_restore() && tag(restore) == "v1", "{restore:?}");
        world.deployed(&access, &api("v4")).await;
        let target = world.deployer.rollback_target(&access, &RollbackRequest::default()).await.unwrap();
        assert_eq!((tag(&target), target.revision.get()), ("v1".to_owned(), 4));
    });
}

#[test]
fn check_that_decides_nothing_says_when_it_would_have_restored() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched().with(|policy| policy.checks = vec![observed(check("errors"))])).await;
        world.verifier.reads(turns_bad_after(10));
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!(world.later(&access, 31).await.len(), 2);
        let watch = world.watch(&access, 2).await;
        assert_eq!((&watch.end, watch.revoked()), (&Some(WatchEnd::Over), None));
        let would = watch.would_restore.unwrap();
        assert_eq!(would.check.as_str(), "errors");
        assert!((9..=11).contains(&(would.at.since(done.updated_at).as_secs() / 60)));
        assert_eq!(watch.measured.checks[0].verdict, Some(Verdict::Fail));
    });
}

#[test]
fn nothing_is_restored_without_an_earlier_version_or_to_the_same_one() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_app(watched()).await;
        world.verifier.reads(|spec| Reading::Value(if spec.now.since(spec.since) > MINUTE * 2 { 1.0 } else { 0.0 }));
        world.deploy_commit(&access, "a1").await.unwrap();
        world.ended(&access, 1).await;
        assert_eq!(world.later(&access, 5).await.len(), 1);
        assert_eq!(why(&world.watch(&access, 1).await), "there is no earlier version that succeeded");
    });
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched()).await;
        world.verifier.reads(|spec| Reading::Value(if spec.now.since(spec.since) > MINUTE * 2 { 1.0 } else { 0.0 }));
        world.deployed(&access, &api("v1")).await;
        assert_eq!(world.later(&access, 5).await.len(), 2);
        assert_eq!(why(&world.watch(&access, 2).await), "the version before is the same");
    });
}

#[test]
fn revoked_bits_are_not_returned_to_by_an_earlier_entry_of_theirs() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched().with(|policy| policy.watch_for = MINUTE * 5)).await;
        world.verifier.reads(|_| Reading::Value(0.0));
        world.deployed(&access, &api("v2")).await;
        world.later(&access, 6).await;
        world.verifier.reads(turns_bad_after(1));
        assert_eq!(world.deployed(&access, &api("v2")).await.revision.get(), 3);
        world.later(&access, 3).await;
        assert_eq!(why(&world.watch(&access, 3).await), "the version before is the same");
        // A deploy that fails leaves the app with what ran before.
        world.cluster.script("api:broken", Script::crashes());
        world.deployed(&access, &api("broken")).await;
        let restored = world.later(&access, 2).await.pop().unwrap();
        assert!(restored.is_restore() && tag(&restored) == "v2" && restored.status() == Status::Succeeded);
        world.verifier.reads(|_| Reading::Value(0.0));
        world.deployed(&access, &api("v3")).await;
        let rolled_back = world.rolled_back(&access).await;
        assert_eq!(tag(&rolled_back), "v1", "v2 was revoked, whichever of its entries");
    });
}

#[test]
fn change_by_another_party_is_not_overwritten() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched()).await;
        world.verifier.reads(turns_bad_after(10));
        world.deployed(&access, &api("v2")).await;
        world.later(&access, 5).await;
        let app = world.view(&access).await.app;
        world.cluster.meddle(&app.id, &app.target, &api("hotfix").parse().unwrap());
        assert_eq!(world.later(&access, 10).await.len(), 2);
        assert_eq!(why(&world.watch(&access, 2).await), "another party has changed what runs");
    });
}

#[test]
fn restore_that_fails_is_not_tried_again() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched()).await;
        world.verifier.reads(turns_bad_after(10));
        world.deployed(&access, &api("v2")).await;
        world.cluster.script("api:v1", Script::missing());
        let history = world.later(&access, 60).await;
        assert_eq!(statuses(&history), [(1, Status::Succeeded), (2, Status::Succeeded), (3, Status::Failed)]);
        assert_eq!(world.view(&access).await.last_good().unwrap().revision.get(), 1);
    });
}

#[test]
fn take_over_goes_on_with_the_watch() {
    let world = World::new(SECOND);
    let access = world.run(async {
        let access = world.app("api", watched()).await;
        world.verifier.reads(turns_bad_after(10));
        world.deployed(&access, &api("v2")).await;
        while world.watch(&access, 2).await.measured.checks[0].failed == 0 {
            world.sleep(1).await;
        }
        access
    });
    let before = world.idle(async { world.watch(&access, 2).await });
    world.run_beside(&world.replica("two", 5), async {
        let history = world.later(&access, 3).await;
        assert!(history.last().unwrap().is_restore());
        let after = world.watch(&access, 2).await;
        assert_eq!((before.measured.checks[0].failed, after.measured.checks[0].failed), (1, 3));
        assert_eq!(after.since(), before.since());
    });
}

#[test]
fn newer_deploy_of_another_process_ends_the_watch_within_seconds() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched().with(|policy| policy.checks[0].every = MINUTE * 60)).await;
        world.deployed(&access, &api("v2")).await;
        world.later(&access, 2).await;
        // Without a hint.
        world.commit(&access, |change, now| change.lease(&change.state.lease.clone().unwrap(), now)).await;
        let other = world.replica("two", 5);
        let other_access = other.allow(access.actor().clone(), access.app(), rollhook_core::action::Action::ALL);
        let other_access = other_access.await.unwrap();
        let request = rollhook_core::request::DeployRequest::image(api("v3").parse().unwrap());
        other.submit(&other_access, request).await.unwrap();
        world.sleep(45).await;
        assert_eq!(world.entry(&access, 3).await.status(), Status::Succeeded);
        world.quiet(&access).await;
    });
}

#[test]
fn clock_that_jumps_ends_a_watch_by_one_more_measurement() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched()).await;
        world.verifier.reads(turns_bad_after(1));
        world.deployed(&access, &api("v2")).await;
        *world.skew.lock().unwrap() += 3_600_000;
        assert_eq!(world.later(&access, 5).await.len(), 2, "no run of fails is made by time alone");
        let watch = world.watch(&access, 2).await;
        assert_eq!((watch.end, watch.measured.checks[0].failed), (Some(WatchEnd::Over), 1));
    });
}

#[test]
fn revoked_versions_stay_marked_and_states_are_bounded() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", watched().with(|policy| policy.on_failure = OnFailure::Leave)).await;
        world.verifier.reads(turns_bad_after(1));
        world.deployed(&access, &api("v2")).await;
        world.later(&access, 3).await;
        for number in 0..60 {
            world.deployed(&access, &api(&format!("w{number}"))).await;
        }
        let (view, mut history) = world.deployer.history(&access, Page::newest(1_000)).await.unwrap();
        history.reverse();
        assert_eq!(rules(&history, &view), []);
        assert_eq!(view.watches.len(), rollhook_core::ledger::WATCHES_MAX);
        assert!(view.is_revoked(Revision::new(2).unwrap()));
        let kept: usize = view.watches.iter().map(|watch| watch.measured.checks.len()).sum();
        assert_eq!(kept, 1, "the measurements of the newest alone");
    });
}
