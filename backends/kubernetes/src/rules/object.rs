//! The four kinds of workload behind one type, as far as they are alike.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        batch::v1::CronJob,
        core::v1::{Container, PodTemplateSpec},
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use rollhook_core::ports::DeployId;

use crate::workload::WorkloadKind;

/// The annotation with the stamp: on the workload, and on each of its pods.
pub(crate) const STAMP: &str = "rollhook.dev/revision";
/// The annotation of a workload whose pod template was brought back as it was: the stamp of that template, or [`NONE`].
pub(crate) const TEMPLATE_STAMP: &str = "rollhook.dev/template-revision";
/// The annotation of a workload with the uid of the Secret of the configuration that it was brought to.
pub(crate) const CONFIGURED_BY: &str = "rollhook.dev/configuration-uid";
/// The annotation of a workload with the versions that the Secrets and ConfigMaps of others had as its deploy began.
pub(crate) const REFERENCES: &str = "rollhook.dev/references";
/// The value of [`TEMPLATE_STAMP`] for a template from before the app's first deploy, which has no stamp.
pub(crate) const NONE: &str = "none";
/// The annotation that `kubectl rollout history` shows.
pub(crate) const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";
/// Our field manager, and the value of the label [`MANAGED_BY`] on objects that we create.
pub(crate) const MANAGER: &str = "rollhook";
/// The label that names the program that manages an object.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// A workload as the API server has it.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    /// A Deployment of `apps/v1`.
    Deployment(Box<Deployment>),
    /// A StatefulSet of `apps/v1`.
    StatefulSet(Box<StatefulSet>),
    /// A DaemonSet of `apps/v1`.
    DaemonSet(Box<DaemonSet>),
    /// A CronJob of `batch/v1`.
    CronJob(Box<CronJob>),
}

/// The content of an object's stamp annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// The object has no such annotation.
    Absent,
    /// The id of the deploy that wrote it.
    Deploy(DeployId),
    /// A text that is no deploy id.
    Unreadable(String),
}

impl Stamp {
    /// The stamp among these annotations.
    pub(crate) fn among(annotations: Option<&BTreeMap<String, String>>) -> Self {
        annotations.and_then(|all| all.get(STAMP)).map_or(Self::Absent, |text| Self::parse(text))
    }

    fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Unreadable(text.to_owned()), Self::Deploy)
    }

    /// The deploy id. Returns `None` if the stamp is absent or unreadable.
    pub(crate) fn id(&self) -> Option<DeployId> {
        match self {
            Self::Deploy(id) => Some(*id),
            Self::Absent | Self::Unreadable(_) => None,
        }
    }
}

impl Object {
    /// The kind of the workload.
    pub(crate) fn kind(&self) -> WorkloadKind {
        match self {
            Self::Deployment(_) => WorkloadKind::Deployment,
            Self::StatefulSet(_) => WorkloadKind::StatefulSet,
            Self::DaemonSet(_) => WorkloadKind::DaemonSet,
            Self::CronJob(_) => WorkloadKind::CronJob,
        }
    }

    /// The metadata of the workload.
    pub(crate) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Deployment(object) => &object.metadata,
            Self::StatefulSet(object) => &object.metadata,
            Self::DaemonSet(object) => &object.metadata,
            Self::CronJob(object) => &object.metadata,
        }
    }

    /// Kind and name for sentences: "Deployment api".
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

    /// The selector of its pods. Returns `None` for a CronJob, which has none.
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

    /// Its init containers, those of sidecars among them.
    pub(crate) fn init_containers(&self) -> &[Container] {
        let spec = self.template().and_then(|template| template.spec.as_ref());
        spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()
    }

    /// The container of this name, of either kind.
    pub(crate) fn container(&self, name: &str) -> Option<&Container> {
        self.containers().iter().chain(self.init_containers()).find(|container| container.name == name)
    }

    /// The stamp annotation of the workload itself.
    pub(crate) fn own_stamp(&self) -> Stamp {
        Stamp::among(self.metadata().annotations.as_ref())
    }

    /// The stamp annotation of the pod template.
    pub(crate) fn template_stamp(&self) -> Stamp {
        Stamp::among(self.template().and_then(|template| template.metadata.as_ref()?.annotations.as_ref()))
    }

    /// The stamp that the pods of this deploy carry, which the workload is at: the deploy's own, or that of the template
    /// which the deploy brought back.
    pub(crate) fn pods_stamp(&self, id: DeployId) -> Stamp {
        let annotations = self.metadata().annotations.as_ref();
        let kept = annotations.and_then(|all| all.get(TEMPLATE_STAMP)).filter(|_| self.own_stamp().id() == Some(id));
        match kept.map(String::as_str) {
            None => Stamp::Deploy(id),
            Some(NONE) => Stamp::Absent,
            Some(text) => Stamp::parse(text),
        }
    }

    /// Whether this deploy brought the pod template back as it was, so that pods of an earlier deploy are its own.
    pub(crate) fn is_kept(&self, id: DeployId) -> bool {
        self.pods_stamp(id) != Stamp::Deploy(id)
    }

    /// The stamp that effects are fenced by: the workload's own, or its pod template's if a tool removed that one.
    pub(crate) fn stamp(&self) -> Stamp {
        match self.own_stamp() {
            Stamp::Absent => self.template_stamp(),
            own @ (Stamp::Deploy(_) | Stamp::Unreadable(_)) => own,
        }
    }

    /// The reason why no new revision can be rolled out. Returns `None` if one can.
    pub(crate) fn unsupported(&self) -> Option<String> {
        let on_delete = |strategy: Option<&str>| {
            (strategy == Some("OnDelete")).then(|| {
                format!(
                    "{} has the update strategy OnDelete, so that its pods keep their revision until they are \
                     deleted: set spec.updateStrategy.type to RollingUpdate",
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

    /// Whether all old pods end before the first new one is ready: by the strategy `Recreate`, or where no pod may be added
    /// and all of them may be away at once, as the only one is.
    pub(crate) fn stops_first(&self) -> bool {
        match self {
            Self::Deployment(object) => {
                let Some(spec) = object.spec.as_ref() else { return false };
                let strategy = spec.strategy.as_ref();
                let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
                let pods = spec.replicas.unwrap_or(1);
                let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
                let away = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
                strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
                    || surge.is_some_and(|surge| share(surge, pods, 99) == 0) && is_all(away, pods, 0)
            }
            Self::StatefulSet(object) => {
                let Some(spec) = object.spec.as_ref() else { return false };
                let rolling = spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
                let away = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
                is_all(away, spec.replicas.unwrap_or(1), 99)
            }
            Self::DaemonSet(object) => {
                let strategy = object.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
                let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
                let pods = object.status.as_ref().map_or(0, |status| status.desired_number_scheduled);
                let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
                let away = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
                surge.is_none_or(|surge| share(surge, pods, 99) == 0) && is_all(away, pods, 99)
            }
            Self::CronJob(_) => false,
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

/// Whether so many of the pods that may be away are all of them. Where none may be added, one is away at least.
fn is_all(away: Option<&IntOrString>, pods: i32, rounding: i32) -> bool {
    pods > 0 && away.map_or(1, |away| share(away, pods, rounding)).max(1) >= pods
}

/// The number of pods that a setting means, as many or that share of all: a part of a pod counts from `rounding` percent
/// more on.
fn share(setting: &IntOrString, pods: i32, rounding: i32) -> i32 {
    match setting {
        IntOrString::Int(count) => *count,
        IntOrString::String(text) => {
            let percent = text.trim_end_matches('%').parse::<i32>().unwrap_or(0);
            pods.saturating_mul(percent).saturating_add(rounding) / 100
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::rules::samples;

    #[test]
    fn old_pods_stop_first_where_none_may_be_added_and_all_may_be_away() {
        let deployment = |replicas: i32, strategy: Value| {
            samples::deployment(json!({"spec": {"replicas": replicas, "strategy": strategy}})).stops_first()
        };
        let rolling = |surge: Value, away: Value| json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": away}});
        assert!(deployment(3, json!({"type": "Recreate"})));
        assert!(deployment(1, rolling(json!(0), json!(1))) && deployment(1, rolling(json!("0%"), json!("25%"))));
        assert!(deployment(3, rolling(json!(0), json!("100%"))) && deployment(3, rolling(json!(0), json!(3))));
        assert!(!deployment(3, rolling(json!(0), json!("99%"))), "2 of 3: it is rounded down");
        assert!(!deployment(3, rolling(json!(0), json!(1))) && !deployment(1, rolling(json!("25%"), json!("25%"))));
        assert!(!deployment(1, json!({})), "by default one is added");
        assert!(!deployment(0, rolling(json!(0), json!(1))), "none runs");
        let set = |replicas: i32| samples::stateful_set(json!({"spec": {"replicas": replicas}})).stops_first();
        assert!(set(1) && !set(2));
        let daemon = |nodes: i32, strategy: Value| {
            let status = json!({"desiredNumberScheduled": nodes, "currentNumberScheduled": nodes,
                                "numberMisscheduled": 0, "numberReady": nodes});
            samples::daemon_set(json!({"spec": {"updateStrategy": strategy}, "status": status})).stops_first()
        };
        assert!(daemon(1, json!({})) && !daemon(2, json!({})) && !daemon(1, rolling(json!(1), json!(0))));
        assert!(!samples::cron_job(json!({})).stops_first());
    }
}
