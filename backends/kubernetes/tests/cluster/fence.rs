//! Workloads that the driver refuses to touch. The suite of all drivers covers stamps; these cases exist on Kubernetes
//! alone.

use rollhook_core::{
    deploy::Reason,
    ports::{Applied, InvalidTarget, RolloutDriver, RolloutSpec, Validated},
};
use rollhook_kubernetes::WorkloadKind::{self, DaemonSet, Deployment, StatefulSet};
use serde_json::{Value, json};

use crate::bed::{self, Bed};

async fn refused(bed: &Bed, order: &RolloutSpec) -> (String, String) {
    let kind = serde_json::from_value(order.target.settings["kind"].clone()).unwrap();
    let before = bed.read(kind).await;
    let Applied::Refused { reason, message } = bed.driver.apply(order).await.unwrap() else { panic!("not refused") };
    let after = bed.read(kind).await;
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"], "nothing was changed");
    (reason.as_str().to_owned(), message)
}

#[test]
fn a_paused_deployment_fails_at_once() {
    bed::test("a_paused_deployment_fails_at_once", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let one = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&one).await;
        bed.patch_as("kubectl-rollout", Deployment, json!({"spec": {"paused": true}})).await;
        let (reason, message) = refused(bed, &bed.order(Deployment, 2, "api:v3")).await;
        assert_eq!(reason, Reason::PAUSED, "{message}");
        // The own stamp is recognised first.
        bed.apply(&one).await;
    });
}

#[test]
fn on_delete_is_refused() {
    bed::test("on_delete_is_refused", async |bed| {
        for kind in [StatefulSet, DaemonSet] {
            bed.make(kind, "api:v1", json!({"updateStrategy": {"type": "OnDelete"}})).await;
            let order = bed.order(kind, 1, "api:v2");
            let found = bed.driver.validate(&bed.request(kind)).await.unwrap();
            let Validated::Invalid(InvalidTarget::Unusable(why)) = found else { panic!("{kind}: {found:?}") };
            assert!(why.contains("OnDelete"), "{kind}: {why}");
            assert!(refused(bed, &order).await.1.contains("OnDelete"), "{kind}");
        }
    });
}

#[test]
fn containers_are_those_that_the_workload_has() {
    bed::test("containers_are_those_that_the_workload_has", async |bed| {
        let init = json!([{"name": "migrate", "image": "migrate:1"}]);
        bed.make(Deployment, "api:v1", json!({"template": {"spec": {"initContainers": init}}})).await;
        let mut order = bed.order(Deployment, 1, "api:v2");
        let Validated::Adopt { settings, image, .. } = bed.driver.validate(&bed.request(Deployment)).await.unwrap()
        else {
            panic!("not adopted")
        };
        assert_eq!((settings, image.to_string().as_str()), (order.target.settings.clone(), "api:v1"));
        order.target.settings["containers"] = json!(["web", "migrate"]);
        let (_, message) = refused(bed, &order).await;
        assert_eq!(message, "Deployment api has no container web; it has app, migrate");
    });
}

#[test]
fn refusal_has_the_clusters_own_sentence() {
    bed::test("refusal_has_the_clusters_own_sentence", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        deny_images_named_forbidden(bed).await;
        let order = bed.order(Deployment, 1, "api:forbidden");
        for _ in 0..50 {
            // Policies take effect a moment after they were made.
            match bed.driver.apply(&order).await.unwrap() {
                Applied::Refused { reason, message } => {
                    assert_eq!(reason.as_str(), Reason::REFUSED);
                    return assert!(message.contains("forbidden here"), "{message}");
                }
                Applied::Done => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
                Applied::Newer(revision) => panic!("newer: {revision}"),
            }
            bed.objects(Deployment).delete("api", &Default::default()).await.unwrap();
            bed.make(Deployment, "api:v1", json!({})).await;
        }
        panic!("the policy took no effect");
    });
}

async fn deny_images_named_forbidden(bed: &Bed) {
    let name = &bed.namespace;
    let rules = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]}]);
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let expression = "!object.spec.template.spec.containers.exists(c, c.image.contains('forbidden'))";
    let policy = json!({"spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules, "namespaceSelector": selector},
        "validations": [{"expression": expression, "message": "that image is forbidden here"}],
    }});
    let binding = json!({"spec": {"policyName": name, "validationActions": ["Deny"]}});
    for (kind, mut object) in [("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)] {
        let resource = kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "admissionregistration.k8s.io",
            "v1",
            kind,
        ));
        let api = kube::Api::<kube::core::DynamicObject>::all_with(bed.client.clone(), &resource);
        object["apiVersion"] = json!("admissionregistration.k8s.io/v1");
        object["kind"] = json!(kind);
        // Goes with the namespace, as cluster-wide objects otherwise would not.
        object["metadata"] = json!({"name": name, "ownerReferences": [owner(bed).await]});
        api.create(&Default::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
}

async fn owner(bed: &Bed) -> Value {
    let namespaces = kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(bed.client.clone());
    let uid = namespaces.get(&bed.namespace).await.unwrap().metadata.uid;
    json!({"apiVersion": "v1", "kind": "Namespace", "name": bed.namespace, "uid": uid})
}

#[test]
fn patch_whose_answer_was_lost_is_recognised() {
    bed::test("patch_whose_answer_was_lost_is_recognised", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let order = bed.order(Deployment, 1, "api:v2");
        let before = generation(bed, Deployment).await;
        // Whoever comes second reads an object that has changed under it, as after a lost answer.
        let all = futures_util::future::join_all((0..8).map(|_| bed.driver.apply(&order))).await;
        assert!(all.into_iter().all(|applied| applied.unwrap() == Applied::Done));
        assert_eq!(generation(bed, Deployment).await, before + 1, "patched once");
    });
}

#[test]
fn highest_of_racing_revisions_stays() {
    bed::test("highest_of_racing_revisions_stays", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let orders: Vec<_> =
            (1..=6).map(|revision| bed.order(Deployment, revision, &format!("api:v{revision}"))).collect();
        let all = futures_util::future::join_all(orders.iter().map(|order| bed.driver.apply(order))).await;
        assert_eq!(all[5].as_ref().unwrap(), &Applied::Done);
        assert_eq!(bed.driver.observe(&orders[0]).await.unwrap().deploy, Some(orders[5].id));
        let Validated::Adopt { image, .. } = bed.driver.validate(&bed.request(Deployment)).await.unwrap() else {
            panic!("not adopted")
        };
        assert_eq!(image.to_string(), "api:v6");
    });
}

async fn generation(bed: &Bed, kind: WorkloadKind) -> i64 {
    bed.read(kind).await["metadata"]["generation"].as_i64().unwrap()
}
