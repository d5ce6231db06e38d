//! Workloads that the driver creates for apps without one.

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use rollhook_core::{
    deploy::Reason,
    ports::{Applied, RolloutDriver, RolloutSpec},
};
use rollhook_kubernetes::WorkloadKind::{Deployment, StatefulSet};
use serde_json::json;

use crate::bed::{self, Bed};

fn order(bed: &Bed, revision: u64, image: &str) -> RolloutSpec {
    let mut order = bed.order(Deployment, revision, image);
    let template = json!({
        "replicas": 2, "port": 8080, "env": {"MODE": "test"}, "env_from_secrets": ["api-env"],
        "pull_secret": "registry", "readiness_path": "/healthz",
    });
    order.target.settings.insert("template".to_owned(), template);
    order
}

fn services(bed: &Bed) -> Api<Service> {
    Api::namespaced(bed.client.clone(), &bed.namespace)
}

#[test]
fn a_deployment_and_a_service_are_made() {
    bed::test("a_deployment_and_a_service_are_made", async |bed| {
        let order = order(bed, 1, "api:v1");
        let seen = bed.roll_out(&order).await;
        assert_eq!(seen.deploy, Some(order.id));
        let made = bed.read(Deployment).await;
        assert_eq!(made["spec"]["minReadySeconds"], 10);
        let container = &made["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["envFrom"][0]["secretRef"]["name"], "api-env");
        assert_eq!(made["metadata"]["labels"]["app.kubernetes.io/managed-by"], "rollhook");
        let service = services(bed).get("api").await.unwrap().spec.unwrap();
        assert_eq!(service.selector.unwrap(), [("app.kubernetes.io/name".to_owned(), "api".to_owned())].into());
        assert_eq!(service.ports.unwrap()[0].port, 8080);
        // Again, as after a restart, and with a Service that was there already.
        bed.apply(&order).await;
        bed.objects(Deployment).delete("api", &Default::default()).await.unwrap();
        bed.apply(&order).await;
    });
}

#[test]
fn made_pods_pass_the_profile_restricted_of_pod_security() {
    bed::test("made_pods_pass_the_profile_restricted_of_pod_security", async |bed| {
        bed.kubectl(&["label", "namespace", &bed.namespace, "pod-security.kubernetes.io/enforce=restricted"]);
        let mut order = order(bed, 1, "api:v1");
        let template = &mut order.target.settings["template"];
        (template["cpu"], template["memory"]) = (json!("10m"), json!("16Mi"));
        bed.roll_out(&order).await;
        let container = bed.read(Deployment).await["spec"]["template"]["spec"]["containers"][0].clone();
        assert_eq!(
            container["resources"],
            json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "16Mi"}})
        );

        bed.objects(Deployment).delete("api", &Default::default()).await.unwrap();
        order.target.settings["template"]["pod_security"] = json!("baseline");
        bed.apply(&order).await;
        let seen = bed.until(&order, "refused", |seen| seen.failure.is_some()).await;
        let failure = seen.failure.unwrap();
        assert!(failure.message.contains("PodSecurity \"restricted"), "{}", failure.message);
    });
}

#[test]
fn missing_namespace_is_named() {
    bed::test("missing_namespace_is_named", async |bed| {
        let mut order = order(bed, 1, "api:v1");
        order.app = "no-such/api".parse().unwrap();
        for port in [Some(8080), None] {
            order.target.settings["template"]["port"] = json!(port);
            let Applied::Refused { reason, message } = bed.driver.apply(&order).await.unwrap() else {
                panic!("not refused")
            };
            assert_eq!(reason.as_str(), Reason::TARGET_MISSING);
            assert!(message.contains("kubectl create namespace no-such"), "{message}");
        }
    });
}

#[test]
fn refused_deployment_leaves_no_service() {
    bed::test("refused_deployment_leaves_no_service", async |bed| {
        let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"count/deployments.apps": "0"}}});
        let quotas = Api::<k8s_openapi::api::core::v1::ResourceQuota>::namespaced(bed.client.clone(), &bed.namespace);
        quotas.create(&Default::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let applied = bed.driver.apply(&order(bed, 1, "api:v1")).await.unwrap();
        let Applied::Refused { reason, message } = applied else { panic!("{applied:?}") };
        assert_eq!(reason.as_str(), Reason::REFUSED);
        assert!(message.contains("exceeded quota"), "{message}");
        assert!(services(bed).get_opt("api").await.unwrap().is_none());
    });
}

#[test]
fn only_deployments_are_made() {
    bed::test("only_deployments_are_made", async |bed| {
        let mut order = order(bed, 1, "api:v1");
        order.target.settings["kind"] = json!(StatefulSet);
        let Applied::Refused { reason, .. } = bed.driver.apply(&order).await.unwrap() else { panic!("not refused") };
        assert_eq!(reason.as_str(), Reason::TARGET_MISSING);
    });
}
