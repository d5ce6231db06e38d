//! rollhook on Kubernetes: rollouts of Deployments, StatefulSets, DaemonSets and CronJobs ([`KubernetesCluster`]),
//! apps, tokens and history kept in the cluster itself ([`KubernetesStore`], as custom resources of [`crd`]), and
//! builds of git apps as Jobs ([`builds::KubernetesBuilds`]); and, with the feature `management`, callers whom the
//! cluster knows (`KubernetesReviewer`). Each works without the others.
//!
//! The driver:
//!
//! ```text
//!            apply                observe, validate         changed        at_rest          evidence
//!              │                         │                     │               │                │
//!   rules::fence ─ rules::patch   rules::observation      watch per app  watch per kind  pod, events, log
//!              │                         │                     │               │                │
//!              └─────────────── client: one API server, every failure classified ───────────────┘
//! ```
//!
//! Decisions about objects are pure functions in `rules`; the files beside it read and write.
//!
//! One deploy: `apply` reads the workload, and the fence compares its stamp (`rollhook.dev/revision`, `{app
//! uid}/{revision}`) with that of the rollout. One patch, valid only for the object as it was read, sets the named
//! containers' images and the stamp on the workload and on its pod template, so that every revision rolls out and every
//! pod names its own. Of a deploy with a configuration, the variables are in a Secret of their own (`configurations`), made before
//! that patch, which names it in the containers' `envFrom`. A restore writes its stamp to the workload alone, and brings the pod template back as the cluster
//! retains it of the version that ran (`rules::retained`), so that Kubernetes uses that version's ReplicaSet or
//! ControllerRevision again, with the pods that still run; `rollhook.dev/template-revision` says by which stamp they are the
//! restore's own. `observe` then compares the controller's counts by kubectl's rules, and reads failures, restarts
//! and the digest from the pods of just that revision, until the engine has seen enough.
//!
//! The driver needs these permissions in each app's namespace, and no more (for those of the store and of builds see
//! [`manifests`]):
//!
//! | resource | verbs |
//! |---|---|
//! | `deployments`, `statefulsets`, `daemonsets` (`apps`), `cronjobs` (`batch`) | get, list, watch, patch |
//! | `replicasets`, `controllerrevisions` (`apps`) | list, for restores that keep what still runs; without it, they replace all pods |
//! | `pods` | list, watch; delete, to remove pods that block the rollout of a StatefulSet |
//! | `pods/log` | get |
//! | `events` | list |
//! | `events` (`events.k8s.io`) | create, to tell of deploys ([`KubernetesEvents`]) |
//! | the namespace `kube-system` | get: its uid is the identity of the cluster |
//! | `jobs` (`batch`) | get, list, watch, create, patch, for release commands |
//! | `persistentvolumeclaims` | get, to leave out those that only one pod may use |
//! | `configmaps` | get, of which the metadata alone are read, to show changes of those that workloads read; without it, they are not known |
//! | `deployments`, `services` | create, and delete of `services`, to make workloads for apps that have none |
//! | `secrets` | get, list, create, patch, delete, for apps with a configuration: of those that exist the metadata alone are read, but for one that a deploy asks for and its workload does not know yet; and for [`PullSecrets`], which reads those that workloads name for the pulls of their images |

mod addresses;
mod apply;
mod at_rest;
mod bounded_answers;
pub mod builds;
mod client;
mod configurations;
mod connection;
mod description;
mod error;
mod events;
mod evidence;
mod installation;
mod instances;
pub mod manifests;
mod object_version;
mod observe;
mod pages;
mod pod_log;
mod pull_secrets;
mod references;
mod releases;
mod retries;
#[cfg(feature = "management")]
mod reviews;
mod rules;
mod store;
#[cfg(feature = "management")]
mod turns;
mod watch;
mod workload;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use rollhook_core::{
    Error, Result,
    app::{App, AppUid, Target},
    deploy::Evidence,
    ports::{
        Applied, AtRest, DriverIdentity, InstanceAddresses, InstanceLogs, Observation, ReleaseRunner, RolloutDriver,
        RolloutFailure, RolloutSpec, TargetDescription, TargetReader, TargetRequest, Validated,
    },
};
use serde::Deserialize;

pub use events::{EventObjects, KubernetesEvents};
pub use installation::{FoundSecret, InstallationSecrets};
pub use pull_secrets::PullSecrets;
#[cfg(feature = "management")]
pub use reviews::KubernetesReviewer;
pub use store::{KubernetesStore, StoreClock, crd, ensure_crds};
pub use workload::{PodSecurity, Template, Workload, WorkloadKind};

use crate::{
    at_rest::TargetsAtRest,
    client::Cluster,
    description::DESCRIPTION,
    releases::Releases,
    rules::scale,
    watch::Watches,
    workload::{Rollout, TargetKey},
};

/// The deadline of a call to a port, with all its requests.
const CALL: Duration = Duration::from_secs(9);

/// A rollout driver for the workloads of a Kubernetes cluster.
pub struct KubernetesCluster {
    cluster: Cluster,
    watches: Watches<TargetKey>,
    at_rest: TargetsAtRest,
    releases: Releases,
}

impl KubernetesCluster {
    /// Connects as `kubectl` would, or from inside a pod with its service account. Nothing is sent until the first
    /// call.
    ///
    /// # Errors
    /// `Invalid` if there is no configuration, or one that cannot be used.
    pub async fn connect() -> Result<Self> {
        let at_rest = TargetsAtRest::new(Cluster::connect_with_limit(at_rest::SILENCE).await?);
        Ok(Self::on(Cluster::connect().await?, at_rest))
    }

    /// Connects by a given configuration, whose own retries are switched off.
    ///
    /// # Errors
    /// `Invalid` if it cannot be used.
    pub fn with_config(config: kube::Config) -> Result<Self> {
        let mut watching = config.clone();
        watching.read_timeout = Some(at_rest::SILENCE);
        let at_rest = TargetsAtRest::new(Cluster::with(watching)?);
        Ok(Self::on(Cluster::with(config)?, at_rest))
    }

    /// Returns the reader of the Secrets with which the workloads' images are pulled.
    pub fn pull_secrets(&self) -> PullSecrets {
        PullSecrets::new(self.cluster.clone())
    }

    fn on(cluster: Cluster, at_rest: TargetsAtRest) -> Self {
        Self { cluster, watches: Watches::default(), at_rest, releases: Releases::default() }
    }
}

/// The outcome of a call to a port. Returns `Unavailable` after the deadline.
fn bounded<'a, T: 'a>(call: impl Future<Output = Result<T>> + Send + 'a) -> BoxFuture<'a, Result<T>> {
    Box::pin(bounded_by(CALL, call))
}

/// The outcome of a call about a workload of an app.
fn for_app<'a, T: 'a>(call: impl Future<Output = Result<T>> + Send + 'a) -> BoxFuture<'a, Result<T>> {
    bounded(async { call.await.map_err(error::granted) })
}

async fn bounded_by<T>(deadline: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(deadline, call).await.unwrap_or_else(|_| {
        let what = format!("the cluster's API server did not answer within {} s", deadline.as_secs());
        Err(Error::Unavailable { what, cause: None })
    })
}

/// Locks a mutex, poisoned or not: no change leaves a state half made before it could panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl RolloutDriver for KubernetesCluster {
    async fn identity(&self) -> Result<DriverIdentity> {
        bounded(observe::identity(&self.cluster)).await
    }

    fn describe(&self) -> TargetDescription {
        DESCRIPTION
    }

    fn unstoppable(&self, target: &Target) -> Option<String> {
        // Settings that cannot be read are for the calls that use them to report.
        let workload = Workload::deserialize(&target.settings).ok()?;
        scale::obstacle(workload.kind, &workload.name)
    }

    fn unconfigurable(&self, _target: &Target) -> Option<String> {
        None
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        for_app(observe::validate(&self.cluster, request)).await
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        for_app(apply::apply(&self.cluster, &Rollout::of(spec)?, spec.configuration.as_ref())).await
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        for_app(observe::observe(&self.cluster, &Rollout::of(spec)?, &self.at_rest)).await
    }

    async fn changed(&self, spec: &RolloutSpec) {
        match Rollout::of(spec) {
            Ok(rollout) => {
                let cluster = self.cluster.clone();
                let place = (spec.app.namespace.as_str(), spec.id);
                self.watches.changed(rollout.key(), place, || watch::changes(cluster, rollout)).await;
            }
            Err(_) => std::future::pending().await,
        }
    }

    fn target_reader(&self) -> Option<&dyn TargetReader> {
        Some(self)
    }

    fn release_runner(&self) -> Option<&dyn ReleaseRunner> {
        Some(self)
    }

    fn instance_logs(&self) -> Option<&dyn InstanceLogs> {
        Some(self)
    }

    fn instance_addresses(&self) -> Option<&dyn InstanceAddresses> {
        Some(self)
    }

    async fn forget(&self, app: &App) -> Result<()> {
        self.at_rest.forget(app.uid);
        Ok(())
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        for_app(evidence::evidence(&self.cluster, &Rollout::of(spec)?, failure)).await
    }
}

#[async_trait]
impl TargetReader for KubernetesCluster {
    async fn at_rest(&self, spec: &RolloutSpec) -> Result<AtRest> {
        for_app(self.at_rest.look(&self.cluster, &Rollout::of(spec)?)).await
    }

    fn target_changes(&self) -> BoxStream<'static, AppUid> {
        let Some(hints) = self.at_rest.take_hints() else { return stream::empty().boxed() };
        stream::unfold(hints, async |mut hints| Some((hints.next().await?, hints))).boxed()
    }

    fn forget_targets(&self, app: AppUid) {
        self.at_rest.forget(app);
    }
}
