//! Deploys that ended without success, and whose instances run afterwards.

use super::*;
use crate::{
    app::OnFailure,
    ledger::{RECOVERIES_MAX, Recovery, check::check},
};

/// Revision 1 runs, revision 2 failed on the cluster, and so did revision 3, its restore.
fn restore_failed() -> AppState {
    let state = moved(accepted(registered(), deploy("v1")), 1, succeeded);
    let state = moved(accepted(state, deploy("v2")), 2, failed);
    moved(accepted(state, restore()), 3, failed)
}

fn accepted(state: AppState, admission: Admission) -> AppState {
    committed(state, |change| drop(new(change, admission, NOW))).0
}

/// The state after the recovery of a deploy, and whether it was recorded.
fn recovered(state: &AppState, number: u64, now: Timestamp) -> (AppState, bool) {
    let mut change = Change::on(state.clone());
    let is_recorded = change.recover(revision(number), now);
    assert_eq!(change.is_empty(), !is_recorded);
    (change.state, is_recorded)
}

#[test]
fn restore_that_failed_recovers_once() {
    let state = restore_failed();
    let (state, is_recorded) = recovered(&state, 3, after(60));
    assert!(is_recorded);
    assert_eq!(state.recoveries, [Recovery { revision: revision(3), at: after(60) }]);
    assert_eq!(state.recovered_at(revision(3)), Some(after(60)));
    assert_eq!(state.current.as_ref().unwrap().revision, Revision::FIRST, "what runs is what ran before");
    assert_eq!(state.on_cluster().unwrap().status(), Status::Failed, "the end of a deploy stays");
    assert!(!recovered(&state, 3, after(90)).1);
}

#[test]
fn only_the_newest_deploy_on_the_cluster_recovers_and_only_while_nothing_follows() {
    let state = restore_failed();
    for other in [1, 2, 4] {
        assert!(!recovered(&state, other, NOW).1);
    }
    let followed = accepted(state, deploy("v3"));
    assert!(!recovered(&followed, 3, NOW).1, "another one is about to roll out");
    let next = moved(followed, 4, succeeded);
    assert!(!recovered(&next, 3, NOW).1 && !recovered(&next, 4, NOW).1);

    let first = moved(accepted(registered(), deploy("v1")), 1, succeeded);
    let owed = moved(accepted(first, deploy("v2")), 2, failed);
    assert!(!recovered(&owed, 2, NOW).1, "a restore is owed");
    let mut left = owed;
    Arc::make_mut(&mut left.app).policy.on_failure = OnFailure::Leave;
    assert!(recovered(&left, 2, NOW).1, "what was left as it was may run well");
}

#[test]
fn recovery_stays_until_its_entry_is_forgotten() {
    let (state, _) = recovered(&restore_failed(), 3, NOW);
    let next = moved(accepted(state, deploy("v3")), 4, succeeded);
    assert!(next.recovered_at(revision(3)).is_some());
    let (state, _) = committed(next, |change| change.forget(vec![revision(3)], NOW));
    assert_eq!(state.recoveries, []);
}

#[test]
fn old_recoveries_make_room() {
    let mut state = restore_failed();
    let old = |number| Recovery { revision: revision(number), at: NOW };
    state.recoveries = (100..).map(old).take(RECOVERIES_MAX).collect();
    let (state, _) = recovered(&state, 3, NOW);
    assert_eq!(state.recoveries.len(), RECOVERIES_MAX);
    assert_eq!(state.recoveries.first(), Some(&old(101)));
}

#[test]
fn recovery_that_cannot_be_breaks_the_rules() {
    let first = moved(accepted(registered(), deploy("v1")), 1, succeeded);
    let history = [(**first.current.as_ref().unwrap()).clone()];
    assert_eq!(check(&history, &first), []);
    let recovery = Recovery { revision: revision(1), at: NOW };
    let broken = AppState { recoveries: vec![recovery], ..first.clone() };
    assert_eq!(check(&history, &broken).len(), 1, "it succeeded");
    let twice = Recovery { revision: revision(9), at: NOW };
    let broken = AppState { recoveries: vec![twice, twice], ..first };
    assert_eq!(check(&history, &broken).len(), 1, "twice");
}

#[test]
fn state_without_recoveries_is_stored_as_before() {
    let stored = serde_json::to_value(restore_failed()).unwrap();
    assert!(stored.get("recoveries").is_none());
    let (state, _) = recovered(&restore_failed(), 3, NOW);
    let read: AppState = serde_json::from_value(serde_json::to_value(&state).unwrap()).unwrap();
    assert_eq!(read, state);
}
