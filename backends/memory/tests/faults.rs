//! What the decorator does to a port.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt};
use rollhook_conformance::{Fault, Faulty, ManualClock, block_on, samples};
use rollhook_core::{
    app::App,
    ports::{Admitted, Apps, History},
};
use rollhook_memory::MemoryStore;

struct Bench {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    app: App,
}

impl Bench {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::on_system_time());
        let app = block_on(store.create(samples::app("shop", "test", "api"))).unwrap();
        Self { clock: Arc::default(), store, app }
    }

    /// The history, each of whose calls meets this fault.
    fn always(&self, fault: Fault) -> Faulty<MemoryStore> {
        Faulty::new(self.store.clone(), self.clock.clone(), Arc::new(move |_| fault))
    }

    fn recorded(&self) -> usize {
        block_on(self.store.view(self.app.uid)).unwrap().unfinished.len()
    }
}

#[test]
fn before_it_is_not_done() {
    let bench = Bench::new();
    let answer = block_on(bench.always(Fault::Before).admit(samples::admission(&bench.app, samples::draft("v1"))));
    assert!(answer.is_err_and(|error| error.is_unavailable()));
    assert_eq!(bench.recorded(), 0);
}

#[test]
fn lost_it_is_done() {
    let bench = Bench::new();
    let answer = block_on(bench.always(Fault::Lost).admit(samples::admission(&bench.app, samples::draft("v1"))));
    assert!(answer.is_err_and(|error| error.is_unavailable()));
    assert_eq!(bench.recorded(), 1);
}

#[test]
fn slow_it_is_done_later_and_late_it_is_told_later() {
    let bench = Bench::new();
    for (fault, at_once, done) in
        [(Fault::Slow(Duration::from_secs(5)), 0, 1), (Fault::Late(Duration::from_secs(5)), 2, 2)]
    {
        let history = bench.always(fault);
        let mut call = history.admit(samples::admission(&bench.app, samples::draft("v1")));
        assert!(call.as_mut().now_or_never().is_none());
        assert_eq!(bench.recorded(), at_once);
        bench.clock.advance(Duration::from_secs(5));
        assert!(matches!(call.now_or_never(), Some(Ok(Admitted::New { .. }))));
        assert_eq!(bench.recorded(), done);
    }
}

#[test]
fn a_plan_is_asked_by_name_for_every_call() {
    let bench = Bench::new();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let plan = {
        let asked = Arc::clone(&asked);
        move |name| {
            asked.lock().unwrap().push(name);
            if name == "history.wakes" { Fault::Lost } else { Fault::None }
        }
    };
    let history = Faulty::new(bench.store.clone(), bench.clock.clone(), Arc::new(plan));
    let mut wakes = history.wakes();
    block_on(history.admit(samples::admission(&bench.app, samples::draft("v1")))).unwrap();
    block_on(history.view(bench.app.uid)).unwrap();
    assert!(wakes.next().now_or_never().is_none(), "hints may be lost for ever");
    assert_eq!(*asked.lock().unwrap(), ["history.wakes", "history.admit", "history.view"]);
}
