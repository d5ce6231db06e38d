//! Sealed tokens, and the lookups that requests begin with.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use rollhook_conformance::{client, samples};
use rollhook_core::{
    Error,
    configuration::ConfigurationId,
    ports::{ConfigurationStore, TokenStore},
};
use rollhook_management::ports::{NewRecord, RecordKey, RecordKind, RecordStore};
use rollhook_postgres::PostgresStore;
use sqlx::Connection;

use crate::bed::{Database, ring, with_app};

#[tokio::test]
async fn resealing_makes_old_keys_unneeded() {
    let Some(database) = Database::lent("resealing_makes_old_keys_unneeded").await else { return };
    let (old, app) = with_app(&database).await;
    assert_eq!(old.keys_in_use().await.unwrap(), []);
    let mut apps = vec![client::load(&old, app).await.state.app];
    for number in 0..250 {
        let app = samples::app("shop", "test", &format!("app-{number}"));
        apps.push(client::register(&old, app).await.state.app);
    }
    for app in &apps {
        TokenStore::put(&old, app.uid, &samples::token(1)).await.unwrap();
    }
    let variables = samples::configuration(1, &[("A", "b")]).variables;
    for number in 0..10 {
        ConfigurationStore::put(&old, app, ConfigurationId(number), &variables).await.unwrap();
    }
    let new = PostgresStore::connect(&database.url, ring(2)).await.unwrap();
    TokenStore::put(&new, apps[1].uid, &samples::token(2)).await.unwrap();
    let key = |text: &str| text.parse().unwrap();
    assert_eq!(new.keys_in_use().await.unwrap(), [(key("k0001"), 260), (key("k0002"), 1)]);
    // Of two at once, each is sealed anew by one; one that is enabled meanwhile stays.
    let token = samples::token(3);
    let (one, two, put) = tokio::join!(new.reseal(), new.reseal(), TokenStore::put(&new, app, &token));
    put.unwrap();
    let resealed = one.unwrap() + two.unwrap();
    assert!((259..=260).contains(&resealed), "{resealed}");
    assert_eq!(new.keys_in_use().await.unwrap(), [(key("k0002"), 261)]);
    assert_eq!(new.reseal().await.unwrap(), 0);
    for (app, token) in [(&apps[0], 3), (&apps[1], 2), (&apps[200], 1)] {
        let found = TokenStore::find(&new, &app.id).await.unwrap().unwrap();
        assert_eq!(found.token.expose(), samples::token(token).expose());
    }
    for number in 0..10 {
        let found = new.get(app, ConfigurationId(number)).await.unwrap();
        assert_eq!(found.as_ref(), Some(&variables));
    }
    let lacking = TokenStore::find(&old, &apps[0].id).await.unwrap_err();
    assert!(matches!(&lacking, Error::Denied { what, .. } if what.contains("k0002")), "{lacking:?}");
}

#[tokio::test]
async fn concurrent_reads_of_records_share_statements() {
    let Some(database) = Database::lent("concurrent_reads_of_records_share_statements").await else { return };
    let store = database.store().await;
    let key: RecordKey = "known".parse().unwrap();
    let record = NewRecord { key: key.clone(), document: "{}".to_owned(), ttl: None };
    store.write(RecordKind::ApiToken, record, None).await.unwrap();
    // The clock counts the statements that read it.
    database
        .run(
            "CREATE SEQUENCE statements; ALTER FUNCTION rollhook.clock() RENAME TO clock_before; \
             CREATE FUNCTION rollhook.clock() RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''public.statements'')'",
        )
        .await;
    let reads = join_all((0..90).map(|_| store.read(RecordKind::ApiToken, &key))).await;
    let statements: BTreeSet<_> = reads.into_iter().map(|read| read.unwrap().unwrap().now).collect();
    assert!(statements.len() <= 9, "90 calls took {} statements", statements.len());
}

#[tokio::test]
async fn a_dump_shows_no_token() {
    let Some(database) = Database::lent("a_dump_shows_no_token").await else { return };
    let (store, app) = with_app(&database).await;
    TokenStore::put(&store, app, &samples::token(1)).await.unwrap();
    let dump = tokio::process::Command::new("pg_dump").arg(&database.url).output().await.unwrap();
    let text = String::from_utf8(dump.stdout).unwrap();
    assert!(dump.status.success() && text.contains("COPY rollhook.tokens"));
    assert!(!text.contains(samples::token(1).expose()));
    let mut connection = database.connection().await;
    assert_eq!(sqlx::raw_sql("SELECT FROM rollhook.tokens").fetch_all(&mut connection).await.unwrap().len(), 1);
    connection.close().await.unwrap();
}
