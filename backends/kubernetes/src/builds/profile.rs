//! The safest profile that the cluster offers, used if the operator has not chosen one.

use k8s_openapi::api::core::v1::Node;

use super::settings::Profile;

/// Returns `UserNamespace` if every node that takes builds has user namespaces, else `Rootless`. Privileged builds are
/// the operator's choice alone.
pub(super) fn safest(nodes: &[Node]) -> Profile {
    let mut able = nodes.iter().filter(|node| takes_builds(node)).peekable();
    if able.peek().is_some() && able.all(has_user_namespaces) { Profile::UserNamespace } else { Profile::Rootless }
}

fn takes_builds(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    // Taints of Kubernetes itself last only while a node has a problem.
    let kept_off = taints.into_iter().any(|taint| {
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !taint.key.starts_with("node.kubernetes.io/")
    });
    let system = node.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/os"));
    system.is_none_or(|system| system == "linux") && !cordoned && !kept_off
}

/// Whether the node's default runtime, which builds use, has user namespaces.
fn has_user_namespaces(node: &Node) -> bool {
    let handlers = node.status.as_ref().and_then(|status| status.runtime_handlers.as_ref());
    let default = handlers.into_iter().flatten().find(|handler| handler.name.as_deref().unwrap_or_default().is_empty());
    default.and_then(|handler| handler.features.as_ref()?.user_namespaces).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(spec: Value, features: Value) -> Node {
        let handlers =
            json!([{"name": "", "features": features}, {"name": "kata", "features": {"userNamespaces": false}}]);
        serde_json::from_value(json!({
            "metadata": {"labels": {"kubernetes.io/os": "linux"}}, "spec": spec, "status": {"runtimeHandlers": handlers},
        }))
        .unwrap()
    }

    #[test]
    fn user_namespaces_only_where_every_node_has_them() {
        let with = || node(json!({}), json!({"userNamespaces": true}));
        let without = || node(json!({}), json!({"recursiveReadOnlyMounts": true}));
        assert_eq!(safest(&[with(), with()]), Profile::UserNamespace);
        assert_eq!(safest(&[with(), without()]), Profile::Rootless);
        assert_eq!(safest(&[]), Profile::Rootless);
        assert_eq!(safest(&[Node::default()]), Profile::Rootless, "an old node does not say");
    }

    #[test]
    fn nodes_that_take_no_builds_do_not_count() {
        let with = || node(json!({}), json!({"userNamespaces": true}));
        let cordoned = node(json!({"unschedulable": true}), json!({}));
        let kept_off = node(json!({"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}), json!({}));
        assert_eq!(safest(&[with(), cordoned, kept_off]), Profile::UserNamespace);
        let away = node(json!({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}), json!({}));
        assert_eq!(safest(&[with(), away]), Profile::Rootless, "it comes back");
    }
}
