//! What an app's configuration says that its containers are made with.

use std::collections::BTreeMap;

use rollhook_core::{Error, Result, app::Settings, ports::InvalidTarget};
use serde::{Deserialize, Serialize};

use super::{Replace, Template, Workload};
use crate::rules::{creation, made_with, volumes::clean};

/// The most published ports, and volumes.
const SEVERAL_MAX: usize = 64;

/// Settings that take the place of what others made the container with; `None`: that stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MadeWith {
    /// The memory that the container may use, such as `512m`; empty: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<String>,
    /// The processor time that the container may use, such as `1.5` or `500m`; empty: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<String>,
    /// All ports of the machine that lead into the container, as in a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) publish: Option<Vec<String>>,
    /// Volumes and directories, as in a template, each in place of what is mounted there; `:/PLACE` mounts nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) volumes: Option<Vec<String>>,
    /// The network that the container is made on; empty: the engine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<String>,
    /// Labels, each in place of one of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels: Option<BTreeMap<String, String>>,
    /// The words that containers run in place of their image's, by the containers' names.
    #[serde(skip_serializing_if = "Option::is_none")]
    commands: Option<BTreeMap<String, Vec<String>>>,
    /// Path that answers with 2xx or 3xx once the container is ready; empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) readiness_path: Option<String>,
    /// Port of the container that answers there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) readiness_port: Option<u16>,
}

impl MadeWith {
    /// Reads settings that were checked before they were stored, as far as they are for this container. One that no deploy has made
    /// has a command of its own.
    ///
    /// # Errors
    /// `Corrupt` if another driver wrote them.
    pub(super) fn of_stored(settings: &Settings, workload: &Workload) -> Result<Self> {
        let mut read = Self::deserialize(settings)
            .map_err(|error| Error::corrupt("the settings of a configuration are no container's", error))?;
        let own = read.commands.take().and_then(|mut commands| commands.remove_entry(&workload.name));
        read.commands = own.filter(|_| workload.template.is_some()).map(|own| BTreeMap::from([own]));
        Ok(read)
    }

    /// The words that the container runs in place of its image's.
    pub(crate) fn command(&self) -> Option<&[String]> {
        self.commands.as_ref()?.values().next().map(Vec::as_slice)
    }

    /// Reads and checks settings that a person gave.
    ///
    /// # Errors
    /// [`InvalidTarget::Setting`], which names the setting.
    pub(crate) fn parse(settings: &Settings) -> Result<Self, InvalidTarget> {
        let mut read = Self::default();
        for (name, value) in settings {
            let full = format!("settings.{name}");
            match name.as_str() {
                "memory" => read.memory = InvalidTarget::read(&full, value)?,
                "cpu" => read.cpu = InvalidTarget::read(&full, value)?,
                "publish" => read.publish = InvalidTarget::read(&full, value)?,
                "volumes" => read.volumes = InvalidTarget::read(&full, value)?,
                "network" => read.network = InvalidTarget::read(&full, value)?,
                "labels" => read.labels = InvalidTarget::read(&full, value)?,
                "commands" => read.commands = InvalidTarget::read(&full, value)?,
                "readiness_path" => read.readiness_path = InvalidTarget::read(&full, value)?,
                "readiness_port" => read.readiness_port = InvalidTarget::read(&full, value)?,
                _ => {
                    let known =
                        "memory, cpu, publish, volumes, network, labels, commands, readiness_path and readiness_port";
                    return Err(super::unknown(&full, known));
                }
            }
        }
        read.check()?;
        Ok(read)
    }

    fn check(&self) -> Result<(), InvalidTarget> {
        let invalid = |name: &str, rule: &str| Err(InvalidTarget::setting(format!("settings.{name}"), rule));
        creation::check(&self.template()).map_err(|invalid| {
            let InvalidTarget::Setting { name, rule } = invalid else { return invalid };
            InvalidTarget::setting(name.replacen("template.", "settings.", 1), rule)
        })?;
        if self.cpu.as_ref().is_some_and(|text| !text.is_empty() && made_with::nano_cpus(text).is_none()) {
            return invalid("cpu", "must be processor time such as 1.5 or 500m, at least 10m.");
        }
        let emptied = self.volumes.iter().flatten().filter_map(|text| text.strip_prefix(':'));
        if emptied.into_iter().any(|place| !place.starts_with('/') || place.contains(':')) {
            return invalid("volumes", "must be NAME:/PATH, /DIRECTORY:/PATH, or :/PATH to mount nothing there.");
        }
        let mut places: Vec<String> = self.places().map(clean).collect();
        places.sort_unstable();
        if places.windows(2).any(|two| two[0] == two[1]) || places.iter().any(|place| place == "/") {
            return invalid("volumes", "must be at different places, below the root directory.");
        }
        let is_network = |name: &String| {
            let mut bytes = name.bytes();
            bytes.next().is_none_or(|first| first.is_ascii_alphanumeric())
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
        };
        if !self.network.as_ref().is_none_or(is_network) {
            return invalid("network", "must be the name of a network, or empty for the engine's own.");
        }
        let is_kept = |name: &&String| {
            name.is_empty() || ["dev.rollhook.", "com.docker."].iter().any(|start| name.starts_with(start))
        };
        if self.labels.iter().flat_map(BTreeMap::keys).any(|name| is_kept(&name)) {
            return invalid("labels", "must have names, and none that begins with dev.rollhook. or com.docker.");
        }
        for words in self.commands.iter().flat_map(BTreeMap::values) {
            if words.is_empty() || !creation::is_command(words) {
                return invalid(
                    "commands",
                    "must have for each container 1 to 64 words with 4 KiB in all, of which the first is not empty, without NUL \
                     characters.",
                );
            }
        }
        let counts = [self.publish.as_ref().map(Vec::len), self.volumes.as_ref().map(Vec::len)];
        for (name, count) in ["publish", "volumes"].into_iter().zip(counts) {
            if count.is_some_and(|count| count > SEVERAL_MAX) {
                return invalid(name, "must be at most 64.");
            }
        }
        let is_path = |path: &String| path.is_empty() || super::is_path(path);
        if !self.readiness_path.as_ref().is_none_or(is_path) {
            return invalid("readiness_path", "must be a path that begins with a slash, or empty for none.");
        }
        if self.readiness_port == Some(0) {
            return invalid("readiness_port", "must be a port from 1 to 65535.");
        }
        Ok(())
    }

    /// The settings that a container which is made for the first time could have as well.
    fn template(&self) -> Template {
        let memory = self.memory.clone().filter(|text| !text.is_empty());
        let volumes = self.volumes.iter().flatten().filter(|text| !text.starts_with(':')).cloned().collect();
        Template { memory, volumes, publish: self.publish.clone().unwrap_or_default(), ..Template::default() }
    }

    /// The name of the network that the container is made on.
    pub(crate) fn network(&self) -> Option<&str> {
        self.network.as_deref().map(|name| if name.is_empty() { "bridge" } else { name })
    }

    /// The places of the volumes.
    pub(crate) fn places(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().flatten().filter_map(|text| creation::place(text))
    }

    /// The order of replacement. `writes` says whether the container to be started may write to a volume.
    ///
    /// An order that a person chose stays. Else a volume to write to makes the old container stop first, and ports that versions
    /// take in turn are published so that both run, unless there is such a volume.
    pub(crate) fn replace(&self, workload: &Workload, writes: impl Fn() -> bool) -> Replace {
        if workload.replace_chosen {
            return workload.replace;
        }
        let template = self.template();
        if creation::writes_to(&template).is_some() {
            return Replace::StopFirst;
        }
        let is_in_turn = creation::in_turn(&template).next().is_some();
        if is_in_turn && !writes() { Replace::StartFirst } else { workload.replace }
    }

    /// Returns why the settings are not for this container: they need another order of replacement than a person chose, or have
    /// a command for another one, or for one that no deploy has made. `None` if they are.
    pub(crate) fn contradiction(&self, workload: &Workload) -> Option<InvalidTarget> {
        if let Some(name) = self.commands.iter().flat_map(BTreeMap::keys).find(|name| **name != workload.name) {
            let name: String = name.chars().take(64).collect();
            let rule =
                format!("must name containers of the app, and {name:?} is none of them; there is {}.", workload.name);
            return Some(InvalidTarget::setting("settings.commands", rule));
        }
        if self.command().is_some() && workload.template.is_none() {
            let rule = format!(
                "must name containers that the app's deploys have made, and {workload} existed before: it keeps its own command."
            );
            return Some(InvalidTarget::setting("settings.commands", rule));
        }
        let is_start_first = workload.replace_chosen && workload.replace == Replace::StartFirst;
        let why = creation::sole(&self.template()).filter(|_| is_start_first)?;
        let rule = format!(
            "cannot be set for an app that was registered to be replaced start-first: {why}. Use two ports that versions take in turn, such as \
             127.0.0.1:8081-8082:80."
        );
        Some(InvalidTarget::setting("settings.publish", rule))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(settings: Value) -> Result<MadeWith, InvalidTarget> {
        MadeWith::parse(settings.as_object().unwrap())
    }

    fn web(template: Option<Template>) -> Workload {
        Workload { template, ..Workload::named(crate::settings::Kind::Container, "web") }
    }

    #[test]
    fn invalid_setting_is_named_without_its_value() {
        for (settings, name) in [
            (json!({"hunter2": 1}), "settings.hunter2"),
            (json!({"memory": "1t"}), "settings.memory"),
            (json!({"memory": 7}), "settings.memory"),
            (json!({"cpu": "many"}), "settings.cpu"),
            (json!({"publish": ["80"]}), "settings.publish"),
            (json!({"publish": vec!["80:80"; 65]}), "settings.publish"),
            (json!({"volumes": ["data"]}), "settings.volumes"),
            (json!({"volumes": [":data"]}), "settings.volumes"),
            (json!({"volumes": [":/data:ro"]}), "settings.volumes"),
            (json!({"volumes": ["a:/data", "b:/srv/../data/"]}), "settings.volumes"),
            (json!({"volumes": ["a:/srv/.."]}), "settings.volumes"),
            (json!({"network": "container:web"}), "settings.network"),
            (json!({"labels": {"": ""}}), "settings.labels"),
            (json!({"labels": {"dev.rollhook.deploy": ""}}), "settings.labels"),
            (json!({"labels": {"com.docker.compose.project": "shop"}}), "settings.labels"),
            (json!({"readiness_path": "up"}), "settings.readiness_path"),
            (json!({"readiness_port": 0}), "settings.readiness_port"),
            (json!({"commands": ["bin/jobs"]}), "settings.commands"),
            (json!({"commands": {"web": "bin/jobs"}}), "settings.commands"),
            (json!({"commands": {"web": []}}), "settings.commands"),
            (json!({"commands": {"web": [" "]}}), "settings.commands"),
            (json!({"commands": {"web": ["a".repeat(5000)]}}), "settings.commands"),
        ] {
            let Err(InvalidTarget::Setting { name: found, .. }) = parse(settings.clone()) else { panic!("{settings}") };
            assert_eq!(found, name, "{settings}");
        }
        let empty = json!({"memory": "", "cpu": "", "publish": [], "volumes": [], "network": "", "readiness_path": ""});
        assert!(parse(empty).is_ok());
    }

    #[test]
    fn stored_settings_are_read_as_they_were_given() {
        let settings = json!({"memory": "1g", "volumes": [":/data"], "labels": {"a": "b"}, "readiness_port": 80});
        let read = MadeWith::of_stored(settings.as_object().unwrap(), &web(None)).unwrap();
        assert_eq!((serde_json::to_value(&read).unwrap(), Ok(read)), (settings.clone(), parse(settings)));
    }

    #[test]
    fn command_is_for_the_container_of_its_name_that_was_made() {
        let made = || web(Some(Template::default()));
        let settings = json!({"commands": {"web": ["serve"], "worker": ["bin/jobs"]}});
        let read = |workload| MadeWith::of_stored(settings.as_object().unwrap(), &workload).unwrap();
        assert_eq!(read(made()).command().unwrap(), ["serve"]);
        assert_eq!(read(web(None)), MadeWith::default(), "it has its own");
        let why = |settings, workload: Workload| {
            let Some(InvalidTarget::Setting { rule, .. }) = parse(settings).unwrap().contradiction(&workload) else {
                panic!("{workload}")
            };
            rule
        };
        assert!(why(settings.clone(), made()).contains("\"worker\" is none of them; there is web"));
        let own = json!({"commands": {"web": ["serve"]}});
        assert!(parse(own.clone()).unwrap().contradiction(&made()).is_none());
        assert!(why(own, web(None)).contains("container/web existed before"));
    }

    #[test]
    fn order_is_decided_by_the_settings() {
        let workload = |replace, replace_chosen| Workload {
            replace,
            replace_chosen,
            ..Workload::named(crate::settings::Kind::Container, "web")
        };
        let order = |settings, replace, writes| parse(settings).unwrap().replace(&workload(replace, false), || writes);
        let (first, last) = (Replace::StartFirst, Replace::StopFirst);
        assert_eq!(order(json!({"memory": "1g"}), last, false), last);
        assert_eq!(order(json!({"memory": "1g"}), first, true), first, "as the app was registered");
        assert_eq!(order(json!({"volumes": ["data:/data"]}), first, false), last);
        assert_eq!(order(json!({"volumes": ["data:/data:ro", ":/srv"]}), first, false), first);
        let in_turn = json!({"publish": ["127.0.0.1:8081-8082:80"]});
        assert_eq!([false, true].map(|writes| order(in_turn.clone(), last, writes)), [first, last]);
        // What a person chose stays, or the settings are refused.
        let chosen = |settings, replace| parse(settings).unwrap().replace(&workload(replace, true), || false);
        assert_eq!(chosen(json!({"volumes": ["data:/data"]}), first), first);
        assert_eq!(chosen(in_turn.clone(), last), last);
        let refused = |settings, chosen| parse(settings).unwrap().contradiction(&workload(first, chosen)).is_some();
        let fixed = json!({"publish": ["8080:80"]});
        assert_eq!([refused(fixed.clone(), true), refused(fixed, false), refused(in_turn, true)], [true, false, false]);
    }
}
