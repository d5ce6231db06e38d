//! A store that does what it was asked and then cannot say so: the one thing that a real store does not do on demand.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod world;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use mockall::mock;
use rollhook_core::{
    Error, Result,
    app::{AppUid, Policy},
    deploy::{AdmissionId, Deploy},
    ports::{Admission, Admitted, Apps, Claim, Claimed, History, Page, Record, View, Wake},
    request::Refusal,
    service::{Deployer, Operator, Ports},
};
use world::{World, registration, request};

mock! {
    Store {}

    #[async_trait]
    impl History for Store {
        async fn admit(&self, admission: Admission) -> Result<Admitted>;
        async fn record(&self, record: Record) -> Result<()>;
        async fn view(&self, app: AppUid) -> Result<View>;
        async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>>;
        async fn claim(&self, claim: Claim) -> Result<Claimed>;
        fn wakes(&self) -> BoxStream<'static, Wake>;
    }
}

fn away<T>() -> Result<T> {
    Err(Error::Unavailable { what: "the database does not answer".to_owned(), cause: None })
}

/// The service on a history that behaves like this; the rest is the world's.
fn deployer(world: &World, history: MockStore) -> Deployer {
    let ports = Ports {
        apps: Arc::clone(&world.store) as Arc<dyn Apps>,
        tokens: Arc::clone(&world.store) as _,
        history: Arc::new(history),
        rollouts: Arc::clone(&world.cluster) as _,
        builder: None,
        clock: Arc::clone(&world.clock) as _,
        entropy: Arc::new(world::SimEntropy::new(9)),
    };
    Deployer::new(ports, "one")
}

/// Submits one deploy through a history that behaves like this, and says what the caller is told.
fn submitted(history: MockStore) -> Result<u64, Refusal> {
    let world = World::new(Duration::ZERO);
    let deployer = deployer(&world, history);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let access = deployer.open(&Operator::trusted("alice"), access.app()).await.unwrap();
        deployer.submit(&access, request("registry.example.com/api:v2")).await.map(|done| done.deploy.revision.get())
    })
}

/// The entry that an accept of this id made.
fn made(id: AdmissionId) -> Deploy {
    let draft = rollhook_core::ports::NewDeploy {
        image: None,
        commit: None,
        trigger: rollhook_core::deploy::Trigger::Webhook,
        actor: rollhook_core::deploy::Actor::ci(),
        from: None,
        effective: None,
        adopted: false,
    };
    let revision = rollhook_core::deploy::Revision::new(7).unwrap();
    draft.entry(id, revision, rollhook_core::time::Timestamp::from_millis(1))
}

#[test]
fn an_accept_whose_answer_was_lost_is_found_by_its_own_id() {
    let mut history = MockStore::new();
    let id_of = Arc::new(std::sync::Mutex::new(None));
    let written = Arc::clone(&id_of);
    history.expect_admit().times(1).returning(move |admission| {
        *written.lock().unwrap() = Some(admission.id);
        away()
    });
    history
        .expect_page()
        .times(1)
        .returning(move |_, _| Ok(vec![made(AdmissionId(1)), made(id_of.lock().unwrap().unwrap())]));
    assert_eq!(submitted(history), Ok(7));
}

#[test]
fn an_accept_that_is_not_there_may_still_come_from_a_slow_store() {
    let mut history = MockStore::new();
    history.expect_admit().times(1).returning(|_| away());
    history.expect_page().times(1).returning(|_, _| Ok(vec![made(AdmissionId(1))]));
    assert_eq!(submitted(history), Err(Refusal::StoreUnavailable { maybe_recorded: true }));
}

#[test]
fn an_accept_that_cannot_be_looked_up_may_have_been_recorded_and_says_so() {
    let mut history = MockStore::new();
    history.expect_admit().times(1).returning(|_| away());
    history.expect_page().times(1).returning(|_, _| away());
    let refusal = submitted(history).unwrap_err();
    assert_eq!(refusal, Refusal::StoreUnavailable { maybe_recorded: true });
    assert!(refusal.to_string().contains("same Idempotency-Key"));
}

#[test]
fn a_cancel_whose_answer_was_lost_may_have_been_recorded_and_says_so() {
    let world = World::new(Duration::ZERO);
    let mut history = MockStore::new();
    history.expect_page().returning(|_, _| Ok(vec![made(AdmissionId(1))]));
    history.expect_record().times(1).returning(|_| away());
    let deployer = deployer(&world, history);
    let refusal = world.idle(async {
        let access = world.register("api", Policy::default()).await;
        deployer.cancel(&world.operator, access.app(), made(AdmissionId(1)).revision).await.unwrap_err()
    });
    assert_eq!(refusal, Refusal::StoreUnavailable { maybe_recorded: true });
}

#[test]
fn a_registration_that_somebody_deployed_to_at_once_is_not_taken_back() {
    let world = World::new(Duration::ZERO);
    let mut history = MockStore::new();
    history.expect_admit().times(1).returning(|_| Ok(Admitted::Stale));
    let deployer = deployer(&world, history);
    world.idle(async {
        let wanted = registration("api", Policy::default());
        let refusal = deployer.register(&world.operator, wanted, None).await.unwrap_err();
        let Refusal::AppExists(id) = refusal else { panic!("{refusal:?}") };
        assert!(deployer.open(&world.operator, &id).await.is_ok(), "what was accepted is still there");
    });
}

#[test]
fn a_registration_that_its_process_never_finished_is_made_anew() {
    let world = World::new(Duration::ZERO);
    let mut history = MockStore::new();
    history.expect_admit().times(1).returning(|_| Ok(Admitted::Stale));
    let ended = deployer(&world, history);
    world.idle(async {
        let wanted = registration("api", Policy::default());
        assert!(ended.register(&world.operator, wanted.clone(), None).await.is_err());
        let soon = world.deployer.register(&world.operator, wanted.clone(), None).await;
        assert!(matches!(soon, Err(Refusal::AppExists(_))), "it may yet be finished: {soon:?}");
        world.sleep(61).await;
        let registered = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        assert_eq!(registered.deploy.unwrap().revision.get(), 1);
    });
}
