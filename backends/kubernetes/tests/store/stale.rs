//! A replica whose watches bring nothing any more, as behind a connection that died unnoticed.

use rollhook_conformance::{Stores, client, samples};
use rollhook_core::{
    Error,
    app::{App, AppUid},
    deploy::Revision,
    error::Entity,
    ledger::Change,
    ports::{AppRef, HistoryStore, HistoryStoreExt},
};

use crate::harness::{Fresh, admit, end, registered, test};

#[test]
fn stale_memory_misses_neither_deploys_nor_keys() {
    test("stale_memory_misses_neither_deploys_nor_keys", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let old = fresh.stuck().await;
        let keys: Vec<_> = (1..=12).map(|number| samples::key(&format!("run-{number}"), number)).collect();
        for (number, key) in (1..).zip(&keys) {
            let deploy = client::admit(&store, app, samples::keyed(key.clone(), samples::deploy("v1"))).await;
            end(&store, app, &deploy, samples::succeeded()).await;
            fresh.shown(number, "succeeded").await;
            if number % 5 == 1 {
                assert_eq!(used(&old, app, key).await, Some(number), "found without the watch");
            }
        }
        let loaded = client::load(&old, app).await;
        for key in &keys {
            let mut change = Change::on(loaded.state.clone());
            samples::admit(&mut change, samples::keyed(key.clone(), samples::deploy("again")), loaded.now);
            let refused = old.commit_one(client::put(change, loaded.version)).await;
            assert!(matches!(refused, Err(Error::Conflict(Entity::IdempotencyKey))), "{refused:?}");
        }
        assert_eq!(client::archive(&old, app).await, client::archive(&store, app).await);
        assert_eq!(client::archive(&old, app).await.len(), 12);
        assert_eq!(admit(&old, app, "v2").await.revision, samples::revision(13));

        client::remove(&store, app).await;
        assert!(old.load(AppRef::Uid(app), None).await.unwrap().is_none());
        let anew = App { uid: AppUid::from_bits(7), ..samples::app("shop", "test", "api") };
        let anew = client::register(&store, anew).await.state.app.uid;
        assert_eq!(admit(&old, anew, "v1").await.revision, Revision::FIRST, "an app that it was never shown");
        assert_eq!(used(&old, anew, &keys[0]).await, None);
    });
}

async fn used(store: &impl HistoryStore, app: AppUid, key: &rollhook_core::request::IdempotencyKey) -> Option<u64> {
    let loaded = store.load(AppRef::Uid(app), Some(key)).await.unwrap().unwrap();
    loaded.key.map(|used| used.revision.get())
}

#[test]
fn heartbeats_are_read_anew() {
    test("heartbeats_are_read_anew", async |fresh: &Fresh| {
        const TTL: std::time::Duration = std::time::Duration::from_secs(600);
        let (store, old) = (fresh.handle().await, fresh.stuck().await);
        let [a, b] = [samples::replica("a", 1), samples::replica("b", 1)];
        store.heartbeat(&a, TTL).await.unwrap();
        old.heartbeat(&b, TTL).await.unwrap();
        for _ in 0..3 {
            fresh.advance(TTL / 2).await.unwrap();
            store.heartbeat(&a, TTL).await.unwrap();
            let mut alive = old.heartbeat(&b, TTL).await.unwrap().alive;
            alive.sort();
            assert_eq!(alive, [a.clone(), b.clone()]);
        }
        for alive in [vec![a.clone(), b.clone()], vec![b.clone()]] {
            fresh.advance(TTL * 2 / 3).await.unwrap();
            let mut living = old.heartbeat(&b, TTL).await.unwrap().alive;
            living.sort();
            assert_eq!(living, alive, "a replica lives for as long as its Lease was seen to change");
        }
    });
}
