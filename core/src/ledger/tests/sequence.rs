//! Deploys of a webhook in their order.

use super::*;
use crate::{
    deploy::{Newer, Sequence},
    ledger::{
        HighestSequence, OtherDeploys, UNFINISHED_MAX, check,
        restore::{self, Owed},
        retention,
    },
};

fn sequence(number: u64) -> Option<Sequence> {
    Sequence::new(number)
}

/// The accept of an image by a pipeline of this number.
fn run(number: u64) -> Admission {
    let plain = deploy("v1");
    Admission { deploy: NewDeploy { order: sequence(number).into(), ..plain.deploy }, ..plain }
}

fn highest(number: u64, by: u64) -> Option<HighestSequence> {
    sequence(number).map(|sequence| HighestSequence { sequence, revision: revision(by) })
}

/// The end of a deploy whose sequence is lower than this one, of this revision.
fn late(by: u64, newer: u64) -> State {
    State::Superseded { by: revision(by), rollback: false, newer: sequence(newer).map(Newer::Sequence) }
}

#[test]
fn lower_sequence_ends_as_it_is_accepted_and_leaves_the_rest_as_it_is() {
    let (state, _) = committed(registered(), |change| new(change, run(7), NOW));
    assert_eq!(state.highest_sequence, highest(7, 1));
    let (next, ended) = committed(state.clone(), |change| {
        let deploy = new(change, Admission { id: AdmissionId(8), ..run(6) }, after(1));
        assert_eq!((deploy.revision, &deploy.state, deploy.step), (revision(2), &late(1, 7), 1));
        assert_eq!((deploy.created_at, deploy.updated_at, deploy.touched), (after(1), after(1), false));
        assert_eq!(change.admitted, [revision(2)]);
    });
    assert_eq!(ended.len(), 1);
    let as_before = AppState { latest: state.latest, in_order: None, updated_at: state.updated_at, ..next.clone() };
    assert_eq!(as_before, state);
    assert_eq!((next.latest, next.latest_in_order()), (Some(revision(2)), Some(revision(1))));
    let history: Vec<Deploy> = [&next.unfinished[0], &ended[0]].map(|deploy| Deploy::clone(deploy)).into();
    assert_eq!(check::check(&history, &next), []);

    let (next, _) = committed(next, |change| new(change, run(7), after(2)));
    assert_eq!(next.unfinished.last().unwrap().state, State::Queued, "an equal one is no older");
    assert_eq!((next.highest_sequence, next.latest_in_order()), (highest(7, 3), Some(revision(3))));
    let (next, _) = committed(next, |change| new(change, deploy("v2"), after(3)));
    assert_eq!(next.unfinished.last().unwrap().state, State::Queued, "one without a sequence is in order");
    assert_eq!(next.highest_sequence, highest(7, 3));
}

#[test]
fn two_posts_of_one_commit_are_judged_in_their_order() {
    let (state, ended) = committed(registered(), |change| {
        let first = new(change, run(8), NOW);
        let second = new(change, run(7), NOW);
        assert_eq!((&first.state, &second.state), (&State::Queued, &late(1, 8)));
    });
    assert_eq!((state.unfinished.len(), ended.len()), (1, 1));
}

#[test]
fn lower_sequence_ends_nothing_and_is_accepted_beside_any_number() {
    let (state, _) = committed(registered(), |change| new(change, run(7), NOW));
    let state = queued(state, UNFINISHED_MAX - 1);
    let admission = Admission { others: OtherDeploys::EndSuperseded, hold: Some(hold("v1")), ..run(6) };
    let (next, ended) = committed(state, |change| new(change, admission, NOW));
    assert_eq!((next.unfinished.len(), ended.len()), (UNFINISHED_MAX, 1));
    assert_eq!(next.app.holds, []);
}

#[test]
fn forgotten_sequence_begins_anew() {
    let (state, _) = committed(registered(), |change| new(change, run(7), NOW));
    let (state, _) = committed(state, |change| change.forget_sequence(after(1)));
    assert_eq!(state.highest_sequence, None);
    let mut change = Change::on(state.clone());
    change.forget_sequence(after(2));
    assert!(change.is_empty());
    let (state, ended) = committed(state, |change| new(change, run(1), after(2)));
    assert_eq!((state.highest_sequence, ended.len()), (highest(1, 2), 0));
}

#[test]
fn deploy_of_the_highest_sequence_is_kept() {
    let (mut state, _) = committed(registered(), |change| new(change, run(7), NOW));
    Arc::make_mut(&mut state.app).policy.keep = 0;
    let (state, mut ended) = committed(state, |change| {
        let deploy = change.state.unfinished(revision(1)).unwrap();
        let refused = Deploy { touched: false, ..failed(deploy) };
        change.record(record(vec![refused]), NOW).unwrap();
        new(change, run(6), NOW);
    });
    ended.sort_by_key(|deploy| std::cmp::Reverse(deploy.revision));
    let archived: Vec<Deploy> = ended.iter().map(|deploy| Deploy::clone(deploy)).collect();
    assert_eq!(retention::surplus(&state, &archived, NOW), [revision(2)]);
}

#[test]
fn restore_that_was_tried_is_not_made_again_for_a_lower_sequence() {
    let (state, _) = committed(registered(), |change| new(change, run(7), NOW));
    let state = moved(moved(state, 1, rolling_out), 1, succeeded);
    let (state, _) = committed(state, |change| new(change, run(8), NOW));
    let state = moved(moved(state, 2, rolling_out), 2, failed);
    assert!(matches!(restore::owed(&state), Owed::Restore(_)));
    let (late, ended) = committed(state.clone(), |change| new(change, run(7), NOW));
    assert!(matches!(restore::owed(&late), Owed::Restore(_)), "the restore is owed all the same");
    assert!(!restore::may_follow(&ended[0]), "and not to the deploy that came too late");
    let (state, _) = committed(state, |change| new(change, restore(), NOW));
    let ends = |deploy: &Deploy| Deploy { touched: false, ..failed(deploy) };
    let state = moved(state, 3, ends);
    assert_eq!(restore::owed(&state), Owed::Nothing);
    let (state, _) = committed(state, |change| new(change, run(7), NOW));
    assert_eq!(restore::owed(&state), Owed::Nothing, "a deploy that changes nothing has nothing restored");
}

#[test]
fn deploy_that_ends_below_one_out_of_order_is_still_the_newest() {
    let (state, _) = committed(registered(), |change| new(change, run(7), NOW));
    let (state, late) = committed(state, |change| new(change, Admission { id: AdmissionId(8), ..run(6) }, NOW));
    let ends = |deploy: &Deploy| Deploy { touched: false, ..failed(deploy) };
    let next = ends(state.unfinished(revision(1)).unwrap());
    let (state, ended) = committed(state, |change| change.record(record(vec![next]), NOW).unwrap());
    assert_eq!(state.newest().map(|newest| newest.revision), Some(revision(1)));
    let history: Vec<Deploy> = [&ended[0], &late[0]].map(|deploy| Deploy::clone(deploy)).into();
    assert_eq!(check::check(&history, &state), []);
}
