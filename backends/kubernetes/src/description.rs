//! The settings of a workload that people may give when they register an app.

use rollhook_core::ports::{
    SettingValue::{Number, Pairs, Text, Texts, Word},
    TargetDescription, TargetSetting,
};

use crate::workload::PodSecurity;

/// The settings that [`workload`](crate::workload) reads, for people.
pub(crate) const DESCRIPTION: TargetDescription = TargetDescription {
    platform: "cluster",
    instances: "pods",
    kinds: &[
        ("Deployment", "Deployment"),
        ("StatefulSet", "StatefulSet"),
        ("DaemonSet", "DaemonSet"),
        ("CronJob", "CronJob"),
    ],
    settings: &[
        TargetSetting { name: "name", label: "Name of the workload", help: "By default the app's.", value: Text },
        TargetSetting {
            name: "containers",
            label: "Containers",
            help: "A line each; by default the one named like the app, or the only one.",
            value: Texts,
        },
        TargetSetting { name: "template.replicas", label: "Pods", help: "1 by default.", value: Number },
        TargetSetting { name: "template.port", label: "Port", help: "With one, a Service is made too.", value: Number },
        TargetSetting {
            name: "template.readiness_path",
            label: "Readiness path",
            help: "Path of the HTTP readiness probe on the port, such as /healthz.",
            value: Text,
        },
        TargetSetting {
            name: "template.env",
            label: "Environment variables",
            help: "NAME=VALUE, a line each; stored as plain text, and shown by their names.",
            value: Pairs,
        },
        TargetSetting {
            name: "template.env_from_secrets",
            label: "Environment from Secrets",
            help: "Names of Secrets whose entries become environment variables, a line each.",
            value: Texts,
        },
        TargetSetting {
            name: "template.pull_secret",
            label: "Pull secret",
            help: "Name of the Secret that the image is pulled with.",
            value: Text,
        },
        TargetSetting {
            name: "template.cpu",
            label: "Processor time",
            help: "Reserved for each pod, such as 500m.",
            value: Text,
        },
        TargetSetting {
            name: "template.memory",
            label: "Memory",
            help: "Reserved for each pod, and what it may use at most, such as 512Mi.",
            value: Text,
        },
        TargetSetting {
            name: "template.pod_security",
            label: "Pod Security",
            help: "The profile that the pods pass; baseline for an image that has to be root.",
            value: Word(PodSecurity::WORDS),
        },
    ],
    steering_variables: &[],
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rollhook_core::app::Settings;
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::{RequestedSettings, Template};

    #[test]
    fn settings_and_kinds_are_those_that_the_driver_reads() {
        let (mut settings, mut template) = (Settings::new(), Settings::new());
        for setting in DESCRIPTION.settings {
            let value = match setting.value {
                Text => json!("a"),
                Number => json!(1),
                Texts => json!(["a"]),
                Pairs => json!({ "a": "b" }),
                Word(words) => json!(words[0]),
            };
            match setting.in_template() {
                Some(name) => template.insert(name.to_owned(), value),
                None => settings.insert(setting.name.to_owned(), value),
            };
        }
        let every = serde_json::to_value(Template::default()).unwrap();
        let every: BTreeSet<&String> = every.as_object().unwrap().keys().collect();
        assert_eq!(template.keys().collect::<BTreeSet<_>>(), every, "none is left out");
        settings.insert("template".to_owned(), Value::Object(template));
        assert!(RequestedSettings::parse(&settings).is_ok(), "{settings:?}");
        for (kind, _) in DESCRIPTION.kinds {
            let one = Settings::from_iter([("kind".to_owned(), json!(kind))]);
            assert!(RequestedSettings::parse(&one).is_ok(), "{kind}");
        }
    }
}
