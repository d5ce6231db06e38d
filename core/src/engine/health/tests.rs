use super::*;
use crate::{
    deploy::Reason,
    ports::{Instances, RolloutFailure},
};

const SECOND: Duration = Duration::from_secs(1);

/// One deploy at rest, observed at seconds of a story.
struct Story {
    health: Health,
    policy: Policy,
    wanted: u32,
}

impl Story {
    fn new(wanted: u32) -> Self {
        Self { health: Health::new(Revision::FIRST), policy: Policy::default(), wanted }
    }

    /// Observes at a second, and returns the code of the trouble.
    fn at(&mut self, second: u64, seen: &Observation) -> Option<String> {
        let time = Timestamp::from_millis(i64::try_from(second).unwrap() * 1000);
        self.health.observed(seen, &self.policy, SECOND * u32::try_from(second).unwrap(), time);
        self.health.degraded().map(|degraded| degraded.reason.to_string())
    }

    fn runs(&self, restarts: u32) -> Observation {
        self.seen(self.wanted, restarts, None)
    }

    /// One instance is not ready, for a reason or without one.
    fn lacks(&self, restarts: u32, failure: Option<(RolloutFailureKind, &str)>) -> Observation {
        self.seen(self.wanted - 1, restarts, failure)
    }

    fn crashes(&self, restarts: u32) -> Observation {
        self.lacks(restarts, Some((RolloutFailureKind::Crash, "CrashLoopBackOff")))
    }

    fn seen(&self, ready: u32, restarts: u32, failure: Option<(RolloutFailureKind, &str)>) -> Observation {
        let complete = ready == self.wanted && failure.is_none();
        Observation {
            deploy: None,
            phase: if complete { Phase::Complete { digest: None, note: None } } else { Phase::Progressing },
            progress: String::new(),
            message: "as the driver says it".to_owned(),
            instances: Some(Instances { ready, wanted: self.wanted }),
            restarts,
            past_lives: Vec::new(),
            down_for: None,
            leaving: None,
            workloads: Vec::new(),
            failure: failure.map(|(kind, reason)| RolloutFailure {
                kind,
                reason: Reason::new(reason),
                container: None,
                message: format!("{reason}, {restarts} restarts"),
            }),
        }
    }
}

/// A container that exits every 14 s, as Kubernetes shows it: an end is counted once the container is started again.
#[test]
fn container_that_exits_every_14_s_is_degraded_at_its_second_end_and_stays_so() {
    let mut story = Story::new(1);
    let degraded = Some("CrashLoopBackOff".to_owned());
    assert_eq!(story.at(11, &story.runs(0)), None);
    assert_eq!(story.at(14, &story.lacks(0, None)), None);
    assert_eq!(story.at(15, &story.runs(1)), None, "one end is no loop");
    assert_eq!(story.at(28, &story.crashes(1)), degraded, "within half a minute of its success");
    let mut now = 28;
    for (restarts, backoff) in [(2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 300), (8, 300)] {
        now += backoff;
        assert_eq!(story.at(now, &story.runs(restarts)), degraded, "it runs for a moment");
        now += 14;
        assert_eq!(story.at(now, &story.crashes(restarts)), degraded);
    }
    assert_eq!(story.health.degraded().unwrap().since.as_millis(), 28_000, "since its second end");
}

/// The same, as an engine shows it that starts containers again at once and counts ends as they come.
#[test]
fn container_that_is_started_again_at_once_is_degraded_at_its_second_end() {
    let mut story = Story::new(1);
    assert_eq!(story.at(11, &story.runs(0)), None);
    assert_eq!(story.at(14, &story.crashes(1)), None, "one end is no loop");
    assert_eq!(story.at(15, &story.runs(1)), None);
    assert_eq!(story.at(28, &story.runs(2)), Some(Reason::RESTARTING.to_owned()));
    assert!(story.health.degraded().unwrap().message.contains("2 times within 14 s"));
    assert_eq!(story.at(56, &story.runs(2)), Some(Reason::RESTARTING.to_owned()));
    assert_eq!(story.at(58, &story.runs(2)), None, "it has run for longer than 30 s, and twice as long as ever before");
}

#[test]
fn recovery_is_shown_once_the_instances_have_outlived_their_earlier_lives() {
    let mut story = Story::new(1);
    story.at(0, &story.runs(0));
    for restarts in 1..=4 {
        story.at(u64::from(restarts) * 60, &story.runs(restarts));
    }
    assert_eq!(story.health.due(SECOND * 240), Some(SECOND * 360), "looked at without a hint");
    assert!(story.at(359, &story.runs(4)).is_some());
    assert_eq!(story.at(360, &story.runs(4)), None);
    assert_eq!(story.health.due(SECOND * 360), None);
    assert_eq!(story.at(420, &story.runs(5)), None, "a single end after that is no loop");
}

#[test]
fn instances_that_end_once_each_are_no_crash_loop() {
    let mut story = Story::new(3);
    assert_eq!(story.at(0, &story.runs(0)), None);
    assert_eq!(story.at(10, &story.runs(3)), None, "a database went away");
    assert_eq!(story.at(300, &story.runs(4)), Some(Reason::RESTARTING.to_owned()), "one of them ended twice");
    let mut story = Story::new(3);
    story.at(0, &story.runs(0));
    for restarts in 1..20_u32 {
        let at = 240 * u64::from(restarts);
        assert_eq!(story.at(at, &story.runs(restarts)), None, "each ended hours after its last end, maybe");
    }
}

#[test]
fn crash_that_lasts_is_degraded_also_for_a_process_that_was_just_started() {
    let mut story = Story::new(2);
    assert_eq!(story.at(0, &story.crashes(4)), None);
    assert_eq!(story.health.due(Duration::ZERO), Some(SECOND * 5));
    assert_eq!(story.at(5, &story.crashes(4)), Some("CrashLoopBackOff".to_owned()));
    let mut single = Story::new(1);
    assert!(single.at(0, &single.crashes(4)).is_some(), "it was restarted before, and has ended again");
}

#[test]
fn instance_that_is_missing_is_degraded_after_the_patience() {
    let mut story = Story::new(2);
    assert_eq!(story.at(0, &story.runs(0)), None);
    assert_eq!(story.at(10, &story.lacks(0, None)), None);
    assert_eq!(story.health.due(SECOND * 10), Some(SECOND * 70), "looked at without a hint");
    assert_eq!(story.at(30, &story.runs(0)), None, "a node was replaced");
    assert_eq!(story.at(40, &story.lacks(0, None)), None);
    assert_eq!(story.at(99, &story.lacks(0, None)), None);
    assert_eq!(story.at(100, &story.lacks(0, None)), Some(Reason::NOT_READY.to_owned()));
    assert_eq!(story.health.degraded().unwrap().message, "1 of 2 instances are ready");
    let pull = story.lacks(0, Some((RolloutFailureKind::Image, "ImagePullBackOff")));
    assert_eq!(story.at(101, &pull), Some("ImagePullBackOff".to_owned()), "the failure says more");
    assert_eq!(story.at(110, &story.runs(0)), Some("ImagePullBackOff".to_owned()), "it has not settled");
    assert_eq!(story.at(120, &story.runs(0)), None);
}

#[test]
fn instances_that_a_person_restarts_one_after_the_other_are_not_missing() {
    let mut story = Story::new(3);
    story.at(0, &story.runs(0));
    let replaced = Observation { phase: Phase::Progressing, ..story.runs(0) };
    for second in 1..300 {
        assert_eq!(story.at(second, &replaced), None);
    }
    assert!(!story.health.is_proven(SECOND * 300), "it is not complete");
}

#[test]
fn deploy_that_failed_is_proven_once_its_instances_have_settled() {
    let mut story = Story::new(1);
    let quota = story.lacks(0, Some((RolloutFailureKind::Capacity, "FailedCreate")));
    story.at(0, &quota);
    assert!(!story.health.is_proven(SECOND * 50));
    story.at(50, &story.runs(0));
    assert_eq!(story.health.due(SECOND * 50), Some(SECOND * 60));
    assert!(!story.health.is_proven(SECOND * 59));
    assert!(story.health.is_proven(SECOND * 60));
}

#[test]
fn pod_that_was_replaced_is_no_end() {
    let mut story = Story::new(1);
    assert_eq!(story.at(0, &story.runs(5)), None, "ends of long ago");
    assert_eq!(story.at(5, &story.runs(0)), None);
    assert_eq!(story.at(9, &story.runs(1)), None);
}
