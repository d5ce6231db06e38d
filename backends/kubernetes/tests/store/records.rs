//! Records as `ServerRecord`s: found without the watch, deleted after their time, and damaged by people.

use std::time::Duration;

use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use rollhook_conformance::Stores;
use rollhook_core::Error;
use rollhook_kubernetes::crd::RecordObject;
use rollhook_management::ports::{NewRecord, RecordKey, RecordKind, RecordStore};
use rollhook_testing::until_async;
use serde_json::{Value, json};

use crate::harness::{Fresh, OWN, test};

const KIND: RecordKind = RecordKind::Session;

fn key(text: &str) -> RecordKey {
    text.parse().unwrap()
}

fn record(name: &str, ttl: Option<Duration>) -> NewRecord {
    NewRecord { key: key(name), document: json!({"name": name}).to_string(), ttl }
}

async fn names(fresh: &Fresh) -> Vec<String> {
    let objects: Api<RecordObject> = Api::namespaced(fresh.client.clone(), OWN);
    objects.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
}

#[test]
fn record_is_found_and_missed_without_the_watch() {
    test("record_is_found_and_missed_without_the_watch", async |fresh: &Fresh| {
        let (store, old) = (fresh.handle().await, fresh.stuck().await);
        until_async("the first list", async || old.read(KIND, &key("none")).await.ok().filter(Option::is_none)).await;
        store.write(KIND, record("new", None), None).await.unwrap();
        until_async("the record", async || old.read(KIND, &key("new")).await.unwrap()).await;
        RecordStore::remove(&store, KIND, &key("new")).await.unwrap();
        assert_eq!(old.read(KIND, &key("new")).await.unwrap(), None, "it is remembered, and gone");
        let again = old.write(KIND, record("new", None), None).await.unwrap();
        assert_eq!(old.read(KIND, &key("new")).await.unwrap().map(|record| record.version), Some(again));
    });
}

#[test]
fn expired_records_are_deleted_in_the_background() {
    test("expired_records_are_deleted_in_the_background", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        for number in 0..25 {
            store.write(KIND, record(&format!("r{number}"), Some(Duration::from_secs(60))), None).await.unwrap();
        }
        store.write(KIND, record("lasting", None), None).await.unwrap();
        store.write(KIND, record("later", Some(Duration::from_secs(7200))), None).await.unwrap();
        fresh.advance(Duration::from_secs(3700)).await.unwrap();
        until_async("the expired ones are gone", async || match names(fresh).await {
            left if left.len() == 2 => Ok(left),
            left => Err(left),
        })
        .await;
        assert_eq!(names(fresh).await, ["session.lasting", "session.later"]);
        store.write(KIND, record("r1", None), None).await.unwrap();
    });
}

#[test]
fn damaged_record_is_named_and_can_be_removed() {
    test("damaged_record_is_named_and_can_be_removed", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let version = store.write(KIND, record("damaged", None), None).await.unwrap();
        let objects: Api<RecordObject> = Api::namespaced(fresh.client.clone(), OWN);
        let damage = Patch::Merge(json!({"spec": {"document": Value::Null}}));
        objects.patch("session.damaged", &PatchParams::default(), &damage).await.unwrap();
        let read = store.read(KIND, &key("damaged")).await.map(drop);
        let written = store.write(KIND, record("damaged", None), Some(version)).await.map(drop);
        for outcome in [read, written] {
            let told = outcome.unwrap_err();
            assert!(matches!(told, Error::Corrupt { .. }) && told.to_string().contains("session.damaged"), "{told}");
        }
        store.write(KIND, record("sound", None), None).await.unwrap();
        let listed = RecordStore::list(&store, KIND, None, 9).await.unwrap();
        assert_eq!(
            listed.iter().map(|record| record.key.as_str()).collect::<Vec<_>>(),
            ["sound"],
            "the others are listed"
        );
        RecordStore::remove(&store, KIND, &key("damaged")).await.unwrap();
        store.write(KIND, record("damaged", None), None).await.unwrap();
        println!("{}", fresh.kubectl(&["get", "rhrecord", "--namespace", OWN]));
    });
}
