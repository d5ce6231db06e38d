//! A builder that exists only here: builds follow scripts, so that every way a build can go can be had at will.

mod script;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use event_listener::Event;
use futures_util::future::{Either, select};
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Commit, Reason, Revision},
    ports::{BranchReader, BuildFailure, BuildSpec, BuildState, BuildTrigger, Clock, DeployId, Started},
    source::GitSource,
};
pub use script::BuildScript;
use script::Outcome;

/// A scripted builder, whose time is the [`Clock`]'s.
///
/// What a build does follows from its commit, which is the hexadecimal number that begins so: one that begins with
/// `404` is unknown to every source, one with `300` is ambiguous, one with `500` fails, one with `888` never ends, and
/// anything else is built after the builder's delay. [`SimulatedBuilds::script`] says otherwise for a commit.
pub struct SimulatedBuilds {
    clock: Arc<dyn Clock>,
    delay: Duration,
    state: Mutex<State>,
    changed: Event,
}

/// A build that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Of which registration and revision.
    pub stamp: DeployId,
    /// From which commit, as it was ordered.
    pub commit: Commit,
    /// When, on the clock.
    pub at: Duration,
}

struct State {
    reachable: bool,
    scripts: Vec<(String, BuildScript)>,
    builds: BTreeMap<(AppUid, Revision), Build>,
    /// By URL and branch.
    heads: BTreeMap<(String, String), Branch>,
    /// How often a branch was asked for.
    looks: usize,
    begun: Vec<Begun>,
}

/// What reading a branch comes to.
#[derive(Clone)]
enum Branch {
    At(Option<Commit>),
    Closed,
}

struct Build {
    order: BuildSpec,
    /// When it has waited long enough.
    room: Duration,
    /// When it ends, by itself or because it is to.
    end: Option<Duration>,
    outcome: Outcome,
    cancelled: bool,
}

impl SimulatedBuilds {
    /// A builder without builds, that takes this long for one.
    pub fn new(clock: Arc<dyn Clock>, delay: Duration) -> Self {
        let state = State {
            reachable: true,
            scripts: Vec::new(),
            builds: BTreeMap::new(),
            heads: BTreeMap::new(),
            looks: 0,
            begun: Vec::new(),
        };
        Self { clock, delay, state: Mutex::new(state), changed: Event::new() }
    }

    /// What builds do from now on whose commit begins with `prefix`; a later script goes before an earlier one.
    pub fn script(&self, prefix: &str, script: BuildScript) {
        self.lock().scripts.push((prefix.to_owned(), script));
    }

    /// Where the branch of a source is from now on; none: nowhere.
    pub fn set_head(&self, source: &GitSource, head: Option<Commit>) {
        self.lock().heads.insert(branch(source), Branch::At(head));
    }

    /// From now on a source lets nobody in who wants to know where its branch is.
    pub fn close_source(&self, source: &GitSource) {
        self.lock().heads.insert(branch(source), Branch::Closed);
    }

    /// From now on a source does not say where its branch is, as none does that nothing was said of.
    pub fn silence_source(&self, source: &GitSource) {
        self.lock().heads.remove(&branch(source));
    }

    /// Whether the builder can be reached; while not, every call is `Unavailable`, and builds go on unseen.
    pub fn set_reachable(&self, reachable: bool) {
        self.lock().reachable = reachable;
        self.changed.notify(usize::MAX);
    }

    /// Forgets every build, as a builder does whose machine is lost.
    pub fn lose(&self) {
        self.lock().builds.clear();
        self.changed.notify(usize::MAX);
    }

    /// Every build that was begun, in their order.
    pub fn begun(&self) -> Vec<Begun> {
        self.lock().begun.clone()
    }

    /// How often it was asked where a branch is.
    pub fn looks(&self) -> usize {
        self.lock().looks
    }

    /// How many builds of the app run.
    pub fn running_now(&self, app: AppUid) -> usize {
        let now = self.clock.elapsed();
        self.lock().of(app).filter(|build| build.runs(now)).count()
    }

    /// The state as a client sees it, which is not at all while it is out of reach.
    fn reach(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.reachable {
            Ok(state)
        } else {
            Err(Error::unavailable("the builder", "the simulated builder is switched to unreachable"))
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl BuildTrigger for SimulatedBuilds {
    async fn start(&self, order: &BuildSpec) -> Result<Started> {
        let now = self.clock.elapsed();
        let mut state = self.reach()?;
        let key = (order.id.app, order.id.revision);
        if state.builds.contains_key(&key) {
            return Ok(Started::Known);
        }
        if let Some(other) = state.of(order.id.app).find(|build| build.runs(now)) {
            return Ok(Started::Busy(other.order.id.revision));
        }
        let script = state.script(&order.commit);
        let end = script.time(self.delay).map(|time| now + time);
        let room = now + script.waiting();
        let build = Build { order: order.clone(), room, end, outcome: script.outcome(), cancelled: false };
        state.builds.insert(key, build);
        state.begun.push(Begun { stamp: order.id, commit: order.commit.clone(), at: now });
        Ok(Started::Known)
    }

    async fn running(&self, app: AppUid) -> Result<Option<Revision>> {
        let now = self.clock.elapsed();
        Ok(self.reach()?.of(app).find(|build| build.runs(now)).map(|build| build.order.id.revision))
    }

    async fn observe(&self, build: DeployId) -> Result<BuildState> {
        let now = self.clock.elapsed();
        let state = self.reach()?;
        Ok(state.builds.get(&(build.app, build.revision)).map_or(BuildState::Unknown, |build| build.state(now)))
    }

    async fn changed(&self, build: DeployId) {
        // Listening starts before looking, so that nothing is missed in between.
        let listener = self.changed.listen();
        let now = self.clock.elapsed();
        let end = self.lock().builds.get(&(build.app, build.revision)).and_then(|build| build.end);
        match end.and_then(|end| end.checked_sub(now)).filter(|left| !left.is_zero()) {
            Some(left) => match select(listener, self.clock.sleep(left)).await {
                Either::Left(_) | Either::Right(_) => {}
            },
            None => listener.await,
        }
    }

    async fn cancel(&self, build: DeployId) -> Result<()> {
        let now = self.clock.elapsed();
        let mut state = self.reach()?;
        let script = state.builds.get(&(build.app, build.revision)).map(|build| state.script(&build.order.commit));
        let found = state.builds.get_mut(&(build.app, build.revision)).filter(|build| build.runs(now));
        if let (Some(build), Some(script)) = (found, script)
            && !build.cancelled
        {
            build.cancelled = true;
            build.end = Some(now + script.dying());
        }
        drop(state);
        self.changed.notify(usize::MAX);
        Ok(())
    }

    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>> {
        let now = self.clock.elapsed();
        let state = self.reach()?;
        let log = state.builds.get(&(build.app, build.revision)).map(|build| build.log(now).into_bytes());
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        Ok(log.map(|log| log.get(from..).unwrap_or_default().to_vec()))
    }
}

impl State {
    fn of(&self, app: AppUid) -> impl Iterator<Item = &Build> {
        self.builds.iter().filter(move |((of, _), _)| *of == app).map(|(_, build)| build)
    }

    fn script(&self, commit: &Commit) -> BuildScript {
        let mut scripts = self.scripts.iter().rev();
        let found = scripts.find(|(prefix, _)| commit.as_str().starts_with(prefix));
        found.map_or_else(|| BuildScript::by_name(commit.as_str()), |(_, script)| script.clone())
    }
}

impl Build {
    fn runs(&self, now: Duration) -> bool {
        self.end.is_none_or(|end| end > now)
    }

    fn state(&self, now: Duration) -> BuildState {
        if self.runs(now) {
            return if now < self.room { BuildState::Waiting } else { BuildState::Running };
        }
        let commit = script::in_full(&self.order.commit);
        let failed = |reason: &str, message: String, commit| {
            let log = self.log(now).lines().map(str::to_owned).collect();
            BuildState::Failed(BuildFailure { reason: Reason::new(reason), message, commit, log })
        };
        if self.cancelled {
            return failed(Reason::CANCELLED, "The build was ended.".to_owned(), Some(commit));
        }
        match &self.outcome {
            Outcome::Built => {
                BuildState::Built { image: script::image(&self.order.source.image_repository, &commit), commit }
            }
            Outcome::Failed => failed(Reason::BUILD_FAILED, "The build failed.".to_owned(), Some(commit)),
            Outcome::NotFound => failed(Reason::COMMIT_NOT_FOUND, "The source has no such commit.".to_owned(), None),
            Outcome::Ambiguous => {
                failed(Reason::COMMIT_AMBIGUOUS, "Several commits of the source begin so.".to_owned(), None)
            }
        }
    }

    fn log(&self, now: Duration) -> String {
        let mut log = format!("building {} for {}\n", script::in_full(&self.order.commit), self.order.app);
        if !self.runs(now) {
            log.push_str(if self.cancelled { "cancelled\n" } else { self.outcome.last_words() });
        }
        log
    }
}

fn branch(source: &GitSource) -> (String, String) {
    (source.url.as_str().to_owned(), source.branch.as_str().to_owned())
}

#[async_trait]
impl BranchReader for SimulatedBuilds {
    /// What was said of the branch; a source that nothing was said of does not answer.
    async fn head(&self, source: &GitSource) -> Result<Option<Commit>> {
        self.lock().looks += 1;
        let state = self.reach()?;
        match state.heads.get(&branch(source)) {
            Some(Branch::At(head)) => Ok(head.clone()),
            Some(Branch::Closed) => Err(Error::Denied { what: format!("{} is closed", source.url), cause: None }),
            None => Err(Error::Unavailable {
                what: format!("builds are simulated: {} is not read", source.url),
                cause: None,
            }),
        }
    }
}
