use std::sync::Arc;

use super::*;
use crate::{
    app::{Hold, Policy},
    samples::{NOW, git_app, queued, revision, sha},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn view(uid: u128, poll: Option<Duration>) -> AppState {
    AppState::new(git_app(uid, Policy { poll, ..Policy::default() }))
}

/// Entries of these triggers and commits, as a page shows them when they were accepted in this order.
fn newest(entries: &[(Trigger, &str)]) -> Vec<Deploy> {
    let entry = |(number, (trigger, commit)): (usize, &(Trigger, &str))| {
        queued(number as u64 + 1, *trigger, Actor::Service, commit.parse().ok())
    };
    entries.iter().enumerate().map(entry).rev().collect()
}

fn finding(head: &str, before: Option<&str>, again: bool) -> Finding {
    Finding { head: sha(head), before: before.map(sha), again }
}

/// What becomes of a head that two looks have found.
fn decided(entries: &[(Trigger, &str)], head: &str, before: Option<&str>) -> Verdict {
    decide(&view(1, Some(MINUTE)), &newest(entries), &finding(head, before, true))
}

#[track_caller]
fn assert_deployed(verdict: Verdict, head: &str) {
    let Verdict::Deploy(draft) = verdict else { panic!("{verdict:?}") };
    assert_eq!((draft.trigger, draft.commit, draft.actor), (Trigger::Git, Some(sha(head)), Actor::Service));
}

#[test]
fn what_the_history_has_is_known_whoever_brought_it() {
    let (a, b) = (sha("a1").to_string(), sha("b2").to_string());
    assert_deployed(decided(&[], "a1", None), "a1");
    assert_deployed(decided(&[(Trigger::Webhook, &b)], "a1", None), "a1");
    for trigger in [Trigger::Webhook, Trigger::Manual, Trigger::Rollback, Trigger::Git] {
        assert_eq!(decided(&[(trigger, &a)], "a1", None), Verdict::Known, "{trigger}");
        assert_eq!(decided(&[(trigger, &a), (Trigger::Webhook, &b)], "a1", None), Verdict::Known, "{trigger}");
    }
    assert_eq!(decided(&[(Trigger::Webhook, "a100000")], "a1", None), Verdict::Known, "by its first digits");
    assert_deployed(decided(&[(Trigger::Manual, "a label")], "a1", None), "a1");
}

#[test]
fn a_branch_that_was_taken_back_is_deployed_once() {
    let (a, b) = (sha("a1").to_string(), sha("b2").to_string());
    let (ours, theirs) = (Trigger::Git, Trigger::Webhook);
    assert_deployed(decided(&[(theirs, &a), (theirs, &b)], "a1", Some("b2")), "a1");
    assert_deployed(decided(&[(theirs, &a), (ours, &b)], "a1", None), "a1");
    assert_eq!(decided(&[(theirs, &a), (ours, &b), (ours, &a)], "a1", Some("b2")), Verdict::Known);
    assert_eq!(decided(&[(theirs, &a), (ours, &b), (Trigger::Rollback, &a)], "a1", Some("b2")), Verdict::Known);
    assert_eq!(decided(&[(theirs, &a)], "a1", Some("b2")), Verdict::Known, "the other was never deployed");
    assert_eq!(decided(&[(theirs, &a), (theirs, &b)], "a1", None), Verdict::Known, "nobody knows that it was the head");
    assert_eq!(decided(&[(ours, &a), (theirs, &b)], "a1", Some("a1")), Verdict::Known);
}

#[test]
fn what_somebody_has_built_again_takes_no_branch_back() {
    let (a, b, c) = (sha("a1").to_string(), sha("b2").to_string(), sha("c3").to_string());
    let (ours, person) = (Trigger::Git, Trigger::Manual);
    let again = [(ours, &*a), (ours, &*b), (person, &*c), (person, &*b)];
    assert_eq!(decided(&again, "c3", Some("b2")), Verdict::Known, "the branch went from b2 to c3, and never back");
    assert_deployed(decided(&[(ours, &a), (ours, &b), (ours, &a)], "b2", Some("a1")), "b2");
}

#[test]
fn one_look_takes_no_branch_back() {
    let (a, b) = (sha("a1").to_string(), sha("b2").to_string());
    let entries = newest(&[(Trigger::Git, &a), (Trigger::Git, &b)]);
    let view = view(1, Some(MINUTE));
    for before in [Some("b2"), None] {
        assert_eq!(decide(&view, &entries, &finding("a1", before, false)), Verdict::Doubtful);
        assert_deployed(decide(&view, &entries, &finding("a1", before, true)), "a1");
        assert_deployed(decide(&view, &entries, &finding("c3", before, false)), "c3");
    }
}

#[test]
fn where_the_history_is_cut_an_unknown_head_may_be_an_old_one() {
    let b = sha("b2").to_string();
    let decided = |trigger, skipped: usize, before| {
        let mut entries = newest(&[(trigger, &b), (trigger, &b), (trigger, &b)]);
        entries.truncate(3 - skipped);
        decide(&view(1, Some(MINUTE)), &entries, &finding("a1", before, false))
    };
    assert_eq!(decided(Trigger::Webhook, 1, None), Verdict::Forgotten);
    assert_deployed(decided(Trigger::Webhook, 0, None), "a1");
    assert_deployed(decided(Trigger::Webhook, 1, Some("b2")), "a1");
    assert_deployed(decided(Trigger::Git, 1, None), "a1");
}

#[test]
fn what_is_held_is_not_deployed() {
    let mut view = view(1, Some(MINUTE));
    Arc::make_mut(&mut view.app).holds =
        vec![Hold { by: revision(7), image: None, digest: None, commit: Some(sha("a1")) }];
    assert_eq!(decide(&view, &[], &finding("a1", None, false)), Verdict::Held(revision(7)));
    assert_deployed(decide(&view, &[], &finding("b2", None, false)), "b2");
}

/// A driver's poll whose app was just read for the first time.
fn poll(view: &AppState) -> Polling {
    let mut poll = Polling::default();
    poll.loaded(view, NOW);
    poll
}

fn detect(head: &str, before: Option<&str>, again: bool) -> Turn {
    Turn::Detect(Box::new(finding(head, before, again)))
}

/// When the next look is due; the app is read again meanwhile as often as it must be.
fn due(poll: &mut Polling, view: &AppState) -> Timestamp {
    let mut now = poll.read;
    loop {
        match poll.turn(view, now) {
            Turn::At(at) => now = at,
            Turn::Refresh => poll.loaded(view, now),
            Turn::Load => return now,
            turn @ (Turn::Idle | Turn::Ask(_) | Turn::Detect(_)) => panic!("{turn:?}"),
        }
    }
}

/// Has the poll look, and answers it; returns when that was, and what it wants then.
fn look(poll: &mut Polling, view: &AppState, answer: Option<&str>, chance: u64) -> (Timestamp, Turn) {
    let at = due(poll, view);
    assert_eq!(poll.turn(view, at), Turn::Load);
    poll.reading();
    assert_eq!(poll.turn(view, at), Turn::Idle);
    poll.loaded(view, at);
    assert!(matches!(poll.turn(view, at), Turn::Ask(_)));
    poll.asked();
    assert_eq!(poll.turn(view, at), Turn::Idle);
    poll.answered(view, answer.map(sha), at, chance);
    (at, poll.turn(view, at))
}

#[test]
fn apps_are_spread_and_their_looks_too() {
    let points: std::collections::BTreeSet<_> = (0..100)
        .map(|number| {
            let view = view(number * 0x1234_5678_9abc_def1, Some(MINUTE));
            let turn = poll(&view).turn(&view, Timestamp::default());
            let Turn::At(at) = turn else { panic!("{turn:?}") };
            at.since(NOW)
        })
        .collect();
    assert!(points.len() > 90 && points.iter().all(|point| *point < MINUTE));
    for chance in [0, 1, 5_999, u64::MAX / 2, u64::MAX] {
        let wait = jittered(MINUTE, chance);
        assert!((MINUTE * 9 / 10..=MINUTE * 11 / 10).contains(&wait), "{wait:?}");
    }
    assert_ne!(jittered(MINUTE, 1), jittered(MINUTE, 2));
    assert_eq!(jittered(Duration::ZERO, 7), Duration::ZERO);
}

#[test]
fn an_app_that_is_not_polled_wants_nothing() {
    let mut other = view(1, None);
    assert_eq!(poll(&other).turn(&other, NOW), Turn::Idle);
    Arc::make_mut(&mut other.app).source = Source::Image;
    Arc::make_mut(&mut other.app).policy.poll = Some(MINUTE);
    assert_eq!(poll(&other).turn(&other, NOW), Turn::Idle);
    let on = view(1, Some(MINUTE));
    let mut poll = poll(&on);
    poll.loaded(&view(1, None), NOW);
    assert_eq!(poll, Polling::default(), "all is forgotten");
}

#[test]
fn a_new_head_is_decided_on_and_an_old_one_is_not() {
    let view = view(1, Some(MINUTE));
    let mut poll = poll(&view);
    let (at, turn) = look(&mut poll, &view, Some("a1"), 0);
    assert_eq!(turn, detect("a1", None, false));
    poll.detected(&view, &Detected::Known, at, 0);
    let (at, turn) = look(&mut poll, &view, Some("a1"), 0);
    assert_eq!(turn, Turn::At(at.after(MINUTE * 9 / 10)));
    let (at, turn) = look(&mut poll, &view, Some("b2"), 0);
    assert_eq!(turn, detect("b2", Some("a1"), false));
    poll.detected(&view, &Detected::Held(revision(3)), at, 0);
    let (at, turn) = look(&mut poll, &view, Some("b2"), 0);
    assert_eq!(turn, detect("b2", Some("a1"), false), "a hold may be lifted");
    poll.detected(&view, &Detected::Later, at, u64::MAX);
    assert!(matches!(poll.turn(&view, at), Turn::At(again) if again.since(at) <= AGAIN * 11 / 10));
}

#[test]
fn an_older_head_is_believed_once_two_looks_in_a_row_have_found_it() {
    let view = view(1, Some(MINUTE));
    let mut poll = poll(&view);
    let (at, _) = look(&mut poll, &view, Some("b2"), 0);
    poll.detected(&view, &Detected::Known, at, 0);
    for between in [Some("b2"), None] {
        let (at, turn) = look(&mut poll, &view, Some("a1"), 0);
        assert_eq!(turn, detect("a1", Some("b2"), false));
        poll.detected(&view, &Detected::Doubtful, at, u64::MAX);
        assert!(matches!(poll.turn(&view, at), Turn::At(again) if again.since(at) <= AGAIN * 11 / 10));
        look(&mut poll, &view, between, 0);
    }
    let (at, turn) = look(&mut poll, &view, Some("a1"), 0);
    assert_eq!(turn, detect("a1", Some("b2"), false), "something else was seen between");
    poll.detected(&view, &Detected::Doubtful, at, 0);
    let (at, turn) = look(&mut poll, &view, Some("a1"), 0);
    assert_eq!(turn, detect("a1", Some("b2"), true));
    poll.detected(&view, &Detected::Later, at, 0);
    let (at, turn) = look(&mut poll, &view, Some("a1"), 0);
    assert_eq!(turn, detect("a1", Some("b2"), true), "it stays believed");
    poll.detected(&view, &Detected::Accepted(revision(3)), at, 0);
    let (at, turn) = look(&mut poll, &view, Some("b2"), 0);
    assert_eq!(turn, detect("b2", Some("a1"), false), "each time anew");
    poll.detected(&view, &Detected::Doubtful, at, 0);
    // Looks may come closer together than answers of one moment do.
    poll.phase = Phase::Asked;
    poll.answered(&view, Some(sha("b2")), at.after(SECOND), 0);
    assert_eq!(poll.turn(&view, at.after(SECOND)), detect("b2", Some("a1"), false));
    poll.detected(&view, &Detected::Doubtful, at.after(SECOND), 0);
    poll.phase = Phase::Asked;
    poll.answered(&view, Some(sha("b2")), at.after(DOUBT), 0);
    assert_eq!(poll.turn(&view, at.after(DOUBT)), detect("b2", Some("a1"), true));
}

#[test]
fn a_look_for_which_there_is_no_room_is_no_failure() {
    let view = view(1, Some(MINUTE * 10));
    let mut poll = poll(&view);
    for _ in 0..20 {
        let at = due(&mut poll, &view);
        poll.reading();
        poll.loaded(&view, at);
        poll.asked();
        poll.put_off(&view, at);
        assert_eq!((due(&mut poll, &view).since(at), poll.failures), (AGAIN, 0));
    }
}

#[test]
fn a_source_that_cannot_be_read_is_asked_less_and_less_often() {
    for interval in [MINUTE, MINUTE * 60] {
        let view = view(1, Some(interval));
        let mut poll = poll(&view);
        let mut last = Duration::ZERO;
        for _ in 0..40 {
            let (at, _) = look(&mut poll, &view, None, 0);
            let wait = due(&mut poll, &view).since(at);
            assert!(wait >= last, "never more often");
            last = wait;
        }
        assert_eq!(last, interval.max(BACKOFF_MAX) * 9 / 10);
        let (at, _) = look(&mut poll, &view, Some("a1"), 0);
        poll.detected(&view, &Detected::Known, at, 0);
        assert_eq!(due(&mut poll, &view).since(at), interval * 9 / 10);
    }
}

#[test]
fn a_shorter_interval_and_another_source_hold_at_once() {
    let slow = view(1, Some(MINUTE * 600));
    let mut poll = poll(&slow);
    look(&mut poll, &slow, None, 0);
    let mut fast = view(1, Some(MINUTE));
    poll.failures = 0;
    poll.loaded(&fast, NOW);
    assert!(matches!(poll.turn(&fast, NOW), Turn::At(at) if at <= NOW.after(MINUTE)));
    poll.at_least(MINUTE * 5);
    poll.loaded(&slow, NOW);
    let Source::Git(source) = &mut Arc::make_mut(&mut fast.app).source else { panic!("it is one") };
    source.branch = "next".parse().unwrap();
    poll.loaded(&fast, NOW);
    assert_eq!(poll.turn(&fast, NOW), Turn::Load);
    assert_eq!(poll.interval(&fast), Some(MINUTE * 5), "the operator's bound outlives it");
}

#[test]
fn what_an_owner_decides_elsewhere_is_known_in_time() {
    let slow = view(1, Some(MINUTE * 600));
    let mut poll = poll(&slow);
    let (at, _) = look(&mut poll, &slow, Some("a1"), 0);
    poll.detected(&slow, &Detected::Known, at, 0);
    let asked = at.after(REFRESH);
    assert_eq!(poll.turn(&slow, at), Turn::At(asked));
    assert_eq!(poll.turn(&slow, asked), Turn::Refresh);
    let fast = view(1, Some(MINUTE));
    poll.loaded(&fast, asked);
    assert_eq!(due(&mut poll, &fast).since(asked), MINUTE);
}

#[test]
fn an_answer_that_nobody_waits_for_is_none() {
    let view = view(1, Some(MINUTE));
    let mut poll = poll(&view);
    let before = poll.clone();
    poll.answered(&view, Some(sha("a1")), NOW, 0);
    poll.detected(&view, &Detected::Known, NOW, 0);
    poll.put_off(&view, NOW);
    assert_eq!(poll, before);
}
