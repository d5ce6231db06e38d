//! A store that does what it was asked and then cannot say so: the one thing that a real store does not do on demand.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    action::Action,
    app::Policy,
    ports::{Clock, HistoryStore},
    request::Refusal,
    service::Deployer,
};

use crate::world::{World, registration, request};

/// The service on the world's store, whose calls meet these faults, the next call first.
fn deployer(world: &World, call: &'static str, faults: Vec<Fault>) -> (Deployer, Arc<AtomicUsize>) {
    let faults = Mutex::new(faults.into_iter());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let plan: Plan = Arc::new(move |name: &'static str| {
        if name != call {
            return Fault::None;
        }
        counted.fetch_add(1, Ordering::Relaxed);
        faults.lock().unwrap().next().unwrap_or_default()
    });
    (planned(world, plan), calls)
}

/// The service on the world's store, whose calls meet the faults of a plan.
fn planned(world: &World, plan: Plan) -> Deployer {
    let store: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(store, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    Deployer::new(
        world.ports(9).with(|ports| {
            ports.history = history;
            ports.builder = None;
        }),
        "two",
    )
}

/// Submits one deploy through a store whose calls meet these faults, and says what the caller is told and how many
/// revisions there are.
fn submitted(call: &'static str, faults: Vec<Fault>) -> (Result<u64, Refusal>, usize) {
    let world = World::new(Duration::ZERO);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let (deployer, _) = deployer(&world, call, faults);
        let access = deployer.allow(world.operator.clone(), access.app(), Action::ALL).await.unwrap();
        let answer = deployer.submit(&access, request("registry.example.com/api:v2")).await;
        (answer.map(|done| done.deploy.revision.get()), world.history(&access).await.len())
    })
}

#[test]
fn accept_whose_answer_was_lost_is_found_by_its_own_id() {
    assert_eq!(submitted("history.commit", vec![Fault::Lost]), (Ok(2), 2), "recorded once, and confirmed");
}

#[test]
fn accept_that_is_not_there_may_still_come_from_a_slow_store() {
    let refusal = Refusal::StoreUnavailable { maybe_recorded: true };
    assert_eq!(submitted("history.commit", vec![Fault::Before]), (Err(refusal), 1));
}

#[test]
fn accept_that_cannot_be_looked_up_may_have_been_recorded_and_says_so() {
    let world = World::new(Duration::ZERO);
    let refusal = world.idle(async {
        let access = world.register("api", Policy::default()).await;
        // The commit's answer is lost, and every read after it fails.
        let committed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let plan: Plan = Arc::new(move |call| match call {
            "history.commit" => {
                committed.store(true, Ordering::Relaxed);
                Fault::Lost
            }
            "history.load" if committed.load(Ordering::Relaxed) => Fault::Before,
            _ => Fault::None,
        });
        let deployer = planned(&world, plan);
        let access = deployer.allow(world.operator.clone(), access.app(), Action::ALL).await.unwrap();
        deployer.submit(&access, request("registry.example.com/api:v2")).await.unwrap_err()
    });
    assert_eq!(refusal, Refusal::StoreUnavailable { maybe_recorded: true });
    assert!(refusal.to_string().contains("same Idempotency-Key"));
}

#[test]
fn cancel_whose_answer_was_lost_may_have_been_recorded_and_says_so() {
    let world = World::new(Duration::ZERO);
    let refusal = world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let (deployer, _) = deployer(&world, "history.commit", vec![Fault::Lost]);
        let first = rollhook_core::deploy::Revision::FIRST;
        deployer.cancel(&access, first).await.unwrap_err()
    });
    assert_eq!(refusal, Refusal::StoreUnavailable { maybe_recorded: true });
}

#[test]
fn registration_whose_answer_was_lost_is_found_by_its_own_uid() {
    let world = World::new(Duration::ZERO);
    world.idle(async {
        let (deployer, commits) = deployer(&world, "history.commit", vec![Fault::Lost]);
        let registered = deployer.register(&world.operator, registration("api", Policy::default()), None).await;
        assert_eq!(registered.unwrap().deploy.unwrap().revision.get(), 1);
        assert_eq!(commits.load(Ordering::Relaxed), 1, "app and first deploy are one commit");
    });
}

#[test]
fn registration_that_was_not_written_leaves_nothing_half_made() {
    let world = World::new(Duration::ZERO);
    world.idle(async {
        let (deployer, _) = deployer(&world, "history.commit", vec![Fault::Before]);
        let wanted = registration("api", Policy::default());
        let refusal = deployer.register(&world.operator, wanted.clone(), None).await.unwrap_err();
        assert_eq!(refusal, Refusal::StoreUnavailable { maybe_recorded: true });
        let registered = deployer.register(&world.operator, wanted, None).await.unwrap();
        assert_eq!(registered.deploy.unwrap().revision.get(), 1);
    });
}
