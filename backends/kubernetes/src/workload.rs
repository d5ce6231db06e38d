//! The settings of a target: one workload, and how to create it.
//!
//! ```json
//! {"kind": "Deployment", "name": "api", "containers": ["api"], "template": {"replicas": 2, "port": 8080}}
//! ```
//!
//! A person gives any part of them; [`rules::registration`](crate::rules::registration) fills in the rest. `template`
//! is stored only if the workload is to be created.

use std::{collections::BTreeMap, fmt, str::FromStr};

use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid, InvalidName, LABEL_MAX, Settings},
    configuration::ConfigurationId,
    deploy::Scale,
    image::ImageRef,
    ports::{DeployId, InvalidTarget, Purpose, RolloutSpec},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::builds::Quantity;

/// The kinds of workload that can be rolled out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WorkloadKind {
    /// A Deployment of `apps/v1`.
    #[default]
    Deployment,
    /// A StatefulSet of `apps/v1`.
    StatefulSet,
    /// A DaemonSet of `apps/v1`.
    DaemonSet,
    /// A CronJob of `batch/v1`.
    CronJob,
}

impl WorkloadKind {
    /// The kind's name in Kubernetes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::CronJob => "CronJob",
        }
    }

    /// The group and version of the kind.
    pub(crate) const fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::StatefulSet | Self::DaemonSet => "apps/v1",
            Self::CronJob => "batch/v1",
        }
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for WorkloadKind {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        [Self::Deployment, Self::StatefulSet, Self::DaemonSet, Self::CronJob]
            .into_iter()
            .find(|kind| kind.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| InvalidName {
                what: "workload kind",
                given: text.chars().take(LABEL_MAX).collect(),
                rule: "must be Deployment, StatefulSet, DaemonSet or CronJob",
            })
    }
}

/// The target of an app: containers of one workload in the app's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// The kind of the workload.
    pub kind: WorkloadKind,
    /// The name of the workload.
    pub name: String,
    /// The containers whose image a deploy sets; never empty.
    pub containers: Vec<String>,
    /// How to create the workload if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
}

/// A Deployment (and Service) to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Template {
    /// Number of pods.
    pub replicas: u32,
    /// The container's port; with one, a Service of the workload's name is created too.
    pub port: Option<u16>,
    /// Environment variables of the container, whose values are stored as they are, and not shown.
    pub env: BTreeMap<String, String>,
    /// Names of Secrets whose entries are environment variables of the container too.
    pub env_from_secrets: Vec<String>,
    /// Name of the Secret that the image is pulled with.
    pub pull_secret: Option<String>,
    /// Path of an HTTP readiness probe on `port`.
    pub readiness_path: Option<String>,
    /// The processor time that is reserved for the container, such as `500m`.
    pub cpu: Option<String>,
    /// The memory that is reserved for the container, and that it may use at most, such as `512Mi`.
    pub memory: Option<String>,
    /// The profile of Pod Security that the pods pass.
    pub pod_security: PodSecurity,
}

/// The profiles of Pod Security that pods can be made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurity {
    /// Not as root, and without privileges.
    #[default]
    Restricted,
    /// As the image says, root included.
    Baseline,
}

impl PodSecurity {
    /// The names of the profiles.
    pub(crate) const WORDS: &[&str] = &["restricted", "baseline"];
}

impl Default for Template {
    fn default() -> Self {
        Self {
            replicas: 1,
            port: None,
            env: BTreeMap::new(),
            env_from_secrets: Vec::new(),
            pull_secret: None,
            readiness_path: None,
            cpu: None,
            memory: None,
            pod_security: PodSecurity::default(),
        }
    }
}

impl Template {
    /// Checks the amounts of processor time and memory.
    ///
    /// # Errors
    /// [`InvalidTarget::Setting`], which names the setting.
    pub(crate) fn check(&self) -> Result<(), InvalidTarget> {
        let is_amount = |text: &str, is_unit: fn(&str) -> bool| {
            text.parse::<Quantity>().is_ok()
                && is_unit(text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.'))
        };
        if self.cpu.as_deref().is_some_and(|cpu| !is_amount(cpu, |unit| matches!(unit, "" | "m"))) {
            return Err(InvalidTarget::setting(
                "template.cpu",
                "must be a number of processors, such as 500m, 0.5 or 2.",
            ));
        }
        // Kubernetes reads 512m as half a byte.
        if self.memory.as_deref().is_some_and(|memory| !is_amount(memory, |unit| unit != "m")) {
            return Err(InvalidTarget::setting("template.memory", "must be an amount such as 512Mi or 2Gi."));
        }
        Ok(())
    }
}

impl Workload {
    /// The settings that name the workload.
    pub fn settings(&self) -> Settings {
        match serde_json::to_value(self) {
            Ok(Value::Object(settings)) => settings,
            Ok(_) | Err(_) => Settings::new(),
        }
    }
}

/// The settings that a person gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedSettings {
    pub(crate) kind: WorkloadKind,
    pub(crate) name: Option<String>,
    pub(crate) containers: Vec<String>,
    pub(crate) template: Template,
}

impl RequestedSettings {
    /// Reads of an app's settings what names its workload, and nothing else: there may be many, with large templates.
    pub(crate) fn named(settings: &Settings) -> Option<Self> {
        let names = |(name, _): &(&String, &Value)| matches!(name.as_str(), "kind" | "name");
        let named = settings.iter().filter(names).map(|(name, value)| (name.clone(), value.clone())).collect();
        Self::parse(&named).ok()
    }

    /// Reads the settings.
    ///
    /// # Errors
    /// [`InvalidTarget::Setting`], which names the setting.
    pub(crate) fn parse(settings: &Settings) -> Result<Self, InvalidTarget> {
        let mut requested = Self::default();
        for (name, value) in settings {
            match name.as_str() {
                "kind" => {
                    let text: String = InvalidTarget::read("workload.kind", value)?;
                    requested.kind = text.parse().map_err(|invalid: InvalidName| {
                        InvalidTarget::setting("workload.kind", format!("{invalid}."))
                    })?;
                }
                "name" => requested.name = InvalidTarget::read("workload.name", value)?,
                "containers" => requested.containers = InvalidTarget::read("workload.containers", value)?,
                "template" => requested.template = template(InvalidTarget::read("template", value)?)?,
                "readiness_path" | "readiness_port" => {
                    let rule = "is for Docker; the workload's readiness probe tells when its pods are ready.";
                    return Err(InvalidTarget::setting(format!("workload.{name}"), rule));
                }
                _ => return Err(unknown(&format!("workload.{name}"), "kind, name and containers")),
            }
        }
        Ok(requested)
    }
}

fn template(settings: Settings) -> Result<Template, InvalidTarget> {
    let mut template = Template::default();
    for (name, value) in &settings {
        match name.as_str() {
            "replicas" => template.replicas = InvalidTarget::read("template.replicas", value)?,
            "port" => template.port = InvalidTarget::read("template.port", value)?,
            "env" => template.env = InvalidTarget::read("template.env", value)?,
            "env_from_secrets" => template.env_from_secrets = InvalidTarget::read("template.env_from_secrets", value)?,
            "pull_secret" => template.pull_secret = InvalidTarget::read("template.pull_secret", value)?,
            "readiness_path" => template.readiness_path = InvalidTarget::read("template.readiness_path", value)?,
            "cpu" => template.cpu = InvalidTarget::read("template.cpu", value)?,
            "memory" => template.memory = InvalidTarget::read("template.memory", value)?,
            "pod_security" => {
                template.pod_security = InvalidTarget::read("template.pod_security", value)
                    .map_err(|_| InvalidTarget::setting("template.pod_security", "must be restricted or baseline."))?;
            }
            "command" => {
                let rule = "is for Docker; make the workloads that run other commands than their image's yourself.";
                return Err(InvalidTarget::setting("template.command", rule));
            }
            _ => {
                let known =
                    "replicas, port, env, env_from_secrets, pull_secret, readiness_path, cpu, memory and pod_security";
                return Err(unknown(&format!("template.{name}"), known));
            }
        }
    }
    Ok(template)
}

fn unknown(name: &str, known: &str) -> InvalidTarget {
    InvalidTarget::setting(name, format!("is not a setting of a Kubernetes workload; there are {known}."))
}

/// The workload of an app: what a driver remembers of one is of no other workload of the same app.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TargetKey {
    pub(crate) app: AppUid,
    kind: WorkloadKind,
    name: String,
}

/// A [`RolloutSpec`] with the settings of its target as a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rollout {
    pub(crate) app: AppId,
    pub(crate) id: DeployId,
    pub(crate) workload: Workload,
    pub(crate) take_over: Option<AppUid>,
    pub(crate) image: ImageRef,
    pub(crate) adopted: bool,
    pub(crate) purpose: Purpose,
    pub(crate) scale: Scale,
    pub(crate) is_made_stopped: bool,
    pub(crate) configuration: Option<ConfigurationId>,
    pub(crate) cause: String,
}

impl Rollout {
    /// The app and its workload.
    pub(crate) fn key(&self) -> TargetKey {
        TargetKey { app: self.id.app, kind: self.workload.kind, name: self.workload.name.clone() }
    }

    /// The namespace of the app and its workload.
    pub(crate) fn namespace(&self) -> &str {
        self.app.namespace.as_str()
    }

    /// Reads the target's settings.
    ///
    /// # Errors
    /// `Corrupt` if another driver wrote them.
    pub(crate) fn of(spec: &RolloutSpec) -> Result<Self> {
        let workload = Workload::deserialize(&spec.target.settings).map_err(|error| {
            Error::corrupt(format!("the target of app {} is not a Kubernetes workload", spec.app), error)
        })?;
        Ok(Self {
            app: spec.app.clone(),
            id: spec.id,
            workload,
            take_over: spec.target.take_over,
            image: spec.image.clone(),
            adopted: spec.adopted,
            purpose: spec.purpose,
            scale: spec.scale,
            is_made_stopped: spec.is_made_stopped(),
            configuration: spec.configuration.as_ref().map(|configuration| configuration.id),
            cause: spec.cause.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(value: Value) -> Settings {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn missing_settings_have_defaults() {
        let requested = RequestedSettings::parse(&Settings::new()).unwrap();
        assert_eq!(requested, RequestedSettings::default());
        assert_eq!((requested.kind, requested.template.replicas), (WorkloadKind::Deployment, 1));
        let all = json!({
            "kind": "statefulset", "name": "db", "containers": ["a", "b"],
            "template": {"replicas": 3, "port": 80, "env": {"A": "1"}, "pull_secret": "s", "readiness_path": "/"},
        });
        let requested = RequestedSettings::parse(&settings(all)).unwrap();
        assert_eq!((requested.kind, requested.name.as_deref()), (WorkloadKind::StatefulSet, Some("db")));
        assert_eq!(requested.containers, ["a", "b"]);
        assert_eq!((requested.template.replicas, requested.template.env["A"].as_str()), (3, "1"));
    }

    #[test]
    fn invalid_setting_is_named() {
        let cases = [
            (
                json!({"kind": "Pod"}),
                "workload.kind",
                "workload kind \"Pod\": must be Deployment, StatefulSet, DaemonSet or CronJob.",
            ),
            (json!({"kind": 7}), "workload.kind", "must be a string."),
            (
                json!({"image": "a:b"}),
                "workload.image",
                "is not a setting of a Kubernetes workload; there are kind, name and containers.",
            ),
            (json!({"containers": "app"}), "workload.containers", "must be a list."),
            (json!({"template": {"replicas": -1}}), "template.replicas", "must be a whole number."),
            (json!({"template": {"env": {"A": {"hunter2": 1}}}}), "template.env", "must be a string."),
            (json!({"template": {"env_from_secrets": "api"}}), "template.env_from_secrets", "must be a list."),
            (json!({"template": {"pull_secret": 7}}), "template.pull_secret", "must be a string."),
            (json!({"template": "hunter2, expected hunter2"}), "template", "must be a map."),
            (json!({"template": {"volumes": []}}), "template.volumes", "is not a setting of a Kubernetes workload"),
        ];
        for (given, name, rule) in cases {
            let invalid = RequestedSettings::parse(&settings(given.clone())).unwrap_err();
            let InvalidTarget::Setting { name: found, rule: why } = invalid else { panic!("{invalid:?}") };
            assert_eq!(found, name, "{given}");
            assert!(why.starts_with(rule) && why.ends_with('.') && !why.contains("hunter2"), "{given}: {why}");
        }
    }

    #[test]
    fn settings_are_read_as_they_were_stored() {
        let workload = Workload {
            kind: WorkloadKind::CronJob,
            name: "nightly".to_owned(),
            containers: vec!["app".to_owned()],
            template: None,
        };
        assert_eq!(
            Value::Object(workload.settings()),
            json!({"kind": "CronJob", "name": "nightly", "containers": ["app"]})
        );
        assert_eq!(Workload::deserialize(&workload.settings()).unwrap(), workload);
        let created = Workload { template: Some(Template { port: Some(80), ..Template::default() }), ..workload };
        assert_eq!(Workload::deserialize(&created.settings()).unwrap(), created);
    }

    #[test]
    fn target_of_another_driver_is_corrupt() {
        let mut spec = crate::rules::samples::spec(1);
        spec.target.settings = settings(json!({"directory": "/srv/api"}));
        let error = Rollout::of(&spec).unwrap_err();
        assert!(error.to_string().contains("shop-test/api is not a Kubernetes workload"), "{error}");
    }
}
