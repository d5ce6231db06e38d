//! A server that is killed under load, and comes back.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rollhook_conformance::{client, samples};
use rollhook_core::{
    Error,
    app::AppUid,
    deploy::{AdmissionId, Deploy},
    ledger::{Admission, OtherDeploys},
    ports::{AppRef, HistoryStore, HistoryStoreExt},
};
use rollhook_postgres::PostgresStore;
use rollhook_testing::{beds::Postgres, skip, test_name};

use crate::bed::{Database, accept_on};

/// Revisions by the accepts that were answered.
type Answered = BTreeMap<AdmissionId, u64>;

async fn keep_accepting(store: PostgresStore, app: AppUid, stop: Arc<AtomicBool>) -> (Answered, usize) {
    let (mut answered, mut unavailable) = (Answered::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let admission = samples::admission(samples::deploy("v"));
        let (id, others) = (admission.id, OtherDeploys::EndSuperseded);
        let committed = async {
            let loaded = store.load(AppRef::Uid(app), None).await?.unwrap();
            let revision = loaded.state.latest.map_or(1, |latest| latest.get() + 1);
            store.commit_one(accept_on(&loaded, Admission { others, ..admission })).await.map(|_| revision)
        };
        match committed.await {
            Ok(revision) => drop(answered.insert(id, revision)),
            Err(Error::Conflict(_)) => {}
            Err(error) => {
                assert!(error.is_unavailable(), "{error:?}");
                unavailable += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    (answered, unavailable)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_loses_and_doubles_no_commit() {
    let server = match Postgres::own() {
        Err(reason) => return skip(&test_name!(), reason),
        Ok(server) => server,
    };
    let database = Database::on(server).await;
    let stores = [database.store().await, database.store().await];
    let mut apps = Vec::new();
    for number in 0..4 {
        let app = samples::app("shop", "test", &format!("app-{number}"));
        apps.push(client::register(&stores[0], app).await.state.app.uid);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..16)
        .map(|at| tokio::spawn(keep_accepting(stores[at % 2].clone(), apps[at / 4], Arc::clone(&stop))))
        .collect();
    for word in ["kill", "stop", "kill"] {
        tokio::time::sleep(Duration::from_millis(700)).await;
        database.server.control(word);
        let refused = stores[0].load(AppRef::Uid(apps[0]), None).await.unwrap_err();
        assert!(refused.is_unavailable(), "{refused:?}");
        database.server.control("start");
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    stop.store(true, Ordering::Relaxed);
    let (mut answered, mut unavailable) = (Answered::new(), 0);
    for caller in callers {
        let (more, missed) = caller.await.unwrap();
        answered.extend(more);
        unavailable += missed;
    }
    assert!(unavailable > 0 && answered.len() > 100, "{} answered, {unavailable} unavailable", answered.len());

    let (mut by_id, mut count) = (Answered::new(), 0);
    for app in apps {
        let mut stored: Vec<Deploy> = client::archive(&stores[1], app).await;
        stored.reverse();
        stored.extend(client::load(&stores[1], app).await.state.unfinished.iter().map(|deploy| (**deploy).clone()));
        let numbers: Vec<u64> = stored.iter().map(|deploy| deploy.revision.get()).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "without gaps");
        by_id.extend(stored.iter().map(|deploy| (deploy.id, deploy.revision.get())));
        count += stored.len();
    }
    assert_eq!(by_id.len(), count, "each once");
    for (id, revision) in &answered {
        assert_eq!(by_id.get(id), Some(revision), "an answered accept is stored as it was answered");
    }
    assert!(count <= answered.len() + unavailable, "what is stored was asked for");
}
