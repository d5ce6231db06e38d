use std::sync::Arc;

use super::*;
use crate::{
    app::{Hold, Policy},
    deploy::Origin,
    engine::{Effect, Event, State, step},
    tests::{NOW, git_app, queued, revision, sha},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn app_state(uid: u128, poll: Option<Duration>) -> AppState {
    AppState::new(git_app(uid, Policy { poll, ..Policy::default() }))
}

/// Entries of these triggers and commits, as a page shows them when they were accepted in this order.
fn newest(entries: &[(Trigger, &str)]) -> Vec<Deploy> {
    let entry = |(number, (trigger, commit)): (usize, &(Trigger, &str))| {
        queued(number as u64 + 1, *trigger, Actor::Service, commit.parse().ok())
    };
    entries.iter().enumerate().map(entry).rev().collect()
}

fn commit(text: &str) -> Head {
    Head::Commit(sha(text))
}

fn finding(head: &str, before: Option<&str>, confirmed: bool) -> Finding {
    let unchanged_for = if confirmed { CONFIRM_AFTER } else { Duration::ZERO };
    Finding { head: commit(head), before: before.map(commit), unchanged_for, new_for: unchanged_for }
}

fn decide(app_state: &AppState, entries: &[Deploy], finding: &Finding) -> HeadDecision {
    let Head::Commit(head) = &finding.head else { panic!("{finding:?}") };
    super::decide(app_state, entries, head, finding)
}

/// Returns the decision on a head that two polls have found.
fn decided(entries: &[(Trigger, &str)], head: &str, before: Option<&str>) -> HeadDecision {
    decide(&app_state(1, Some(MINUTE)), &newest(entries), &finding(head, before, true))
}

#[track_caller]
fn assert_deployed(verdict: HeadDecision, head: &str) {
    let HeadDecision::Deploy(draft) = verdict else { panic!("{verdict:?}") };
    assert_eq!((draft.trigger, draft.commit, draft.actor), (Trigger::Git, Some(sha(head)), Actor::Service));
}

#[test]
fn commit_in_the_history_is_known_for_any_trigger() {
    let (a, b) = (sha("a1").to_string(), sha("b2").to_string());
    assert_deployed(decided(&[], "a1", None), "a1");
    assert_deployed(decided(&[(Trigger::Webhook, &b)], "a1", None), "a1");
    for trigger in [Trigger::Webhook, Trigger::Manual, Trigger::Rollback, Trigger::Git] {
        assert_eq!(decided(&[(trigger, &a)], "a1", None), HeadDecision::Known, "{trigger}");
        assert_eq!(decided(&[(trigger, &a), (Trigger::Webhook, &b)], "a1", None), HeadDecision::Known, "{trigger}");
    }
    assert_eq!(decided(&[(Trigger::Webhook, "a100000")], "a1", None), HeadDecision::Known, "by its first digits");
    assert_deployed(decided(&[(Trigger::Manual, "a label")], "a1", None), "a1");
}

#[test]
fn reset_branch_is_deployed_once() {
    let (a, b) = (sha("a1").to_string(), sha("b2").to_string());
    let (ours, theirs) = (Trigger::Git, Trigger::Webhook);
    assert_deployed(decided(&[(theirs, &a), (theirs, &b)], "a1", Some("b2")), "a1");
    assert_deployed(decided(&[(theirs, &a), (ours, &b)], "a1", None), "a1");
    assert_eq!(decided(&[(theirs, &a), (ours, &b), (ours, &a)], "a1", Some("b2")), HeadDecision::Known);
    assert_eq!(decided(&[(theirs, &a), (ours, &b), (Trigger::Rollback, &a)], "a1", Some("b2")), HeadDecision::Known);
    assert_eq!(decided(&[(theirs, &a)], "a1", Some("b2")), HeadDecision::Known, "the other was never deployed");
    assert_eq!(
        decided(&[(theirs, &a), (theirs, &b)], "a1", None),
        HeadDecision::Known,
        "nobody knows that it was the head"
    );
    assert_eq!(decided(&[(ours, &a), (theirs, &b)], "a1", Some("a1")), HeadDecision::Known);
}

#[test]
fn image_that_was_entered_anew_is_not_taken_for_a_reset() {
    let (a, b) = (sha("a1").to_string(), sha("b2").to_string());
    let mut entries = newest(&[(Trigger::Git, &a), (Trigger::Git, &b), (Trigger::Rollback, "v0"), (Trigger::Git, &a)]);
    assert_deployed(decide(&app_state(1, Some(MINUTE)), &entries, &finding("b2", None, true)), "b2");
    entries[0].from = Some(Origin::Built(Revision::FIRST));
    let decided = decide(&app_state(1, Some(MINUTE)), &entries, &finding("b2", None, true));
    assert_eq!(decided, HeadDecision::Known, "the branch went from a1 to b2, and never back");
}

#[test]
fn rebuild_is_not_taken_for_a_reset() {
    let (a, b, c) = (sha("a1").to_string(), sha("b2").to_string(), sha("c3").to_string());
    let (ours, person) = (Trigger::Git, Trigger::Manual);
    let confirmed = [(ours, &*a), (ours, &*b), (person, &*c), (person, &*b)];
    assert_eq!(
        decided(&confirmed, "c3", Some("b2")),
        HeadDecision::Known,
        "the branch went from b2 to c3, and never back"
    );
    assert_deployed(decided(&[(ours, &a), (ours, &b), (ours, &a)], "b2", Some("a1")), "b2");
}

#[test]
fn single_poll_does_not_prove_a_reset() {
    let (a, b) = (sha("a1").to_string(), sha("b2").to_string());
    let entries = newest(&[(Trigger::Git, &a), (Trigger::Git, &b)]);
    let app_state = app_state(1, Some(MINUTE));
    for before in [Some("b2"), None] {
        assert_eq!(
            decide(&app_state, &entries, &finding("a1", before, false)),
            HeadDecision::Unconfirmed(RETRY_INTERVAL)
        );
        assert_deployed(decide(&app_state, &entries, &finding("a1", before, true)), "a1");
        assert_deployed(decide(&app_state, &entries, &finding("c3", before, false)), "c3");
    }
}

#[test]
fn unknown_head_is_ignored_if_old_entries_are_forgotten() {
    let b = sha("b2").to_string();
    let decided = |trigger, skipped: usize, before| {
        let mut entries = newest(&[(trigger, &b), (trigger, &b), (trigger, &b)]);
        entries.truncate(3 - skipped);
        decide(&app_state(1, Some(MINUTE)), &entries, &finding("a1", before, false))
    };
    assert_eq!(decided(Trigger::Webhook, 1, None), HeadDecision::Forgotten);
    assert_deployed(decided(Trigger::Webhook, 0, None), "a1");
    assert_deployed(decided(Trigger::Webhook, 1, Some("b2")), "a1");
    assert_deployed(decided(Trigger::Git, 1, None), "a1");
}

#[test]
fn held_head_is_not_deployed() {
    let mut app_state = app_state(1, Some(MINUTE));
    Arc::make_mut(&mut app_state.app).holds =
        vec![Hold { by: revision(7), image: None, digest: None, commit: Some(sha("a1")) }];
    assert_eq!(decide(&app_state, &[], &finding("a1", None, false)), HeadDecision::Held(revision(7)));
    assert_deployed(decide(&app_state, &[], &finding("b2", None, false)), "b2");
}

/// A driver's poll whose app was just read for the first time.
fn poll(app_state: &AppState) -> Polling {
    let mut poll = Polling::default();
    poll.loaded(app_state, NOW);
    poll
}

#[track_caller]
fn assert_detects(step: &PollStep, head: &str, before: Option<&str>, confirmed: bool) {
    let PollStep::Detect(found) = step else { panic!("{step:?}") };
    let is_confirmed = found.unchanged_for >= CONFIRM_AFTER;
    assert_eq!((&found.head, &found.before, is_confirmed), (&commit(head), &before.map(commit), confirmed));
}

/// When the next look is due; the app is read confirmed meanwhile as often as it must be.
fn due(poll: &mut Polling, app_state: &AppState) -> Timestamp {
    let mut now = poll.read;
    loop {
        match poll.next_step(app_state, now) {
            PollStep::At(at) => now = at,
            PollStep::Reload => poll.loaded(app_state, now),
            PollStep::Load => return now,
            next_step @ (PollStep::Idle | PollStep::Read(_) | PollStep::Detect(_)) => panic!("{next_step:?}"),
        }
    }
}

/// Has the poll look, and answers it; returns when that was, and what it wants then.
fn look(poll: &mut Polling, app_state: &AppState, answer: Option<&str>, random: u64) -> (Timestamp, PollStep) {
    let at = due(poll, app_state);
    assert_eq!(poll.next_step(app_state, at), PollStep::Load);
    poll.load_started();
    assert_eq!(poll.next_step(app_state, at), PollStep::Idle);
    poll.loaded(app_state, at);
    assert!(matches!(poll.next_step(app_state, at), PollStep::Read(_)));
    poll.read_started();
    assert_eq!(poll.next_step(app_state, at), PollStep::Idle);
    poll.read_ended(app_state, answer.map(commit), at, random);
    (at, poll.next_step(app_state, at))
}

#[test]
fn polls_are_spread_over_time() {
    let points: std::collections::BTreeSet<_> = (0..100)
        .map(|number| {
            let app_state = app_state(number * 0x1234_5678_9abc_def1, Some(MINUTE));
            let next_step = poll(&app_state).next_step(&app_state, Timestamp::default());
            let PollStep::At(at) = next_step else { panic!("{next_step:?}") };
            at.since(NOW)
        })
        .collect();
    assert!(points.len() > 90 && points.iter().all(|point| *point < MINUTE));
    for random in [0, 1, 5_999, u64::MAX / 2, u64::MAX] {
        let wait = jittered(MINUTE, random);
        assert!((MINUTE * 9 / 10..=MINUTE * 11 / 10).contains(&wait), "{wait:?}");
    }
    assert_ne!(jittered(MINUTE, 1), jittered(MINUTE, 2));
    assert_eq!(jittered(Duration::ZERO, 7), Duration::ZERO);
}

#[test]
fn app_without_polling_has_no_next_step() {
    let mut other = app_state(1, None);
    assert_eq!(poll(&other).next_step(&other, NOW), PollStep::Idle);
    Arc::make_mut(&mut other.app).source = Source::Image;
    Arc::make_mut(&mut other.app).policy.poll = Some(MINUTE);
    assert_eq!(poll(&other).next_step(&other, NOW), PollStep::Idle);
    let on = app_state(1, Some(MINUTE));
    let mut poll = poll(&on);
    poll.loaded(&app_state(1, None), NOW);
    assert_eq!(poll, Polling::default(), "all is forgotten");
}

#[test]
fn a_new_head_is_decided_on_and_an_old_one_is_not() {
    let app_state = app_state(1, Some(MINUTE));
    let mut poll = poll(&app_state);
    let (at, next_step) = look(&mut poll, &app_state, Some("a1"), 0);
    assert_detects(&next_step, "a1", None, false);
    poll.decided(&app_state, &Detected::Known, at, 0);
    let (at, next_step) = look(&mut poll, &app_state, Some("a1"), 0);
    assert_eq!(next_step, PollStep::At(at.after(MINUTE * 9 / 10)));
    let (at, next_step) = look(&mut poll, &app_state, Some("b2"), 0);
    assert_detects(&next_step, "b2", Some("a1"), false);
    poll.decided(&app_state, &Detected::Held(revision(3)), at, 0);
    let (at, next_step) = look(&mut poll, &app_state, Some("b2"), 0);
    assert_detects(&next_step, "b2", Some("a1"), false); // a hold may be lifted
    poll.decided(&app_state, &Detected::Postponed, at, u64::MAX);
    assert!(
        matches!(poll.next_step(&app_state, at), PollStep::At(confirmed) if confirmed.since(at) <= RETRY_INTERVAL * 11 / 10)
    );
}

#[test]
fn older_head_is_believed_after_two_consecutive_polls() {
    let app_state = app_state(1, Some(MINUTE));
    let mut poll = poll(&app_state);
    let (at, _) = look(&mut poll, &app_state, Some("b2"), 0);
    poll.decided(&app_state, &Detected::Known, at, 0);
    for between in [Some("b2"), None] {
        let (at, next_step) = look(&mut poll, &app_state, Some("a1"), 0);
        assert_detects(&next_step, "a1", Some("b2"), false);
        poll.decided(&app_state, &Detected::Unconfirmed(RETRY_INTERVAL), at, u64::MAX);
        assert!(
            matches!(poll.next_step(&app_state, at), PollStep::At(confirmed) if confirmed.since(at) <= RETRY_INTERVAL * 11 / 10)
        );
        look(&mut poll, &app_state, between, 0);
    }
    let (at, next_step) = look(&mut poll, &app_state, Some("a1"), 0);
    assert_detects(&next_step, "a1", Some("b2"), false); // something else was decided_head between
    poll.decided(&app_state, &Detected::Unconfirmed(RETRY_INTERVAL), at, 0);
    let (at, next_step) = look(&mut poll, &app_state, Some("a1"), 0);
    assert_detects(&next_step, "a1", Some("b2"), true);
    poll.decided(&app_state, &Detected::Postponed, at, 0);
    let (at, next_step) = look(&mut poll, &app_state, Some("a1"), 0);
    assert_detects(&next_step, "a1", Some("b2"), true); // it stays believed
    poll.decided(&app_state, &Detected::Accepted(revision(3)), at, 0);
    let (at, next_step) = look(&mut poll, &app_state, Some("b2"), 0);
    assert_detects(&next_step, "b2", Some("a1"), false); // each time anew
    poll.decided(&app_state, &Detected::Unconfirmed(RETRY_INTERVAL), at, 0);
    // Looks may come closer together than answers of one moment do.
    poll.phase = Phase::Reading;
    poll.read_ended(&app_state, Some(commit("b2")), at.after(SECOND), 0);
    assert_detects(&poll.next_step(&app_state, at.after(SECOND)), "b2", Some("a1"), false);
    poll.decided(&app_state, &Detected::Unconfirmed(RETRY_INTERVAL), at.after(SECOND), 0);
    poll.phase = Phase::Reading;
    poll.read_ended(&app_state, Some(commit("b2")), at.after(CONFIRM_AFTER), 0);
    assert_detects(&poll.next_step(&app_state, at.after(CONFIRM_AFTER)), "b2", Some("a1"), true);
}

#[test]
fn poll_without_capacity_does_not_count_as_failure() {
    let app_state = app_state(1, Some(MINUTE * 10));
    let mut poll = poll(&app_state);
    for _ in 0..20 {
        let at = due(&mut poll, &app_state);
        poll.load_started();
        poll.loaded(&app_state, at);
        poll.read_started();
        poll.postpone(&app_state, at);
        assert_eq!((due(&mut poll, &app_state).since(at), poll.failures), (RETRY_INTERVAL, 0));
    }
}

#[test]
fn unreadable_source_is_polled_with_growing_pauses() {
    for interval in [MINUTE, MINUTE * 60] {
        let app_state = app_state(1, Some(interval));
        let mut poll = poll(&app_state);
        let mut last = Duration::ZERO;
        for _ in 0..40 {
            let (at, _) = look(&mut poll, &app_state, None, 0);
            let wait = due(&mut poll, &app_state).since(at);
            assert!(wait >= last, "never more often");
            last = wait;
        }
        assert_eq!(last, interval.max(BACKOFF_MAX) * 9 / 10);
        let (at, _) = look(&mut poll, &app_state, Some("a1"), 0);
        poll.decided(&app_state, &Detected::Known, at, 0);
        assert_eq!(due(&mut poll, &app_state).since(at), interval * 9 / 10);
    }
}

#[test]
fn new_interval_and_new_source_apply_at_once() {
    let slow = app_state(1, Some(MINUTE * 600));
    let mut poll = poll(&slow);
    look(&mut poll, &slow, None, 0);
    let mut fast = app_state(1, Some(MINUTE));
    poll.failures = 0;
    poll.loaded(&fast, NOW);
    assert!(matches!(poll.next_step(&fast, NOW), PollStep::At(at) if at <= NOW.after(MINUTE)));
    poll.at_least(MINUTE * 5);
    poll.loaded(&slow, NOW);
    let Source::Git(source) = &mut Arc::make_mut(&mut fast.app).source else { panic!("it is one") };
    source.branch = "next".parse().unwrap();
    poll.loaded(&fast, NOW);
    assert_eq!(poll.next_step(&fast, NOW), PollStep::Load);
    assert_eq!(poll.interval(&fast), Some(MINUTE * 5), "the operator's bound outlives it");
}

#[test]
fn driver_learns_that_it_polls_from_the_answer_to_its_own_record() {
    let polled = app_state(1, Some(MINUTE));
    let state = State::new(app_state(1, None), NOW);
    let (state, _) = step(state, Event::Recorded(Box::new(polled)), NOW);
    let (_, effect) = step(state, Event::BuildFound(Ok(None)), NOW);
    assert!(matches!(effect, Effect::Wait(until) if until <= NOW.after(MINUTE)), "{effect:?}");
}

#[test]
fn settings_changed_at_another_replica_are_reloaded() {
    let slow = app_state(1, Some(MINUTE * 600));
    let mut poll = poll(&slow);
    let (at, _) = look(&mut poll, &slow, Some("a1"), 0);
    poll.decided(&slow, &Detected::Known, at, 0);
    let asked = at.after(RELOAD_INTERVAL);
    assert_eq!(poll.next_step(&slow, at), PollStep::At(asked));
    assert_eq!(poll.next_step(&slow, asked), PollStep::Reload);
    let fast = app_state(1, Some(MINUTE));
    poll.loaded(&fast, asked);
    assert_eq!(due(&mut poll, &fast).since(asked), MINUTE);
}

#[test]
fn unexpected_answer_is_ignored() {
    let app_state = app_state(1, Some(MINUTE));
    let mut poll = poll(&app_state);
    let before = poll.clone();
    poll.read_ended(&app_state, Some(commit("a1")), NOW, 0);
    poll.decided(&app_state, &Detected::Known, NOW, 0);
    poll.postpone(&app_state, NOW);
    assert_eq!(poll, before);
}
