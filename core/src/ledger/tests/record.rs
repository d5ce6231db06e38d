//! Recording what has become of deploys, leases and idleness.

use super::*;
use crate::{
    app::OnFailure,
    ledger::{
        Refused,
        restore::{Owed, owed},
    },
};

/// The refusal, where the change must stay as it was.
#[track_caller]
fn refused(change: &mut Change, record: Record) -> Refused {
    let before = change.clone();
    let answer = change.record(record, after(1)).unwrap_err();
    assert_eq!(*change, before, "a refused record changes nothing");
    answer
}

fn by(name: &str, changes: Vec<Deploy>) -> Record {
    Record { driver: Some(replica(name)), ..record(changes) }
}

fn idle(changes: Vec<Deploy>) -> Record {
    Record { idle: true, ..record(changes) }
}

#[test]
fn deploys_move_forward_only() {
    let mut change = Change::on(queued(registered(), 2));
    let (one, two) = ((*change.state.unfinished[0]).clone(), (*change.state.unfinished[1]).clone());
    for step in [0, 2, 3] {
        let skipped = Deploy { step, ..rolling_out(&one) };
        assert_eq!(refused(&mut change, record(vec![skipped])), Refused::Outdated, "step {step}");
    }
    let twice = vec![rolling_out(&one), failed(&one)];
    assert_eq!(refused(&mut change, record(twice)), Refused::Outdated);
    let unknown = Deploy { revision: revision(3), ..rolling_out(&one) };
    assert_eq!(refused(&mut change, record(vec![cancelled(&two), unknown])), Refused::Outdated, "all or nothing");

    change.record(record(vec![rolling_out(&one), cancelled(&two)]), after(1)).unwrap();
    let rolling = (*change.state.unfinished[0]).clone();
    assert_eq!(rolling, Deploy { updated_at: after(1), ..rolling_out(&one) });
    assert_eq!(refused(&mut change, record(vec![succeeded(&rolling)])), Refused::NextCommit);
    assert_eq!(refused(&mut change, record(vec![succeeded(&one)])), Refused::NextCommit);

    let mut change = Change::on(change.state);
    assert_eq!(refused(&mut change, record(vec![rolling_out(&one)])), Refused::Outdated, "the step was taken before");
    change.record(record(vec![succeeded(&rolling)]), after(2)).unwrap();
    let ended = (*change.ended[0]).clone();
    let mut change = Change::on(change.state);
    assert_eq!(refused(&mut change, record(vec![failed(&ended)])), Refused::Outdated, "nothing follows an end");
    assert_eq!(refused(&mut change, record(vec![cancelled(&two).moved(State::Queued)])), Refused::Outdated);
}

#[test]
fn a_driver_needs_the_lease() {
    let mut change = Change::on(queued(registered(), 1));
    let one = (*change.state.unfinished[0]).clone();
    assert_eq!(refused(&mut change, by("a", vec![rolling_out(&one)])), Refused::NotLeased);
    change.lease(&replica("a"), NOW);
    assert!(change.state.is_leased_to(&replica("a")) && !change.is_empty());
    assert_eq!(refused(&mut change, by("b", vec![rolling_out(&one)])), Refused::NotLeased);
    let restarted = ReplicaId { boot: 2, ..replica("a") };
    let late = Record { driver: Some(restarted), ..record(Vec::new()) };
    assert_eq!(refused(&mut change, late), Refused::NotLeased, "a lease is one boot's");
    change.record(by("a", vec![rolling_out(&one)]), NOW).unwrap();
    change.lease(&replica("b"), NOW);
    assert_eq!(refused(&mut change, by("a", Vec::new())), Refused::NotLeased, "another replica has taken over");
    let rolling = (*change.state.unfinished[0]).clone();
    let mut change = Change::on(change.state);
    change.record(record(vec![cancelled(&rolling)]), NOW).unwrap();
    assert!(change.state.is_leased_to(&replica("b")), "a person's cancel needs no lease, and takes none");
}

#[test]
fn ended_deploys_leave_the_state_for_the_archive() {
    let state = moved(queued(registered(), 4), 3, rolling_out);
    let (state, ended) = committed(state, |change| {
        let changes = change.state.unfinished[2..].iter().map(|deploy| failed(deploy)).collect();
        change.record(record(changes), after(1)).unwrap();
    });
    assert_eq!((numbers(&state.unfinished), numbers(&ended)), (vec![1, 2], vec![3, 4]));
    assert!(matches!(ended[1].state, State::Failed { evidence: Some(_), .. }), "the archive has the evidence");
    assert_eq!(*state.ended_on_cluster.clone().unwrap(), ended[1].without_evidence());
    assert_eq!((state.on_cluster().unwrap().revision, state.current.clone()), (revision(4), None));

    let (state, ended) = committed(state, |change| {
        let changes = change.state.unfinished.iter().rev().map(|deploy| succeeded(deploy)).collect();
        change.record(record(changes), after(2)).unwrap();
    });
    assert_eq!(numbers(&ended), [2, 1]);
    assert_eq!(state.current, Some(Arc::clone(&ended[0])), "the newest that succeeded, whichever ended last");
    assert_eq!(state.on_cluster().unwrap().revision, revision(4), "an older end leaves the newest on the cluster");
}

#[test]
fn texts_of_an_end_are_cut_to_what_an_entry_may_hold() {
    let long = || "x".repeat(100_000);
    let facts = [Some(long()), Some(long()), Some(long())];
    let (state, ended) = committed(moved(queued(registered(), 2), 2, rolling_out), |change| {
        let mut failed = failed(&change.state.unfinished[1]);
        if let State::Failed { message, evidence, .. } = &mut failed.state {
            let [container, pod, state] = facts.clone();
            (*message, *evidence) = (
                long(),
                Some(Evidence {
                    container,
                    pod,
                    state,
                    events: vec![long(); 50],
                    log: vec![long(); 500],
                    ..Evidence::default()
                }),
            );
        }
        change.record(record(vec![failed]), NOW).unwrap();
    });
    assert!(format!("{:?}", ended[0]).len() < 250_000);
    let (_, ended) = committed(state, |change| {
        let noted = Deploy { state: State::Succeeded { note: Some(long()) }, ..succeeded(&change.state.unfinished[0]) };
        change.record(record(vec![noted]), NOW).unwrap();
    });
    assert!(format!("{:?}", ended[0]).len() < 10_000);
}

#[test]
fn newest_deploy_is_known_also_when_it_ended_without_touching_the_cluster() {
    let newest = |state: &AppState| state.newest().map(|deploy| (deploy.revision.get(), deploy.status()));
    assert_eq!(newest(&registered()), None);
    let state = moved(queued(registered(), 2), 1, succeeded);
    assert_eq!(newest(&state), Some((2, Status::Queued)));
    let (state, ended) = committed(state, |change| {
        let failed = Deploy { touched: false, ..failed(&change.state.unfinished[0]) };
        change.record(record(vec![failed]), after(1)).unwrap();
    });
    assert_eq!(newest(&state), Some((2, Status::Failed)));
    assert_eq!(*state.newest().unwrap().clone(), ended[0].without_evidence());
    assert_eq!(state.on_cluster().unwrap().revision, revision(1), "it changed nothing");
    let state = queued(state, 2);
    assert_eq!((newest(&state), &state.ended_off_cluster), (Some((4, Status::Queued)), &None));
    let (state, _) = committed(state, |change| {
        let failed = Deploy { touched: false, ..failed(&change.state.unfinished[0]) };
        change.record(record(vec![failed]), after(2)).unwrap();
    });
    assert_eq!((newest(&state), &state.ended_off_cluster), (Some((4, Status::Queued)), &None), "3 is not the newest");
    assert_eq!(newest(&moved(state, 4, succeeded)), Some((4, Status::Succeeded)));
}

#[test]
fn deploy_that_changed_nothing_is_not_on_the_cluster() {
    let mut state = moved(queued(registered(), 3), 1, succeeded);
    for number in [2, 3] {
        state = moved(state, number, rolling_out);
        assert_eq!(state.on_cluster().unwrap().revision, revision(number));
    }
    assert_eq!(state.rolling_out().unwrap().revision, revision(3));
    for (number, left) in [(3, 2), (2, 1)] {
        state = moved(state, number, cancelled);
        assert_eq!(state.on_cluster().unwrap().revision, revision(left), "{number} turned out to have changed nothing");
    }
}

#[test]
fn an_app_without_work_becomes_idle() {
    let mut state = queued(registered(), 1);
    state.lease = Some(replica("a"));
    let waiting = (state.queued_at, state.lease.clone());
    let (state, _) = committed(state, |change| change.record(idle(Vec::new()), after(1)).unwrap());
    assert_eq!((state.queued_at, state.lease.clone()), waiting, "a deploy is unfinished");
    let end = cancelled(&state.unfinished[0]);
    let (not_said, _) = committed(state.clone(), |change| change.record(record(vec![end.clone()]), after(1)).unwrap());
    assert_eq!((not_said.queued_at, not_said.lease), waiting, "the driver may have something left to do");
    let (state, _) = committed(state, |change| change.record(idle(vec![end]), after(1)).unwrap());
    assert_eq!((state.queued_at, state.lease.clone()), (None, None));

    let (again, _) = committed(state.clone(), |change| change.record(record(Vec::new()), after(2)).unwrap());
    assert_eq!(again.queued_at, Some(after(2)), "a person's change leaves something to look at");
    let (again, _) = committed(state, |change| new(change, deploy("v2"), after(3)));
    assert_eq!(again.queued_at, Some(after(3)));
}

#[test]
fn a_polled_app_is_never_idle() {
    let policy = Policy { poll: Some(Duration::from_secs(60)), ..Policy::default() };
    let state = AppState::new(git_app(1, policy.clone()));
    assert_eq!(state.queued_at, Some(NOW), "from its registration on");
    let (state, _) = committed(state, |change| change.record(idle(Vec::new()), after(1)).unwrap());
    assert_eq!(state.queued_at, Some(NOW));
    let source = state.app.source.clone();
    let (state, _) = committed(state, |change| change.configure(source.clone(), Policy::default(), after(2)));
    assert!(!state.is_polled() && state.queued_at == Some(NOW), "its driver finds out");
    let (state, _) = committed(state, |change| change.record(idle(Vec::new()), after(3)).unwrap());
    assert_eq!(state.queued_at, None);
    let (state, _) = committed(state, |change| change.configure(Source::Image, policy, after(4)));
    assert_eq!((state.queued_at, &state.app.source), (Some(after(4)), &Source::Image));
}

#[test]
fn an_app_that_owes_a_restore_is_not_idle() {
    let state = moved(queued(registered(), 2), 1, succeeded);
    let failure = failed(state.unfinished(revision(2)).unwrap());
    let (state, _) = committed(state, |change| change.record(idle(vec![failure]), after(1)).unwrap());
    assert!(state.queued_at.is_some());
    assert!(matches!(owed(&state), Owed::Restore(current) if current.revision == revision(1)));

    let mut left = state.clone();
    Arc::make_mut(&mut left.app).policy.on_failure = OnFailure::Leave;
    let (left, _) = committed(left, |change| change.record(idle(Vec::new()), after(1)).unwrap());
    assert_eq!(left.queued_at, None, "the policy leaves the cluster as it is");

    let (state, _) = committed(state, |change| new(change, restore(), after(2)));
    let end = cancelled(state.unfinished(revision(3)).unwrap());
    let (state, _) = committed(state, |change| change.record(idle(vec![end]), after(3)).unwrap());
    assert_eq!((owed(&state), state.queued_at), (Owed::Nothing, None), "a restore is not made again");
    let (state, _) = committed(state, |change| new(change, deploy("v4"), after(4)));
    let state = moved(state, 4, failed);
    assert!(matches!(owed(&state), Owed::Restore(_)), "the next failure owes one anew");
    assert_eq!(owed(&moved(queued(registered(), 1), 1, failed)), Owed::NothingToRestore);
}

#[test]
fn a_record_releases_holds() {
    let mut state = registered();
    for tag in ["bad1", "bad2", "bad3"] {
        state = committed(state, |change| new(change, Admission { hold: Some(hold(tag)), ..rollback() }, NOW)).0;
    }
    let released = Record { release_holds: vec![revision(1), revision(3)], ..record(Vec::new()) };
    let mut change = Change::on(state);
    change.record(released, NOW).unwrap();
    assert_eq!(change.state.app.holds, [Hold { by: revision(2), ..hold("bad2") }]);
}
