//! A server that is killed under load, and comes back.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::bed::{Database, LACK, Server, skipped};
use rollhook_conformance::samples;
use rollhook_core::{
    app::App,
    deploy::AdmissionId,
    ports::{Admission, Admitted, Apps, History, Page},
};
use rollhook_postgres::PostgresStore;

/// What one caller saw: revisions by the accepts that were answered.
type Answered = BTreeMap<AdmissionId, u64>;

async fn keep_accepting(store: PostgresStore, app: App, stop: Arc<AtomicBool>) -> (Answered, usize) {
    let (mut answered, mut refused) = (Answered::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let admission = Admission { supersede: true, ..samples::admission(&app, samples::draft("v")) };
        let id = admission.id;
        match store.admit(admission).await {
            Ok(Admitted::New { deploy, .. }) => drop(answered.insert(id, deploy.revision.get())),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert!(error.is_unavailable(), "{error:?}");
                refused += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    (answered, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_accepted_is_lost_or_doubled_when_the_server_is_killed() {
    let test = "nothing_accepted_is_lost_or_doubled_when_the_server_is_killed";
    let Some(server) = Server::own("outage") else { return skipped(test, LACK) };
    let database = Database::on(server).await;
    let stores = [database.store().await, database.store().await];
    let app = stores[0].create(samples::app("shop", "test", "api")).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..16)
        .map(|at| tokio::spawn(keep_accepting(stores[at % 2].clone(), app.clone(), Arc::clone(&stop))))
        .collect();
    for word in ["kill", "stop", "kill"] {
        tokio::time::sleep(Duration::from_millis(700)).await;
        database.server.control(word);
        let refused = stores[0].view(app.uid).await.unwrap_err();
        assert!(refused.is_unavailable(), "{refused:?}");
        database.server.control("start");
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    stop.store(true, Ordering::Relaxed);
    let (mut answered, mut refused) = (Answered::new(), 0);
    for caller in callers {
        let (more, missed) = caller.await.unwrap();
        answered.extend(more);
        refused += missed;
    }
    assert!(refused > 0 && answered.len() > 100, "{} answered, {refused} refused", answered.len());

    let stored = stores[1].page(app.uid, Page { before: None, succeeded: false, limit: usize::MAX }).await.unwrap();
    let numbers: Vec<u64> = stored.iter().rev().map(|deploy| deploy.revision.get()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "without gaps");
    let by_id: BTreeMap<AdmissionId, u64> = stored.iter().map(|deploy| (deploy.id, deploy.revision.get())).collect();
    assert_eq!(by_id.len(), stored.len(), "each once");
    for (id, revision) in &answered {
        assert_eq!(by_id.get(id), Some(revision), "an answered accept is stored as it was answered");
    }
    assert!(stored.len() <= answered.len() + refused, "what is stored was asked for");
}
