//! The settings of a container that people may give when they register an app.

use rollhook_core::ports::{
    SettingValue::{Number, Pairs, Text, Texts, Word},
    TargetDescription, TargetSetting,
};

/// The settings that [`settings`](crate::settings) reads, for people.
pub(crate) const DESCRIPTION: TargetDescription = TargetDescription {
    platform: "machine",
    instances: "containers",
    kinds: &[
        ("", "Container, or service of Compose, of this name"),
        ("container", "Container"),
        ("compose", "Service of Compose"),
    ],
    settings: &[
        TargetSetting {
            name: "name",
            label: "Name of the container",
            help: "By default the app's; of a service PROJECT/SERVICE.",
            value: Text,
        },
        TargetSetting {
            name: "replace",
            label: "Replacement",
            help: "Whether a new container starts beside the old one, or after it stopped; by default beside it, unless a \
                   fixed port, an address or a writable volume belongs to one container at a time.",
            value: Word(&["start-first", "stop-first"]),
        },
        TargetSetting {
            name: "readiness_path",
            label: "Readiness path",
            help: "Answers with 2xx or 3xx once the container is ready, such as /healthz.",
            value: Text,
        },
        TargetSetting {
            name: "readiness_port",
            label: "Readiness port",
            help: "Of the container; by default the port below, or the only one that it exposes.",
            value: Number,
        },
        TargetSetting {
            name: "template.network",
            label: "Network",
            help: "A network of Docker that exists, such as the one of the proxy.",
            value: Text,
        },
        TargetSetting { name: "template.port", label: "Port", help: "The container listens on it.", value: Number },
        TargetSetting {
            name: "template.env",
            label: "Environment variables",
            help: "NAME=VALUE, a line each; stored with the app as plain text.",
            value: Pairs,
        },
        TargetSetting {
            name: "template.command",
            label: "Command",
            help: "What the container runs in place of its image's command, a word a line.",
            value: Texts,
        },
        TargetSetting {
            name: "template.memory",
            label: "Memory",
            help: "The most that the container may use, such as 512m.",
            value: Text,
        },
        TargetSetting {
            name: "template.volumes",
            label: "Volumes and directories",
            help: "A line each, such as data:/var/lib/app or /srv/site:/site:ro.",
            value: Texts,
        },
        TargetSetting {
            name: "template.publish",
            label: "Published ports",
            help: "Ports of the machine that lead into the container, a line each, such as 127.0.0.1:8080:80; two that \
                   versions take in turn need no gap, such as 127.0.0.1:8081-8082:80.",
            value: Texts,
        },
        TargetSetting {
            name: "template.labels",
            label: "Labels",
            help: "NAME=VALUE, a line each, such as those that a proxy reads.",
            value: Pairs,
        },
    ],
    steering_variables: &STEERING_VARIABLES,
};

/// The beginnings of variables by which nginx-proxy, acme-companion and Registrator lead requests to containers. Others of
/// such names are an app's own, such as `VIRTUAL_ENV` of Python and `SERVICE_URL`.
const STEERING_VARIABLES: [&str; 21] = [
    "VIRTUAL_HOST",
    "VIRTUAL_PORT",
    "VIRTUAL_PATH",
    "VIRTUAL_DEST",
    "VIRTUAL_PROTO",
    "VIRTUAL_ROOT",
    "LETSENCRYPT_",
    "ACME_",
    "SERVICE_NAME",
    "SERVICE_ID",
    "SERVICE_TAGS",
    "SERVICE_CHECK_",
    // Registrator's of one port, such as `SERVICE_80_NAME`.
    "SERVICE_1",
    "SERVICE_2",
    "SERVICE_3",
    "SERVICE_4",
    "SERVICE_5",
    "SERVICE_6",
    "SERVICE_7",
    "SERVICE_8",
    "SERVICE_9",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rollhook_core::app::Settings;
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::{RequestedSettings, Template};

    #[test]
    fn settings_and_kinds_are_those_that_the_driver_reads() {
        let (mut settings, mut template) = (Settings::new(), Settings::new());
        for setting in DESCRIPTION.settings {
            let value = match setting.value {
                Text => json!("a"),
                Number => json!(1),
                Texts => json!(["a"]),
                Pairs => json!({ "a": "b" }),
                Word(words) => {
                    for word in words {
                        let one = Settings::from_iter([(setting.name.to_owned(), json!(word))]);
                        assert!(RequestedSettings::parse(&one).is_ok(), "{word}");
                    }
                    json!(words[0])
                }
            };
            match setting.in_template() {
                Some(name) => template.insert(name.to_owned(), value),
                None => settings.insert(setting.name.to_owned(), value),
            };
        }
        let names: BTreeSet<&String> = template.keys().collect();
        let every = Template {
            network: Some(String::new()),
            memory: Some(String::new()),
            publish: vec![String::new()],
            volumes: vec![String::new()],
            labels: [(String::new(), String::new())].into(),
            command: vec![String::new()],
            ..Template::default()
        };
        let mut every = serde_json::to_value(every).unwrap();
        // It is a setting of all targets.
        every.as_object_mut().unwrap().remove("readiness_path");
        assert_eq!(names, every.as_object().unwrap().keys().collect(), "none is left out");
        settings.insert("template".to_owned(), Value::Object(template));
        assert!(RequestedSettings::parse(&settings).is_ok(), "{settings:?}");
        for (kind, _) in DESCRIPTION.kinds.iter().filter(|(kind, _)| !kind.is_empty()) {
            let one = Settings::from_iter([("kind".to_owned(), json!(kind))]);
            assert!(RequestedSettings::parse(&one).is_ok(), "{kind}");
        }
    }
}
