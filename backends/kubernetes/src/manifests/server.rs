//! An example of how the server runs in a cluster.

use serde_json::{Value, json};

use super::SERVICE_ACCOUNT;

const KEYS: &str = "rollhook-keys";
const ADMIN: &str = "rollhook-admin-token";
const PORT: u16 = 8080;
/// Nobody's number: the server needs no user of its own.
const USER: u32 = 65532;

pub(super) fn about(namespace: &str) -> String {
    format!(
        "An example: two replicas of rollhook's server behind one Service. Fill in the image, and the URL by which CI\n\
         reaches the Service. Make the keys that tokens are sealed with, and the management token, once:\n\
         \n\
         \x20 rollhook-server keys new keys && rollhook-server admin-token new admin-token\n\
         \x20 kubectl create secret generic {KEYS} --namespace {namespace} --from-file=keys\n\
         \x20 kubectl create secret generic {ADMIN} --namespace {namespace} --from-file=admin-token\n\
         \n\
         Keep a copy of the keys: without them no stored token can be read.\n\
         \n\
         With the kubernetes store, a replica remembers about half a kilobyte of each deploy that is kept, so 100 kB of an\n\
         app with a full history: the memory below is enough for some 3000 apps."
    )
}

pub(super) fn objects(namespace: &str, image: &str) -> [Value; 2] {
    let labels = json!({"app.kubernetes.io/name": "rollhook"});
    let metadata = json!({"name": "rollhook", "namespace": namespace, "labels": labels});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod(image)},
        },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    });
    [deployment, service]
}

fn pod(image: &str) -> Value {
    // Owned by root and readable by the pod's group alone, which is how the server accepts keys that it cannot own.
    let volume = |name: &str| json!({"name": name, "secret": {"secretName": name, "defaultMode": 0o440}});
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/etc/rollhook/{name}"), "readOnly": true});
    let container = json!({
        "name": "rollhook",
        "image": image,
        "env": environment(),
        "ports": [{"name": "http", "containerPort": PORT}],
        // A check may wait a second for its turn at the API server.
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 5, "timeoutSeconds": 5},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [mount(KEYS), mount(ADMIN)],
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
        "volumes": [volume(KEYS), volume(ADMIN)],
    })
}

fn environment() -> Vec<Value> {
    let variables = [
        ("ROLLHOOK_LISTEN", format!("0.0.0.0:{PORT}")),
        ("ROLLHOOK_BASE_URL", "https://rollhook.example.com".to_owned()),
        ("ROLLHOOK_STORE", "kubernetes".to_owned()),
        ("ROLLHOOK_DRIVER", "kubernetes".to_owned()),
        ("ROLLHOOK_KEY_DIR", format!("/etc/rollhook/{KEYS}")),
        ("ROLLHOOK_ADMIN_TOKEN_FILE", format!("/etc/rollhook/{ADMIN}/admin-token")),
        ("ROLLHOOK_LOG_FORMAT", "json".to_owned()),
    ];
    variables.map(|(name, value)| json!({"name": name, "value": value})).into()
}
