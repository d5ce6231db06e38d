use super::*;
use crate::{
    app::{App, AppUid, Source, Target},
    ports::RolloutFailureKind,
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

/// An app whose rollouts settle in 10 s and may take 10 min.
fn app() -> App {
    App {
        id: "shop-test/api".parse().unwrap(),
        uid: AppUid::from_bits(1),
        project: "shop".parse().unwrap(),
        environment: "test".parse().unwrap(),
        source: Source::Image,
        target: Target::default(),
        policy: Policy::default(),
        holds: Vec::new(),
        locks: crate::lock::Locks::default(),
        created_at: at(0),
    }
}

fn complete() -> Observation {
    Observation {
        deploy: None,
        phase: Phase::Complete { digest: None, note: None },
        progress: "2/2".to_owned(),
        message: "2 of 2 new pods are available".to_owned(),
        instances: None,
        restarts: 0,
        failure: None,
    }
}

fn failure() -> Observation {
    let failure = RolloutFailure {
        kind: RolloutFailureKind::Image,
        reason: Reason::new("ImagePullBackOff"),
        container: None,
        message: "the image cannot be pulled".to_owned(),
    };
    Observation { phase: Phase::Progressing, failure: Some(failure), ..complete() }
}

fn outcome(watch: &RolloutProgress, now: i64) -> RolloutOutcome {
    watch.outcome(&app(), at(0), Outage::default(), at(now))
}

fn watch() -> RolloutProgress {
    RolloutProgress::new(Revision::FIRST, at(0))
}

#[test]
fn rollout_settles_at_the_first_observation_after_the_settling_time() {
    let mut watch = watch();
    watch.observed(complete(), at(2), at(2));
    // The driver was stopped: the container may have died meanwhile.
    assert_eq!(outcome(&watch, 60), RolloutOutcome::Wait(at(12)));
    watch.observed(complete(), at(60), at(60));
    assert_eq!(outcome(&watch, 60), RolloutOutcome::Settled { digest: None, note: None });
}

#[test]
fn observation_counts_from_the_begin_of_its_call() {
    let mut watch = watch();
    watch.observed(complete(), at(2), at(2));
    watch.observed(complete(), at(3), at(60));
    assert_eq!(outcome(&watch, 60), RolloutOutcome::Wait(at(12)));
}

#[test]
fn rollout_counts_as_complete_from_its_answer_on() {
    let mut watch = watch();
    watch.observed(complete(), at(2), at(50));
    watch.observed(complete(), at(51), at(51));
    assert_eq!(outcome(&watch, 51), RolloutOutcome::Wait(at(60)));
}

#[test]
fn a_clock_that_is_set_ahead_settles_nothing() {
    let mut watch = watch();
    watch.observed(complete(), at(2), at(2));
    watch.clock_set(at(3), at(103));
    watch.observed(complete(), at(104), at(104));
    assert_eq!(outcome(&watch, 104), RolloutOutcome::Wait(at(112)));
}

#[test]
fn trouble_and_deadline_count_only_after_another_observation() {
    let mut watch = watch();
    watch.observed(failure(), at(2), at(2));
    assert_eq!(outcome(&watch, 700), RolloutOutcome::Wait(at(62)));
    watch.observed(failure(), at(62), at(62));
    assert!(matches!(outcome(&watch, 62), RolloutOutcome::Failed(_)));
    let mut late = RolloutProgress::new(Revision::FIRST, at(0));
    late.observed(Observation { phase: Phase::Progressing, ..complete() }, at(2), at(2));
    assert_eq!(outcome(&late, 700), RolloutOutcome::Wait(at(600)));
    late.observed(Observation { phase: Phase::Progressing, ..complete() }, at(700), at(700));
    assert!(matches!(outcome(&late, 700), RolloutOutcome::Failed(_)));
}

fn failing(kind: RolloutFailureKind) -> Observation {
    let seen = failure();
    Observation { failure: seen.failure.map(|failure| RolloutFailure { kind, ..failure }), ..seen }
}

#[test]
fn failure_lasts_as_long_as_it_may_heal() {
    let fails_at = |kind| {
        let mut watch = watch();
        (1..=600).find(|second| {
            watch.observed(failing(kind), at(*second), at(*second));
            matches!(outcome(&watch, *second), RolloutOutcome::Failed(_))
        })
    };
    assert_eq!(fails_at(RolloutFailureKind::Final), Some(1));
    for kind in [RolloutFailureKind::Image, RolloutFailureKind::Crash, RolloutFailureKind::Config] {
        assert_eq!(fails_at(kind), Some(61), "the patience of the policy");
    }
    assert_eq!(fails_at(RolloutFailureKind::Capacity), Some(600), "the deadline of the rollout");
}

#[test]
fn failure_at_the_deadline_is_what_the_rollout_waited_for() {
    let mut watch = watch();
    watch.observed(failing(RolloutFailureKind::Capacity), at(600), at(600));
    let RolloutOutcome::Failed(report) = outcome(&watch, 600) else { panic!("it has not failed") };
    assert_eq!(report.reason.as_str(), "ImagePullBackOff");
    assert!(report.message.contains("within 600 s") && report.message.contains("cannot be pulled"), "{report:?}");
}

#[test]
fn failure_that_turns_into_another_that_may_heal_is_the_same() {
    let mut watch = watch();
    let kinds = [RolloutFailureKind::Crash, RolloutFailureKind::Image];
    let fails_at = (1..=600).find(|second| {
        let kind = kinds[usize::try_from(second / 10 % 2).unwrap()];
        watch.observed(failing(kind), at(*second), at(*second));
        matches!(outcome(&watch, *second), RolloutOutcome::Failed(_))
    });
    assert_eq!(fails_at, Some(61));
}
