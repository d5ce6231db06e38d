//! What others have left behind: crashed processes, earlier registrations, people with kubectl, and a long history.

use std::time::Duration;

use http::{Method, Request, header::HeaderValue};
use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use rollhook_conformance::{Stores, samples};
use rollhook_core::{
    Error,
    app::{App, AppUid},
    deploy::{Deploy, Revision, State, Status},
    ports::{AppPage, Apps, Claim, History, HistoryExt, Page, Record, TokenStore},
};
use rollhook_kubernetes::{
    KubernetesStore,
    crd::{self, AppObject, DeployObject},
    ensure_crds,
};
use serde_json::json;

use crate::harness::{Fresh, OWN, admit, registered, succeeded, test};

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn end(store: &KubernetesStore, app: &App, deploy: &Deploy, state: State) {
    let changes = vec![deploy.moved(state)];
    store.record(Record { app: app.uid, claim: None, changes, lift: Vec::new(), rest: true }).await.unwrap();
}

fn deploys(fresh: &Fresh, namespace: &str) -> Api<DeployObject> {
    Api::namespaced(fresh.client.clone(), namespace)
}

#[test]
fn an_end_that_a_crash_left_in_the_app_is_read_and_moved() {
    test("an_end_that_a_crash_left_in_the_app_is_read_and_moved", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let one = admit(&store, &app, "v1").await;
        end(&store, &app, &one, succeeded()).await;
        assert_eq!(fresh.app(app.uid).await.status.unwrap().pending.len(), 1, "written with the App at first");
        let mut object = fresh.object(app.uid, one.revision).await;
        assert_eq!(object.status.as_ref().unwrap().status, "succeeded", "then in its own object");
        // As if the process had died in between.
        object.status = None;
        deploys(fresh, "shop-test").replace_status("api-1", &PostParams::default(), &object).await.unwrap();

        let next = fresh.handle().await;
        let current = next.view(app.uid).await.unwrap().current.unwrap();
        assert_eq!((current.revision, current.status()), (one.revision, Status::Succeeded));
        assert_eq!(next.entry(app.uid, one.revision).await.unwrap(), Some(current.clone()));
        let two = admit(&next, &app, "v2").await;
        end(&next, &app, &two, succeeded()).await;
        assert_eq!(fresh.object(app.uid, one.revision).await.status.unwrap().status, "succeeded");
        let pending = fresh.app(app.uid).await.status.unwrap().pending;
        assert_eq!(pending.iter().map(|entry| entry.revision).collect::<Vec<_>>(), [2], "only the newest are left");
        assert_eq!(next.entry(app.uid, one.revision).await.unwrap(), Some(current));
    });
}

#[test]
fn entries_of_an_earlier_registration_are_in_nobodys_way() {
    test("entries_of_an_earlier_registration_are_in_nobodys_way", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let one = admit(&store, &app, "old").await;
        let mut left = fresh.object(app.uid, one.revision).await;
        Apps::remove(&store, app.uid).await.unwrap();
        left.metadata =
            kube::api::ObjectMeta { resource_version: None, uid: None, owner_references: None, ..left.metadata };
        deploys(fresh, "shop-test").create(&PostParams::default(), &left).await.unwrap();

        let anew = store.create(App { uid: AppUid::from_bits(7), ..app }).await.unwrap();
        assert_eq!(store.view(anew.uid).await.unwrap().last, None);
        let first = admit(&store, &anew, "new").await;
        assert_eq!((first.revision, first.image), (Revision::FIRST, Some(samples::image("new"))));
        assert_eq!(store.entry(anew.uid, Revision::FIRST).await.unwrap().unwrap().id, first.id);
    });
}

#[test]
fn a_copy_of_an_app_is_none() {
    test("a_copy_of_an_app_is_none", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let one = admit(&store, &app, "v1").await;
        store.put(app.uid, &samples::token(1)).await.unwrap();
        let move_to = |metadata: kube::api::ObjectMeta| kube::api::ObjectMeta {
            namespace: Some("shop-prod".to_owned()),
            resource_version: None,
            uid: None,
            owner_references: None,
            ..metadata
        };
        let object = fresh.app(app.uid).await;
        let copy = AppObject { metadata: move_to(object.metadata.clone()), ..object };
        let apps: Api<AppObject> = Api::namespaced(fresh.client.clone(), "shop-prod");
        apps.create(&PostParams::default(), &copy).await.unwrap();
        let entry = fresh.object(app.uid, one.revision).await;
        let copy = DeployObject { metadata: move_to(entry.metadata.clone()), ..entry };
        deploys(fresh, "shop-prod").create(&PostParams::default(), &copy).await.unwrap();
        let secrets = |namespace: &str| Api::<Secret>::namespaced(fresh.client.clone(), namespace);
        let secret = secrets("shop-test").get("api-webhook").await.unwrap();
        let copy = Secret { metadata: move_to(secret.metadata.clone()), ..secret };
        secrets("shop-prod").create(&PostParams::default(), &copy).await.unwrap();

        for store in [store, fresh.handle().await] {
            let at_the_copy = store.find_fitting(&"shop-prod/api".parse().unwrap(), &|token| token.is_some()).await;
            assert!(at_the_copy.unwrap().is_none(), "the old token opens nothing there");
            assert!(store.find_fitting(&app.id, &|token| token.is_some()).await.unwrap().is_some());
            let copied = Apps::find(&store, &"shop-prod/api".parse().unwrap()).await;
            assert!(matches!(copied, Err(Error::Corrupt { .. })), "{copied:?}");
            let listed = store.list(AppPage { limit: 9, ..AppPage::default() }).await.unwrap();
            assert_eq!(listed, std::slice::from_ref(&app));
            let claim = Claim { replica: samples::replica("a", 1), ttl: DAY, limit: 9 };
            assert_eq!(store.claim(claim).await.unwrap().apps, [app.uid]);
            assert_eq!(store.view(app.uid).await.unwrap().unfinished, std::slice::from_ref(&one));
        }
    });
}

#[test]
fn an_ended_entry_that_was_deleted_by_hand_is_a_gap_and_no_obstacle() {
    test("an_ended_entry_that_was_deleted_by_hand_is_a_gap_and_no_obstacle", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        for tag in ["v1", "v2", "v3"] {
            let deploy = admit(&store, &app, tag).await;
            end(&store, &app, &deploy, succeeded()).await;
        }
        deploys(fresh, "shop-test").delete("api-2", &DeleteParams::default()).await.unwrap();
        for store in [&store, &fresh.handle().await] {
            let entries = store.page(app.uid, Page { before: None, succeeded: true, limit: 9 }).await.unwrap();
            assert_eq!(entries.iter().map(|deploy| deploy.revision.get()).collect::<Vec<_>>(), [3, 1]);
        }
        assert_eq!(admit(&store, &app, "v4").await.revision, samples::revision(4));
    });
}

#[test]
fn entries_that_were_deleted_by_hand_hold_up_nothing() {
    test("entries_that_were_deleted_by_hand_hold_up_nothing", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        for tag in ["v1", "v2"] {
            let deploy = admit(&store, &app, tag).await;
            end(&store, &app, &deploy, succeeded()).await;
        }
        let open = admit(&store, &app, "v3").await;
        let drive = Claim { replica: samples::replica("a", 1), ttl: DAY, limit: 9 };
        assert_eq!(store.claim(drive.clone()).await.unwrap().apps, [app.uid]);
        let started = Deploy { touched: true, ..open.moved(State::Queued) };
        let started = Record { app: app.uid, claim: Some(1), changes: vec![started], lift: Vec::new(), rest: false };
        store.record(started).await.unwrap();
        for name in ["api-2", "api-3"] {
            deploys(fresh, "shop-test").delete(name, &DeleteParams::default()).await.unwrap();
        }
        fresh.caught_up().await;
        for store in [&store, &fresh.handle().await] {
            let view = store.view(app.uid).await.unwrap();
            assert_eq!(view.current.unwrap().revision, Revision::FIRST, "the last success that is left");
            assert_eq!((view.unfinished, view.last), (Vec::new(), Some(samples::revision(3))));
            let entries = store.page(app.uid, Page { before: None, succeeded: false, limit: 9 }).await.unwrap();
            assert_eq!(entries.iter().map(|deploy| deploy.revision.get()).collect::<Vec<_>>(), [1]);
        }
        let next = admit(&store, &app, "v4").await;
        assert_eq!(next.revision, samples::revision(4));
        assert_eq!(store.claim(drive).await.unwrap().apps, [app.uid]);
        let end = Record {
            app: app.uid,
            claim: Some(1),
            changes: vec![next.moved(succeeded())],
            lift: Vec::new(),
            rest: true,
        };
        store.record(end).await.unwrap();
        assert_eq!(store.view(app.uid).await.unwrap().current.unwrap().revision, next.revision);
    });
}

#[test]
fn a_long_history_is_kept_short_and_counts_on() {
    test("a_long_history_is_kept_short_and_counts_on", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let first = admit(&store, &app, "v1").await;
        end(&store, &app, &first, succeeded()).await;
        for _ in 0..3 {
            let mut ends = Vec::new();
            for _ in 0..75 {
                let message = String::new();
                let reason = rollhook_core::deploy::Reason::new(rollhook_core::deploy::Reason::CANCELLED);
                ends.push(admit(&store, &app, "v").await.moved(State::Cancelled { reason, message }));
            }
            let record = Record { app: app.uid, claim: None, changes: ends, lift: Vec::new(), rest: true };
            store.record(record).await.unwrap();
        }
        let stored = async || deploys(fresh, "shop-test").list(&ListParams::default()).await.unwrap().items.len();
        let rest = async |store: &KubernetesStore| {
            let claim = Claim { replica: samples::replica("a", 1), ttl: DAY, limit: 9 };
            assert_eq!(store.claim(claim).await.unwrap().apps, [app.uid]);
            let none = Record { app: app.uid, claim: Some(1), changes: Vec::new(), lift: Vec::new(), rest: true };
            store.record(none).await.unwrap();
        };
        let last = admit(&store, &app, "v227").await;
        end(&store, &app, &last, succeeded()).await;
        store.record(Record { app: app.uid, claim: None, changes: vec![], lift: vec![], rest: false }).await.unwrap();
        rest(&store).await;
        assert_eq!(stored().await, 227, "what is young is kept");
        fresh.advance(8 * DAY).await.unwrap();
        for left in [223, 219, 215, 211, 207, 203, 201, 201] {
            store
                .record(Record { app: app.uid, claim: None, changes: vec![], lift: vec![], rest: false })
                .await
                .unwrap();
            rest(&store).await;
            assert_eq!(stored().await, left, "the newest 200, and the only other that can be returned to");
        }
        for store in [&store, &fresh.handle().await] {
            let entries = store.page(app.uid, Page { before: None, succeeded: true, limit: 9 }).await.unwrap();
            assert_eq!(entries.iter().map(|deploy| deploy.revision.get()).collect::<Vec<_>>(), [227, 1]);
            let all = store.page(app.uid, Page { before: None, succeeded: false, limit: 999 }).await.unwrap();
            assert_eq!(all.len(), 201);
        }
        assert_eq!(admit(&fresh.handle().await, &app, "v").await.revision, samples::revision(228));
    });
}

#[test]
fn only_the_form_that_is_written_is_written_to() {
    test("only_the_form_that_is_written_is_written_to", async |fresh: &Fresh| {
        let definitions: Api<CustomResourceDefinition> = Api::all(fresh.client.clone());
        let installed = async |form: &str| {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {crd::FORM: form}}}));
            definitions.patch("appdeploys.rollhook.dev", &PatchParams::default(), &patch).await.unwrap();
        };
        let refusal = |outcome: rollhook_core::Result<bool>| outcome.unwrap_err().to_string();
        // May read and not change them.
        let reader = fresh.client_through(|mut request: Request<Body>| {
            if request.method() == Method::PATCH {
                request.headers_mut().insert("impersonate-user", HeaderValue::from_static("nobody"));
            }
            request
        });
        let reader = reader.await;
        assert!(!ensure_crds(&reader).await.unwrap(), "nothing need be changed");
        installed("999").await;
        let newer = refusal(ensure_crds(&fresh.client).await);
        assert!(newer.contains("a newer version of rollhook"), "{newer}");
        installed("1").await;
        let older = refusal(ensure_crds(&reader).await);
        assert!(older.contains("rollhook-server manifests --app-namespace"), "{older}");
        assert!(!ensure_crds(&fresh.client).await.unwrap(), "who may change them does");
        assert!(!ensure_crds(&reader).await.unwrap());
    });
}

#[test]
fn what_is_missing_in_the_cluster_is_named() {
    test("what_is_missing_in_the_cluster_is_named", async |fresh: &Fresh| {
        assert!(!ensure_crds(&fresh.client).await.unwrap(), "they are there already");
        let store = fresh.handle().await;
        let refused = store.create(samples::app("no", "where", "api")).await;
        let Err(Error::Invalid { what, .. }) = &refused else { panic!("{refused:?}") };
        assert!(what.contains("kubectl create namespace no-where"), "{what}");
        let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(fresh.client.clone(), OWN);
        let left: Vec<String> =
            leases.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
        assert_eq!(left, [""; 0], "and nothing is left of it");
    });
}
