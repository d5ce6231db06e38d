//! Commits that race, and commits of several apps.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use rollhook_core::{
    Error,
    app::{App, AppUid},
    error::Entity,
    ledger::{Admission, Change, ExpectedLatest, Record},
    ports::{AppCommit, AppRef, HistoryStore, HistoryStoreExt, Loaded},
    request::IdempotencyKey,
};

use super::{assert_app_not_found, assert_conflict, commit_all, registered, revisions};
use crate::{client, report::Can, samples, stores::Stores};

/// How many commits race on one version.
const RACING: usize = 20;

/// Only a commit that was made on what is stored is written, one of many at once; of another nothing is.
pub async fn commit_on_another_version_conflicts(store: &dyn Stores) -> Can {
    let ([one, two], uid) = registered(store).await;
    let deploy = client::admit(&*one, uid, samples::admission(samples::deploy("v1"))).await;
    let stale = client::load(&*one, uid).await;
    client::admit(&*two, uid, samples::admission(samples::deploy("v2"))).await;
    let stored = client::load(&*one, uid).await;
    assert!(stored.version > stale.version, "each commit makes a higher version");

    let key = samples::key("late", 1);
    let late = || {
        let mut change = Change::on(stale.state.clone());
        let changes = vec![deploy.moved(samples::cancelled("late"))];
        change.record(Record { changes, ..Record::default() }, stale.now).unwrap();
        samples::admit(&mut change, samples::keyed(key.clone(), samples::deploy("late")), stale.now);
        client::put(change, stale.version)
    };
    for history in [&one, &two] {
        assert_conflict(&history.commit_one(late()).await, Entity::Version);
        assert_conflict(&history.commit_one(client::removal(&stale)).await, Entity::Version);
        let after = history.load(AppRef::Uid(uid), Some(&key)).await.unwrap().unwrap();
        assert_eq!((&after.state, after.version, after.key), (&stored.state, stored.version, None));
        assert_eq!(client::archive(&**history, uid).await, [], "nothing of it was written");
    }
    client::record(&*two, uid, vec![deploy.moved(samples::cancelled("in time"))]).await;
    let archived = client::archive(&*one, uid).await;
    assert_eq!(archived[0].state, samples::cancelled("in time"), "the refused commit has left nothing");

    let unknown = samples::app("shop", "test", "unregistered");
    let update = AppCommit::Update(stale.version, Box::new(Change::register(unknown.clone())));
    assert_app_not_found(&one.commit_one(update).await);
    assert_app_not_found(&two.commit_one(AppCommit::Remove(unknown.uid, stale.version)).await);

    for _ in 0..3 {
        race_on_one_version(&[&one, &two], uid).await;
    }
    all_get_in(&[&one, &two], uid).await;
    race_with_a_removal(&[&one, &two], uid).await;
    Ok(())
}

/// Many end the same deploy differently and accept another, under the same key: one of them is written, as a whole.
async fn race_on_one_version(handles: &[&Arc<dyn HistoryStore>; 2], uid: AppUid) {
    let deploy = client::admit(&**handles[0], uid, samples::admission(samples::deploy("raced"))).await;
    let loaded = client::load(&**handles[1], uid).await;
    let key = samples::key(&format!("raced {}", deploy.revision), 1);
    let change = |racer: usize| {
        let mut change = Change::on(loaded.state.clone());
        let changes = vec![deploy.moved(samples::cancelled(&format!("by {racer}")))];
        change.record(Record { changes, ..Record::default() }, loaded.now).unwrap();
        samples::admit(&mut change, samples::keyed(key.clone(), samples::deploy(&format!("v{racer}"))), loaded.now);
        change
    };
    let changes: Vec<Change> = (0..RACING).map(change).collect();
    let commits = changes.iter().enumerate().map(|(racer, change)| {
        let commit = client::put(change.clone(), loaded.version);
        async move { handles[racer % 2].commit_one(commit).await }
    });
    let outcomes = join_all(commits).await;
    let winners: Vec<usize> = (0..RACING).filter(|racer| outcomes[*racer].is_ok()).collect();
    let [winner] = winners[..] else { panic!("one of many at once: {outcomes:?}") };
    outcomes.iter().filter(|outcome| outcome.is_err()).for_each(|outcome| assert_conflict(outcome, Entity::Version));
    for history in handles {
        let stored = history.load(AppRef::Uid(uid), Some(&key)).await.unwrap().unwrap();
        assert_eq!(stored.state, changes[winner].state);
        assert_eq!(Some(stored.version), outcomes[winner].as_ref().ok().map(|committed| committed.version));
        assert_eq!(stored.key, Some(changes[winner].keys[0].made));
        let archived = history.archived(uid, deploy.revision).await.unwrap().expect("the deploy has ended");
        assert_eq!(archived, *changes[winner].ended[0], "the archive holds what was committed");
    }
}

/// Many that repeat what was refused all get in, each as a revision of its own.
async fn all_get_in(handles: &[&Arc<dyn HistoryStore>; 2], uid: AppUid) {
    let before = client::load(&**handles[0], uid).await.state.latest.expect("there are deploys").get();
    let calls = (0..RACING).map(async |racer| {
        let history = handles[racer % 2];
        loop {
            let loaded = client::load(&**history, uid).await;
            let mut change = Change::on(loaded.state);
            let expected = ExpectedLatest::Exactly(change.state.latest);
            let admission = Admission { expected, ..samples::admission(samples::deploy(&format!("v{racer}"))) };
            let deploy = samples::admit(&mut change, admission, loaded.now);
            match history.commit_one(client::put(change, loaded.version)).await {
                Ok(_) => return deploy,
                conflict => assert_conflict(&conflict, Entity::Version),
            }
        }
    });
    let mut accepted = join_all(calls).await;
    accepted.sort_by_key(|deploy| deploy.revision);
    let expected: Vec<u64> = (1..=RACING as u64).map(|number| before + number).collect();
    assert_eq!(revisions(&accepted), expected, "each has its own revision");
    let stored = client::load(&**handles[1], uid).await.state.unfinished;
    assert!(accepted.iter().all(|deploy| stored.iter().any(|stored| **stored == *deploy)), "and all are stored");
}

/// Of a removal and a change at once, one is written.
async fn race_with_a_removal(handles: &[&Arc<dyn HistoryStore>; 2], uid: AppUid) {
    let loaded = client::load(&**handles[0], uid).await;
    let mut change = Change::on(loaded.state.clone());
    samples::admit(&mut change, samples::admission(samples::deploy("late")), loaded.now);
    let put = handles[0].commit_one(client::put(change.clone(), loaded.version));
    let (put, removed) = join(put, handles[1].commit_one(client::removal(&loaded))).await;
    let stored = handles[0].load(AppRef::Uid(uid), None).await.unwrap();
    match (put, removed) {
        (Ok(_), removed) => {
            assert_conflict(&removed, Entity::Version);
            assert_eq!(stored.expect("the app is there").state, change.state);
        }
        (Err(Error::Conflict(Entity::Version) | Error::NotFound(Entity::App)), Ok(_)) => assert!(stored.is_none()),
        (put, removed) => panic!("one of both is written: {put:?}, {removed:?}"),
    }
}

/// The expected answer to one commit of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Written,
    Removed,
    Conflict(Entity),
    NotFound,
}

/// Each of several apps in one call is written or refused for itself, and the answers are in the calls' order.
pub async fn commit_answers_each(store: &dyn Stores) -> Can {
    let [one, two] = [store.open().await.history, store.open().await.history];
    assert!(one.commit(Vec::new()).await.is_empty(), "no commits, no answers");
    for round in 0..2 {
        mixed_batch(&*one, &*two, round).await;
    }
    same_names_in_one_batch(&*one).await;
    batches_in_opposite_order(&*one, &*two).await;
    Ok(())
}

/// Changes, registrations and removals, some of which are refused, mixed.
async fn mixed_batch(one: &dyn HistoryStore, two: &dyn HistoryStore, round: usize) {
    let app = |kind: &str, number: usize| samples::app("other", "test", &format!("{kind}-{round}-{number}"));
    let key = samples::key("used", 1);
    let mut commits: Vec<(AppCommit, Expected)> = Vec::new();
    for number in 0..6 {
        let plain = client::register(one, app("put", number)).await;
        commits.push((accept(&plain, None), Expected::Written));

        let stale = client::register(one, app("stale", number)).await;
        client::admit(two, stale.state.app.uid, samples::admission(samples::deploy("v1"))).await;
        commits.push((accept(&stale, None), Expected::Conflict(Entity::Version)));

        let fresh = Change::register(app("fresh", number));
        commits.push((client::registration(fresh), Expected::Written));
        let taken = App { uid: app("taken", number).uid, ..app("stale", number) };
        commits.push((client::registration(Change::register(taken)), Expected::Conflict(Entity::App)));
        let App { project, environment, .. } = samples::app("an", "other", "pair");
        let foreign = App { project, environment, ..app("foreign", number) };
        commits.push((client::registration(Change::register(foreign)), Expected::Conflict(Entity::Namespace)));

        let gone = client::register(one, app("gone", number)).await;
        commits.push((client::removal(&gone), Expected::Removed));
        let unknown = client::register(one, app("unknown", number)).await;
        client::remove(two, unknown.state.app.uid).await;
        commits.push((accept(&unknown, None), Expected::NotFound));

        let keyed = client::register(one, app("keyed", number)).await.state.app.uid;
        client::admit(one, keyed, samples::keyed(key.clone(), samples::deploy("v1"))).await;
        let keyed = client::load(one, keyed).await;
        commits.push((accept(&keyed, Some(&key)), Expected::Conflict(Entity::IdempotencyKey)));
    }
    let mut before = Vec::new();
    for (commit, _) in &commits {
        before.push(two.load(AppRef::Uid(commit.app()), None).await.unwrap());
    }
    let answers = commit_all(one, commits.iter().map(|(commit, _)| commit.clone()).collect()).await;
    assert_eq!(answers.len(), commits.len());
    let stored = |loaded: &Option<Loaded>| loaded.as_ref().map(|loaded| (loaded.state.clone(), loaded.version));
    for (((commit, expected), before), answer) in commits.iter().zip(before).zip(answers) {
        let after = two.load(AppRef::Uid(commit.app()), None).await.unwrap();
        match expected {
            Expected::Written => {
                let version = answer.unwrap().version;
                assert!(before.is_none_or(|before| before.version < version));
                let change = commit.change().unwrap();
                assert_eq!(stored(&after), Some((change.state.clone(), version)));
                continue;
            }
            Expected::Removed => {
                assert!(answer.is_ok() && after.is_none(), "{answer:?}");
                continue;
            }
            Expected::Conflict(entity) => assert_conflict(&answer, *entity),
            Expected::NotFound => assert_app_not_found(&answer),
        }
        assert_eq!(stored(&after), stored(&before), "a refused commit changes nothing: {expected:?}");
    }
}

/// The commit that accepts a deploy.
fn accept(loaded: &Loaded, key: Option<&IdempotencyKey>) -> AppCommit {
    let mut change = Change::on(loaded.state.clone());
    let admission = Admission { key: key.cloned(), ..samples::admission(samples::deploy("batched")) };
    samples::admit(&mut change, admission, loaded.now);
    client::put(change, loaded.version)
}

/// Of registrations of one name, or of two pairs' one namespace, in the same call one is written.
async fn same_names_in_one_batch(history: &dyn HistoryStore) {
    let named = (0..5)
        .map(|number| App { uid: AppUid::from_bits(500 + number), ..samples::app("shop", "test", "named-twice") });
    let answers = commit_all(history, named.map(Change::register).map(client::registration).collect()).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    answers.iter().filter(|answer| answer.is_err()).for_each(|answer| assert_conflict(answer, Entity::App));

    let pairs = [("a-b", "c", "one"), ("a", "b-c", "two"), ("a-b", "c", "three"), ("a", "b-c", "four")];
    let apps = pairs.map(|(project, environment, name)| samples::app(project, environment, name));
    let answers = commit_all(history, apps.map(Change::register).map(client::registration).to_vec()).await;
    let written: Vec<usize> = (0..4).filter(|at| answers[*at].is_ok()).collect();
    assert!(matches!(written[..], [0, 2] | [1, 3]), "one pair has the namespace: {answers:?}");
    answers.iter().filter(|answer| answer.is_err()).for_each(|answer| assert_conflict(answer, Entity::Namespace));
}

/// Two calls of the same apps in opposite order both end, and each app is changed by one of them.
async fn batches_in_opposite_order(one: &dyn HistoryStore, two: &dyn HistoryStore) {
    let mut loaded = Vec::new();
    for number in 0..50 {
        loaded.push(client::register(one, samples::app("race", "test", &format!("app-{number}"))).await);
    }
    let forth: Vec<AppCommit> = loaded.iter().map(|loaded| accept(loaded, None)).collect();
    let back: Vec<AppCommit> = loaded.iter().rev().map(|loaded| accept(loaded, None)).collect();
    let (forth, back) = join(commit_all(one, forth), commit_all(two, back)).await;
    for ((loaded, forth), back) in loaded.iter().zip(forth).zip(back.into_iter().rev()) {
        let (won, lost) = if forth.is_ok() { (forth, back) } else { (back, forth) };
        assert_conflict(&lost, Entity::Version);
        let stored = client::load(two, loaded.state.app.uid).await;
        assert_eq!(stored.version, won.unwrap().version);
        assert_eq!(stored.state.unfinished.len(), 1);
    }
}
