//! The environment that all replicas of a run share: the store, the cluster, time, and the truth about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use rollhook_core::{
    app::AppUid,
    deploy::{Commit, Deploy, Revision, Status},
    ledger::AppState,
    ports::{
        AppPage, Applied, BuildSpec, BuildTrigger, Clock, ConfigurationStore, HistoryStore, HistoryStoreExt, Page,
        ReleaseRun, RolloutDriver, RolloutSpec, RunKind,
    },
    time::Timestamp,
};
use rollhook_memory::{MemoryStore, SimulatedBuilds, SimulatedCluster};

use crate::{
    broken::Promise,
    clock::Time,
    journal::Journal,
    registry::SharedRegistry,
    rules::{Moment, Rules},
    sources,
    verifying::Provider,
    workloads::name,
};

/// How long a sound image takes to roll out.
const ROLLOUT: Duration = Duration::from_secs(2);

/// An order that is under way though its sender was told that it failed.
#[allow(clippy::large_enum_variant, reason = "there are few of them")]
pub(crate) enum Adrift {
    /// To the cluster.
    Rollout(RolloutSpec),
    /// To the builder.
    Build(BuildSpec),
}

pub(crate) struct Environment {
    pub(crate) time: Arc<Time>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) cluster: Arc<SimulatedCluster>,
    /// The builder, and a second machine that only one that breaks promises uses.
    pub(crate) builders: [Arc<SimulatedBuilds>; 2],
    /// What the checks of apps read.
    pub(crate) provider: Provider,
    /// Where the digests of images are looked up.
    pub(crate) registry: SharedRegistry,
    pub(crate) journal: Arc<Journal>,
    pub(crate) rules: Mutex<Rules>,
    /// By how much the store's clock is wrong, in milliseconds.
    skew: Arc<AtomicI64>,
    /// By how much replicas' own clocks have jumped ahead, all together, in milliseconds.
    own_jumped: AtomicU64,
    /// By how much what they know of the store's clock has.
    jumped: AtomicU64,
    /// Until when some call or answer may be under way, in milliseconds.
    late_until: AtomicU64,
    /// Builds that were told to end, where that is not enough.
    pub(crate) ended: Mutex<BTreeSet<(AppUid, Revision)>>,
    /// Whether some call of the builder was struck, so that it may not have heard what it was told.
    deaf: AtomicBool,
    caller: AtomicBool,
    /// The promise that the backends break.
    pub(crate) promise: Option<Promise>,
    /// When each step of an entry was first seen, where times are not kept in order.
    times: Mutex<BTreeMap<(AppUid, Revision, u32), Timestamp>>,
    /// Orders that are under way since their sender was told that they failed.
    adrift: Mutex<Vec<(Duration, Adrift)>>,
}

impl Environment {
    pub(crate) fn new(told: bool, promise: Option<Promise>) -> Self {
        let time = Arc::new(Time::default());
        let skew = Arc::new(AtomicI64::new(0));
        let (passing, wrong) = (Arc::clone(&time), Arc::clone(&skew));
        let store = Arc::new(MemoryStore::new(Arc::new(move || clock(&wrong, &passing))));
        let cluster = Arc::new(SimulatedCluster::new(time.clock() as Arc<dyn Clock>, ROLLOUT));
        cluster.take_settings();
        for (pattern, script) in crate::images::scripts().into_iter().chain(sources::built_scripts()) {
            cluster.script(pattern, script);
        }
        let builder = || Arc::new(SimulatedBuilds::new(time.clock() as Arc<dyn Clock>, sources::BUILD));
        let builders = [builder(), builder()];
        for (beginning, script) in sources::build_scripts() {
            builders.iter().for_each(|builder| builder.script(beginning, script.clone()));
        }
        for branch in 0..2 {
            builders.iter().for_each(|builder| builder.set_head(&sources::of(branch), None));
        }
        let journal = Arc::new(Journal::new(Arc::clone(&time), told));
        let rules = Mutex::new(Rules::default());
        let provider = Provider::new(&time);
        Self {
            provider,
            registry: SharedRegistry::default(),
            time,
            store,
            cluster,
            builders,
            journal,
            rules,
            skew,
            own_jumped: AtomicU64::new(0),
            jumped: AtomicU64::new(0),
            late_until: AtomicU64::new(0),
            ended: Mutex::default(),
            deaf: AtomicBool::new(false),
            caller: AtomicBool::new(false),
            promise,
            times: Mutex::default(),
            adrift: Mutex::default(),
        }
    }

    /// The store's clock.
    pub(crate) fn store_time(&self) -> Timestamp {
        clock(&self.skew, &self.time)
    }

    /// Sets the store's clock.
    pub(crate) fn set_clock(&self, by: i64) {
        self.skew.fetch_add(by, Ordering::Relaxed);
        self.jumps(Duration::from_millis(u64::try_from(by).unwrap_or(0)));
    }

    /// The store's clock has jumped ahead, or what some replica knows of it will.
    fn jumps(&self, by: Duration) {
        self.jumped.fetch_add(millis(by), Ordering::Relaxed);
    }

    /// Some call or answer takes this long; what it tells of the store's clock may be as old.
    pub(crate) fn is_late(&self, by: Duration) {
        self.jumps(by);
        self.late_until.fetch_max(millis(self.time.now() + by), Ordering::Relaxed);
    }

    /// A replica's own clock has jumped ahead.
    pub(crate) fn own_jumps(&self, by: Duration) {
        self.own_jumped.fetch_add(millis(by), Ordering::Relaxed);
    }

    /// The present, for judging what is too early.
    pub(crate) fn moment(&self) -> Moment {
        let now = self.time.now();
        let jumped = |by: &AtomicU64| Duration::from_millis(by.load(Ordering::Relaxed));
        let own = now + jumped(&self.own_jumped);
        Moment { now, own, most: own + jumped(&self.jumped) }
    }

    /// Every app as it is stored.
    pub(crate) fn apps(&self) -> Vec<AppState> {
        let page = AppPage::first(100);
        self.store.states(page).now_or_never().unwrap().unwrap()
    }

    /// An app's history as it is stored, oldest first, and its state.
    fn truth(&self, mut app: AppState) -> (Vec<Deploy>, AppState) {
        let page = Page::newest(usize::MAX);
        let mut archived = self.store.page(app.app.uid, page).now_or_never().unwrap().unwrap();
        for deploy in archived.iter_mut().filter(|deploy| deploy.status() == Status::Failed) {
            let read = self.store.archived(app.app.uid, deploy.revision).now_or_never().unwrap().unwrap();
            *deploy = read.unwrap();
        }
        let mut archived: Vec<_> = archived.into_iter().map(Arc::new).collect();
        if self.promise == Some(Promise::Times) {
            let kept = [&mut app.current, &mut app.ended_on_cluster, &mut app.ended_off_cluster];
            let kept = kept.into_iter().flatten();
            for entry in archived.iter_mut().chain(&mut app.unfinished).chain(kept) {
                self.retime(app.app.uid, Arc::make_mut(entry));
            }
        }
        let mut history: Vec<Deploy> =
            archived.iter().chain(&app.unfinished).map(|deploy| Deploy::clone(deploy)).collect();
        history.sort_by_key(|deploy| deploy.revision);
        (history, app)
    }

    /// Sets an entry's times to those of the clock when its steps were first seen.
    fn retime(&self, app: AppUid, entry: &mut Deploy) {
        let mut times = self.times.lock().unwrap();
        let mut first =
            |step| *times.entry((app, entry.revision, step)).or_insert_with(|| clock(&self.skew, &self.time));
        (entry.created_at, entry.updated_at) = (first(0), first(entry.step));
    }

    /// Judges what has become of the store; called after every write.
    pub(crate) fn look(&self) {
        let stored = self.apps().into_iter().map(|app| (app.app.uid, self.truth(app))).collect();
        let building = |app| self.builds_of(app) > 0;
        let deaf = self.deaf.load(Ordering::Relaxed) || !self.builder_answers();
        let mut rules = self.rules.lock().unwrap();
        rules.stored(stored, &building, deaf, self.moment(), &self.journal);
        for app in self.apps() {
            let stored = ConfigurationStore::list(&*self.store, app.app.uid).now_or_never().unwrap().unwrap();
            rules.stores(app.app.uid, &stored.into_iter().map(|one| one.id).collect(), &self.journal);
        }
    }

    /// Judges what has become of the cluster; called after every order.
    pub(crate) fn look_at_cluster(&self, order: &RolloutSpec) {
        let effects = self.cluster.effects();
        let runs = self.cluster.running_releases(order.id.app);
        let mut rules = self.rules.lock().unwrap();
        // An order that is repeated, and one that arrives late, may change nothing.
        let new = effects.get(rules.judged()..).and_then(<[_]>::last);
        let own = new.is_some_and(|effect| effect.stamp == order.id && order.purpose.returns_to().is_none());
        self.journal.expect(runs == 0 || !own, || {
            format!("revision {} changed the cluster while a release command runs", order.id.revision)
        });
        rules.effects(&effects, order, &self.journal);
    }

    /// Whether it is a caller's turn, and not a driver's.
    pub(crate) fn set_caller(&self, is: bool) {
        self.caller.store(is, Ordering::Relaxed);
    }

    pub(crate) fn is_caller(&self) -> bool {
        self.caller.load(Ordering::Relaxed)
    }

    /// Moves a branch.
    pub(crate) fn set_head(&self, branch: u8, head: Option<Commit>) {
        self.builders.iter().for_each(|builder| builder.set_head(&sources::of(branch), head.clone()));
    }

    /// How many builds of the app run, as the builder itself knows.
    fn builds_of(&self, app: AppUid) -> usize {
        self.builders.iter().map(|builder| builder.running_now(app)).sum()
    }

    /// Judges a build that was begun by this order, if one was; called after every such order.
    pub(crate) fn look_at_builds(&self, by: Option<u64>, order: &BuildSpec) {
        let now = (self.begun(), self.builds_of(order.id.app));
        self.rules.lock().unwrap().begins(by, order, now, &self.journal);
    }

    fn builder_answers(&self) -> bool {
        self.builders[0].running(AppUid::from_bits(0)).now_or_never().is_some_and(|answer| answer.is_ok())
    }

    /// A call of the builder was struck.
    pub(crate) fn builder_is_deaf(&self) {
        self.deaf.store(true, Ordering::Relaxed);
    }

    /// The builds of these apps that run.
    pub(crate) fn builds(&self, apps: &BTreeSet<AppUid>) -> Vec<(AppUid, Revision)> {
        let running = |app: AppUid, builder: &SimulatedBuilds| builder.running(app).now_or_never()?.ok().flatten();
        let of = |app: &AppUid| {
            let found = self.builders.iter().filter_map(|builder| Some((*app, running(*app, builder)?)));
            found.collect::<Vec<_>>()
        };
        apps.iter().flat_map(of).collect()
    }

    /// How many builds were ever begun.
    pub(crate) fn begun(&self) -> usize {
        self.builders.iter().map(|builder| builder.begun().len()).sum()
    }

    /// An order that arrives later than its sender believes.
    pub(crate) fn set_adrift(&self, order: Adrift, time: Duration) {
        self.adrift.lock().unwrap().push((self.time.now() + time, order));
    }

    /// When the next order that is under way arrives.
    pub(crate) fn next_arrival(&self) -> Option<Duration> {
        self.adrift.lock().unwrap().iter().map(|(at, _)| *at).min()
    }

    /// Has the orders take effect whose time has come.
    pub(crate) fn arrive(&self) {
        let now = self.time.now();
        let mut adrift = self.adrift.lock().unwrap();
        let (due, later) = adrift.drain(..).partition(|(at, _)| *at <= now);
        *adrift = later;
        drop(adrift);
        for (_, order) in due {
            let order = match order {
                Adrift::Rollout(order) => order,
                Adrift::Build(order) => {
                    let started = self.builders[0].start(&order).now_or_never().unwrap();
                    self.journal
                        .log("builder", || format!("an order under way arrives, {}: {started:?}", order.id.revision));
                    self.look_at_builds(None, &order);
                    continue;
                }
            };
            let mut applied = self.cluster.apply(&order).now_or_never().unwrap();
            if self.promise == Some(Promise::Fence) && matches!(applied, Ok(Applied::Newer(_))) {
                self.cluster.delete(&order.app, &order.target);
                applied = self.cluster.apply(&order).now_or_never().unwrap();
            }
            self.journal.log("cluster", || {
                format!("an order under way arrives, {} on {}: {applied:?}", order.id.revision, name(&order.target))
            });
            self.journal.count_if(matches!(applied, Ok(Applied::Newer(_))), "rule 9: a late order was refused");
            self.look_at_cluster(&order);
        }
    }

    /// Whether the deploy of a release command waits for its end.
    pub(crate) fn is_awaited(&self, run: &ReleaseRun) -> bool {
        let rules = self.rules.lock().unwrap();
        let known = rules.known.get(&run.id.app);
        known.is_some_and(|known| match run.id.kind {
            RunKind::Release(revision) => known.view.unfinished(revision).is_some(),
            RunKind::ByHand(number) => known.view.runs.unfinished.as_ref().is_some_and(|run| run.number == number),
            RunKind::Check(check) => {
                let entry = known.view.unfinished(check.revision());
                entry.is_some_and(|entry| entry.status() == Status::Verifying)
            }
        })
    }

    /// Whether nothing is under way.
    pub(crate) fn is_still(&self) -> bool {
        let late = Duration::from_millis(self.late_until.load(Ordering::Relaxed));
        self.adrift.lock().unwrap().is_empty() && late < self.time.now()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

/// The store's clock.
fn clock(skew: &AtomicI64, time: &Time) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + skew.load(Ordering::Relaxed)).after(time.now())
}
