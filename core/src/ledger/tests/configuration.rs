//! Which configuration a deploy runs with, and which stored ones may go.

use std::{collections::BTreeSet, sync::Arc};

use super::{after, cancelled, deploy, failed, image, moved, new, registered, succeeded};
use crate::{
    app::{App, Policy, Settings},
    check::Check,
    configuration::ConfigurationId,
    deploy::{Actor, AdmissionId, Deploy, Origin, State, Trigger},
    ledger::{AppState, Brought, Change, NewDeploy, Record, configuration},
    ports::StoredConfiguration,
    request::Cause,
    tests::{NOW, revision},
};

const fn id(number: u128) -> ConfigurationId {
    ConfigurationId(number)
}

/// The state after a deploy succeeded that brought this configuration.
fn running(number: u128) -> AppState {
    let mut change = Change::on(registered());
    let plain = deploy("v1");
    let brought = NewDeploy { configuration: Some(Brought(Some(id(number)))), ..plain.deploy.clone() };
    new(&mut change, super::Admission { deploy: brought, ..plain }, NOW);
    moved(change.state, 1, succeeded)
}

fn accepted(state: AppState, trigger: Trigger) -> AppState {
    let mut change = Change::on(state);
    let plain = deploy("v2");
    new(&mut change, super::Admission { deploy: NewDeploy { trigger, ..plain.deploy.clone() }, ..plain }, NOW);
    change.state
}

fn stored(number: u128, bytes: u64, seconds: u64) -> StoredConfiguration {
    StoredConfiguration { id: id(number), bytes, created_at: after(seconds) }
}

#[test]
fn deploy_takes_what_waits_and_a_rollback_what_is_current() {
    let state = AppState { staged: Some(id(2)), ..running(1) };
    for (trigger, wanted) in [(Trigger::Webhook, 2), (Trigger::Git, 2), (Trigger::Manual, 2), (Trigger::Rollback, 1)] {
        let state = accepted(state.clone(), trigger);
        let next = state.unfinished(revision(2)).unwrap();
        assert_eq!(configuration::of(&state, next), Some(id(wanted)), "{trigger}");
        let own = Deploy { configuration: Some(id(7)), configures: true, ..Deploy::clone(next) };
        assert_eq!(configuration::of(&state, &own), Some(id(7)), "{trigger}");
    }
    assert_eq!(running(1).next_configuration(), Some(id(1)));
    assert_eq!(registered().next_configuration(), None);
}

#[test]
fn what_waits_is_the_apps_once_a_deploy_has_succeeded_with_it() {
    let state = accepted(AppState { staged: Some(id(2)), ..running(1) }, Trigger::Webhook);
    let done = |with: u128| {
        let ended = moved(state.clone(), 2, |deploy| Deploy { configuration: Some(id(with)), ..succeeded(deploy) });
        (ended.staged, ended.next_configuration())
    };
    assert_eq!(done(2), (None, Some(id(2))));
    assert_eq!(done(1), (Some(id(2)), Some(id(2))), "another began before it was set");
}

#[test]
fn configuration_is_that_of_the_version_that_failed_until_one_has_succeeded() {
    let cause = Cause { trigger: Trigger::Config, actor: Actor::Ci };
    let brings = |state: &AppState, number: u128| {
        configuration::deploy(state, id(number), None, &cause).map(|deploy| (deploy.image, deploy.from))
    };
    let first = accepted(registered(), Trigger::Manual);
    assert!(brings(&first, 1).is_err(), "it may still succeed");
    let ended = |end: fn(&Deploy) -> Deploy| moved(first.clone(), 1, end);
    assert!(brings(&ended(cancelled), 1).is_err(), "nothing was on the cluster");
    let version = ended(failed);
    let again = (Some(image("v2")), Some(Origin::Same(revision(1))));
    assert_eq!((brings(&version, 1), version.next_configuration()), (Ok(again), None));

    let mut change = Change::on(AppState { staged: Some(id(1)), ..version });
    let deploy = configuration::deploy(&change.state, id(2), None, &cause).unwrap();
    new(&mut change, super::Admission::plain(AdmissionId(8), deploy), NOW);
    let second = change.state;
    let failed_again = moved(second.clone(), 2, failed);
    assert_eq!((failed_again.staged, failed_again.next_configuration()), (None, Some(id(2))), "it has what waited");
    let done = moved(second, 2, succeeded);
    assert_eq!((done.next_configuration(), done.failed_first()), (Some(id(2)), None));
}

#[test]
fn superseded_configuration_is_passed_on_but_to_no_rollback() {
    for (rollback, wanted) in [(false, Some(id(2))), (true, None)] {
        let mut change = Change::on(running(1));
        let plain = deploy("v1");
        let brought = NewDeploy { configuration: Some(Brought(Some(id(2)))), ..plain.deploy.clone() };
        new(&mut change, super::Admission { deploy: brought, ..plain }, NOW);
        let state = accepted(change.state, Trigger::Webhook);
        let by = revision(3);
        let ended = state.unfinished(revision(2)).unwrap().moved(State::Superseded { by, rollback, newer: None });
        let mut change = Change::on(state);
        change.record(Record { changes: vec![ended], ..Record::default() }, NOW).unwrap();
        let next = change.state.unfinished(by).unwrap();
        assert_eq!((next.configuration, next.configures), (wanted, !rollback));
    }
}

#[test]
fn surplus_is_what_nothing_needs_and_the_newest_are_kept() {
    let state = AppState { staged: Some(id(2)), ..running(1) };
    let many =
        |count: u128, bytes: u64| (1..=count).map(|number| stored(number, bytes, number as u64)).collect::<Vec<_>>();
    let now = after(100_000);
    assert!(configuration::surplus(&state, None, configuration::KEPT_BYTES, many(102, 10), now).is_empty());
    let gone = configuration::surplus(&state, None, configuration::KEPT_BYTES, many(110, 10), now);
    assert_eq!(gone.into_iter().collect::<BTreeSet<_>>(), (3..=10).map(id).collect(), "the oldest, but what is in use");
    let gone = configuration::surplus(&state, None, configuration::KEPT_BYTES, many(20, 1 << 20), now);
    assert_eq!(gone.into_iter().collect::<BTreeSet<_>>(), (3..=12).map(id).collect(), "8 MiB beside what is in use");
    let named = [id(5)].into();
    let gone = configuration::surplus(&state, Some(&named), configuration::KEPT_BYTES, many(6, 10), now);
    assert_eq!(gone.into_iter().collect::<BTreeSet<_>>(), [id(3), id(4), id(6)].into(), "what no entry names");
    let gone = configuration::surplus(&state, Some(&named), configuration::KEPT_BYTES, many(6, 10), after(30));
    assert!(gone.is_empty(), "what was stored a moment ago may be named by the next commit");
}

#[test]
fn secrets_of_checks_are_no_surplus() {
    let kind = "http".parse().unwrap();
    let check =
        Check::new("front".parse().unwrap(), kind, Settings::default()).with(|check| check.secret = Some(id(3)));
    let state = running(1);
    let policy = Policy { checks: vec![check], ..state.app.policy.clone() };
    let state = AppState { app: Arc::new(App { policy, ..(*state.app).clone() }), ..state };
    let stored: Vec<_> = (1..=4).map(|number| stored(number, 10, number as u64)).collect();
    let gone = configuration::surplus(&state, Some(&BTreeSet::new()), 0, stored, after(100_000));
    assert_eq!(gone.into_iter().collect::<BTreeSet<_>>(), [id(2), id(4)].into());
}
