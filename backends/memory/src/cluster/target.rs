//! The settings of a target on the simulated cluster: those of the Kubernetes driver, read leniently. An unknown
//! setting is kept and ignored.

use rollhook_core::{
    app::{AppId, Settings, Target},
    ports::{InvalidTarget, SettingValue, TargetDescription, TargetSetting},
};
use serde_json::Value;

/// The kinds of workload that Kubernetes has.
const KINDS: [&str; 4] = [DEPLOYMENT, "StatefulSet", DAEMON_SET, "CronJob"];

/// The settings that the simulation reads, for people.
pub(super) const DESCRIPTION: TargetDescription = TargetDescription {
    platform: "cluster",
    instances: "pods",
    kinds: &[(KINDS[0], KINDS[0]), (KINDS[1], KINDS[1]), (KINDS[2], KINDS[2]), (KINDS[3], KINDS[3])],
    settings: &[
        TargetSetting {
            name: "name",
            label: "Name of the workload",
            help: "By default the app's.",
            value: SettingValue::Text,
        },
        TargetSetting {
            name: "containers",
            label: "Containers",
            help: "A line each; by default the one named like the app, or the only one.",
            value: SettingValue::Texts,
        },
        TargetSetting { name: "template.replicas", label: "Pods", help: "1 by default.", value: SettingValue::Number },
    ],
    steering_variables: &["SIMULATED_ROUTE"],
};
/// The kind that can be created.
pub(super) const DEPLOYMENT: &str = "Deployment";
/// The kind that cannot be scaled.
pub(super) const DAEMON_SET: &str = "DaemonSet";

/// A workload, as the settings name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) kind: String,
    pub(super) name: String,
    /// The containers that are named; empty if none is.
    pub(super) containers: Vec<String>,
    /// How many pods it is created with, if it is to be created.
    pub(super) pods: Option<u32>,
}

impl Workload {
    /// The workload of an app's target.
    pub(super) fn of(app: &AppId, target: &Target) -> Self {
        Self::named(app, &target.settings)
    }

    /// The workload that a person asks for.
    pub(super) fn requested(app: &AppId, settings: &Settings) -> Result<Self, InvalidTarget> {
        let workload = Self::named(app, settings);
        match KINDS.into_iter().find(|kind| kind.eq_ignore_ascii_case(&workload.kind)) {
            Some(kind) => Ok(Self { kind: kind.to_owned(), ..workload }),
            None => Err(InvalidTarget::Setting {
                name: "workload.kind".to_owned(),
                rule: format!(
                    "workload kind {:?}: must be Deployment, StatefulSet, DaemonSet or CronJob.",
                    workload.kind
                ),
            }),
        }
    }

    fn named(app: &AppId, settings: &Settings) -> Self {
        let text = |name: &str| settings.get(name).and_then(Value::as_str).map(str::to_owned);
        let containers = settings.get("containers").and_then(Value::as_array).into_iter().flatten();
        let template = settings.get("template");
        let replicas = template.and_then(|template| template.get("replicas")).and_then(Value::as_u64).unwrap_or(1);
        Self {
            kind: text("kind").unwrap_or_else(|| DEPLOYMENT.to_owned()),
            name: text("name").unwrap_or_else(|| app.name.to_string()),
            containers: containers.filter_map(Value::as_str).map(str::to_owned).collect(),
            pods: template.map(|_| u32::try_from(replicas).unwrap_or(u32::MAX)),
        }
    }

    /// Whether another app's settings name this workload.
    pub(super) fn is_same(&self, app: &AppId, settings: &Settings) -> bool {
        let other = Self::named(app, settings);
        (&self.kind, &self.name) == (&other.kind, &other.name)
    }

    /// The containers that are named, or the one named like the app.
    pub(super) fn containers_or_one(self, app: &AppId) -> Vec<String> {
        if self.containers.is_empty() { vec![app.name.to_string()] } else { self.containers }
    }

    /// The given settings with what was filled in; `template` stays if the workload is to be created.
    pub(super) fn settings(&self, given: &Settings) -> Settings {
        let mut settings = given.clone();
        settings.insert("kind".to_owned(), self.kind.clone().into());
        settings.insert("name".to_owned(), self.name.clone().into());
        settings.insert("containers".to_owned(), self.containers.clone().into());
        settings.remove("template");
        if let Some(pods) = self.pods {
            let mut template = given.get("template").and_then(Value::as_object).cloned().unwrap_or_default();
            template.insert("replicas".to_owned(), pods.into());
            settings.insert("template".to_owned(), template.into());
        }
        settings
    }
}
