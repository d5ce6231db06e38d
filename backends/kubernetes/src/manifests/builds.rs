//! The namespace of builds: no connections into it, few out of it, and the permissions that the server needs there.

use serde_json::{Value, json};

use super::rbac::{binding, role, rule};
use crate::builds::{BUILDS_LABELS, SLOTS};

/// The name of the roles and bindings that give the server its rights over builds.
const BUILDS: &str = "rollhook-builds";
/// The ports that a build may connect to: git hosts and registries, over https, ssh and, where the operator allows it,
/// plain http.
const PORTS: [u16; 3] = [443, 80, 22];

/// The addresses at which clouds give out their instances' secrets: most of them link-local, Alibaba's among those that
/// its customers share, and Azure's own, by which a node is set up.
const METADATA_OF_CLOUDS: [&str; 3] = ["169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32"];

pub(super) fn objects(server_namespace: &str, namespace: &str, registry_ports: &[u16]) -> Vec<Value> {
    let mut nodes = role("ClusterRole", BUILDS, None, vec![rule("", &["nodes"], &["list"])]);
    nodes["metadata"]["labels"] = labels();
    vec![
        // BuildKit needs more than the stricter profiles of Pod Security allow; each Job says how much of it a build
        // gets.
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
        }),
        policy(namespace, "rollhook-default-deny", json!({}), json!({"policyTypes": ["Ingress", "Egress"]})),
        policy(namespace, "rollhook-builds", labels(), egress(registry_ports)),
        role("Role", BUILDS, Some(namespace), rules()),
        binding("RoleBinding", Some(namespace), "Role", BUILDS, server_namespace),
        nodes,
        binding("ClusterRoleBinding", None, "ClusterRole", BUILDS, server_namespace),
    ]
}

fn labels() -> Value {
    BUILDS_LABELS.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

fn rules() -> Vec<Value> {
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

fn policy(namespace: &str, name: &str, selected: Value, spec: Value) -> Value {
    let mut policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    });
    policy["spec"]["podSelector"] = if selected == json!({}) { selected } else { json!({"matchLabels": selected}) };
    policy
}

/// The outgoing connections: any name server; otherwise only the ports of git hosts and registries, without the
/// addresses at which clouds give out their instances' secrets.
fn egress(registry_ports: &[u16]) -> Value {
    let names = ["UDP", "TCP"].map(|protocol| json!({"protocol": protocol, "port": 53}));
    let mut ports: Vec<u16> = PORTS.into_iter().chain(registry_ports.iter().copied()).collect();
    ports.sort_unstable();
    ports.dedup();
    let ports: Vec<Value> = ports.into_iter().map(|port| json!({"protocol": "TCP", "port": port})).collect();
    let to = json!([
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": METADATA_OF_CLOUDS}},
        {"ipBlock": {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::/32"]}},
    ]);
    json!({"policyTypes": ["Egress"], "egress": [{"ports": names}, {"ports": ports, "to": to}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_connection_comes_in_and_none_reaches_cloud_metadata() {
        let all = objects("rollhook", "rollhook-builds", &[5000]);
        let policies: Vec<&Value> = all.iter().filter(|object| object["kind"] == "NetworkPolicy").collect();
        assert_eq!(policies.len(), 2);
        assert_eq!(policies[0]["spec"]["podSelector"], json!({}));
        assert!(policies.iter().all(|policy| policy["spec"].get("ingress").is_none()));
        let out = policies[1]["spec"]["egress"].to_string();
        for secret in METADATA_OF_CLOUDS {
            assert!(out.contains(secret), "{out}");
        }
        assert_eq!(policies[1]["spec"]["podSelector"]["matchLabels"], labels());
    }

    #[test]
    fn each_port_is_listed_once() {
        let ports = egress(&[5000, 22, 2222, 443, 5000])["egress"][1]["ports"].clone();
        let ports: Vec<u64> = ports.as_array().unwrap().iter().map(|port| port["port"].as_u64().unwrap()).collect();
        assert_eq!(ports, [22, 80, 443, 2222, 5000]);
    }

    #[test]
    fn secrets_of_builds_are_written_and_never_read() {
        for rule in rules().iter().filter(|rule| rule["resources"] == json!(["secrets"])) {
            assert_eq!(rule["verbs"], json!(["create", "delete"]));
        }
    }
}
