//! A simulated builder: builds follow scripts, so that a test can have a build take any course.

mod script;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use event_listener::Event;
use futures_util::future::{Either, select};
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    deploy::{Commit, Reason, Revision},
    ports::{BranchReader, BuildFailure, BuildSpec, BuildState, BuildTrigger, Clock, DeployId, LOGGED_MIN, Started},
    source::{BranchLog, GitSource, LoggedCommit},
};
pub use script::BuildScript;
use script::Outcome;

/// A scripted builder, whose time is the [`Clock`]'s.
///
/// The outcome of a build follows from the first digits of its commit: one that begins with
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
    /// The registration and revision.
    pub stamp: DeployId,
    /// The commit, as it was given.
    pub commit: Commit,
    /// The time on the clock.
    pub at: Duration,
}

#[derive(Default)]
struct State {
    is_away: bool,
    scripts: Vec<(String, BuildScript)>,
    builds: BTreeMap<(AppUid, Revision), Build>,
    /// By URL and branch.
    heads: BTreeMap<(String, String), Branch>,
    /// The parent of each commit: what its branch was at when it came.
    parents: BTreeMap<Commit, Option<Commit>>,
    /// The number of reads of branches.
    reads: usize,
    begun: Vec<Begun>,
    /// The apps that were deleted.
    forgotten: BTreeSet<AppUid>,
}

/// The answer to a read of a branch.
#[derive(Clone)]
enum Branch {
    At(Option<Commit>),
    Closed,
}

struct Build {
    spec: BuildSpec,
    /// The time from which it has a build slot.
    slot_at: Duration,
    /// The time of its end, by itself or after a cancellation.
    end: Option<Duration>,
    outcome: Outcome,
    cancelled: bool,
}

impl SimulatedBuilds {
    /// Returns a builder that takes this long for a build.
    pub fn new(clock: Arc<dyn Clock>, delay: Duration) -> Self {
        Self { clock, delay, state: Mutex::default(), changed: Event::new() }
    }

    /// Sets the course of builds whose commit begins with `prefix`; a later script goes before an earlier one.
    pub fn script(&self, prefix: &str, script: BuildScript) {
        self.lock().scripts.push((prefix.to_owned(), script));
    }

    /// Sets the commit of a source's branch; `None` removes the branch. A commit that comes for the first time is made from the one
    /// that the branch was at.
    pub fn set_head(&self, source: &GitSource, head: Option<Commit>) {
        let mut state = self.lock();
        let before = state.heads.insert(branch(source), Branch::At(head.clone()));
        let parent = before.and_then(|before| match before {
            Branch::At(before) => before,
            Branch::Closed => None,
        });
        if let Some(head) = head {
            state.parents.entry(head).or_insert(parent);
        }
    }

    /// Makes a source deny reads of its branch.
    pub fn close_source(&self, source: &GitSource) {
        self.lock().heads.insert(branch(source), Branch::Closed);
    }

    /// Makes a source not answer reads of its branch, like one whose branch was never set.
    pub fn silence_source(&self, source: &GitSource) {
        self.lock().heads.remove(&branch(source));
    }

    /// Makes the builder reachable or unreachable. While it is unreachable, every call is `Unavailable`, and builds go
    /// on.
    pub fn set_reachable(&self, reachable: bool) {
        self.lock().is_away = !reachable;
        self.changed.notify(usize::MAX);
    }

    /// Forgets every build, as a builder does whose machine is lost.
    pub fn lose(&self) {
        self.lock().builds.clear();
        self.changed.notify(usize::MAX);
    }

    /// Returns every build that was begun, in order.
    pub fn begun(&self) -> Vec<Begun> {
        self.lock().begun.clone()
    }

    /// Returns the number of reads of branches.
    pub fn looks(&self) -> usize {
        self.lock().reads
    }

    /// Returns the number of the app's builds that run.
    pub fn running_now(&self, app: AppUid) -> usize {
        let now = self.clock.elapsed();
        self.lock().of(app).filter(|build| build.runs(now)).count()
    }

    /// Returns the state, without the ended builds of apps that were deleted; fails while the builder is unreachable.
    fn reach(&self) -> Result<MutexGuard<'_, State>> {
        let now = self.clock.elapsed();
        let mut state = self.lock();
        if state.is_away {
            return Err(Error::unavailable("the builder", "the simulated builder is switched to unreachable"));
        }
        let State { builds, forgotten, .. } = &mut *state;
        builds.retain(|(app, _), build| build.runs(now) || !forgotten.contains(app));
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl BuildTrigger for SimulatedBuilds {
    async fn start(&self, spec: &BuildSpec) -> Result<Started> {
        let now = self.clock.elapsed();
        let mut state = self.reach()?;
        let key = (spec.id.app, spec.id.revision);
        if state.builds.contains_key(&key) {
            return Ok(Started::Known);
        }
        if let Some(other) = state.of(spec.id.app).find(|build| build.runs(now)) {
            return Ok(Started::Busy(other.spec.id.revision));
        }
        let script = state.script(&spec.commit);
        let end = script.duration(self.delay).map(|time| now + time);
        let slot_at = now + script.waiting;
        let build = Build { spec: spec.clone(), slot_at, end, outcome: script.outcome, cancelled: false };
        state.builds.insert(key, build);
        state.begun.push(Begun { stamp: spec.id, commit: spec.commit.clone(), at: now });
        Ok(Started::Known)
    }

    async fn running(&self, app: AppUid) -> Result<Option<Revision>> {
        let now = self.clock.elapsed();
        Ok(self.reach()?.of(app).find(|build| build.runs(now)).map(|build| build.spec.id.revision))
    }

    async fn observe(&self, build: DeployId) -> Result<BuildState> {
        let now = self.clock.elapsed();
        let state = self.reach()?;
        Ok(state.builds.get(&(build.app, build.revision)).map_or(BuildState::Unknown, |build| build.state(now)))
    }

    async fn changed(&self, build: DeployId) {
        // Listening starts before the state is read, so that no change is missed.
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
        let script = state.builds.get(&(build.app, build.revision)).map(|build| state.script(&build.spec.commit));
        let found = state.builds.get_mut(&(build.app, build.revision)).filter(|build| build.runs(now));
        if let (Some(build), Some(script)) = (found, script)
            && !build.cancelled
        {
            build.cancelled = true;
            build.end = Some(now + script.cancelling);
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

    async fn forget(&self, app: AppUid) -> Result<()> {
        self.reach()?.forgotten.insert(app);
        Ok(())
    }
}

impl State {
    /// Returns the commit of a source's branch.
    fn head(&self, source: &GitSource) -> Result<Option<Commit>> {
        match self.heads.get(&branch(source)) {
            Some(Branch::At(head)) => Ok(head.clone()),
            Some(Branch::Closed) => Err(Error::Denied { what: format!("{} is closed", source.url), cause: None }),
            None => Err(Error::Unavailable {
                what: format!("builds are simulated: {} is not read", source.url),
                cause: None,
            }),
        }
    }

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
            return if now < self.slot_at { BuildState::Waiting } else { BuildState::Running };
        }
        let commit = script::in_full(&self.spec.commit);
        let failed = |reason: &str, message: String, commit| {
            let log = self.log(now).lines().map(str::to_owned).collect();
            BuildState::Failed(BuildFailure { reason: Reason::new(reason), message, commit, log })
        };
        if self.cancelled {
            return failed(Reason::CANCELLED, "The build was ended.".to_owned(), Some(commit));
        }
        match &self.outcome {
            Outcome::Built => {
                BuildState::Built { image: script::image(&self.spec.source.image_repository, &commit), commit }
            }
            Outcome::Failed => failed(Reason::BUILD_FAILED, "The build failed.".to_owned(), Some(commit)),
            Outcome::NotFound => failed(Reason::COMMIT_NOT_FOUND, "The source has no such commit.".to_owned(), None),
            Outcome::Ambiguous => {
                failed(Reason::COMMIT_AMBIGUOUS, "Several commits of the source begin so.".to_owned(), None)
            }
        }
    }

    fn log(&self, now: Duration) -> String {
        let mut log = format!("building {} for {}\n", script::in_full(&self.spec.commit), self.spec.app);
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
    /// A source whose branch was never set does not answer.
    async fn head(&self, _app: &AppId, source: &GitSource) -> Result<Option<Commit>> {
        self.lock().reads += 1;
        self.reach()?.head(source)
    }

    async fn log(&self, _app: &AppId, source: &GitSource) -> Result<BranchLog> {
        let state = self.reach()?;
        let parent = |commit: &Commit| state.parents.get(commit).cloned().flatten();
        let commits = std::iter::successors(state.head(source)?, parent).take(LOGGED_MIN);
        Ok(BranchLog::new(
            commits.map(|commit| LoggedCommit { parents: parent(&commit).into_iter().collect(), commit }).collect(),
        ))
    }
}
