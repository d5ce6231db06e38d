//! Looks at a branch that cannot be taken at their word: answers that lag behind, heads of long ago, and no room to
//! look.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{AppId, Policy},
    deploy::{Commit, Revision, Trigger},
    ports::BranchReader,
    request::DeployRequest,
    service::{Authorized, Deployer, PollOutcome},
    source::{BranchLog, GitSource},
};

use crate::world::{World, sha};

const SECOND: Duration = Duration::from_secs(1);

type Answer = dyn Fn() -> Result<Option<Commit>> + Send + Sync;

/// A source that says what it is told to, and counts how often it was looked at.
struct ScriptedBranches {
    answer: Mutex<Box<Answer>>,
    looks: Mutex<usize>,
}

#[async_trait]
impl BranchReader for ScriptedBranches {
    async fn head(&self, _app: &AppId, _source: &GitSource) -> Result<Option<Commit>> {
        panic!("nobody waits for a look")
    }

    async fn look(&self, _app: &AppId, _source: &GitSource) -> Result<Option<Commit>> {
        *self.looks.lock().unwrap() += 1;
        (*self.answer.lock().unwrap())()
    }

    async fn log(&self, _app: &AppId, _source: &GitSource) -> Result<BranchLog> {
        panic!("no commit is posted that another one was before")
    }
}

impl ScriptedBranches {
    fn is_at(&self, digits: &'static str) {
        *self.answer.lock().unwrap() = Box::new(move || Ok(Some(sha(digits))));
    }

    fn fails(&self, error: fn() -> Error) {
        *self.answer.lock().unwrap() = Box::new(move || Err(error()));
    }

    fn looks(&self) -> usize {
        *self.looks.lock().unwrap()
    }
}

/// The world's stores, cluster and builder, and a source that is told what to say.
fn with_told(world: &World, name: &str) -> (Arc<ScriptedBranches>, Deployer) {
    let told =
        Arc::new(ScriptedBranches { answer: Mutex::new(Box::new(|| Ok(Some(sha("a1"))))), looks: Mutex::new(0) });
    let engine = world.replica_with_branches(name, Arc::clone(&told) as _);
    (told, engine)
}

impl World {
    /// An app that is looked at every so many seconds, and runs `a1`.
    async fn app_polled_every(&self, seconds: u64) -> Authorized {
        let policy = Policy::default().with(|policy| policy.poll = Some(SECOND * u32::try_from(seconds).unwrap()));
        let access = self.git_app(policy).await;
        self.sleep(65).await;
        self.ended(&access, 1).await;
        access
    }

    /// The first digits of each commit, oldest first.
    async fn commits(&self, access: &Authorized) -> Vec<String> {
        let history = self.history(access).await;
        history.iter().map(|entry| entry.commit.as_ref().unwrap().as_str()[..2].to_owned()).collect()
    }
}

/// Waits until the source was looked at once more.
async fn looked(world: &World, told: &ScriptedBranches) {
    let before = told.looks();
    while told.looks() == before {
        world.sleep(1).await;
    }
}

#[test]
fn single_answer_of_a_lagging_server_deploys_no_older_commit() {
    let world = World::new(SECOND);
    let (told, engine) = with_told(&world, "one");
    world.run_beside(&engine, async {
        let access = world.app_polled_every(60).await;
        told.is_at("b2");
        world.sleep(70).await;
        world.ended(&access, 2).await;
        for _ in 0..3 {
            told.is_at("a1");
            looked(&world, &told).await;
            told.is_at("b2");
            world.sleep(600).await;
        }
        assert_eq!(world.commits(&access).await, ["a1", "b2"]);
        told.is_at("a1");
        world.sleep(70 + 40).await;
        assert_eq!(world.ended(&access, 3).await.commit, Some(sha("a1")), "it stays so");
        told.is_at("c3");
        looked(&world, &told).await;
        world.sleep(1).await;
        assert_eq!(world.entry(&access, 4).await.commit, Some(sha("c3")), "what is new is deployed at once");
    });
}

#[test]
fn head_behind_many_newer_entries_is_known_to_another_replica() {
    let world = World::new(SECOND);
    let (_, first) = with_told(&world, "one");
    let access = world.run_beside(&first, async {
        let access = world.app_polled_every(60).await;
        for number in 0..250_u64 {
            // Somebody deploys other commits all the time.
            let request = DeployRequest::commit(sha(&format!("c{number:03}")));
            let revision = world.deployer.submit(&access, request).await.unwrap().deploy.revision.get();
            world.ended(&access, revision).await;
        }
        access
    });
    drop(first);
    let (told, second) = with_told(&world, "two");
    world.run_beside(&second, async {
        world.sleep(600).await;
        assert!(told.looks() > 5);
        assert_eq!(world.view(&access).await.latest, Revision::new(251));
        told.is_at("d4");
        looked(&world, &told).await;
        world.sleep(1).await;
        let found = world.entry(&access, 252).await;
        assert_eq!((found.trigger, found.commit), (Trigger::Git, Some(sha("d4"))), "what is new is deployed");
    });
}

#[test]
fn poll_without_capacity_is_not_reported_as_unreadable() {
    let world = World::new(SECOND);
    let (told, engine) = with_told(&world, "one");
    world.run_beside(&engine, async {
        let access = world.app_polled_every(600).await;
        let found = || engine.polled(access.uid()).map(|polled| polled.found);
        told.fails(|| Error::Conflict(rollhook_core::error::Entity::Capacity));
        looked(&world, &told).await;
        let before = told.looks();
        world.sleep(3600).await;
        assert_eq!(found(), Some(PollOutcome::Head(sha("a1").into())), "what was read last");
        assert!(told.looks() - before > 60, "it is tried again soon");
        told.is_at("b2");
        world.sleep(40).await;
        assert_eq!(world.ended(&access, 2).await.commit, Some(sha("b2")));
    });
}
