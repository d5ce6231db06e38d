//! Objects that a person made or patched so that they have the uid of an app.

use futures_util::{FutureExt, StreamExt};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rollhook_conformance::{client, samples};
use rollhook_core::{
    app::{AppId, AppUid},
    ports::{AppChange, AppPage, AppRef, HistoryStore, TokenMark, TokenStore, Version},
};
use rollhook_kubernetes::{KubernetesStore, crd::AppObject};
use rollhook_testing::until_async;
use serde_json::{Value, json};

use crate::harness::{Fresh, admit, registered, test};

/// A namespace that is listed before that of the app.
const OTHER: &str = "other-test";

fn apps(fresh: &Fresh, namespace: &str) -> Api<AppObject> {
    Api::namespaced(fresh.client.clone(), namespace)
}

/// Makes a `RollhookApp` in the other namespace, as a person with kubectl does.
async fn make(fresh: &Fresh, name: &str, uid: AppUid, (spec, status): (Value, Value)) -> AppObject {
    let object = json!({
        "apiVersion": "rollhook.dev/v1", "kind": "RollhookApp", "spec": spec, "status": status,
        "metadata": {"name": name, "namespace": OTHER, "labels": {"rollhook.dev/uid": uid.to_string()}},
    });
    let object = serde_json::from_value(object).unwrap();
    let made = apps(fresh, OTHER).create(&PostParams::default(), &object).await.unwrap();
    fresh.sync().await;
    made
}

/// The spec and the status of the app, under the name of another object.
async fn copied(fresh: &Fresh, app: AppUid, name: &str) -> (Value, Value) {
    let object = fresh.app(app).await;
    let mut spec = Value::Object(object.spec.0);
    spec["id"] = json!({"namespace": OTHER, "name": name});
    (spec, Value::Object(object.status.unwrap()))
}

async fn delete(fresh: &Fresh, object: &AppObject) {
    let api = apps(fresh, &object.namespace().unwrap());
    api.delete(&object.name_any(), &DeleteParams::default()).await.unwrap();
    fresh.sync().await;
}

/// The status of the object says that it is no app.
async fn is_marked(fresh: &Fresh, object: &AppObject, why: &str) {
    let api = apps(fresh, &object.namespace().unwrap());
    until_async("the status says so", async || {
        let status = api.get(&object.name_any()).await.unwrap().status.unwrap_or_default();
        let is_marked = status.get("state") == Some(&json!("NotRegistered"))
            && status.get("message").and_then(Value::as_str).is_some_and(|message| message.contains(why));
        if is_marked { Ok(()) } else { Err(status) }
    })
    .await;
}

/// Returns why the API server refuses to merge a patch into an object.
async fn cannot_patch(fresh: &Fresh, object: &AppObject, patch: Value) -> String {
    let api = apps(fresh, &object.namespace().unwrap());
    api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap_err().to_string()
}

/// The app works by its uid and by its name, and the other object is none.
async fn is_app(store: &KubernetesStore, app: AppUid, other: &AppObject) {
    let id: AppId = "shop-test/api".parse().unwrap();
    for app in [AppRef::Uid(app), AppRef::Name(&id)] {
        assert_eq!(store.load(app, None).await.unwrap().unwrap().state.app.id, id);
    }
    let deploy = admit(store, app, "v2").await;
    let loaded = store.load(AppRef::Name(&id), None).await.unwrap().unwrap();
    assert_eq!(loaded.state.latest, Some(deploy.revision));
    store.sync().await.unwrap();
    let listed: Vec<_> = store.list(AppPage::first(9)).await.unwrap().into_iter().flatten().collect();
    assert!(listed.iter().any(|state| state.app.id == id && state.app.uid == app));
    assert!(listed.iter().all(|state| state.app.id == id || state.app.uid != app));
    let other: AppId = format!("{OTHER}/{}", other.name_any()).parse().unwrap();
    store.load(AppRef::Name(&other), None).await.unwrap_err();
    assert!(store.find(&other).await.unwrap().is_none());
    assert_eq!(store.mark(&other).await.unwrap(), TokenMark::NoToken);
}

/// The app's token is written beside the app.
async fn has_its_token(fresh: &Fresh, store: &KubernetesStore, app: AppUid) {
    store.put(app, &samples::token(2)).await.unwrap();
    let found = store.find(&"shop-test/api".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(found.app, app);
    assert!(!fresh.kubectl(&["get", "secrets", "--namespace", OTHER]).contains("-webhook"));
}

#[test]
fn object_with_the_label_of_an_app_takes_nothing_from_it() {
    test("object_with_the_label_of_an_app_takes_nothing_from_it", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        store.sync().await.unwrap();
        let mut changes = store.watch();
        let (mut spec, status) = copied(fresh, app, "a").await;
        spec["uid"] = json!(AppUid::from_bits(7).to_string());
        for parts in [(json!({"image": "api:v1"}), json!({})), (spec, status)] {
            let made = make(fresh, "a", app, parts).await;
            is_marked(fresh, &made, "deploys nothing by it").await;
            is_app(&store, app, &made).await;
            // A replica that starts finds the same.
            let later = fresh.handle().await;
            is_app(&later, app, &made).await;
            has_its_token(fresh, &later, app).await;
            delete(fresh, &made).await;
        }
        assert_removed(&mut changes, app, false).await;
        client::remove(&store, app).await;
        assert_removed(&mut changes, app, true).await;
    });
}

/// Whether the hints so far say that the app is gone.
async fn assert_removed(changes: &mut (impl StreamExt<Item = AppChange> + Unpin), app: AppUid, is_removed: bool) {
    let mut seen = Vec::new();
    while let Some(Some(change)) = changes.next().now_or_never() {
        seen.push(change);
    }
    assert_eq!(seen.contains(&AppChange::App(app, Version::REMOVED)), is_removed, "{seen:?}");
}

#[test]
fn copy_with_the_uid_of_an_app_takes_nothing_from_it() {
    test("copy_with_the_uid_of_an_app_takes_nothing_from_it", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        admit(&store, app, "v1").await;
        has_its_token(fresh, &store, app).await;
        store.sync().await.unwrap();
        let mut changes = store.watch();
        // Times of creation are whole seconds.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        let made = make(fresh, "a", app, copied(fresh, app, "a").await).await;
        is_marked(fresh, &made, "has the uid of shop-test/api").await;
        is_app(&store, app, &made).await;
        has_its_token(fresh, &store, app).await;
        for _ in 0..2 {
            // The list shows the copy first; nothing is asked for before it.
            let later = fresh.handle().await;
            has_its_token(fresh, &later, app).await;
            is_app(&later, app, &made).await;
        }
        delete(fresh, &made).await;
        assert_removed(&mut changes, app, false).await;
        assert_eq!(client::load(&store, app).await.state.app.uid, app);
    });
}

#[test]
fn app_whose_uid_was_patched_takes_nothing_from_another() {
    test("app_whose_uid_was_patched_takes_nothing_from_another", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        let own = client::register(&store, samples::app("other", "test", "web")).await.state.app.uid;
        store.sync().await.unwrap();
        let mut changes = store.watch();
        let object = fresh.app(own).await;
        for uid in [json!(app.to_string()), Value::Null] {
            assert!(cannot_patch(fresh, &object, json!({"spec": {"uid": uid}})).await.contains("cannot be changed"));
        }
        let label = |uid: AppUid| json!({"metadata": {"labels": {"rollhook.dev/uid": uid.to_string()}}});
        fresh.patch_app(&object, label(app)).await;
        is_marked(fresh, &object, "spec.uid").await;
        is_app(&store, app, &object).await;
        has_its_token(fresh, &store, app).await;
        let later = fresh.handle().await;
        has_its_token(fresh, &later, app).await;
        is_app(&later, app, &object).await;
        // It is an app again once the label is what it was.
        fresh.patch_app(&object, label(own)).await;
        admit(&store, own, "v1").await;
        assert!(!fresh.app(own).await.status.unwrap().contains_key("message"));
        fresh.patch_app(&object, label(app)).await;
        delete(fresh, &object).await;
        assert_removed(&mut changes, app, false).await;
        assert_eq!(client::load(&store, app).await.state.app.uid, app);
    });
}

#[test]
fn older_object_of_a_person_becomes_no_app_of_another() {
    test("older_object_of_a_person_becomes_no_app_of_another", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let object = json!({
            "apiVersion": "rollhook.dev/v1", "kind": "RollhookApp", "spec": {},
            "metadata": {"name": "web", "namespace": OTHER},
        });
        let object: AppObject = serde_json::from_value(object).unwrap();
        let object = apps(fresh, OTHER).create(&PostParams::default(), &object).await.unwrap();
        let app = registered(&store).await;
        let whole = json!({
            "spec": fresh.app(app).await.spec, "metadata": {"labels": {"rollhook.dev/uid": app.to_string()}},
        });
        assert!(cannot_patch(fresh, &object, whole).await.contains("cannot be changed"));
        let later = fresh.handle().await;
        has_its_token(fresh, &later, app).await;
        is_app(&later, app, &object).await;
    });
}
