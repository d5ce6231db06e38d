//! Where people with `kubectl` look first: names, columns, Events and statuses of rollhook's objects; and what a server says
//! whose objects, permissions or credentials were taken away.

use rollhook_testing::{App, server::registration, test_name, until};
use serde_json::{Value, json};

use crate::store::{APP, Place, deploy, ended};

const V2: &str = "r.example.com/api:v2";

/// The custom resource of Argo CD's applications, by the names that it is published with.
const ARGO_CD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: applications.argoproj.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: argoproj.io
  names: {kind: Application, listKind: ApplicationList, plural: applications, shortNames: [app, apps], singular: application}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// The Events about deploys as `kind reason`, in no order.
fn events(place: &Place) -> Vec<String> {
    let all = place.apps.get("events.events.k8s.io")["items"].as_array().unwrap().clone();
    let ours = all.iter().filter(|event| event["reportingController"] == "rollhook.dev/rollhook");
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let mut told: Vec<_> =
        ours.map(|event| format!("{} {}", word(&event["regarding"]["kind"]), word(&event["reason"]))).collect();
    told.sort();
    told
}

#[test]
fn apps_have_names_that_nobody_else_has_and_columns_and_events_tell_how_they_are() {
    let Some(place) = Place::make(&test_name!()) else { return };
    place.apps.apply(ARGO_CD);
    place.own.run(&["wait", "--for=condition=Established", "crd/applications.argoproj.io", "--timeout=30s"]);
    place.apps.apply(
        "{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: guestbook, namespace: shop-test}}",
    );
    let server = place.serve("replica-1");
    let quick = json!({"policy": {"settle": "0s", "patience": "1s"}});
    server.manage("POST", "/api/v1/apps").json(&registration("api", &quick)).expect(201);
    assert_eq!(ended(&server, 1)["status"], "succeeded");
    let app = App::new("shop-test", "api", server.enable(APP));
    assert_eq!(deploy(&server, &app, V2).status, 200);
    assert_eq!(deploy(&server, &app, "r.example.com/api:crash").status, 424);
    assert_eq!(ended(&server, 4)["status"], "succeeded", "the restore");

    for name in ["app", "apps"] {
        assert_eq!(place.apps.run(&["get", name, "--output", "name"]).trim(), "application.argoproj.io/guestbook");
    }
    for name in ["rhapp", "rollhookapp", "rollhookapps"] {
        let found = place.apps.run(&["get", name, "--output", "name"]);
        assert_eq!(found.trim(), "rollhookapp.rollhook.dev/api");
        place.apps.run(&["get", found.trim()]);
    }
    let table = place.apps.run(&["get", "rollhookapps"]);
    let words =
        |line: usize| table.lines().nth(line).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(0), ["NAME", "IMAGE", "STATUS", "CURRENT", "UNFINISHED", "AGE"], "{table}");
    assert_eq!(words(1)[..4], ["api", V2, "succeeded", "4"], "{table}");
    let table = place.apps.run(&["get", "appdeploys"]);
    assert!(table.lines().next().unwrap().ends_with("AGE") && !table.contains("<no value>"), "{table}");

    let steps = |kind: &str| {
        let told = ["Accepted"; 4].into_iter().chain(["Failed", "Restored", "Succeeded", "Succeeded"]);
        told.map(|step| format!("{kind} Deploy{step}")).collect::<Vec<_>>()
    };
    let expected = [steps("Deployment"), steps("RollhookApp")].concat();
    until("all is told", || (events(&place) == expected).then_some(()).ok_or_else(|| events(&place)));
    for object in ["deployment/api", "rollhookapp/api"] {
        let described = place.apps.run(&["describe", object]);
        for part in ["DeployFailed", "CrashLoopBackOff", "r.example.com/api:crash", "DeployRestored", "Warning"] {
            assert!(described.contains(part), "{part} in\n{described}");
        }
    }
    let all = place.apps.get("events.events.k8s.io").to_string();
    assert!(!all.contains(&app.token) && !all.contains("rh_"), "the token is to be read");
}

#[test]
fn hand_made_app_says_why_it_is_none() {
    let Some(place) = Place::make(&test_name!()) else { return };
    let server = place.serve("replica-1");
    place.apps.apply("{apiVersion: rollhook.dev/v1, kind: RollhookApp, metadata: {name: api, namespace: shop-test}, spec: {image: 'api:v1'}}");
    let message = || place.apps.get("rollhookapp/api")["status"]["message"].as_str().map(str::to_owned);
    let told = until("its status says so", message);
    assert!(told.contains("was not made by rollhook") && told.contains("rollhook app create api"), "{told}");
    assert!(place.apps.run(&["get", "rollhookapps"]).contains("NotRegistered"));
    assert_eq!(server.manage("GET", "/api/v1/apps").expect(200).json()["apps"], json!([]));

    let refused = server.manage("POST", "/api/v1/apps").json(&registration("api", &json!({}))).expect(503);
    assert!(refused.text().contains("kubectl delete rollhookapp api"), "{}", refused.text());
    place.apps.run(&["delete", "rollhookapp", "api"]);
    until("it can be registered", || {
        server.manage("POST", "/api/v1/apps").json(&registration("api", &json!({}))).send().status == 201
    });
    assert_eq!(server.log().matches("reading an app failed").count(), 1, "said once");
}

#[test]
fn list_without_custom_resources_is_no_empty_list() {
    let Some(place) = Place::make(&test_name!()) else { return };
    let server = place.serve("replica-1");
    assert_eq!(server.manage("GET", "/api/v1/apps").expect(200).json()["apps"], json!([]));
    let says = |words: &str| {
        until("the list says so", || {
            let answer = server.manage("GET", "/api/v1/apps").send();
            let text = answer.text();
            (answer.status == 503 && text.contains(words)).then_some(()).ok_or(text)
        });
    };
    place.own.run(&["delete", "crd", "rollhookapps.rollhook.dev", "appdeploys.rollhook.dev"]);
    says("rollhook-server manifests");
    // API tokens are records too: without them nobody is known who may read what the store says.
    place.own.run(&["delete", "crd", "serverrecords.rollhook.dev"]);
    says("the server's log says why");
    assert!(server.log().contains("the cluster does not know rollhook's custom resources"));
}

#[test]
fn second_installation_is_refused_and_leaves_the_first_one_as_it_is() {
    let Some(place) = Place::make(&test_name!()) else { return };
    place.own.run(&["create", "namespace", "other"]);
    let arguments = ["manifests", "--namespace", "other", "--app-namespace", "shop-test"];
    let printed = place.start.command().args(arguments).output().unwrap();
    let file = place.file("second.yaml");
    std::fs::write(&file, printed.stdout).unwrap();
    let applied = place.own.command(&["--namespace=", "apply", "--filename", file.to_str().unwrap()]).output().unwrap();
    let told = String::from_utf8(applied.stderr).unwrap();
    assert!(!applied.status.success() && told.matches("cannot change roleRef").count() == 2, "{told}");

    let server = place.serve("replica-1");
    server.manage("POST", "/api/v1/apps").json(&registration("api", &json!({"policy": {"settle": "0s"}}))).expect(201);
    assert_eq!(ended(&server, 1)["status"], "succeeded");
}

#[test]
fn namespace_without_a_grant_is_told_once() {
    let Some(place) = Place::make(&test_name!()) else { return };
    let one = place.serve("replica-1");
    one.manage("POST", "/api/v1/apps").json(&registration("api", &json!({"policy": {"settle": "0s"}}))).expect(201);
    assert_eq!(ended(&one, 1)["status"], "succeeded");
    drop(one);
    place.apps.run(&["delete", "rolebinding", "rollhook-apps"]);
    place.until_allowed("deployments", "list", "no");
    let two = place.serve("replica-2");
    let seen = |what: &str| two.log().matches(what).count();
    until("it is tried again", || seen("watching workloads at rest was interrupted") > 3);
    assert_eq!(seen("watching workloads is not permitted"), 1, "{}", two.log());
    assert!(seen("appNamespaces") >= 1);
    place.install();
    until("it is watched again", || two.manage("GET", APP).expect(200).json()["current"]["revision"] == 1);
}

#[test]
fn replaced_token_of_a_kubeconfig_is_read_again() {
    let Some(place) = Place::make(&test_name!()) else { return };
    let server = place.serve("replica-1");
    server.manage("POST", "/api/v1/apps").json(&registration("api", &json!({"policy": {"settle": "0s"}}))).expect(201);
    assert_eq!(ended(&server, 1)["status"], "succeeded");
    let app = App::new("shop-test", "api", server.enable(APP));
    // Tokens of an account that is made anew are others.
    place.own.run(&["delete", "serviceaccount", "rollhook"]);
    place.install();
    until("the old token is refused", || server.log().contains("does not accept its credentials"));
    place.write_kubeconfig();
    until("the new one is used", || deploy(&server, &app, V2).status == 200);
}
