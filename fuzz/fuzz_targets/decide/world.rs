//! The store, the time, and what must be so at every moment.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use futures_util::FutureExt;
use rollhook_core::{
    app::{App, AppUid, HoldPolicy, OnFailure, Policy, Source, Target},
    deploy::{AdmissionId, Deploy},
    engine,
    ledger::{Admission, Admitted, AppState, Change, KeyLookup, check::check, history},
    ports::{AppCommit, AppRef, HistoryStore, HistoryStoreExt, Page},
    time::Timestamp,
};
use rollhook_memory::MemoryStore;

use crate::{
    choices::{Rules, Weather},
    driver::Waiting,
    witness::Witness,
};

pub(crate) struct World {
    pub(crate) store: MemoryStore,
    now: Arc<AtomicI64>,
    pub(crate) uid: AppUid,
    accepts: u128,
    pub(crate) driver: Option<engine::State>,
    pub(crate) waiting: Waiting,
    pub(crate) weather: Weather,
    pub(crate) witness: Witness,
    /// Effects that the driver performs before it is killed.
    pub(crate) fuse: Option<u8>,
    pub(crate) lose_answer: bool,
    pub(crate) deaf: bool,
    /// Whether the driver knows of everything that was written.
    pub(crate) fresh: bool,
}

/// What a future of the store in memory comes to, which waits for nothing.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("memory does not wait")
}

impl World {
    pub(crate) fn new(rules: Rules) -> Self {
        let now = Arc::new(AtomicI64::new(1_000_000));
        let clock = Arc::clone(&now);
        let store = MemoryStore::new(Arc::new(move || Timestamp::from_millis(clock.load(Ordering::Relaxed))));
        let app = app(rules);
        let uid = app.uid;
        let register = AppCommit::Register(Box::new(Change::register(app)));
        at_once(store.commit_one(register)).expect("it is new");
        Self {
            store,
            now,
            uid,
            accepts: 0,
            driver: None,
            waiting: Waiting::Rest,
            weather: Weather::FAIR,
            witness: Witness::default(),
            fuse: None,
            lose_answer: false,
            deaf: false,
            fresh: false,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::Relaxed))
    }

    pub(crate) fn later(&self, millis: i64) {
        self.now.fetch_add(millis, Ordering::Relaxed);
    }

    pub(crate) fn view(&self) -> AppState {
        let loaded = at_once(self.store.load(AppRef::Uid(self.uid), None)).expect("memory answers");
        loaded.expect("it is registered").state
    }

    /// The whole history, oldest first.
    pub(crate) fn history(&self) -> Vec<Deploy> {
        let page = Page::newest(usize::MAX);
        let archived = at_once(self.store.page(self.uid, page)).expect("memory answers");
        let mut history = history::page(&self.view(), archived, page).expect("nothing has ended in between");
        history.reverse();
        history
    }

    /// Decides a change on the app as it is stored, and commits what was changed.
    pub(crate) fn commit<T>(&self, decide: impl FnOnce(&mut Change, Timestamp) -> T) -> T {
        let loaded = at_once(self.store.load(AppRef::Uid(self.uid), None)).expect("memory answers");
        let loaded = loaded.expect("it is registered");
        let mut change = Change::on(loaded.state);
        let decided = decide(&mut change, loaded.now);
        if !change.is_empty() {
            let commit = AppCommit::Update(loaded.version, Box::new(change));
            at_once(self.store.commit_one(commit)).expect("no other commit came in between");
        }
        decided
    }

    /// An id that no accept has had.
    pub(crate) fn admission_id(&mut self) -> AdmissionId {
        self.accepts += 1;
        AdmissionId(self.accepts)
    }

    pub(crate) fn admit(&self, admission: Admission) -> Admitted {
        self.commit(|change, now| change.admit(admission, KeyLookup::Unread, now))
    }

    pub(crate) fn change(&mut self, rules: Rules) {
        self.commit(|change, now| change.configure(Source::Image, policy(rules), now));
        self.written();
    }

    pub(crate) fn release_holds(&mut self) {
        self.commit(Change::release_holds);
        self.written();
    }

    /// Somebody else than the driver wrote.
    pub(crate) fn written(&mut self) {
        self.fresh = false;
        if !self.deaf && self.driver.is_some() {
            self.read();
        }
    }

    pub(crate) fn keeps_the_rules(&self) {
        let broken = check(&self.history(), &self.view());
        assert!(broken.is_empty(), "{broken:?}");
    }
}

fn app(rules: Rules) -> App {
    App {
        id: "shop-test/api".parse().expect("an app"),
        uid: AppUid::from_bits(7),
        project: "shop".parse().expect("a project"),
        environment: "test".parse().expect("an environment"),
        source: Source::Image,
        target: Target::default(),
        policy: policy(rules),
        holds: Vec::new(),
        locks: rollhook_core::lock::Locks::default(),
        requirements: rollhook_core::requirement::RequirementCopies::default(),
        created_at: Timestamp::default(),
    }
}

fn policy(rules: Rules) -> Policy {
    Policy::default().with(|policy| {
        policy.on_failure = if rules.leave { OnFailure::Leave } else { OnFailure::Restore };
        policy.hold = if rules.hold_all { HoldPolicy::All } else { HoldPolicy::Automatic };
        policy.settle = std::time::Duration::from_secs(u64::from(rules.settle % 32));
    })
}
