//! The Secret with a version of an app's configuration, and its entry in the containers of a pod template.
//!
//! A container has one entry of ours in `envFrom`, which is the last: of a name in several sources Kubernetes takes the last
//! one's value. An entry is ours by the name of its Secret. A name in the container's own `env` would win over it, and is
//! refused. Values come from `envFrom` as they are; Kubernetes replaces `$(NAME)` in `env` and in commands alone.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::{
    ByteString,
    api::core::v1::{Container, EnvFromSource, Secret, SecretEnvSource},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use rollhook_core::{
    app::{AppId, AppUid},
    configuration::{Configuration, ConfigurationId, VariableName, remark_on_others},
    ports::DeployId,
};
use serde_json::{Value, json};

use super::{
    drift,
    object::{MANAGED_BY, MANAGER, Object, STAMP, Stamp},
};
use crate::workload::Rollout;

/// The label of a Secret with the app's uid.
const APP: &str = "rollhook.dev/configuration-of";
/// The label of a Secret with the id of the version.
const ID: &str = "rollhook.dev/configuration";
/// The annotation of a Secret that others than its maker count on, who would take it back if the cluster refuses what it was made
/// for.
const SHARED: &str = "rollhook.dev/configuration-shared";
/// The annotation of a workload with a remark on variables that others set too.
pub(crate) const REMARK: &str = "rollhook.dev/variables-of-others";
/// The number of an app's Secrets that are kept, the ones that were needed last, whatever names them.
const KEPT: usize = 10;

/// The name of the Secret of a version.
pub(crate) fn name(app: &AppId, id: ConfigurationId) -> String {
    format!("{}{}", prefix(app), id.short())
}

fn prefix(app: &AppId) -> String {
    format!("{}-config-", app.name)
}

/// Whether the entry names a Secret of the app's configuration.
pub(crate) fn is_ours(entry: &EnvFromSource, app: &AppId) -> bool {
    let name = entry.secret_ref.as_ref().map(|secret| secret.name.as_str());
    let digits = name.and_then(|name| name.strip_prefix(&prefix(app)));
    digits.is_some_and(|digits| {
        digits.len() == ConfigurationId::SHORT && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// The selector of the Secrets of an app's configuration.
pub(crate) fn selector(app: AppUid) -> String {
    format!("{MANAGED_BY}={MANAGER},{APP}={app}")
}

/// The `envFrom` of a container with this version of the configuration, or with none.
pub(crate) fn env_from(
    container: Option<&Container>,
    app: &AppId,
    configuration: Option<ConfigurationId>,
) -> Vec<EnvFromSource> {
    let present = container.and_then(|container| container.env_from.as_deref()).unwrap_or_default();
    let ours = configuration.map(|id| EnvFromSource {
        secret_ref: Some(SecretEnvSource { name: name(app, id), ..SecretEnvSource::default() }),
        ..EnvFromSource::default()
    });
    present.iter().filter(|entry| !is_ours(entry, app)).cloned().chain(ours).collect()
}

/// The `envFrom` that the rollout gives a container. Returns `None` if the container has it already.
pub(crate) fn changed_env_from(container: &Container, rollout: &Rollout) -> Option<Vec<EnvFromSource>> {
    let wanted = env_from(Some(container), &rollout.app, rollout.configuration);
    (wanted != container.env_from.as_deref().unwrap_or_default()).then_some(wanted)
}

/// The name of the Secret of the app's configuration that the container refers to.
pub(crate) fn reference<'a>(container: &'a Container, app: &AppId) -> Option<&'a str> {
    let ours = container.env_from.iter().flatten().rfind(|entry| is_ours(entry, app))?;
    ours.secret_ref.as_ref().map(|secret| secret.name.as_str())
}

/// Whether the workload refers to the Secret of the rollout's configuration.
pub(crate) fn is_referred_to(object: &Object, rollout: &Rollout) -> bool {
    let Some(id) = rollout.configuration else { return false };
    let name = name(&rollout.app, id);
    let mut containers = rollout.workload.containers.iter().filter_map(|name| object.container(name));
    containers.any(|container| reference(container, &rollout.app) == Some(&name))
}

/// A sentence about a variable that the workload's own `env` sets too, and who set it there if that is known. Returns `None`
/// if there is no such variable that the deploy brings.
pub(crate) fn conflict(object: &Object, containers: &[String], configuration: &Configuration) -> Option<String> {
    let names = configuration.variables.entries.keys().map(VariableName::as_str);
    let brought: BTreeSet<&str> = names.filter(|name| configuration.brings(name)).collect();
    containers.iter().find_map(|name| {
        let own = object.container(name)?.env.iter().flatten();
        let mut own = own.map(|variable| variable.name.as_str());
        let variable = own.find(|variable| brought.contains(variable))?;
        let title = object.title();
        let by = match drift::setter_of_variable(object, name, variable) {
            None => String::new(),
            Some(MANAGER) => ", by the app's template".to_owned(),
            Some(manager) => format!(", by the field manager {manager:?}"),
        };
        Some(format!(
            "the variable {variable} of the app's configuration is set in the container {name} of {title} as well{by}: \
             remove it in one of the two places, then deploy again"
        ))
    })
}

/// Adds the remark on variables that the workload's own `env` sets too to a patch of the workload, in place of an earlier one.
pub(crate) fn remark(patch: &mut Value, object: &Object, containers: &[String], configuration: Option<&Configuration>) {
    let variables = configuration.iter().flat_map(|configuration| configuration.variables.entries.keys());
    let own: BTreeSet<&str> = containers
        .iter()
        .filter_map(|name| object.container(name))
        .flat_map(|container| container.env.iter().flatten())
        .map(|variable| variable.name.as_str())
        .collect();
    let remark = remark_on_others(variables.map(VariableName::as_str).filter(|name| own.contains(name)));
    if remark.is_some() || remarked(object).is_some() {
        // A `null` removes the annotation.
        patch["metadata"]["annotations"][REMARK] = json!(remark);
    }
}

/// The remark on variables that the last patch has left on a workload.
pub(crate) fn remarked(object: &Object) -> Option<&String> {
    object.metadata().annotations.as_ref()?.get(REMARK)
}

/// The Secret of a version, which cannot be changed once it is made.
pub(crate) fn secret(owner: &Owner, configuration: &Configuration) -> Secret {
    let labels = [(MANAGED_BY, MANAGER.to_owned()), (APP, owner.uid.to_string()), (ID, configuration.id.to_string())];
    let entries = configuration.variables.entries.iter();
    let data = entries.map(|(name, value)| (name.to_string(), ByteString(value.expose().as_bytes().to_vec())));
    Secret {
        metadata: ObjectMeta {
            name: Some(name(owner.app, configuration.id)),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
            annotations: owner.deploy.map(|id| BTreeMap::from([(STAMP.to_owned(), id.to_string())])),
            owner_references: owner.object.clone().map(|object| vec![object]),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        immutable: Some(true),
        data: Some(data.collect()),
        ..Secret::default()
    }
}

/// Whether a Secret is as [`secret`] makes it of this configuration.
pub(crate) fn has_content(secret: &Secret, configuration: &Configuration) -> bool {
    let wanted = &configuration.variables.entries;
    let data = secret.data.as_ref();
    let value = |name: &str| data.and_then(|data| data.get(name)).map(|value| value.0.as_slice());
    secret.immutable == Some(true)
        && data.map_or(0, BTreeMap::len) == wanted.len()
        && wanted.iter().all(|(name, variable)| value(name.as_str()) == Some(variable.expose().as_bytes()))
}

/// An owner of Secrets: an app, the object of it that needs one, and the deploy for which it does.
#[derive(Clone, Debug)]
pub(crate) struct Owner<'a> {
    /// The app.
    pub(crate) app: &'a AppId,
    /// Its registration.
    pub(crate) uid: AppUid,
    /// The deploy; `None` for a command by hand.
    pub(crate) deploy: Option<DeployId>,
    /// The object with which the Secret goes; `None` if it is not made yet.
    pub(crate) object: Option<OwnerReference>,
}

/// The reference to an object as an owner. Returns `None` if the object is not made yet.
pub(crate) fn reference_to(api_version: &str, kind: &str, metadata: &ObjectMeta) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        ..OwnerReference::default()
    })
}

/// Whether the Secret is that of this version of the app's configuration.
pub(crate) fn is_of(metadata: &ObjectMeta, owner: &Owner, id: ConfigurationId) -> bool {
    let has = |name: &str, value: String| metadata.labels.as_ref().and_then(|all| all.get(name)) == Some(&value);
    has(MANAGED_BY, MANAGER.to_owned()) && has(APP, owner.uid.to_string()) && has(ID, id.to_string())
}

/// The strategic merge patch by which a Secret that was found goes with one more object, is needed by a newer deploy, and is left
/// by its maker. Returns `None` if all are so already; `is_known`: the workload was given this Secret, so that its maker has no
/// reason to take it back. Owners are merged by their uid.
pub(crate) fn adoption(metadata: &ObjectMeta, owner: &Owner, is_known: bool) -> Option<Value> {
    let has =
        |object: &OwnerReference| metadata.owner_references.iter().flatten().any(|present| present.uid == object.uid);
    let object = owner.object.as_ref().filter(|object| !has(object));
    let deploy = owner.deploy.filter(|id| needed_by(metadata, owner.uid) < Some(id.revision.get()));
    // Any change would do, as a Secret is taken back as it was made: the same run in another replica has none to make.
    let is_shared = is_known || metadata.annotations.as_ref().is_some_and(|all| all.contains_key(SHARED));
    if object.is_none() && deploy.is_none() && is_shared {
        return None;
    }
    let mut patch = json!({"metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}});
    if let Some(object) = object {
        patch["metadata"]["ownerReferences"] = json!([object]);
    }
    if let Some(id) = deploy {
        patch["metadata"]["annotations"][STAMP] = json!(id.to_string());
    }
    if !is_shared {
        patch["metadata"]["annotations"][SHARED] = json!("true");
    }
    Some(patch)
}

/// The last revision that needed the Secret.
fn needed_by(metadata: &ObjectMeta, app: AppUid) -> Option<u64> {
    let id = Stamp::among(metadata.annotations.as_ref()).id().filter(|id| id.app == app)?;
    Some(id.revision.get())
}

/// The Secrets of an app that a deploy may remove unless something names them: without the ones that were needed last, and
/// without those of this deploy and of later ones, whose workloads may not name them yet.
pub(crate) fn superfluous(mut secrets: Vec<ObjectMeta>, deploy: DeployId) -> Vec<ObjectMeta> {
    secrets.sort_by_key(|metadata| Reverse((needed_by(metadata, deploy.app), metadata.creation_timestamp.clone())));
    let is_older = |metadata: &ObjectMeta| needed_by(metadata, deploy.app) < Some(deploy.revision.get());
    secrets
        .into_iter()
        .skip(KEPT)
        .filter(|metadata| is_older(metadata) && metadata.deletion_timestamp.is_none())
        .collect()
}

/// Whether an object, as the JSON that it came as, names the Secret at any place.
pub(crate) fn is_named(secret: &ObjectMeta, object: &str) -> bool {
    // Without a name nothing is known of it.
    secret.name.as_ref().is_none_or(|name| object.contains(&format!("\"{name}\"")))
}

#[cfg(test)]
mod tests {
    use rollhook_core::{configuration::Variables, deploy::Revision};

    use super::*;
    use crate::rules::samples;

    const UID: AppUid = AppUid::from_bits(42);

    fn app() -> AppId {
        "shop-test/api".parse().unwrap()
    }

    fn id(number: u128) -> ConfigurationId {
        ConfigurationId(number << 88)
    }

    fn deploy(revision: u64) -> DeployId {
        DeployId { app: UID, revision: Revision::new(revision).unwrap() }
    }

    fn owner(app: &AppId, revision: u64) -> Owner<'_> {
        let metadata = ObjectMeta { name: Some("api".into()), uid: Some("u-1".into()), ..ObjectMeta::default() };
        let object = reference_to("apps/v1", "Deployment", &metadata);
        Owner { app, uid: UID, deploy: Some(deploy(revision)), object }
    }

    fn configuration(variables: &str) -> Configuration {
        let text =
            json!({"salt": vec![0; 16], "variables": serde_json::from_str::<Value>(variables).unwrap()}).to_string();
        let variables = Variables::from_text(&text).unwrap();
        Configuration::of(id(7)).with(|configuration| configuration.variables = variables)
    }

    fn container(entries: Value) -> Container {
        serde_json::from_value(json!({"name": "app", "envFrom": entries})).unwrap()
    }

    #[test]
    fn our_entry_is_the_last_and_those_of_others_stay() {
        let theirs = json!({"configMapRef": {"name": "api-config-0000000001000000"}});
        let like_ours = json!({"secretRef": {"name": "api-config-more"}, "prefix": "X_"});
        let old = json!({"secretRef": {"name": name(&app(), id(6))}});
        let new = json!({"secretRef": {"name": "api-config-0000000007000000"}});
        let of = |entries: Value, id| json!(env_from(Some(&container(entries)), &app(), id));
        assert_eq!(
            of(json!([old, theirs, like_ours]), Some(id(7))),
            json!([theirs, like_ours, new]),
            "replaced, and put last"
        );
        assert_eq!(of(json!([theirs, old]), None), json!([theirs]));
        assert_eq!(json!(env_from(None, &app(), Some(id(7)))), json!([new]));
        let rollout = Rollout { configuration: Some(id(7)), ..samples::rollout(7) };
        assert_eq!(changed_env_from(&container(json!([theirs, new])), &rollout), None);
        assert_eq!(changed_env_from(&container(json!(null)), &samples::rollout(7)), None);
        assert_eq!(changed_env_from(&container(json!([new])), &samples::rollout(7)), Some(Vec::new()));
    }

    #[test]
    fn variable_that_the_container_sets_is_named_with_its_setter() {
        let fields = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"app\"}": {"f:env": {"k:{\"name\":\"MODE\"}": {}}}}}}}});
        let entry = json!([{"manager": "helm", "operation": "Update", "time": "2026-01-01T00:20:00Z",
                            "fieldsType": "FieldsV1", "fieldsV1": fields}]);
        let containers =
            json!([{"name": "app", "image": "api:v1", "env": [{"name": "A"}, {"name": "MODE", "value": "theirs"}]}]);
        let object = samples::deployment(json!({
            "metadata": {"managedFields": entry}, "spec": {"template": {"spec": {"containers": containers}}},
        }));
        let of = |variables: &str| configuration(variables).with(|configuration| configuration.is_new = true);
        let named = |variables: &str| conflict(&object, &["app".to_owned()], &of(variables));
        let message = named(r#"[["MODE", "hunter2", false]]"#).unwrap();
        for part in ["the variable MODE", "the container app of Deployment api", "the field manager \"helm\""] {
            assert!(message.contains(part), "{message}");
        }
        assert!(!message.contains("hunter2") && !message.contains("theirs"), "{message}");
        assert!(!named(r#"[["A", "1", false]]"#).unwrap().contains("manager"), "it is not known");
        assert_eq!(named(r#"[["MOD", "1", false]]"#), None);
        let known = configuration(r#"[["MODE", "hunter2", false], ["MOD", "1", false]]"#);
        assert_eq!(conflict(&object, &["app".to_owned()], &known), None, "it is not new");
        let mut patch = json!({});
        remark(&mut patch, &object, &["app".to_owned()], Some(&known));
        let remarked = patch["metadata"]["annotations"][REMARK].take();
        assert_eq!(remarked, "others set MODE too, and their values are used");
        let marked = samples::deployment(json!({"metadata": {"annotations": {REMARK: remarked}}}));
        remark(&mut patch, &marked, &["app".to_owned()], Some(&known));
        assert_eq!(patch["metadata"]["annotations"].get(REMARK), Some(&Value::Null));
        let mut patch = json!({});
        remark(&mut patch, &samples::deployment(json!({})), &["app".to_owned()], Some(&known));
        assert_eq!(patch, json!({}));
    }

    #[test]
    fn secret_has_the_values_as_they_are_and_goes_with_its_owner() {
        let app = app();
        let made = secret(&owner(&app, 3), &configuration(r#"[["A", "$(B)\n\u00e4", false], ["E", "", false]]"#));
        assert_eq!(
            serde_json::to_value(&made).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
                "metadata": {
                    "name": "api-config-0000000007000000",
                    "labels": {MANAGED_BY: MANAGER, APP: UID.to_string(), ID: id(7).to_string()},
                    "annotations": {STAMP: deploy(3).to_string()},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "api", "uid": "u-1"}],
                },
                "data": {"A": "JChCKQrDpA==", "E": ""},
            })
        );
        assert!(is_of(&made.metadata, &owner(&app, 3), id(7)));
        assert!(!is_of(&made.metadata, &owner(&app, 3), id(8)));
        assert!(!is_of(&made.metadata, &Owner { uid: AppUid::from_bits(43), ..owner(&app, 3) }, id(7)));
        assert_eq!(adoption(&made.metadata, &owner(&app, 3), true), None, "it is so already");
        assert_eq!(adoption(&made.metadata, &owner(&app, 2), true), None, "a newer deploy needs it");
        let newer = adoption(&made.metadata, &owner(&app, 4), true).unwrap();
        assert_eq!(newer["metadata"]["annotations"][STAMP], deploy(4).to_string());
        assert!(newer["metadata"].get("ownerReferences").is_none());
        let mut another = owner(&app, 3);
        another.object.as_mut().unwrap().uid = "u-2".to_owned();
        let shared = adoption(&made.metadata, &another, true).unwrap();
        assert_eq!(shared["metadata"]["ownerReferences"][0]["uid"], "u-2");
        let mut found = made.metadata;
        let shared = adoption(&found, &owner(&app, 3), false).unwrap();
        assert_eq!(shared["metadata"]["annotations"], json!({SHARED: "true"}), "its maker leaves it");
        found.annotations.get_or_insert_default().insert(SHARED.to_owned(), "true".to_owned());
        assert_eq!(adoption(&found, &owner(&app, 3), false), None, "it was left before");
    }

    /// A Secret that this revision needed last.
    fn needed(number: u64, revision: u64) -> ObjectMeta {
        ObjectMeta {
            name: Some(name(&app(), id(number.into()))),
            annotations: Some([(STAMP.to_owned(), deploy(revision).to_string())].into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn secrets_that_were_needed_last_are_kept_and_those_of_later_deploys() {
        let all = |revisions: std::ops::RangeInclusive<u64>| revisions.map(|number| needed(number, number)).collect();
        let names =
            |secrets: Vec<ObjectMeta>| secrets.into_iter().map(|secret| secret.name.unwrap()).collect::<Vec<_>>();
        assert_eq!(names(superfluous(all(1..=10), deploy(10))), Vec::<String>::new());
        let old = [name(&app(), id(2)), name(&app(), id(1))];
        assert_eq!(names(superfluous(all(1..=12), deploy(12))), old);
        assert_eq!(names(superfluous(all(1..=12), deploy(2))), old[1..], "revision 2 and later ones may need theirs");
        let mut unstamped: Vec<ObjectMeta> = all(3..=12);
        unstamped.insert(0, ObjectMeta { name: Some("api-config-old".to_owned()), ..ObjectMeta::default() });
        assert_eq!(names(superfluous(unstamped, deploy(12))), ["api-config-old"]);
        let ending = ObjectMeta {
            deletion_timestamp: Some(serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap()),
            ..needed(1, 1)
        };
        assert_eq!(superfluous((2..=11).map(|at| needed(at, at)).chain([ending]).collect(), deploy(11)), []);
    }

    #[test]
    fn secret_is_named_at_any_place_of_an_object() {
        let secret = needed(7, 1);
        let name = secret.name.clone().unwrap();
        for named in [
            json!({"spec": {"containers": [{"envFrom": [{"secretRef": {"name": name}}]}]}}),
            json!({"data": {"spec": {"template": {"spec": {"volumes": [{"secret": {"secretName": name}}]}}}}}),
        ] {
            assert!(is_named(&secret, &named.to_string()));
        }
        assert!(!is_named(&secret, &json!({"name": format!("{name}0")}).to_string()));
        assert!(is_named(&ObjectMeta::default(), "{}"));
    }
}
