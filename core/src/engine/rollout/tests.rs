use super::*;
use crate::{
    app::{App, Policy, Source},
    deploy::Trigger,
    ports::{PastLives, RolloutFailureKind},
    tests::{git_app, queued},
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// An app whose rollouts settle in 10 s and may take 10 min, and this deploy of it, which rolls out since time 0.
fn rolling(trigger: Trigger) -> (AppState, Deploy) {
    let app_state = AppState::new(App { source: Source::Image, ..git_app(1, Policy::default()) });
    let deploy = queued(2, trigger, crate::deploy::Actor::Service, None);
    let deploy = deploy.moved(State::RollingOut { since: at(0), outage: Outage::default() });
    (app_state, deploy)
}

fn complete() -> Observation {
    Observation {
        deploy: None,
        phase: Phase::Complete { digest: None, note: None },
        progress: "2/2".to_owned(),
        message: "2 of 2 new pods are available".to_owned(),
        instances: None,
        restarts: 0,
        past_lives: Vec::new(),
        down_for: None,
        leaving: None,
        workloads: Vec::new(),
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
    let (app_state, deploy) = rolling(Trigger::Webhook);
    watch.outcome(&Terms::of(&app_state, &deploy).unwrap(), at(now))
}

fn see(watch: &mut RolloutProgress, seen: Observation, asked: i64, now: i64) {
    watch.observed(seen, (at(0), Outage::default()), false, at(asked), at(now));
}

fn watch() -> RolloutProgress {
    RolloutProgress::new(Revision::FIRST, at(0))
}

#[test]
fn rollout_settles_at_the_first_observation_after_the_settling_time() {
    let mut watch = watch();
    see(&mut watch, complete(), 2, 2);
    // The driver was stopped: the container may have died meanwhile.
    assert_eq!(outcome(&watch, 60), RolloutOutcome::Wait(at(12)));
    see(&mut watch, complete(), 60, 60);
    assert_eq!(outcome(&watch, 60), RolloutOutcome::Settled { digest: None, note: None });
}

#[test]
fn old_instances_that_end_are_waited_for_until_the_deadline_and_fail_nothing() {
    let still = "1 pod of the version before still terminates";
    let leaving = || Observation { leaving: Some(still.to_owned()), ..complete() };
    let mut ends = watch();
    see(&mut ends, leaving(), 2, 2);
    see(&mut ends, leaving(), 60, 60);
    assert_eq!(outcome(&ends, 60), RolloutOutcome::Wait(at(600)));
    see(&mut ends, complete(), 61, 61);
    assert_eq!(outcome(&ends, 61), RolloutOutcome::Settled { digest: None, note: None }, "it was ready all the time");
    let mut stays = watch();
    let noted = Phase::Complete { digest: None, note: Some("a remark".to_owned()) };
    see(&mut stays, leaving(), 2, 2);
    see(&mut stays, Observation { phase: noted, ..leaving() }, 600, 600);
    let note = Some(format!("a remark; {still}"));
    assert_eq!(outcome(&stays, 600), RolloutOutcome::Settled { digest: None, note });
    let mut unready = watch();
    see(&mut unready, Observation { phase: Phase::Progressing, ..leaving() }, 2, 2);
    see(&mut unready, Observation { phase: Phase::Progressing, ..leaving() }, 600, 600);
    assert!(matches!(outcome(&unready, 600), RolloutOutcome::Failed(_)), "the deadline is that of the new ones");
    let mut failing = watch();
    see(&mut failing, leaving(), 2, 2);
    see(&mut failing, Observation { leaving: Some(still.to_owned()), ..failure() }, 3, 3);
    see(&mut failing, Observation { leaving: Some(still.to_owned()), ..failure() }, 63, 63);
    assert!(matches!(outcome(&failing, 63), RolloutOutcome::Failed(_)));
}

#[test]
fn old_instances_that_end_are_waited_for_until_a_newer_deploy_is_ready() {
    let still = "1 pod of the version before still terminates";
    let leaving = || Observation { leaving: Some(still.to_owned()), ..complete() };
    let (mut app_state, deploy) = rolling(Trigger::Webhook);
    let newer = Deploy { image: Some("registry.example.com/api:v3".parse().unwrap()), ..deploy.clone() };
    let newer = Deploy { revision: Revision::new(3).unwrap(), ..newer.moved(State::Queued) };
    app_state.unfinished.push(std::sync::Arc::new(newer));
    let terms = Terms::of(&app_state, &deploy).unwrap();
    let of = |watch: &RolloutProgress, now| watch.outcome(&terms, at(now));
    let mut watch = RolloutProgress { applied: true, ..RolloutProgress::new(deploy.revision, at(0)) };
    let seen = |watch: &mut RolloutProgress, seen, now: i64| {
        watch.observed(seen, (at(0), Outage::default()), true, at(now), at(now));
    };
    see(&mut watch, leaving(), 2, 2);
    see(&mut watch, leaving(), 60, 60);
    assert_eq!(of(&watch, 62), RolloutOutcome::Wait(at(62)), "it is observed once more before it ends");
    seen(&mut watch, failure(), 62);
    assert!(!watch.awaits_old_ones(&terms), "the new ones fail");
    seen(&mut watch, leaving(), 63);
    assert_eq!(of(&watch, 63), RolloutOutcome::Wait(at(73)), "it settles anew");
    seen(&mut watch, leaving(), 73);
    assert!(watch.awaits_old_ones(&terms));
    assert_eq!(of(&watch, 73), RolloutOutcome::Settled { digest: None, note: Some(still.to_owned()) });
    assert_eq!(outcome(&watch, 73), RolloutOutcome::Wait(at(600)), "nothing newer is ready");
}

#[test]
fn observation_counts_from_the_begin_of_its_call() {
    let mut watch = watch();
    see(&mut watch, complete(), 2, 2);
    see(&mut watch, complete(), 3, 60);
    assert_eq!(outcome(&watch, 60), RolloutOutcome::Wait(at(12)));
}

#[test]
fn rollout_counts_as_complete_from_its_answer_on() {
    let mut watch = watch();
    see(&mut watch, complete(), 2, 50);
    see(&mut watch, complete(), 51, 51);
    assert_eq!(outcome(&watch, 51), RolloutOutcome::Wait(at(60)));
}

#[test]
fn a_clock_that_is_set_ahead_settles_nothing() {
    let mut watch = watch();
    see(&mut watch, complete(), 2, 2);
    watch.clock_set(at(3), at(103));
    see(&mut watch, complete(), 104, 104);
    assert_eq!(outcome(&watch, 104), RolloutOutcome::Wait(at(112)));
}

#[test]
fn trouble_and_deadline_count_only_after_another_observation() {
    let mut watch = watch();
    see(&mut watch, failure(), 2, 2);
    assert_eq!(outcome(&watch, 700), RolloutOutcome::Wait(at(62)));
    see(&mut watch, failure(), 62, 62);
    assert!(matches!(outcome(&watch, 62), RolloutOutcome::Failed(_)));
    let mut late = RolloutProgress::new(Revision::FIRST, at(0));
    see(&mut late, Observation { phase: Phase::Progressing, ..complete() }, 2, 2);
    assert_eq!(outcome(&late, 700), RolloutOutcome::Wait(at(600)));
    see(&mut late, Observation { phase: Phase::Progressing, ..complete() }, 700, 700);
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
            see(&mut watch, failing(kind), *second, *second);
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
    see(&mut watch, failing(RolloutFailureKind::Capacity), 600, 600);
    let RolloutOutcome::Failed(report) = outcome(&watch, 600) else { panic!("it has not failed") };
    assert_eq!(report.reason.as_str(), "ImagePullBackOff");
    assert!(report.message.contains("within 600 s") && report.message.contains("cannot be pulled"), "{report:?}");
}

#[test]
fn crash_loop_at_the_deadline_is_the_reason_also_between_two_of_its_ends() {
    let worker = |is_failing, message: &str| WorkloadState {
        name: "container/worker".to_owned(),
        deploy: None,
        is_complete: false,
        message: message.to_owned(),
        restarts: 3,
        is_failing,
    };
    let crashes = failing(RolloutFailureKind::Crash);
    let crashes = Observation { workloads: vec![worker(true, "exited with code 3")], ..crashes };
    let runs = Observation { failure: None, workloads: vec![worker(false, "it runs")], ..crashes.clone() };
    let mut watch = watch();
    see(&mut watch, crashes, 590, 590);
    see(&mut watch, runs.clone(), 600, 600);
    let RolloutOutcome::Failed(report) = outcome(&watch, 600) else { panic!("it has not failed") };
    assert_eq!(report.observed.map(|failure| failure.reason), Some(report.reason.clone()));
    assert_eq!(watch.failing(&report.reason).map(|worker| worker.message.as_str()), Some("exited with code 3"));
    assert_eq!(watch.failing(&Reason::new(Reason::DEADLINE)), None, "something else has failed the deploy");
    see(&mut watch, runs, 640, 640);
    let RolloutOutcome::Failed(late) = outcome(&watch, 640) else { panic!("it has not failed") };
    assert_eq!((late.reason.as_str(), late.observed), (Reason::DEADLINE, None), "that trouble is over");
}

#[test]
fn failure_that_turns_into_another_that_may_heal_is_the_same() {
    let mut watch = watch();
    let kinds = [RolloutFailureKind::Crash, RolloutFailureKind::Image];
    let fails_at = (1..=600).find(|second| {
        let kind = kinds[usize::try_from(second / 10 % 2).unwrap()];
        see(&mut watch, failing(kind), *second, *second);
        matches!(outcome(&watch, *second), RolloutOutcome::Failed(_))
    });
    assert_eq!(fails_at, Some(61));
}

/// The outcome of a rollout that is complete at each second from the sixth on, by its restarts and lives then.
fn ends(lives: impl Fn(i64) -> (u32, Vec<PastLives>)) -> (i64, RolloutOutcome) {
    let mut watch = watch();
    for second in 1..=700 {
        let (restarts, past_lives) = lives(second);
        let seen = if second < 6 { Observation { phase: Phase::Progressing, ..complete() } } else { complete() };
        see(&mut watch, Observation { restarts, past_lives, ..seen }, second, second);
        let outcome = outcome(&watch, second);
        if !matches!(outcome, RolloutOutcome::Wait(_)) {
            return (second, outcome);
        }
    }
    panic!("it has no end");
}

fn lived(count: u32, last: u64, all: u64) -> Vec<PastLives> {
    let ended_ago = Duration::ZERO;
    vec![PastLives { instance: "api-1".to_owned(), count, last: seconds(last), all: seconds(all), ended_ago }]
}

fn code(outcome: &RolloutOutcome) -> &str {
    let RolloutOutcome::Failed(report) = outcome else { panic!("{outcome:?}") };
    report.reason.as_str()
}

#[test]
fn instance_that_restarted_has_to_outlive_its_earlier_lives() {
    // It is ready 6 s after its first start, and ends 14 s after each: all lives but the first are ready for longer than
    // the settling time.
    let count = |second: i64| u32::try_from(second / 14).unwrap();
    let (_, outcome) = ends(|second| (count(second), lived(count(second), 14, u64::from(count(second)) * 14)));
    assert_eq!(code(&outcome), Reason::RESTARTING);
    // The same, and the second life goes on.
    let once = |second: i64| if second < 14 { (0, Vec::new()) } else { (1, lived(1, 14, 14)) };
    assert!(matches!(ends(once), (42, RolloutOutcome::Settled { .. })), "28 s after its second start");
}

#[test]
fn instance_that_cannot_outlive_its_lives_before_the_deadline_says_so() {
    let late = |second: i64| if second < 9 { (0, Vec::new()) } else { (1, lived(1, 400, 400)) };
    let mut watch = watch();
    let seen = |second| Observation { past_lives: late(second).1, restarts: late(second).0, ..complete() };
    // This process has taken over: the life is as long as the deploy may have been.
    see(&mut watch, seen(400), 400, 400);
    see(&mut watch, seen(600), 600, 600);
    let outcome = outcome(&watch, 600);
    assert_eq!(code(&outcome), Reason::RESTARTING);
    let RolloutOutcome::Failed(report) = outcome else { panic!("it has not failed") };
    assert!(report.message.contains("did not run for 800 s"), "{}", report.message);
}

/// The second at which a deploy fails whose old instance has stopped at second 5, and the code.
fn fails_where_the_old_one_stops_first(
    trigger: Trigger,
    has_current: bool,
    seen: impl Fn(i64) -> Observation,
) -> (i64, String) {
    let (mut app_state, deploy) = rolling(trigger);
    if has_current {
        app_state.current = Some(std::sync::Arc::new(queued(1, Trigger::Webhook, crate::deploy::Actor::Ci, None)));
    }
    let terms = Terms::of(&app_state, &deploy).unwrap();
    let mut watch = watch();
    for second in 1..=700 {
        let down_for = u64::try_from(second - 5).ok().map(seconds);
        see(&mut watch, Observation { phase: Phase::Progressing, down_for, ..seen(second) }, second, second);
        if let RolloutOutcome::Failed(report) = watch.outcome(&terms, at(second)) {
            return (second, report.reason.as_str().to_owned());
        }
    }
    panic!("it has no end");
}

#[test]
fn app_that_is_down_for_a_deploy_is_ready_in_time_or_fails() {
    let unready = |_| complete();
    let failed = |trigger, current| fails_where_the_old_one_stops_first(trigger, current, unready);
    assert_eq!(failed(Trigger::Webhook, true), (65, Reason::NOT_READY.to_owned()));
    let deadline = (600, Reason::DEADLINE.to_owned());
    assert_eq!(failed(Trigger::Rollback, true), deadline, "a restore may take its time");
    assert_eq!(failed(Trigger::Webhook, false), deadline, "as may a first version");
}

#[test]
fn app_that_is_down_for_a_deploy_does_not_wait_for_a_second_end() {
    let crashed = |_| failing(RolloutFailureKind::Crash);
    let failed = |trigger, current| fails_where_the_old_one_stops_first(trigger, current, crashed);
    assert_eq!(failed(Trigger::Webhook, true).0, 5);
    assert_eq!(failed(Trigger::Rollback, true).0, 61);
    assert_eq!(failed(Trigger::Webhook, false).0, 61);
    let unhealthy = |_| failing(RolloutFailureKind::Unhealthy);
    assert_eq!(fails_where_the_old_one_stops_first(Trigger::Webhook, true, unhealthy).0, 61, "it runs");
}

#[test]
fn room_that_the_platform_lacks_is_waited_for_also_while_the_app_is_down() {
    let full = |_| failing(RolloutFailureKind::Capacity);
    assert_eq!(fails_where_the_old_one_stops_first(Trigger::Webhook, true, full).0, 600);
}

#[test]
fn process_that_takes_over_knows_how_long_the_app_has_been_down() {
    let (mut app_state, deploy) = rolling(Trigger::Webhook);
    app_state.current = Some(std::sync::Arc::new(queued(1, Trigger::Webhook, crate::deploy::Actor::Ci, None)));
    let down = |lasted| Observation { phase: Phase::Progressing, down_for: Some(seconds(lasted)), ..complete() };
    let fails = |lasted, outage: Outage| {
        let mut watch = watch();
        watch.observed(down(lasted), (at(0), outage), false, at(100), at(100));
        let deploy = deploy.moved(State::RollingOut { since: at(0), outage });
        matches!(watch.outcome(&Terms::of(&app_state, &deploy).unwrap(), at(100)), RolloutOutcome::Failed(_))
    };
    assert!(fails(60, Outage::default()) && !fails(59, Outage::default()));
    let away = |past| Outage { since: None, past: seconds(past) };
    assert!(!fails(90, away(50)), "the time in which the cluster was away does not count");
    assert!(fails(90, away(40)));
}
