//! The namespace of builds: no connections into it, few out of it, and the permissions that the server needs there.

use serde_json::{Value, json};

use super::{
    network::{egress, policy},
    rbac::{binding, role, rule},
};
use crate::builds::{BUILDS_LABELS, SLOTS};

/// The name of the roles and bindings that give the server its rights over builds.
const BUILDS: &str = "rollhook-builds";
/// The ports that a build, and a server that reads branches, may connect to: git hosts and registries, over https, ssh
/// and, where the operator allows it, plain http.
pub(super) const PORTS: [u16; 3] = [443, 80, 22];

pub(super) fn objects(server_namespace: &str, namespace: &str, registry_ports: &[u16]) -> Vec<Value> {
    let ports = PORTS.into_iter().chain(registry_ports.iter().copied());
    let mut nodes = role("ClusterRole", BUILDS, None, everywhere());
    nodes["metadata"]["labels"] = labels();
    vec![
        // BuildKit needs more than the stricter profiles of Pod Security allow; each Job says how much of it a build
        // gets.
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
        }),
        policy(namespace, "rollhook-default-deny", json!({}), json!({"policyTypes": ["Ingress", "Egress"]})),
        policy(namespace, "rollhook-builds", labels(), json!({"policyTypes": ["Egress"], "egress": egress(ports)})),
        role("Role", BUILDS, Some(namespace), rules()),
        binding("RoleBinding", (BUILDS, Some(namespace)), ("Role", BUILDS), server_namespace),
        nodes,
        binding("ClusterRoleBinding", (BUILDS, None), ("ClusterRole", BUILDS), server_namespace),
    ]
}

pub(super) fn labels() -> Value {
    BUILDS_LABELS.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

/// Whether the nodes have user namespaces is read from their descriptions.
pub(super) fn everywhere() -> Vec<Value> {
    vec![rule("", &["nodes"], &["list"])]
}

pub(super) fn rules() -> Vec<Value> {
    let mut slots = rule("", &["configmaps"], &["get", "update"]);
    slots["resourceNames"] = json!([SLOTS]);
    vec![
        rule("batch", &["jobs"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule("", &["pods"], &["list", "watch"]),
        rule("", &["pods/log"], &["get"]),
        rule("", &["events"], &["list"]),
        // Secrets are written, deleted once their build has ended, and never read.
        rule("", &["secrets"], &["create", "delete"]),
        slots,
        // A rule for creating cannot be limited to a name.
        rule("", &["configmaps"], &["create"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_connection_comes_in() {
        let all = objects("rollhook", "rollhook-builds", &[5000]);
        let policies: Vec<&Value> = all.iter().filter(|object| object["kind"] == "NetworkPolicy").collect();
        assert_eq!(policies.len(), 2);
        assert_eq!(policies[0]["spec"]["podSelector"], json!({}));
        assert!(policies.iter().all(|policy| policy["spec"].get("ingress").is_none()));
        assert_eq!(policies[1]["spec"]["podSelector"]["matchLabels"], labels());
    }

    #[test]
    fn secrets_of_builds_are_written_and_never_read() {
        for rule in rules().iter().filter(|rule| rule["resources"] == json!(["secrets"])) {
            assert_eq!(rule["verbs"], json!(["create", "delete"]));
        }
    }
}
