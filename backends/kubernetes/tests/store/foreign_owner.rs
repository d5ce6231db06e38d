//! Replicas whose Leases are in different namespaces, on the apps of one cluster.

use std::time::Duration;

use http::{Request, header::HeaderValue};
use kube::client::Body;
use rollhook_conformance::{Stores, client, samples};
use rollhook_core::{
    app::AppUid,
    ports::{AppPage, HistoryStore, HistoryStoreExt},
    replica::ReplicaId,
};
use rollhook_kubernetes::KubernetesStore;
use serde_json::json;

use crate::harness::{Fresh, admit, registered, test};

const TTL: Duration = Duration::from_secs(15);
const ELSEWHERE: &str = "other-test";

/// A command line in another namespace than the server's.
async fn outside(fresh: &Fresh) -> KubernetesStore {
    fresh.handle_in(ELSEWHERE, |request| request).await
}

/// The work that a replica finds.
async fn finds(store: &KubernetesStore, name: &str) -> Vec<AppUid> {
    store.sync().await.unwrap();
    let alive = store.heartbeat(&samples::replica(name, 1), TTL).await.unwrap().alive;
    store.work(&alive, 9).await.unwrap()
}

async fn lease(store: &KubernetesStore, app: AppUid, replica: &ReplicaId) {
    client::change(store, app, |change, now| change.lease(replica, now)).await;
}

#[test]
fn living_foreign_owner_keeps_its_apps_and_a_dead_one_does_not() {
    test("living_foreign_owner_keeps_its_apps_and_a_dead_one_does_not", async |fresh: &Fresh| {
        let (inside, outside) = (fresh.handle().await, outside(fresh).await);
        let (server, cli) = (samples::replica("server", 1), samples::replica("cli", 1));
        let app = registered(&inside).await;
        admit(&inside, app, "v1").await;
        assert_eq!(finds(&outside, "cli").await, [app]);
        lease(&outside, app, &cli).await;
        assert_eq!(fresh.app(app).await.status.unwrap()["lease_namespace"], ELSEWHERE);
        for _ in 0..4 {
            assert_eq!(finds(&inside, "server").await, []);
            fresh.advance(TTL / 2).await.unwrap();
            assert_eq!(finds(&outside, "cli").await, [], "its own app");
        }
        // A commit that leaves the lease leaves its namespace.
        admit(&inside, app, "v2").await;
        assert_eq!(finds(&inside, "server").await, []);
        fresh.advance(TTL).await.unwrap();
        assert_eq!(finds(&inside, "server").await, [app], "no heartbeat for its time");
        lease(&inside, app, &server).await;
        assert_eq!(finds(&outside, "cli").await, [], "and the other way round");
        fresh.advance(2 * TTL).await.unwrap();
        assert_eq!(finds(&outside, "cli").await, [app]);
    });
}

#[test]
fn foreign_owner_that_released_its_leases_gives_up_its_apps() {
    test("foreign_owner_that_released_its_leases_gives_up_its_apps", async |fresh: &Fresh| {
        let (inside, outside) = (fresh.handle().await, outside(fresh).await);
        let cli = samples::replica("cli", 1);
        let app = registered(&inside).await;
        admit(&inside, app, "v1").await;
        assert_eq!(finds(&outside, "cli").await, [app]);
        lease(&outside, app, &cli).await;
        assert_eq!(finds(&inside, "server").await, []);
        outside.heartbeat(&cli, Duration::ZERO).await.unwrap();
        fresh.advance(TTL).await.unwrap();
        assert_eq!(finds(&inside, "server").await, [app]);
    });
}

#[test]
fn foreign_owner_whose_lease_may_not_be_read_counts_as_living() {
    test("foreign_owner_whose_lease_may_not_be_read_counts_as_living", async |fresh: &Fresh| {
        let outside = outside(fresh).await;
        // May not read Leases in other namespaces.
        let confined = |mut request: Request<Body>| {
            if request.uri().path().contains(&format!("/{ELSEWHERE}/leases")) {
                let nobody = HeaderValue::from_static("nobody");
                request.headers_mut().insert("impersonate-user", nobody);
            }
            request
        };
        let inside = fresh.handle_through(confined).await;
        let app = registered(&outside).await;
        admit(&outside, app, "v1").await;
        assert_eq!(finds(&outside, "cli").await, [app]);
        lease(&outside, app, &samples::replica("cli", 1)).await;
        for _ in 0..3 {
            assert_eq!(finds(&inside, "server").await, []);
            fresh.advance(10 * TTL).await.unwrap();
        }
        // A person does as the warning says.
        fresh.patch_app(&fresh.app(app).await, json!({"status": {"lease": null}})).await;
        assert_eq!(finds(&inside, "server").await, [app]);
    });
}

#[test]
fn replica_that_has_just_started_keeps_the_lease_that_it_was_given() {
    test("replica_that_has_just_started_keeps_the_lease_that_it_was_given", async |fresh: &Fresh| {
        let (one, two) = (fresh.handle().await, fresh.handle().await);
        let (old, new) = (samples::replica("old", 1), samples::replica("new", 1));
        assert_eq!(one.heartbeat(&old, TTL).await.unwrap().alive, std::slice::from_ref(&old));
        two.heartbeat(&new, TTL).await.unwrap();
        let app = registered(&two).await;
        admit(&two, app, "v1").await;
        lease(&two, app, &new).await;
        // Its watch has shown the lease, not the replica.
        let listed = async || one.states(AppPage::first(9)).await.unwrap();
        while listed().await.first().is_none_or(|state| state.lease.is_none()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut alive = one.heartbeat(&old, TTL).await.unwrap().alive;
        alive.sort();
        assert_eq!(alive, [new, old], "its Leases are read before its apps are taken");
        assert_eq!(one.work(&alive, 9).await.unwrap(), []);
    });
}
