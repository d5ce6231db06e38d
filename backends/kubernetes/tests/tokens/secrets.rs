//! The Secrets in the cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use rollhook_conformance::{client, samples};
use rollhook_core::{
    Error,
    app::{App, AppUid},
    configuration::ConfigurationId,
    ports::{ConfigurationStore, TokenStore},
};
use rollhook_kubernetes::{KubernetesStore, crd::AppObject};
use rollhook_testing::{beds::OwnCluster, skip, test_name, until_async};
use serde_json::json;

use crate::{
    bed::{self, Bed},
    place::{Place, store},
};

const NAME: &str = "api-webhook";

fn secrets(bed: &Bed) -> Api<Secret> {
    Api::namespaced(bed.client.clone(), &bed.namespace)
}

#[test]
fn secret_is_deleted_with_its_app() {
    bed::test("secret_is_deleted_with_its_app", async |bed| {
        let place = Place::of(bed).await;
        place.enable(1).await;
        let apps = Api::<AppObject>::namespaced(bed.client.clone(), &bed.namespace);
        let app = apps.get("api").await.unwrap();
        let secret = secrets(bed).get(NAME).await.unwrap();
        let owner = &secret.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((&owner.kind, Some(&owner.uid)), (&"RollhookApp".to_owned(), app.metadata.uid.as_ref()));
        // The app is removed by hand: the Secret that is left opens nothing, and the cluster deletes it.
        apps.delete("api", &DeleteParams::default()).await.unwrap();
        // The collector learns of a new kind within half a minute, if it is not busy.
        until_async("the Secret is removed", async || secrets(bed).get_opt(NAME).await.unwrap().is_none()).await;
    });
}

#[test]
fn token_of_an_earlier_app_is_refused_and_replaced() {
    bed::test("token_of_an_earlier_app_is_refused_and_replaced", async |bed| {
        let place = Place::of(bed).await;
        place.enable(1).await;
        let left = secrets(bed).get(NAME).await.unwrap();
        client::remove(&place.store, place.app.uid).await;
        let app = client::register(
            &place.store,
            App { uid: AppUid::from_bits(place.app.uid.as_bits() ^ 1), ..(*place.app).clone() },
        )
        .await
        .state
        .app;
        // As if the cluster had not removed it.
        let metadata = ObjectMeta { uid: None, resource_version: None, owner_references: None, ..left.metadata };
        secrets(bed).create(&PostParams::default(), &Secret { metadata, ..left }).await.unwrap();
        let fitting = place.store.find_fitting(&app.id, &|secret| secret.is_some()).await.unwrap();
        assert!(fitting.is_none() && TokenStore::find(&place.store, &app.id).await.unwrap().is_none());
        TokenStore::put(&place.store, app.uid, &samples::token(2)).await.unwrap();
        let found = TokenStore::find(&place.store, &app.id).await.unwrap().unwrap();
        assert_eq!((found.app, found.token.expose()), (app.uid, samples::token(2).expose()));
    });
}

#[test]
fn secret_of_another_maker_stays() {
    bed::test("secret_of_another_maker_stays", async |bed| {
        let place = Place::of(bed).await;
        let theirs = json!({"metadata": {"name": NAME}, "stringData": {"password": "1234"}});
        secrets(bed).create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
        assert!(TokenStore::find(&place.store, &place.app.id).await.unwrap().is_none());
        let refused = TokenStore::put(&place.store, place.app.uid, &samples::token(1)).await.unwrap_err();
        let Error::Invalid { what, .. } = &refused else { panic!("{refused:?}") };
        let way_out = format!("kubectl delete secret {NAME} --namespace {}", bed.namespace);
        assert!(what.contains(&way_out), "{what}");
        TokenStore::remove(&place.store, place.app.uid).await.unwrap();
        client::remove(&place.store, place.app.uid).await;
        let left = secrets(bed).get(NAME).await.unwrap().data.unwrap();
        assert_eq!(left["password"].0, b"1234");
    });
}

/// Has a cluster of its own: keys are counted over all apps.
#[test]
fn reseal_seals_secrets_with_the_newest_key() {
    let cluster = match OwnCluster::named("keys") {
        Err(reason) => return skip(&test_name!(), reason),
        Ok(cluster) => cluster,
    };
    bed::run(async {
        let bed = Bed::at(&cluster.state).await;
        let place = Place::of(&bed).await;
        assert!(place.store.keys_in_use().await.unwrap().is_empty());
        place.enable(1).await;
        let (app, variables) = (place.app.uid, samples::configuration(1, &[("A", "b")]).variables);
        for number in 0..2 {
            ConfigurationStore::put(&place.store, app, ConfigurationId(number), &variables).await.unwrap();
        }
        let both = store(&bed, &["k0001", "k0002"]);
        ConfigurationStore::put(&both, app, ConfigurationId(2), &variables).await.unwrap();
        assert_eq!(used(&both).await, [("k0001".to_owned(), 3), ("k0002".to_owned(), 1)].into());
        assert_eq!((both.reseal().await.unwrap(), both.reseal().await.unwrap()), (3, 0));
        assert_eq!(used(&place.store).await, [("k0002".to_owned(), 4)].into());
        for number in 0..3 {
            assert_eq!(both.get(app, ConfigurationId(number)).await.unwrap().as_ref(), Some(&variables));
        }
        let old = place.store.get(app, ConfigurationId(0)).await.unwrap_err();
        assert!(matches!(old, Error::Denied { .. }), "it lacks the key: {old:?}");
        let found = TokenStore::find(&both, &place.app.id).await.unwrap().unwrap();
        assert_eq!(found.token.expose(), samples::token(1).expose());
        let old = TokenStore::find(&place.store, &place.app.id).await.unwrap_err();
        assert!(matches!(old, Error::Denied { .. }), "it lacks the key: {old:?}");
        let fitting = place.store.find_fitting(&place.app.id, &|secret| secret.is_some()).await;
        assert!(fitting.unwrap().is_none(), "its callers are refused, as those of an unknown app are");
    });
}

async fn used(store: &KubernetesStore) -> BTreeMap<String, u64> {
    store.keys_in_use().await.unwrap().into_iter().map(|(id, count)| (id.to_string(), count)).collect()
}
