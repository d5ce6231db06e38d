//! Sealed tokens.

use futures_util::future::join_all;
use rollhook_conformance::{client, samples};
use rollhook_core::{Error, ports::TokenStore};
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
        old.put(app.uid, &samples::token(1)).await.unwrap();
    }
    let new = PostgresStore::connect(&database.url, ring(2)).await.unwrap();
    new.put(apps[1].uid, &samples::token(2)).await.unwrap();
    let key = |text: &str| text.parse().unwrap();
    assert_eq!(new.keys_in_use().await.unwrap(), [(key("k0001"), 250), (key("k0002"), 1)]);
    // Of two at once, each token is sealed anew by one; one that is enabled meanwhile stays.
    let token = samples::token(3);
    let (one, two, put) = tokio::join!(new.reseal(), new.reseal(), new.put(app, &token));
    put.unwrap();
    let resealed = one.unwrap() + two.unwrap();
    assert!((249..=250).contains(&resealed), "{resealed}");
    assert_eq!(new.keys_in_use().await.unwrap(), [(key("k0002"), 251)]);
    assert_eq!(new.reseal().await.unwrap(), 0);
    for (app, token) in [(&apps[0], 3), (&apps[1], 2), (&apps[200], 1)] {
        let found = TokenStore::find(&new, &app.id).await.unwrap().unwrap();
        assert_eq!(found.token.expose(), samples::token(token).expose());
    }
    let lacking = TokenStore::find(&old, &apps[0].id).await.unwrap_err();
    assert!(matches!(&lacking, Error::Denied { what, .. } if what.contains("k0002")), "{lacking:?}");
}

#[tokio::test]
async fn who_waits_for_the_management_tokens_hash_shares_a_read() {
    let Some(database) = Database::lent("who_waits_for_the_management_tokens_hash_shares_a_read").await else { return };
    let store = database.store().await;
    store.set_operator_hash([7; 32]).await.unwrap();
    let read = |_| store.operator_hash();
    for hash in join_all((0..90).map(read)).await {
        assert_eq!(hash.unwrap(), Some([7; 32]));
    }
    drop(store);
    database.left_alone().await;
    let reads =
        "SELECT coalesce(seq_scan, 0) + coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = 'settings'";
    let reads = database.number(reads).await;
    assert!((1..=9).contains(&reads), "90 calls took {reads} reads");
}

#[tokio::test]
async fn a_dump_shows_no_token() {
    let Some(database) = Database::lent("a_dump_shows_no_token").await else { return };
    let (store, app) = with_app(&database).await;
    store.put(app, &samples::token(1)).await.unwrap();
    let dump = tokio::process::Command::new("pg_dump").arg(&database.url).output().await.unwrap();
    let text = String::from_utf8(dump.stdout).unwrap();
    assert!(dump.status.success() && text.contains("COPY rollhook.tokens"));
    assert!(!text.contains(samples::token(1).expose()));
    let mut connection = database.connection().await;
    assert_eq!(sqlx::raw_sql("SELECT FROM rollhook.tokens").fetch_all(&mut connection).await.unwrap().len(), 1);
    connection.close().await.unwrap();
}
