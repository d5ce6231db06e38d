//! Seeds: each is one scenario; one that breaks a rule is made as short as it gets, and told.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::{
    broken::Promise,
    choices::{Scenario, scenarios},
    journal::Tally,
    run::{Ended, play},
};

/// How many seeds are played at once.
const THREADS: usize = 2;
/// How often a shorter scenario is tried.
const SHRINKS: usize = 3_000;

/// The outcome of many seeds.
pub(crate) struct Played {
    /// The first that broke a rule.
    pub(crate) broken: Option<u64>,
    pub(crate) tally: Tally,
}

/// Plays these seeds, each in one thread, until one breaks a rule.
pub(crate) fn all(seeds: Range<u64>, promise: Option<Promise>) -> Played {
    let (next, broken) = (AtomicU64::new(seeds.start), AtomicU64::new(seeds.end));
    let tally = Mutex::new(Tally::new());
    let work = || {
        let mut counted = Tally::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= broken.load(Ordering::Relaxed) {
                break;
            }
            let ended = caught(&tree(seed).current(), promise, false);
            ended.tally.into_iter().for_each(|(what, times)| *counted.entry(what).or_default() += times);
            if ended.broken.is_some() {
                broken.fetch_min(seed, Ordering::Relaxed);
            }
        }
        let mut tally = tally.lock().unwrap();
        counted.into_iter().for_each(|(what, times)| *tally.entry(what).or_default() += times);
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    let broken = broken.into_inner();
    Played { broken: (broken < seeds.end).then_some(broken), tally: tally.into_inner().unwrap() }
}

/// The seed's event log.
pub(crate) fn replay(seed: u64, promise: Option<Promise>) -> String {
    let scenario = tree(seed).current();
    text(seed, &scenario, &caught(&scenario, promise, true))
}

/// The shortest scenario found that the seed leads to and that still breaks a rule, with its event log.
pub(crate) fn shrunk(seed: u64, promise: Option<Promise>) -> String {
    let mut tree = tree(seed);
    let mut shortest = tree.current();
    let mut shorter = tree.simplify();
    for _ in 0..SHRINKS {
        if !shorter {
            break;
        }
        let scenario = tree.current();
        if caught(&scenario, promise, false).broken.is_some() {
            shortest = scenario;
            shorter = tree.simplify();
        } else {
            shorter = tree.complicate();
        }
    }
    text(seed, &shortest, &caught(&shortest, promise, true))
}

fn tree(seed: u64) -> impl ValueTree<Value = Scenario> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config { failure_persistence: None, ..Config::default() }, rng);
    scenarios().new_tree(&mut runner).unwrap()
}

fn caught(scenario: &Scenario, promise: Option<Promise>, told: bool) -> Ended {
    catch_unwind(AssertUnwindSafe(|| play(scenario, promise, told))).unwrap_or_else(|_| Ended {
        broken: Some("it panicked".to_owned()),
        tally: Tally::new(),
        log: Vec::new(),
    })
}

fn text(seed: u64, scenario: &Scenario, ended: &Ended) -> String {
    let broken = ended.broken.as_deref().unwrap_or("no rule was broken");
    let choices: Vec<String> = scenario.choices.iter().map(|choice| format!("    {choice:?}")).collect();
    format!(
        "seed {seed}: {broken}\n{} replicas, first version settled: {}, failures are left: {}, holds bind CI: {}, signed by: {:?}\n{:?}, also {:?}, {:?}\n{}\n\n{}\n",
        scenario.replicas,
        scenario.settled,
        scenario.leave,
        scenario.hold_all,
        scenario.signed,
        scenario.kinds,
        scenario.also,
        scenario.own,
        choices.join("\n"),
        ended.log.join("\n")
    )
}
