//! The chart on a real API server: what it renders is accepted, and says what the server's own manifests say.

use std::fs;

use rollhook_testing::{
    beds::{Kind, Kubectl},
    process::tool,
    server, test_name,
};
use serde_json::{Value, json};

use crate::helm::{Helm, chart};

/// The namespaces that value sets name, made once; dry runs leave nothing in them.
fn cluster(test: &str) -> Option<(Kubectl, Helm)> {
    let kubectl = Kubectl { state: Kind::Cluster.lent_for(test)?, namespace: String::new() };
    let helm = Helm::on(&kubectl, test)?;
    Some((kubectl, helm))
}

struct Namespaces<'a>(&'a Kubectl, String);

impl<'a> Namespaces<'a> {
    /// Namespaces of a server, of apps and of builds.
    fn make(kubectl: &'a Kubectl, name: &str) -> Self {
        let made = Self(kubectl, format!("{name}-{}", std::process::id()));
        for namespace in made.all() {
            kubectl.run(&["create", "namespace", &namespace]);
        }
        made
    }

    fn all(&self) -> [String; 3] {
        ["", "-test", "-builds"].map(|suffix| format!("{}{suffix}", self.1))
    }
}

impl Drop for Namespaces<'_> {
    fn drop(&mut self) {
        for namespace in self.all() {
            Kubectl { namespace, ..self.0.clone() }.remove_namespace();
        }
    }
}

const BUILDER: &str = "r.example.com/builder@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn render(helm: &Helm, namespace: &str, sets: &[&str]) -> String {
    let directory = chart();
    let mut arguments = vec!["template", "rollhook", directory.to_str().unwrap(), "--namespace", namespace];
    for set in sets {
        arguments.extend(["--set", set]);
    }
    helm.run(&arguments)
}

#[test]
fn chart_is_linted_and_its_objects_are_accepted_by_an_api_server() {
    let Some((kubectl, helm)) = cluster(&test_name!()) else { return };
    let namespaces = Namespaces::make(&kubectl, "chart");
    let [own, apps, builds] = &namespaces.all();
    helm.run(&["lint", "--strict", chart().to_str().unwrap()]);
    let of_apps = format!("appNamespaces={{{apps}}}");
    let of_builds = format!("builds.namespace={builds}");
    let image = format!("builds.image={BUILDER}");
    let sets: [&[&str]; 5] = [
        &[],
        &[
            &of_apps,
            "ingress.enabled=true",
            "ingress.host=deploys.example.com",
            "ingress.tlsSecret=tls",
            "trustedProxies={10.0.0.0/8,fd00::/8}",
            "signIn.existingSecret=sign-in",
        ],
        &[
            &of_apps,
            "store.type=postgres",
            "store.postgres.existingSecret=database",
            "replicaCount=3",
            "secrets.create=false",
        ],
        &[
            "rbac.clusterWide=true",
            "networkPolicy.enabled=false",
            "podDisruptionBudget.enabled=false",
            "extraEnv[0].name=ROLLHOOK_RATE_LIMIT",
            "extraEnv[0].value=off",
            "affinity.nodeAffinity=null",
            "log.format=text",
            "kubernetesIdentity.enabled=true",
            "kubernetesIdentity.audience=https://deploys.example.com",
            "receivers.allowedHosts={*.example.com,192.0.2.1}",
            "receivers.allowLocal=true",
            "registries.loginsSecret=logins",
            "registries.allowedHosts={registry.example.com,*.example.org}",
            "registries.insecure={registry.example.org:5000}",
            "signatures.rootConfigMap=trust-root",
            "traces.endpoint=http://collector.observability:4318",
        ],
        &[
            &of_apps,
            "builds.enabled=true",
            "builds.createNamespace=false",
            &of_builds,
            &image,
            "builds.ports={5000}",
            "builds.slots=3",
            "builds.memory=1Gi",
            "builds.registrySecret=registry",
            "builds.credentialsSecret=sources",
        ],
    ];
    for set in sets {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), render(&helm, own, set)).unwrap();
        kubectl.run(&["--namespace=", "apply", "--dry-run=server", "--filename", file.path().to_str().unwrap()]);
    }
}

#[test]
fn objects_of_other_projects_resources_are_accepted_by_an_api_server() {
    let test = test_name!();
    let Some((kubectl, helm)) = cluster(&test) else { return };
    let Some(resources) = tool("crds", &test) else { return };
    let resources = resources.to_str().unwrap().to_owned();
    kubectl.run(&["--namespace=", "apply", "--server-side", "--force-conflicts", "--filename", &resources]);
    kubectl.run(&["--namespace=", "wait", "--for=condition=Established", "--timeout=60s", "--filename", &resources]);
    let namespaces = Namespaces::make(&kubectl, "chart-others");
    let rendered = render(
        &helm,
        &namespaces.all()[0],
        &[
            "httpRoute.enabled=true",
            "httpRoute.parentRefs[0].name=public",
            "httpRoute.hostnames={deploys.example.com}",
            "trustedProxies={10.0.0.0/8}",
            "serviceMonitor.enabled=true",
            "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus",
            "prometheusRule.enabled=true",
            "prometheusRule.runbookUrl=https://docs.example.com/runbook/PAGE.html",
            "grafanaDashboard.enabled=true",
        ],
    );
    // A field that the resource does not know is an error; rollhook's own resources may be there already.
    let accepted = documents(&kubectl, &rendered, &["apply", "--dry-run=server", "--validate=strict"]);
    let of = |kind: &str| {
        let found = accepted.iter().find(|object| object["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind}: {rendered}"))
    };
    assert_eq!(of("HTTPRoute")["spec"]["hostnames"], json!(["deploys.example.com"]));
    assert_eq!(of("ServiceMonitor")["spec"]["endpoints"][0]["path"], "/metrics");
    let incoming = &of("NetworkPolicy")["spec"]["ingress"];
    assert_eq!(
        (incoming[0]["ports"][0]["port"].as_u64(), incoming[0]["ports"].as_array().unwrap().len()),
        (Some(8080), 1)
    );
    assert_eq!(incoming[1]["ports"][0]["port"], 8081);
    assert_eq!(incoming[1]["from"][0]["podSelector"]["matchLabels"]["app"], "prometheus");
    let alert = &of("PrometheusRule")["spec"]["groups"][0]["rules"][0];
    assert_eq!(alert["annotations"]["runbook_url"], "https://docs.example.com/runbook/deploy-failed.html");
    let dashboard: Value = serde_json::from_str(of("ConfigMap")["data"]["rollhook.json"].as_str().unwrap()).unwrap();
    assert_eq!(dashboard["title"], "rollhook");
    assert!(rendered.contains(r#"value: "https://deploys.example.com""#), "{rendered}");
}

#[test]
fn values_that_cannot_work_are_refused_with_their_name() {
    let Some((_, helm)) = cluster(&test_name!()) else { return };
    let directory = chart();
    for (set, told) in [
        ("replicas=3", "replicas"),
        ("image.tagg=1", "tagg"),
        ("appNamespaces={Shop_Test}", "appNamespaces"),
        ("replicaCount=0", "replicaCount"),
        ("store.type=sqlite", "store/type"),
        ("baseUrl=deploys.example.com", "baseUrl"),
        ("builds.image=builder:latest", "builds/image"),
        ("trustedProxies={proxy}", "trustedProxies"),
        ("store.type=postgres", "store.postgres.existingSecret"),
        ("ingress.enabled=true", "ingress.host"),
        ("ingress.enabled=true,ingress.host=deploys.example.com", "trustedProxies"),
        ("httpRoute.enabled=true", "httpRoute.parentRefs"),
        ("httpRoute.enabled=true,httpRoute.parentRefs[0].name=public", "trustedProxies"),
        ("serviceMonitor.enabled=true", "networkPolicy.metricsFrom"),
        ("builds.enabled=true", "builds.image"),
        ("signatures.rootConfigMap=Trust_Root", "signatures/rootConfigMap"),
        ("prometheusRule.runbookUrl=https://docs.example.com", "prometheusRule/runbookUrl"),
        ("appNamespaces={rollhook}", "rollhook is the server's own namespace"),
    ] {
        let arguments = ["template", "rollhook", directory.to_str().unwrap(), "--namespace", "rollhook", "--set", set];
        let said = helm.fails(&arguments);
        assert!(said.contains(told) || said.contains(&told.replace('/', ".")), "{set}: {said}");
    }
}

#[test]
fn trust_root_of_signatures_is_mounted_where_the_server_reads_it() {
    let Some((kubectl, helm)) = cluster(&test_name!()) else { return };
    let named = |list: &Value, name: &str| {
        let found = list.as_array().unwrap().iter().find(|item| item["name"] == name);
        found.cloned().unwrap_or_default()
    };
    let parts = |sets: &[&str]| {
        let rendered = documents(&kubectl, &render(&helm, "rollhook", sets), &LOCAL);
        let deployment = rendered.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let variable = named(&container["env"], "ROLLHOOK_SIGNATURE_ROOT");
        [named(&pod["volumes"], "signatures"), named(&container["volumeMounts"], "signatures"), variable]
    };
    let [volume, mount, variable] = parts(&["signatures.rootConfigMap=trust-root"]);
    assert_eq!(volume["configMap"]["name"], "trust-root");
    assert_eq!(mount["readOnly"], true);
    assert_eq!(variable["value"], format!("{}/trusted_root.json", mount["mountPath"].as_str().unwrap()));
    assert_eq!(parts(&[]), [Value::Null, Value::Null, Value::Null]);
}

#[test]
fn chart_and_printed_manifests_say_the_same() {
    let Some((kubectl, helm)) = cluster(&test_name!()) else { return };
    let chart = documents(
        &kubectl,
        &render(
            &helm,
            "rollhook",
            &[
                "appNamespaces={shop-test}",
                "image.repository=r.example.com/rollhook-server",
                "image.tag=v1",
                "baseUrl=https://rollhook.example.com",
                "trustedProxies={192.0.2.0/24}",
                "secrets.create=false",
                "secrets.keys=keys",
                "secrets.adminToken=admin-token",
                "builds.enabled=true",
                &format!("builds.image={BUILDER}"),
                "builds.registrySecret=build-registry",
                "builds.credentialsSecret=build-credentials",
                "builds.ports={5000}",
                "kubernetesIdentity.enabled=true",
            ],
        ),
        &LOCAL,
    );
    let printed = server!()
        .command()
        .args(["manifests", "--app-namespace", "shop-test"])
        .args(["--image", "r.example.com/rollhook-server:v1", "--build-namespace", "rollhook-builds"])
        .args(["--build-registry-port", "5000", "--kubernetes-identity"])
        .output()
        .unwrap();
    // The example names its Secrets, and what is to be filled in, differently.
    let printed = String::from_utf8(printed.stdout)
        .unwrap()
        .replace("rollhook-build-registry", "build-registry")
        .replace("rollhook-build-credentials", "build-credentials")
        .replace("rollhook-keys", "keys")
        .replace("rollhook-admin-token", "admin-token")
        .replace("registry.example.com/rollhook/builder@sha256:FILL-IN", BUILDER)
        // The chart mounts no Secret that is not named.
        .replace("          optional: true\n", "");
    let printed = documents(&kubectl, &printed, &LOCAL);
    assert!(printed.len() > 15, "{printed:?}");
    for object in &printed {
        let same = chart.iter().find(|other| identity(other) == identity(object));
        let same = same.unwrap_or_else(|| panic!("the chart lacks {:?}", identity(object)));
        if let Some(difference) = difference(object, same) {
            panic!("{:?}: {difference}", identity(object));
        }
        // No more rights, and no more connections.
        for exact in ["rules", "subjects", "roleRef"].into_iter().filter(|exact| object.get(exact).is_some()) {
            assert_eq!(object[exact], same[exact], "{:?}", identity(object));
        }
        if object["kind"] == "NetworkPolicy" {
            assert_eq!(
                object["spec"]["egress"].as_array().map(Vec::len),
                same["spec"]["egress"].as_array().map(Vec::len)
            );
        }
    }
    let further: Vec<_> =
        chart.iter().map(identity).filter(|one| printed.iter().all(|other| identity(other) != *one)).collect();
    let budget = json!(["PodDisruptionBudget", "rollhook", "rollhook"]);
    assert_eq!(further.iter().map(|of| json!(of)).collect::<Vec<_>>(), [budget]);
}

/// The objects of a stream of documents, as the server or kubectl itself takes them.
fn documents(kubectl: &Kubectl, text: &str, command: &[&str]) -> Vec<Value> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let of_file = ["--output=json", "--filename", file.path().to_str().unwrap()];
    let json = Kubectl { namespace: String::new(), ..kubectl.clone() }.run(&[command, &of_file[..]].concat());
    let read = serde_json::Deserializer::from_str(&json).into_iter::<Value>().map(Result::unwrap);
    read.flat_map(|read| read["items"].as_array().cloned().unwrap_or_else(|| vec![read])).collect()
}

/// The checks of kubectl alone.
const LOCAL: [&str; 3] = ["create", "--dry-run=client", "--validate=false"];

fn identity(object: &Value) -> [Option<&str>; 3] {
    let metadata = &object["metadata"];
    [object["kind"].as_str(), metadata["namespace"].as_str(), metadata["name"].as_str()]
}

/// Returns the first thing of a document that another one lacks; the other one may have more.
fn difference(wanted: &Value, found: &Value) -> Option<String> {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(key, value)| {
            let inner = difference(value, found.get(key).unwrap_or(&Value::Null));
            inner.map(|inner| format!(".{key}{inner}"))
        }),
        (Value::Array(wanted), Value::Array(found)) => {
            let lacks = |value: &&Value| found.iter().all(|other| difference(value, other).is_some());
            wanted.iter().find(lacks).map(|value| format!(" lacks {value}: {found:?}"))
        }
        (wanted, found) => (wanted != found).then(|| format!(" is {found}, not {wanted}")),
    }
}
