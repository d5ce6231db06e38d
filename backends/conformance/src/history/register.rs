//! Names: who has one, and when it is free again.

use std::sync::Arc;

use futures_util::future::join_all;
use rollhook_core::{
    Result,
    app::{App, AppUid},
    deploy::Deploy,
    error::Entity,
    ledger::{Change, Record},
    ports::{AppRef, Committed, HistoryStore, HistoryStoreExt},
};

use super::{assert_app_not_found, assert_conflict, registered};
use crate::{client, report::Can, samples, stores::Stores};

async fn register(history: &dyn HistoryStore, app: App) -> Result<Committed> {
    history.commit_one(client::registration(Change::register(app))).await
}

/// Registers all of these at the same time, through two handles in turn.
async fn race(store: &dyn Stores, apps: Vec<App>) -> Vec<Result<Committed>> {
    let handles = [store.open().await.history, store.open().await.history];
    let calls = apps.into_iter().enumerate().map(|(number, app)| {
        let history: Arc<dyn HistoryStore> = Arc::clone(&handles[number % 2]);
        async move { register(&*history, app).await }
    });
    join_all(calls).await
}

fn with_uid(bits: u128, app: App) -> App {
    App { uid: AppUid::from_bits(bits), ..app }
}

/// A name or uid that is taken is a conflict, and nothing changes; of many at once, one is registered.
pub async fn register_taken_conflicts(store: &dyn Stores) -> Can {
    let ([one, two], uid) = registered(store).await;
    let first = client::load(&*one, uid).await;
    let taken_name = with_uid(2, samples::app("shop", "test", "api"));
    let taken_uid = with_uid(uid.as_bits(), samples::app("shop", "test", "other"));
    let taken_uid_elsewhere = with_uid(uid.as_bits(), samples::app("shop", "prod", "api"));
    for app in [taken_name, taken_uid.clone(), taken_uid_elsewhere.clone(), samples::app("shop", "test", "api")] {
        let mut change = Change::register(app);
        samples::admit(&mut change, samples::keyed(samples::key("run-1", 1), samples::deploy("v1")), first.now);
        assert_conflict(&two.commit_one(client::registration(change)).await, Entity::App);
    }
    let key = samples::key("run-1", 1);
    let after = one.load(AppRef::Uid(uid), Some(&key)).await.unwrap().unwrap();
    assert_eq!((after.state, after.version, after.key), (first.state, first.version, None), "nothing was written");
    assert!(two.load(AppRef::Uid(AppUid::from_bits(2)), None).await.unwrap().is_none());
    for app in [taken_uid, taken_uid_elsewhere] {
        assert!(two.load(AppRef::Name(&app.id), None).await.unwrap().is_none());
    }

    let raced: Vec<App> = (0..20).map(|number| with_uid(100 + number, samples::app("shop", "test", "raced"))).collect();
    let id = raced[0].id.clone();
    let outcomes = race(store, raced.clone()).await;
    let winners: Vec<usize> = (0..20).filter(|at| outcomes[*at].is_ok()).collect();
    let [winner] = winners[..] else { panic!("one of many at once: {outcomes:?}") };
    outcomes.iter().filter(|outcome| outcome.is_err()).for_each(|outcome| assert_conflict(outcome, Entity::App));
    let stored = one.load(AppRef::Name(&id), None).await.unwrap().unwrap();
    assert_eq!(stored.state.app.uid, raced[winner].uid);
    for (number, app) in raced.iter().enumerate().filter(|(number, _)| *number != winner) {
        assert!(two.load(AppRef::Uid(app.uid), None).await.unwrap().is_none(), "{number} was refused");
    }
    Ok(())
}

/// `a-b` + `c` and `a` + `b-c` spell one namespace; the first to come has it, until its last app is gone.
pub async fn register_namespace_of_another_pair_conflicts(store: &dyn Stores) -> Can {
    let [one, two] = [store.open().await.history, store.open().await.history];
    let first = samples::app("a-b", "c", "one");
    let second = samples::app("a-b", "c", "two");
    let foreign = samples::app("a", "b-c", "three");
    client::register(&*one, first.clone()).await;
    client::register(&*two, second.clone()).await;
    assert_conflict(&register(&*two, foreign.clone()).await, Entity::Namespace);
    let named = samples::app("a", "b-c", "one");
    assert_conflict(&register(&*two, named).await, Entity::App);
    let known = with_uid(second.uid.as_bits(), foreign.clone());
    assert_conflict(&register(&*one, known).await, Entity::App);
    client::remove(&*one, first.uid).await;
    assert_conflict(&register(&*one, foreign.clone()).await, Entity::Namespace);
    client::remove(&*one, second.uid).await;
    client::register(&*two, foreign.clone()).await;
    assert_conflict(&register(&*one, samples::app("a-b", "c", "four")).await, Entity::Namespace);
    client::remove(&*two, foreign.uid).await;

    for round in 0..3 {
        let app = |number: usize| {
            let (project, environment) =
                if (number / 2 + round).is_multiple_of(2) { ("a-b", "c") } else { ("a", "b-c") };
            samples::app(project, environment, &format!("app-{round}-{number}"))
        };
        let apps: Vec<App> = (0..20).map(app).collect();
        let outcomes = race(store, apps.clone()).await;
        let winner = outcomes.iter().position(Result::is_ok).expect("one of the pairs has the namespace");
        for (app, outcome) in apps.iter().zip(&outcomes) {
            if app.project == apps[winner].project {
                assert!(outcome.is_ok(), "{} is of the pair that has the namespace: {outcome:?}", app.id);
                client::remove(&*one, app.uid).await;
            } else {
                assert_conflict(outcome, Entity::Namespace);
                assert!(one.load(AppRef::Name(&app.id), None).await.unwrap().is_none(), "{}", app.id);
            }
        }
    }
    Ok(())
}

/// The keys and the ended deploys of a registration are stored with its state, for every handle.
pub async fn register_keeps_keys_and_ended(store: &dyn Stores) -> Can {
    let ([one, two], other) = registered(store).await;
    let now = client::load(&*one, other).await.now;
    let app = samples::app("shop", "prod", "api");
    let keys = [samples::key("run-1", 1), samples::key("run-2", 2)];
    let mut accepting = Change::register(app.clone());
    let deploys =
        keys.clone().map(|key| samples::admit(&mut accepting, samples::keyed(key, samples::deploy("v1")), now));
    let mut change = Change::on(accepting.state);
    (change.admitted, change.keys) = (accepting.admitted, accepting.keys);
    change.record(Record { changes: vec![deploys[0].moved(samples::failed())], ..Record::default() }, now).unwrap();
    let registered = change.clone();
    one.commit_one(client::registration(change)).await.unwrap();
    for history in [&*one, &*two, &*store.open().await.history] {
        for write in &registered.keys {
            let loaded = history.load(AppRef::Uid(app.uid), Some(&write.key)).await.unwrap().unwrap();
            assert_eq!(loaded.state, registered.state);
            assert_eq!(loaded.key, Some(write.made), "a registration's key is in use");
        }
        let archived = client::archive(history, app.uid).await;
        let ended: Vec<Deploy> = registered.ended.iter().map(|deploy| (**deploy).clone()).collect();
        assert_eq!(archived, ended, "a registration's ended deploys are in the archive");
    }
    Ok(())
}

/// All that belonged to the uid is gone with the app, and an app of the same name starts empty.
pub async fn remove_takes_everything(store: &dyn Stores) -> Can {
    let [one, two] = [store.open().await, store.open().await];
    let app = samples::app("shop", "test", "api");
    let other = client::register(&*one.history, samples::app("shop", "test", "other")).await;
    client::register(&*one.history, app.clone()).await;
    let key = samples::key("run-1", 1);
    let deploy = client::admit(&*one.history, app.uid, samples::keyed(key.clone(), samples::deploy("v1"))).await;
    client::admit(&*one.history, app.uid, samples::admission(samples::deploy("v2"))).await;
    client::record(&*one.history, app.uid, vec![deploy.moved(samples::failed())]).await;
    one.tokens.put(app.uid, &samples::token(1)).await.unwrap();
    let stale = client::load(&*two.history, app.uid).await;

    client::remove(&*one.history, app.uid).await;
    for handles in [&one, &two] {
        let history = &*handles.history;
        assert!(history.load(AppRef::Uid(app.uid), Some(&key)).await.unwrap().is_none());
        assert!(history.load(AppRef::Name(&app.id), Some(&key)).await.unwrap().is_none());
        assert_eq!(client::archive(history, app.uid).await, []);
        assert_eq!(history.work(&[], 10).await.unwrap(), []);
        assert!(handles.tokens.find(&app.id).await.unwrap().is_none());
        assert_app_not_found(&handles.tokens.put(app.uid, &samples::token(2)).await);
        assert_app_not_found(&history.commit_one(client::removal(&stale)).await);
        let mut late = Change::on(stale.state.clone());
        samples::admit(&mut late, samples::admission(samples::deploy("late")), stale.now);
        assert_app_not_found(&history.commit_one(client::put(late, stale.version)).await);
    }

    let same = client::register(&*one.history, app.clone()).await;
    assert_eq!(same.state, Change::register(app.clone()).state, "the app starts empty under its old uid as well");
    let loaded = two.history.load(AppRef::Uid(app.uid), Some(&key)).await.unwrap().unwrap();
    assert_eq!(loaded.key, None, "a removed app's keys are free");
    assert_eq!(client::archive(&*two.history, app.uid).await, []);
    assert!(two.tokens.find(&app.id).await.unwrap().is_none(), "the token went with the app");
    client::remove(&*two.history, app.uid).await;

    let again = with_uid(7, app.clone());
    let loaded = client::register(&*two.history, again.clone()).await;
    assert_eq!(loaded.state, Change::register(again.clone()).state, "the app starts empty");
    assert!(one.tokens.find(&app.id).await.unwrap().is_none(), "the token belonged to the old uid");
    assert_eq!(client::archive(&*one.history, again.uid).await, []);
    let loaded = one.history.load(AppRef::Name(&app.id), Some(&key)).await.unwrap().unwrap();
    assert_eq!(loaded.key, None, "the key belonged to the old uid");
    let first = client::admit(&*one.history, again.uid, samples::keyed(key, samples::deploy("v1"))).await;
    assert_eq!(first.revision, samples::revision(1));
    client::record(&*two.history, again.uid, vec![first.moved(samples::succeeded())]).await;
    let archived = client::archive(&*one.history, again.uid).await;
    assert_eq!(archived[0].state, samples::succeeded(), "the archive holds the new app's first deploy");
    assert_app_not_found(&one.history.commit_one(client::removal(&stale)).await);
    assert_eq!(client::load(&*two.history, other.state.app.uid).await.state, other.state, "other apps stay");
    Ok(())
}
