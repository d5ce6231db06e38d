//! Processes that give their signs of life in different namespaces, on the apps of one cluster.

use std::time::Duration;

use http::{Request, header::HeaderValue};
use kube::client::Body;
use rollhook_conformance::{Stores, samples};
use rollhook_core::{
    app::AppUid,
    ports::{Claim, History, Record},
};
use rollhook_kubernetes::KubernetesStore;

use crate::harness::{Fresh, admit, registered, test};

const TTL: Duration = Duration::from_secs(15);
const ELSEWHERE: &str = "other-test";

/// A command line in another namespace than the server's.
async fn outside(fresh: &Fresh) -> KubernetesStore {
    fresh.handle_in(ELSEWHERE, |request| request).await
}

async fn claims(store: &KubernetesStore, name: &str) -> Vec<AppUid> {
    store.caught_up().await.unwrap();
    let claim = Claim { replica: samples::replica(name, 1), ttl: TTL, limit: 9 };
    store.claim(claim).await.unwrap().apps
}

#[test]
fn who_lives_elsewhere_keeps_its_apps_and_who_died_there_does_not() {
    test("who_lives_elsewhere_keeps_its_apps_and_who_died_there_does_not", async |fresh: &Fresh| {
        let (inside, outside) = (fresh.handle().await, outside(fresh).await);
        let app = registered(&inside).await;
        admit(&inside, &app, "v1").await;
        assert_eq!(claims(&outside, "cli").await, [app.uid]);
        assert_eq!(fresh.app(app.uid).await.status.unwrap().owner.unwrap().namespace, ELSEWHERE);
        for _ in 0..4 {
            assert_eq!(claims(&inside, "server").await, []);
            fresh.advance(TTL / 2).await.unwrap();
            assert_eq!(claims(&outside, "cli").await, [app.uid]);
        }
        let none = Record { app: app.uid, claim: Some(1), changes: Vec::new(), lift: Vec::new(), rest: false };
        outside.record(none).await.unwrap();
        assert_eq!(claims(&inside, "server").await, []);
        fresh.advance(TTL).await.unwrap();
        assert_eq!(claims(&inside, "server").await, [app.uid], "it gave no sign for its time");
        assert_eq!(claims(&outside, "cli").await, [], "and the other way round");
    });
}

#[test]
fn who_says_farewell_elsewhere_gives_up_at_once() {
    test("who_says_farewell_elsewhere_gives_up_at_once", async |fresh: &Fresh| {
        let (inside, outside) = (fresh.handle().await, outside(fresh).await);
        let app = registered(&inside).await;
        admit(&inside, &app, "v1").await;
        assert_eq!(claims(&outside, "cli").await, [app.uid]);
        assert_eq!(claims(&inside, "server").await, []);
        let farewell = Claim { replica: samples::replica("cli", 1), ttl: Duration::ZERO, limit: 0 };
        outside.claim(farewell).await.unwrap();
        fresh.advance(TTL).await.unwrap();
        assert_eq!(claims(&inside, "server").await, [app.uid]);
    });
}

#[test]
fn who_may_not_be_looked_at_counts_as_living() {
    test("who_may_not_be_looked_at_counts_as_living", async |fresh: &Fresh| {
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
        admit(&outside, &app, "v1").await;
        assert_eq!(claims(&outside, "cli").await, [app.uid]);
        for _ in 0..3 {
            assert_eq!(claims(&inside, "server").await, []);
            fresh.advance(10 * TTL).await.unwrap();
        }
        // Somebody does as the warning says.
        let apps = kube::Api::<rollhook_kubernetes::crd::AppObject>::namespaced(fresh.client.clone(), "shop-test");
        let given_up = kube::api::Patch::Merge(serde_json::json!({"status": {"owner": null}}));
        apps.patch("api", &kube::api::PatchParams::default(), &given_up).await.unwrap();
        assert_eq!(claims(&inside, "server").await, [app.uid]);
    });
}
