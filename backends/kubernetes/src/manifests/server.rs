//! An example of a server in a cluster.

use serde_json::{Value, json};

use super::{
    SERVICE_ACCOUNT,
    builds::PORTS,
    network::{egress, policy},
};

const KEYS: &str = "rollhook-keys";
const ADMIN: &str = "rollhook-admin-token";
const SOURCES: &str = "rollhook-build-credentials";
const REGISTRY: &str = "rollhook-build-registry";
/// The directory for temporary files, such as git's while it reads a branch.
const TEMPORARY: &str = "/tmp";
const PORT: u16 = 8080;
/// The ports at which API servers are reached: through their Service, and at their own addresses.
pub(super) const API_SERVERS: [u16; 2] = [443, 6443];
const PROBE_PORT: u16 = 8081;
/// A number that no user has: the server needs no user of its own.
const USER: u32 = 65532;

/// The builds that a server starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Builds<'a> {
    pub(super) namespace: &'a str,
    /// The ports of registries and git hosts beside the usual ones.
    pub(super) ports: &'a [u16],
}

pub(super) fn about(namespace: &str, builds: Option<&str>) -> String {
    let mut about = format!(
        "An example: two replicas of rollhook's server behind one Service. Fill in the image, the URL by which CI reaches\n\
         the Service, and the network of the proxy in front of it (ROLLHOOK_TRUSTED_PROXY). Make the keys that tokens are\n\
         sealed with, and the admin token, once:\n\
         \n\
         \x20 rollhook-server keys new keys && rollhook-server admin-token new admin-token\n\
         \x20 kubectl create secret generic {KEYS} --namespace {namespace} --from-file=keys\n\
         \x20 kubectl create secret generic {ADMIN} --namespace {namespace} --from-file=admin-token\n\
         \n\
         Keep a copy of the keys: without them no stored token can be read.\n\
         \n\
         With the kubernetes store, a replica remembers about 10 kB of each app, and 200 bytes of each deploy that is kept:\n\
         the memory below is enough for some 3000 apps with a full history.\n\
         \n\
         The NetworkPolicy takes effect where the cluster's network plug-in enforces it. It lets the server reach the\n\
         cluster's own DNS, by its usual labels, and the API server at port 443 or 6443; adapt it where yours differ. Metrics\n\
         are at port {PROBE_PORT}, which it opens to nobody: add a rule that lets your Prometheus in."
    );
    if builds.is_some() {
        about.push_str(&format!(
            "\n\n\
             For builds, fill in the builder's image by its digest. The server reads branches itself: its image needs git, and\n\
             for sources over ssh also ssh and a line for the user {USER} in /etc/passwd. Make docker's config.json with the\n\
             logins of registries (without any: {{\"auths\": {{}}}}) and, where sources want credentials, a directory of them:\n\
             \n\
             \x20 kubectl create secret generic {REGISTRY} --namespace {namespace} --from-file=config.json\n\
             \x20 kubectl create secret generic {SOURCES} --namespace {namespace} --from-file=credentials/"
        ));
    }
    about
}

pub(super) fn objects(namespace: &str, image: &str, builds: Option<Builds<'_>>, identity: Option<&str>) -> [Value; 3] {
    let labels = json!({"app.kubernetes.io/name": "rollhook"});
    let metadata = json!({"name": "rollhook", "namespace": namespace, "labels": labels});
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod(image, builds.map(|builds| builds.namespace))},
        },
    });
    let variables = &mut deployment["spec"]["template"]["spec"]["containers"][0]["env"];
    if let (Some(audience), Some(variables)) = (identity, variables.as_array_mut()) {
        variables.push(json!({"name": "ROLLHOOK_KUBERNETES_IDENTITY", "value": audience}));
    }
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    });
    [deployment, service, policy(namespace, "rollhook", labels, connections(builds))]
}

/// Calls come in from anywhere. Probes are the node's own, which no policy keeps out, and nobody else reads metrics. The
/// server calls the cluster, and, where it has git apps built, git hosts.
fn connections(builds: Option<Builds<'_>>) -> Value {
    let git_hosts = builds.iter().flat_map(|builds| PORTS.iter().chain(builds.ports));
    json!({
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": PORT}]}],
        "egress": egress(API_SERVERS.iter().chain(git_hosts).copied()),
    })
}

/// The Secrets that the pod has mounted, and whether it starts without them.
fn secrets(builds: Option<&str>) -> Vec<(&'static str, bool)> {
    let always = [(KEYS, false), (ADMIN, false)];
    // Sources may need no credentials, and the server accepts an empty directory.
    let of_builds = builds.map(|_| [(REGISTRY, false), (SOURCES, true)]);
    always.into_iter().chain(of_builds.into_iter().flatten()).collect()
}

fn pod(image: &str, builds: Option<&str>) -> Value {
    let secrets = secrets(builds);
    // Owned by root and readable by the pod's group alone, which is how the server accepts keys that it cannot own.
    let volume = |&(name, optional): &(&str, bool)| {
        let mut volume = json!({"name": name, "secret": {"secretName": name, "defaultMode": 0o440}});
        if optional {
            volume["secret"]["optional"] = json!(true);
        }
        volume
    };
    let mount = |&(name, _): &(&str, bool)| json!({"name": name, "mountPath": format!("/etc/rollhook/{name}"), "readOnly": true});
    let temporary = json!({"name": "temporary", "emptyDir": {"sizeLimit": "64Mi"}});
    let writable = json!({"name": "temporary", "mountPath": TEMPORARY});
    let container = json!({
        "name": "rollhook",
        "image": image,
        "env": environment(builds),
        "ports": [{"name": "http", "containerPort": PORT}, {"name": "probes", "containerPort": PROBE_PORT}],
        // A check may wait a second for its turn at the API server.
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "probes"}, "periodSeconds": 5, "timeoutSeconds": 5},
        // The server waits for an API server that does not answer.
        "startupProbe": {
            "httpGet": {"path": "/healthz", "port": "probes"}, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 36,
        },
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "probes"}, "periodSeconds": 10, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": secrets.iter().map(mount).chain([writable]).collect::<Vec<_>>(),
    });
    json!({
        "serviceAccountName": SERVICE_ACCOUNT,
        // Calls that wait for a deploy are answered before the server stops.
        "terminationGracePeriodSeconds": 60,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": secrets.iter().map(volume).chain([temporary]).collect::<Vec<_>>(),
    })
}

fn environment(builds: Option<&str>) -> Vec<Value> {
    let mut variables = vec![
        ("ROLLHOOK_LISTEN", format!("0.0.0.0:{PORT}")),
        ("ROLLHOOK_PROBE_LISTEN", format!("0.0.0.0:{PROBE_PORT}")),
        ("ROLLHOOK_BASE_URL", "https://rollhook.example.com".to_owned()),
        // Addresses of documentation, which nobody has.
        ("ROLLHOOK_TRUSTED_PROXY", "192.0.2.0/24".to_owned()),
        ("ROLLHOOK_STORE", "kubernetes".to_owned()),
        ("ROLLHOOK_DRIVER", "kubernetes".to_owned()),
        ("ROLLHOOK_KEY_DIR", format!("/etc/rollhook/{KEYS}")),
        ("ROLLHOOK_ADMIN_TOKEN_FILE", format!("/etc/rollhook/{ADMIN}/admin-token")),
        ("ROLLHOOK_LOG_FORMAT", "json".to_owned()),
    ];
    if let Some(namespace) = builds {
        variables.extend([
            ("ROLLHOOK_BUILD_NAMESPACE", namespace.to_owned()),
            ("ROLLHOOK_BUILD_IMAGE", "registry.example.com/rollhook/builder@sha256:FILL-IN".to_owned()),
            ("ROLLHOOK_BUILD_REGISTRY_CONFIG", format!("/etc/rollhook/{REGISTRY}/config.json")),
            ("ROLLHOOK_BUILD_CREDENTIALS", format!("/etc/rollhook/{SOURCES}")),
        ]);
    }
    variables.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the volumes that are mounted at a place, and whether they may be written to.
    fn mounted(pod: &Value, place: &str) -> Option<(String, bool)> {
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let found = mounts.iter().find(|mount| {
            let path = mount["mountPath"].as_str().unwrap();
            place == path || place.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
        })?;
        Some((found["name"].as_str().unwrap().to_owned(), found["readOnly"] != json!(true)))
    }

    #[test]
    fn paths_that_the_server_reads_or_writes_are_volumes() {
        for builds in [None, Some("rollhook-builds")] {
            let pod = pod("registry.example.com/rollhook-server:1", builds);
            let volumes: Vec<&str> =
                pod["volumes"].as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap()).collect();
            // The root file system is read-only, and git's directory is made where temporary ones are.
            assert_eq!(mounted(&pod, TEMPORARY), Some(("temporary".to_owned(), true)));
            let paths = environment(builds).into_iter().map(|variable| variable["value"].as_str().unwrap().to_owned());
            for path in paths.filter(|value| value.starts_with('/')) {
                let (name, writable) = mounted(&pod, &path).unwrap_or_else(|| panic!("{path} is nowhere"));
                assert!(volumes.contains(&&*name) && !writable, "{path}");
            }
        }
    }

    #[test]
    fn build_settings_are_present_only_with_builds() {
        let names = |builds| -> Vec<String> {
            environment(builds).iter().map(|variable| variable["name"].as_str().unwrap().to_owned()).collect()
        };
        assert!(!names(None).iter().any(|name| name.contains("BUILD")));
        assert!(names(Some("rollhook-builds")).iter().any(|name| name == "ROLLHOOK_BUILD_IMAGE"));
        assert!(about("rollhook", Some("rollhook-builds")).contains("git"));
    }

    #[test]
    fn callers_of_the_cluster_are_let_in_only_where_an_audience_is_named() {
        let variables = |identity| objects("rollhook", "rollhook-server:1", None, identity)[0].to_string();
        let is_set = |identity| variables(identity).contains("ROLLHOOK_KUBERNETES_IDENTITY");
        assert!(!is_set(None) && is_set(Some("rollhook")));
    }

    #[test]
    fn server_reaches_the_api_server_and_git_hosts_only_with_builds() {
        let policy = |builds| objects("rollhook", "rollhook-server:1", builds, None)[2].clone();
        let ports = |policy: &Value| -> Vec<u64> {
            let ports = policy["spec"]["egress"][1]["ports"].as_array().unwrap();
            ports.iter().map(|port| port["port"].as_u64().unwrap()).collect()
        };
        assert_eq!(ports(&policy(None)), [443, 6443]);
        let builds = Builds { namespace: "rollhook-builds", ports: &[5000] };
        assert_eq!(ports(&policy(Some(builds))), [22, 80, 443, 5000, 6443]);
        let [deployment, ..] = objects("rollhook", "rollhook-server:1", None, None);
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        assert_eq!(policy(None)["spec"]["podSelector"]["matchLabels"], *labels);
        let opened = &deployment["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"];
        let incoming = &policy(None)["spec"]["ingress"];
        assert_eq!(*incoming, json!([{"ports": [{"protocol": "TCP", "port": opened}]}]), "calls, and no metrics");
    }
}
