//! Idempotency keys.

use std::time::Duration;

use rollhook_core::{
    app::AppUid,
    deploy::Revision,
    error::Entity,
    ledger::{Admitted, Change, KeyLookup, KeyUse, Record},
    ports::{AppRef, HistoryStore, HistoryStoreExt},
    request::{IdempotencyKey, KEY_MAX, KeyHeader},
};

use super::{assert_conflict, registered};
use crate::{client, report::Can, samples, stores::Stores};

/// A key is loaded with its use, and taken until it is marked to be replaced.
pub async fn commit_keeps_keys(store: &dyn Stores) -> Can {
    let ([one, two], uid) = registered(store).await;
    let prod = client::register(&*one, samples::app("shop", "prod", "api")).await.state.app.uid;
    let key = samples::key("run-1", 1);
    assert_eq!(used(&*one, uid, &key).await, None);
    let made = accept(&*one, uid, &key).await;
    for history in [&*one, &*two, &*store.open().await.history] {
        assert_eq!(used(history, uid, &key).await, Some(made));
        let other_request = IdempotencyKey { request: [9; 32], ..key.clone() };
        assert_eq!(used(history, uid, &other_request).await, Some(made), "found by header and text alone");
        assert_eq!(used(history, prod, &key).await, None, "keys are per app");
        for header in [KeyHeader::WebhookId, KeyHeader::Delivery] {
            assert_eq!(used(history, uid, &IdempotencyKey { header, ..key.clone() }).await, None, "and per header");
        }
        for text in ["run-2", "Run-1", "run-1 ", "run", "run-10"] {
            assert_eq!(used(history, uid, &samples::key_of(text, 1)).await, None, "and by their exact text");
        }
    }
    assert_eq!(accept(&*two, prod, &key).await.revision, Revision::FIRST);
    assert_eq!(used(&*one, uid, &key).await, Some(made));

    taken_is_a_conflict(&*one, &*two, uid, &key).await;
    texts_are_kept(&*one, &*two, uid).await;
    many_in_one_commit(&*one, &*two, uid).await;
    expired_is_replaced(store, &*one, &*two, uid).await
}

/// The key of a forgotten deploy is free again, and those of others are not.
pub async fn forgotten_deploys_free_their_keys(store: &dyn Stores) -> Can {
    let ([one, two], uid) = registered(store).await;
    let (old, other) = (samples::key("old", 1), samples::key("other", 1));
    let (made, of_other) = (accept(&*one, uid, &old).await, accept(&*one, uid, &other).await);
    client::change(&*one, uid, |change, now| {
        let ended = change.state.unfinished.iter().map(|deploy| deploy.moved(samples::failed())).collect();
        change.record(Record { changes: ended, ..Record::default() }, now).unwrap();
    })
    .await;
    assert_eq!(used(&*two, uid, &old).await, Some(made), "an archived deploy keeps its key");
    client::change(&*one, uid, |change, now| change.forget(vec![made.revision], now)).await;
    for history in [&*one, &*store.open().await.history] {
        assert_eq!(used(history, uid, &old).await, None);
        assert_eq!(used(history, uid, &other).await, Some(of_other));
    }

    // One that is used again in the commit that forgets its former use has the new use.
    let loaded = one.load(AppRef::Uid(uid), Some(&other)).await.unwrap().unwrap();
    let mut change = Change::on(loaded.state);
    change.forget(vec![of_other.revision], loaded.now);
    samples::admit(&mut change, samples::keyed(other.clone(), samples::deploy("again")), loaded.now);
    change.keys[0].replaces = true;
    let again = change.keys[0].made;
    one.commit_one(client::put(change, loaded.version)).await.unwrap();
    assert_eq!(used(&*two, uid, &other).await, Some(again));
    assert!(accept(&*one, uid, &old).await.revision > again.revision);
    Ok(())
}

/// A change whose key is in use is refused as a whole.
async fn taken_is_a_conflict(one: &dyn HistoryStore, two: &dyn HistoryStore, uid: AppUid, key: &IdempotencyKey) {
    let before = client::load(one, uid).await;
    let made = used(one, uid, key).await;
    let free = samples::key("free", 1);
    let deploy = (**before.state.unfinished.first().unwrap()).clone();
    for history in [one, two] {
        let mut change = Change::on(before.state.clone());
        let record =
            rollhook_core::ledger::Record { changes: vec![deploy.moved(samples::failed())], ..Record::default() };
        change.record(record, before.now).unwrap();
        samples::admit(&mut change, samples::keyed(free.clone(), samples::deploy("v2")), before.now);
        samples::admit(&mut change, samples::keyed(key.clone(), samples::deploy("v3")), before.now);
        assert_conflict(&history.commit_one(client::put(change, before.version)).await, Entity::IdempotencyKey);
        let after = client::load(history, uid).await;
        assert_eq!((&after.state, after.version), (&before.state, before.version), "nothing of it was written");
        assert_eq!(client::archive(history, uid).await, []);
        assert_eq!((used(history, uid, key).await, used(history, uid, &free).await), (made, None));
    }
}

/// Every text that a key may have is kept as it is.
async fn texts_are_kept(one: &dyn HistoryStore, two: &dyn HistoryStore, uid: AppUid) {
    let all: String = (b' '..=b'~').map(char::from).collect();
    let texts =
        [all, "a".repeat(KEY_MAX), "a".repeat(KEY_MAX - 1), "..".to_owned(), "A".to_owned(), "'\"\\%".to_owned()];
    for text in texts {
        for header in [KeyHeader::IdempotencyKey, KeyHeader::WebhookId, KeyHeader::Delivery] {
            let key = IdempotencyKey { header, ..samples::key_of(&text, 2) };
            assert_eq!(used(two, uid, &key).await, None, "{text}");
            let made = accept(one, uid, &key).await;
            assert_eq!(used(two, uid, &key).await, Some(made), "{text}");
        }
    }
}

/// One change may use several keys.
async fn many_in_one_commit(one: &dyn HistoryStore, two: &dyn HistoryStore, uid: AppUid) {
    let keys: Vec<IdempotencyKey> = (0..10).map(|number| samples::key(&format!("joined-{number}"), number)).collect();
    let (made, _) = client::change(one, uid, |change, now| {
        for key in &keys {
            samples::admit(change, samples::keyed(key.clone(), samples::deploy("joined")), now);
        }
        change.keys.iter().map(|write| write.made).collect::<Vec<_>>()
    })
    .await;
    for (key, made) in keys.iter().zip(made) {
        assert_eq!(used(two, uid, key).await, Some(made));
    }
}

/// A key that has expired is loaded as it is, and its use is replaced where the change says so, and only there.
async fn expired_is_replaced(store: &dyn Stores, one: &dyn HistoryStore, two: &dyn HistoryStore, uid: AppUid) -> Can {
    let key = samples::key("nightly", 1);
    let made = accept(one, uid, &key).await;
    let kept = key.header.kept_for() + Duration::from_secs(600);
    store.advance(kept).await?;
    accept(one, uid, &samples::key("another", 1)).await;
    assert_eq!(used(two, uid, &key).await, Some(made), "a key that expired a moment ago is still there");

    let loaded = client::load(two, uid).await;
    let mut change = Change::on(loaded.state.clone());
    samples::admit(&mut change, samples::keyed(key.clone(), samples::deploy("unread")), loaded.now);
    assert_conflict(&two.commit_one(client::put(change, loaded.version)).await, Entity::IdempotencyKey);

    let other_request = IdempotencyKey { request: [9; 32], ..key.clone() };
    let again = accept(two, uid, &other_request).await;
    assert!(again.revision > made.revision && again.request == [9; 32] && again.expires_at > made.expires_at);
    assert_eq!(used(one, uid, &key).await, Some(again));

    let unused = samples::key("unused", 1);
    let loaded = client::load(one, uid).await;
    let mut change = Change::on(loaded.state.clone());
    samples::admit(&mut change, samples::keyed(unused.clone(), samples::deploy("forgotten")), loaded.now);
    change.keys[0].replaces = true;
    let made = change.keys[0].made;
    one.commit_one(client::put(change, loaded.version)).await.unwrap();
    assert_eq!(used(two, uid, &unused).await, Some(made), "housekeeping may have been faster than the commit");
    Ok(())
}

/// The use of a key.
async fn used(history: &dyn HistoryStore, uid: AppUid, key: &IdempotencyKey) -> Option<KeyUse> {
    history.load(AppRef::Uid(uid), Some(key)).await.unwrap().expect("the app is registered").key
}

/// Accepts a deploy under a key, read before, and ends it; returns the use that the key was given.
async fn accept(history: &dyn HistoryStore, uid: AppUid, key: &IdempotencyKey) -> KeyUse {
    let loaded = history.load(AppRef::Uid(uid), Some(key)).await.unwrap().unwrap();
    let mut change = Change::on(loaded.state);
    let admission = samples::keyed(key.clone(), samples::deploy("keyed"));
    let admitted = change.admit(admission, KeyLookup::Read(loaded.key), loaded.now);
    assert!(matches!(admitted, Admitted::New { .. }), "{admitted:?}");
    let made = change.keys[0].made;
    history.commit_one(client::put(change, loaded.version)).await.unwrap();
    made
}
