//! NetworkPolicies: the connections that the server and builds may make and take.

use rollhook_core::source::METADATA_NETWORKS;
use serde_json::{Value, json};

/// A policy for the pods with these labels.
pub(super) fn policy(namespace: &str, name: &str, selected: Value, spec: Value) -> Value {
    let mut policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    });
    policy["spec"]["podSelector"] = if selected == json!({}) { selected } else { json!({"matchLabels": selected}) };
    policy
}

/// Outgoing connections: to the cluster's own name servers; otherwise to these ports alone, and not to the addresses at
/// which clouds give out their instances' secrets.
pub(super) fn egress(ports: impl IntoIterator<Item = u16>) -> Value {
    let mut ports: Vec<u16> = ports.into_iter().collect();
    ports.sort_unstable();
    ports.dedup();
    let ports: Vec<Value> = ports.into_iter().map(|port| json!({"protocol": "TCP", "port": port})).collect();
    json!([names(), {"ports": ports, "to": anywhere()}])
}

/// The rule for the cluster's own name servers.
pub(super) fn names() -> Value {
    let ports = ["UDP", "TCP"].map(|protocol| json!({"protocol": protocol, "port": 53}));
    let name_servers = json!([
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        },
        // The node's own cache of them, by NodeLocal DNSCache's convention.
        {"ipBlock": {"cidr": "169.254.20.10/32"}},
    ]);
    json!({"ports": ports, "to": name_servers})
}

/// All addresses but those at which clouds give out their instances' secrets.
pub(super) fn anywhere() -> Value {
    let blocks = [("0.0.0.0/0", true), ("::/0", false)].map(|(all, is_ipv4)| {
        let metadata = METADATA_NETWORKS.iter().filter(|network| network.is_ipv4() == is_ipv4);
        let except: Vec<String> = metadata.map(ToString::to_string).collect();
        json!({"ipBlock": {"cidr": all, "except": except}})
    });
    json!(blocks)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use rollhook_core::network::Cidr;

    use super::*;

    fn covers(cidr: &str, address: IpAddr) -> bool {
        cidr.parse::<Cidr>().unwrap().contains(address)
    }

    /// Whether a connection to this address and port is allowed.
    fn is_allowed(egress: &Value, address: &str, port: u16) -> bool {
        let address = address.parse().unwrap();
        let is_within = |block: &Value| {
            let excepted = block["except"].as_array().into_iter().flatten();
            block["cidr"].as_str().is_some_and(|cidr| covers(cidr, address))
                && !excepted.into_iter().any(|cidr| covers(cidr.as_str().unwrap(), address))
        };
        egress.as_array().unwrap().iter().any(|rule| {
            rule["ports"].as_array().unwrap().iter().any(|open| open["port"] == port)
                && rule["to"].as_array().unwrap().iter().any(|to| is_within(&to["ipBlock"]))
        })
    }

    #[test]
    fn no_port_reaches_the_metadata_of_a_cloud() {
        let egress = egress([80, 443]);
        for cloud in
            ["169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "100.100.100.200", "192.0.0.192"]
        {
            for port in [53, 80, 443] {
                assert!(!is_allowed(&egress, cloud, port), "{cloud}:{port}");
            }
        }
        for other in ["192.0.2.1", "10.0.0.1", "2001:db8::1"] {
            assert!(is_allowed(&egress, other, 443) && !is_allowed(&egress, other, 22), "{other}");
        }
    }

    #[test]
    fn names_are_asked_of_the_clusters_own_servers_alone() {
        let egress = egress([443]);
        for other in ["192.0.2.1", "10.0.0.1", "2001:db8::1"] {
            assert!(!is_allowed(&egress, other, 53), "{other}");
        }
        assert_eq!(egress[0]["to"][0]["podSelector"]["matchLabels"]["k8s-app"], "kube-dns");
    }

    #[test]
    fn each_port_is_listed_once() {
        let ports = egress([5000, 22, 2222, 443, 5000])[1]["ports"].clone();
        let ports: Vec<u64> = ports.as_array().unwrap().iter().map(|port| port["port"].as_u64().unwrap()).collect();
        assert_eq!(ports, [22, 443, 2222, 5000]);
    }
}
