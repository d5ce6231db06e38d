//! A replica's way to its store and cluster: what is asked and answered there is noted, and judged.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use rollhook_core::{
    Error, Result,
    app::{App, AppUid, Target},
    deploy::{Deploy, Evidence, Revision},
    error::Entity,
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Applied, AtRest, Binding, CheckedSettings, Committed, DriverIdentity,
        Heartbeat, HistoryStore, ListedApp, Loaded, Observation, Page, Phase, ReleaseRun, ReleaseRunner, ReleaseSpec,
        ReleaseState, RolloutDriver, RolloutFailure, RolloutSpec, RunKind, SettingsRequest, StoreLimits, TargetReader,
        TargetRequest, Validated,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
};

use crate::{
    broken::Backend,
    environment::{Adrift, Environment},
    faults::Faults,
    rules::Seen,
    workloads::name,
};

/// One life of a replica.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// Which one; no other replica has it, nor has the same one after a restart.
    pub(crate) number: u64,
    /// The replica's name.
    pub(crate) name: String,
}

/// The ports between a replica and its backends: they record calls and inject faults.
pub(crate) struct RecordingPorts {
    pub(crate) environment: Arc<Environment>,
    pub(crate) life: Life,
    pub(crate) faults: Arc<Faults>,
    pub(crate) backend: Backend,
    /// The last answers, for stale reads.
    pub(crate) views: Mutex<BTreeMap<AppUid, Loaded>>,
    /// The id of this life, once its first heartbeat has named it: it has no lease before.
    pub(crate) replica: OnceLock<ReplicaId>,
}

impl RecordingPorts {
    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        self.environment.journal.log(&self.life.name, line);
    }

    /// What this replica sees now.
    fn seen(&self, spec: &RolloutSpec, seen: &Observation) -> Seen {
        let (complete, digest) = match &seen.phase {
            Phase::Complete { digest, .. } => (true, digest.clone()),
            Phase::Progressing => (false, None),
        };
        Seen {
            by: self.life.number,
            moment: self.environment.moment(),
            workload: name(&spec.target),
            is_there: seen.deploy == Some(spec.id),
            complete,
            sound: seen.failure.is_none(),
            digest,
            restarts: seen.restarts,
            past_lives: seen.past_lives.clone(),
            progress: seen.progress.clone(),
            leaving: seen.leaving.is_some(),
            is_empty: seen.instances.is_some_and(|instances| instances.wanted == 0),
            is_lost: false,
        }
    }

    pub(crate) fn log_answer<T>(&self, call: &str, answer: &Result<T>) {
        match answer {
            Ok(_) => self.log(|| call.to_owned()),
            Err(error) => self.log(|| format!("{call}: {}", error.chain())),
        }
    }
}

#[async_trait]
impl HistoryStore for RecordingPorts {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        let fresh = self.backend.history.load(app, key).await;
        let Ok(Some(loaded)) = &fresh else {
            self.log_answer("load", &fresh);
            return fresh;
        };
        let uid = loaded.state.app.uid;
        let stale = self.faults.stale().then(|| self.views.lock().unwrap().get(&uid).cloned()).flatten();
        self.log_answer(if stale.is_some() { "load, stale" } else { "load" }, &fresh);
        self.views.lock().unwrap().insert(uid, loaded.clone());
        Ok(Some(match stale {
            // A cache may lag behind; the clock does not.
            Some(stale) => Loaded { now: loaded.now, key: loaded.key, ..stale },
            None => loaded.clone(),
        }))
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let writes = commits.clone();
        let answers = self.backend.history.commit(commits).await;
        for (commit, answer) in writes.iter().zip(&answers) {
            self.committed(commit, answer);
        }
        answers
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.backend.history.page(app, page).await
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        self.backend.history.archived(app, revision).await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        self.backend.history.list(page).await
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        self.backend.history.work(alive, limit).await
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        let _ = self.replica.set(replica.clone());
        let heartbeat = self.backend.history.heartbeat(replica, ttl).await;
        let mut rules = self.environment.rules.lock().unwrap();
        if ttl.is_zero() {
            self.log(|| "releases its leases".to_owned());
            rules.owners.leaves(&self.life);
        } else if heartbeat.is_ok() {
            rules.owners.beats(&self.life, self.environment.moment());
        }
        heartbeat
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        self.backend.history.bind_driver(driver, binding).await
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        self.backend.history.watch()
    }

    fn limits(&self) -> StoreLimits {
        self.backend.history.limits()
    }
}

impl RecordingPorts {
    /// Notes a commit, and judges what has become of the store.
    fn committed(&self, commit: &AppCommit, answer: &Result<Committed>) {
        let Some(change) = commit.change() else {
            self.log_answer("remove app", answer);
            self.environment.look();
            return;
        };
        let what = match (commit.version(), change.admitted.last(), change.changed().is_empty()) {
            (None, ..) => "register".to_owned(),
            (Some(_), Some(newest), _) => format!("accept revision {newest}"),
            (Some(_), None, true) => "change the app".to_owned(),
            (Some(_), None, false) => "record".to_owned(),
        };
        self.log_answer(&what, answer);
        let outdated = matches!(answer, Err(Error::Conflict(Entity::Version)));
        self.environment.journal.count_if(outdated, "effect: a decision was made anew");
        if answer.is_err() {
            return;
        }
        if !change.changed().is_empty() {
            self.environment.rules.lock().unwrap().writes += 1;
        }
        self.environment.look();
        let mut rules = self.environment.rules.lock().unwrap();
        match &change.state.lease {
            // A lease of a former life of the name is none of this one's.
            Some(lease) if self.replica.get() == Some(lease) => {
                rules.owners.leased(&self.life, commit.app(), self.environment.moment(), &self.environment.journal);
            }
            Some(_) => {}
            None => rules.idles(commit.app()),
        }
    }
}

#[async_trait]
impl RolloutDriver for RecordingPorts {
    async fn identity(&self) -> Result<DriverIdentity> {
        self.backend.rollouts.identity().await
    }

    fn unstoppable(&self, target: &Target) -> Option<String> {
        self.backend.rollouts.unstoppable(target)
    }

    fn unconfigurable(&self, target: &Target) -> Option<String> {
        self.backend.rollouts.unconfigurable(target)
    }

    async fn check_settings(&self, request: &SettingsRequest) -> Result<CheckedSettings> {
        self.backend.rollouts.check_settings(request).await
    }

    fn has_same_workloads(&self, before: &Target, after: &Target) -> bool {
        self.backend.rollouts.has_same_workloads(before, after)
    }

    fn fetches_images(&self) -> bool {
        self.backend.rollouts.fetches_images()
    }

    fn observes_with_variables(&self, target: &Target) -> bool {
        self.backend.rollouts.observes_with_variables(target)
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.backend.rollouts.validate(request).await
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        if let Some(time) = self.faults.adrift() {
            self.log(|| format!("apply {}: no answer, but it is under way", told(spec)));
            self.environment.set_adrift(Adrift::Rollout(spec.clone()), time);
            return Err(Error::unavailable("the cluster", "no answer"));
        }
        let before = self.environment.cluster.running(&spec.app, &spec.target);
        let run = ReleaseRun { app: spec.app.clone(), id: spec.id.into() };
        let begun = self.begun(&run);
        let answer = self.backend.rollouts.apply(spec).await;
        // A driver of rollouts begins none.
        self.look_at_releases(&run, begun);
        if matches!(answer, Ok(Applied::Done)) && spec.purpose.is_restore() {
            let after = self.environment.cluster.running(&spec.app, &spec.target);
            self.environment.rules.lock().unwrap().restores(spec, &before, &after, &self.environment.journal);
        }
        match &answer {
            Ok(applied) => self.log(|| format!("apply {}: {applied:?}", told(spec))),
            Err(_) => self.log_answer(&format!("apply {}", told(spec)), &answer),
        }
        let fenced = matches!(answer, Ok(Applied::Newer(_)));
        self.environment.journal.count_if(fenced, "rule 9: an older order was refused");
        self.environment.look_at_cluster(spec);
        answer
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        let is_lost = self.faults.unseen();
        let answer = self.backend.rollouts.observe(spec).await;
        self.log_answer(&format!("observe {}", told(spec)), &answer);
        let truth = match self.environment.promise {
            Some(_) => RolloutDriver::observe(&*self.environment.cluster, spec).await.ok(),
            None => answer.as_ref().ok().cloned(),
        };
        if let Some(seen) = truth {
            let seen = Seen { is_lost, ..self.seen(spec, &seen) };
            let mut rules = self.environment.rules.lock().unwrap();
            if seen.complete && spec.purpose.is_restore() {
                let running = self.environment.cluster.running(&spec.app, &spec.target);
                rules.restored(spec, &running, &self.environment.journal);
            }
            if seen.complete && !spec.adopted {
                let running = self.environment.cluster.running(&spec.app, &spec.target);
                rules.configured(spec, &running, &self.environment.journal);
            }
            rules.observed(spec.id, seen, &self.environment.journal);
        }
        answer
    }

    async fn changed(&self, spec: &RolloutSpec) {
        self.backend.rollouts.changed(spec).await;
    }

    fn target_reader(&self) -> Option<&dyn TargetReader> {
        Some(self)
    }

    fn release_runner(&self) -> Option<&dyn ReleaseRunner> {
        Some(self)
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        self.backend.rollouts.evidence(spec, failure).await
    }

    async fn forget(&self, app: &App) -> Result<()> {
        self.backend.rollouts.forget(app).await
    }
}

/// Returns the revision and the workload of an order.
fn told(spec: &RolloutSpec) -> String {
    format!("revision {} on {}", spec.id.revision, name(&spec.target))
}

#[async_trait]
impl TargetReader for RecordingPorts {
    async fn at_rest(&self, spec: &RolloutSpec) -> Result<AtRest> {
        let Some(reader) = self.backend.rollouts.target_reader() else { return Err(Error::invalid("no reader")) };
        let answer = reader.at_rest(spec).await;
        self.log_answer(&format!("look at {} at rest", told(spec)), &answer);
        if let (Ok(_), Ok(truth)) = (&answer, RolloutDriver::observe(&*self.environment.cluster, spec).await) {
            self.environment.rules.lock().unwrap().rested(spec.id, self.seen(spec, &truth));
        }
        answer
    }

    fn target_changes(&self) -> BoxStream<'static, AppUid> {
        self.backend.rollouts.target_reader().map_or_else(|| stream::pending().boxed(), TargetReader::target_changes)
    }
}

impl RecordingPorts {
    fn runner(&self) -> Result<&dyn ReleaseRunner> {
        self.backend.rollouts.release_runner().ok_or_else(|| Error::invalid("no runner"))
    }

    /// The number of commands of the run's kind that have begun.
    fn begun(&self, run: &ReleaseRun) -> usize {
        let cluster = &self.environment.cluster;
        match run.id.kind {
            RunKind::Release(_) => cluster.releases().len(),
            RunKind::ByHand(_) => cluster.commands_by_hand().len(),
            RunKind::Check(_) => cluster.commands_of_checks().len(),
        }
    }

    /// Counts what a replica is told of a check's command that has ended.
    fn look_at_end(&self, run: &ReleaseRun, state: Option<&ReleaseState>) {
        if let (RunKind::Check(_), Some(state)) = (run.id.kind, state) {
            self.environment.rules.lock().unwrap().check_ended(run, state, &self.environment.journal);
        }
    }

    /// Judges a command that a call has begun.
    fn look_at_releases(&self, run: &ReleaseRun, before: usize) {
        if run.id.kind.is_by_hand() {
            let begun = self.environment.cluster.commands_by_hand();
            if begun.len() > before {
                self.environment.rules.lock().unwrap().command_begins(&begun, &self.environment.journal);
            }
            return;
        }
        if let RunKind::Check(check) = run.id.kind {
            let begun = self.environment.cluster.commands_of_checks();
            if begun.len() > before {
                self.environment.rules.lock().unwrap().check_begins(&begun, check, &self.environment.journal);
            }
            return;
        }
        let begun = self.environment.cluster.releases();
        if begun.len() > before {
            let running_of = |app| self.environment.cluster.running_releases(app);
            self.environment.rules.lock().unwrap().release_begins(&begun, running_of, &self.environment.journal);
        }
    }
}

#[async_trait]
impl ReleaseRunner for RecordingPorts {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let before = self.begun(&spec.run);
        let answer = self.runner()?.prepare(spec).await;
        self.log_answer(&format!("prepare command {}", spec.run.id.kind), &answer);
        self.look_at_releases(&spec.run, before);
        self.look_at_end(&spec.run, answer.as_ref().ok());
        answer
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        let before = self.begun(run);
        let answer = self.runner()?.start(run).await;
        self.log_answer(&format!("start command {}", run.id.kind), &answer);
        self.look_at_releases(run, before);
        answer
    }

    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        let answer = self.runner()?.observe(run).await;
        self.log_answer(&format!("observe command {}: {answer:?}", run.id.kind), &answer);
        self.look_at_end(run, answer.as_ref().ok());
        answer
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        let answer = self.runner()?.cancel(run).await;
        self.log_answer(&format!("end command {}", run.id.kind), &answer);
        answer
    }

    async fn changed(&self, run: &ReleaseRun) {
        match self.runner() {
            Ok(runner) => runner.changed(run).await,
            Err(_) => std::future::pending().await,
        }
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Result<Option<Vec<u8>>> {
        self.runner()?.log(run, from).await
    }
}
