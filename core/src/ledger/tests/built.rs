//! Recording the image of a build: in its entry, or in a new one behind a restore.

use super::*;
use crate::{
    deploy::{Commit, Status},
    ledger::{Built, Refused, UNFINISHED_MAX, check::check},
    request::{IdempotencyKey, KeyHeader},
    tests::sha,
};

const DRIVER: &str = "one";

/// A git app that runs revision 1, and is driven.
fn running() -> AppState {
    let app = AppState::new(git_app(1, Policy::default()));
    let lease = |change: &mut Change| {
        new(change, deploy("v1"), NOW);
        change.lease(&replica(DRIVER), NOW);
    };
    moved(committed(app, lease).0, 1, succeeded)
}

/// The accept of a commit by CI.
fn build(commit: &Commit) -> Admission {
    let plain = deploy("none");
    Admission { deploy: NewDeploy { image: None, commit: Some(commit.clone()), ..plain.deploy }, ..plain }
}

fn building(deploy: &Deploy) -> Deploy {
    deploy.moved(State::Building { since: NOW, source: Default::default(), paused: Default::default() })
}

fn accepted(state: AppState, admission: Admission) -> AppState {
    committed(state, |change| new(change, admission, NOW)).0
}

/// Revision 1 runs, 2 failed on the cluster, 3 is being built, 4 waits for its build.
fn failed_before_a_build() -> AppState {
    let state = moved(accepted(running(), deploy("bad")), 2, failed);
    let state = moved(accepted(state, build(&sha("c3"))), 3, building);
    accepted(state, build(&sha("c4")))
}

/// The end of this revision's build.
fn built(state: &AppState, number: u64) -> Built {
    let deploy = state.unfinished(revision(number)).unwrap();
    let image = Some(image(&format!("built{number}")));
    let deploy = Deploy { image, ..building(deploy) };
    Built { driver: replica(DRIVER), deploy, id: AdmissionId(1000 + u128::from(number)) }
}

#[test]
fn built_image_that_nothing_overtook_stays_in_its_entry() {
    let state = failed_before_a_build();
    let mut change = Change::on(state.clone());
    assert_eq!(change.built(built(&state, 3), after(9)), Ok(None));
    let entry = change.state.unfinished(revision(3)).unwrap();
    assert_eq!((entry.status(), entry.image.clone(), entry.step), (Status::Building, Some(image("built3")), 2));
    assert_eq!((change.state.latest, numbers(&change.ended)), (Some(revision(4)), vec![]));
}

#[test]
fn build_that_a_restore_overtook_is_entered_anew_behind_it() {
    let key = IdempotencyKey::new(KeyHeader::IdempotencyKey, "run-3", [3; 32]).unwrap();
    let state = moved(accepted(running(), deploy("bad")), 2, failed);
    let state = accepted(state, Admission { key: Some(key), ..build(&sha("c3")) });
    let state = accepted(moved(state, 3, building), restore());
    let first = Arc::clone(state.unfinished(revision(3)).unwrap());
    let mut change = Change::on(state.clone());
    assert_eq!(change.built(built(&state, 3), after(9)), Ok(Some(revision(5))));

    let ended = &change.ended[0];
    assert_eq!(
        ended.state,
        State::Superseded { by: revision(5), rollback: false, newer: None },
        "who waits for it follows"
    );
    assert_eq!((ended.revision, ended.step, ended.image.clone()), (revision(3), 2, Some(image("built3"))));
    let anew = change.state.unfinished(revision(5)).unwrap();
    assert_eq!((&anew.state, anew.step, anew.id), (&State::Queued, 0, AdmissionId(1003)));
    assert_eq!((anew.image.clone(), &anew.commit), (Some(image("built3")), &first.commit));
    assert_eq!((anew.trigger, &anew.actor), (first.trigger, &first.actor));
    assert_eq!((&anew.from, anew.effective), (&Some(Origin::Built(revision(3))), revision(5)));
    assert_eq!((anew.created_at, anew.updated_at), (after(9), after(9)));
    assert!(anew.kept_until.is_some() && anew.kept_until == first.kept_until, "its key may be asked for as long");
    assert_eq!((change.admitted.clone(), change.state.latest), (vec![revision(5)], Some(revision(5))));
    assert_eq!(numbers(&change.state.unfinished), [4, 5]);
}

#[test]
fn builds_behind_a_restore_keep_their_order() {
    let state = accepted(failed_before_a_build(), restore());
    let (state, _) = committed(state.clone(), |change| change.built(built(&state, 3), NOW).unwrap());
    let state = moved(state, 4, building);
    let (state, ended) = committed(state.clone(), |change| change.built(built(&state, 4), NOW).unwrap());
    assert_eq!((numbers(&state.unfinished), numbers(&ended)), (vec![5, 6, 7], vec![4]));
    assert_eq!(state.unfinished(revision(7)).unwrap().built_as(), revision(4), "the newest commit is the highest");
}

#[test]
fn restore_that_never_touched_the_cluster_overtakes_nothing() {
    let state = moved(accepted(failed_before_a_build(), restore()), 5, cancelled);
    let mut change = Change::on(state.clone());
    assert_eq!(change.built(built(&state, 3), NOW), Ok(None));
    let state = accepted(failed_before_a_build(), restore());
    let state = moved(moved(state, 5, rolling_out), 5, failed);
    let mut change = Change::on(state.clone());
    assert_eq!(change.built(built(&state, 3), NOW), Ok(Some(revision(6))), "a failed one was on the cluster");
}

#[test]
fn build_is_entered_anew_however_many_deploys_are_unfinished() {
    let mut state = failed_before_a_build();
    while state.unfinished.len() < UNFINISHED_MAX {
        state = accepted(state, build(&sha("d0")));
    }
    let state = accepted(state, restore());
    let mut change = Change::on(state.clone());
    assert!(matches!(change.built(built(&state, 3), NOW), Ok(Some(_))));
    assert_eq!(change.state.unfinished.len(), UNFINISHED_MAX + 1);
}

#[test]
fn build_of_another_driver_or_an_ended_entry_is_refused() {
    let state = accepted(failed_before_a_build(), restore());
    let ended = moved(state.clone(), 3, cancelled);
    let foreign = Built { driver: replica("two"), ..built(&state, 3) };
    for (state, built, refusal) in
        [(state.clone(), foreign, Refused::NotLeased), (ended, built(&state, 3), Refused::Outdated)]
    {
        let mut change = Change::on(state);
        let before = change.clone();
        assert_eq!(change.built(built, NOW), Err(refusal));
        assert_eq!(change, before, "a refused build changes nothing");
    }
}

#[test]
fn check_finds_a_build_that_a_restore_has_ended() {
    let state = accepted(failed_before_a_build(), restore());
    let deploy = state.unfinished(revision(3)).unwrap();
    let ended = deploy.moved(State::Superseded { by: revision(5), rollback: true, newer: None });
    let history = [ended, Deploy::clone(state.unfinished(revision(5)).unwrap())];
    let broken = check(&history, &state);
    assert!(broken.iter().any(|rule| rule.0 == "revision 3 was superseded before its build ended"), "{broken:?}");
}
