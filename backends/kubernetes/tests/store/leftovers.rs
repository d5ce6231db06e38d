//! Objects left behind by others: earlier registrations, newer versions, and people with kubectl.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use http::{Method, Request, header::HeaderValue};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    client::Body,
};
use rollhook_conformance::{client, samples};
use rollhook_core::{
    Error,
    app::{App, AppUid},
    deploy::Revision,
    ledger::Change,
    ports::{AppPage, AppRef, HistoryStore, HistoryStoreExt, TokenStore},
};
use rollhook_kubernetes::{
    crd::{self, AppObject, DeployObject},
    ensure_crds,
};
use rollhook_testing::until_async;
use serde_json::json;

use crate::harness::{Fresh, OWN, admit, end, registered, test};

/// The metadata of a copy in this namespace.
fn copied_to(namespace: &str, metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(namespace.to_owned()),
        resource_version: None,
        uid: None,
        owner_references: None,
        ..metadata.clone()
    }
}

#[test]
fn deploys_of_an_earlier_registration_give_way() {
    test("deploys_of_an_earlier_registration_give_way", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let old = admit(&store, app, "old").await;
        end(&store, app, &old, samples::succeeded()).await;
        let mut left = fresh.shown(1, "succeeded").await;
        client::remove(&store, app).await;
        left.metadata = copied_to("shop-test", &left.metadata);
        fresh.deploys("shop-test").create(&PostParams::default(), &left).await.unwrap();

        let anew = App { uid: AppUid::from_bits(7), ..samples::app("shop", "test", "api") };
        let anew = client::register(&store, anew).await.state.app.uid;
        assert_eq!(client::archive(&store, anew).await, []);
        let first = admit(&store, anew, "new").await;
        assert_eq!(first.revision, Revision::FIRST);
        end(&store, anew, &first, samples::failed()).await;
        let shown = fresh.shown(1, "failed").await;
        assert_eq!(shown.labels()[crd::UID_LABEL], anew.to_string());
        assert_eq!(client::archive(&fresh.handle().await, anew).await[0].id, first.id);
    });
}

#[test]
fn copy_of_an_app_is_no_app() {
    test("copy_of_an_app_is_no_app", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let one = client::admit(&store, app, samples::admission(samples::deploy("v1"))).await;
        end(&store, app, &one, samples::succeeded()).await;
        let entry = fresh.shown(1, "succeeded").await;
        admit(&store, app, "v2").await;
        store.put(app, &samples::token(1)).await.unwrap();
        let object = fresh.app(app).await;
        let copy = AppObject { metadata: copied_to("shop-prod", &object.metadata), ..object };
        let apps: Api<AppObject> = Api::namespaced(fresh.client.clone(), "shop-prod");
        apps.create(&PostParams::default(), &copy).await.unwrap();
        for (namespace, name) in [("shop-prod", "api-1"), ("shop-test", "api-7")] {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..copied_to(namespace, &entry.metadata) };
            let copy = DeployObject { metadata, ..entry.clone() };
            fresh.deploys(namespace).create(&PostParams::default(), &copy).await.unwrap();
        }
        let secrets = |namespace: &str| Api::<Secret>::namespaced(fresh.client.clone(), namespace);
        let secret = secrets("shop-test").get("api-webhook").await.unwrap();
        let copy = Secret { metadata: copied_to("shop-prod", &secret.metadata), ..secret };
        secrets("shop-prod").create(&PostParams::default(), &copy).await.unwrap();

        let state = client::load(&store, app).await.state;
        let at_the_copy = "shop-prod/api".parse().unwrap();
        for store in [store, fresh.handle().await] {
            store.sync().await.unwrap();
            let opened = store.find_fitting(&at_the_copy, &|token| token.is_some()).await.unwrap();
            assert!(opened.is_none(), "the old token opens nothing there");
            assert!(store.find_fitting(&state.app.id, &|token| token.is_some()).await.unwrap().is_some());
            let copied = store.load(AppRef::Name(&at_the_copy), None).await;
            assert!(matches!(copied, Err(Error::Corrupt { .. })), "{copied:?}");
            let listed = store.states(AppPage::first(9)).await.unwrap();
            assert_eq!(listed, std::slice::from_ref(&state));
            assert_eq!(store.work(&[], 9).await.unwrap(), [app]);
            assert_eq!(client::load(&store, app).await.state, state);
            let archived = client::archive(&store, app).await;
            assert_eq!(archived.iter().map(|deploy| deploy.revision.get()).collect::<Vec<_>>(), [1]);
        }
    });
}

#[test]
fn fields_of_a_newer_version_and_labels_of_people_stay() {
    test("fields_of_a_newer_version_and_labels_of_people_stay", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let added = json!({
            "metadata": {"labels": {"team": "shop"}, "annotations": {"note": "kept"}},
            "spec": {"invented": {"later": true}},
            "status": {"also_invented": [1, 2]},
        });
        fresh.patch_app(&fresh.app(app).await, added).await;
        for store in [&store, &fresh.handle().await] {
            admit(store, app, "v1").await;
            let object = fresh.app(app).await;
            assert_eq!((object.labels()["team"].as_str(), object.annotations()["note"].as_str()), ("shop", "kept"));
            assert_eq!(object.spec.0["invented"], json!({"later": true}));
            assert_eq!(object.status.unwrap()["also_invented"], json!([1, 2]));
        }
    });
}

#[test]
fn only_the_form_that_is_known_is_written_to() {
    test("only_the_form_that_is_known_is_written_to", async |fresh: &Fresh| {
        let definitions: Api<CustomResourceDefinition> = Api::all(fresh.client.clone());
        let mark = async |form: serde_json::Value| {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {crd::FORM: form}}}));
            definitions.patch("appdeploys.rollhook.dev", &PatchParams::default(), &patch).await.unwrap();
        };
        // May read and not change them.
        let reader = fresh.client_through(|mut request: Request<Body>| {
            if request.method() == Method::PATCH {
                request.headers_mut().insert("impersonate-user", HeaderValue::from_static("nobody"));
            }
            request
        });
        let reader = reader.await;
        assert!(!ensure_crds(&reader).await.unwrap(), "nothing need be changed");
        for other in [json!("999"), json!(null)] {
            mark(other).await;
            let refused = ensure_crds(&fresh.client).await.unwrap_err().to_string();
            assert!(refused.contains("kubectl delete crd appdeploys.rollhook.dev"), "{refused}");
        }
        mark(json!(crd::THIS_FORM.to_string())).await;
        assert!(!ensure_crds(&fresh.client).await.unwrap());
    });
}

#[test]
fn missing_namespace_is_named() {
    test("missing_namespace_is_named", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let registration = client::registration(Change::register(samples::app("no", "where", "api")));
        let refused = store.commit_one(registration).await;
        let Err(Error::Invalid { what, .. }) = &refused else { panic!("{refused:?}") };
        assert!(what.contains("kubectl create namespace no-where"), "{what}");
        let leases: Api<Lease> = Api::namespaced(fresh.client.clone(), OWN);
        let left: Vec<String> =
            leases.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
        assert_eq!(left, [""; 0], "and nothing is left of it");
    });
}

#[test]
fn custom_resources_apply_without_warnings() {
    test("custom_resources_apply_without_warnings", async |fresh: &Fresh| {
        let file = std::env::temp_dir().join(format!("rollhook-crds-{}.yaml", std::process::id()));
        std::fs::write(&file, rollhook_kubernetes::manifests::crds()).unwrap();
        let server_side = ["apply", "--server-side", "--force-conflicts", "--dry-run=server"];
        let file_name = file.to_str().unwrap();
        fresh.kubectl(&[&server_side[..], &["--warnings-as-errors", "--filename", file_name]].concat());
        std::fs::remove_file(file).unwrap();
    });
}

#[test]
fn heartbeat_fails_while_the_custom_resources_are_gone() {
    test("heartbeat_fails_while_the_custom_resources_are_gone", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let replica = samples::replica("pod-1", 1);
        // Another duration each time, so that each is due.
        let seconds = AtomicU64::new(15);
        let beat = || store.heartbeat(&replica, Duration::from_secs(seconds.fetch_add(1, Ordering::Relaxed)));
        beat().await.unwrap();
        fresh.kubectl(&["delete", "customresourcedefinition", "rollhookapps.rollhook.dev"]);
        let failure = until_async("commits cannot be written", async || beat().await.err()).await;
        assert!(failure.to_string().contains("rollhook-server manifests"), "{failure}");
        ensure_crds(&fresh.client).await.unwrap();
        until_async("they can again", async || beat().await.ok()).await;
    });
}
