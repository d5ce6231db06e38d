//! What calls cost the API server: counted, so that it stays so.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Request;
use kube::client::Body;
use rollhook_conformance::{Stores, samples};
use rollhook_core::{
    app::App,
    ports::{Admission, Apps, Claim, History, Record},
};
use rollhook_kubernetes::KubernetesStore;

use crate::harness::{Fresh, admit, registered, succeeded, test};

const TTL: Duration = Duration::from_secs(600);

/// The requests of one handle, but for its watches.
#[derive(Clone, Default)]
struct Counter(Arc<Mutex<Vec<String>>>);

impl Counter {
    async fn handle(&self, fresh: &Fresh) -> KubernetesStore {
        let noted = self.0.clone();
        let store = fresh
            .handle_through(move |request: Request<Body>| {
                if !request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                    let kind = request.uri().path().rsplit('/').find(|part| KINDS.contains(part)).unwrap_or("other");
                    noted.lock().unwrap().push(format!("{} {kind}", request.method()));
                }
                request
            })
            .await;
        store.caught_up().await.unwrap();
        self.taken();
        store
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

const KINDS: [&str; 4] = ["apps", "appdeploys", "leases", "secrets"];

fn claim() -> Claim {
    Claim { replica: samples::replica("a", 1), ttl: TTL, limit: 100 }
}

fn record_of(app: &App) -> Record {
    Record { app: app.uid, claim: Some(1), changes: Vec::new(), lift: Vec::new(), rest: true }
}

#[test]
fn an_accept_costs_one_creation_and_one_read() {
    test("an_accept_costs_one_creation_and_one_read", async |fresh: &Fresh| {
        let counter = Counter::default();
        let store = counter.handle(fresh).await;
        let app = registered(&store).await;
        counter.taken();
        for tag in ["v1", "v2"] {
            admit(&store, &app, tag).await;
            assert_eq!(counter.taken(), ["GET apps", "POST appdeploys"]);
        }
        store.find(&app.id).await.unwrap();
        admit(&store, &app, "v3").await;
        assert_eq!(counter.taken(), ["GET apps", "POST appdeploys"], "decided on a read, it is not made again");

        let rollback = samples::rollback("v1", samples::revision(1));
        let by = Admission { supersede: true, hold: Some(samples::hold("v3")), ..samples::admission(&app, rollback) };
        store.admit(by).await.unwrap();
        let mut calls = counter.taken();
        let shown = calls.split_off(3);
        assert_eq!(calls, ["GET apps", "POST appdeploys", "PUT apps"], "what it does to others is one write more");
        assert_eq!(shown, ["PUT appdeploys"; 3], "and is shown in each");
    });
}

#[test]
fn a_record_costs_one_write_and_one_to_show_it() {
    test("a_record_costs_one_write_and_one_to_show_it", async |fresh: &Fresh| {
        let counter = Counter::default();
        let store = counter.handle(fresh).await;
        let app = registered(&store).await;
        let deploy = admit(&store, &app, "v1").await;
        store.claim(claim()).await.unwrap();
        store.caught_up().await.unwrap();
        counter.taken();
        store.record(Record { changes: vec![deploy.moved(succeeded())], ..record_of(&app) }).await.unwrap();
        assert_eq!(counter.taken(), ["PUT apps", "PUT appdeploys"]);
        store.view(app.uid).await.unwrap();
        assert_eq!(counter.taken(), ["GET apps", "GET appdeploys"], "the app, and whether anything is newer");
    });
}

#[test]
fn apps_at_rest_cost_nothing_and_a_replica_one_sign_of_life() {
    test("apps_at_rest_cost_nothing_and_a_replica_one_sign_of_life", async |fresh: &Fresh| {
        let counter = Counter::default();
        let store = counter.handle(fresh).await;
        for number in 0..20 {
            let app = store.create(samples::app("shop", "test", &format!("app-{number}"))).await.unwrap();
            let deploy = admit(&store, &app, "v1").await;
            store.claim(claim()).await.unwrap();
            store.record(Record { changes: vec![deploy.moved(succeeded())], ..record_of(&app) }).await.unwrap();
        }
        counter.taken();
        for _ in 0..10 {
            store.claim(claim()).await.unwrap();
        }
        assert_eq!(counter.taken(), [""; 0]);
        fresh.advance(TTL / 3).await.unwrap();
        counter.taken();
        for _ in 0..10 {
            store.claim(claim()).await.unwrap();
        }
        assert_eq!(counter.taken(), ["PUT leases"]);
    });
}
