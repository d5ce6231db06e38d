//! The store, the time, and what must be so at every moment.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use futures_util::FutureExt;
use rollhook_core::{
    app::{App, AppUid, HoldPolicy, OnFailure, Policy, Source, Target},
    decide::{check::check, engine},
    deploy::{AdmissionId, Deploy, Revision},
    ports::{Admission, Admitted, Apps, History, NewDeploy, Page, View},
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
        let app = at_once(store.create(app(rules))).expect("it is new");
        Self {
            store,
            now,
            uid: app.uid,
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

    pub(crate) fn view(&self) -> View {
        at_once(self.store.view(self.uid)).expect("it is registered")
    }

    /// The whole history, oldest first.
    pub(crate) fn history(&self) -> Vec<Deploy> {
        let page = Page { before: None, succeeded: false, limit: usize::MAX };
        let mut history = at_once(self.store.page(self.uid, page)).expect("memory answers");
        history.reverse();
        history
    }

    pub(crate) fn admit(
        &mut self,
        view: &View,
        draft: NewDeploy,
        after: Option<Option<Revision>>,
        supersede: bool,
        hold: Option<rollhook_core::app::Hold>,
    ) -> Admitted {
        self.accepts += 1;
        let (app, id, guard) = (self.uid, AdmissionId(self.accepts), view.app.guard);
        let admission = Admission { app, id, key: None, draft, guard, after, supersede, hold };
        at_once(self.store.admit(admission)).expect("memory answers")
    }

    pub(crate) fn change(&mut self, rules: Rules) {
        let app = App { policy: policy(rules), ..self.view().app };
        at_once(self.store.update(app)).expect("nobody else changes it");
        self.written();
    }

    pub(crate) fn release_holds(&mut self) {
        let app = App { holds: Vec::new(), ..self.view().app };
        at_once(self.store.update(app)).expect("nobody else changes it");
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
        guard: 0,
        created_at: Timestamp::default(),
    }
}

fn policy(rules: Rules) -> Policy {
    Policy {
        on_failure: if rules.leave { OnFailure::Leave } else { OnFailure::Restore },
        hold: if rules.hold_all { HoldPolicy::All } else { HoldPolicy::Automatic },
        settle: std::time::Duration::from_secs(u64::from(rules.settle % 32)),
        ..Policy::default()
    }
}
