//! The faults that the decorator adds to a port.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt};
use rollhook_conformance::{Fault, Faulty, ManualClock, block_on, client, samples};
use rollhook_core::{
    app::AppUid,
    ledger::Change,
    ports::{AppCommit, AppRef, HistoryStore, HistoryStoreExt},
};
use rollhook_management::ports::{NewRecord, RecordKind, RecordStore};
use rollhook_memory::MemoryStore;

struct Bench {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    app: AppUid,
}

impl Bench {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::on_system_time());
        let app = block_on(client::register(&*store, samples::app("shop", "test", "api"))).state.app.uid;
        Self { clock: Arc::default(), store, app }
    }

    /// The history, each of whose calls meets this fault.
    fn always(&self, fault: Fault) -> Faulty<MemoryStore> {
        Faulty::new(self.store.clone(), self.clock.clone(), Arc::new(move |_| fault))
    }

    /// The commit of one more deploy.
    fn accept(&self) -> AppCommit {
        let loaded = block_on(client::load(&*self.store, self.app));
        let mut change = Change::on(loaded.state);
        samples::admit(&mut change, samples::admission(samples::deploy("v1")), loaded.now);
        client::put(change, loaded.version)
    }

    fn recorded(&self) -> usize {
        block_on(client::load(&*self.store, self.app)).state.unfinished.len()
    }
}

#[test]
fn before_it_is_not_done() {
    let bench = Bench::new();
    let answer = block_on(bench.always(Fault::Before).commit_one(bench.accept()));
    assert!(answer.is_err_and(|error| error.is_unavailable()));
    assert_eq!(bench.recorded(), 0);
}

#[test]
fn lost_it_is_done() {
    let bench = Bench::new();
    let web = client::registration(Change::register(samples::app("shop", "test", "web")));
    let answers = block_on(bench.always(Fault::Lost).commit(vec![bench.accept(), web]));
    assert_eq!(answers.len(), 2, "each commit has an answer");
    assert!(answers.into_iter().all(|answer| answer.is_err_and(|error| error.is_unavailable())));
    assert_eq!(bench.recorded(), 1);
    let web = samples::app("shop", "test", "web").id;
    assert!(block_on(bench.store.load(AppRef::Name(&web), None)).unwrap().is_some());
}

#[test]
fn slow_it_is_done_later_and_late_it_is_told_later() {
    let bench = Bench::new();
    for (fault, at_once, done) in
        [(Fault::Slow(Duration::from_secs(5)), 0, 1), (Fault::Late(Duration::from_secs(5)), 2, 2)]
    {
        let history = bench.always(fault);
        let mut call = history.commit_one(bench.accept());
        assert!(call.as_mut().now_or_never().is_none());
        assert_eq!(bench.recorded(), at_once);
        bench.clock.advance(Duration::from_secs(5));
        assert!(matches!(call.now_or_never(), Some(Ok(_))));
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
            if name == "history.watch" { Fault::Lost } else { Fault::None }
        }
    };
    let history = Faulty::new(bench.store.clone(), bench.clock.clone(), Arc::new(plan));
    let mut changes = history.watch();
    block_on(history.commit_one(bench.accept())).unwrap();
    block_on(client::archive(&history, bench.app));
    assert!(changes.next().now_or_never().is_none(), "hints may be lost for ever");
    assert_eq!(*asked.lock().unwrap(), ["history.watch", "history.commit", "history.page"]);
}

#[test]
fn lost_write_of_a_record_is_made() {
    let bench = Bench::new();
    let record = NewRecord { key: "alice".parse().unwrap(), document: "{}".to_owned(), ttl: None };
    for (fault, is_written) in [(Fault::Before, false), (Fault::Lost, true)] {
        let answer = block_on(bench.always(fault).write(RecordKind::ApiToken, record.clone(), None));
        assert!(answer.is_err_and(|error| error.is_unavailable()));
        let stored = block_on(bench.store.read(RecordKind::ApiToken, &record.key)).unwrap();
        assert_eq!(stored.is_some(), is_written, "{fault:?}");
    }
}
