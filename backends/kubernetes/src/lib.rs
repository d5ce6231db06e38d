//! rollhook on Kubernetes: rollouts of Deployments, StatefulSets, DaemonSets and CronJobs ([`KubernetesCluster`]), apps,
//! tokens and history kept in the cluster itself ([`KubernetesStore`], as custom resources of [`crd`]), and builds of git
//! apps as Jobs ([`builds::KubernetesBuilds`]). None needs the others.
//!
//! The driver:
//!
//! ```text
//!            apply                observe, validate         changed            evidence
//!              │                         │                     │                   │
//!   rules::fence ─ rules::patch   rules::observation      watch per app     pod, events, log
//!              │                         │                     │                   │
//!              └───────────── client: one API server, every failure classified ────┘
//! ```
//!
//! What is decided about an object is a pure function in `rules`; what is read and written is in the files beside it.
//!
//! One deploy: `apply` reads the workload, and the fence compares its stamp (`rollhook.dev/revision`, `{app
//! uid}/{revision}`) with the order's. One patch, valid only for the object as it was read, sets the named containers'
//! images and the stamp on the workload and on its pod template, so that every revision rolls out and every pod names its
//! own. `observe` then compares the controller's counts by kubectl's rules, and looks at the pods of just that revision
//! for trouble, restarts and the digest that they run, until the engine has seen enough.
//!
//! The driver needs these permissions in each app's namespace, and no more (for those of the store and of builds see
//! [`manifests`]):
//!
//! | resource | verbs |
//! |---|---|
//! | `deployments`, `statefulsets`, `daemonsets` (`apps`), `cronjobs` (`batch`) | get, list, watch, patch |
//! | `pods` | list, watch; delete, where a stuck pod of a StatefulSet is to be moved |
//! | `pods/log` | get |
//! | `events` | list |
//! | `deployments`, `services` | create, and delete of `services`, where workloads are to be made |

mod apply;
pub mod builds;
mod client;
mod error;
mod evidence;
pub mod manifests;
mod observe;
mod rules;
mod store;
mod watch;
mod workload;

use std::time::Duration;

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    deploy::Evidence,
    ports::{Applied, Observation, RolloutDriver, RolloutFailure, RolloutSpec, TargetRequest, Validated},
};

pub use store::{KubernetesStore, StoreClock, crd, ensure_crds};
pub use workload::{Template, Workload, WorkloadKind};

use crate::{client::Cluster, watch::Watches, workload::Rollout};

/// How long a call may take, with all that it sends.
const CALL: Duration = Duration::from_secs(9);

/// A Kubernetes cluster, as rollhook rolls out to it.
pub struct KubernetesCluster {
    cluster: Cluster,
    watches: Watches,
}

impl KubernetesCluster {
    /// Connects as `kubectl` would, or from inside a pod with its service account. Nothing is sent until the first call.
    ///
    /// # Errors
    /// `Invalid` where there is no configuration, or one that cannot be used.
    pub async fn connect() -> Result<Self> {
        Ok(Self { cluster: Cluster::connect().await?, watches: Watches::default() })
    }

    /// Connects by a given configuration, whose own retries are switched off.
    ///
    /// # Errors
    /// `Invalid` where it cannot be used.
    pub fn with_config(config: kube::Config) -> Result<Self> {
        Ok(Self { cluster: Cluster::with(config)?, watches: Watches::default() })
    }
}

/// The call's outcome, or `Unavailable` once its time is up.
async fn bounded<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(CALL, call).await.unwrap_or_else(|_| {
        let what = format!("the cluster's API server did not answer within {} s", CALL.as_secs());
        Err(Error::Unavailable { what, cause: None })
    })
}

#[async_trait]
impl RolloutDriver for KubernetesCluster {
    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        bounded(observe::validate(&self.cluster, request)).await
    }

    async fn apply(&self, order: &RolloutSpec) -> Result<Applied> {
        bounded(apply::apply(&self.cluster, &Rollout::of(order)?)).await
    }

    async fn observe(&self, order: &RolloutSpec) -> Result<Observation> {
        bounded(observe::observe(&self.cluster, &Rollout::of(order)?)).await
    }

    async fn changed(&self, order: &RolloutSpec) {
        match Rollout::of(order) {
            Ok(rollout) => self.watches.changed(&self.cluster, &rollout).await,
            Err(_) => std::future::pending().await,
        }
    }

    async fn evidence(&self, order: &RolloutSpec, trouble: Option<&RolloutFailure>) -> Result<Evidence> {
        bounded(evidence::evidence(&self.cluster, &Rollout::of(order)?, trouble)).await
    }
}
