//! Whatever people, CI and the cluster do, and whenever the service is killed: the rules hold after every step, and
//! everything ends. Schedules are lists of choices, so that a failing one shrinks to what a person can read.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod world;

use std::{collections::BTreeMap, pin::Pin, time::Duration};

use futures_util::{FutureExt, select_biased};
use proptest::prelude::*;
use rollhook_core::{
    app::{OnFailure, Policy},
    deploy::{Deploy, Revision, Status, Trigger},
    request::{Refusal, RollbackRequest},
    service::{Authorized, Deployer},
};
use rollhook_memory::Script;
use world::{World, block_on};

#[derive(Clone, Debug)]
enum Choice {
    /// Deploys image number n; some are sound, some are not.
    Deploy(u8),
    /// Rolls back, by default or to a revision counted from the newest.
    Rollback(Option<u8>),
    /// Cancels a revision counted from the newest.
    Cancel(u8),
    /// Lets time pass, in seconds.
    Pass(u16),
    /// Takes the cluster away, or brings it back.
    Reach(bool),
    /// Kills the engine; a process of the same name, or of another, goes on.
    Kill(bool),
    /// Sets the store's clock by seconds, forwards or back.
    Clock(i8),
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    let choice = prop_oneof![
        5 => (0..8u8).prop_map(Choice::Deploy),
        2 => Just(Choice::Rollback(None)),
        1 => (0..6u8).prop_map(|back| Choice::Rollback(Some(back))),
        1 => (0..4u8).prop_map(Choice::Cancel),
        6 => prop_oneof![0..5u16, 5..60u16, 600..900u16].prop_map(Choice::Pass),
        1 => any::<bool>().prop_map(Choice::Reach),
        1 => any::<bool>().prop_map(Choice::Kill),
        1 => any::<i8>().prop_map(Choice::Clock),
    ];
    proptest::collection::vec(choice, 1..40)
}

/// Images 0 to 3 are sound; the others fail, each in its own way.
fn image(n: u8) -> String {
    let tag = ["v0", "v1", "v2", "v3", "missing", "crash", "hang", "dies"][usize::from(n)];
    format!("registry.example.com/api:{tag}")
}

/// What rule 10 says, read off the whole history: the revision that a rollback stands for.
fn meant(history: &[Deploy]) -> Option<u64> {
    let by_revision: BTreeMap<u64, &Deploy> = history.iter().map(|d| (d.revision.get(), d)).collect();
    let current = history.iter().rev().find(|d| d.status() == Status::Succeeded);
    let top = history.iter().rev().find(|d| d.touched)?;
    let rollback = top.trigger == Trigger::Rollback;
    let before = || {
        let below = by_revision.range(..top.effective.get()).rev();
        below.map(|(_, d)| *d).find(|d| d.status() == Status::Succeeded && !d.same_image(top))
    };
    let entry = match top.status() {
        Status::Succeeded => before(),
        Status::Failed if rollback => before(),
        status if !status.is_terminal() && rollback => Some(top),
        Status::Queued
        | Status::Building
        | Status::RollingOut
        | Status::Failed
        | Status::Superseded
        | Status::Cancelled => current,
    };
    entry.map(|d| d.effective.get())
}

struct Run {
    world: World,
    access: Authorized,
    processes: u64,
}

impl Run {
    async fn perform(&self, choice: &Choice) {
        let deployer = &self.world.deployer;
        match choice {
            Choice::Deploy(n) => match self.world.deploy(&self.access, &image(*n)).await {
                Ok(_) | Err(Refusal::TooManyUnfinished) => {}
                Err(refusal) => panic!("{refusal:?}"),
            },
            Choice::Rollback(back) => {
                let history = self.world.history(&self.access).await;
                let revision = back.and_then(|back| newest(&history, back));
                let expected =
                    revision.map_or_else(|| meant(&history), |r| Some(history[r.get() as usize - 1].effective.get()));
                let wish = RollbackRequest { revision, ..RollbackRequest::default() };
                match deployer.rollback(&self.world.operator, self.access.app(), wish).await {
                    Ok(accepted) => {
                        assert_eq!(Some(accepted.deploy.effective.get()), expected);
                        let unfinished: Vec<_> =
                            history.iter().filter(|d| !d.is_terminal()).map(|d| d.revision).collect();
                        assert_eq!(accepted.superseded, unfinished);
                    }
                    Err(Refusal::NothingToRollBackTo(_)) => assert_eq!(expected, None),
                    Err(refusal) => panic!("{refusal:?}"),
                }
            }
            Choice::Cancel(back) => {
                let history = self.world.history(&self.access).await;
                if let Some(revision) = newest(&history, *back) {
                    match deployer.cancel(&self.world.operator, self.access.app(), revision).await {
                        Ok(_) | Err(Refusal::AlreadyEnded(_)) => {}
                        Err(refusal) => panic!("{refusal:?}"),
                    }
                }
            }
            Choice::Reach(reachable) => self.world.cluster.set_reachable(*reachable),
            Choice::Clock(seconds) => *self.world.skew.lock().unwrap() += i64::from(*seconds) * 1000,
            Choice::Pass(_) | Choice::Kill(_) => {}
        }
    }

    /// What must be so at every moment.
    async fn keeps_the_rules(&self) {
        let history = self.world.history(&self.access).await;
        assert!(self.world.effects().is_sorted(), "the cluster went backwards: {:?}", self.world.effects());
        for restore in history.iter().filter(|d| d.is_restore()) {
            let before = history.iter().rev().find(|d| d.revision < restore.revision && d.touched).unwrap();
            let bad = matches!(before.status(), Status::Failed | Status::Cancelled | Status::Superseded);
            assert!(bad, "{restore:?} was not owed");
            assert!(!before.is_restore(), "a restore was restored");
        }
    }

    fn process(&mut self, same_name: bool) -> Deployer {
        self.processes += 1;
        let name = if same_name { "one".to_owned() } else { format!("process {}", self.processes) };
        std::sync::Arc::into_inner(self.world.replica(&name, 100 + self.processes)).unwrap()
    }
}

fn newest(history: &[Deploy], back: u8) -> Option<Revision> {
    history.iter().rev().nth(usize::from(back)).map(|deploy| deploy.revision)
}

type Engine<'a> = futures_util::future::Fuse<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>;

fn engine(deployer: &Deployer) -> Engine<'_> {
    deployer.run(std::future::pending()).boxed().fuse()
}

async fn pass(run: &Run, mut engine: &mut Engine<'_>, seconds: u64) {
    select_biased! {
        () = engine => panic!("nobody shut the engine down"),
        () = run.world.sleep(seconds).fuse() => {}
    }
}

fn scenario(choices: &[Choice], policy: Policy) {
    let world = World::new(Duration::from_secs(2));
    world.cluster.script("dies", Script::dies_after(Duration::from_secs(4)));
    let clock = std::sync::Arc::clone(&world.clock);
    block_on(&clock, async {
        let access = world.register("api", policy).await;
        let mut run = Run { world, access, processes: 0 };
        let mut process = run.process(true);
        let mut choices = choices.iter();
        loop {
            // One life of a process, until it is killed.
            let mut driving = engine(&process);
            let killed = loop {
                match choices.next() {
                    Some(Choice::Kill(same_name)) => break Some(*same_name),
                    Some(Choice::Pass(seconds)) => pass(&run, &mut driving, u64::from(*seconds)).await,
                    Some(choice) => run.perform(choice).await,
                    None => break None,
                }
                run.keeps_the_rules().await;
            };
            if killed.is_none() {
                run.world.cluster.set_reachable(true);
                ends(&run, &mut driving).await;
                return;
            }
            drop(driving);
            process = run.process(killed.unwrap_or_default());
        }
    });
}

/// Once the cluster is back, everything ends, and then nothing moves any more.
async fn ends(run: &Run, engine: &mut Engine<'_>) {
    for _ in 0..200 {
        pass(run, engine, 30).await;
        run.keeps_the_rules().await;
        let history = run.world.history(&run.access).await;
        if history.iter().all(Deploy::is_terminal) {
            pass(run, engine, 300).await;
            let later = run.world.history(&run.access).await;
            if later == history {
                let effects = run.world.effects();
                pass(run, engine, 3600).await;
                assert_eq!(run.world.history(&run.access).await, history, "stepping again did something");
                assert_eq!(run.world.effects(), effects);
                return;
            }
        }
    }
    panic!("it never ends: {:?}", world::statuses(&run.world.history(&run.access).await));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_whatever_happens(choices in choices(), leave in any::<bool>()) {
        let on_failure = if leave { OnFailure::Leave } else { OnFailure::Restore };
        scenario(&choices, Policy { on_failure, ..Policy::default() });
    }
}
