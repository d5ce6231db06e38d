//! Accepting deploys.

use super::*;
use crate::{
    ledger::{ExpectedLatest, HOLDS_MAX, KeyUse, OtherDeploys, UNFINISHED_MAX},
    request::{IdempotencyKey, KeyHeader, Refusal},
};

fn key(text: &str, request: u8) -> IdempotencyKey {
    IdempotencyKey::new(KeyHeader::IdempotencyKey, text, [request; 32]).unwrap()
}

fn keyed(key: IdempotencyKey, admission: Admission) -> Admission {
    Admission { key: Some(key), ..admission }
}

fn superseding(admission: Admission) -> Admission {
    Admission { others: OtherDeploys::EndSuperseded, ..admission }
}

/// Returns the stored use of a key under which a deploy was accepted.
fn used(key: &IdempotencyKey, revision: Revision, expires_at: Timestamp) -> KeyLookup {
    KeyLookup::Read(Some(KeyUse { request: key.request, revision, expires_at }))
}

/// The answer, where the change must stay as it was.
#[track_caller]
fn refused(change: &mut Change, admission: Admission, lookup: KeyLookup, now: Timestamp) -> Admitted {
    let before = change.clone();
    let answer = change.admit(admission, lookup, now);
    assert_eq!(*change, before, "a refused accept changes nothing");
    answer
}

#[test]
fn revisions_are_numbered_without_gaps() {
    let mut change = Change::on(registered());
    assert!(change.is_empty());
    for number in 1..=3 {
        let accepted = new(&mut change, deploy("v1"), after(1));
        assert_eq!((accepted.revision, accepted.effective), (revision(number), revision(number)));
        assert_eq!((&accepted.state, accepted.step, accepted.touched), (&State::Queued, 0, false));
        assert_eq!((accepted.created_at, accepted.updated_at, accepted.kept_until), (after(1), after(1), None));
    }
    assert!(!change.is_empty());
    assert_eq!(change.admitted, [revision(1), revision(2), revision(3)]);
    assert_eq!((change.state.latest, numbers(&change.state.unfinished)), (Some(revision(3)), vec![1, 2, 3]));

    let state = moved(moved(change.state, 3, cancelled), 1, succeeded);
    let mut change = Change::on(state);
    assert_eq!(new(&mut change, deploy("v2"), NOW).revision, revision(4), "an ended revision is not given again");
    assert_eq!((change.admitted.len(), numbers(&change.state.unfinished)), (1, vec![2, 4]));
}

#[test]
fn a_repeated_key_is_answered_with_its_revision() {
    let (same, other) = (key("run-1", 1), key("run-1", 2));
    let mut change = Change::on(queued(registered(), 1));
    let lookup = used(&same, Revision::FIRST, after(60));
    let replayed = Admitted::Replayed(Revision::FIRST);
    assert_eq!(refused(&mut change, keyed(same.clone(), deploy("v1")), lookup, NOW), replayed);
    assert_eq!(refused(&mut change, keyed(other.clone(), deploy("v1")), lookup, NOW), Admitted::KeyReused);
    assert_eq!(change.replay_of(&same, lookup, NOW), Ok(Some(Revision::FIRST)));
    assert_eq!(change.replay_of(&other, lookup, NOW), Err(Refusal::KeyReused));
    assert_eq!(change.replay_of(&same, KeyLookup::Unread, NOW), Ok(None));

    let outdated = Admission { expected: ExpectedLatest::Exactly(None), ..keyed(same.clone(), deploy("v1")) };
    assert_eq!(refused(&mut change, outdated, lookup, NOW), replayed, "a known key is answered before all else");
    let mut full = Change::on(queued(registered(), UNFINISHED_MAX));
    assert_eq!(refused(&mut full, keyed(same, deploy("v1")), lookup, NOW), replayed);
}

#[test]
fn a_used_key_is_kept_with_the_change() {
    for (header, kept_for) in [(KeyHeader::IdempotencyKey, 24), (KeyHeader::WebhookId, 7 * 24)] {
        let key = IdempotencyKey { header, ..key("run-1", 1) };
        let mut change = Change::on(queued(registered(), 4));
        let accepted = new(&mut change, keyed(key.clone(), deploy("v1")), after(1));
        let expires_at = after(1 + kept_for * 3600);
        let made = KeyUse { request: [1; 32], revision: revision(5), expires_at };
        let [write] = &change.keys[..] else { panic!("one key: {:?}", change.keys) };
        assert_eq!((&write.key, write.made, write.replaces), (&key, made, false));
        assert_eq!(accepted.kept_until, Some(expires_at));
    }
}

#[test]
fn a_key_is_known_within_its_change() {
    let mut change = Change::on(registered());
    new(&mut change, keyed(key("run-1", 1), deploy("v1")), NOW);
    for lookup in [KeyLookup::Unread, KeyLookup::Read(None)] {
        let again = keyed(key("run-1", 1), deploy("v1"));
        assert_eq!(refused(&mut change, again, lookup, NOW), Admitted::Replayed(Revision::FIRST));
        let other = keyed(key("run-1", 2), deploy("v1"));
        assert_eq!(refused(&mut change, other, lookup, NOW), Admitted::KeyReused);
    }
    new(&mut change, keyed(key("run-2", 1), deploy("v1")), NOW);
    let elsewhere = IdempotencyKey { header: KeyHeader::WebhookId, ..key("run-1", 1) };
    new(&mut change, keyed(elsewhere, deploy("v1")), NOW);
    assert_eq!((change.keys.len(), change.state.unfinished.len()), (3, 3));
}

#[test]
fn an_expired_key_is_free_and_replaced() {
    let state = queued(registered(), 1);
    let key = key("nightly", 2);
    let lookup = KeyLookup::Read(Some(KeyUse { request: [1; 32], revision: Revision::FIRST, expires_at: after(60) }));
    let mut change = Change::on(state);
    let early = refused(&mut change, keyed(key.clone(), deploy("v1")), lookup, after(59));
    assert_eq!(early, Admitted::KeyReused);
    let accepted = change.admit(keyed(key.clone(), deploy("v1")), lookup, after(60));
    assert!(matches!(accepted, Admitted::New { .. }), "{accepted:?}");
    assert!(change.keys[0].replaces);
    let again = refused(&mut change, keyed(key.clone(), deploy("v1")), lookup, after(61));
    assert_eq!(again, Admitted::Replayed(revision(2)), "what this change has made goes before what the store has");

    let mut change = Change::on(AppState { updated_at: after(100), ..change.state });
    let early = refused(&mut change, keyed(key.clone(), deploy("v1")), lookup, after(59));
    assert_eq!(
        early,
        Admitted::KeyReused,
        "a replica whose clock is ahead has changed the app, and no key expires early"
    );
    let late = change.admit(keyed(key, deploy("v1")), lookup, after(60));
    assert!(matches!(late, Admitted::New { .. }), "{late:?}");
}

#[test]
fn an_outdated_decision_is_refused() {
    let exactly =
        |latest: Option<u64>| Admission { expected: ExpectedLatest::Exactly(latest.map(revision)), ..deploy("v1") };
    let mut change = Change::on(registered());
    assert_eq!(refused(&mut change, exactly(Some(1)), KeyLookup::Unread, NOW), Admitted::Outdated);
    new(&mut change, exactly(None), NOW);
    assert_eq!(refused(&mut change, exactly(None), KeyLookup::Unread, NOW), Admitted::Outdated);
    new(&mut change, exactly(Some(1)), NOW);
    let mut change = Change::on(moved(change.state, 2, cancelled));
    assert_eq!(refused(&mut change, exactly(Some(1)), KeyLookup::Unread, NOW), Admitted::Outdated);
    new(&mut change, exactly(Some(2)), NOW);
}

#[test]
fn an_app_with_too_many_unfinished_deploys_is_full() {
    let state = queued(registered(), UNFINISHED_MAX - 1);
    let mut change = Change::on(state);
    new(&mut change, deploy("last"), NOW);
    assert_eq!(refused(&mut change, deploy("v1"), KeyLookup::Unread, NOW), Admitted::Full);
    assert_eq!(refused(&mut change, rollback(), KeyLookup::Unread, NOW), Admitted::Full);
    let full = change.state;

    let mut change = Change::on(full.clone());
    assert_eq!(new(&mut change, restore(), NOW).revision, revision(101), "a restore is never refused");
    assert_eq!(change.state.unfinished.len(), UNFINISHED_MAX + 1);
    assert_eq!(refused(&mut change, deploy("v1"), KeyLookup::Unread, NOW), Admitted::Full);

    let mut change = Change::on(full.clone());
    new(&mut change, superseding(rollback()), NOW);
    assert_eq!(numbers(&change.state.unfinished), [101], "a rollback ends what fills the app");

    let mut change = Change::on(moved(full, 50, cancelled));
    new(&mut change, deploy("v1"), NOW);
}

#[test]
fn a_superseding_deploy_ends_the_others() {
    for (admission, is_rollback) in [(rollback(), true), (deploy("v2"), false)] {
        let state = moved(queued(registered(), 3), 2, rolling_out);
        let mut change = Change::on(state);
        let Admitted::New { deploy, superseded } = change.admit(superseding(admission), KeyLookup::Unread, after(5))
        else {
            panic!("accepted")
        };
        assert_eq!((deploy.revision, superseded), (revision(4), vec![revision(1), revision(2), revision(3)]));
        assert_eq!((numbers(&change.state.unfinished), numbers(&change.ended)), (vec![4], vec![1, 2, 3]));
        for (ended, step) in change.ended.iter().zip([1, 2, 1]) {
            assert_eq!(ended.state, State::Superseded { by: revision(4), rollback: is_rollback, newer: None });
            assert_eq!((ended.step, ended.updated_at), (step, after(5)));
        }
        assert_eq!(change.state.on_cluster().unwrap().revision, revision(2), "it left the cluster touched");
        assert_eq!(change.state.current, None);
    }
}

#[test]
fn a_deploy_changes_once_in_a_commit() {
    let mut change = Change::on(queued(registered(), 1));
    let first = (*change.state.unfinished[0]).clone();
    change.record(record(vec![rolling_out(&first)]), NOW).unwrap();
    assert_eq!(refused(&mut change, superseding(rollback()), KeyLookup::Unread, NOW), Admitted::NextCommit);
    new(&mut change, deploy("v2"), NOW);

    let mut change = Change::on(registered());
    new(&mut change, deploy("v1"), NOW);
    assert_eq!(refused(&mut change, superseding(rollback()), KeyLookup::Unread, NOW), Admitted::NextCommit);
    assert_eq!(change.changed().iter().copied().collect::<Vec<_>>(), [Revision::FIRST]);
}

#[test]
fn holds_are_bounded() {
    let mut state = registered();
    for number in 0..HOLDS_MAX + 2 {
        let admission = Admission { hold: Some(hold(&format!("bad{number}"))), ..superseding(rollback()) };
        state = committed(state, |change| new(change, admission, NOW)).0;
    }
    let holds = &state.app.holds;
    assert_eq!(holds.len(), HOLDS_MAX);
    assert_eq!(holds[0], Hold { by: revision(3), ..hold("bad2") }, "the oldest go first");
    assert_eq!(holds[HOLDS_MAX - 1].by, state.latest.unwrap(), "a hold is named by its rollback");

    let mut change = Change::on(state);
    change.release_holds(after(9));
    assert!(change.state.app.holds.is_empty() && !change.is_empty());
    let mut change = Change::on(change.state);
    change.release_holds(after(9));
    assert!(change.is_empty(), "nothing was held");
}

#[test]
fn an_accept_is_work_for_its_driver() {
    let driven = |by: &str| Admission { driver: Some(replica(by)), ..deploy("v1") };
    let mut change = Change::on(registered());
    new(&mut change, deploy("v1"), after(1));
    assert_eq!((change.state.queued_at, &change.state.lease), (Some(after(1)), &None));
    new(&mut change, driven("a"), after(2));
    assert_eq!(change.state.queued_at, Some(after(1)), "more work leaves the app its place");
    assert!(change.state.is_leased_to(&replica("a")));
    new(&mut change, driven("b"), after(3));
    assert!(change.state.is_leased_to(&replica("a")), "a lease is not taken from its replica");
}

#[test]
fn times_never_decrease() {
    let mut change = Change::on(registered());
    new(&mut change, deploy("v1"), after(100));
    let mut change = Change::on(change.state);
    assert_eq!(new(&mut change, deploy("v2"), after(50)).created_at, after(100));
    let mut change = Change::on(change.state);
    let first = cancelled(&change.state.unfinished[0]);
    change.record(record(vec![first]), after(20)).unwrap();
    assert_eq!(change.ended[0].updated_at, after(100));
    assert_eq!((change.state.updated_at, change.state.time(NOW)), (after(100), after(100)));
    assert_eq!(change.state.time(after(101)), after(101));
}

#[test]
fn the_last_restore_is_remembered() {
    let mut change = Change::on(queued(registered(), 1));
    new(&mut change, rollback(), NOW);
    assert_eq!(change.state.last_restore, None, "a person's rollback is none");
    new(&mut change, restore(), NOW);
    new(&mut change, deploy("v2"), NOW);
    let state = moved(change.state, 3, cancelled);
    assert_eq!(state.last_restore, Some(revision(3)), "an ended one counts too");
}
