//! Builds in the cluster: each one a Job that runs BuildKit, in a namespace of their own.
//!
//! ```text
//!   start ──▶ Job build-{app uid}-{revision}, suspended       its name is the build's: made once, whoever asks
//!                │
//!   start, observe ──▶ places (a ConfigMap) ──▶ Secret, go    first come first served, at most so many in the cluster
//!                │
//!             one pod: the builder's image                    environment and files in, termination message out
//!                │
//!   observe ──▶ what the pod left behind ──▶ noted on the Job, where every replica reads the same from then on
//! ```
//!
//! All that is known is in the cluster, so that any replica goes on where another one has stopped: whoever observes a
//! build lets waiting ones go. What is decided about objects is pure (`seen`, `places`, `profile`); what is read and
//! written is here and in `api`.
//!
//! **Never two builds of one app at once.** A second build is refused while a Job or a pod of the app's is unfinished. Two
//! replicas that ask at the same moment may both make one; then the older revision stays, and even if both stayed, only
//! one of an app's builds is given a place (`places`).
//!
//! **A cancelled build** is ended by a verdict that is written on its Job, which then has no pods any more and is never
//! let go; it has ended once none is left.

mod api;
mod bell;
mod credentials;
mod end;
mod job;
mod log;
mod names;
mod places;
mod profile;
mod registry;
mod seen;
mod settings;

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

pub(crate) use names::{BUILDS_LABELS, PLACES};
pub use settings::{NAMESPACE, PinnedImage, Profile, Quantity, Settings};

use crate::{
    bounded,
    builds::{
        api::{Changed, Namespace, end_with},
        bell::Bell,
        end::{End, Failure},
        names::About,
        seen::{Seen, is_active, is_over, newest, seen, without_pod},
    },
    client::Cluster,
};

/// How often something is tried anew that somebody else has changed meanwhile.
const ATTEMPTS: usize = 8;
/// Ended builds that are kept of each app, with their pods and so with their logs.
const KEPT: usize = 20;

/// Builds commits in a Kubernetes cluster.
pub struct KubernetesBuilds {
    settings: Settings,
    namespace: Namespace,
    bell: Bell,
}

impl KubernetesBuilds {
    /// Connects as `kubectl` would, or from inside a pod with its service account. Nothing is sent until the first call.
    ///
    /// # Errors
    /// `Invalid` where there is no configuration, or one that cannot be used.
    pub async fn connect(settings: Settings) -> Result<Self> {
        Ok(Self::on(Cluster::connect().await?, settings))
    }

    /// Connects by a given configuration, whose own retries are switched off.
    ///
    /// # Errors
    /// `Invalid` where it cannot be used.
    pub fn with_config(config: kube::Config, settings: Settings) -> Result<Self> {
        Ok(Self::on(Cluster::with(config)?, settings))
    }

    fn on(cluster: Cluster, settings: Settings) -> Self {
        let namespace = Namespace { cluster, name: settings.namespace.as_str().to_owned() };
        Self { settings, namespace, bell: Bell::new() }
    }
}

#[async_trait]
impl BuildTrigger for KubernetesBuilds {
    async fn start(&self, order: &BuildSpec) -> Result<Started> {
        Box::pin(bounded(self.begin(order))).await
    }

    async fn running(&self, app: AppUid) -> Result<Option<Revision>> {
        bounded(self.unfinished(app)).await
    }

    async fn observe(&self, build: DeployId) -> Result<BuildState> {
        bounded(self.look(build)).await
    }

    async fn changed(&self, _build: DeployId) {
        self.bell.rung(&self.namespace.cluster, &self.namespace.name).await;
    }

    async fn cancel(&self, build: DeployId) -> Result<()> {
        bounded(async {
            for _ in 0..ATTEMPTS {
                let Some(job) = self.namespace.job(&names::job(build)).await? else { return Ok(()) };
                let pods = self.namespace.pods_of(&names::of_build(build)).await?;
                let ended = match self.seen(&job, &pods) {
                    Seen::Ended(_) | Seen::Noted(_) => true,
                    Seen::Waiting | Seen::Running | Seen::Stuck(_) | Seen::WithoutPod => {
                        is_ended_by_us(&job)
                            || self.end(&job, &pods, Failure::new(Reason::CANCELLED, "The build was ended.")).await?
                                == Changed::Yes
                    }
                };
                if ended {
                    return Ok(());
                }
            }
            Err(contended())
        })
        .await
    }

    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>> {
        bounded(async {
            let Some(job) = self.namespace.job(&names::job(build)).await? else { return Ok(None) };
            let mut before = preamble(&job);
            let pods = self.namespace.pods_of(&names::of_build(build)).await?;
            if pods.is_empty() {
                before.push_str(&kept_log(&job));
            }
            log::part(&self.namespace.pods(), &before, newest(&pods), from).await.map(Some)
        })
        .await
    }
}

impl KubernetesBuilds {
    async fn begin(&self, order: &BuildSpec) -> Result<Started> {
        let build = order.id;
        if self.namespace.job(&names::job(build)).await?.is_some() {
            return Ok(Started::Known);
        }
        let url = &order.source.url;
        if url.protocol() == "file" {
            return Err(Error::invalid(format!("{url} is a file, which a build in the cluster cannot read")));
        }
        if url.is_local() && !self.settings.local_sources {
            return Err(Error::invalid(format!("{url} is local, which this server's operator does not allow")));
        }
        let jobs = self.namespace.jobs_of(&names::of_app(build.app)).await?;
        if let Some(other) = self.other(build.app, &jobs).await? {
            // Somebody may have made this very one just now.
            let known = other == build.revision && self.namespace.job(&names::job(build)).await?.is_some();
            return Ok(if known { Started::Known } else { Started::Busy(other) });
        }
        self.forget_old(jobs).await;
        let Some(made) = self.make(order).await? else { return Ok(Started::Known) };
        // Somebody else may have made another one at the same moment: the older revision has the turn.
        let jobs = self.namespace.jobs_of(&names::unended_of_app(build.app)).await?;
        let older = jobs.iter().filter(|job| !is_over(job)).filter_map(|job| names::stamp(&job.metadata));
        if let Some(older) = older.map(|stamp| stamp.revision).filter(|revision| *revision < build.revision).min()
            && self.namespace.delete(&made, true).await? == Changed::Yes
        {
            return Ok(Started::Busy(older));
        }
        if let Err(error) = self.hand_out_places().await {
            tracing::debug!(app = %order.app, error = %error.chain(), "a build waits: places could not be looked at");
        }
        Ok(Started::Known)
    }

    /// Makes the order's Job; none where somebody else has.
    async fn make(&self, order: &BuildSpec) -> Result<Option<Job>> {
        let profile = match self.settings.profile {
            Some(profile) => profile,
            None => profile::safest(&self.namespace.nodes().await?),
        };
        let job = |profile| job::of(order, &self.settings, profile, &mark());
        let Some(made) = self.namespace.create_job(&job(profile)?).await? else {
            return Ok(None);
        };
        if job::is_confined(&made, profile) {
            tracing::info!(app = %order.app, revision = %order.id.revision, %profile, "a build waits for its place");
            return Ok(Some(made));
        }
        // It is suspended: nothing of it has run.
        self.namespace.delete(&made, false).await?;
        if self.settings.profile.is_some() {
            return Err(Error::invalid(
                "the cluster does not keep a pod to a user namespace of its own: build with --build-profile rootless",
            ));
        }
        tracing::warn!("the cluster does not keep a pod to a user namespace of its own: builds run without root");
        // The first one may still be about to go: it is not this build, which is begun once it is gone.
        let made = self.namespace.create_job(&job(Profile::Rootless)?).await?;
        made.map(Some).ok_or(Error::Conflict(Entity::Build))
    }

    /// A build of the app that has not ended, of these Jobs or of what pods are left.
    async fn other(&self, app: AppUid, jobs: &[Job]) -> Result<Option<Revision>> {
        let unfinished = jobs.iter().filter(|job| !is_over(job)).filter_map(|job| names::stamp(&job.metadata));
        if let Some(revision) = unfinished.map(|stamp| stamp.revision).min() {
            return Ok(Some(revision));
        }
        // A Job that was deleted by hand leaves pods that are about to go.
        let pods = self.namespace.pods_of(&names::of_app(app)).await?;
        let left = pods.iter().filter(|pod| is_active(pod)).filter_map(|pod| names::stamp(&pod.metadata));
        Ok(left.map(|stamp| stamp.revision).min())
    }

    async fn unfinished(&self, app: AppUid) -> Result<Option<Revision>> {
        let jobs = self.namespace.jobs_of(&names::unended_of_app(app)).await?;
        self.other(app, &jobs).await
    }

    /// Removes the oldest ended builds beyond those that are kept.
    async fn forget_old(&self, jobs: Vec<Job>) {
        let mut ended: Vec<Job> = jobs.into_iter().filter(is_over).collect();
        ended.sort_by_key(|job| Reverse(names::stamp(&job.metadata).map(|stamp| stamp.revision)));
        for job in ended.iter().skip(KEPT) {
            if let Err(error) = self.namespace.delete(job, false).await {
                tracing::debug!(error = %error.chain(), "an old build could not be removed");
            }
        }
    }

    fn seen(&self, job: &Job, pods: &[Pod]) -> Seen {
        seen(job, pods, jiff::Timestamp::now(), self.settings.patience)
    }

    async fn look(&self, build: DeployId) -> Result<BuildState> {
        for _ in 0..ATTEMPTS {
            let Some(job) = self.namespace.job(&names::job(build)).await? else { return Ok(BuildState::Unknown) };
            let pods = self.namespace.pods_of(&names::of_build(build)).await?;
            let verdict = match self.seen(&job, &pods) {
                Seen::Noted(end) => return Ok(end.into()),
                Seen::Running => return Ok(BuildState::Running),
                Seen::Waiting => {
                    self.hand_out_places().await?;
                    return Ok(BuildState::Waiting);
                }
                Seen::Stuck(verdict) => verdict,
                Seen::WithoutPod => match without_pod(self.namespace.events(&job).await) {
                    Some(verdict) => verdict,
                    None => return Ok(BuildState::Running),
                },
                Seen::Ended(end) => {
                    if let Some(end) = self.note(&job, &pods, end).await? {
                        return Ok(end.into());
                    }
                    continue;
                }
            };
            if self.end(&job, &pods, verdict).await? == Changed::Yes {
                return Ok(BuildState::Running);
            }
        }
        Err(contended())
    }

    /// Writes on the Job how it ended, and gives its place to others; none where the Job has changed meanwhile.
    async fn note(&self, job: &Job, pods: &[Pod], end: End) -> Result<Option<End>> {
        let end = match end {
            End::Failed(failure) if failure.log.is_empty() => {
                let log = log::tail(&self.namespace.pods(), newest(pods)).await;
                End::Failed(Failure { log, ..failure })
            }
            end @ (End::Failed(_) | End::Built { .. }) => end,
        };
        // Nothing of the build runs any more, so that nobody needs what it was let in with.
        if let Some(secret) = job::secret_name(job)
            && let Err(error) = self.namespace.delete_secret(secret).await
        {
            tracing::warn!(secret, error = %error.chain(), "a build's credentials go only with its Job");
        }
        let patch = |end: &End| -> Result<_> {
            Ok(json!({"metadata": {"labels": {names::ENDED: "true"}, "annotations": {names::END: written(end)?}}}))
        };
        let noted = match self.namespace.patch(job, patch(&end)?).await {
            Err(error @ Error::Invalid { .. }) => {
                tracing::debug!(error = %error.chain(), "how a build ended is noted without its log");
                self.namespace.patch(job, patch(&end.clone().without_log())?).await
            }
            noted => noted,
        };
        if noted? == Changed::No {
            return Ok(None);
        }
        if let Err(error) = self.hand_out_places().await {
            tracing::debug!(error = %error.chain(), "places could not be looked at");
        }
        Ok(Some(end))
    }

    /// Has the build end for this reason. What it has logged so far is kept, as its pods go.
    async fn end(&self, job: &Job, pods: &[Pod], verdict: Failure) -> Result<Changed> {
        let log = log::tail(&self.namespace.pods(), newest(pods)).await;
        match self.namespace.patch(job, end_with(&written(&Failure { log, ..verdict.clone() })?)).await {
            Err(Error::Invalid { .. }) => self.namespace.patch(job, end_with(&written(&verdict)?)).await,
            ended => ended,
        }
    }

    /// Gives free places to those who have waited longest, and lets go who has one.
    async fn hand_out_places(&self) -> Result<()> {
        let places = usize::from(self.settings.places.get());
        for _ in 0..ATTEMPTS {
            let (held, object) = self.namespace.held().await?;
            // Read after the places: a Job that is not there any more was not given one since.
            let jobs = self.namespace.jobs_of(&names::unended()).await?;
            let next = places::next(&held, &jobs, places);
            if next != held && self.namespace.hold(next.clone(), object).await? == Changed::No {
                continue;
            }
            let mut all = true;
            for job in places::to_let_go(&next, &jobs) {
                all &= self.let_go_or_end(job).await == Changed::Yes;
            }
            if all {
                return Ok(());
            }
        }
        Err(contended())
    }

    /// Lets the Job go. One that cannot be is in nobody's way: it is ended where trying again would not help, and else
    /// tried again at the next look.
    async fn let_go_or_end(&self, job: &Job) -> Changed {
        let error = match self.let_go(job).await {
            Ok(changed) => return changed,
            Err(error) => error,
        };
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let ended = match places::hopeless(&error, job, jiff::Timestamp::now(), self.settings.patience) {
            Some(verdict) => match written(&verdict) {
                Ok(verdict) => self.namespace.patch(job, end_with(&verdict)).await,
                Err(error) => Err(error),
            },
            None => Ok(Changed::Yes),
        };
        tracing::warn!(job = name, error = %error.chain(), "a build that has a place could not be let go");
        ended.unwrap_or_else(|error| {
            tracing::warn!(job = name, error = %error.chain(), "nor could it be ended");
            Changed::Yes
        })
    }

    /// Lets the Job go, with what its builder needs to be let in.
    async fn let_go(&self, job: &Job) -> Result<Changed> {
        if job::secret_name(job).is_some() {
            match credentials::read(&About::read(job)?, job, &self.settings) {
                Ok(parts) => self.namespace.create_secret(&job::secret(job, parts)).await?,
                Err(verdict) => return self.namespace.patch(job, end_with(&written(&verdict)?)).await,
            }
        }
        self.namespace.patch(job, json!({"spec": {"suspend": false}})).await
    }
}

/// A word that is another one at every moment.
fn mark() -> String {
    format!("{:x}", jiff::Timestamp::now().as_nanosecond())
}

/// Whether we have ended it, for a reason that can be read.
fn is_ended_by_us(job: &Job) -> bool {
    matches!(names::annotation::<Failure>(job, names::VERDICT), Ok(Some(_)))
}

/// What stands before the builder's own log.
fn preamble(job: &Job) -> String {
    About::read(job).map_or_else(|error| format!("[rollhook: {error}]\n"), |about| about.preamble())
}

/// What is left of the log of a build whose pod is gone; nothing where that cannot be read.
fn kept_log(job: &Job) -> String {
    let kept = match names::annotation::<End>(job, names::END) {
        Ok(Some(End::Failed(failure))) => failure.log,
        Ok(Some(End::Built { .. })) | Err(_) => Vec::new(),
        Ok(None) => {
            let verdict = names::annotation::<Failure>(job, names::VERDICT);
            verdict.ok().flatten().map(|verdict| verdict.log).unwrap_or_default()
        }
    };
    let kept: String = kept.iter().map(|line| format!("{line}\n")).collect();
    if kept.is_empty() { kept } else { format!("[rollhook: the pod is gone; these were its last lines]\n{kept}") }
}

fn written<T: serde::Serialize>(what: &T) -> Result<String> {
    serde_json::to_string(what).map_err(|error| Error::corrupt("what becomes of a build cannot be written", error))
}

fn contended() -> Error {
    Error::Unavailable { what: "the build is changed by others again and again".to_owned(), cause: None }
}
