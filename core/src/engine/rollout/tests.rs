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
        created_at: at(0),
    }
}

fn complete() -> Observation {
    Observation {
        stamp: None,
        phase: Phase::Complete { digest: None, note: None },
        progress: "2/2".to_owned(),
        message: "2 of 2 new pods are available".to_owned(),
        restarts: 0,
        trouble: None,
    }
}

fn failing() -> Observation {
    let trouble = RolloutFailure {
        kind: RolloutFailureKind::Image,
        reason: Reason::new("ImagePullBackOff"),
        container: None,
        message: "the image cannot be pulled".to_owned(),
    };
    Observation { phase: Phase::Progressing, trouble: Some(trouble), ..complete() }
}

fn verdict(watch: &Watch, now: i64) -> Verdict {
    watch.verdict(&app(), at(0), Outage::default(), at(now))
}

fn watch() -> Watch {
    Watch::new(Revision::FIRST, at(0))
}

#[test]
fn it_is_settled_once_it_was_seen_after_the_settling_time() {
    let mut watch = watch();
    watch.observed(complete(), at(2), at(2));
    // The driver was stopped: the container may have died meanwhile.
    assert_eq!(verdict(&watch, 60), Verdict::Wait(at(12)));
    watch.observed(complete(), at(60), at(60));
    assert_eq!(verdict(&watch, 60), Verdict::Settled { digest: None, note: None });
}

#[test]
fn an_answer_tells_of_the_time_before_it_was_asked_for() {
    let mut watch = watch();
    watch.observed(complete(), at(2), at(2));
    watch.observed(complete(), at(3), at(60));
    assert_eq!(verdict(&watch, 60), Verdict::Wait(at(12)));
}

#[test]
fn it_was_complete_no_earlier_than_its_answer_came() {
    let mut watch = watch();
    watch.observed(complete(), at(2), at(50));
    watch.observed(complete(), at(51), at(51));
    assert_eq!(verdict(&watch, 51), Verdict::Wait(at(60)));
}

#[test]
fn a_clock_that_is_set_ahead_settles_nothing() {
    let mut watch = watch();
    watch.observed(complete(), at(2), at(2));
    watch.clock_set(at(3), at(103));
    watch.observed(complete(), at(104), at(104));
    assert_eq!(verdict(&watch, 104), Verdict::Wait(at(112)));
}

#[test]
fn trouble_and_a_deadline_are_looked_at_again_before_they_count() {
    let mut watch = watch();
    watch.observed(failing(), at(2), at(2));
    assert_eq!(verdict(&watch, 700), Verdict::Wait(at(17)));
    watch.observed(failing(), at(20), at(20));
    assert!(matches!(verdict(&watch, 20), Verdict::Failed(_)));
    let mut late = Watch::new(Revision::FIRST, at(0));
    late.observed(Observation { phase: Phase::Progressing, ..complete() }, at(2), at(2));
    assert_eq!(verdict(&late, 700), Verdict::Wait(at(600)));
    late.observed(Observation { phase: Phase::Progressing, ..complete() }, at(700), at(700));
    assert!(matches!(verdict(&late, 700), Verdict::Failed(_)));
}
