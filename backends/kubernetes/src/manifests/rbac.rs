//! The permissions of the server.
//!
//! | bound | permissions for |
//! |---|---|
//! | in each namespace of apps | workloads, their pods, events and logs; Jobs of release commands; Events of deploys; the Secrets of the apps' tokens and configurations; writes of our custom resources |
//! | in the server's own namespace | Leases of replicas; the server's records |
//! | everywhere | reads of our custom resources, which hold no secret, and their definitions; Leases by name |
//! | everywhere | the namespace `kube-system`, whose uid is the identity of the cluster |
//! | everywhere, if callers may prove themselves to the cluster | reviews of tokens and of rights, which are created and never stored |

use rollhook_core::app::Namespace;
use serde::Serialize;
use serde_json::{Value, json};

use super::{NAMESPACE, SERVICE_ACCOUNT};
use crate::store::crd::{GROUP, definitions};

const API: &str = "rbac.authorization.k8s.io";
/// The ClusterRole that is bound in each namespace of apps.
const APPS: &str = "rollhook-apps";
const OWN: &str = SERVICE_ACCOUNT;
/// The ClusterRole of the reviews of callers.
const REVIEWS: &str = "rollhook-reviews";
/// All reads that a watch needs.
const READ: [&str; 3] = ["get", "list", "watch"];

pub(super) fn objects(namespace: &str, app_namespaces: &[Namespace]) -> Vec<Value> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": SERVICE_ACCOUNT, "namespace": namespace},
    });
    let (own, apps) = (installed(OWN, namespace), installed(APPS, namespace));
    let mut objects = vec![
        account,
        role("ClusterRole", &apps, None, in_app_namespaces().all()),
        role("ClusterRole", &own, None, everywhere().all()),
        binding("ClusterRoleBinding", (OWN, None), ("ClusterRole", &own), namespace),
        role("Role", OWN, Some(namespace), in_own_namespace()),
        binding("RoleBinding", (OWN, Some(namespace)), ("Role", OWN), namespace),
    ];
    let bound = |of: &Namespace| binding("RoleBinding", (APPS, Some(of.as_str())), ("ClusterRole", &apps), namespace);
    objects.extend(app_namespaces.iter().map(bound));
    objects
}

/// Rules, by the part of the server that needs them: a store elsewhere needs none.
#[derive(Serialize)]
pub(super) struct Rules {
    driver: Vec<Value>,
    store: Vec<Value>,
}

impl Rules {
    fn all(self) -> Vec<Value> {
        [self.driver, self.store].concat()
    }
}

/// The permissions to ask who a caller is, and what the caller may do.
pub(super) fn of_reviews() -> Vec<Value> {
    vec![
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
        // The keys that anyone may verify the cluster's tokens by.
        json!({"nonResourceURLs": ["/openid/v1/jwks"], "verbs": ["get"]}),
    ]
}

pub(super) fn reviews(namespace: &str) -> Vec<Value> {
    vec![
        role("ClusterRole", &installed(REVIEWS, namespace), None, of_reviews()),
        binding("ClusterRoleBinding", (REVIEWS, None), ("ClusterRole", &installed(REVIEWS, namespace)), namespace),
    ]
}

/// The objects that a rollout reads and changes, and those that are stored beside the apps.
pub(super) fn in_app_namespaces() -> Rules {
    let driver = vec![
        // One guarded patch per rollout. Workloads are created where an app is registered with an image.
        rule("apps", &["deployments", "statefulsets", "daemonsets"], &["get", "list", "watch", "patch"]),
        // What a restore brings back.
        rule("apps", &["replicasets", "controllerrevisions"], &["list"]),
        rule("apps", &["deployments"], &["create"]),
        rule("batch", &["cronjobs"], &["get", "list", "watch", "patch"]),
        rule("", &["services"], &["create", "delete"]),
        // Release commands: each runs as a Job, with the volumes that other pods may use as well.
        rule("batch", &["jobs"], &["get", "list", "watch", "create", "patch"]),
        rule("", &["persistentvolumeclaims"], &["get"]),
        // The pods of a rollout, and a failing one's evidence. A pod of a StatefulSet that blocks it is deleted.
        rule("", &["pods"], &["list", "watch", "delete"]),
        rule("", &["pods/log"], &["get"]),
        rule("", &["events"], &["list"]),
        // A Secret for each version of an app's configuration, named by its workloads. Of those that exist the metadata alone are
        // listed and read, to find the old ones; Kubernetes knows no permission for that part. One that a deploy asks for is
        // compared, if its workload does not know it yet.
        rule("", &["secrets"], &["get", "list", "create", "patch", "delete"]),
        // The versions of those that workloads read without rollhook, as a deploy begins and later: metadata alone, as above.
        rule("", &["configmaps"], &["get"]),
        // How deploys go on, on their workloads and apps.
        rule("events.k8s.io", &["events"], &["create"]),
    ];
    let store = vec![
        // Secrets of tokens are read by name, never listed or watched.
        rule("", &["secrets"], &["get", "create", "update", "delete"]),
        rule(GROUP, &["rollhookapps"], &["create", "update", "patch", "delete"]),
        rule(GROUP, &["appdeploys"], &["create", "update", "delete", "deletecollection"]),
    ];
    Rules { driver, store }
}

pub(super) fn in_own_namespace() -> Vec<Value> {
    vec![
        rule("coordination.k8s.io", &["leases"], &["get", "list", "create", "update", "delete"]),
        rule(GROUP, &["serverrecords"], &["get", "list", "watch", "create", "update", "delete"]),
    ]
}

pub(super) fn everywhere() -> Rules {
    // Read at start, to check that their form is the one that this version writes.
    let mut own = rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["get"]);
    own["resourceNames"] = definitions().map(|definition| definition.metadata.name).to_vec().into();
    // Its uid is the identity of the cluster.
    let mut system = rule("", &["namespaces"], &["get"]);
    system["resourceNames"] = json!(["kube-system"]);
    let store = vec![
        rule(GROUP, &["rollhookapps", "appdeploys"], &READ),
        own,
        // Read to learn whether the driver of an app still lives, if that is a process of another namespace.
        rule("coordination.k8s.io", &["leases"], &["get"]),
    ];
    Rules { driver: vec![system], store }
}

pub(super) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

pub(super) fn role(kind: &str, name: &str, namespace: Option<&str>, rules: Vec<Value>) -> Value {
    let metadata = named(name, namespace);
    json!({"apiVersion": format!("{API}/v1"), "kind": kind, "metadata": metadata, "rules": rules})
}

/// The name of a ClusterRole of the installation in this namespace.
///
/// Bindings have one name in all installations, and a binding's role cannot be changed: so the cluster refuses a second
/// installation, which would take the permissions of the first one.
fn installed(role: &str, namespace: &str) -> String {
    if namespace == NAMESPACE { role.to_owned() } else { format!("{role}-{namespace}") }
}

/// The binding of this name, in this namespace or everywhere, of a role to the server's account.
pub(super) fn binding(
    kind: &str,
    (name, namespace): (&str, Option<&str>),
    (role_kind, role): (&str, &str),
    account_namespace: &str,
) -> Value {
    json!({
        "apiVersion": format!("{API}/v1"), "kind": kind, "metadata": named(name, namespace),
        "roleRef": {"apiGroup": API, "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": account_namespace}],
    })
}

fn named(name: &str, namespace: Option<&str>) -> Value {
    match namespace {
        Some(namespace) => json!({"name": name, "namespace": namespace}),
        None => json!({"name": name}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Vec<Value> {
        objects("rollhook", &["shop-test".parse().unwrap(), "shop-prod".parse().unwrap()])
    }

    fn rules(object: &Value) -> impl Iterator<Item = &Value> {
        object["rules"].as_array().into_iter().flatten()
    }

    fn has(list: &Value, word: &str) -> bool {
        list.as_array().is_some_and(|list| list.iter().any(|item| item == word))
    }

    #[test]
    fn secrets_are_not_watched_and_not_read_by_cluster_wide_bindings() {
        for object in made() {
            for rule in rules(&object).filter(|rule| has(&rule["resources"], "secrets")) {
                for verb in ["watch", "deletecollection", "*"] {
                    assert!(!has(&rule["verbs"], verb), "{object}");
                }
                // It is bound by RoleBindings alone: see the next test.
                assert_eq!(object["metadata"]["name"], APPS, "{object}");
            }
        }
    }

    #[test]
    fn only_our_own_resources_and_single_leases_are_read_everywhere() {
        let all = made();
        let wide: Vec<&Value> = all.iter().filter(|object| object["kind"] == "ClusterRoleBinding").collect();
        assert_eq!(wide.len(), 1);
        let role = &wide[0]["roleRef"]["name"];
        let role = all.iter().find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == *role);
        for rule in rules(role.unwrap()) {
            match rule["apiGroups"][0].as_str() {
                Some(GROUP) => assert_eq!(rule["verbs"], json!(READ)),
                _ => assert_eq!(rule["verbs"], json!(["get"])),
            }
        }
    }

    #[test]
    fn records_are_reached_in_the_servers_own_namespace_alone() {
        for object in made() {
            let reaches = rules(&object).any(|rule| has(&rule["resources"], "serverrecords"));
            let is_own = object["kind"] == "Role" && object["metadata"]["namespace"] == "rollhook";
            assert_eq!(reaches, is_own, "{object}");
        }
    }

    #[test]
    fn each_namespace_of_apps_has_a_role_binding() {
        let bound = made().into_iter().filter(|object| object["roleRef"]["name"] == APPS);
        let bound: Vec<Value> = bound.map(|object| object["metadata"]["namespace"].clone()).collect();
        assert_eq!(bound, ["shop-test", "shop-prod"]);
    }

    #[test]
    fn bindings_of_another_installation_have_another_role() {
        let bindings = |namespace: &str| -> Vec<(Value, Value)> {
            let objects = objects(namespace, &["shop-test".parse().unwrap()]).into_iter().chain(reviews(namespace));
            let bindings = objects.filter(|object| object["roleRef"]["kind"] == "ClusterRole");
            bindings.map(|object| (object["metadata"].clone(), object["roleRef"]["name"].clone())).collect()
        };
        let (first, second) = (bindings(NAMESPACE), bindings("other"));
        assert_eq!(first.len(), 3);
        for ((name, role), (same, other)) in first.into_iter().zip(second) {
            assert_eq!(name, same);
            assert_ne!(role, other);
        }
    }

    #[test]
    fn callers_are_reviewed_and_nothing_else_is_done_by_the_further_permissions() {
        let reviews = reviews("rollhook");
        let rules: Vec<&Value> = reviews.iter().flat_map(rules).collect();
        let verbs: Vec<&Value> = rules.iter().map(|rule| &rule["verbs"]).collect();
        assert_eq!(verbs, [&json!(["create"]), &json!(["create"]), &json!(["get"])]);
        assert_eq!(rules[2]["nonResourceURLs"], json!(["/openid/v1/jwks"]));
        assert!(
            made().iter().flat_map(self::rules).all(|rule| !has(&rule["resources"], "tokenreviews")),
            "off by default"
        );
    }

    #[test]
    fn no_rule_has_a_wildcard() {
        for object in made().into_iter().chain(reviews("rollhook")) {
            for rule in rules(&object) {
                for list in ["apiGroups", "resources", "verbs"] {
                    assert!(!has(&rule[list], "*"), "{rule}");
                }
            }
        }
    }
}
