//! The log lines of the engine: a failed deploy is one warning, an outage is one line.
//!
//! A program of its own: what one thread listens to is remembered for all of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

#[path = "scenarios/world/mod.rs"]
mod world;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use rollhook_conformance::{Fault, Faulty, Plan, samples::git_source};
use rollhook_core::{
    app::Policy,
    delivery::{Before, Delivery, Event as HostEvent, GitHost, Head, Push, RefUpdate, Reference},
    deploy::Status,
    ports::{Clock, HistoryStore},
    request::Refusal,
    service::{Authorized, Deployer},
};
use rollhook_memory::Script;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::world::{World, api, leave, request, sha};

/// A line: its level and fields.
type Line = (Level, BTreeMap<&'static str, String>);

/// Keeps every line above debug.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        assert_eq!(fields.twice, None, "a field that is written twice loses one of its values");
        self.0.lock().unwrap().push((*event.metadata().level(), fields.values));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Fields {
    values: BTreeMap<&'static str, String>,
    twice: Option<&'static str>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.values.insert(field.name(), value.to_owned()).is_some() {
            self.twice = Some(field.name());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// The lines while a deploy fails, by a server whose commits meet these faults.
fn lines_of_a_failure(fault: impl Fn(usize) -> Fault + Send + Sync + 'static) -> Vec<Line> {
    let lines = Lines::default();
    let world = World::new(Duration::ZERO);
    world.cluster.script("bad", Script::missing());
    tracing::subscriber::with_default(lines.clone(), || {
        let access = world.run(world.app("api", leave()));
        let number = Mutex::new(0);
        let plan: Plan = Arc::new(move |call: &str| {
            if call != "history.commit" {
                return Fault::None;
            }
            let mut number = number.lock().unwrap();
            *number += 1;
            fault(*number)
        });
        let engine = on_faulty_store(&world, plan);
        world.run_beside(&engine, fail(&world, &access));
    });
    let mut lines = lines.0.lock().unwrap();
    std::mem::take(&mut *lines)
}

fn on_faulty_store(world: &World, plan: Plan) -> Deployer {
    let store: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(store, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    Deployer::new(world.ports(9).with(|ports| ports.history = history), "two")
}

/// Waits for the end of a deploy that fails.
async fn fail(world: &World, access: &Authorized) {
    world.deployer.submit(access, request(&api("bad"))).await.unwrap();
    assert_eq!(world.ended(access, 2).await.status(), Status::Failed);
    world.sleep(60).await;
}

fn failed(lines: &[Line]) -> Vec<&Line> {
    lines.iter().filter(|(_, fields)| fields["message"] == "deploying failed").collect()
}

#[test]
fn a_failed_deploy_is_one_warning_with_app_revision_reason_and_detail() {
    let lines = lines_of_a_failure(|_| Fault::None);
    let warnings: Vec<&Line> = lines.iter().filter(|(level, _)| *level <= Level::WARN).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let (level, fields) = warnings[0];
    assert_eq!(*level, Level::WARN);
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(fields[0], ("app", "shop-test/api"));
    assert!(fields[1].0 == "detail" && fields[1].1.contains("the image cannot be pulled"), "{fields:?}");
    assert_eq!(fields[2..], [("message", "deploying failed"), ("reason", "ImagePullBackOff"), ("revision", "2")]);
}

#[test]
fn a_failed_deploy_is_one_warning_also_if_an_answer_of_the_store_was_lost() {
    for lost in 1..8 {
        let lines = lines_of_a_failure(move |number| if number == lost { Fault::Lost } else { Fault::None });
        assert_eq!(failed(&lines).len(), 1, "commit {lost}: {lines:?}");
    }
}

#[test]
fn an_outage_of_the_cluster_is_one_line_however_often_it_is_observed() {
    let lines = Lines::default();
    let world = World::new(Duration::ZERO);
    tracing::subscriber::with_default(lines.clone(), || {
        let access = world.run(world.app("api", Policy::default()));
        world.cluster.set_reachable(false);
        world.run(async {
            world.deploy(&access, &api("v2")).await.unwrap();
            world.sleep(300).await;
            world.cluster.set_reachable(true);
            world.ended(&access, 2).await;
        });
    });
    let lines = lines.0.lock().unwrap();
    let warnings: Vec<&Line> = lines.iter().filter(|(level, _)| *level <= Level::WARN).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn a_push_to_a_process_without_a_builder_is_no_warning() {
    let lines = Lines::default();
    let world = World::new(Duration::ZERO);
    let head = Some(Head::new(sha("a1"), "Mend it"));
    let update = RefUpdate { reference: Reference::Branch("main".to_owned()), before: Before::Unreported, head };
    let push = Push { pusher: None, updates: vec![update] };
    let delivery = Delivery { host: GitHost::named("GitHub"), event: HostEvent::Push(push) };
    world.builds.set_head(&git_source(), Some(sha("a1")));
    let access = world.run(async { world.webhook(&world.git_app(Policy::default()).await).await });
    let process = Deployer::new(world.ports(9).with(|ports| ports.builder = None), "two");
    tracing::subscriber::with_default(lines.clone(), || {
        world.run(async {
            let refused = process.push(&access, &delivery, None).await;
            assert!(matches!(&refused, Err(Refusal::NoBuilder)), "{refused:?}");
        });
    });
    let lines = lines.0.lock().unwrap();
    let warnings: Vec<&Line> = lines.iter().filter(|(level, _)| *level <= Level::WARN).collect();
    assert!(warnings.is_empty(), "{warnings:?}");
}
