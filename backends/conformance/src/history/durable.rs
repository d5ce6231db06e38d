//! What was confirmed is there after a loss of power.

use rollhook_core::{
    app::AppUid,
    ledger::{Change, Record},
    ports::{AppRef, Binding, DriverIdentity, HistoryStore, HistoryStoreExt, Version},
    request::IdempotencyKey,
};

use super::registered;
use crate::{client, report::Can, samples, stores::Stores};

/// How often the store ends, each time right after another commit.
const ROUNDS: u8 = 3;

/// A commit that was answered is stored, however abruptly the store ends right after.
pub async fn commit_outlives_an_abrupt_end(store: &dyn Stores) -> Can {
    let ([mut history, _], uid) = registered(store).await;
    for round in 1..=ROUNDS {
        let key = samples::key(&format!("round {round}"), round);
        let version = commit(&*history, uid, &key).await;
        history = store.reopen().await?.history;
        let found =
            history.load(AppRef::Uid(uid), Some(&key)).await.unwrap().expect("a confirmed registration is gone");
        assert_eq!(found.version, version, "a confirmed commit is missing after an abrupt end");
        assert_eq!(found.state.unfinished.len(), 1, "{:?}", found.state);
        assert!(found.key.is_some(), "the key of a confirmed commit is free after an abrupt end");
        assert_eq!(client::archive(&*history, uid).await.len(), usize::from(round) - 1, "the archive is not whole");
    }

    let identity = DriverIdentity("simulated".to_owned());
    history.bind_driver(&identity, Binding::First).await.unwrap();
    client::remove(&*history, uid).await;
    let history = store.reopen().await?.history;
    assert!(history.load(AppRef::Uid(uid), None).await.unwrap().is_none(), "a confirmed removal is undone");
    let other = DriverIdentity("another".to_owned());
    assert_eq!(history.bind_driver(&other, Binding::First).await.unwrap(), identity, "the driver's identity is lost");
    Ok(())
}

/// Ends the unfinished deploy, and accepts another under a key, in one commit. Returns its version.
async fn commit(history: &dyn HistoryStore, app: AppUid, key: &IdempotencyKey) -> Version {
    let loaded = client::load(history, app).await;
    let changes: Vec<_> =
        loaded.state.unfinished.iter().map(|deploy| deploy.moved(samples::cancelled("replaced"))).collect();
    let mut change = Change::on(loaded.state);
    if !changes.is_empty() {
        change.record(Record { changes, ..Record::default() }, loaded.now).unwrap();
    }
    samples::admit(&mut change, samples::keyed(key.clone(), samples::deploy("v1")), loaded.now);
    history.commit_one(client::put(change, loaded.version)).await.unwrap().version
}
