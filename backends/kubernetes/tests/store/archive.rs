//! The archive that people read: what an `AppDeploy` shows, and that its end is certain.

use std::sync::atomic::Ordering;

use http::{Method, Request, header::HeaderValue};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
    client::Body,
};
use rollhook_conformance::{client, samples};
use rollhook_core::{
    app::AppUid,
    deploy::{Deploy, State},
    ledger::{Admission, Change, OtherDeploys, Record},
    ports::{AppRef, HistoryStore, HistoryStoreExt, Page},
};
use rollhook_kubernetes::{
    KubernetesStore,
    crd::{KEY_ANNOTATION, STATUS_LABEL},
};

use crate::harness::{Fresh, admit, archiving, end, registered, status, test};

/// A replica that commits and dies before it has written any `AppDeploy`.
async fn dying(fresh: &Fresh) -> KubernetesStore {
    fresh
        .handle_through(|mut request: Request<Body>| {
            if request.method() != Method::GET && request.uri().path().contains("/appdeploys") {
                request.headers_mut().insert("impersonate-user", HeaderValue::from_static("nobody"));
            }
            request
        })
        .await
}

async fn numbers(store: &KubernetesStore, app: AppUid, succeeded: bool) -> Vec<u64> {
    let page = Page::newest(99).succeeded(succeeded);
    store.page(app, page).await.unwrap().iter().map(|deploy| deploy.revision.get()).collect()
}

#[test]
fn deploy_is_shown_from_its_accept_to_its_end() {
    test("deploy_is_shown_from_its_accept_to_its_end", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let keyed = samples::keyed(samples::key("run-1", 1), samples::deploy("v1"));
        let deploy = client::admit(&store, app, keyed).await;
        let shown = fresh.shown(1, "queued").await;
        assert_eq!(shown.labels()[STATUS_LABEL], "queued");
        assert!(shown.annotations()[KEY_ANNOTATION].contains("run-1"));
        assert_eq!(shown.owner_references()[0].uid, fresh.app(app).await.uid().unwrap());
        let spec = &shown.spec.0;
        assert_eq!((&spec["app"], &spec["by"], &spec["revision"]), (&"api".into(), &"ci".into(), &1.into()));
        assert!(spec["accepted"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());

        let rolling = deploy.moved(samples::rolling_out(&deploy));
        client::record(&store, app, vec![Deploy { touched: true, ..rolling.clone() }]).await;
        fresh.shown(1, "rolling_out").await;
        // A person's label stays.
        fresh.label_deploy("api-1", "team", "shop").await;
        end(&store, app, &rolling, samples::succeeded()).await;
        let shown = fresh.shown(1, "succeeded").await;
        assert_eq!((shown.labels()[STATUS_LABEL].as_str(), shown.labels()["team"].as_str()), ("succeeded", "shop"));
        assert_eq!(
            fresh
                .kubectl(&["get", "appdeploys", "--namespace", "shop-test", "--no-headers"])
                .split_whitespace()
                .take(6)
                .collect::<Vec<_>>(),
            ["api-1", "api", "1", "registry.example.com/shop/api:v1", "v1", "webhook"]
        );
    });
}

#[test]
fn app_shows_what_runs_and_what_is_unfinished() {
    test("app_shows_what_runs_and_what_is_unfinished", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let one = admit(&store, app, "v1").await;
        end(&store, app, &one, samples::succeeded()).await;
        admit(&store, app, "v2").await;
        admit(&store, app, "v3").await;
        client::change(&store, app, |change, now| change.lease(&samples::replica("pod-1", 1), now)).await;
        let table = fresh.kubectl(&[
            "get",
            "rollhookapps.rollhook.dev",
            "--namespace",
            "shop-test",
            "--no-headers",
            "--output",
            "wide",
        ]);
        let words: Vec<&str> = table.split_whitespace().collect();
        assert!(words[0] == "api" && words[1].ends_with(":v1"), "{table}");
        assert_eq!(words[2..8], ["queued", "1", "2,", "3", "api", "pod-1"], "{table}");
    });
}

#[test]
fn end_is_archived_whichever_replica_committed_it() {
    test("end_is_archived_whichever_replica_committed_it", async |fresh: &Fresh| {
        let dying = dying(fresh).await;
        let app = registered(&dying).await;
        let key = samples::key("run-1", 1);
        let one = client::admit(&dying, app, samples::keyed(key.clone(), samples::deploy("v1"))).await;
        let two = admit(&dying, app, "v2").await;
        let failed = State::Failed {
            reason: rollhook_core::deploy::Reason::new("CrashLoopBackOff"),
            message: "it crashes".to_owned(),
            evidence: Some(samples::evidence()),
        };
        end(&dying, app, &one, failed.clone()).await;
        end(&dying, app, &two, samples::succeeded()).await;
        assert_eq!(archiving(&fresh.app(app).await), [1, 2], "they stay in the App");
        assert_eq!(fresh.deploys("shop-test").list(&ListParams::default()).await.unwrap().items.len(), 0);

        let next = fresh.handle().await;
        for store in [&dying, &next] {
            assert_eq!(numbers(store, app, false).await, [2, 1], "and are the archive");
            assert_eq!(numbers(store, app, true).await, [2]);
            let stored = store.archived(app, one.revision).await.unwrap().unwrap();
            assert_eq!(stored.state, failed);
            let used = store.load(AppRef::Uid(app), Some(&key)).await.unwrap().unwrap().key.unwrap();
            assert_eq!((used.revision, used.request), (one.revision, key.request));
        }
        drop(dying);
        let archived = fresh.shown(1, "failed").await;
        assert_eq!(archived.spec.0["state"]["evidence"]["log"].as_array().unwrap().len(), 50);
        fresh.shown(2, "succeeded").await;
        next.sync().await.unwrap();
        admit(&next, app, "v3").await;
        assert_eq!(archiving(&fresh.app(app).await), [0; 0], "the next commit leaves out what is archived");
        let used = next.load(AppRef::Uid(app), Some(&key)).await.unwrap().unwrap().key.unwrap();
        assert_eq!(used.revision, one.revision, "the key is found in the archive");
        assert_eq!(numbers(&next, app, false).await, [2, 1]);
    });
}

#[test]
fn deploy_that_a_dead_replica_has_shown_rolling_out_is_shown_ended() {
    test("deploy_that_a_dead_replica_has_shown_rolling_out_is_shown_ended", async |fresh: &Fresh| {
        let first = fresh.handle().await;
        let app = registered(&first).await;
        let deploy = admit(&first, app, "v1").await;
        let rolling = deploy.moved(samples::rolling_out(&deploy));
        client::record(&first, app, vec![Deploy { touched: true, ..rolling.clone() }]).await;
        fresh.shown(1, "rolling_out").await;
        end(&dying(fresh).await, app, &rolling, samples::failed()).await;
        assert_eq!(status(&fresh.shown(1, "failed").await), "failed");
    });
}

#[test]
fn many_ends_at_once_are_archived_before_they_leave_the_app() {
    test("many_ends_at_once_are_archived_before_they_leave_the_app", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        client::change(&store, app, |change, now| {
            for _ in 0..60 {
                samples::admit(change, samples::admission(samples::deploy("v1")), now);
            }
        })
        .await;
        let rollback = Admission {
            others: OtherDeploys::EndSuperseded,
            ..samples::admission(samples::rollback("v1", samples::revision(1)))
        };
        client::admit(&store, app, rollback).await;
        // The next commit carries no more than a few of them on.
        client::change(&store, app, |change, now| change.record(Record::default(), now).unwrap()).await;
        assert!(archiving(&fresh.app(app).await).len() <= 20);
        assert_eq!(numbers(&store, app, false).await, (1..=60).rev().collect::<Vec<_>>());
        for revision in [1, 30, 60] {
            fresh.shown(revision, "superseded").await;
        }
    });
}

#[test]
fn deploy_that_was_deleted_by_hand_is_a_gap_and_no_obstacle() {
    test("deploy_that_was_deleted_by_hand_is_a_gap_and_no_obstacle", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        for (number, tag) in (1..).zip(["v1", "v2", "v3"]) {
            let deploy = admit(&store, app, tag).await;
            end(&store, app, &deploy, samples::succeeded()).await;
            fresh.shown(number, "succeeded").await;
        }
        let open = admit(&store, app, "v4").await;
        fresh.shown(4, "queued").await;
        for name in ["api-2", "api-4"] {
            fresh.deploys("shop-test").delete(name, &DeleteParams::default()).await.unwrap();
        }
        for store in [&store, &fresh.handle().await] {
            assert_eq!(numbers(store, app, false).await, [3, 1]);
            assert_eq!(client::load(store, app).await.state.unfinished.len(), 1, "the App is the truth");
        }
        assert_eq!(admit(&store, app, "v5").await.revision, samples::revision(5));
        end(&store, app, &open, samples::succeeded()).await;
        fresh.shown(4, "succeeded").await;
        assert_eq!(numbers(&fresh.handle().await, app, false).await, [4, 3, 1]);
    });
}

#[test]
fn end_whose_answer_was_lost_is_shown() {
    test("end_whose_answer_was_lost_is_shown", async |fresh: &Fresh| {
        let (store, lose) = fresh.handle_losing_answers().await;
        let app = registered(&store).await;
        let deploy = admit(&store, app, "v1").await;
        let rolling = deploy.moved(samples::rolling_out(&deploy));
        client::record(&store, app, vec![Deploy { touched: true, ..rolling.clone() }]).await;
        fresh.shown(1, "rolling_out").await;
        let loaded = client::load(&store, app).await;
        let mut change = Change::on(loaded.state);
        let changes = vec![rolling.moved(samples::succeeded())];
        change.record(Record { changes, idle: true, ..Record::default() }, loaded.now).unwrap();
        lose.store(true, Ordering::SeqCst);
        let lost = store.commit_one(client::put(change, loaded.version)).await;
        assert!(lost.is_err_and(|error| error.is_unavailable()));
        assert!(!lose.load(Ordering::SeqCst), "it was written");
        // Nothing is left to do for the app, so that no other commit follows.
        assert_eq!(client::load(&store, app).await.state.queued_at, None);
        fresh.shown(1, "succeeded").await;
    });
}

#[test]
fn status_that_contradicts_the_app_is_corrected() {
    test("status_that_contradicts_the_app_is_corrected", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let deploy = admit(&store, app, "v1").await;
        fresh.shown(1, "queued").await;
        // As of a cluster that was restored from a copy, or by hand.
        fresh.label_deploy("api-1", STATUS_LABEL, "failed").await;
        end(&store, app, &deploy, samples::succeeded()).await;
        assert_eq!(fresh.shown(1, "succeeded").await.labels()[STATUS_LABEL], "succeeded");
        assert_eq!(numbers(&fresh.handle().await, app, true).await, [1]);
    });
}
