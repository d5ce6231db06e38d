//! The four kinds of workload seen as one, as far as they are alike.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        batch::v1::CronJob,
        core::v1::{Container, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use rollhook_core::ports::DeployId;

use crate::workload::WorkloadKind;

/// The annotation that carries the stamp: on the workload, and on each of its pods.
pub(crate) const STAMP: &str = "rollhook.dev/revision";
/// The annotation that `kubectl rollout history` shows.
pub(crate) const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";
/// Our field manager, and the value of `app.kubernetes.io/managed-by` on what we make.
pub(crate) const MANAGER: &str = "rollhook";

/// A workload as the API server has it.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    /// `apps/v1` Deployment.
    Deployment(Box<Deployment>),
    /// `apps/v1` StatefulSet.
    StatefulSet(Box<StatefulSet>),
    /// `apps/v1` DaemonSet.
    DaemonSet(Box<DaemonSet>),
    /// `batch/v1` CronJob.
    CronJob(Box<CronJob>),
}

/// What an object's stamp annotation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// There is none.
    Absent,
    /// A registration and its revision.
    Stamp(DeployId),
    /// Something that is no stamp.
    Unreadable(String),
}

impl Mark {
    /// The mark among some annotations.
    pub(crate) fn among(annotations: Option<&BTreeMap<String, String>>) -> Self {
        match annotations.and_then(|all| all.get(STAMP)) {
            None => Self::Absent,
            Some(text) => text.parse().map_or_else(|_| Self::Unreadable(text.clone()), Self::Stamp),
        }
    }

    /// The stamp, where there is one.
    pub(crate) fn stamp(&self) -> Option<DeployId> {
        match self {
            Self::Stamp(stamp) => Some(*stamp),
            Self::Absent | Self::Unreadable(_) => None,
        }
    }
}

impl Object {
    /// Its kind.
    pub(crate) fn kind(&self) -> WorkloadKind {
        match self {
            Self::Deployment(_) => WorkloadKind::Deployment,
            Self::StatefulSet(_) => WorkloadKind::StatefulSet,
            Self::DaemonSet(_) => WorkloadKind::DaemonSet,
            Self::CronJob(_) => WorkloadKind::CronJob,
        }
    }

    /// Its metadata.
    pub(crate) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Deployment(object) => &object.metadata,
            Self::StatefulSet(object) => &object.metadata,
            Self::DaemonSet(object) => &object.metadata,
            Self::CronJob(object) => &object.metadata,
        }
    }

    /// "Deployment api", for sentences.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.kind(), self.metadata().name.as_deref().unwrap_or_default())
    }

    /// The template of its pods.
    pub(crate) fn template(&self) -> Option<&PodTemplateSpec> {
        match self {
            Self::Deployment(object) => object.spec.as_ref().map(|spec| &spec.template),
            Self::StatefulSet(object) => object.spec.as_ref().map(|spec| &spec.template),
            Self::DaemonSet(object) => object.spec.as_ref().map(|spec| &spec.template),
            Self::CronJob(object) => {
                object.spec.as_ref().and_then(|spec| spec.job_template.spec.as_ref()).map(|job| &job.template)
            }
        }
    }

    /// What its pods are selected by; a CronJob has no such thing.
    pub(crate) fn selector(&self) -> Option<&LabelSelector> {
        match self {
            Self::Deployment(object) => object.spec.as_ref().map(|spec| &spec.selector),
            Self::StatefulSet(object) => object.spec.as_ref().map(|spec| &spec.selector),
            Self::DaemonSet(object) => object.spec.as_ref().map(|spec| &spec.selector),
            Self::CronJob(_) => None,
        }
    }

    /// Its containers, without init and sidecar ones.
    pub(crate) fn containers(&self) -> &[Container] {
        self.template().and_then(|template| template.spec.as_ref()).map_or(&[], |spec| &spec.containers)
    }

    /// The stamp annotation of the workload itself.
    pub(crate) fn own_mark(&self) -> Mark {
        Mark::among(self.metadata().annotations.as_ref())
    }

    /// The stamp annotation that its pods are given.
    pub(crate) fn template_mark(&self) -> Mark {
        Mark::among(self.template().and_then(|template| template.metadata.as_ref()?.annotations.as_ref()))
    }

    /// What effects are fenced by: the workload's own annotation, or its pods' where a tool removed that one.
    pub(crate) fn mark(&self) -> Mark {
        match self.own_mark() {
            Mark::Absent => self.template_mark(),
            found @ (Mark::Stamp(_) | Mark::Unreadable(_)) => found,
        }
    }

    /// Why no new revision can be rolled out, where that is so.
    pub(crate) fn unsupported(&self) -> Option<String> {
        let on_delete = |strategy: Option<&str>| {
            (strategy == Some("OnDelete")).then(|| {
                format!(
                    "{} has the update strategy OnDelete, so that its pods keep their revision until somebody deletes \
                     them: set spec.updateStrategy.type to RollingUpdate",
                    self.title()
                )
            })
        };
        match self {
            Self::Deployment(_) | Self::CronJob(_) => None,
            Self::StatefulSet(object) => {
                let spec = object.spec.as_ref()?;
                let strategy = spec.update_strategy.as_ref();
                let partition = strategy?.rolling_update.as_ref().and_then(|rolling| rolling.partition).unwrap_or(0);
                let replicas = spec.replicas.unwrap_or(1);
                on_delete(strategy?.type_.as_deref()).or_else(|| {
                    (replicas > 0 && partition >= replicas).then(|| {
                        format!(
                            "{} has the partition {partition} and {replicas} replicas, so that no pod would get a new \
                             revision: lower spec.updateStrategy.rollingUpdate.partition",
                            self.title()
                        )
                    })
                })
            }
            Self::DaemonSet(object) => {
                on_delete(object.spec.as_ref()?.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()))
            }
        }
    }

    /// Whether it is a Deployment that rolls nothing out until it is resumed.
    pub(crate) fn is_paused(&self) -> bool {
        match self {
            Self::Deployment(object) => object.spec.as_ref().and_then(|spec| spec.paused).unwrap_or(false),
            Self::StatefulSet(_) | Self::DaemonSet(_) | Self::CronJob(_) => false,
        }
    }
}
