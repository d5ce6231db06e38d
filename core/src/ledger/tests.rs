mod admit;
mod built;
mod configuration;
mod history;
mod push;
mod record;
mod recovery;
mod restore;
mod retention;
mod sequence;

use std::{sync::Arc, time::Duration};

use super::{Admission, Admitted, AppState, Change, KeyLookup, NewDeploy, Record};
use crate::{
    app::{App, Hold, Policy, Source},
    deploy::{Actor, AdmissionId, Deploy, Evidence, Order, Origin, Reason, Revision, Scale, State, Status, Trigger},
    image::ImageRef,
    replica::ReplicaId,
    tests::{NOW, git_app, revision},
    time::Timestamp,
};

/// The state of an image app that was just registered.
fn registered() -> AppState {
    AppState::new(App { source: Source::Image, ..git_app(1, Policy::default()) })
}

/// A moment so many seconds after the app was registered.
fn after(seconds: u64) -> Timestamp {
    NOW.after(Duration::from_secs(seconds))
}

fn image(tag: &str) -> ImageRef {
    format!("registry.example.com/api:{tag}").parse().unwrap()
}

/// The accept of an image by CI.
fn deploy(tag: &str) -> Admission {
    let deploy = NewDeploy {
        image: Some(image(tag)),
        commit: None,
        trigger: Trigger::Webhook,
        actor: Actor::Ci,
        from: None,
        effective: None,
        adopted: false,
        scale: Scale::Keep,
        configuration: None,
        order: Order::Unstated,
        unreleased: false,
        is_unproven: false,
        resolves: false,
        trace: None,
        committed_at: None,
    };
    Admission::plain(AdmissionId(7), deploy)
}

/// The accept of a person's rollback to revision 1.
fn rollback() -> Admission {
    let plain = deploy("v1");
    let deploy = NewDeploy {
        trigger: Trigger::Rollback,
        actor: Actor::person("alice"),
        from: Some(Origin::Revision(Revision::FIRST)),
        effective: Some(Revision::FIRST),
        ..plain.deploy
    };
    Admission { deploy, ..plain }
}

/// The accept of the service's own rollback to revision 1.
fn restore() -> Admission {
    let plain = rollback();
    Admission { deploy: NewDeploy { actor: Actor::Service, ..plain.deploy }, ..plain }
}

fn hold(tag: &str) -> Hold {
    Hold { by: Revision::FIRST, image: Some(image(tag)), digest: None, commit: None }
}

fn replica(name: &str) -> ReplicaId {
    ReplicaId { name: name.to_owned(), boot: 1 }
}

/// Accepts a deploy without a known key.
#[track_caller]
fn new(change: &mut Change, admission: Admission, now: Timestamp) -> Arc<Deploy> {
    match change.admit(admission, KeyLookup::Unread, now) {
        Admitted::New { deploy, .. } => deploy,
        other @ (Admitted::Replayed(_)
        | Admitted::KeyReused
        | Admitted::Outdated
        | Admitted::Full
        | Admitted::Locked(_)
        | Admitted::NextCommit) => panic!("not accepted: {other:?}"),
    }
}

/// The state after this change, committed for itself, and the deploys that it ended.
fn committed<T>(state: AppState, make: impl FnOnce(&mut Change) -> T) -> (AppState, Vec<Arc<Deploy>>) {
    let mut change = Change::on(state);
    make(&mut change);
    (change.state, change.ended)
}

/// The state with this many queued deploys more.
fn queued(state: AppState, count: usize) -> AppState {
    let accept = |change: &mut Change| {
        for _ in 0..count {
            new(change, deploy("queued"), NOW);
        }
    };
    committed(state, accept).0
}

/// The record of these changes by a person.
fn record(changes: Vec<Deploy>) -> Record {
    Record { changes, ..Record::default() }
}

/// The state after an unfinished deploy was moved on.
fn moved(state: AppState, number: u64, next: impl FnOnce(&Deploy) -> Deploy) -> AppState {
    let next = next(state.unfinished(revision(number)).unwrap());
    committed(state, |change| change.record(record(vec![next]), NOW).unwrap()).0
}

fn rolling_out(deploy: &Deploy) -> Deploy {
    Deploy { touched: true, ..deploy.moved(State::RollingOut { since: NOW, outage: Default::default() }) }
}

fn succeeded(deploy: &Deploy) -> Deploy {
    Deploy { touched: true, ..deploy.moved(State::Succeeded { note: None }) }
}

/// The failure of a deploy that touched the cluster, with evidence.
fn failed(deploy: &Deploy) -> Deploy {
    let evidence = Some(Evidence { container: Some("app".to_owned()), ..Evidence::default() });
    let state =
        State::Failed { reason: Reason::new(Reason::DEADLINE), message: "It took too long.".to_owned(), evidence };
    Deploy { touched: true, ..deploy.moved(state) }
}

/// The end of a deploy that never touched the cluster.
fn cancelled(deploy: &Deploy) -> Deploy {
    let reason = Reason::new(Reason::CANCELLED);
    Deploy { touched: false, ..deploy.moved(State::Cancelled { reason, message: "by alice".to_owned() }) }
}

fn numbers<'a>(deploys: impl IntoIterator<Item = &'a Arc<Deploy>>) -> Vec<u64> {
    deploys.into_iter().map(|deploy| deploy.revision.get()).collect()
}
