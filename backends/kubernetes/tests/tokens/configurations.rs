//! The Secrets of configurations in the cluster.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use rollhook_conformance::samples;
use rollhook_core::{
    Error,
    configuration::{ConfigurationId, VARIABLES_BYTES_MAX},
    ports::ConfigurationStore,
};
use rollhook_kubernetes::crd::AppObject;
use rollhook_testing::until_async;
use serde_json::json;

use crate::{
    bed::{self, Bed},
    place::Place,
};

const ID: ConfigurationId = ConfigurationId(1);
const INDEX: &str = "api-variables";

fn secrets(bed: &Bed) -> Api<Secret> {
    Api::namespaced(bed.client.clone(), &bed.namespace)
}

#[test]
fn largest_configuration_fits_into_a_secret_and_goes_with_its_app() {
    bed::test("largest_configuration_fits_into_a_secret_and_goes_with_its_app", async |bed| {
        let place = Place::of(bed).await;
        let names: Vec<String> = (0..9).map(|number| format!("A{number}")).collect();
        let value = "x".repeat((VARIABLES_BYTES_MAX - 300) / names.len());
        let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), value.as_str())).collect();
        let variables = samples::configuration(1, &all).variables;
        assert!(variables.to_text().len() > VARIABLES_BYTES_MAX - 300);
        place.store.put(place.app.uid, ID, &variables).await.unwrap();
        assert_eq!(place.store.get(place.app.uid, ID).await.unwrap(), Some(variables));
        let listed = place.store.list(place.app.uid).await.unwrap();
        assert!((900_000..1 << 20).contains(&listed[0].bytes), "{listed:?}");

        let apps = Api::<AppObject>::namespaced(bed.client.clone(), &bed.namespace);
        apps.delete("api", &DeleteParams::default()).await.unwrap();
        for name in [INDEX.to_owned(), format!("{INDEX}-{ID}")] {
            until_async("the Secret is removed", async || secrets(bed).get_opt(&name).await.unwrap().is_none()).await;
        }
    });
}

#[test]
fn index_of_another_maker_stays() {
    bed::test("index_of_another_maker_stays", async |bed| {
        let place = Place::of(bed).await;
        let theirs = json!({"metadata": {"name": INDEX}, "stringData": {"password": "1234"}});
        secrets(bed).create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
        assert!(place.store.list(place.app.uid).await.unwrap().is_empty());
        let variables = samples::configuration(1, &[("A", "b")]).variables;
        let refused = place.store.put(place.app.uid, ID, &variables).await.unwrap_err();
        let Error::Invalid { what, .. } = &refused else { panic!("{refused:?}") };
        assert!(what.contains(&format!("kubectl delete secret {INDEX} --namespace {}", bed.namespace)), "{what}");
        assert_eq!(secrets(bed).get(INDEX).await.unwrap().data.unwrap()["password"].0, b"1234");
    });
}

#[test]
fn configuration_stays_noted_until_its_removal_is_complete() {
    bed::test("configuration_stays_noted_until_its_removal_is_complete", async |bed| {
        let place = Place::of(bed).await;
        let variables = samples::configuration(1, &[("A", "b")]).variables;
        place.store.put(place.app.uid, ID, &variables).await.unwrap();
        // As if the process had ended after the Secret was deleted.
        secrets(bed).delete(&format!("{INDEX}-{ID}"), &DeleteParams::default()).await.unwrap();
        assert_eq!(place.store.get(place.app.uid, ID).await.unwrap(), None);
        assert_eq!(place.store.list(place.app.uid).await.unwrap().len(), 1, "it is still to be removed");
        place.store.remove(place.app.uid, &[ID]).await.unwrap();
        assert!(place.store.list(place.app.uid).await.unwrap().is_empty());
    });
}
