//! The driver of one app: step ⇄ perform, until no work is left.

mod configured;
mod store_calls;

use std::{future::Future, pin::pin, task::Context, time::Duration};

use event_listener::EventListener;
use futures_util::{
    FutureExt,
    future::{BoxFuture, select_all},
    select_biased,
};

use configured::{unconfigured, without_variables};

use crate::{
    app::AppUid,
    deploy::{Deploy, Reason, Revision, Trigger},
    engine::{CallError, Effect, Event, State, polling::PollSource, rollout::STALL_TIMEOUT, step, verifying},
    error::{Error, Result},
    ledger::AppState,
    ports::{Applied, BuildTrigger, Observation, ReleaseRun, ReleaseRunner, RolloutSpec},
    service::{
        Deployer,
        drive::{
            log,
            measuring::{Measuring, beside},
            polling::PendingHead,
            resolving::Resolving,
        },
        read::Subscription,
    },
    time::Timestamp,
};

/// The interval of reads of the store and observations of the cluster without a hint.
const POLL: Duration = Duration::from_secs(3);
/// The least time between two observations that the rollout driver's hints cause.
const OBSERVE_MIN: Duration = Duration::from_millis(250);
/// The greatest age of a known state that a new driver begins with.
const RECENT: Duration = Duration::from_secs(1);

/// The driver's action after an effect.
enum Next {
    Step(Box<Event>),
    Reload,
    Stop,
}

/// The deploys of an app that are under way.
#[derive(Default)]
struct UnderWay {
    /// Whether one rolls out.
    is_rolling: bool,
    /// Whether one rolls out, or is to.
    is_deploying: bool,
    /// The one that waits for a person's decision.
    asking: Option<Revision>,
}

/// The driver of one app.
struct Driver<'a> {
    deployer: &'a Deployer,
    app: AppUid,
    /// The app's name, for logs; its uid until it is loaded.
    name: String,
    changes: Subscription,
    /// The store's clock at the last read, and this process's own.
    read_at: (Timestamp, Duration),
    /// The store's clock before and after each load since the last step: it may have been set meanwhile.
    loads: Vec<(Timestamp, Timestamp)>,
    failures: u32,
    /// The pending answer of the app's source.
    reading: Option<PendingHead<'a>>,
    /// The measurements of checks that are under way.
    measuring: Option<Measuring<'a>>,
    /// The image whose registry is being asked.
    resolving: Option<Resolving<'a>>,
    /// The runs of checks' commands that may be under way.
    check_runs: Vec<ReleaseRun>,
    /// The time of the last observation.
    observed_at: Option<Duration>,
    calls: log::CallLog,
    release_calls: log::CallLog,
    by_hand_calls: log::CallLog,
    /// Ended deploys whose record's answer was lost: they are logged once they are found in the archive.
    unconfirmed: Vec<Deploy>,
    /// The store's call that failed last, and its failure, which was logged.
    store_failure: Option<(StoreCall, String)>,
    /// The current deploy when images of old versions were dropped last.
    discarded_at: Option<Revision>,
}

/// A driver's call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreCall {
    Load,
    Write,
}

impl Deployer {
    /// Drives an app that is leased to this replica until no work is left, or another replica has the lease.
    pub(crate) async fn drive(&self, app: AppUid) {
        let changes = self.drivers.subscribe(app);
        let name = app.to_string();
        Driver {
            deployer: self,
            app,
            name,
            changes,
            read_at: Default::default(),
            loads: Vec::new(),
            failures: 0,
            reading: None,
            measuring: None,
            resolving: None,
            check_runs: Vec::new(),
            observed_at: None,
            calls: log::CallLog::default(),
            release_calls: log::CallLog::default(),
            by_hand_calls: log::CallLog::default(),
            unconfirmed: Vec::new(),
            store_failure: None,
            discarded_at: None,
        }
        .run()
        .await;
        self.poll_results.forget(app);
        self.observations.forget(app);
    }
}

impl Driver<'_> {
    async fn run(mut self) {
        let mut change = self.changes.listen();
        let Some(app_state) = self.first_load().await else { return };
        let mut state = State::new(app_state.clone(), self.time()).polling_at_least(self.deployer.min_poll);
        if self.deployer.ports.builder.is_none() {
            state = state.without_builder();
        }
        if self.deployer.ports.verifier.is_none() {
            state = state.without_verifier();
        }
        if self.deployer.ports.rollouts.release_runner().is_none() {
            state = state.without_runner();
        }
        if !self.deployer.resolves() {
            state = state.without_registry();
        }
        if self.deployer.ports.image_verifier.is_none() {
            state = state.without_image_verifier();
        }
        let mut event = Event::Loaded(Box::new(app_state));
        let mut under_way = UnderWay::default();
        loop {
            self.look_after(&mut under_way, &event);
            self.end_check_runs(&event);
            self.loads.drain(..).for_each(|(was, is)| state.clock_set(was, is));
            let (after, effect) = step(state, event, self.time());
            state = after;
            // A driver that waits takes the answers.
            let waits = matches!(effect, Effect::Wait(_) | Effect::Watch(..) | Effect::Measure(_));
            let mut measuring = if waits { None } else { self.measuring.take() };
            let mut resolving = if waits { None } else { self.resolving.take() };
            let performed = self.perform(&state, effect, &mut change).boxed();
            match beside(go_on(&mut measuring, &mut resolving), performed).await {
                Next::Step(next) => event = *next,
                Next::Reload => {
                    change = self.changes.listen();
                    measuring = measuring.or_else(|| self.measuring.take());
                    resolving = resolving.or_else(|| self.resolving.take());
                    let loaded = beside(go_on(&mut measuring, &mut resolving), self.load()).await;
                    let Some(app_state) = loaded else { return };
                    event = Event::Loaded(Box::new(app_state));
                }
                Next::Stop => return,
            }
            self.measuring = self.measuring.take().or(measuring);
            self.resolving = self.resolving.take().or(resolving);
        }
    }

    /// Has the target looked at once a rollout has ended, and once nothing is to roll out any more: a deploy whose release
    /// command fails leaves what runs to recover. The driver of a polled app goes on.
    fn look_after(&self, under_way: &mut UnderWay, event: &Event) {
        if let Event::Loaded(state) | Event::ApplyDropped(state) | Event::Recorded(state) = event {
            let now = UnderWay {
                is_rolling: state.rolling_out().is_some(),
                is_deploying: state.unfinished.iter().any(|deploy| deploy.is_ready()),
                asking: state
                    .rolling_out()
                    .filter(|deploy| deploy.awaited_decision().is_some())
                    .map(|deploy| deploy.revision),
            };
            let before = std::mem::replace(under_way, now);
            let asks = under_way.asking.filter(|asking| Some(*asking) != before.asking);
            asks.into_iter().for_each(|revision| log::asking(&self.name, revision));
            let has_rolled = before.is_rolling && !under_way.is_rolling;
            if has_rolled || before.is_deploying && !under_way.is_deploying {
                self.deployer.conditions.put(self.app);
            }
        }
    }

    /// Has the runs of checks' commands ended that are no longer waited for, such as those of a deploy that has ended.
    fn end_check_runs(&mut self, event: &Event) {
        if let Event::Loaded(state) | Event::ApplyDropped(state) | Event::Recorded(state) = event {
            let before = std::mem::replace(&mut self.check_runs, verifying::runs(state));
            // One that is followed by the next run of its check was measured, and so has ended.
            let goes_on =
                |run: &ReleaseRun| self.check_runs.iter().any(|now| run.id.kind.is_of_same_check(now.id.kind));
            let over = before.into_iter().filter(|run| !goes_on(run));
            over.for_each(|run| self.deployer.ending_runs.put(run));
        }
    }

    fn time(&self) -> Timestamp {
        self.read_at.0.after(self.deployer.ports.clock.elapsed().saturating_sub(self.read_at.1))
    }

    async fn perform(&mut self, state: &State, effect: Effect, change: &mut EventListener) -> Next {
        let (deployer, app) = (self.deployer, self.app);
        let rollouts = &deployer.ports.rollouts;
        match effect {
            Effect::Record(record) => self.record(record).await,
            Effect::RecordBuilt(deploy) => self.record_built(*deploy).await,
            Effect::Apply(spec) => match self.configured(spec).await {
                Ok((spec, _turn)) => self.apply(&spec, change).await,
                Err(error) => Next::step(Event::Applied(unconfigured(error))),
            },
            Effect::Observe(spec) => {
                let (spec, _turn) = match rollouts.observes_with_variables(&spec.target) {
                    true => match self.configured(spec).await {
                        Ok(configured) => configured,
                        Err(error) => return Next::step(Event::Observed(Err(call_error(error)))),
                    },
                    false => (spec, None),
                };
                self.observed_at = Some(deployer.ports.clock.elapsed());
                let seen = rollouts.observe(&spec).await.map(Observation::bounded);
                self.calls.called(&spec, "observing", &seen);
                if let Ok(seen) = &seen
                    && deployer.observations.note(app, spec.id.revision, seen, state.settles_for())
                {
                    deployer.waiters.notify(app);
                }
                Next::step(Event::Observed(seen.map_err(call_error)))
            }
            Effect::Watch(spec, until) => self.watch(&spec, until, state, change).await,
            Effect::Wait(until) => self.until(until, change, std::future::pending(), state).await,
            Effect::PrepareRelease(spec) => {
                let seen = match Self::variables(deployer, (&spec.run.app, app), spec.configuration.as_ref()).await {
                    Ok((configuration, _turn)) => {
                        let spec = spec.clone().with(|spec| spec.configuration = configuration);
                        Self::release(deployer, |runner| runner.prepare(&spec)).await
                    }
                    Err(error) => without_variables(error),
                };
                self.called(&spec.run, "preparing", &seen);
                Next::step(Event::ReleaseObserved(spec.run.id.kind, seen.map_err(call_error)))
            }
            Effect::StartRelease(run) => {
                log::starting(&run);
                let answer = Self::release(deployer, |runner| runner.start(&run)).await;
                self.called(&run, "starting", &answer);
                Next::step(Event::ReleaseStarted(run.id.kind, answer.map_err(call_error)))
            }
            Effect::ObserveRelease(run) => {
                let seen = Self::release(deployer, |runner| runner.observe(&run)).await;
                self.called(&run, "observing", &seen);
                Next::step(Event::ReleaseObserved(run.id.kind, seen.map_err(call_error)))
            }
            Effect::CancelRelease(run) => {
                let answer = Self::release(deployer, |runner| runner.cancel(&run)).await;
                self.called(&run, "ending", &answer);
                if answer.is_ok() {
                    log::ended(&run);
                }
                Next::step(Event::ReleaseCancelled(run.id.kind, answer.map_err(call_error)))
            }
            Effect::ReadTurns { group, is_fresh } => {
                let app = &state.app_state().app;
                let mut read = pin!(deployer.other_turns(app, &group, is_fresh, self.time()).fuse());
                select_biased! {
                    // A rollback, a cancel and a newer deploy wait for no read of other apps.
                    () = change.fuse() => Next::Reload,
                    others = read => Next::step(Event::TurnsRead { others, is_fresh }),
                }
            }
            Effect::FindBuild => {
                let found = Self::build(deployer, "finding", &self.name, |builds| builds.running(app)).await;
                Next::step(Event::BuildFound(found))
            }
            Effect::StartBuild(spec) => {
                let started = Self::build(deployer, "starting", &self.name, |builds| builds.start(&spec)).await;
                Next::step(Event::BuildStarted(spec.id.revision, started))
            }
            Effect::ObserveBuild(build) => {
                let seen = Self::build(deployer, "observing", &self.name, |builds| builds.observe(build)).await;
                Next::step(Event::BuildObserved(seen))
            }
            Effect::CancelBuild(build) => {
                tracing::info!(app = %self.name, revision = %build.revision, "cancelling a build that is no longer needed");
                let answer = Self::build(deployer, "cancelling", &self.name, |builds| builds.cancel(build)).await;
                Next::step(Event::BuildCancelled(answer))
            }
            Effect::Measure(round) => {
                let before = self.measuring.take();
                self.measuring = Some(self.deployer.measure(*round).beside(before));
                Next::step(Event::MeasureStarted)
            }
            Effect::Resolve(spec) => {
                let revision = spec.revision;
                self.resolving = Some(deployer.resolve(state.app_state(), *spec));
                Next::step(Event::ResolveStarted(revision))
            }
            Effect::ReadHead(source) => {
                self.reading = Some(self.deployer.read_head(state.app_state().app.id.clone(), *source));
                Next::step(Event::HeadReadStarted)
            }
            Effect::Detect(finding) => self.detect(&finding, PollSource::of(state.app_state())).await,
            Effect::Collect(spec, failure) => {
                let evidence = rollouts.evidence(&spec, failure.as_ref()).await;
                self.calls.called(&spec, "collecting evidence of", &evidence);
                Next::step(Event::Collected(evidence.ok()))
            }
            Effect::Restore(current) => self.restore(state.app_state(), &current).await,
            Effect::Load => Next::Reload,
            Effect::Stop => Next::Stop,
        }
    }

    /// Logs a failed call of the runner, once until one of the same kind of command succeeds or fails otherwise.
    fn called<T>(&mut self, run: &ReleaseRun, what: &'static str, result: &Result<T>) {
        let calls = if run.id.kind.is_by_hand() { &mut self.by_hand_calls } else { &mut self.release_calls };
        calls.released(run, what, result);
    }

    /// Calls the runner of commands.
    async fn release<'b, T>(
        deployer: &'b Deployer,
        call: impl FnOnce(&'b dyn ReleaseRunner) -> BoxFuture<'b, Result<T>>,
    ) -> Result<T> {
        match deployer.ports.rollouts.release_runner() {
            Some(runner) => call(runner).await,
            None => Err(Error::invalid("the platform that this server deploys to runs no release commands")),
        }
    }

    /// Calls the builder.
    ///
    /// It borrows no part of the driver, which cannot be shared while it waits for an answer.
    async fn build<'b, T>(
        deployer: &'b Deployer,
        what: &'static str,
        app: &'b str,
        call: impl FnOnce(&'b dyn BuildTrigger) -> BoxFuture<'b, Result<T>>,
    ) -> Result<T, CallError> {
        let Some(builder) = &deployer.ports.builder else {
            return Err(CallError::Refused("This server has no builder, so that it cannot build git apps.".to_owned()));
        };
        call(&*builder.builds).await.map_err(|error| {
            tracing::warn!(app, error = %error.chain(), "{what} a build failed");
            call_error(error)
        })
    }

    /// Applies a revision. A slow call is dropped for a newer revision that need not wait.
    async fn apply(&mut self, spec: &RolloutSpec, change: &mut EventListener) -> Next {
        let deployer = self.deployer;
        // The target may have been changed since the stop or the configuration was accepted.
        let unstoppable = deployer.ports.rollouts.unstoppable(&spec.target).filter(|_| !spec.scale.is_keep());
        let unconfigurable =
            deployer.ports.rollouts.unconfigurable(&spec.target).filter(|_| spec.configuration.is_some());
        if let Some(message) = unstoppable.or(unconfigurable) {
            let refused = Applied::Refused { reason: Reason::new(Reason::UNSUPPORTED), message };
            return Next::step(Event::Applied(Ok(refused)));
        }
        let mut applying = deployer.ports.rollouts.apply(spec).fuse();
        let begun = deployer.ports.clock.elapsed();
        loop {
            let look = deployer.ports.clock.sleep(STALL_TIMEOUT).fuse();
            select_biased! {
                applied = applying => {
                    self.calls.called(spec, "applying", &applied);
                    return Next::step(Event::Applied(applied.map_err(call_error)));
                }
                () = change.fuse() => {}
                () = look.fuse() => {}
            }
            *change = self.changes.listen();
            let Some(app_state) = self.load().await else { return Next::Stop };
            let stalled = deployer.ports.clock.elapsed().saturating_sub(begun) >= STALL_TIMEOUT;
            let newer = app_state.unfinished.iter().rfind(|deploy| deploy.may_begin());
            let newer = newer.filter(|deploy| deploy.revision > spec.id.revision);
            if newer.is_some_and(|deploy| stalled || deploy.trigger == Trigger::Rollback) {
                tracing::warn!(app = %spec.app, revision = %spec.id.revision, "dropping a slow apply for a newer revision");
                return Next::step(Event::ApplyDropped(Box::new(app_state)));
            }
        }
    }

    /// Drops images of old versions once another deploy is the current one and nothing is under way.
    async fn discard_images(&mut self, state: &AppState) {
        let current = state.current.as_ref().map(|deploy| deploy.revision);
        if state.unfinished.is_empty() && self.discarded_at != current {
            self.discarded_at = current;
            self.deployer.discard_images([self.app]).await;
        }
    }

    async fn watch(&mut self, spec: &RolloutSpec, until: Timestamp, state: &State, change: &mut EventListener) -> Next {
        let until = until.min(self.time().after(POLL));
        let deployer = self.deployer;
        // A rollout driver that hints at once must not be observed all the time.
        let rest = self.observed_at.map_or(Duration::ZERO, |at| at + OBSERVE_MIN);
        let changed = async move {
            deployer.ports.rollouts.changed(spec).await;
            let wait = rest.saturating_sub(deployer.ports.clock.elapsed());
            if !wait.is_zero() {
                deployer.ports.clock.sleep(wait).await;
            }
        };
        self.until(until, change, changed.boxed(), state).await
    }

    /// Waits for the time, a hint, the build's hint, measurements or the source's answer; a change by a caller causes a load of the
    /// app.
    async fn until(
        &mut self,
        until: Timestamp,
        change: &mut EventListener,
        hint: impl Future<Output = ()>,
        state: &State,
    ) -> Next {
        let wait = until.since(self.time());
        let building = state.building();
        let mut reading = std::mem::take(&mut self.reading);
        let answer = async {
            match &mut reading {
                Some(reading) => reading.await,
                None => std::future::pending().await,
            }
        };
        let built = async {
            match (&self.deployer.ports.builder, building) {
                (Some(builder), Some(build)) => builder.builds.changed(build).await,
                (None, _) | (_, None) => std::future::pending().await,
            }
        };
        // Those of a deploy that has ended or changed its place are dropped.
        let mut measuring = self.measuring.take().filter(|measuring| Some(measuring.of) == state.measuring());
        let measured = async {
            match &mut measuring {
                Some(measuring) => (measuring.of, measuring.ended().await),
                None => std::future::pending().await,
            }
        };
        // That for a deploy which has ended meanwhile is dropped.
        let mut resolving = self.resolving.take().filter(|asked| Some(asked.revision) == state.resolving());
        let resolved = async {
            match &mut resolving {
                Some(resolving) => resolving.answered().await,
                None => std::future::pending().await,
            }
        };
        let runs = state.runs();
        let released = async {
            match self.deployer.ports.rollouts.release_runner() {
                Some(runner) if !runs.is_empty() => drop(select_all(runs.iter().map(|run| runner.changed(run))).await),
                Some(_) | None => std::future::pending().await,
            }
        };
        let answered = select_biased! {
            () = change.fuse() => Err(Next::Reload),
            () = built.boxed().fuse() => Err(Next::step(Event::BuildChanged)),
            () = released.boxed().fuse() => Err(Next::step(Event::ReleaseChanged)),
            (revision, answer) = resolved.boxed().fuse() => Err(Next::step(Event::Resolved(revision, answer))),
            (of, answers) = measured.boxed().fuse() => Err(Next::step(Event::Measured(of, answers))),
            () = hint.fuse() => Err(Next::step(Event::Woke)),
            answer = answer.boxed().fuse() => Ok(answer),
            () = self.deployer.ports.clock.sleep(wait).fuse() => Err(Next::step(Event::Woke)),
        };
        self.measuring = measuring.filter(|measuring| !measuring.is_taken());
        self.resolving = resolving.filter(|resolving| !resolving.is_taken());
        match answered {
            Ok(Err(Error::Conflict(_))) => Next::step(Event::HeadReadPostponed),
            Ok(answer) => {
                let head = self.deployer.head_read(state.app_state(), answer, self.time());
                Next::step(Event::HeadRead(head, self.random()))
            }
            Err(next) => {
                self.reading = reading;
                next
            }
        }
    }

    fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        self.deployer.ports.rng.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

impl Next {
    fn step(event: Event) -> Self {
        Self::Step(Box::new(event))
    }
}

/// Has the calls that answer later go on.
fn go_on<'b, 'a: 'b>(
    measuring: &'b mut Option<Measuring<'a>>,
    resolving: &'b mut Option<Resolving<'a>>,
) -> impl FnMut(&mut Context<'_>) + 'b {
    move |context| {
        measuring.iter_mut().for_each(|measuring| measuring.poll(context));
        resolving.iter_mut().for_each(|resolving| resolving.poll(context));
    }
}

fn call_error(error: Error) -> CallError {
    match error {
        Error::Denied { what, .. } => CallError::Denied(what),
        Error::Unavailable { .. } | Error::Conflict(_) => CallError::Unavailable,
        Error::NotFound(_) | Error::Invalid { .. } | Error::Corrupt { .. } => CallError::Refused(error.to_string()),
    }
}
