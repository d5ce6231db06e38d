//! One app, driven: step ⇄ perform, until nothing is left to do.

use std::{future::Future, time::Duration};

use event_listener::EventListener;
use futures_util::{FutureExt, future::BoxFuture, select_biased};

use super::{Deployer, bells::Bell, detect::Reading, inbox::Held};
use crate::{
    app::AppUid,
    decide::{
        engine::{CallFailed, Effect, Event, State, step},
        poll::{Detected, Finding},
        retry, target,
    },
    deploy::{Actor, Deploy, Trigger},
    error::{Error, Result},
    ports::{BuildTrigger, Record, RolloutSpec, View},
    request::Cause,
    time::Timestamp,
};

/// How long a driver goes on without reading the store or looking at the cluster, for want of any other sign.
const POLL: Duration = Duration::from_secs(3);
/// How long an app is left alone whose history cannot be read.
const BROKEN: Duration = Duration::from_secs(30);

/// The store's clock, carried on by this process's own between two reads.
#[derive(Clone, Copy)]
struct Now {
    read: Timestamp,
    at: Duration,
}

/// What a driver does after it performed an effect.
enum Next {
    Step(Box<Event>),
    Reload,
    Stop,
}

/// One app's driver.
struct Driver<'a> {
    deployer: &'a Deployer,
    app: AppUid,
    bell: Bell,
    now: Now,
    failures: u32,
    /// The answer of the app's source, while it is waited for.
    reading: Option<Reading>,
}

impl Deployer {
    /// Drives an app until nothing is left to do, or it is another's.
    ///
    /// `named`: whether the store named it as one with work.
    pub(super) async fn drive(&self, app: AppUid, named: bool) {
        let bell = self.bells.of(app);
        let now = Now { read: Timestamp::default(), at: Duration::ZERO };
        Driver { deployer: self, app, bell, now, failures: 0, reading: None }.run(named).await;
        self.polls.forget(app);
    }
}

impl Driver<'_> {
    async fn run(mut self, named: bool) {
        let mut ring = self.bell.listen();
        let Some((view, _)) = self.load().await else { return };
        let mut state = State::new(view.clone(), named).polling_at_least(self.deployer.min_poll);
        let mut event = Event::Loaded(Box::new(view));
        loop {
            let (after, effect) = step(state, event, self.time());
            state = after;
            match self.perform(&state, effect, &mut ring).await {
                Next::Step(next) => event = *next,
                Next::Reload => {
                    ring = self.bell.listen();
                    let Some((view, was)) = self.load().await else { return };
                    state.clock_set(was, view.now);
                    event = Event::Loaded(Box::new(view));
                }
                Next::Stop => return,
            }
        }
    }

    fn time(&self) -> Timestamp {
        self.now.read.after(self.deployer.ports.clock.elapsed().saturating_sub(self.now.at))
    }

    /// Reads the app, however long the store is away, and says which time it was until then; none where there is nothing
    /// to drive.
    async fn load(&mut self) -> Option<(View, Timestamp)> {
        loop {
            match self.deployer.ports.history.view(self.app).await {
                Ok(view) => {
                    self.failures = 0;
                    let was = self.time();
                    self.now = Now { read: view.now, at: self.deployer.ports.clock.elapsed() };
                    return Some((view, was));
                }
                Err(Error::NotFound(_)) => {
                    // Who deleted the app has ended its builds, but for one that was about to begin here.
                    self.deployer.end_builds(self.app).await;
                    return None;
                }
                Err(error @ (Error::Unavailable { .. } | Error::Conflict(_))) => self.pause(&error).await,
                Err(error @ (Error::Denied { .. } | Error::Invalid { .. } | Error::Corrupt { .. })) => {
                    tracing::error!(app = %self.app, error = %error.chain(), "an app's history cannot be read");
                    self.deployer.ports.clock.sleep(BROKEN).await;
                    return None;
                }
            }
        }
    }

    async fn pause(&mut self, error: &Error) {
        tracing::warn!(app = %self.app, error = %error.chain(), "a driver waits for its store");
        self.deployer.ports.clock.sleep(retry::backoff(self.failures)).await;
        self.failures = self.failures.saturating_add(1);
    }

    async fn perform(&mut self, state: &State, effect: Effect, ring: &mut EventListener) -> Next {
        let (deployer, app) = (self.deployer, self.app);
        let rollouts = &deployer.ports.rollouts;
        match effect {
            Effect::Record { changes, lift, rest } => self.record(changes, lift, rest).await,
            Effect::Apply(order) => {
                let applied = rollouts.apply(&order).await;
                self.log_call(&order, "apply", &applied);
                Next::step(Event::Applied(applied.map_err(call_failed)))
            }
            Effect::Observe(order) => {
                let seen = rollouts.observe(&order).await;
                self.log_call(&order, "observe", &seen);
                Next::step(Event::Observed(seen.map_err(call_failed)))
            }
            Effect::Watch(order, until) => self.watch(&order, until, state, ring).await,
            Effect::Wait(until) => self.until(until, ring, std::future::pending(), state).await,
            Effect::FindBuild => {
                let found = Self::build(deployer, "find", app, |builds| builds.running(app)).await;
                Next::step(Event::BuildFound(found))
            }
            Effect::StartBuild(order) => {
                let started = Self::build(deployer, "start", order.stamp, |builds| builds.start(&order)).await;
                Next::step(Event::BuildStarted(order.stamp.revision, started))
            }
            Effect::ObserveBuild(build) => {
                let seen = Self::build(deployer, "look at", build, |builds| builds.observe(build)).await;
                Next::step(Event::BuildObserved(seen))
            }
            Effect::CancelBuild(build) => {
                tracing::info!(app = %self.app, revision = %build.revision, "ending a build that nobody waits for");
                let answer = Self::build(deployer, "end", build, |builds| builds.cancel(build)).await;
                Next::step(Event::BuildCancelled(answer))
            }
            Effect::ReadHead(source) => {
                match self.deployer.inbox.holds(self.app, self.deployer.ports.clock.elapsed()) {
                    Held::Ours => {
                        self.reading = Some(self.deployer.read_head(*source));
                        Next::step(Event::HeadAsked)
                    }
                    // Whoever took it over looks at it by now.
                    Held::NotNamed if state.view().unfinished.is_empty() => Next::Stop,
                    Held::NotNamed | Held::Unsure => Next::step(Event::HeadPutOff),
                }
            }
            Effect::Detect(finding) => self.detect(&finding).await,
            Effect::Collect(order, trouble) => {
                let evidence = rollouts.evidence(&order, trouble.as_ref()).await;
                self.log_call(&order, "collect evidence", &evidence);
                Next::step(Event::Collected(evidence.ok()))
            }
            Effect::Restore(current) => self.restore(state.view(), &current).await,
            Effect::Load => Next::Reload,
            Effect::Rest => Next::Stop,
        }
    }

    /// A call of the builder.
    ///
    /// It takes no part of the driver, which cannot be shared while it waits for an answer.
    async fn build<'b, T>(
        deployer: &'b Deployer,
        what: &'static str,
        which: impl std::fmt::Display,
        call: impl FnOnce(&'b dyn BuildTrigger) -> BoxFuture<'b, Result<T>>,
    ) -> Result<T, CallFailed> {
        let Some(builder) = &deployer.ports.builder else {
            return Err(CallFailed::Refused(
                "This server has no builder, so that it cannot build git apps.".to_owned(),
            ));
        };
        call(&*builder.builds).await.map_err(|error| {
            tracing::warn!(build = %which, error = %error.chain(), "could not {what} a build");
            call_failed(error)
        })
    }

    fn log_call<T>(&self, order: &RolloutSpec, what: &'static str, result: &Result<T>) {
        if let Err(error) = result {
            tracing::warn!(app = %order.app, revision = %order.stamp.revision, error = %error.chain(), "could not {what}");
        }
    }

    async fn record(&mut self, changes: Vec<Deploy>, lift: Vec<crate::deploy::Revision>, rest: bool) -> Next {
        for change in &changes {
            tracing::info!(app = %self.app, revision = %change.revision, status = %change.status(), "recording");
        }
        let claim = Some(self.deployer.replica.incarnation);
        let record = Record { app: self.app, claim, changes, lift, rest };
        match self.deployer.ports.history.record(record).await {
            Ok(()) => {
                self.deployer.bells.ring(self.app);
                Next::step(Event::Recorded)
            }
            Err(Error::Conflict("claim")) => {
                self.deployer.inbox.disown(self.app);
                Next::Stop
            }
            Err(Error::NotFound(_)) => Next::Stop,
            Err(Error::Conflict(_)) => Next::Reload,
            Err(error) => {
                self.pause(&error).await;
                Next::Reload
            }
        }
    }

    async fn watch(&mut self, order: &RolloutSpec, until: Timestamp, state: &State, ring: &mut EventListener) -> Next {
        let until = until.min(self.time().after(POLL));
        let deployer = self.deployer;
        let changed: BoxFuture<'_, ()> = deployer.ports.rollouts.changed(order);
        self.until(until, ring, changed, state).await
    }

    /// Waits for the time or the sign, for the build's, or for the source's answer; somebody's ring means that the app
    /// must be read again.
    async fn until(
        &mut self,
        until: Timestamp,
        ring: &mut EventListener,
        sign: impl Future<Output = ()>,
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
        let answered = select_biased! {
            () = ring.fuse() => Err(Next::Reload),
            () = built.boxed().fuse() => Err(Next::step(Event::BuildChanged)),
            () = sign.fuse() => Err(Next::step(Event::Woke)),
            answer = answer.boxed().fuse() => Ok(answer),
            () = self.deployer.ports.clock.sleep(wait).fuse() => Err(Next::step(Event::Woke)),
        };
        match answered {
            Ok(Err(Error::Conflict(_))) => Next::step(Event::HeadPutOff),
            Ok(answer) => {
                let head = self.deployer.head_read(state.view(), answer, self.time());
                Next::step(Event::HeadRead(head, self.chance()))
            }
            Err(next) => {
                self.reading = reading;
                next
            }
        }
    }

    fn chance(&self) -> u64 {
        let mut bytes = [0; 8];
        self.deployer.ports.entropy.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Has a branch's head accepted, where it is new.
    async fn detect(&mut self, finding: &Finding) -> Next {
        let detected = match self.deployer.detect(self.app, finding, self.time()).await {
            Ok(detected) => detected,
            Err(Error::NotFound(_)) => return Next::Stop,
            Err(error) => {
                self.pause(&error).await;
                Detected::Later
            }
        };
        Next::step(Event::Detected(detected, self.chance()))
    }

    /// Accepts a restore, on the condition that nothing newer came; whatever comes of it, the app is read again.
    async fn restore(&mut self, view: &View, current: &Deploy) -> Next {
        let cause = Cause { trigger: Trigger::Rollback, actor: Actor::auto() };
        let Ok(draft) = target::rollback(current, &cause) else { return Next::Stop };
        match self.deployer.ports.history.admit(self.deployer.unasked(view, draft)).await {
            Ok(_) => self.deployer.bells.ring(self.app),
            Err(error) => self.pause(&error).await,
        }
        Next::Reload
    }
}

impl Next {
    fn step(event: Event) -> Self {
        Self::Step(Box::new(event))
    }
}

fn call_failed(error: Error) -> CallFailed {
    match error {
        Error::Unavailable { .. } | Error::Conflict(_) => CallFailed::Away,
        Error::NotFound(_) | Error::Denied { .. } | Error::Invalid { .. } | Error::Corrupt { .. } => {
            CallFailed::Refused(error.to_string())
        }
    }
}
