//! Commits that share a statement.

use std::time::Duration;

use futures_util::StreamExt;
use rollhook_conformance::{client, samples};
use rollhook_core::{
    Error,
    app::AppUid,
    error::Entity,
    ledger::Change,
    ports::{AppChange, AppCommit, AppPage, AppRef, HistoryStore, HistoryStoreExt, Page, TokenStore},
};
use rollhook_management::ports::{NewRecord, RecordKind, RecordStore};
use sqlx::Row;

use crate::bed::{Database, accept, accept_on, with_app};

#[tokio::test]
async fn commits_of_one_call_share_a_transaction() {
    let Some(database) = Database::lent("commits_of_one_call_share_a_transaction").await else { return };
    let store = database.store().await;
    let mut commits = Vec::new();
    for number in 0..60 {
        let loaded = client::register(&store, samples::app("shop", "test", &format!("app-{number}"))).await;
        commits.push(accept_on(&loaded, samples::keyed(samples::key("run-1", 1), samples::deploy("v1"))));
    }
    assert!(store.commit(commits).await.iter().all(Result::is_ok));
    let transactions = "SELECT count(DISTINCT w.x) FROM (SELECT xmin::text AS x FROM rollhook.apps UNION SELECT xmin::text FROM rollhook.keys) w";
    assert_eq!(database.number(transactions).await, 1);
}

#[tokio::test]
async fn refused_commit_leaves_its_neighbours_alone() {
    let Some(database) = Database::lent("refused_commit_leaves_its_neighbours_alone").await else { return };
    let store = database.store().await;
    let mut loaded = Vec::new();
    for name in ["one", "outdated", "keyed", "odd", "gone", "two"] {
        loaded.push(client::register(&store, samples::app("shop", "test", name)).await);
    }
    let key = || samples::key("run-1", 1);
    client::admit(&store, loaded[1].state.app.uid, samples::admission(samples::deploy("v1"))).await;
    client::admit(&store, loaded[2].state.app.uid, samples::keyed(key(), samples::deploy("v1"))).await;
    loaded[2] = client::load(&store, loaded[2].state.app.uid).await;
    client::remove(&store, loaded[4].state.app.uid).await;
    let mut commits: Vec<AppCommit> =
        loaded.iter().map(|loaded| accept_on(loaded, samples::keyed(key(), samples::deploy("v2")))).collect();
    // The database has no such text, and so refuses the statement.
    let mut change = Change::on(loaded[3].state.clone());
    change.lease(&samples::replica("\u{0}", 1), loaded[3].now);
    commits[3] = client::put(change, loaded[3].version);
    let other = samples::app("shop-test", "x", "other");
    commits.push(client::registration(Change::register(samples::app("shop", "test", "one"))));
    commits.push(client::registration(Change::register(other.clone())));

    let answers = store.commit(commits).await;
    let [one, outdated, keyed, odd, gone, two, taken, registered] = &answers[..] else { panic!("{answers:?}") };
    assert!(one.is_ok() && two.is_ok() && registered.is_ok(), "{answers:?}");
    assert!(matches!(outdated, Err(Error::Conflict(Entity::Version))), "{outdated:?}");
    assert!(matches!(keyed, Err(Error::Conflict(Entity::IdempotencyKey))), "{keyed:?}");
    assert!(matches!(odd, Err(Error::Invalid { .. })), "{odd:?}");
    assert!(matches!(gone, Err(Error::NotFound(Entity::App))), "{gone:?}");
    assert!(matches!(taken, Err(Error::Conflict(Entity::App))), "{taken:?}");
    for (at, latest) in [(0, Some(1)), (1, Some(1)), (2, Some(1)), (3, None), (5, Some(1))] {
        let state = client::load(&store, loaded[at].state.app.uid).await.state;
        assert_eq!(state.latest, latest.map(samples::revision), "{}", state.app.id);
    }
    assert!(client::load(&store, other.uid).await.state.unfinished.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caller_that_goes_away_keeps_nothing_waiting() {
    let Some(database) = Database::lent("caller_that_goes_away_keeps_nothing_waiting").await else { return };
    let (store, app) = with_app(&database).await;
    let mut written = 0;
    for round in 0..20 {
        let loaded = client::load(&store, app).await;
        let mut changes = store.watch();
        let commit = accept_on(&loaded, samples::admission(samples::deploy("gone")));
        let task = tokio::spawn({
            let store = store.clone();
            async move { store.commit_one(commit).await }
        });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        task.abort();
        if task.await.is_err() {
            // It may have begun. Then it is written, and its watchers are told.
            let told = async { while !matches!(changes.next().await, Some(AppChange::App(..))) {} };
            let told = tokio::time::timeout(Duration::from_millis(500), told).await;
            let stored = client::load(&store, app).await;
            assert_eq!(told.is_ok(), stored.version > loaded.version);
        }
        let stored = client::load(&store, app).await;
        written += u64::from(stored.version > loaded.version);
        assert_eq!(stored.state.latest.map_or(0, |latest| latest.get()), written);
    }
    accept(&store, app, "kept").await;
}

#[tokio::test]
async fn commit_survives_a_crash_of_a_server_that_need_not_wait_for_its_disk() {
    let test = "commit_survives_a_crash_of_a_server_that_need_not_wait_for_its_disk";
    let Some(database) = Database::lent(test).await else { return };
    let (store, app) = with_app(&database).await;
    database
        .run(&format!(
            "CREATE TABLE rollhook.seen (setting text);
             CREATE FUNCTION rollhook.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO rollhook.seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
             CREATE TRIGGER see AFTER UPDATE ON rollhook.apps FOR EACH ROW EXECUTE FUNCTION rollhook.see();
             CREATE TRIGGER see AFTER INSERT ON rollhook.tokens FOR EACH ROW EXECUTE FUNCTION rollhook.see();
             ALTER DATABASE {} SET synchronous_commit = off",
            database.name()
        ))
        .await;
    drop(store);
    let store = database.store().await;
    accept(&store, app, "v1").await;
    store.put(app, &samples::token(1)).await.unwrap();
    database.run(&format!("ALTER DATABASE {} SET synchronous_commit = local", database.name())).await;
    let store = database.store().await;
    accept(&store, app, "v2").await;
    let seen = database.rows("SELECT setting FROM rollhook.seen").await;
    let seen: Vec<&str> = seen.iter().map(|row| row.get(0)).collect();
    assert_eq!(seen, ["on", "on", "local"], "what an administrator has chosen above that is left");
}

/// Makes 100,000 apps, all of which have work that one replica does, and as many records; returns one of the apps.
async fn crowd(database: &Database) -> AppUid {
    let (store, app) = with_app(database).await;
    let key = samples::key("run-0", 1);
    client::change(&store, app, |change, now| {
        samples::admit(change, samples::keyed(key, samples::deploy("v1")), now);
        change.lease(&samples::replica("one", 1), now);
    })
    .await;
    database
        .run(
            "INSERT INTO rollhook.apps (uid, namespace, name, project, environment, version, queued_at, lease, document) \
             SELECT md5(n::text)::uuid, a.namespace, 'app-' || n, a.project, a.environment, 1, a.queued_at, a.lease, '{}' \
             FROM rollhook.apps a, generate_series(1, 100000) n; \
             INSERT INTO rollhook.keys SELECT a.uid, 0, 'run-0', '', 1, rollhook.clock() + 3600000 FROM rollhook.apps a \
             ON CONFLICT DO NOTHING; \
             INSERT INTO rollhook.deploys SELECT a.uid, 1, true, '{}' FROM rollhook.apps a; \
             INSERT INTO rollhook.records \
             SELECT k.kind, 'r' || n, nextval('rollhook.record_versions'), '{}', n, 9000000000000000 + n \
             FROM generate_series(1, 50000) n, (VALUES ('session'), ('audit')) k (kind)",
        )
        .await;
    app
}

#[tokio::test]
async fn costs_do_not_grow_with_the_number_of_apps() {
    let Some(database) = Database::lent("costs_do_not_grow_with_the_number_of_apps").await else { return };
    let app = crowd(&database).await;
    let alive = [samples::replica("one", 1), samples::replica("two", 2)];
    // With what the planner assumes of new tables, and once the server has counted what is in them.
    for count in ["SELECT", "ANALYZE"] {
        database.run(count).await;
        database.run("SELECT pg_stat_reset()").await;
        let store = database.store().await;
        for number in 0..10 {
            store.heartbeat(&alive[0], Duration::from_secs(60)).await.unwrap();
            assert_eq!(store.work(&alive, 100).await.unwrap(), [], "a living replica drives all of them");
            assert_eq!(store.work(&alive[1..], 10).await.unwrap().len(), 10);
            let key = samples::key(&format!("{count}-{number}"), 1);
            let loaded = store.load(AppRef::Uid(app), Some(&key)).await.unwrap().unwrap();
            let mut change = Change::on(loaded.state.clone());
            samples::admit(&mut change, samples::keyed(key, samples::deploy("v")), loaded.now);
            change.forget(vec![samples::revision(77)], loaded.now);
            store.commit_one(client::put(change, loaded.version)).await.unwrap();
            store.load(AppRef::Name(&loaded.state.app.id), None).await.unwrap().unwrap();
            assert!(TokenStore::find(&store, &loaded.state.app.id).await.unwrap().is_none());
            let key = format!("r{}", 1000 + number).parse().unwrap();
            let record = store.read(RecordKind::Session, &key).await.unwrap().unwrap();
            let again = NewRecord { key, document: record.document.clone(), ttl: None };
            store.write(RecordKind::Session, again.clone(), Some(record.version)).await.unwrap();
            assert!(store.write(RecordKind::Session, again.clone(), None).await.is_err());
            let listed = RecordStore::list(&store, RecordKind::Session, Some(record.place()), 5).await.unwrap();
            assert_eq!(listed.len(), 5);
            RecordStore::remove(&store, RecordKind::Session, &again.key).await.unwrap();
            store.write(RecordKind::Session, again, None).await.unwrap();
            let page = Page::newest(10).below(samples::revision(1)).succeeded(true);
            assert_eq!(store.page(app, page).await.unwrap(), []);
            assert_eq!(store.states(AppPage::first(1)).await.unwrap().len(), 1);
            let added = client::register(&store, samples::app("shop", "test", &format!("new-{number}"))).await;
            store.commit_one(client::removal(&added)).await.unwrap();
        }
        // Sessions report what they did when they end.
        drop(store);
        database.left_alone().await;
        let tables = "SELECT relname::text, seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables \
                      WHERE schemaname = 'rollhook' AND relname IN ('apps', 'deploys', 'keys', 'tokens', 'records')";
        for row in database.rows(tables).await {
            let (table, whole, found): (&str, i64, i64) = (row.get(0), row.get(1), row.get(2));
            assert!(whole + found < 1000, "{count}: {table}: {whole} rows read, {found} found by index");
        }
    }
}

#[tokio::test]
async fn keys_of_a_forgotten_deploy_are_found_by_its_revision() {
    let Some(database) = Database::lent("keys_of_a_forgotten_deploy_are_found_by_its_revision").await else { return };
    let _store = database.store().await;
    // One app with so many keys that the planner has a choice to make.
    let app = "00000000-0000-0000-0000-000000000007";
    let fill = format!(
        "INSERT INTO rollhook.keys SELECT '{app}', 0, n::text, '', n, 0 FROM generate_series(1, 2000) n; ANALYZE rollhook.keys"
    );
    database.run(&fill).await;
    let explain = format!("EXPLAIN DELETE FROM rollhook.keys u WHERE u.app = '{app}' AND u.revision = ANY ('{{7}}')");
    let plan: Vec<String> = database.rows(&explain).await.iter().map(|row| row.get(0)).collect();
    assert!(plan.iter().any(|line| line.contains("keys_by_revision")), "{plan:?}");
}

#[tokio::test]
async fn hints_are_told_once_for_each_commit() {
    let Some(database) = Database::lent("hints_are_told_once_for_each_commit").await else { return };
    let (store, app) = with_app(&database).await;
    let loaded = client::load(&store, app).await;
    let mut changes = store.watch();
    let commit = || accept_on(&loaded, samples::admission(samples::deploy("v1")));
    let committed = store.commit_one(commit()).await.unwrap();
    assert!(matches!(store.commit_one(commit()).await, Err(Error::Conflict(Entity::Version))));
    let again =
        store.commit_one(accept_on(&client::load(&store, app).await, samples::admission(samples::deploy("v2"))));
    let again = again.await.unwrap();
    let mut told = async || loop {
        match changes.next().await {
            Some(AppChange::App(of, version)) if of == app => return version,
            Some(AppChange::App(..) | AppChange::Any) => {}
            None => panic!("the stream has ended"),
        }
    };
    assert_eq!(told().await, committed.version);
    assert_eq!(told().await, again.version, "a refused commit is not told");
}
