//! The Secrets with the variables of apps, and the entries by which workloads name them.

use std::collections::BTreeSet;

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
        apps::v1::ReplicaSet,
        core::v1::Secret,
    },
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use rollhook_conformance::samples;
use rollhook_core::{
    configuration::{Configuration, Variables},
    deploy::Reason,
    ports::{Applied, ReleaseState, RolloutDriver, RolloutSpec},
};
use rollhook_kubernetes::WorkloadKind::{self, CronJob, DaemonSet, Deployment, StatefulSet};
use rollhook_testing::until_async;
use serde_json::{Value, json};

use crate::{
    bed::{self, Bed},
    permissions::{documented, driver},
    releases::{runner, spec},
};

/// A deploy with the configuration of this number.
fn configured(bed: &Bed, kind: WorkloadKind, revision: u64, number: u128) -> RolloutSpec {
    let configuration = samples::configuration(number, &[("A", "one"), ("B", "$(A)")]);
    let configuration = configuration.with(|configuration| configuration.is_new = true);
    bed.order(kind, revision, "api:v2").with(|spec| spec.configuration = Some(configuration))
}

fn secrets(bed: &Bed) -> Api<Secret> {
    Api::namespaced(bed.client.clone(), &bed.namespace)
}

async fn names(bed: &Bed) -> Vec<String> {
    let found = secrets(bed).list(&ListParams::default()).await.unwrap();
    found.items.into_iter().map(|secret| secret.metadata.name.unwrap()).collect()
}

fn name(number: u64) -> String {
    format!("api-config-{number:010x}000000")
}

fn owners(secret: Secret) -> Vec<String> {
    let owners = secret.metadata.owner_references.unwrap_or_default().into_iter();
    owners.map(|owner| owner.kind).collect::<BTreeSet<_>>().into_iter().collect()
}

async fn refused(bed: &Bed, spec: &RolloutSpec) -> (String, String) {
    let applied = bed.driver.apply(spec).await.unwrap();
    let Applied::Refused { reason, message } = applied else { panic!("{applied:?}") };
    (reason.as_str().to_owned(), message)
}

#[test]
fn workload_of_each_kind_names_the_secret_that_goes_with_it() {
    bed::test("workload_of_each_kind_names_the_secret_that_goes_with_it", async |bed| {
        for (number, kind) in (1..).zip([Deployment, StatefulSet, DaemonSet, CronJob]) {
            let theirs = json!({"configMapRef": {"name": "theirs", "optional": true}});
            let containers = json!([{"name": "app", "image": "api:v1", "envFrom": [theirs]}]);
            let pod = json!({"template": {"spec": {"containers": containers}}});
            bed.make(kind, "api:v1", if kind == CronJob { json!({"jobTemplate": {"spec": pod}}) } else { pod }).await;
            let spec = configured(bed, kind, number, number.into());
            bed.roll_out(&spec).await;
            let entries = async || {
                let object = bed.read(kind).await;
                let job = if kind == CronJob { &object["spec"]["jobTemplate"]["spec"] } else { &object["spec"] };
                job["template"]["spec"]["containers"][0]["envFrom"].clone()
            };
            assert_eq!(entries().await, json!([theirs, {"secretRef": {"name": name(number)}}]), "{kind}");
            let secret = secrets(bed).get(&name(number)).await.unwrap();
            assert_eq!(secret.data.as_ref().unwrap()["B"], ByteString(b"$(A)".to_vec()));
            assert_eq!((secret.immutable, owners(secret)), (Some(true), vec![kind.to_string()]));

            // A repeated call makes good what is missing.
            secrets(bed).delete(&name(number), &Default::default()).await.unwrap();
            bed.apply(&spec).await;
            assert_eq!(owners(secrets(bed).get(&name(number)).await.unwrap()), [kind.as_str()]);

            bed.roll_out(&bed.order(kind, number + 1, "api:v2")).await;
            assert_eq!(entries().await, json!([theirs]), "{kind}");
            bed.objects(kind).delete("api", &Default::default()).await.unwrap();
        }
    });
}

#[test]
fn old_secrets_are_removed_once_nothing_names_them() {
    bed::test("old_secrets_are_removed_once_nothing_names_them", async |bed| {
        let bed = bed.with_driver(driver(bed, documented()).await);
        // Permissions count a moment after they were given.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        bed.make(Deployment, "api:v1", json!({"replicas": 1, "revisionHistoryLimit": 0})).await;
        bed.make(CronJob, "api:v1", json!({})).await;
        bed.roll_out(&configured(&bed, Deployment, 1, 1)).await;
        bed.roll_out(&configured(&bed, CronJob, 1, 1)).await;
        assert_eq!(owners(secrets(&bed).get(&name(1)).await.unwrap()), ["CronJob", "Deployment"]);
        for number in 2..=11 {
            bed.roll_out(&configured(&bed, Deployment, number, number.into())).await;
        }
        assert_eq!(names(&bed).await, (1..=11).map(name).collect::<Vec<_>>());
        until_async("old revisions are gone", async || {
            let sets = Api::<ReplicaSet>::namespaced(bed.client.clone(), &bed.namespace);
            let sets = sets.list(&ListParams::default()).await.unwrap().items.len();
            if sets == 1 && bed.pods().await.len() == 1 { Ok(()) } else { Err(sets) }
        })
        .await;
        bed.roll_out(&configured(&bed, Deployment, 12, 12)).await;
        let kept: Vec<String> = [1].into_iter().chain(3..=12).map(name).collect();
        assert_eq!(names(&bed).await, kept, "the CronJob names the first one");
    });
}

#[test]
fn secret_of_another_party_stays_and_the_deploy_is_refused() {
    bed::test("secret_of_another_party_stays_and_the_deploy_is_refused", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let before = bed.read(Deployment).await["spec"].clone();
        bed.kubectl(&["create", "secret", "generic", &name(1), "--from-literal=THEIRS=1"]);
        let (reason, message) = refused(bed, &configured(bed, Deployment, 1, 1)).await;
        assert_eq!(reason, Reason::REFUSED);
        assert!(message.contains(&name(1)) && message.contains("delete it"), "{message}");
        assert_eq!(bed.read(Deployment).await["spec"], before);
        assert!(secrets(bed).get(&name(1)).await.unwrap().data.unwrap().contains_key("THEIRS"));
    });
}

#[test]
fn workload_is_created_with_its_variables() {
    bed::test("workload_is_created_with_its_variables", async |bed| {
        let with = |number, environment: Value| {
            let mut spec = configured(bed, Deployment, 1, number);
            spec.target.settings.insert("template".to_owned(), json!({"replicas": 1, "env": environment}));
            spec
        };
        let (reason, message) = refused(bed, &with(1, json!({"A": "theirs"}))).await;
        assert_eq!(reason, Reason::CONFIGURATION_CONFLICT);
        assert!(message.contains("the variable A") && !message.contains("theirs"), "{message}");
        assert_eq!(names(bed).await, Vec::<String>::new());
        bed.roll_out(&with(2, json!({"MODE": "test"}))).await;
        assert_eq!(owners(secrets(bed).get(&name(2)).await.unwrap()), ["Deployment"]);
        let pod = bed.pods().await.remove(0).spec.unwrap();
        let environment = bed.environment(&pod.containers[0]).await;
        let of = |name: &str| environment.get(name).map(String::as_str);
        assert_eq!((of("MODE"), of("A"), of("B")), (Some("test"), Some("one"), Some("$(A)")));
    });
}

#[test]
fn command_before_the_first_deploy_has_its_variables() {
    bed::test("command_before_the_first_deploy_has_its_variables", async |bed| {
        let mut spec = spec(bed, Deployment, 1, "succeeds");
        spec.target.settings.insert("template".to_owned(), json!({"env": {"A": "theirs"}}));
        let brought = configured(bed, Deployment, 1, 1).configuration;
        spec.configuration = brought.map(|brought| brought.with(|brought| brought.is_new = true));
        let ReleaseState::Failed(failure) = runner(bed).prepare(&spec).await.unwrap() else { panic!("both set it") };
        assert_eq!((failure.reason.as_str(), failure.began), (Reason::CONFIGURATION_CONFLICT, false));
        spec.target.settings.insert("template".to_owned(), json!({}));
        assert_eq!(runner(bed).prepare(&spec).await.unwrap(), ReleaseState::Prepared);
        assert_eq!(owners(secrets(bed).get(&name(1)).await.unwrap()), ["Job"]);
        let mut deploy = configured(bed, Deployment, 1, 1);
        deploy.target.settings.insert("template".to_owned(), json!({"replicas": 1}));
        bed.roll_out(&deploy).await;
        assert_eq!(owners(secrets(bed).get(&name(1)).await.unwrap()), ["Deployment", "Job"]);
    });
}

#[test]
fn manager_that_removes_or_replaces_the_secret_is_named() {
    bed::test("manager_that_removes_or_replaces_the_secret_is_named", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let other = json!([{"secretRef": {"name": name(9), "optional": true}}]);
        for (revision, entries, change) in [(1, other, "set envFrom"), (2, Value::Null, "removed the Secret")] {
            let spec = configured(bed, Deployment, revision, revision.into());
            bed.roll_out(&spec).await;
            // Managers' times are whole seconds.
            tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
            // A field that is removed has no manager any more, so that one is known by what else it sets.
            let (containers, annotations) = (json!([{"name": "app", "envFrom": entries}]), json!({"theirs": change}));
            let template = json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}});
            bed.patch_as("helm", Deployment, json!({"spec": {"template": template}})).await;
            let failure = bed.driver.observe(&spec).await.unwrap().failure.unwrap();
            assert_eq!(failure.reason.as_str(), Reason::REVERTED);
            for part in ["the field manager \"helm\"", change, "Deployment api"] {
                assert!(failure.message.contains(part), "{}", failure.message);
            }
            let drift = bed.driver.target_reader().unwrap().at_rest(&spec).await.unwrap().drift.unwrap();
            assert_eq!(drift.message, failure.message);
        }
    });
}

/// The Secret as it is, with another value.
async fn replace_with_another_value(bed: &Bed, name: &str) {
    let mut theirs = secrets(bed).get(name).await.unwrap();
    secrets(bed).delete(name, &Default::default()).await.unwrap();
    let metadata = std::mem::take(&mut theirs.metadata);
    theirs.metadata.name = metadata.name;
    theirs.metadata.labels = metadata.labels;
    theirs.metadata.annotations = metadata.annotations;
    theirs.metadata.owner_references = metadata.owner_references;
    theirs.data.as_mut().unwrap().insert("A".to_owned(), ByteString(b"theirs".to_vec()));
    let by = PostParams { field_manager: Some("kubectl-replace".to_owned()), ..PostParams::default() };
    secrets(bed).create(&by, &theirs).await.unwrap();
}

#[test]
fn secret_that_another_deletes_or_replaces_is_drift_until_the_next_deploy() {
    bed::test("secret_that_another_deletes_or_replaces_is_drift_until_the_next_deploy", async |bed| {
        let bed = &bed.with_driver(driver(bed, documented()).await);
        // Permissions count a moment after they were given.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let reader = bed.driver.target_reader().unwrap();
        let drift = async |spec: &RolloutSpec| {
            // At rest a configuration is known by its id alone.
            let configuration = spec.configuration.as_ref().map(|configuration| Configuration::of(configuration.id));
            let spec = spec.clone().with(|spec| spec.configuration = configuration);
            reader.at_rest(&spec).await.unwrap().drift.map(|drift| drift.message)
        };
        for (number, kind) in [(1, Deployment), (2, CronJob)] {
            let (first, second) = (10 * number + 1, 10 * number + 2);
            bed.make(kind, "api:v1", json!({})).await;
            let spec = configured(bed, kind, first, number.into());
            bed.roll_out(&spec).await;
            assert_eq!(drift(&spec).await, None);
            replace_with_another_value(bed, &name(number)).await;
            let message = drift(&spec).await.unwrap();
            assert!(
                message.starts_with("the field manager \"kubectl-replace\" made the Secret api-config-"),
                "{message}"
            );

            // The next deploy of the same variables brings them back.
            let spec = configured(bed, kind, second, number.into());
            bed.roll_out(&spec).await;
            assert_eq!(drift(&spec).await, None);
            let secret = secrets(bed).get(&name(number)).await.unwrap();
            assert_eq!(secret.data.as_ref().unwrap()["A"], ByteString(b"one".to_vec()));
            assert_eq!(owners(secret), [kind.as_str()]);

            secrets(bed).delete(&name(number), &Default::default()).await.unwrap();
            let message = drift(&spec).await.unwrap();
            assert!(message.starts_with("another deleted the Secret api-config-"), "{message}");
            bed.apply(&spec).await;
            assert_eq!(drift(&spec).await, None, "it is made anew, and known");
            bed.objects(kind).delete("api", &Default::default()).await.unwrap();
        }
    });
}

#[test]
fn secret_that_was_made_before_the_deploy_is_compared() {
    bed::test("secret_that_was_made_before_the_deploy_is_compared", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        bed.roll_out(&configured(bed, Deployment, 1, 1)).await;
        bed.roll_out(&configured(bed, Deployment, 2, 2)).await;
        // A version that is not current, to which a rollback returns.
        replace_with_another_value(bed, &name(1)).await;
        bed.roll_out(&configured(bed, Deployment, 3, 1)).await;
        let secret = secrets(bed).get(&name(1)).await.unwrap();
        assert_eq!(secret.data.as_ref().unwrap()["A"], ByteString(b"one".to_vec()));
        let kept = secret.metadata.uid;
        bed.roll_out(&configured(bed, Deployment, 4, 1)).await;
        assert_eq!(secrets(bed).get(&name(1)).await.unwrap().metadata.uid, kept, "one that is right stays");
    });
}

#[test]
fn refusal_that_quotes_a_value_is_not_shown() {
    bed::test("refusal_that_quotes_a_value_is_not_shown", async |bed| {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(bed.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(bed.client.clone());
        let policy = format!("quotes-{}", bed.namespace);
        let made = json!({"metadata": {"name": policy}, "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]},
            "validations": [{"expression": "false", "messageExpression": "'no Secret like ' + string(object.data['A'])"}]}});
        policies.create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await.unwrap();
        let selected = json!({"matchLabels": {"kubernetes.io/metadata.name": bed.namespace}});
        let made = json!({"metadata": {"name": policy}, "spec": {"policyName": policy, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selected}}});
        bindings.create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await.unwrap();
        until_async("the policy holds", async || {
            let made =
                serde_json::from_value(json!({"metadata": {"name": "probe"}, "stringData": {"A": "x"}})).unwrap();
            let parameters = PostParams { dry_run: true, ..PostParams::default() };
            match secrets(bed).create(&parameters, &made).await {
                Err(error) if error.to_string().contains("eA==") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        bed.make(Deployment, "api:v1", json!({})).await;
        let mut spec = configured(bed, Deployment, 1, 1);
        let text = json!({"salt": vec![0; 16], "variables": [["A", "correct horse battery", false]]}).to_string();
        spec.configuration.as_mut().unwrap().variables = Variables::from_text(&text).unwrap();
        let (reason, message) = refused(bed, &spec).await;
        assert_eq!(reason, Reason::REFUSED);
        assert!(message.ends_with("its reason quotes a value of the app's configuration"), "{message}");
        policies.delete(&policy, &Default::default()).await.unwrap();
        bindings.delete(&policy, &Default::default()).await.unwrap();
    });
}
