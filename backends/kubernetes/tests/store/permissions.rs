//! The printed permissions are enough for the store, and without them a sentence says what helps.

use std::time::Duration;

use http::{Request, header::HeaderValue};
use kube::client::Body;
use rollhook_conformance::{client, samples};
use rollhook_core::{
    Error,
    configuration::ConfigurationId,
    ledger::Change,
    ports::{AppPage, ConfigurationStore, HistoryStore, HistoryStoreExt, TokenStore},
};
use rollhook_kubernetes::{KubernetesStore, ensure_crds, manifests};
use rollhook_management::ports::{NewRecord, RecordKey, RecordKind, RecordStore};

use crate::harness::{Fresh, OWN, admit, end, test};

/// A store that acts as the printed ServiceAccount.
async fn as_server(fresh: &Fresh) -> KubernetesStore {
    fresh.handle_through(act_as_server).await
}

fn act_as_server(mut request: Request<Body>) -> Request<Body> {
    let account = format!("system:serviceaccount:{OWN}:{}", manifests::SERVICE_ACCOUNT);
    request.headers_mut().insert("impersonate-user", HeaderValue::from_str(&account).unwrap());
    request
}

#[test]
fn printed_permissions_are_enough() {
    test("printed_permissions_are_enough", async |fresh: &Fresh| {
        let printed = manifests::rbac(OWN, &["shop-test".parse().unwrap()], false);
        let file = std::env::temp_dir().join(format!("rollhook-store-manifests-{}.yaml", std::process::id()));
        std::fs::write(&file, printed).unwrap();
        fresh.kubectl(&["apply", "--filename", file.to_str().unwrap()]);
        // Permissions count a moment after they were given.
        tokio::time::sleep(Duration::from_secs(1)).await;

        ensure_crds(&fresh.client_through(act_as_server).await).await.unwrap();
        let store = as_server(fresh).await;
        let replica = samples::replica("pod-1", 1);
        let alive = store.heartbeat(&replica, Duration::from_secs(15)).await.unwrap().alive;
        let state = client::register(&store, samples::app("shop", "test", "api")).await.state;
        let app = state.app.uid;
        TokenStore::put(&store, app, &samples::token(1)).await.unwrap();
        for number in 1..=2 {
            let deploy = admit(&store, app, "v1").await;
            fresh.shown(number, "queued").await;
            store.sync().await.unwrap();
            assert_eq!(store.work(&alive, 9).await.unwrap(), [app]);
            end(&store, app, &deploy, samples::succeeded()).await;
            fresh.shown(number, "succeeded").await;
        }
        client::change(&store, app, |change, now| change.forget(vec![samples::revision(1)], now)).await;
        assert_eq!(client::archive(&store, app).await.len(), 1);
        assert_eq!(store.states(AppPage::first(9)).await.unwrap().len(), 1);
        assert!(TokenStore::find(&store, &state.app.id).await.unwrap().is_some());
        let (id, variables) = (ConfigurationId(1), samples::configuration(1, &[("A", "b")]).variables);
        ConfigurationStore::put(&store, app, id, &variables).await.unwrap();
        assert_eq!(store.get(app, id).await.unwrap(), Some(variables));
        assert_eq!(ConfigurationStore::list(&store, app).await.unwrap().len(), 1);
        ConfigurationStore::remove(&store, app, &[id]).await.unwrap();
        client::remove(&store, app).await;
        assert!(TokenStore::find(&store, &state.app.id).await.unwrap().is_none());
        store.heartbeat(&replica, Duration::ZERO).await.unwrap();

        let key: RecordKey = "alice".parse().unwrap();
        let record = || NewRecord { key: key.clone(), document: "{}".to_owned(), ttl: None };
        let version = store.write(RecordKind::ApiToken, record(), None).await.unwrap();
        store.write(RecordKind::ApiToken, record(), Some(version)).await.unwrap();
        store.sync().await.unwrap();
        assert!(store.read(RecordKind::ApiToken, &key).await.unwrap().is_some());
        assert_eq!(RecordStore::list(&store, RecordKind::ApiToken, None, 9).await.unwrap().len(), 1);
        RecordStore::remove(&store, RecordKind::ApiToken, &key).await.unwrap();

        let elsewhere = fresh.handle_in("shop-test", act_as_server).await;
        let refused = elsewhere.write(RecordKind::ApiToken, record(), None).await.unwrap_err();
        assert!(matches!(refused, Error::Denied { .. }), "only in the server's own namespace: {}", refused.chain());

        let unbound = client::registration(Change::register(samples::app("shop", "prod", "api")));
        let refused = store.commit_one(unbound).await.unwrap_err();
        assert!(matches!(refused, Error::Denied { .. }), "{}", refused.chain());
        assert!(refused.to_string().contains("rollhook-server manifests"), "{refused}");
        fresh.kubectl(&["delete", "--filename", file.to_str().unwrap()]);
        std::fs::remove_file(file).unwrap();
    });
}
