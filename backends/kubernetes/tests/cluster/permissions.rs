//! The documented permissions of the driver are enough, and without them its calls are denied.

use kube::{
    Api,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use rollhook_core::{
    Error,
    deploy::{Revision, Scale},
    ports::{Phase, Purpose, ReleaseState, RolloutDriver},
};
use rollhook_kubernetes::{
    KubernetesCluster,
    WorkloadKind::{CronJob, DaemonSet, Deployment, StatefulSet},
};
use rollhook_testing::until_async;
use serde_json::{Value, json};

use crate::{
    bed::{self, Bed},
    releases::{runner, spec},
};

const USER: &str = "rollhook-driver";

/// A driver that acts as a user who has these rules in the namespace.
pub(crate) async fn driver(bed: &Bed, rules: Value) -> KubernetesCluster {
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "driver"});
    let binding = json!({"roleRef": role, "subjects": [subject]});
    for (kind, mut object) in [("Role", json!({"rules": rules})), ("RoleBinding", binding)] {
        object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": "driver"});
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind));
        let api = Api::<DynamicObject>::namespaced_with(bed.client.clone(), &bed.namespace, &resource);
        api.create(&Default::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    let mut config = bed::config(&bed.state).await;
    config.auth_info.impersonate = Some(USER.to_owned());
    KubernetesCluster::with_config(config).unwrap()
}

pub(crate) fn documented() -> Value {
    let all = ["get", "list", "watch", "patch"];
    json!([
        {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets", "daemonsets"], "verbs": all},
        {"apiGroups": ["apps"], "resources": ["replicasets", "controllerrevisions"], "verbs": ["list"]},
        {"apiGroups": ["batch"], "resources": ["cronjobs"], "verbs": all},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch", "create", "patch"]},
        {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["create", "delete"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "create", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ])
}

#[test]
fn the_documented_permissions_are_enough() {
    bed::test("the_documented_permissions_are_enough", async |bed| {
        let bed = bed.with_driver(driver(bed, documented()).await);
        // Permissions count a moment after they were given.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        for kind in [CronJob, DaemonSet] {
            bed.make(kind, "api:v1", json!({})).await;
            bed.roll_out(&bed.order(kind, 1, "api:v2")).await;
            bed.objects(kind).delete("api", &Default::default()).await.unwrap();
        }
        bed.make(StatefulSet, "api:v1", json!({})).await;
        let broken = bed.order(StatefulSet, 1, "api:crash");
        bed.apply(&broken).await;
        let failure = bed.until(&broken, "in failure", |seen| seen.failure.is_some()).await.failure;
        let evidence = bed.driver.evidence(&broken, failure.as_ref()).await.unwrap();
        assert!(!evidence.events.is_empty());
        bed.roll_out(&bed.order(StatefulSet, 2, "api:v2")).await;
        let scaling = |revision, scale| bed.order(StatefulSet, revision, "api:v2").with(|spec| spec.scale = scale);
        bed.roll_out(&scaling(3, Scale::Stop)).await;
        bed.roll_out(&scaling(4, Scale::Start)).await;

        let release = spec(&bed, StatefulSet, 5, "succeeds");
        let runner = runner(&bed);
        assert_eq!(runner.prepare(&release).await.unwrap(), ReleaseState::Prepared);
        runner.start(&release.run).await.unwrap();
        until_async("it succeeds, as changes show", async || {
            runner.changed(&release.run).await;
            matches!(runner.observe(&release.run).await.unwrap(), ReleaseState::Succeeded { .. })
        })
        .await;
        assert!(runner.log(&release.run, 0).await.unwrap().is_some());

        let mut order = bed.order(Deployment, 1, "api:v1");
        order.target.settings.insert("template".to_owned(), json!({"replicas": 1, "port": 80}));
        bed.apply(&order).await;
        let mut rung = 0;
        while rung < 3 {
            let ring = tokio::time::timeout(std::time::Duration::from_secs(5), bed.driver.changed(&order));
            ring.await.expect("the watch sees the rollout");
            rung += 1;
        }
    });
}

#[test]
fn missing_permission_is_denied() {
    bed::test("missing_permission_is_denied", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let reads = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]);
        let driver = driver(bed, reads).await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let order = bed.order(Deployment, 1, "api:v2");
        let denied = |error: Error, verb: &str| {
            let Error::Denied { what, .. } = error else { panic!("{}", error.chain()) };
            assert!(what.contains(&format!("cannot {verb} resource")), "{what}");
        };
        denied(driver.apply(&order).await.unwrap_err(), "patch");
        denied(driver.observe(&order).await.unwrap_err(), "list");
        denied(driver.validate(&bed.request(StatefulSet)).await.unwrap_err(), "get");
        let release = spec(bed, Deployment, 1, "succeeds");
        denied(driver.release_runner().unwrap().prepare(&release).await.unwrap_err(), "get");
    });
}

#[test]
fn restore_without_the_permission_to_list_revisions_makes_pods_anew() {
    bed::test("restore_without_the_permission_to_list_revisions_makes_pods_anew", async |bed| {
        let without = |rule: &&Value| rule["resources"][0] != "replicasets";
        let rules: Vec<Value> = documented().as_array().unwrap().iter().filter(without).cloned().collect();
        let bed = bed.with_driver(driver(bed, json!(rules)).await);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        bed.make(Deployment, "api:v1", json!({})).await;
        bed.roll_out(&bed.order(Deployment, 1, "api:v2")).await;
        bed.apply(&bed.order(Deployment, 2, "api:missing")).await;
        let purpose = Purpose::Restore { to: Revision::new(1).unwrap() };
        let seen = bed.roll_out(&bed.order(Deployment, 3, "api:v2").with(|spec| spec.purpose = purpose)).await;
        let Phase::Complete { note, .. } = seen.phase else { panic!("not complete") };
        assert!(note.unwrap().contains("made anew"));
    });
}
