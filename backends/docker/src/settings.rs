//! The settings of a target: one container or one service of a Compose project, and how to create it.
//!
//! ```json
//! {"kind": "container", "name": "web", "replace": "start-first"}
//! {"kind": "compose", "name": "shop/web", "replace": "stop-first"}
//! ```
//!
//! With `readiness_path` and `readiness_port`, the container is asked whether it is ready, also one that was adopted.
//!
//! A person gives any part of them; [`rules::registration`](crate::rules::registration) fills in the rest. `template`
//! is stored only if the container is to be created.

mod made_with;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid, Settings},
    configuration::Configuration,
    deploy::Scale,
    image::ImageRef,
    ports::{DeployId, InvalidTarget, Purpose, RolloutSpec},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

pub(crate) use self::made_with::MadeWith;

/// The kinds of target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A container, by its name.
    #[default]
    Container,
    /// A service of a Compose project, `project/service`.
    Compose,
}

/// The order in which a new container replaces the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replace {
    /// The new one starts beside the old one, which stops once the new one is ready.
    StartFirst,
    /// The old one stops before the new one starts: they cannot run at the same time.
    StopFirst,
}

/// The target of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// The kind of the target.
    pub kind: Kind,
    /// The container's name, or `project/service`.
    pub name: String,
    /// The order of replacement.
    pub replace: Replace,
    /// Whether a person chose that order: then settings of the configuration leave it as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace_chosen: bool,
    /// Path that answers with 2xx or 3xx once the container is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness_path: Option<String>,
    /// Port of the container that answers there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness_port: Option<u16>,
    /// How to create the container if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
}

/// A container to be created, or several of one app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Template {
    /// The port that the container listens on.
    pub port: Option<u16>,
    /// Ports of this machine that lead into the container: `8080:80` or `127.0.0.1:8080:80`; with two that versions take
    /// in turn `127.0.0.1:8081-8082:80`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<String>,
    /// Environment variables, whose values are stored as they are, and not shown.
    pub env: BTreeMap<String, String>,
    /// The same as [`Workload::readiness_path`], on `port`.
    pub readiness_path: Option<String>,
    /// The network that the container joins; it must exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Volumes and directories, `name:/path` or `/directory:/path`, both also with `:ro`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Labels, such as those that a proxy reads.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The memory that the container may use, such as `512m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The words that the container runs in place of its image's, handed to the image's entrypoint; empty: the image's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Whether it is a further container of its app, beside the one that the rest describes: no request leads to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub further: bool,
}

impl Template {
    /// Returns what there is to a container: a further one has neither the ports, nor the labels and checks that are about
    /// requests.
    fn settled(self) -> Self {
        if !self.further {
            return self;
        }
        let (port, publish, readiness_path, labels) = Default::default();
        Self { port, publish, readiness_path, labels, ..self }
    }
}

impl Workload {
    /// The container of this name, with defaults for the rest.
    pub(crate) fn named(kind: Kind, name: impl Into<String>) -> Self {
        let (readiness_path, readiness_port, template) = (None, None, None);
        let (replace, replace_chosen) = (Replace::StartFirst, false);
        Self { kind, name: name.into(), replace, replace_chosen, readiness_path, readiness_port, template }
    }

    /// The port and the path that answer once the container is ready, if it is asked.
    pub(crate) fn readiness(&self) -> Option<(u16, &str)> {
        let template = self.template.as_ref();
        let path = self.readiness_path.as_deref().or(template.and_then(|template| template.readiness_path.as_deref()));
        self.known_port().zip(path)
    }

    /// The port at which a readiness path is asked, as far as the settings say.
    pub(crate) fn known_port(&self) -> Option<u16> {
        self.readiness_port.or(self.template.as_ref().and_then(|template| template.port))
    }

    /// The settings that name the target.
    pub fn settings(&self) -> Settings {
        match serde_json::to_value(self) {
            Ok(Value::Object(settings)) => settings,
            Ok(_) | Err(_) => Settings::new(),
        }
    }

    /// The value of the label by which the target's containers are found.
    pub(crate) fn key(&self) -> String {
        self.to_string()
    }

    /// Project and service of Compose.
    pub(crate) fn service(&self) -> Option<(&str, &str)> {
        match self.kind {
            Kind::Container => None,
            Kind::Compose => self.name.split_once('/'),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Container => write!(f, "container/{}", self.name),
            Kind::Compose => write!(f, "compose/{}", self.name),
        }
    }
}

/// The settings that a person gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedSettings {
    pub(crate) kind: Option<Kind>,
    pub(crate) name: Option<String>,
    pub(crate) replace: Option<Replace>,
    /// As a registration stored it: a person gives none.
    pub(crate) replace_chosen: Option<bool>,
    pub(crate) readiness_path: Option<String>,
    pub(crate) readiness_port: Option<u16>,
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
                "kind" => requested.kind = Some(one_of("workload.kind", value, "container or compose")?),
                "name" => requested.name = InvalidTarget::read("workload.name", value)?,
                "replace" => {
                    requested.replace = Some(one_of("workload.replace", value, "start-first or stop-first")?);
                }
                "replace_chosen" => {
                    requested.replace_chosen = InvalidTarget::read("workload.replace_chosen", value)?;
                }
                "readiness_path" => {
                    requested.readiness_path = InvalidTarget::read("workload.readiness_path", value)?;
                }
                "readiness_port" => {
                    requested.readiness_port = InvalidTarget::read("workload.readiness_port", value)?;
                }
                "template" => requested.template = template(InvalidTarget::read("template", value)?)?,
                _ => {
                    let known = "kind, name, replace, readiness_path and readiness_port";
                    return Err(unknown(&format!("workload.{name}"), known));
                }
            }
        }
        Ok(requested)
    }
}

fn template(settings: Settings) -> Result<Template, InvalidTarget> {
    let mut template = Template::default();
    for (name, value) in &settings {
        let full = format!("template.{name}");
        match name.as_str() {
            "port" => template.port = InvalidTarget::read(&full, value)?,
            "publish" => template.publish = InvalidTarget::read(&full, value)?,
            "env" => template.env = InvalidTarget::read(&full, value)?,
            "readiness_path" => template.readiness_path = InvalidTarget::read(&full, value)?,
            "network" => template.network = InvalidTarget::read(&full, value)?,
            "volumes" => template.volumes = InvalidTarget::read(&full, value)?,
            "labels" => template.labels = InvalidTarget::read(&full, value)?,
            "memory" => template.memory = InvalidTarget::read(&full, value)?,
            "command" => template.command = InvalidTarget::read(&full, value)?,
            "further" => template.further = InvalidTarget::read(&full, value)?,
            "replicas" => {
                if InvalidTarget::read::<u32>(&full, value)? != 1 {
                    return Err(InvalidTarget::setting(&full, "must be 1: an app is one container of this machine."));
                }
            }
            "env_from_secrets" => {
                return Err(InvalidTarget::setting(
                    &full,
                    "is for Kubernetes; use env, or create the container yourself.",
                ));
            }
            "pull_secret" => {
                return Err(InvalidTarget::setting(
                    &full,
                    "is for Kubernetes; images are pulled with the server's logins.",
                ));
            }
            _ => {
                let known = "port, publish, env, readiness_path, network, volumes, labels, memory and command";
                return Err(unknown(&full, known));
            }
        }
    }
    Ok(template.settled())
}

pub(crate) fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

fn one_of<T: DeserializeOwned>(name: &str, value: &Value, words: &str) -> Result<T, InvalidTarget> {
    T::deserialize(value).map_err(|_| InvalidTarget::setting(name, format!("must be {words}.")))
}

fn unknown(name: &str, known: &str) -> InvalidTarget {
    InvalidTarget::setting(name, format!("is not a setting of a container; there are {known}."))
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
    pub(crate) settle: Duration,
    pub(crate) purpose: Purpose,
    pub(crate) scale: Scale,
    /// Whether the deploy leaves no container running: as far as the app's state says, until the
    /// [target decides](crate::rules::rest::resting).
    pub(crate) rests: bool,
    /// The variables to set in the environment.
    pub(crate) configuration: Option<Arc<Configuration>>,
    /// What the configuration says that the container is made with.
    pub(crate) made_with: MadeWith,
}

impl Rollout {
    /// Reads the target's settings.
    ///
    /// # Errors
    /// `Corrupt` if another driver wrote them.
    pub(crate) fn of(spec: &RolloutSpec) -> Result<Self> {
        let mut workload = Workload::deserialize(&spec.target.settings)
            .map_err(|error| Error::corrupt(format!("the target of app {} is not a container", spec.app), error))?;
        workload.template = workload.template.map(Template::settled);
        let made_with = match &spec.configuration {
            Some(configuration) => MadeWith::of_stored(&configuration.variables.settings, &workload)?,
            None => MadeWith::default(),
        };
        Ok(Self {
            app: spec.app.clone(),
            id: spec.id,
            workload,
            take_over: spec.target.take_over,
            image: spec.image.clone().or_latest(),
            adopted: spec.adopted,
            settle: spec.settle,
            purpose: spec.purpose,
            scale: spec.scale,
            rests: spec.is_made_stopped(),
            configuration: spec.configuration.clone().map(Arc::new),
            made_with,
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
    fn invalid_setting_is_named() {
        let cases = [
            (json!({"kind": "Deployment"}), "workload.kind", "must be container or compose."),
            (json!({"replace": true}), "workload.replace", "must be start-first or stop-first."),
            (json!({"containers": ["a"]}), "workload.containers", "is not a setting of a container"),
            (json!({"template": {"replicas": 2}}), "template.replicas", "must be 1"),
            (json!({"template": {"env": {"A": {"hunter2": 1}}}}), "template.env", "must be a string."),
            (json!({"template": {"pull_secret": "s"}}), "template.pull_secret", "is for Kubernetes"),
            (json!({"template": {"command": "bin/jobs"}}), "template.command", "must be a list."),
        ];
        for (given, name, rule) in cases {
            let invalid = RequestedSettings::parse(&settings(given.clone())).unwrap_err();
            let InvalidTarget::Setting { name: found, rule: why } = invalid else { panic!("{invalid:?}") };
            assert_eq!(found, name, "{given}");
            assert!(why.starts_with(rule) && why.ends_with('.') && !why.contains("hunter2"), "{given}: {why}");
        }
    }

    #[test]
    fn no_request_leads_to_a_further_container() {
        let all = json!({
            "port": 80, "publish": ["8080:80"], "readiness_path": "/", "labels": {"caddy": "web.example.com"},
            "env": {"MODE": "live"}, "network": "shop", "volumes": ["data:/data"], "memory": "1g", "replicas": 1,
            "command": ["bin/jobs"], "further": true,
        });
        let read = RequestedSettings::parse(&settings(json!({ "template": all }))).unwrap().template;
        let kept = Template {
            env: [("MODE".to_owned(), "live".to_owned())].into(),
            network: Some("shop".to_owned()),
            volumes: vec!["data:/data".to_owned()],
            memory: Some("1g".to_owned()),
            command: vec!["bin/jobs".to_owned()],
            further: true,
            ..Template::default()
        };
        assert_eq!(read, kept);
    }

    #[test]
    fn settings_are_read_as_they_were_stored() {
        let template = Template { port: Some(80), publish: vec!["8080:80".to_owned()], ..Template::default() };
        for (kind, name, template) in [(Kind::Compose, "shop/web", None), (Kind::Container, "web", Some(template))] {
            let workload = Workload { replace: Replace::StopFirst, template, ..Workload::named(kind, name) };
            assert_eq!(Workload::deserialize(&workload.settings()).unwrap(), workload);
        }
    }
}
