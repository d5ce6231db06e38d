//! The calls of a client of a store, one app at a time; each panics where it fails.

use rollhook_core::{
    app::{App, AppUid},
    deploy::{Deploy, Status},
    ledger::{Admission, Change, Record},
    ports::{AppCommit, AppRef, Committed, HistoryStore, HistoryStoreExt, Loaded, Page, Version},
    time::Timestamp,
};

use crate::samples;

/// The commit of a change that was made on this version.
pub fn put(change: Change, version: Version) -> AppCommit {
    AppCommit::Update(version, Box::new(change))
}

/// The commit that registers the app of a change.
pub fn registration(change: Change) -> AppCommit {
    AppCommit::Register(Box::new(change))
}

/// The commit that removes an app as it was loaded.
pub fn removal(loaded: &Loaded) -> AppCommit {
    AppCommit::Remove(loaded.state.app.uid, loaded.version)
}

/// Registers an app, and loads it.
pub async fn register(history: &dyn HistoryStore, app: App) -> Loaded {
    let uid = app.uid;
    history.commit_one(registration(Change::register(app))).await.unwrap();
    load(history, uid).await
}

/// Loads an app that is registered.
pub async fn load(history: &dyn HistoryStore, app: AppUid) -> Loaded {
    history.load(AppRef::Uid(app), None).await.unwrap().expect("the app is registered")
}

/// Changes an app as it is stored.
pub async fn change<T>(
    history: &dyn HistoryStore,
    app: AppUid,
    make: impl FnOnce(&mut Change, Timestamp) -> T,
) -> (T, Committed) {
    let loaded = load(history, app).await;
    let mut change = Change::on(loaded.state);
    let made = make(&mut change, loaded.now);
    let committed = history.commit_one(put(change, loaded.version)).await.unwrap();
    (made, committed)
}

/// Accepts a deploy.
pub async fn admit(history: &dyn HistoryStore, app: AppUid, admission: Admission) -> Deploy {
    change(history, app, |change, now| samples::admit(change, admission, now)).await.0
}

/// Records deploys in their next states.
pub async fn record(history: &dyn HistoryStore, app: AppUid, changes: Vec<Deploy>) {
    let record = Record { changes, ..Record::default() };
    change(history, app, |change, now| change.record(record, now).unwrap()).await;
}

/// Removes an app as it is stored.
pub async fn remove(history: &dyn HistoryStore, app: AppUid) {
    let loaded = load(history, app).await;
    assert_eq!(history.commit_one(removal(&loaded)).await.unwrap().version, Version::REMOVED);
}

/// Reads an app's whole archive with its evidence, newest first.
pub async fn archive(history: &dyn HistoryStore, app: AppUid) -> Vec<Deploy> {
    let mut archive = history.page(app, Page::newest(10_000)).await.unwrap();
    for deploy in archive.iter_mut().filter(|deploy| deploy.status() == Status::Failed) {
        *deploy = history.archived(app, deploy.revision).await.unwrap().expect("it is on the page");
    }
    archive
}
