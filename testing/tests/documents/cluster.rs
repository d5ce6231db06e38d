//! Pages about a cluster: one in which the chart is installed, and one without it. Its pods are simulated, so the server
//! is a process on this machine, on the cluster's store.

use rollhook_testing::{
    beds::{Kubectl, OwnCluster, Postgres},
    documents::{self, blocks},
    process::tool,
    skip, test_name,
};

use crate::{
    pages::{Place, pages_on},
    script::Reader,
};

/// The work of pods. The Secrets are made as the chart's Job makes them, the server runs as its Deployment runs it, and
/// its log is what `kubectl logs` shows of the pods.
const PODS: &str = r#"
make_secrets() {
  kubectl create namespace rollhook
  rollhook-server secrets --namespace rollhook
}
mount_secret() { # NAME DIRECTORY
  local file contents each='{{range $file, $contents := .data}}{{$file}} {{$contents}}{{"\n"}}{{end}}'
  mkdir -p $2
  kubectl get secret $1 --namespace rollhook -o go-template="$each" | while read -r file contents; do
    base64 -d <<< "$contents" > $2/$file
  done
}
serve_cluster() {
  mount_secret rollhook-keys keys
  mount_secret rollhook-admin-token .
  chmod -R go= keys admin-token
  serve rollhook-server --store kubernetes --driver kubernetes --key-dir keys --admin-token-file admin-token "$@"
}
show_log() {
  for POD in $(kubectl get pods --namespace rollhook --selector app.kubernetes.io/name=rollhook \
      -o jsonpath='{.items[*].metadata.name}'); do
    mkdir -p "$LOGS/rollhook/$POD"
    cp server.log "$LOGS/rollhook/$POD/rollhook"
  done
}
"#;

/// A reader at a cluster.
fn reader(cluster: &OwnCluster, test: &str) -> Option<Reader> {
    let environment = std::fs::read_to_string(cluster.state.join("env")).unwrap();
    let program = environment.split_whitespace().find_map(|word| word.strip_prefix("KUBECTL=")).unwrap();
    let file = |name: &str| cluster.state.join(name).display().to_string();
    let reader = Reader::new().program("helm", &tool("bin/helm", test)?).program("kubectl", program.as_ref());
    let url = format!("http://{}", reader.address);
    Some(
        reader
            .with("KUBECONFIG", &file("kubeconfig"))
            .with("KUBECACHEDIR", &file("kubectl-cache"))
            .with("LOGS", &file("logs"))
            .with("URL", &url)
            .knows(PODS)
            .reads("http://127.0.0.1:8080", &url)
            .reads("https://rollhook.example.com", &url)
            .reads("http://SERVER", &url)
            .reads("POD", "$POD")
            .reads("IMAGE", "registry.example.com/api:v2")
            .reads("sha256:DIGEST", &format!("sha256:{}", "0".repeat(64))),
    )
}

#[test]
fn pages_about_a_cluster_with_the_chart_work_as_they_are_pasted() {
    let test = test_name!();
    let Some(cluster) = OwnCluster::up(&test) else { return };
    let (install, others): (Vec<_>, Vec<_>) = pages_on(Place::Cluster).partition(|page| page.path == "docs/install.md");
    let mut failures = Vec::new();
    for page in install.into_iter().chain(others) {
        let Some(reader) = reader(&cluster, &test) else { return };
        failures.extend(reader.pastes(page, Place::Cluster));
    }
    let text = documents::page("docs/access.md");
    let [role] = blocks(&text, "yaml")[..] else { panic!("docs/access.md has another file than the role") };
    Kubectl { state: cluster.state.clone(), namespace: String::new() }.apply(role);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn pages_about_a_cluster_without_the_chart_work_as_they_are_pasted() {
    let test = test_name!();
    let Some(cluster) = OwnCluster::up(&test) else { return };
    let database = match Postgres::own() {
        Ok(database) => database,
        Err(reason) => return skip(&test, reason),
    };
    let Some(reader) = reader(&cluster, &test) else { return };
    let reader = reader.reads("postgres://rollhook@db.example.com/rollhook", &database.url("url").unwrap());
    let address = reader.address.clone();
    let reader = reader.reads("0.0.0.0:8080", &address);
    let failures: Vec<_> = pages_on(Place::Bare).filter_map(|page| reader.pastes(page, Place::Bare)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
