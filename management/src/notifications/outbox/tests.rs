use std::collections::BTreeSet;

use proptest::prelude::*;

use rollhook_conformance::samples::{admission, admit, app, deploy, revision};
use rollhook_core::{
    deploy::{Outage, Reason, State, Verification},
    ledger::Change,
    time::Timestamp,
};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const ID: &str = "0123456789abcdef0123456789abcdef";

fn cursor(seen: Option<u64>) -> Cursor {
    Cursor::after(ID.parse().unwrap(), AppUid::from_bits(1), seen.map(revision))
}

/// The entries of an app, as its store has them.
#[derive(Default)]
struct Entries(Vec<Deploy>);

impl Entries {
    fn accept(&mut self) {
        let mut change = Change::on(self.state());
        self.0.push(admit(&mut change, admission(deploy("v1")), NOW));
    }

    /// Moves an entry on, unless it has ended.
    fn advance(&mut self, at: usize, choice: u8) {
        let count = self.0.len().max(1);
        let Some(entry) = self.0.get_mut(at % count) else { return };
        let state = match (&entry.state, choice % 4) {
            (State::Queued, 0) => {
                State::Building { since: NOW, source: Default::default(), paused: Default::default() }
            }
            (State::Queued | State::Building { .. }, 1) => State::RollingOut { since: NOW, outage: Outage::default() },
            (State::Queued | State::Building { .. } | State::RollingOut { .. }, 2) => failed(),
            (State::Queued | State::Building { .. } | State::RollingOut { .. }, 3) => State::Succeeded { note: None },
            _ => return,
        };
        *entry = entry.moved(state);
    }

    fn state(&self) -> AppState {
        let unfinished = self.0.iter().filter(|entry| !entry.is_terminal()).cloned().map(Arc::new).collect();
        AppState {
            latest: self.0.last().map(|entry| entry.revision),
            unfinished,
            ..AppState::new(app("shop", "test", "api"))
        }
    }

    /// Returns what the service is to notify: it reads the archive as it is asked to.
    fn next(&self, cursor: &mut Cursor, events: &Events) -> Next {
        let mut archived = Archived::new();
        loop {
            match cursor.next(&self.state(), &archived, events) {
                Next::Read(revision) => {
                    let entry = self.0.iter().find(|entry| entry.revision == revision && entry.is_terminal());
                    assert!(archived.insert(revision, entry.cloned().map(Arc::new)).is_none(), "read twice");
                }
                next @ (Next::Notify(..) | Next::Lost(_) | Next::Nothing) => return next,
            }
        }
    }
}

fn failed() -> State {
    State::Failed { reason: Reason::new(Reason::DEADLINE), message: String::new(), evidence: None }
}

/// The outcome of an attempt to deliver.
#[derive(Clone, Copy, Debug)]
enum Attempt {
    Taken,
    /// The process ended before the cursor was stored.
    TakenAndLost,
    Failed,
}

#[derive(Clone, Debug)]
enum Step {
    Accept,
    Advance(usize, u8),
    Deliver(Attempt),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let attempt = prop_oneof![Just(Attempt::Taken), Just(Attempt::TakenAndLost), Just(Attempt::Failed)];
    let step = prop_oneof![
        2 => Just(Step::Accept),
        4 => (any::<usize>(), any::<u8>()).prop_map(|(at, choice)| Step::Advance(at, choice)),
        4 => attempt.prop_map(Step::Deliver),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    /// Whatever fails and crashes in between, each chosen end is notified, after its accept, and nothing that was recorded
    /// as notified is notified again.
    #[test]
    fn every_end_is_told_and_nothing_recorded_is_told_again(
        steps in steps(),
        chosen in prop::collection::vec(prop::sample::select(&EventKind::ALL[..]), 0..4),
        last in any::<u8>(),
    ) {
        let events = Events::new(chosen);
        let (mut entries, mut stored) = (Entries::default(), cursor(None));
        let (mut notified, mut recorded) = (Vec::new(), BTreeSet::new());
        let mut deliver = |entries: &Entries, stored: &mut Cursor, attempt| {
            let mut cursor = stored.clone();
            let next = entries.next(&mut cursor, &events);
            let Next::Notify(deploy, event) = next else { return next == Next::Nothing };
            prop_assert_or_panic(!recorded.contains(&(deploy.revision, event)), "notified again");
            prop_assert_or_panic(events.contains(event), "not chosen");
            match attempt {
                Attempt::Failed => return false,
                Attempt::TakenAndLost => notified.push((deploy.revision, event)),
                Attempt::Taken => {
                    notified.push((deploy.revision, event));
                    recorded.insert((deploy.revision, event));
                    cursor.pass(deploy.revision, (event, asked_at(&deploy, event)), None);
                    let json = serde_json::to_string(&cursor).unwrap();
                    *stored = serde_json::from_str(&json).unwrap();
                }
            }
            false
        };
        for step in steps {
            match step {
                Step::Accept => entries.accept(),
                Step::Advance(at, choice) => entries.advance(at, choice),
                Step::Deliver(attempt) => drop(deliver(&entries, &mut stored, attempt)),
            }
        }
        for at in 0..entries.0.len() {
            entries.advance(at, 2 + last % 2);
        }
        let mut rounds = 0;
        while !deliver(&entries, &mut stored, Attempt::Taken) {
            rounds += 1;
            prop_assert!(rounds < 1000, "it never ends");
        }
        for entry in &entries.0 {
            let end = EventKind::of(entry);
            let at = |event| notified.iter().position(|known| *known == (entry.revision, event));
            prop_assert_eq!(at(end).is_some(), events.contains(end), "the end of {}", entry.revision);
            if events.contains(EventKind::Accepted) {
                prop_assert!(at(EventKind::Accepted).is_some());
                prop_assert!(at(end).is_none() || at(EventKind::Accepted) < at(end));
            }
        }
        prop_assert!(stored.open.len() <= entries.0.len());
    }
}

#[track_caller]
fn prop_assert_or_panic(holds: bool, what: &str) {
    assert!(holds, "{what}");
}

#[test]
fn receiver_is_told_only_of_what_follows_its_begin() {
    let mut entries = Entries::default();
    (0..3).for_each(|_| entries.accept());
    entries.advance(0, 3);
    let mut begin = cursor(Some(2));
    let next = entries.next(&mut begin, &Events::new([]));
    assert!(matches!(next, Next::Notify(deploy, EventKind::Accepted) if deploy.revision == revision(3)));
    assert_eq!(begin.seen, Some(revision(2)));
}

#[test]
fn reference_stays_until_the_end_was_told() {
    let mut notified = cursor(None);
    notified.pass(revision(1), (EventKind::Accepted, None), Some("1700.1".to_owned()));
    notified.pass(revision(1), (EventKind::RollingOut, None), None);
    assert_eq!(notified.reference(revision(1)), Some("1700.1"));
    notified.pass(revision(1), (EventKind::Succeeded, None), None);
    assert_eq!((notified.reference(revision(1)), notified.open.len()), (None, 0));
}

#[test]
fn question_that_is_asked_anew_is_notified_anew() {
    for events in [Events::new([]), Events::new([EventKind::AwaitingDecision])] {
        let mut entries = Entries::default();
        entries.accept();
        entries.advance(0, 1);
        let mut at = cursor(None);
        let mut notified = |awaited_since: Option<Timestamp>| {
            let mut verification = Verification::begin(&[], NOW);
            verification.awaited_since = awaited_since;
            entries.0[0].verification = Some(Box::new(verification));
            let mut count = 0;
            while let Next::Notify(deploy, event) = entries.next(&mut at, &events) {
                count += u32::from(event == EventKind::AwaitingDecision);
                at.pass(deploy.revision, (event, asked_at(&deploy, event)), None);
                at = serde_json::from_str(&serde_json::to_string(&at).unwrap()).unwrap();
            }
            count
        };
        let later = |seconds| Some(NOW.after(Duration::from_secs(seconds)));
        let withdrawn = None;
        let asked =
            [withdrawn, later(1), later(1), withdrawn, withdrawn, later(2), later(2), later(3)].map(&mut notified);
        assert_eq!(asked, [0, 1, 0, 0, 0, 1, 0, 1]);
    }
}

#[test]
fn entry_that_was_forgotten_is_lost_and_passed() {
    let mut entries = Entries::default();
    entries.accept();
    let (state, mut at) = (AppState { unfinished: Vec::new(), ..entries.state() }, cursor(None));
    let events = Events::new([]);
    assert_eq!(at.next(&state, &Archived::new(), &events), Next::Read(revision(1)));
    let archived = Archived::from([(revision(1), None)]);
    assert_eq!(at.next(&state, &archived, &events), Next::Lost(revision(1)));
    assert_eq!(at.next(&state, &archived, &events), Next::Nothing);
}

#[test]
fn adopted_entry_is_no_deploy() {
    let mut entries = Entries::default();
    entries.accept();
    entries.0[0].adopted = true;
    entries.advance(0, 3);
    let mut at = cursor(None);
    assert_eq!(entries.next(&mut at, &Events::new([])), Next::Nothing);
    assert_eq!((at.seen, at.open.len()), (Some(revision(1)), 0));
}

#[test]
fn pauses_grow_to_ten_minutes_and_honour_what_the_receiver_asks_for() {
    let seconds =
        |failures, asked: Option<u64>, random| pause(failures, asked.map(Duration::from_secs), random).as_secs_f64();
    assert_eq!([1, 2, 3, 5].map(|failures| seconds(failures, None, 0)), [1.0, 2.0, 4.0, 16.0]);
    assert_eq!(seconds(u32::MAX, None, 0), 600.0);
    assert!((0.5..0.51).contains(&seconds(1, None, 511)), "at least half of it");
    assert_eq!(seconds(1, Some(30), 0), 30.0);
    assert_eq!(seconds(1, Some(1_000_000), 0), 3600.0);
}
