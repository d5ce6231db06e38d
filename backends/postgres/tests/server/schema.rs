//! Making the schema, and who may use it.

use futures_util::future::join_all;
use rollhook_conformance::{client, samples};
use rollhook_core::{
    Error,
    deploy::{Reason, State},
    ports::{AppRef, HistoryStore, TokenStore},
};
use rollhook_postgres::PostgresStore;

use crate::bed::{Database, accept, log::Log, ring};

async fn refusal(url: &str) -> Error {
    PostgresStore::connect(url, ring(1)).await.unwrap_err()
}

#[tokio::test]
async fn replicas_that_start_at_once_make_one_schema() {
    let Some(database) = Database::lent("replicas_that_start_at_once_make_one_schema").await else { return };
    let url = database.pooled_url();
    let connects = (0..8).map(|at| {
        let url = url.as_ref().filter(|_| at % 2 == 0).unwrap_or(&database.url);
        PostgresStore::connect(url, ring(1))
    });
    for store in join_all(connects).await {
        store.unwrap();
    }
    assert_eq!(database.number("SELECT count(*) FROM rollhook.rollhook_schema").await, 3);
}

#[tokio::test]
async fn the_first_run_says_what_it_made() {
    let Some(database) = Database::lent("the_first_run_says_what_it_made").await else { return };
    let log = Log::default();
    let _listening = log.listen();
    database.store().await;
    assert_eq!(log.take(), ["updated the schema rollhook"]);
    database.store().await;
    assert!(log.take().is_empty(), "later ones make nothing");
}

#[tokio::test]
async fn a_schema_of_a_newer_version_is_refused() {
    let Some(database) = Database::lent("a_schema_of_a_newer_version_is_refused").await else { return };
    database.store().await;
    database.run("INSERT INTO rollhook.rollhook_schema VALUES (99)").await;
    let refused = refusal(&database.url).await;
    assert!(matches!(&refused, Error::Invalid { what, .. } if what.contains("newer version")), "{refused:?}");
}

#[tokio::test]
async fn a_schema_from_before_the_first_release_is_refused() {
    let Some(database) = Database::lent("a_schema_from_before_the_first_release_is_refused").await else { return };
    database
        .run(
            "CREATE SCHEMA rollhook; CREATE TABLE rollhook.rollhook_migrations (version integer, at timestamptz); \
             INSERT INTO rollhook.rollhook_migrations VALUES (1)",
        )
        .await;
    let refused = refusal(&database.url).await;
    let expected = "from before its first release";
    assert!(matches!(&refused, Error::Invalid { what, .. } if what.contains(expected)), "{refused:?}");
}

#[tokio::test]
async fn a_schema_of_another_program_is_refused_by_name() {
    let Some(database) = Database::lent("a_schema_of_another_program_is_refused_by_name").await else { return };
    database.run("CREATE SCHEMA rollhook; CREATE TABLE rollhook.things (id int)").await;
    let refused = refusal(&database.url).await;
    let named = |what: &str| what.contains("a schema named rollhook that another program made");
    assert!(matches!(&refused, Error::Invalid { what, .. } if named(what)), "{refused:?}");
    database.run("DROP TABLE rollhook.things").await;
    database.store().await;
    assert_eq!(database.number("SELECT count(*) FROM rollhook.apps").await, 0, "one that is empty is as good as none");
}

#[tokio::test]
async fn a_user_needs_few_rights() {
    let Some(database) = Database::lent("a_user_needs_few_rights").await else { return };
    let (owner, user) = (format!("owner_{}", database.name()), format!("user_{}", database.name()));
    database
        .run(&format!("CREATE ROLE {owner} LOGIN PASSWORD 'hunter2'; CREATE ROLE {user} LOGIN PASSWORD 'hunter2'"))
        .await;
    let (owners, users) = (database.url_of(&owner, "hunter2"), database.url_of(&user, "hunter2"));
    let refused = refusal(&owners).await;
    let told = |what: &str| what.contains("GRANT CREATE ON DATABASE");
    assert!(matches!(&refused, Error::Denied { what, .. } if told(what)), "{refused:?}");

    database.run(&format!("GRANT CREATE ON DATABASE {} TO {owner}", database.name())).await;
    PostgresStore::connect(&owners, ring(1)).await.unwrap();
    database.run(&format!("REVOKE CREATE ON DATABASE {} FROM {owner}", database.name())).await;
    let store = PostgresStore::connect(&owners, ring(1)).await.unwrap();
    client::register(&store, samples::app("shop", "test", "api")).await;

    let refused = refusal(&users).await;
    assert!(matches!(&refused, Error::Denied { what, .. } if what.contains("granted")), "{refused:?}");
    database
        .run(&format!(
            "GRANT USAGE ON SCHEMA rollhook TO {user}; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rollhook TO {user}"
        ))
        .await;
    let store = PostgresStore::connect(&users, ring(1)).await.unwrap();
    let app = client::register(&store, samples::app("shop", "prod", "api")).await.state.app.uid;
    accept(&store, app, "v1").await;
}

#[tokio::test]
async fn nothing_depends_on_the_search_path_or_the_callers_settings() {
    let test = "nothing_depends_on_the_search_path_or_the_callers_settings";
    let Some(database) = Database::lent(test).await else { return };
    let name = database.name();
    database
        .run(&format!(
            "CREATE SCHEMA decoy; CREATE TABLE decoy.apps (id int); ALTER DATABASE {name} SET search_path = decoy; \
             ALTER DATABASE {name} SET standard_conforming_strings = off; ALTER DATABASE {name} SET bytea_output = escape"
        ))
        .await;
    let store = database.store().await;
    let app = client::register(&store, samples::app("shop", "test", "api")).await.state.app.uid;
    let key = samples::key_of("back\\slash 'quote' $json$ ü", 1);
    let deploy = client::admit(&store, app, samples::keyed(key.clone(), samples::deploy("v1"))).await;
    let message = "back\\slash 'quote' $json$ \u{0} ü";
    let state = State::Cancelled { reason: Reason::new("cancelled"), message: message.to_owned() };
    client::record(&store, app, vec![deploy.moved(state.clone())]).await;
    assert_eq!(client::archive(&store, app).await[0].state, state);
    let loaded = store.load(AppRef::Uid(app), Some(&key)).await.unwrap().unwrap();
    assert_eq!(loaded.key.unwrap().request, [1; 32]);
    store.put(app, &samples::token(1)).await.unwrap();
    let found = TokenStore::find(&store, &loaded.state.app.id).await.unwrap().unwrap();
    assert_eq!(found.token.expose(), samples::token(1).expose());

    database.run(&format!("ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")).await;
    let refused = refusal(&database.url).await;
    let told = |what: &str| what.contains("SET default_transaction_isolation = 'read committed'");
    assert!(matches!(&refused, Error::Invalid { what, .. } if told(what)), "{refused:?}");
}

#[tokio::test]
async fn refusals_say_what_to_do_and_show_no_password() {
    let Some(database) = Database::lent("refusals_say_what_to_do_and_show_no_password").await else { return };
    let nowhere = "postgres://postgres:hunter2@127.0.0.1:1/db".to_owned();
    let unnamed = database.url_of("postgres", "hunter2").replace(database.name(), "no_such");
    let right = database.url.split([':', '@']).nth(2).unwrap().to_owned();
    let missing = database.url.replace(database.name(), "no_such");
    let tls = format!("{}?sslmode=require", database.url);
    for (url, expected) in [
        (database.url_of("postgres", "hunter2"), "refuses the user or the password"),
        (unnamed, "refuses the user or the password"),
        (nowhere, "127.0.0.1:1: the database cannot be reached"),
        (missing, "does not exist"),
        (tls, "sslmode"),
    ] {
        let refused = refusal(&url).await;
        let told = refused.chain();
        assert!(told.contains(expected), "{expected}: {told}");
        for text in [told, format!("{refused:?}")] {
            assert!(!text.contains("hunter2") && !text.contains(&right), "{text}");
        }
    }
    let shown = format!("{:?}", database.store().await);
    assert!(!shown.contains(&right) && !shown.contains("postgres://"), "{shown}");
}
