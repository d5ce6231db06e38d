//! The Secrets and ConfigMaps of others that a workload's pods read: their versions as a deploy began, which an annotation of
//! the workload keeps, and which of them have changed since. Nothing here has a value, or is made of one.
//!
//! The annotation is written with the stamp, so that it is of the same deploy. A version is made of uid and resource version,
//! which change with the labels of an object as well: what only its values would tell is not read.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::api::ObjectMeta;
use rollhook_core::{
    app::AppId,
    ports::References,
    text::{hash_of, hex},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    configuration,
    object::{Object, REFERENCES},
};
use crate::workload::Rollout;

/// The most objects of a workload whose versions are kept.
pub(crate) const REFERENCES_MAX: usize = 50;
/// The longest name of an object.
const NAME_MAX: usize = 253;

/// An object that pods read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reference {
    pub(crate) kind: ReferenceKind,
    pub(crate) name: String,
}

/// The kind of an object that pods read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReferenceKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl ReferenceKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

impl Reference {
    fn new(kind: ReferenceKind, name: &str) -> Option<Self> {
        let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        let is_name = (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_valid);
        // The API server has no object of another name.
        is_name.then(|| Self { kind, name: name.to_owned() })
    }

    /// Kind and name for people: "ConfigMap settings".
    fn title(&self) -> String {
        format!("{} {}", self.kind.as_str(), self.name)
    }

    fn key(&self) -> String {
        format!("{}/{}", self.kind.as_str(), self.name)
    }

    fn parse(key: &str) -> Option<Self> {
        let (kind, name) = key.split_once('/')?;
        let kind = [ReferenceKind::ConfigMap, ReferenceKind::Secret].into_iter().find(|it| it.as_str() == kind)?;
        Self::new(kind, name)
    }
}

/// The version of an object, as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Version {
    /// A hash of the object's identity and version.
    Hash(String),
    /// There was no such object.
    Missing,
    /// Reading it was not permitted, or failed.
    Unknown,
}

impl Version {
    /// The version of the object with this metadata; `None`: there is none.
    pub(crate) fn of(found: Option<&ObjectMeta>) -> Self {
        let Some(found) = found else { return Self::Missing };
        match (found.uid.as_deref(), found.resource_version.as_deref()) {
            (Some(uid), Some(version)) => Self::Hash(hex(&hash_of([uid, version])[..8])),
            _ => Self::Unknown,
        }
    }

    /// Whether it has the form that this driver writes.
    fn is_whole(&self) -> bool {
        match self {
            Self::Hash(text) => text.len() == 16,
            Self::Missing | Self::Unknown => true,
        }
    }
}

/// The versions of a workload's references, as a deploy began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Noted {
    versions: BTreeMap<String, Version>,
    /// The number of further references, whose versions are not kept.
    #[serde(skip_serializing_if = "is_zero")]
    more: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The objects of others that the pods of the workload read. Those of the app's own configuration are its own.
pub(crate) fn of(object: &Object, app: &AppId) -> BTreeSet<Reference> {
    let pod = object.template().and_then(|template| template.spec.as_ref());
    let Some(pod) = pod else { return BTreeSet::new() };
    let containers = pod.init_containers.iter().flatten().chain(&pod.containers);
    containers.flat_map(|container| of_container(container, app)).chain(of_volumes(pod)).flatten().collect()
}

fn of_container<'a>(container: &'a Container, app: &'a AppId) -> impl Iterator<Item = Option<Reference>> + 'a {
    let sources = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let of_env = sources.flat_map(|source| {
        let secret = source.secret_key_ref.as_ref().map(|key| (ReferenceKind::Secret, key.name.as_str()));
        let config_map = source.config_map_key_ref.as_ref().map(|key| (ReferenceKind::ConfigMap, key.name.as_str()));
        [secret, config_map]
    });
    let others = container.env_from.iter().flatten().filter(|entry| !configuration::is_ours(entry, app));
    let of_env_from = others.flat_map(|entry| {
        let secret = entry.secret_ref.as_ref().map(|secret| (ReferenceKind::Secret, secret.name.as_str()));
        let config_map = entry.config_map_ref.as_ref().map(|map| (ReferenceKind::ConfigMap, map.name.as_str()));
        [secret, config_map]
    });
    of_env.chain(of_env_from).flatten().map(|(kind, name)| Reference::new(kind, name))
}

fn of_volumes(pod: &PodSpec) -> impl Iterator<Item = Option<Reference>> {
    let whole = pod.volumes.iter().flatten().flat_map(|volume| {
        let secret = volume.secret.as_ref().and_then(|secret| secret.secret_name.as_deref());
        let config_map = volume.config_map.as_ref().map(|map| map.name.as_str());
        [(ReferenceKind::Secret, secret), (ReferenceKind::ConfigMap, config_map)]
    });
    let projected = pod.volumes.iter().flatten().filter_map(|volume| volume.projected.as_ref());
    let parts = projected.flat_map(|volume| volume.sources.iter().flatten()).flat_map(|source| {
        let secret = source.secret.as_ref().map(|secret| secret.name.as_str());
        let config_map = source.config_map.as_ref().map(|map| map.name.as_str());
        [(ReferenceKind::Secret, secret), (ReferenceKind::ConfigMap, config_map)]
    });
    whole.chain(parts).map(|(kind, name)| Reference::new(kind, name?))
}

/// Adds to a patch of the workload the versions that its references have as the deploy begins; without references, the removal
/// of former ones. `all` is the number of references, of which versions were read.
pub(crate) fn note(patch: &mut Value, object: &Object, versions: &[(Reference, Version)], all: usize) {
    let kept = versions.iter().map(|(reference, version)| (reference.key(), version.clone())).collect();
    let noted = Noted { versions: kept, more: all.saturating_sub(versions.len()) };
    let is_noted = object.metadata().annotations.as_ref().is_some_and(|all| all.contains_key(REFERENCES));
    if noted != Noted::default() {
        patch["metadata"]["annotations"][REFERENCES] = json!(serde_json::to_string(&noted).unwrap_or_default());
    } else if is_noted {
        patch["metadata"]["annotations"][REFERENCES] = Value::Null;
    }
}

/// The longest text that notes versions: of as many as may be noted, with the longest names. What is read of it is kept.
const NOTED_BYTES_MAX: usize = 32 * 1024;

/// The versions that were noted as the rollout began. Returns none if the workload is at another deploy, and of a text that is
/// not of this form, as others may write it.
pub(crate) fn noted(object: &Object, rollout: &Rollout) -> Noted {
    let text = object.metadata().annotations.as_ref().and_then(|all| all.get(REFERENCES));
    let text = text.filter(|_| object.own_stamp().id() == Some(rollout.id));
    let text = text.filter(|text| text.len() <= NOTED_BYTES_MAX);
    let noted: Noted = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let is_whole = |key: &String, version: &Version| Reference::parse(key).is_some() && version.is_whole();
    Noted {
        versions: noted
            .versions
            .into_iter()
            .filter(|(key, version)| is_whole(key, version))
            .take(REFERENCES_MAX)
            .collect(),
        ..noted
    }
}

impl Noted {
    /// The references whose versions may be compared with those of now.
    pub(crate) fn compared(&self) -> Vec<Reference> {
        self.entries().filter(|(_, version)| **version != Version::Unknown).map(|(reference, _)| reference).collect()
    }

    fn entries(&self) -> impl Iterator<Item = (Reference, &Version)> {
        let entries = self.versions.iter().filter_map(|(key, version)| Some((Reference::parse(key)?, version)));
        entries.take(REFERENCES_MAX)
    }

    /// The changes since then; `now` are the versions of those that are compared.
    pub(crate) fn changes(&self, now: &[(Reference, Version)]) -> References {
        let mut found = References::default();
        for (reference, before) in self.entries() {
            let now = now.iter().find(|(known, _)| *known == reference).map(|(_, version)| version);
            match (before, now) {
                (Version::Unknown, _) | (_, None | Some(Version::Unknown)) => found.unknown.push(reference.title()),
                (before, Some(now)) if before != now => found.changed.push(reference.title()),
                (_, Some(_)) => {}
            }
        }
        if self.more > 0 {
            found.unknown.push(format!("{} more", self.more));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{reduced, samples};

    fn version(uid: &str, version: &str) -> Version {
        let metadata = ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        Version::of(Some(&metadata))
    }

    fn reference(key: &str) -> Reference {
        Reference::parse(key).unwrap()
    }

    /// A Deployment that reads objects of others in every way, and the app's own configuration.
    fn reading() -> Object {
        let env = json!([
            {"name": "A", "value": "b"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "b"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "flags", "key": "c"}}},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]);
        let env_from = json!([
            {"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "database"}},
            {"secretRef": {"name": "Not_A_Name"}}, {"secretRef": {"name": "api-config-0000000007000000"}},
        ]);
        let volumes = json!([
            {"name": "a", "secret": {"secretName": "tls"}}, {"name": "b", "configMap": {"name": "settings"}},
            {"name": "c", "emptyDir": {}},
            {"name": "d", "projected": {"sources": [
                {"secret": {"name": "ca"}}, {"configMap": {"name": "roots"}}, {"serviceAccountToken": {"path": "t"}},
            ]}},
        ]);
        let init = json!([{"name": "migrate", "image": "m:1", "envFrom": [{"secretRef": {"name": "first"}}]}]);
        let container =
            json!([{"name": "app", "image": "registry.example.com/api:v0", "env": env, "envFrom": env_from}]);
        let pod = json!({"initContainers": init, "containers": container, "volumes": volumes});
        samples::deployment(json!({"spec": {"template": {"spec": pod}}}))
    }

    #[test]
    fn every_way_of_reading_counts_and_the_own_configuration_does_not() {
        let app = samples::rollout(5).app;
        let found: Vec<String> = of(&reading(), &app).iter().map(Reference::key).collect();
        let config_maps = ["ConfigMap/flags", "ConfigMap/roots", "ConfigMap/settings"];
        let secrets = ["Secret/ca", "Secret/database", "Secret/first", "Secret/keys", "Secret/tls"];
        assert_eq!(found, [&config_maps[..], &secrets[..]].concat());
        assert!(of(&samples::deployment(json!({})), &app).is_empty());
    }

    /// The workload at this rollout with what the patch notes.
    fn noting(versions: &[(Reference, Version)], all: usize) -> Object {
        let rollout = samples::rollout(5);
        let mut patch = json!({"metadata": {"annotations": {}}});
        note(&mut patch, &reading(), versions, all);
        let object = samples::stamped(samples::deployment(patch), &rollout);
        reduced::workload(object, &rollout)
    }

    #[test]
    fn later_change_and_what_is_not_known_are_told_apart() {
        let keys = ["ConfigMap/settings", "Secret/gone", "Secret/later", "Secret/locked", "Secret/same"].map(reference);
        let [settings, gone, later, locked, same] = keys;
        let before = [
            (settings.clone(), version("u-1", "7")),
            (gone.clone(), version("u-2", "7")),
            (later.clone(), Version::Missing),
            (locked.clone(), Version::Unknown),
            (same.clone(), version("u-3", "7")),
        ];
        let rollout = samples::rollout(5);
        let noted = super::noted(&noting(&before, 7), &rollout);
        let compared = [&settings, &gone, &later, &same].map(Clone::clone);
        assert_eq!(noted.compared(), compared);
        let now = [
            (settings, version("u-1", "8")),
            (gone, Version::Missing),
            (later, version("u-9", "7")),
            (same.clone(), version("u-3", "7")),
        ];
        let found = noted.changes(&now);
        assert_eq!(found.changed, ["ConfigMap settings", "Secret gone", "Secret later"]);
        assert_eq!(found.unknown, ["Secret locked", "2 more"]);
        assert_eq!(
            noted.changes(&[(same, Version::Unknown)]).changed,
            [""; 0],
            "what cannot be read now has not changed"
        );
        assert_eq!(super::noted(&noting(&before, 5), &samples::rollout(6)), Noted::default(), "of another deploy");
    }

    #[test]
    fn annotation_is_removed_without_references_and_read_within_its_bounds() {
        let with = noting(&[(reference("Secret/keys"), version("u-1", "7"))], 1);
        let mut patch = json!({"metadata": {"annotations": {}}});
        note(&mut patch, &with, &[], 0);
        assert_eq!(patch["metadata"]["annotations"], json!({REFERENCES: null}));
        let mut patch = json!({"metadata": {"annotations": {}}});
        note(&mut patch, &samples::deployment(json!({})), &[], 0);
        assert_eq!(patch["metadata"]["annotations"], json!({}));
        let theirs: BTreeMap<String, &str> = (0..99).map(|number| (format!("Secret/s{number}"), "missing")).collect();
        for (text, count) in [
            (json!({"versions": theirs}).to_string(), REFERENCES_MAX),
            (json!({"versions": {"Secret/x": {"hash": "0".repeat(17)}}}).to_string(), 0),
            (json!({"versions": theirs, "x": "y".repeat(NOTED_BYTES_MAX)}).to_string(), 0),
            (json!({"versions": {"Secret/../x": "missing", "Pod/x": "missing"}}).to_string(), 0),
            ("[".to_owned(), 0),
        ] {
            let object = samples::deployment(json!({"metadata": {"annotations": {REFERENCES: text}}}));
            let object = samples::stamped(object, &samples::rollout(5));
            assert_eq!(super::noted(&object, &samples::rollout(5)).compared().len(), count, "{text}");
        }
    }
}
