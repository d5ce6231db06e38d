//! The objects that a cluster needs before rollhook runs in it, as YAML for `kubectl apply -f -`.
//!
//! They are generated from the names that the code uses, so that no field and no permission is missing; the files in
//! `manifests/` are printed by these functions.

mod builds;
mod network;
mod rbac;
#[cfg(feature = "management")]
mod roles;
mod server;

use rollhook_core::app::Namespace;
use serde_json::Value;

use crate::store::crd;

/// The default namespace of the server's own objects.
pub const NAMESPACE: &str = "rollhook";

/// The ServiceAccount of the server, and the name of all that gives it permissions.
pub const SERVICE_ACCOUNT: &str = "rollhook";

/// The custom resources of the Kubernetes store.
pub fn crds() -> String {
    let definitions = crd::definitions().map(|definition| serde_json::to_value(definition).unwrap_or_default());
    print(
        "rollhook's custom resources: `RollhookApp`; `AppDeploy`, one for each revision of an app; and `ServerRecord`, one for each\n\
         of the server's own records.",
        definitions,
    )
}

/// The ServiceAccount of a server in this namespace, and its permissions: for its own objects, and for the apps in each
/// of these namespaces. Nothing of it reads Secrets or changes workloads anywhere else. `reviews`: it may ask who a caller
/// is and what the caller may do as well.
pub fn rbac(namespace: &str, app_namespaces: &[Namespace], reviews: bool) -> String {
    let about = "What rollhook may do. For each namespace that apps are in, there is a RoleBinding: without it, nothing in\n\
                 there is read but rollhook's own custom resources, and single Leases. Print it for your namespaces, which must be there, and\n\
                 again with each new one.";
    let reviews = if reviews { rbac::reviews(namespace) } else { Vec::new() };
    print(about, rbac::objects(namespace, app_namespaces).into_iter().chain(reviews))
}

/// The ClusterRoles of viewers, deployers and admins, for callers whom the cluster knows.
#[cfg(feature = "management")]
pub fn roles() -> String {
    let about = "Roles for callers whom the cluster knows, as rollhook's table has them: bind one in a namespace of apps by a\n\
                 RoleBinding, or everywhere by a ClusterRoleBinding.";
    print(about, roles::objects())
}

/// The namespace of builds of git apps, for a server in `namespace`: what builds may reach, and what the server may do
/// there. `registry_ports` are those of registries and git hosts that are not at 443, 80 or 22.
pub fn builds(namespace: &str, builds: &str, registry_ports: &[u16]) -> String {
    let about = "The namespace of builds, where nothing else should be. Its policies take effect where the cluster's network\n\
                 plug-in enforces NetworkPolicy. Builds reach names, git hosts and registries, and nothing reaches them.";
    print(about, builds::objects(namespace, builds, registry_ports))
}

/// Two replicas of the server, as an example to start from, and what they may reach. `image` is where you keep its
/// image; `builds` is the namespace of builds, where it has git apps built in the cluster, with the ports as in
/// [`builds`]. `identity` is the audience of the cluster's tokens by which callers may prove themselves.
pub fn server(namespace: &str, image: &str, builds: Option<(&str, &[u16])>, identity: Option<&str>) -> String {
    let about = server::about(namespace, builds.map(|(namespace, _)| namespace));
    let builds = builds.map(|(namespace, ports)| server::Builds { namespace, ports });
    print(&about, server::objects(namespace, image, builds, identity))
}

/// The permissions and connections of server and builds, and the roles of callers, as data for the templates of the Helm chart.
#[cfg(feature = "management")]
pub fn chart() -> String {
    let about = "The permissions and connections of server and builds, and roles of callers. Generated: see templates/rbac.yaml.";
    let data = serde_json::json!({
        "apps": rbac::in_app_namespaces(),
        "everywhere": rbac::everywhere(),
        "own": rbac::in_own_namespace(),
        "reviews": rbac::of_reviews(),
        "roles": roles::all().collect::<std::collections::BTreeMap<_, _>>(),
        "builds": {"labels": builds::labels(), "namespace": builds::rules(), "everywhere": builds::everywhere()},
        "egress": {"names": network::names(), "anywhere": network::anywhere()},
        "ports": {"apiServers": server::API_SERVERS, "gitHosts": builds::PORTS},
    });
    print(about, [data])
}

/// The documents, with a comment before them.
fn print(about: &str, documents: impl IntoIterator<Item = Value>) -> String {
    let mut text: String = about.lines().map(|line| format!("{}\n", format!("# {line}").trim_end())).collect();
    for document in documents {
        text.push_str("---\n");
        // JSON can always be written as YAML.
        text.push_str(&serde_saphyr::to_string(&document).unwrap_or_default());
    }
    text
}
