//! Secrets and ConfigMaps that a workload reads without us: a later change is shown, and nothing is restarted.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use rollhook_core::ports::{References, RolloutDriver, TargetReader};
use rollhook_kubernetes::WorkloadKind::Deployment;
use rollhook_testing::until_async;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    bed::{self, Bed},
    permissions::{documented, driver},
};

/// A pod that reads a ConfigMap and two Secrets, of which one does not exist.
fn reading() -> Value {
    let env_from = json!([{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "later", "optional": true}}]);
    let containers = json!([{"name": "app", "image": "api:v1", "envFrom": env_from}]);
    let volumes = json!([{"name": "keys", "secret": {"secretName": "keys"}}]);
    json!({"template": {"spec": {"containers": containers, "volumes": volumes}}})
}

fn objects<K>(bed: &Bed) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    Api::namespaced(bed.client.clone(), &bed.namespace)
}

async fn put<K>(bed: &Bed, name: &str, value: &str)
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + serde::Serialize,
{
    let data = if K::kind(&()) == "Secret" { "stringData" } else { "data" };
    let object = json!({"metadata": {"name": name}, data: {"a": value}});
    let api = objects::<K>(bed);
    match api.get_opt(name).await.unwrap() {
        Some(_) => drop(api.patch(name, &PatchParams::default(), &Patch::Merge(&object)).await.unwrap()),
        None => {
            drop(api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap());
        }
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn later_change_of_what_pods_read_is_shown_until_the_next_deploy() {
    bed::test("later_change_of_what_pods_read_is_shown_until_the_next_deploy", async |bed| {
        put::<ConfigMap>(bed, "settings", "1").await;
        put::<Secret>(bed, "keys", "hunter2").await;
        bed.make(Deployment, "api:v1", reading()).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&order).await;
        let pods = bed.pods().await.into_iter().map(|pod| pod.metadata.name).collect::<Vec<_>>();
        let shown = async |order| bed.driver.target_reader().unwrap().at_rest(order).await.unwrap().references;
        assert_eq!(shown(&order).await, References::default());
        let stored = bed.read(Deployment).await["metadata"]["annotations"]["rollhook.dev/references"].to_string();
        assert!(
            stored.contains("ConfigMap/settings") && stored.contains("missing") && !stored.contains("hunter"),
            "{stored}"
        );

        put::<ConfigMap>(bed, "settings", "2").await;
        put::<Secret>(bed, "later", "hunter3").await;
        let changed = names(&["ConfigMap settings", "Secret later"]);
        until_async("the changes are shown", async || shown(&order).await.changed == changed).await;
        objects::<Secret>(bed).delete("keys", &DeleteParams::default()).await.unwrap();
        let changed = names(&["ConfigMap settings", "Secret keys", "Secret later"]);
        until_async("the removal is shown", async || shown(&order).await.changed == changed).await;
        let at_rest = bed.driver.at_rest(&order).await.unwrap();
        assert_eq!((at_rest.drift, at_rest.references.unknown), (None, Vec::new()));
        let now = bed.pods().await.into_iter().map(|pod| pod.metadata.name).collect::<Vec<_>>();
        assert_eq!(now, pods, "nothing was restarted");

        put::<Secret>(bed, "keys", "hunter4").await;
        let order = bed.order(Deployment, 2, "api:v3");
        bed.roll_out(&order).await;
        assert_eq!(shown(&order).await, References::default(), "the next revision began with them");
    });
}

#[test]
fn what_may_not_be_read_is_not_known_and_fails_nothing() {
    bed::test("what_may_not_be_read_is_not_known_and_fails_nothing", async |bed| {
        put::<ConfigMap>(bed, "settings", "1").await;
        put::<Secret>(bed, "keys", "hunter2").await;
        let mut rules = documented();
        rules.as_array_mut().unwrap().retain(|rule| rule["resources"] != json!(["configmaps"]));
        let bed = bed.with_driver(driver(bed, rules).await);
        // Permissions count a moment after they were given.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        bed.make(Deployment, "api:v1", reading()).await;
        let order = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&order).await;
        let references = bed.driver.at_rest(&order).await.unwrap().references;
        assert_eq!((references.changed, references.unknown), (Vec::new(), names(&["ConfigMap settings"])));
    });
}
