//! Builds in the cluster: each one a Job that runs BuildKit, in a namespace of their own.
//!
//! ```text
//!   start ──▶ Job build-{app uid}-{revision}, suspended       named by the build: made only once
//!                │
//!   start, observe ──▶ slots (a ConfigMap) ──▶ Secret, resume environments take turns
//!                │
//!             one pod: the builder's image                    environment and files in, termination message out
//!                │
//!   observe ──▶ outcome of the pod ──▶ recorded on the Job, where every replica reads the same from then on
//! ```
//!
//! All that is known is in the cluster, so that any replica goes on where another one has stopped: each observation of
//! a build resumes waiting ones. Decisions about objects are pure (`observe`, `slots`, `profile`); `api` and this file
//! read and write.
//!
//! **Never two builds of one app at once.** A second build is refused while a Job or a pod of the app is unfinished.
//! Two replicas that start builds at the same moment may both make a Job; then the older revision stays, and even if
//! both stayed, only one of an app's builds is given a slot (`slots`).
//!
//! **A cancelled build** is stopped by a failure that is written on its Job, which then has no pods any more and is
//! never resumed; the build has ended once no pod is left.

mod api;
mod assignments;
mod credentials;
mod job;
mod names;
mod observe;
mod outcome;
mod profile;
mod registry;
mod settings;
mod slots;
mod watch;

use std::cmp::Reverse;

use async_trait::async_trait;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Reason, Revision},
    error::Entity,
    ports::{BuildSpec, BuildState, BuildTrigger, DeployId, Started},
};
use serde_json::json;

pub(crate) use names::{BUILDS_LABELS, SLOTS};
pub use settings::{NAMESPACE, PinnedImage, Profile, Quantity, Settings};

use crate::{
    bounded,
    builds::{
        api::{Changed, Namespace},
        assignments::Assignments,
        names::StoredSpec,
        observe::{CONTAINER, Observed, observe, without_pod},
        outcome::{Outcome, StoredFailure},
        watch::BuildWatch,
    },
    client::Cluster,
    error::contended,
    pod_log::{self, Logs},
    rules::jobs::{is_over, newest},
};

/// The number of attempts on objects that others change at the same time.
const ATTEMPTS: usize = 8;
/// The number of ended builds that are kept of each app, with their pods and so with their logs.
const KEPT: usize = 20;

/// Builds commits in a Kubernetes cluster.
pub struct KubernetesBuilds {
    settings: Settings,
    namespace: Namespace,
    watch: BuildWatch,
    logs: Logs,
    assignments: Assignments,
}

impl KubernetesBuilds {
    /// Connects as `kubectl` would, or from inside a pod with its service account. Nothing is sent until the first
    /// call.
    ///
    /// # Errors
    /// `Invalid` if there is no configuration, or one that cannot be used.
    pub async fn connect(settings: Settings) -> Result<Self> {
        Ok(Self::on(Cluster::connect().await?, settings))
    }

    /// Connects by a given configuration, whose own retries are switched off.
    ///
    /// # Errors
    /// `Invalid` if it cannot be used.
    pub fn with_config(config: kube::Config, settings: Settings) -> Result<Self> {
        Ok(Self::on(Cluster::with(config)?, settings))
    }

    fn on(cluster: Cluster, settings: Settings) -> Self {
        let namespace = Namespace { cluster, name: settings.namespace.as_str().to_owned() };
        let watch = BuildWatch::new();
        Self { settings, namespace, watch, logs: Logs::default(), assignments: Assignments::default() }
    }
}

#[async_trait]
impl BuildTrigger for KubernetesBuilds {
    async fn start(&self, spec: &BuildSpec) -> Result<Started> {
        bounded(self.start_build(spec)).await
    }

    async fn running(&self, app: AppUid) -> Result<Option<Revision>> {
        bounded(async {
            let jobs = self.namespace.list(&names::unended_of_app(app)).await?;
            self.unfinished(app, &jobs).await
        })
        .await
    }

    async fn observe(&self, build: DeployId) -> Result<BuildState> {
        let state = bounded(self.state(build)).await?;
        if !state.is_under_way() {
            self.logs.over(build);
        }
        Ok(state)
    }

    async fn changed(&self, _build: DeployId) {
        self.watch.changed(&self.namespace.cluster, &self.namespace.name).await;
    }

    async fn cancel(&self, build: DeployId) -> Result<()> {
        bounded(async {
            for _ in 0..ATTEMPTS {
                let Some((job, pods)) = self.read(build).await? else { return Ok(()) };
                let has_ended = match self.observe_now(&job, &pods) {
                    Observed::Ended(_) | Observed::Recorded(_) => true,
                    Observed::Waiting | Observed::Running | Observed::Stuck(_) | Observed::WithoutPod => {
                        is_stopped(&job) || {
                            let cancelled = StoredFailure::new(Reason::CANCELLED, "The build was ended.");
                            self.stop_with_log(&job, &pods, cancelled).await? == Changed::Yes
                        }
                    }
                };
                if has_ended {
                    return Ok(());
                }
            }
            Err(contended())
        })
        .await
    }

    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>> {
        bounded(async {
            if let Some(part) = self.logs.part_of_running(build, from).await? {
                return Ok(Some(part));
            }
            let Some((job, pods)) = self.read(build).await? else { return Ok(None) };
            let mut before = preamble(&job);
            if pods.is_empty() {
                before.push_str(&kept_log(&job));
            }
            let Namespace { cluster, name } = &self.namespace;
            let environment = slots::environment_of(&job);
            let of_pod = (build.into(), newest(&pods), CONTAINER);
            self.logs.part((cluster, name), &environment, of_pod, &before, from).await.map(Some)
        })
        .await
    }
}

impl KubernetesBuilds {
    /// The build's Job and its pods. Returns `None` if there is no such Job.
    async fn read(&self, build: DeployId) -> Result<Option<(Job, Vec<Pod>)>> {
        let Some(job) = self.namespace.job(build).await? else { return Ok(None) };
        Ok(Some((job, self.namespace.list(&names::of_build(build)).await?)))
    }

    async fn start_build(&self, spec: &BuildSpec) -> Result<Started> {
        let build = spec.id;
        if self.namespace.job(build).await?.is_some() {
            return Ok(Started::Known);
        }
        let url = &spec.source.url;
        if url.protocol() == "file" {
            return Err(Error::invalid(format!("{url} is a file, which a build in the cluster cannot read")));
        }
        self.settings.sources.check(url).map_err(|refused| Error::invalid(format!("{url} is {refused}")))?;
        let jobs: Vec<Job> = self.namespace.list(&names::of_app(build.app)).await?;
        if let Some(unfinished) = self.unfinished(build.app, &jobs).await? {
            // Another replica may have made this very build just now.
            let known = unfinished == build.revision && self.namespace.job(build).await?.is_some();
            return Ok(if known { Started::Known } else { Started::Busy(unfinished) });
        }
        self.delete_old(jobs).await;
        let Some(made) = self.create_job(spec).await? else { return Ok(Started::Known) };
        // Another replica may have made another build at the same moment: the older revision stays.
        let jobs: Vec<Job> = self.namespace.list(&names::unended_of_app(build.app)).await?;
        if let Some(older) = oldest_unfinished(&jobs).filter(|oldest| *oldest < build.revision)
            && self.namespace.delete(&made, true).await? == Changed::Yes
        {
            return Ok(Started::Busy(older));
        }
        if let Err(error) = self.assign_slots().await {
            tracing::debug!(app = %spec.app, error = %error.chain(), "assigning build slots failed");
        }
        Ok(Started::Known)
    }

    /// Creates the Job of a build. Returns `None` if it exists.
    async fn create_job(&self, spec: &BuildSpec) -> Result<Option<Job>> {
        let profile = match self.settings.profile {
            Some(profile) => profile,
            None => profile::safest(&self.namespace.nodes().await?),
        };
        let job = |profile| job::of(spec, &self.settings, profile, &unique_suffix());
        let Some(made) = self.namespace.create(&job(profile)?, "build").await? else { return Ok(None) };
        if job::is_confined(&made, profile) {
            tracing::info!(app = %spec.app, revision = %spec.id.revision, %profile, "queued a build");
            return Ok(Some(made));
        }
        // The Job is suspended: nothing of it has run.
        self.namespace.delete(&made, false).await?;
        let ignored = "the cluster does not keep a pod to a user namespace of its own";
        if self.settings.profile.is_some() {
            return Err(Error::invalid(format!("{ignored}: build with --build-profile rootless")));
        }
        tracing::warn!("{ignored}: builds run without root");
        // A Job of this name that is still being deleted is not this build, which can start once that is gone.
        let made = self.namespace.create(&job(Profile::Rootless)?, "build").await?;
        made.map(Some).ok_or(Error::Conflict(Entity::Build))
    }

    /// The oldest build of the app that has not ended, by these Jobs or by the pods that are left.
    async fn unfinished(&self, app: AppUid, jobs: &[Job]) -> Result<Option<Revision>> {
        if let Some(oldest) = oldest_unfinished(jobs) {
            return Ok(Some(oldest));
        }
        // A Job that was deleted by hand leaves pods that are being deleted.
        let pods: Vec<Pod> = self.namespace.list(&names::of_app(app)).await?;
        let left = pods.iter().filter(|pod| !crate::rules::pods::is_over(pod));
        Ok(left.filter_map(|pod| names::deploy_id(&pod.metadata)).map(|id| id.revision).min())
    }

    /// Deletes the oldest ended builds beyond those that are kept.
    async fn delete_old(&self, jobs: Vec<Job>) {
        let mut ended: Vec<Job> = jobs.into_iter().filter(is_over).collect();
        ended.sort_by_key(|job| Reverse(names::deploy_id(&job.metadata).map(|id| id.revision)));
        for job in ended.iter().skip(KEPT) {
            if let Err(error) = self.namespace.delete(job, false).await {
                tracing::debug!(error = %error.chain(), "deleting an old build failed");
            }
        }
    }

    fn observe_now(&self, job: &Job, pods: &[Pod]) -> Observed {
        observe(job, pods, jiff::Timestamp::now(), self.settings.patience)
    }

    async fn state(&self, build: DeployId) -> Result<BuildState> {
        for _ in 0..ATTEMPTS {
            let Some((job, pods)) = self.read(build).await? else { return Ok(BuildState::Unknown) };
            let failure = match self.observe_now(&job, &pods) {
                Observed::Recorded(outcome) => return Ok(outcome.into()),
                Observed::Running => return Ok(BuildState::Running),
                Observed::Waiting => {
                    self.assign_slots().await?;
                    return Ok(BuildState::Waiting);
                }
                Observed::Stuck(failure) => failure,
                Observed::WithoutPod => match without_pod(self.namespace.events(&job).await) {
                    Some(failure) => failure,
                    None => return Ok(BuildState::Running),
                },
                Observed::Ended(outcome) => {
                    if let Some(outcome) = self.record(&job, &pods, outcome).await? {
                        return Ok(outcome.into());
                    }
                    continue;
                }
            };
            if self.stop_with_log(&job, &pods, failure).await? == Changed::Yes {
                return Ok(BuildState::Running);
            }
        }
        Err(contended())
    }

    /// Records the outcome on the Job, and gives its slot to another build. Returns `None` if the Job has changed.
    async fn record(&self, job: &Job, pods: &[Pod], outcome: Outcome) -> Result<Option<Outcome>> {
        let outcome = match outcome {
            Outcome::Failed(failure) if failure.log.is_empty() => {
                let log = self.log_tail(pods).await;
                Outcome::Failed(StoredFailure { log, ..failure })
            }
            outcome @ (Outcome::Failed(_) | Outcome::Built { .. }) => outcome,
        };
        // Nothing of the build runs any more, so that its credentials are not needed.
        if let Some(secret) = job::secret_name(job)
            && let Err(error) = self.namespace.delete_secret(secret).await
        {
            tracing::warn!(secret, error = %error.chain(), "deleting a build's credentials failed; they go with its Job");
        }
        let recorded = match self.namespace.record(job, &outcome).await {
            Err(error @ Error::Invalid { .. }) => {
                tracing::debug!(error = %error.chain(), "recording a build's log failed");
                self.namespace.record(job, &outcome.clone().without_log()).await
            }
            recorded => recorded,
        };
        if recorded? == Changed::No {
            return Ok(None);
        }
        if let Err(error) = self.assign_slots().await {
            tracing::debug!(error = %error.chain(), "assigning build slots failed");
        }
        Ok(Some(outcome))
    }

    /// The last lines of the build's log.
    async fn log_tail(&self, pods: &[Pod]) -> Vec<String> {
        pod_log::tail((&self.namespace.cluster, &self.namespace.name), newest(pods), CONTAINER).await
    }

    /// Stops the build with this failure. The end of its log is kept, as its pods go.
    async fn stop_with_log(&self, job: &Job, pods: &[Pod], failure: StoredFailure) -> Result<Changed> {
        let log = self.log_tail(pods).await;
        match self.namespace.stop(job, &StoredFailure { log, ..failure.clone() }).await {
            Err(Error::Invalid { .. }) => self.namespace.stop(job, &failure).await,
            stopped => stopped,
        }
    }

    /// Assigns free slots to the builds whose turn it is, and resumes those that have one.
    async fn assign_slots(&self) -> Result<()> {
        self.assignments.join(Box::pin(self.assign_slots_now())).await
    }

    async fn assign_slots_now(&self) -> Result<()> {
        let limit = usize::from(self.settings.slots.get());
        for _ in 0..ATTEMPTS {
            let (held, object) = self.namespace.slots().await?;
            // Read after the slots: a Job that is gone by now was not given one since.
            let jobs: Vec<Job> = self.namespace.list(&names::unended()).await?;
            let next = slots::assign(&held, &jobs, limit);
            if next != held && self.namespace.write_slots(next.clone(), object).await? == Changed::No {
                continue;
            }
            let mut all = true;
            for job in slots::to_resume(&next, &jobs) {
                all &= self.resume_or_stop(job).await == Changed::Yes;
            }
            if all {
                return Ok(());
            }
        }
        Err(contended())
    }

    /// Resumes the Job. One that cannot be resumed must not block the others: it is stopped if trying again is no use,
    /// and is else tried again at the next observation.
    async fn resume_or_stop(&self, job: &Job) -> Changed {
        let error = match self.resume(job).await {
            Ok(changed) => return changed,
            Err(error) => error,
        };
        let name = job.metadata.name.as_deref().unwrap_or_default();
        tracing::warn!(job = name, error = %error.chain(), "resuming a build that has a slot failed");
        let stopped = match slots::permanent(&error, job, jiff::Timestamp::now(), self.settings.patience) {
            Some(failure) => self.namespace.stop(job, &failure).await,
            None => Ok(Changed::Yes),
        };
        stopped.unwrap_or_else(|error| {
            tracing::warn!(job = name, error = %error.chain(), "marking the build as failed failed");
            Changed::Yes
        })
    }

    /// Resumes the Job, after its credentials were written.
    async fn resume(&self, job: &Job) -> Result<Changed> {
        if job::secret_name(job).is_some() {
            match credentials::read(&StoredSpec::read(job)?, job, &self.settings) {
                // One of this name that exists belongs to the same Job.
                Ok(parts) => {
                    drop(self.namespace.create(&job::secret(job, parts), "Secret with the build's credentials").await?)
                }
                Err(failure) => return self.namespace.stop(job, &failure).await,
            }
        }
        self.namespace.patch(job, json!({"spec": {"suspend": false}})).await
    }
}

/// The oldest revision among these Jobs that has not ended.
fn oldest_unfinished(jobs: &[Job]) -> Option<Revision> {
    let unfinished = jobs.iter().filter(|job| !is_over(job)).filter_map(|job| names::deploy_id(&job.metadata));
    unfinished.map(|id| id.revision).min()
}

/// A text that differs at every moment.
fn unique_suffix() -> String {
    format!("{:x}", jiff::Timestamp::now().as_nanosecond())
}

/// Whether this service has stopped the build, with a failure that can be read.
fn is_stopped(job: &Job) -> bool {
    matches!(names::annotation::<StoredFailure>(job, names::STOPPED), Ok(Some(_)))
}

/// The first line of a build's log, before that of the builder.
fn preamble(job: &Job) -> String {
    StoredSpec::read(job).map_or_else(|error| format!("[rollhook: {error}]\n"), |spec| spec.preamble())
}

/// The kept end of the log of a build whose pod is gone. Returns an empty text if none can be read.
fn kept_log(job: &Job) -> String {
    let kept = match names::annotation::<Outcome>(job, names::OUTCOME) {
        Ok(Some(Outcome::Failed(failure))) => failure.log,
        Ok(Some(Outcome::Built { .. })) | Err(_) => Vec::new(),
        Ok(None) => {
            let stopped = names::annotation::<StoredFailure>(job, names::STOPPED);
            stopped.ok().flatten().map(|failure| failure.log).unwrap_or_default()
        }
    };
    let kept: String = kept.iter().map(|line| format!("{line}\n")).collect();
    if kept.is_empty() { kept } else { format!("[rollhook: the pod is gone; these were its last lines]\n{kept}") }
}
