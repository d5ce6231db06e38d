//! Commands in the cluster, of releases, by hand and of checks: each one a Job in the app's namespace, beside the workload that it is for.
//!
//! ```text
//!   prepare ──▶ Job release-{app uid}-{revision}, suspended    named by the run: made only once; run-{app uid}-{number} by hand,
//!      │                                                     check-{app uid}-{number} of a check
//!      │
//!   start ──▶ resumed and marked as started, in one patch      never a second time
//!      │
//!   one pod ──▶ end of the Job, kept for a day                 any end of its pod is the end of the run
//! ```
//!
//! All that is known is in the cluster. Decisions about objects are pure (`job`, `state`); this file reads and writes. Each
//! patch is valid only for the Job as it was read, so that of a start and a cancel at the same moment one sees the other.
//!
//! **A run that is stopped**, by a cancel, as its pod cannot begin, or as its pod goes on after the command has ended, carries
//! the end that is to be reported, and is failed by its deadline: as a finished Job it has no pods any more, and is never
//! resumed.

mod job;
mod looks;
mod old_runs;
mod state;
mod variables;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{
    StreamExt,
    stream::{BoxStream, select},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::api::ListParams;
use rollhook_core::{
    Error, Result,
    deploy::Reason,
    ports::{ReleaseFailure, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState, RolloutSpec, RunId},
};
use serde_json::{Value, json};

use crate::{
    KubernetesCluster, apply,
    client::Cluster,
    configurations,
    error::{classify, contended, is_already_exists, is_conflict, is_not_found, refusal},
    for_app, object_version,
    pages::Extent,
    pod_log::{self, Logs},
    releases::{
        looks::{Look, Looks},
        old_runs::OldRuns,
        state::{Began, Observed, STARTED, STOPPED, Stopped, container_name},
    },
    rules::{
        configuration,
        fence::{self, Decision},
        jobs::{self, newest},
        listed::{ListedJob, ListedPod},
        object::Object,
        pods, reduced, template,
    },
    watch::{Watches, events},
    workload::Rollout,
};

/// The number of attempts on a Job that others change at the same time.
const ATTEMPTS: usize = 8;
/// The longest time in which a new run has old ones deleted.
const CLEANUP: Duration = Duration::from_secs(3);

/// What this process keeps of runs.
#[derive(Default)]
pub(crate) struct Releases {
    /// One for each run: callers may follow several runs of an app.
    watches: Watches<RunId>,
    logs: Logs,
    looks: Looks,
}

#[async_trait]
impl ReleaseRunner for KubernetesCluster {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        for_app(Run::of(&self.cluster, &spec.run).prepare(spec)).await
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        for_app(Run::of(&self.cluster, run).start()).await
    }

    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        let state = for_app(Run::of(&self.cluster, run).state()).await?;
        if state.is_ended() {
            self.releases.logs.over(run.id);
        }
        Ok(state)
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        for_app(Run::of(&self.cluster, run).cancel()).await
    }

    async fn changed(&self, run: &ReleaseRun) {
        let place = (run.app.namespace.as_str(), run.deploy_id());
        self.releases.watches.changed(run.id, place, || changes(&self.cluster, run)).await;
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Result<Option<Vec<u8>>> {
        for_app(async {
            if let Some(part) = self.releases.logs.part_of_running(run.id, from).await? {
                return Ok(Some(part));
            }
            let run = Run::of(&self.cluster, run);
            match self.releases.looks.of(run.run.id, run.look()).await? {
                Some(look) => run.log(&self.releases.logs, &look.0, &look.1, from).await,
                None => Ok(None),
            }
        })
        .await
    }
}

/// An endless stream with an item for each change of the run's Job or pod.
fn changes(cluster: &Cluster, run: &ReleaseRun) -> BoxStream<'static, ()> {
    let namespace = run.app.namespace.as_str();
    let config = object_version::watch().labels(&job::selector(run.id));
    let jobs = events(object_version::of::<Job>(cluster, namespace), config.clone());
    select(jobs, events(object_version::of::<Pod>(cluster, namespace), config)).boxed()
}

/// A run in its cluster.
struct Run<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    run: &'a ReleaseRun,
}

impl<'a> Run<'a> {
    fn of(cluster: &'a Cluster, run: &'a ReleaseRun) -> Self {
        Self { cluster, namespace: run.app.namespace.as_str(), run }
    }

    /// Whether a deploy goes on after the run, so that what keeps the deploy from its target keeps the run from its begin.
    const fn is_release(&self) -> bool {
        self.run.id.kind.is_release()
    }

    /// The run's Job, as far as rules read it. Returns `None` if there is none that rollhook made.
    async fn job(&self) -> Result<Option<Job>> {
        let found = self.cluster.find::<Job>(self.namespace, &job::name(self.run.id)).await?;
        let found = found.filter(|found| job::is_of(&found.metadata, self.run.id));
        Ok(found.map(|found| reduced::job(*found, &[STARTED, STOPPED])))
    }

    /// Hands over each page of the pods with the run's labels, which others may give to pods of theirs.
    async fn labelled_pods(&self, keep: impl FnMut(Vec<ListedPod>)) -> Result<Extent> {
        let selected = ListParams::default().labels(&job::selector(self.run.id));
        self.cluster.list::<Pod, ListedPod>(self.namespace, selected, keep).await
    }

    /// The run's pods, and whether all that may be its own were read.
    async fn pods(&self, job: &Job) -> Result<(Vec<Pod>, Extent)> {
        let container = [container_name(job).to_owned()];
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let mut kept = Vec::new();
        let keep = |page: Vec<ListedPod>| {
            jobs::keep_pods(&mut kept, page.into_iter().map(|pod| pod.with_containers(&container)), uid);
        };
        let extent = self.labelled_pods(keep).await?;
        if extent == Extent::Part {
            tracing::debug!(app = %self.run.app, "reading the pods of a release command ended before the end of their list");
        }
        Ok((kept, extent))
    }

    /// Whether a pod with the run's labels is not over, as far as is known.
    async fn has_unended_pods(&self) -> Result<bool> {
        let mut has_any = false;
        let keep = |page: Vec<ListedPod>| {
            has_any |= page.into_iter().any(|pod| !pods::is_over(&pod.with_containers(&[])));
        };
        let extent = self.labelled_pods(keep).await?;
        Ok(has_any || extent == Extent::Part)
    }

    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let known = self.state().await?;
        if known != ReleaseState::Unknown {
            return Ok(known);
        }
        let (app, id) = (self.run.app.clone(), self.run.deploy_id());
        let of_run = RolloutSpec::new(app, id, spec.target.clone(), spec.image.clone());
        let id = spec.configuration.as_ref().map(|configuration| configuration.id);
        let rollout = Rollout { configuration: id, ..Rollout::of(&of_run)? };
        let target = match self.target(&rollout).await? {
            Ok(target) => target,
            Err(failure) => return Ok(ReleaseState::Failed(failure)),
        };
        let container = rollout.workload.containers.first().map_or("", String::as_str);
        let exclusive = self.exclusive(job::claims(&target, container)?).await?;
        let made = job::of(self.run, &target, container, (&spec.image, &spec.command), &exclusive, id)?;
        let secret = match self.provide(spec, &rollout, &target).await {
            Ok(Ok(secret)) => secret,
            Ok(Err(failure)) => return Ok(ReleaseState::Failed(failure)),
            Err(Error::NotFound(_)) => return Ok(ReleaseState::Failed(without_namespace(&rollout))),
            Err(error) => return Err(error),
        };
        let failure = match self.cluster.create(self.namespace, &made).await {
            Ok(job) => {
                self.hand_over(spec, &target, &job, secret.as_ref()).await?;
                self.delete_old_runs().await;
                return Ok(ReleaseState::Prepared);
            }
            Err(failure) => failure,
        };
        if is_already_exists(&failure) {
            return self.state_of_existing().await;
        }
        if is_not_found(&failure) {
            return Ok(ReleaseState::Failed(without_namespace(&rollout)));
        }
        let error = match refusal(&failure) {
            Some(why) => Error::Invalid {
                what: format!("the cluster refuses the release command's Job: {why}"),
                cause: Some(failure.into()),
            },
            None => classify(failure),
        };
        // A Job whose answer was lost needs its Secret. So does what runs, and so may other runs by hand.
        let is_needed =
            error.is_unavailable() || !self.is_release() || configuration::is_referred_to(&target, &rollout);
        if !is_needed {
            configurations::take_back(self.cluster, self.namespace, secret.as_ref()).await;
        }
        Err(error)
    }

    /// The state of a run whose Job could not be made, as there is one of its name.
    async fn state_of_existing(&self) -> Result<ReleaseState> {
        let name = job::name(self.run.id);
        let found = self.cluster.find::<Job>(self.namespace, &name).await?;
        if found.is_some_and(|found| !job::is_of(&found.metadata, self.run.id)) {
            let namespace = self.namespace;
            return Err(Error::invalid(format!(
                "the Job {name} in the namespace {namespace} has not the labels of a release command: delete it, then deploy again"
            )));
        }
        let state = self.state().await?;
        // It was deleted meanwhile.
        if state == ReleaseState::Unknown { Err(contended()) } else { Ok(state) }
    }

    /// The workload that the run is for, or as it would be created. Returns the failure if the new version could not be
    /// rolled out to it.
    async fn target(&self, rollout: &Rollout) -> Result<std::result::Result<Object, ReleaseFailure>> {
        let Some(object) = self.cluster.target(rollout).await? else {
            return Ok(match apply::template_of(rollout) {
                Some(template) => Ok(Object::Deployment(Box::new(template::deployment(rollout, template)))),
                None => Err(unbegun(Reason::new(Reason::TARGET_MISSING), apply::no_target(rollout))),
            });
        };
        Ok(match fence::decide(&object, rollout) {
            Decision::Patch | Decision::UpToDate => Ok(object),
            // A command by hand, or a check's, changes nothing of the workload: whichever deploy is on it, and whether it is
            // paused, is no matter.
            Decision::Newer(_) if !self.is_release() => Ok(object),
            Decision::Refused { reason, .. } if !self.is_release() && reason.as_str() == Reason::PAUSED => Ok(object),
            Decision::Newer(revision) => {
                let message = format!("{} is at the newer revision {revision} already", object.title());
                Err(unbegun(Reason::new(Reason::REFUSED), message))
            }
            Decision::Refused { reason, message } => Err(unbegun(reason, message)),
        })
    }

    /// Those of the claims that only one pod may use.
    async fn exclusive(&self, claims: BTreeSet<String>) -> Result<BTreeSet<String>> {
        let mut exclusive = BTreeSet::new();
        for name in claims {
            let claim = self.cluster.find::<PersistentVolumeClaim>(self.namespace, &name).await?;
            let modes = claim.and_then(|claim| claim.spec?.access_modes).unwrap_or_default();
            if modes.iter().any(|mode| mode == "ReadWriteOncePod") {
                exclusive.insert(name);
            }
        }
        Ok(exclusive)
    }

    /// Has the cluster delete the app's ended runs beyond those that are kept, as far as that succeeds in a short time.
    async fn delete_old_runs(&self) {
        let delete = async {
            let mut runs = OldRuns::new(self.run.id);
            let selected = ListParams::default().labels(&job::selector_of_kind(self.run.id));
            self.cluster.list::<Job, ListedJob>(self.namespace, selected, |page| runs.add(page)).await?;
            for job in runs.ended() {
                // The cluster's own cleanup deletes it: rollhook has no permission to.
                self.patch(&job, json!({"spec": {"ttlSecondsAfterFinished": 0}})).await?;
            }
            Ok::<_, Error>(())
        };
        match tokio::time::timeout(CLEANUP, delete).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(app = %self.run.app, error = %error.chain(), "deleting old release commands failed");
            }
            Err(_) => tracing::debug!(app = %self.run.app, "deleting old release commands took too long"),
        }
    }

    async fn start(&self) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let Some(job) = self.job().await?.filter(state::is_ready) else { return Ok(()) };
            let patch = json!({"metadata": {"annotations": {STARTED: "true"}}, "spec": {"suspend": false}});
            if self.patch(&job, patch).await? {
                return Ok(());
            }
        }
        Err(contended())
    }

    async fn cancel(&self) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let goes_on = |job: &Job| !state::is_stopped(job) && jobs::finished(job).is_none();
            let Some(job) = self.job().await?.filter(goes_on) else { return Ok(()) };
            let (pods, extent) = self.pods(&job).await?;
            if newest(&pods).is_some_and(pods::is_over) {
                return Ok(());
            }
            let all = if extent == Extent::Whole { pods.as_slice() } else { &[] };
            if self.stop(&job, &pods, Stopped::cancelled(&job, all, Timestamp::now())).await? {
                return Ok(());
            }
        }
        Err(contended())
    }

    async fn state(&self) -> Result<ReleaseState> {
        for _ in 0..ATTEMPTS {
            let Some(job) = self.job().await? else {
                // A Job that was deleted by hand leaves pods that are being deleted.
                let goes_on = self.has_unended_pods().await?;
                return Ok(if goes_on { ReleaseState::Running } else { ReleaseState::Unknown });
            };
            let (pods, extent) = self.pods(&job).await?;
            let stopped = match state::observe(&job, &pods, Timestamp::now()) {
                Observed::Prepared => return Ok(ReleaseState::Prepared),
                Observed::Running => return Ok(ReleaseState::Running),
                Observed::Succeeded(digest) => return Ok(ReleaseState::Succeeded { digest }),
                Observed::Failed(mut failure) => {
                    if failure.began && failure.log.is_empty() {
                        failure.log = self.log_tail(&job, &pods).await;
                    }
                    return Ok(ReleaseState::Failed(failure));
                }
                Observed::Unverified(stopped) => {
                    if let Some(failure) = self.verify(&job, extent, stopped).await? {
                        return Ok(ReleaseState::Failed(failure));
                    }
                    continue;
                }
                Observed::Stuck(stopped) => stopped,
                Observed::WithoutPod => {
                    let uid = job.metadata.uid.as_deref().unwrap_or_default();
                    match state::without_pod(self.cluster.events(self.namespace, uid).await) {
                        Some(stopped) => stopped,
                        None => return Ok(ReleaseState::Running),
                    }
                }
            };
            if self.stop(&job, &pods, stopped).await? {
                return Ok(ReleaseState::Running);
            }
        }
        Err(contended())
    }

    /// Finds out whether the command of a stopped run began in the moment before that, and records it, as events are not
    /// kept for long. Returns `None` if the Job has changed. It may have begun if not all of its pods were read.
    async fn verify(&self, job: &Job, pods: Extent, stopped: Stopped) -> Result<Option<ReleaseFailure>> {
        let uid = match &stopped.began {
            Began::Unseen { pod: Some(uid) } => Some(uid.as_str()),
            Began::Unseen { pod: None } | Began::Yes | Began::No => job.metadata.uid.as_deref(),
        };
        let began = match self.cluster.events_of(self.namespace, uid.unwrap_or_default()).await {
            Ok(events) => state::says_begun(&events) || pods == Extent::Part,
            // Without the permission it is not known.
            Err(Error::Denied { .. }) => true,
            Err(error) => return Err(error),
        };
        let verified = Stopped { began: if began { Began::Yes } else { Began::No }, ..stopped };
        let patch = json!({"metadata": {"annotations": {STOPPED: text(&verified)?}}});
        Ok(self.patch(job, patch).await?.then(|| verified.into_failure(began)))
    }

    /// Ends the Job as it was read: its pods go and no others come. The end of its log is kept. Returns whether it was
    /// changed.
    async fn stop(&self, job: &Job, pods: &[Pod], stopped: Stopped) -> Result<bool> {
        let end = |stopped: &Stopped| -> Result<Value> {
            Ok(json!({
                "metadata": {"annotations": {STOPPED: text(stopped)?}},
                // Resumed without pods in one step: a Job that stays suspended never finishes.
                "spec": {"suspend": false, "parallelism": 0, "activeDeadlineSeconds": 1},
            }))
        };
        let log = self.log_tail(job, pods).await;
        let with_log = Stopped { log, ..stopped.clone() };
        match self.patch(job, end(&with_log)?).await {
            Err(Error::Invalid { .. }) if !with_log.log.is_empty() => self.patch(job, end(&stopped)?).await,
            changed => changed,
        }
    }

    /// Patches the Job as it was read. Returns `false` if it has changed meanwhile, or is gone.
    async fn patch(&self, job: &Job, patch: Value) -> Result<bool> {
        match self.cluster.patch_job(self.namespace, job, patch).await {
            Ok(()) => Ok(true),
            Err(error) if is_conflict(&error) || is_not_found(&error) => Ok(false),
            Err(error) => Err(classify(error)),
        }
    }

    async fn log_tail(&self, job: &Job, pods: &[Pod]) -> Vec<String> {
        pod_log::tail((self.cluster, self.namespace), newest(pods), container_name(job)).await
    }

    /// The run's Job and pods, for all who read its log.
    async fn look(&self) -> Result<Look> {
        let Some(job) = self.job().await? else { return Ok(None) };
        let (pods, _) = self.pods(&job).await?;
        Ok(Some(Arc::new((job, pods))))
    }

    async fn log(&self, logs: &Logs, job: &Job, pods: &[Pod], from: u64) -> Result<Option<Vec<u8>>> {
        let name = container_name(job);
        let begun = newest(pods).filter(|pod| jobs::container(pod, name).is_some_and(state::has_run));
        if begun.is_some() {
            let (namespace, of_pod) = ((self.cluster, self.namespace), (self.run.id, begun, name));
            return logs.part(namespace, self.namespace, of_pod, "", from).await.map(Some);
        }
        let kept = state::stopped(job).ok().flatten().map(|stopped| stopped.log).unwrap_or_default();
        if !kept.is_empty() {
            // A reader that goes on counts the bytes of the pod's own log, which these lines are only the end of.
            if from > 0 {
                return Ok(Some(Vec::new()));
            }
            let kept: String = kept.iter().map(|line| format!("{line}\n")).collect();
            let kept = format!("[rollhook: the pod is gone; these were its last lines]\n{kept}");
            return Ok(Some(kept.into_bytes()));
        }
        let goes_on = state::is_started(job) && !state::is_stopped(job) && jobs::finished(job).is_none();
        Ok(goes_on.then(Vec::new))
    }
}

fn without_namespace(rollout: &Rollout) -> ReleaseFailure {
    unbegun(Reason::new(Reason::TARGET_MISSING), apply::no_namespace(rollout))
}

/// The failure of a run that was not made.
fn unbegun(reason: Reason, why: String) -> ReleaseFailure {
    let message = format!("The release command has not begun: {why}.");
    ReleaseFailure { began: false, reason, message, exit_code: None, log: Vec::new() }
}

fn text(stopped: &Stopped) -> Result<String> {
    serde_json::to_string(stopped).map_err(|error| Error::corrupt("the end of a run cannot be written", error))
}

#[cfg(test)]
mod tests;
