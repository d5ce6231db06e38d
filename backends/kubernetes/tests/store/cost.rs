//! The requests that each call costs, counted so that their number stays the same.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use http::Request;
use kube::client::Body;
use rollhook_conformance::{Stores, client, samples};
use rollhook_core::{
    app::AppUid,
    deploy::Deploy,
    ports::{AppRef, HistoryStore, HistoryStoreExt, Page},
};
use rollhook_kubernetes::KubernetesStore;
use rollhook_management::ports::{LISTED_AT_ONCE, NewRecord, Record, RecordKey, RecordKind, RecordStore};

use crate::harness::{Fresh, end, registered, test};

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
        store.sync().await.unwrap();
        self.taken();
        store
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

const KINDS: [&str; 5] = ["rollhookapps", "appdeploys", "leases", "secrets", "serverrecords"];

/// One deploy, on the state that is remembered, as the journal commits it.
async fn deploy(fresh: &Fresh, store: &KubernetesStore, app: AppUid, number: u64) {
    let loaded = client::load(store, app).await;
    let mut change = rollhook_core::ledger::Change::on(loaded.state);
    let admission = samples::keyed(samples::key(&format!("run-{number}"), 1), samples::deploy("v1"));
    let accepted = samples::admit(&mut change, admission, loaded.now);
    let version = store.commit_one(client::put(change.clone(), loaded.version)).await.unwrap().version;

    let rolling = Deploy { touched: true, ..accepted.moved(samples::rolling_out(&accepted)) };
    let mut change = rollhook_core::ledger::Change::on(change.state);
    let record = rollhook_core::ledger::Record { changes: vec![rolling.clone()], ..Default::default() };
    change.record(record, loaded.now).unwrap();
    let version = store.commit_one(client::put(change.clone(), version)).await.unwrap().version;
    fresh.shown(number, "rolling_out").await;

    let mut change = rollhook_core::ledger::Change::on(change.state);
    let changes = vec![rolling.moved(samples::succeeded())];
    let record = rollhook_core::ledger::Record { changes, idle: true, ..Default::default() };
    change.record(record, loaded.now).unwrap();
    store.commit_one(client::put(change, version)).await.unwrap();
    fresh.shown(number, "succeeded").await;
}

#[test]
fn deploy_costs_one_read_and_five_writes() {
    test("deploy_costs_one_read_and_five_writes", async |fresh: &Fresh| {
        let counter = Counter::default();
        let store = counter.handle(fresh).await;
        let app = registered(&store).await;
        for number in 1..=3 {
            counter.taken();
            deploy(fresh, &store, app, number).await;
            let expected = [
                "GET rollhookapps",
                "PUT rollhookapps",
                "PUT rollhookapps",
                "POST appdeploys",
                "PUT rollhookapps",
                "PUT appdeploys",
            ];
            assert_eq!(counter.taken(), expected);
        }
        store.load(AppRef::Uid(app), Some(&samples::key("run-1", 1))).await.unwrap().unwrap();
        assert_eq!(counter.taken(), ["GET rollhookapps"], "a key is looked up in what was seen");
        store.page(app, Page::newest(2).succeeded(true)).await.unwrap();
        assert_eq!(counter.taken(), ["GET rollhookapps", "GET appdeploys"], "the newest is in the App still");
    });
}

#[test]
fn commit_on_a_version_that_was_not_seen_costs_one_read_more() {
    test("commit_on_a_version_that_was_not_seen_costs_one_read_more", async |fresh: &Fresh| {
        let counter = Counter::default();
        let (store, other) = (counter.handle(fresh).await, fresh.handle().await);
        let app = registered(&other).await;
        let loaded = client::load(&other, app).await;
        let mut change = rollhook_core::ledger::Change::on(loaded.state);
        samples::admit(&mut change, samples::admission(samples::deploy("v1")), loaded.now);
        store.sync().await.unwrap();
        counter.taken();
        let committed = store.commit_one(client::put(change.clone(), loaded.version)).await.unwrap();
        assert_eq!(counter.taken(), ["PUT rollhookapps"], "the watch has brought it");
        store.commit_one(client::put(change, loaded.version)).await.unwrap_err();
        assert_eq!(counter.taken(), ["GET rollhookapps"], "another version than is known");
        assert!(committed.version > loaded.version);
    });
}

#[test]
fn idle_apps_cost_nothing_and_a_replica_a_few_calls() {
    test("idle_apps_cost_nothing_and_a_replica_a_few_calls", async |fresh: &Fresh| {
        let counter = Counter::default();
        let store = counter.handle(fresh).await;
        for number in 0..20 {
            let app = samples::app("shop", "test", &format!("app-{number}"));
            let app = client::register(&store, app).await.state.app.uid;
            let deploy = client::admit(&store, app, samples::admission(samples::deploy("v1"))).await;
            end(&store, app, &deploy, samples::succeeded()).await;
        }
        let replica = samples::replica("a", 1);
        store.heartbeat(&replica, TTL).await.unwrap();
        // The ends are archived, and nothing is left to be shown.
        tokio::time::sleep(Duration::from_secs(1)).await;
        counter.taken();
        let look = async || {
            for _ in 0..10 {
                let alive = store.heartbeat(&replica, TTL).await.unwrap().alive;
                assert_eq!(alive, std::slice::from_ref(&replica));
                store.work(&alive, 10).await.unwrap();
            }
        };
        look().await;
        assert_eq!(counter.taken(), [""; 0]);
        fresh.advance(TTL / 6).await.unwrap();
        counter.taken();
        look().await;
        assert_eq!(counter.taken(), ["GET leases"], "another replica may have started");
        fresh.advance(TTL / 6).await.unwrap();
        counter.taken();
        look().await;
        assert_eq!(
            counter.taken(),
            ["GET leases", "GET rollhookapps", "PUT leases"],
            "and whether commits can be written"
        );
    });
}

#[test]
fn strangers_cost_one_read_of_a_record_per_second() {
    test("strangers_cost_one_read_of_a_record_per_second", async |fresh: &Fresh| {
        let counter = Counter::default();
        let store = counter.handle(fresh).await;
        let key = |text: String| -> RecordKey { text.parse().unwrap() };
        for number in 0..200 {
            assert_eq!(store.read(RecordKind::Session, &key(format!("r{number}"))).await.unwrap(), None);
        }
        assert_eq!(counter.taken(), ["GET serverrecords"], "within a second");

        let record = || NewRecord { key: key("known".to_owned()), document: "{}".to_owned(), ttl: None };
        let version = store.write(RecordKind::Session, record(), None).await.unwrap();
        assert_eq!(counter.taken(), ["POST serverrecords"]);
        assert!(store.read(RecordKind::Session, &record().key).await.unwrap().is_some());
        assert_eq!(counter.taken(), ["GET serverrecords"], "what is returned was read");
        store.write(RecordKind::Session, record(), Some(version)).await.unwrap();
        assert_eq!(counter.taken(), ["GET serverrecords", "PUT serverrecords"]);

        let read = async |text: String| store.read(RecordKind::Session, &key(text)).await;
        let guessed = join_all((200..300).map(|number| read(format!("r{number}"))));
        let known = join_all((0..20).map(|_| read("known".to_owned())));
        let (guessed, known) = futures_util::join!(guessed, known);
        assert!(guessed.into_iter().all(|read| read.unwrap().is_none()));
        assert!(known.into_iter().all(|read| read.unwrap().is_some()), "strangers keep no valid key out");
        let reads = counter.taken();
        assert!((20..=21).contains(&reads.len()), "of the strangers at most one is looked for: {reads:?}");
    });
}

#[test]
fn page_of_many_records_costs_one_read_each_and_the_oldest_go_unread() {
    test("page_of_many_records_costs_one_read_each_and_the_oldest_go_unread", async |fresh: &Fresh| {
        const KIND: RecordKind = RecordKind::Audit;
        let counter = Counter::default();
        let store = counter.handle(fresh).await;
        let key = |number: usize| -> RecordKey { format!("entry-{number}").parse().unwrap() };
        let write = async |number| {
            let record = NewRecord { key: key(number), document: "{}".to_owned(), ttl: None };
            store.write(KIND, record, None).await.unwrap();
        };
        for number in (0..LISTED_AT_ONCE).step_by(10) {
            join_all((number..number + 10).map(write)).await;
        }
        counter.taken();
        assert_eq!(RecordStore::list(&store, KIND, None, 20).await.unwrap().len(), 20);
        assert_eq!(counter.taken(), ["GET serverrecords"], "few are listed by one call");

        for number in 0..30 {
            write(LISTED_AT_ONCE + number).await;
        }
        let first = RecordStore::list(&fresh.handle().await, KIND, None, 20).await.unwrap();
        counter.taken();
        let (mut seen, mut after) = (Vec::new(), None);
        for _ in 0..2 {
            let page = RecordStore::list(&store, KIND, after, 20).await.unwrap();
            assert_eq!(counter.taken(), ["GET serverrecords"; 20]);
            after = page.last().map(Record::place);
            seen.extend(page);
        }
        assert_eq!(
            seen[..20].iter().map(Record::place).collect::<Vec<_>>(),
            first.iter().map(Record::place).collect::<Vec<_>>()
        );
        assert!(seen.is_sorted_by(|one, other| one.place() > other.place()));
        assert_eq!(
            (0..30).filter(|number| seen.iter().any(|record| record.key == key(LISTED_AT_ONCE + number))).count(),
            30
        );

        assert_eq!(store.remove_oldest(KIND, 505).await.unwrap(), 25);
        assert_eq!(counter.taken(), ["DELETE serverrecords"; 25]);
        assert_eq!(store.remove_oldest(KIND, 505).await.unwrap(), 0);
        assert_eq!(counter.taken(), [""; 0]);
        let page = RecordStore::list(&store, KIND, None, 505).await.unwrap();
        assert_eq!(counter.taken(), ["GET serverrecords"; 505]);
        let left: Vec<_> = page.iter().map(Record::place).collect();
        assert_eq!(left[..40], seen.iter().map(Record::place).collect::<Vec<_>>());
        assert_eq!(RecordStore::list(&store, KIND, left.last().cloned(), 9).await.unwrap(), []);
    });
}
