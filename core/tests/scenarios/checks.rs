//! The verification of deploys by their apps' checks: each rule as a scenario on the whole engine under simulated time.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rollhook_core::{
    app::{OnFailure, Policy},
    check::{Check, CheckMode, PAST_VALUES_MAX, Verdict, WithoutVerdict},
    deploy::{CheckResult, Deploy, Reason, Revision, Ruling, Scale, State, Status, Verification},
    ports::{Clock, MeasureSpec},
    request::{PolicyChange, Refusal, ScaleRequest},
    service::{Authorized, Deployer},
};
use rollhook_memory::{Reading, Script, SimulatedVerifier};

use crate::world::{World, api, reason, statuses, tag};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn check(name: &str) -> Check {
    SimulatedVerifier::check_of(name.parse().unwrap(), 0.01)
}

fn with_checks(checks: impl IntoIterator<Item = Check>) -> Policy {
    let checks: Vec<Check> = checks.into_iter().collect();
    Policy::default().with(|policy| policy.checks.clone_from(&checks))
}

fn observed(check: Check) -> Check {
    check.with(|check| check.mode = CheckMode::Observe)
}

fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

fn is(spec: &MeasureSpec, tag: &str) -> bool {
    spec.image.tag() == Some(tag)
}

fn verification(deploy: &Deploy) -> &Verification {
    deploy.verification.as_deref().unwrap_or_else(|| panic!("{deploy:?}"))
}

fn result<'a>(deploy: &'a Deploy, name: &str) -> &'a CheckResult {
    verification(deploy).checks.iter().find(|result| result.name.as_str() == name).unwrap()
}

fn note(deploy: &Deploy) -> String {
    let State::Succeeded { note } = &deploy.state else { panic!("{deploy:?}") };
    note.clone().unwrap_or_default()
}

/// What was measured, one letter each.
fn letters(result: &CheckResult) -> String {
    result.measurements.iter().map(|measurement| measurement.verdict.as_str().chars().next().unwrap()).collect()
}

impl World {
    /// The measurements that were begun of a revision.
    fn measured(&self, revision: u64) -> usize {
        self.verifier.reached().iter().filter(|reached| reached.revision.get() == revision).count()
    }

    async fn set_policy(&self, access: &Authorized, change: PolicyChange) {
        self.deployer.change_policy(access, change).await.unwrap();
    }

    /// Deploys `v2`, and waits until it is verified.
    async fn verifying(&self, access: &Authorized, image: &str) -> Revision {
        let revision = self.deploy(access, &api(image)).await.unwrap().deploy.revision;
        for _ in 0..1_000 {
            if self.entry(access, revision.get()).await.status() == Status::Verifying {
                return revision;
            }
            self.sleep(1).await;
        }
        panic!("revision {revision} is never verified");
    }
}

#[test]
fn version_that_serves_its_users_succeeds_with_what_was_measured() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([check("errors"), check("front-page")])).await;
        world.verifier.reads(|_| Reading::Value(0.005));
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!((done.status(), note(&done)), (Status::Succeeded, String::new()));
        for name in ["errors", "front-page"] {
            let result = result(&done, name);
            assert_eq!((result.verdict, letters(result)), (Some(Verdict::Pass), "p".to_owned()));
            let last = result.last().unwrap();
            assert_eq!((last.value.as_deref(), result.condition.as_str()), (Some("0.005"), "<= 0.01"));
            assert!(last.at >= verification(&done).since);
        }
        assert_eq!(verification(&done).gap(), None);
        let current = world.view(&access).await.current.unwrap();
        assert_eq!(current.verification.as_deref(), Some(&verification(&done).short()));
        world.quiet(&access).await;
        assert_eq!(world.measured(2), 2, "one round");
    });
}

#[test]
fn values_of_before_the_rollout_are_kept_beside_the_measurements() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([check("errors")])).await;
        let asked = Arc::new(Mutex::new(0));
        let count = Arc::clone(&asked);
        world.verifier.reads(move |spec| {
            if spec.now > spec.rollout_began {
                return Reading::Value(0.005);
            }
            assert_eq!(spec.window, MINUTE, "not the few seconds for which the new instances have served");
            *count.lock().unwrap() += 1;
            // Nothing was measured at every other time.
            if (spec.rollout_began.since(spec.now).as_secs() / 15).is_multiple_of(2) {
                Reading::Value(0.5)
            } else {
                Reading::NoData
            }
        });
        let change = PolicyChange { verify_for: Some(MINUTE), ..PolicyChange::default() };
        world.set_policy(&access, change).await;
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!((done.status(), note(&done)), (Status::Succeeded, String::new()), "nothing is judged by them");
        let result = result(&done, "errors");
        assert_eq!((letters(result).as_str(), result.before.len()), ("ppppp", PAST_VALUES_MAX));
        let began = result.before.last().unwrap().at;
        for (place, past) in (0_u32..).zip(result.before.iter().rev()) {
            let value = place.is_multiple_of(2).then_some("0.5");
            assert_eq!((past.at, past.value.as_deref()), (began.before(SECOND * 15 * place), value));
        }
        assert!(began < verification(&done).since && began >= done.created_at);
        assert_eq!(*asked.lock().unwrap(), PAST_VALUES_MAX, "asked for once");
    });
}

#[test]
fn values_of_before_the_rollout_are_asked_for_three_times_and_delay_no_verdict() {
    let world = World::new(SECOND);
    world.run(async {
        let policy = with_checks([check("errors")]);
        let access = world.app("api", policy.with(|policy| policy.verify_for = MINUTE)).await;
        let asked = Arc::new(Mutex::new(0));
        let count = Arc::clone(&asked);
        world.verifier.reads(move |spec| {
            if spec.now > spec.rollout_began {
                return Reading::Value(0.005);
            }
            *count.lock().unwrap() += 1;
            Reading::Away
        });
        let done = world.deployed(&access, &api("v2")).await;
        let result = result(&done, "errors");
        assert_eq!((done.status(), letters(result).as_str()), (Status::Succeeded, "ppppp"));
        assert_eq!((result.before.len(), *asked.lock().unwrap()), (0, 3));
    });
}

#[test]
fn fails_in_a_row_fail_the_deploy_which_is_restored_without_being_verified() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([check("errors"), check("front-page")])).await;
        world.verifier.reads(|spec| {
            Reading::Value(if is(spec, "v2") && spec.check.name.as_str() == "errors" { 0.1 } else { 0.0 })
        });
        let failed = world.deployed(&access, &api("v2")).await;
        let (code, message) = reason(&failed);
        assert_eq!(code, Reason::CHECK_FAILED);
        assert!(message.starts_with("The check errors failed 3 times in a row: 0.1, expected <= 0.01."), "{message}");
        assert_eq!(letters(result(&failed, "errors")), "fff");
        assert_eq!(letters(result(&failed, "front-page")), "p");
        let State::Failed { evidence, .. } = &failed.state else { panic!("{failed:?}") };
        assert!(evidence.is_some(), "collected before anything is put right");
        let history = world.quiet(&access).await;
        assert_eq!(statuses(&history), [(1, Status::Succeeded), (2, Status::Failed), (3, Status::Succeeded)]);
        let restore = world.entry(&access, 3).await;
        assert!(restore.is_restore() && tag(&restore) == "v1");
        assert_eq!(verification(&restore).skipped.as_deref(), Some("a restore waits for no check"));
        assert_eq!((world.measured(2), world.measured(3), note(&restore)), (4, 0, String::new()));
    });
}

#[test]
fn failed_deploy_is_left_where_the_policy_says_so() {
    let world = World::new(SECOND);
    world.run(async {
        let policy = with_checks([check("errors").with(|check| check.failures = 1)]);
        let access = world.app("api", policy.with(|policy| policy.on_failure = OnFailure::Leave)).await;
        world.verifier.reads(|_| Reading::Value(1.0));
        let failed = world.deployed(&access, &api("v2")).await;
        assert!(reason(&failed).1.starts_with("The check errors failed: 1, expected <= 0.01."), "{failed:?}");
        assert_eq!(world.quiet(&access).await.len(), 2);
    });
}

#[test]
fn silence_is_accepted_and_the_entry_says_so() {
    for (reading, message) in [
        (Reading::NoData, "There is no data"),
        (Reading::Value(f64::NAN), "The reading is no number"),
        (Reading::Unreadable("<html>".to_owned()), "The answer cannot be read: <html>"),
        (Reading::Away, "The provider does not answer"),
    ] {
        let world = World::new(SECOND);
        world.run(async {
            let access = world.app("api", with_checks([check("errors")])).await;
            world.verifier.reads(move |_| reading.clone());
            let done = world.deployed(&access, &api("v2")).await;
            let result = result(&done, "errors");
            assert_eq!(
                (done.status(), result.verdict, letters(result).as_str()),
                (Status::Succeeded, Some(Verdict::None), "nnn")
            );
            assert_eq!(note(&done), format!("not verified: errors: {message}"));
            assert_eq!(verification(&done).gap(), Some(format!("errors: {message}")));
            assert_eq!(world.quiet(&access).await.len(), 2, "nothing is restored");
        });
    }
}

#[test]
fn verifier_that_never_answers_is_bounded_by_its_caller() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([check("errors")])).await;
        world.verifier.takes(MINUTE * 60);
        world.verifier.reads(|_| Reading::Value(0.0));
        let began = world.clock.elapsed();
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!((done.status(), letters(result(&done, "errors"))), (Status::Succeeded, "nnn".to_owned()));
        assert!(world.clock.elapsed() - began < MINUTE * 3);
    });
}

#[test]
fn check_that_waits_for_a_verdict_ends_by_one_by_a_cancel_or_by_a_rollback() {
    for way in ["verdict", "cancel", "rollback", "newer", "removed"] {
        let world = World::new(SECOND);
        world.run(async {
            let waits = check("errors").with(|check| check.without_verdict = WithoutVerdict::Wait);
            let access = world.app("api", with_checks([waits])).await;
            world.verifier.reads(|spec| if is(spec, "v2") { Reading::NoData } else { Reading::Value(0.0) });
            let verified = world.verifying(&access, "v2").await;
            world.sleep(3_600).await;
            let waiting = world.entry(&access, 2).await;
            assert_eq!((waiting.status(), result(&waiting, "errors").measurements.len()), (Status::Verifying, 20));
            let expected = match way {
                "verdict" => {
                    world.verifier.reads(|_| Reading::Value(0.0));
                    Status::Succeeded
                }
                "cancel" => {
                    world.deployer.cancel(&access, verified).await.unwrap();
                    Status::Cancelled
                }
                "rollback" => {
                    assert_eq!(tag(&world.rolled_back(&access).await), "v1");
                    Status::Superseded
                }
                "newer" => {
                    assert_eq!(world.deployed(&access, &api("v3")).await.status(), Status::Succeeded);
                    Status::Superseded
                }
                _ => {
                    let change = PolicyChange { checks: Some(Vec::new()), ..PolicyChange::default() };
                    world.set_policy(&access, change).await;
                    Status::Succeeded
                }
            };
            assert_eq!(world.ended(&access, 2).await.status(), expected, "{way}");
            let history = world.quiet(&access).await;
            let restores = history.iter().filter(|entry| entry.is_restore()).count();
            assert_eq!(restores, usize::from(way == "cancel"), "{way}: {:?}", statuses(&history));
        });
    }
}

/// A check that asks a person where it comes to no verdict.
fn asks(name: &str) -> Check {
    check(name).with(|check| check.without_verdict = WithoutVerdict::Ask)
}

impl World {
    /// Deploys an image, and waits until a person is asked.
    async fn asked(&self, access: &Authorized, image: &str) -> Revision {
        let revision = self.verifying(access, image).await;
        for _ in 0..1_000 {
            if self.entry(access, revision.get()).await.awaited_decision().is_some() {
                return revision;
            }
            self.sleep(1).await;
        }
        panic!("nobody is asked of revision {revision}");
    }

    async fn decide(&self, access: &Authorized, revision: Revision, ruling: Ruling) -> Result<Deploy, Refusal> {
        self.deployer.decide(access, revision, ruling).await
    }
}

#[test]
fn check_that_asks_is_decided_by_a_person_whose_name_stays() {
    for (ruling, expected) in [(Ruling::Pass, Status::Succeeded), (Ruling::Fail, Status::Failed)] {
        let world = World::new(SECOND);
        world.run(async {
            let access = world.app("api", with_checks([asks("errors"), check("front-page")])).await;
            world.verifier.reads(|_| Reading::NoData);
            let verified = world.verifying(&access, "v2").await;
            let early = world.decide(&access, verified, ruling).await;
            assert_eq!(early, Err(Refusal::NotAwaited { revision: verified, is_verified: true }));
            world.sleep(3_600).await;
            let waiting = world.entry(&access, 2).await;
            let (asking, since) = waiting.awaited_decision().unwrap();
            assert_eq!(asking.gap().unwrap(), "errors: There is no data, front-page: There is no data");
            assert!(since.since(asking.since) < MINUTE, "once, when the checks had come to their end");
            assert_eq!(letters(result(&waiting, "errors")).len(), 20, "measured on");
            assert_eq!(letters(result(&waiting, "front-page")), "nnn", "it is accepted without a verdict");
            let state = world.view(&access).await;
            let progress = world.deployer.progress(&state, &waiting).unwrap().message.unwrap();
            assert!(progress.starts_with("waits for a person's decision, as checks came to no verdict: errors:"));
            let decided = world.decide(&access, verified, ruling).await.unwrap();
            let decision = verification(&decided).decision.clone().unwrap();
            assert_eq!((decision.ruling, &decision.by), (ruling, &world.operator));
            let ended = world.ended(&access, 2).await;
            assert_eq!((ended.status(), verification(&ended).decision.as_ref()), (expected, Some(&decision)));
            match ruling {
                Ruling::Pass => assert_eq!(
                    note(&ended),
                    "not verified: errors: There is no data, front-page: There is no data; accepted by alice"
                ),
                Ruling::Fail => {
                    let (code, message) = reason(&ended);
                    assert_eq!(code, Reason::CHECK_FAILED);
                    let said = "alice rejected it, as checks had come to no verdict: errors: There is no data, \
                                front-page: There is no data.";
                    assert!(message.starts_with(said), "{message}");
                }
            }
            // The same call again is answered; another one, or another person's, is not.
            assert!(world.decide(&access, verified, ruling).await.is_ok());
            let other = if ruling == Ruling::Pass { Ruling::Fail } else { Ruling::Pass };
            let refused = world.decide(&access, verified, other).await.unwrap_err();
            assert_eq!(refused, Refusal::DecidedAlready(verified, Box::new(decision)));
            let history = world.quiet(&access).await;
            let restores = history.iter().filter(|entry| entry.is_restore()).count();
            assert_eq!(restores, usize::from(ruling == Ruling::Fail), "{:?}", statuses(&history));
        });
    }
}

#[test]
fn deploy_that_waits_for_a_person_ends_by_all_that_ends_a_verification() {
    for way in ["pass", "fail", "cancel", "rollback", "newer", "removed", "accepts"] {
        let world = World::new(SECOND);
        world.run(async {
            let access = world.app("api", with_checks([asks("errors")])).await;
            world.verifier.reads(|spec| if is(spec, "v2") { Reading::NoData } else { Reading::Value(0.0) });
            let asked = world.asked(&access, "v2").await;
            let set = |check: Option<Check>| PolicyChange {
                checks: Some(check.into_iter().collect()),
                ..PolicyChange::default()
            };
            let expected = match way {
                "pass" => {
                    world.verifier.reads(|_| Reading::Value(0.0));
                    Status::Succeeded
                }
                "fail" => {
                    world.verifier.reads(|_| Reading::Value(1.0));
                    Status::Failed
                }
                "cancel" => {
                    world.deployer.cancel(&access, asked).await.unwrap();
                    Status::Cancelled
                }
                "rollback" => {
                    assert_eq!(tag(&world.rolled_back(&access).await), "v1");
                    Status::Superseded
                }
                "newer" => {
                    assert_eq!(world.deployed(&access, &api("v3")).await.status(), Status::Succeeded);
                    Status::Superseded
                }
                "removed" => {
                    world.set_policy(&access, set(None)).await;
                    Status::Succeeded
                }
                _ => {
                    world.set_policy(&access, set(Some(check("errors")))).await;
                    Status::Succeeded
                }
            };
            let ended = world.ended(&access, 2).await;
            assert_eq!((ended.status(), verification(&ended).decision.as_ref()), (expected, None), "{way}");
            let late = world.decide(&access, asked, Ruling::Pass).await;
            assert_eq!(late, Err(Refusal::AlreadyEnded(asked)), "{way}");
            let unknown = world.decide(&access, revision(9), Ruling::Pass).await;
            assert_eq!(unknown, Err(Refusal::RevisionNotFound(revision(9))));
            world.quiet(&access).await;
        });
    }
}

#[test]
fn question_is_withdrawn_once_the_checks_ask_no_more() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([asks("errors")])).await;
        world.verifier.reads(|_| Reading::NoData);
        let asked = world.asked(&access, "v2").await;
        let waits = check("errors").with(|check| check.without_verdict = WithoutVerdict::Wait);
        for checks in [vec![waits], vec![asks("errors"), asks("front-page")]] {
            world.set_policy(&access, PolicyChange { checks: Some(checks), ..PolicyChange::default() }).await;
            // The driver may not have noticed yet: the ledger judges by the checks of now.
            let refused = world.decide(&access, asked, Ruling::Pass).await;
            assert_eq!(refused, Err(Refusal::NotAwaited { revision: asked, is_verified: true }));
            world.sleep(20).await;
            assert!(world.entry(&access, 2).await.awaited_decision().is_none());
        }
        world.sleep(60).await;
        let (asking, _) = world.entry(&access, 2).await.awaited_decision().map(|(all, at)| (all.clone(), at)).unwrap();
        assert_eq!(asking.gap().unwrap(), "errors: There is no data, front-page: There is no data");
        world.decide(&access, asked, Ruling::Pass).await.unwrap();
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
    });
}

#[test]
fn replica_that_takes_over_waits_on_and_one_that_cannot_measure_accepts_nothing() {
    let world = World::new(SECOND);
    let asked = world.run(async {
        let access = world.app("api", with_checks([asks("errors")])).await;
        world.verifier.reads(|_| Reading::NoData);
        (world.asked(&access, "v2").await, access)
    });
    let (asked, access) = asked;
    let ports = world.ports(9).with(|ports| ports.verifier = None);
    let other = Deployer::new(ports, "two");
    world.run_beside(&other, async {
        world.sleep(600).await;
        assert!(world.entry(&access, 2).await.awaited_decision().is_some());
        other.decide(&access, asked, Ruling::Fail).await.unwrap();
        assert_eq!(reason(&world.ended(&access, 2).await).0, Reason::CHECK_FAILED);
    });
}

#[test]
fn deploy_without_its_verdicts_gives_way_although_old_pods_still_end() {
    let world = World::new(SECOND);
    world.cluster.script("v2", Script::completes().terminating_for(5 * MINUTE));
    world.run(async {
        let access = world.app("api", with_checks([check("errors")])).await;
        world.verifier.reads(|_| Reading::Value(0.0));
        let first = world.deploy(&access, &api("v2")).await.unwrap().deploy.revision;
        world.sleep(60).await;
        let next = world.deploy(&access, &api("v3")).await.unwrap().deploy.revision;
        let first = world.ended(&access, first.get()).await;
        assert_eq!(first.state, State::Superseded { by: next, rollback: false, newer: None });
        // Without checks none is missing.
        let change = PolicyChange { checks: Some(Vec::new()), ..PolicyChange::default() };
        world.set_policy(&access, change).await;
        let second = world.deploy(&access, &api("v2")).await.unwrap().deploy.revision;
        world.sleep(60).await;
        world.deployed(&access, &api("v3")).await;
        assert!(note(&world.entry(&access, second.get()).await).contains("still terminate"));
    });
}

#[test]
fn observed_check_decides_and_delays_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([observed(check("errors").with(|check| check.failures = 1))])).await;
        world.verifier.reads(|_| Reading::Value(1.0));
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!((done.status(), note(&done)), (Status::Succeeded, String::new()));
        assert_eq!((result(&done, "errors").verdict, world.measured(2)), (Some(Verdict::Fail), 1));
        // It goes on beside those that decide.
        let checks = vec![observed(check("errors")), check("front-page")];
        let change = PolicyChange { checks: Some(checks), verify_for: Some(MINUTE), ..PolicyChange::default() };
        world.set_policy(&access, change).await;
        world.verifier.reads(|spec| Reading::Value(if spec.check.name.as_str() == "errors" { 1.0 } else { 0.0 }));
        let done = world.deployed(&access, &api("v3")).await;
        assert_eq!(done.status(), Status::Succeeded);
        assert_eq!(result(&done, "errors").verdict, Some(Verdict::Fail));
        assert_eq!(letters(result(&done, "front-page")), "ppppp");
        // One that this process cannot measure is not waited for either.
        world.verifier.reads(|spec| match spec.check.name.as_str() {
            "errors" => Reading::Broken,
            _ => Reading::Value(0.0),
        });
        assert_eq!(world.deployed(&access, &api("v4")).await.status(), Status::Succeeded);
        assert_eq!(world.quiet(&access).await.len(), 4);
    });
}

#[test]
fn soak_goes_on_to_its_end_and_a_run_of_fails_to_its_decision() {
    let minute = || with_checks([check("errors")]).with(|policy| policy.verify_for = MINUTE);
    for (from, until, expected, seen) in [
        // The seconds of the verification in which it fails.
        (0, 0, Status::Succeeded, "ppppp"),
        (20, 40, Status::Succeeded, "ppfpp"),
        (20, 55, Status::Succeeded, "ppffp"),
        (20, 70, Status::Failed, "ppfff"),
        (55, 80, Status::Succeeded, "ppppffp"),
        (55, 999, Status::Failed, "ppppfff"),
    ] {
        let world = World::new(SECOND);
        world.run(async {
            let access = world.app("api", minute()).await;
            world.verifier.reads(move |spec| {
                let at = spec.now.since(spec.since).as_secs();
                Reading::Value(if (from..until).contains(&at) { 1.0 } else { 0.0 })
            });
            let ended = world.deployed(&access, &api("v2")).await;
            let letters = letters(result(&ended, "errors"));
            assert_eq!((ended.status(), letters.as_str()), (expected, seen), "{from}..{until}");
        });
    }
}

#[test]
fn health_of_the_instances_is_watched_while_they_are_verified() {
    let world = World::new(SECOND);
    world.run(async {
        let policy = with_checks([check("errors")]).with(|policy| policy.verify_for = MINUTE * 30);
        let access = world.app("api", policy).await;
        world.cluster.script("api:v2", Script::dies_after(MINUTE * 5));
        let failed = world.deployed(&access, &api("v2")).await;
        assert_eq!(failed.status(), Status::Failed);
        assert_ne!(reason(&failed).0, Reason::CHECK_FAILED);
        let result = result(&failed, "errors");
        assert!(result.has_passed && result.verdict.is_none(), "{result:?}");
        let history = world.quiet(&access).await;
        assert!(history[2].is_restore() && history[2].status() == Status::Succeeded);
    });
}

#[test]
fn instances_that_are_replaced_in_a_soak_longer_than_the_rollouts_deadline_get_well_again() {
    let world = World::new(SECOND);
    world.run(async {
        let policy = with_checks([check("errors")]).with(|policy| policy.verify_for = MINUTE * 60);
        let access = world.app("api", policy).await;
        world.cluster.script("api:v2", Script { restarts_every: Some(MINUTE * 25), ..Script::default() });
        world.deploy(&access, &api("v2")).await.unwrap();
        let done = world.ended(&access, 2).await;
        assert_eq!(done.status(), Status::Succeeded, "{:?}", done.state);
    });
}

#[test]
fn deploys_that_bring_no_version_to_users_are_not_verified() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([check("errors")])).await;
        world.deployed(&access, &api("v2")).await;
        world.verifier.reads(|_| Reading::Value(1.0));
        let back = world.rolled_back(&access).await;
        assert_eq!(
            (back.status(), verification(&back).skipped.as_deref()),
            (Status::Succeeded, Some("a rollback waits for no check"))
        );
        let stop = world.deployer.scale(&access, ScaleRequest::new(Scale::Stop)).await.unwrap().deploy.revision;
        assert_eq!(world.ended(&access, stop.get()).await.status(), Status::Succeeded);
        let stopped = world.deployed(&access, &api("v3")).await;
        assert_eq!(verification(&stopped).skipped.as_deref(), Some("the app is stopped"));
        let start = world.deployer.scale(&access, ScaleRequest::new(Scale::Start)).await.unwrap().deploy.revision;
        assert_eq!(
            reason(&world.ended(&access, start.get()).await).0,
            Reason::CHECK_FAILED,
            "it serves again, and badly"
        );
        world.quiet(&access).await;
    });
}

#[test]
fn process_without_a_verifier_ends_a_verification_as_not_verified() {
    let world = World::new(SECOND);
    let without = || {
        let ports = world.ports(7).with(|ports| ports.verifier = None);
        Deployer::new(ports, "two")
    };
    let (access, policy) = world.run(async {
        let policy = with_checks([check("errors")]).with(|policy| policy.verify_for = MINUTE * 60);
        let access = world.app("api", policy.clone()).await;
        world.verifying(&access, "v2").await;
        world.sleep(120).await;
        (access, policy)
    });
    world.run_beside(&without(), async {
        let done = world.ended(&access, 2).await;
        assert_eq!(
            (done.status(), note(&done).as_str()),
            (Status::Succeeded, "not verified: this server cannot measure checks")
        );
        assert!(result(&done, "errors").has_passed && policy.checks.len() == 1, "what was measured stays");
        let done = world.deployed(&access, &api("v3")).await;
        assert_eq!(note(&done), "not verified: this server cannot measure checks");
    });
    // A fail that was recorded stays one.
    let world = World::new(SECOND);
    let access = world.run(async {
        let access = world.app("api", with_checks([check("errors")])).await;
        world.verifier.reads(|_| Reading::Value(1.0));
        world.verifying(&access, "v2").await;
        let mut failed = world.entry(&access, 2).await;
        while failed.verification.as_ref().unwrap().enforced_fail().is_none() && !failed.is_terminal() {
            world.clock.sleep(Duration::from_millis(1)).await;
            failed = world.entry(&access, 2).await;
        }
        access
    });
    let ports = world.ports(7).with(|ports| ports.verifier = None);
    world.run_beside(&Deployer::new(ports, "two"), async {
        assert_eq!(reason(&world.ended(&access, 2).await).0, Reason::CHECK_FAILED);
        world.quiet(&access).await;
    });
}

#[test]
fn take_over_goes_on_with_what_was_measured() {
    let world = World::new(SECOND);
    let policy = with_checks([check("errors")]).with(|policy| policy.verify_for = MINUTE * 2);
    let access = world.run(async {
        let access = world.app("api", policy).await;
        world.verifier.reads(|_| Reading::Value(0.0));
        world.verifying(&access, "v2").await;
        world.sleep(65).await;
        world.verifier.reads(|_| Reading::Value(1.0));
        // One fail is measured before the process ends, the others by the next one.
        while result(&world.entry(&access, 2).await, "errors").failed == 0 {
            world.sleep(1).await;
        }
        access
    });
    let before = world.idle(async { world.entry(&access, 2).await });
    world.run_beside(&world.replica("two", 5), async {
        let failed = world.ended(&access, 2).await;
        assert_eq!(reason(&failed).0, Reason::CHECK_FAILED);
        let (was, is) = (result(&before, "errors"), result(&failed, "errors"));
        assert_eq!((was.failed, is.failed), (1, 3));
        assert_eq!(is.measurements[..was.measurements.len()], was.measurements[..]);
        assert_eq!(verification(&failed).since, verification(&before).since);
        world.quiet(&access).await;
    });
}

#[test]
fn provider_that_is_away_for_an_hour_decides_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let policy = with_checks([check("errors")]).with(|policy| policy.verify_for = MINUTE * 90);
        let access = world.app("api", policy).await;
        world.verifier.reads(|spec| {
            let minutes = spec.now.since(spec.since).as_secs() / 60;
            if (10..70).contains(&minutes) { Reading::Away } else { Reading::Value(0.0) }
        });
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!((done.status(), result(&done, "errors").verdict), (Status::Succeeded, Some(Verdict::Pass)));
        assert_eq!(note(&done), "");
    });
}

#[test]
fn process_that_cannot_measure_goes_on_and_gives_up_after_an_hour() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([check("errors")])).await;
        world.verifier.reads(|_| Reading::Broken);
        world.verifying(&access, "v2").await;
        world.sleep(1_800).await;
        let waiting = world.entry(&access, 2).await;
        assert_eq!((waiting.status(), letters(result(&waiting, "errors")).as_str()), (Status::Verifying, ""));
        assert!((50..200).contains(&world.measured(2)), "it is not asked all the time: {}", world.measured(2));
        world.verifier.reads(|_| Reading::Value(0.0));
        let done = world.ended(&access, 2).await;
        assert_eq!((done.status(), letters(result(&done, "errors")).as_str()), (Status::Succeeded, "p"));
        world.verifier.reads(|_| Reading::Broken);
        let done = world.deployed(&access, &api("v3")).await;
        assert_eq!((done.status(), result(&done, "errors").verdict), (Status::Succeeded, Some(Verdict::None)));
        assert!(note(&done).starts_with("not verified: errors: This server could not measure"), "{}", note(&done));
    });
}

#[test]
fn clock_that_is_set_never_ends_a_verification_without_a_measurement() {
    for jump in [7_200_000, -7_200_000] {
        let world = World::new(SECOND);
        world.run(async {
            let policy = with_checks([check("errors")]).with(|policy| policy.verify_for = MINUTE * 10);
            let access = world.app("api", policy).await;
            world.verifying(&access, "v2").await;
            world.sleep(60).await;
            *world.skew.lock().unwrap() += jump;
            let jumped = world.clock.elapsed();
            world.verifier.reads(|_| Reading::Value(1.0));
            let failed = world.ended(&access, 2).await;
            assert_eq!(reason(&failed).0, Reason::CHECK_FAILED, "{jump}");
            assert!(world.clock.elapsed() - jumped >= SECOND * 25, "one after the other, whatever the clock says");
            let result = result(&failed, "errors");
            let since = verification(&failed).since;
            assert!(result.measurements.iter().all(|measurement| measurement.at >= since), "{result:?}");
            world.quiet(&access).await;
        });
    }
}

#[test]
fn measurements_of_one_deploy_never_count_for_the_next() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([check("errors").with(|check| check.failures = 4)])).await;
        world.verifier.takes(Duration::from_secs(8));
        world.verifier.reads(|_| Reading::Value(1.0));
        world.verifying(&access, "v2").await;
        world.sleep(30).await;
        world.deploy(&access, &api("v3")).await.unwrap();
        world.verifier.reads(|spec| Reading::Value(if is(spec, "v3") { 0.0 } else { 1.0 }));
        let done = world.ended(&access, 3).await;
        assert_eq!((done.status(), letters(result(&done, "errors"))), (Status::Succeeded, "p".to_owned()));
        let before = world.entry(&access, 2).await;
        assert_eq!(before.status(), Status::Superseded);
        assert!(result(&before, "errors").failed > 0 && result(&before, "errors").verdict.is_none());
        world.quiet(&access).await;
    });
}

#[test]
fn other_settings_of_a_check_begin_anew() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([check("errors")])).await;
        world.verifier.reads(|_| Reading::Value(0.5));
        world.verifying(&access, "v2").await;
        while result(&world.entry(&access, 2).await, "errors").failed < 2 {
            world.sleep(1).await;
        }
        let other = SimulatedVerifier::check_of("errors".parse().unwrap(), 0.9);
        let change = PolicyChange { checks: Some(vec![other]), ..PolicyChange::default() };
        world.set_policy(&access, change).await;
        let done = world.ended(&access, 2).await;
        assert_eq!((done.status(), letters(result(&done, "errors")).as_str()), (Status::Succeeded, "p"));
    });
}

#[test]
fn many_apps_measure_in_turns() {
    let world = World::new(SECOND);
    world.run(async {
        let checks: Vec<Check> = (0..10).map(|number| check(&format!("check-{number}"))).collect();
        let mut apps = Vec::new();
        for number in 0..6 {
            apps.push(world.app(&format!("api-{number}"), with_checks(checks.clone())).await);
        }
        world.verifier.takes(Duration::from_secs(5));
        for access in &apps {
            world.deploy(access, &api("v2")).await.unwrap();
        }
        for access in &apps {
            let done = world.ended(access, 2).await;
            assert_eq!(done.status(), Status::Succeeded);
            assert!(verification(&done).checks.iter().all(|result| result.verdict == Some(Verdict::Pass)));
        }
        let reached = world.verifier.reached();
        let at_once = reached.iter().map(|one| reached.iter().filter(|other| other.at == one.at).count()).max();
        assert!(at_once <= Some(16), "{at_once:?}");
    });
}

#[test]
fn waiting_call_sees_the_measurements_and_the_end() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", with_checks([check("errors")])).await;
        world.verifier.reads(|_| Reading::Value(1.0));
        let verified = world.verifying(&access, "v2").await;
        let seen = world.entry(&access, 2).await.step;
        let (_, next) = world.deployer.changed(&access, verified, seen, MINUTE).await.unwrap();
        assert!(next.status() == Status::Verifying && letters(result(&next, "errors")).starts_with('f'), "{next:?}");
        let waited = world.deployer.wait(&access, revision(2), MINUTE * 10).await.unwrap();
        assert_eq!(reason(waited.last()).0, Reason::CHECK_FAILED);
        assert_eq!(waited.restore().map(|restore| restore.revision.get()), Some(3));
    });
}
