//! A database of its own for a case, on the server that the test command lends.

pub(crate) mod fresh;
pub(crate) mod log;

use std::sync::atomic::{AtomicU32, Ordering};

use rollhook_conformance::{client, samples};
use rollhook_core::{
    app::AppUid,
    ledger::{Admission, Change},
    ports::{AppCommit, Loaded},
};
use rollhook_postgres::PostgresStore;
use rollhook_sealing::KeyRing;
use rollhook_testing::{beds::Postgres, skip, until_async};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection,
    postgres::{PgConnectOptions, PgRow},
};
use zeroize::Zeroizing;

/// Reports a test as skipped.
pub(crate) fn skipped(test: &str, reason: &str) {
    skip(&format!("{}/{}::{test}", env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME")), reason);
}

/// A database of its own, on a server.
pub(crate) struct Database {
    pub(crate) server: Postgres,
    pub(crate) url: String,
    name: String,
}

impl Database {
    /// An empty one.
    pub(crate) async fn on(server: Postgres) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let admin = server.url("url").unwrap();
        let mut connection = PgConnection::connect(&admin).await.unwrap();
        run(&mut connection, &format!("CREATE DATABASE {name}")).await;
        connection.close().await.unwrap();
        let url = admin.strip_suffix("postgres").unwrap().to_owned() + &name;
        Self { server, url, name }
    }

    /// An empty one on the server that is lent; without that the test is reported as skipped.
    pub(crate) async fn lent(test: &str) -> Option<Self> {
        let server = Postgres::lent().inspect_err(|reason| skipped(test, reason)).ok()?;
        Some(Self::on(server).await)
    }

    pub(crate) async fn store(&self) -> PostgresStore {
        PostgresStore::connect(&self.url, ring(1)).await.unwrap()
    }

    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    pub(crate) async fn run(&self, statements: &str) {
        let mut connection = self.connection().await;
        run(&mut connection, statements).await;
        connection.close().await.unwrap();
    }

    pub(crate) async fn rows(&self, statement: &str) -> Vec<PgRow> {
        let mut connection = self.connection().await;
        let rows = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_all(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        rows
    }

    /// The one number that the statement gives.
    pub(crate) async fn number(&self, statement: &str) -> i64 {
        sqlx::Row::get(&self.rows(statement).await[0], 0)
    }

    /// Waits until no other session is left: sessions report their statistics when they end.
    pub(crate) async fn left_alone(&self) {
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                      AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        until_async("the other sessions end", async || self.number(others).await == 0).await;
    }

    /// The URL with another user and password.
    pub(crate) fn url_of(&self, user: &str, password: &str) -> String {
        format!("postgres://{user}:{password}@{}", self.url.split_once('@').unwrap().1)
    }

    /// The URL through the pooler, if there is one.
    pub(crate) fn pooled_url(&self) -> Option<String> {
        Some(self.server.url("pooler-url")?.strip_suffix("postgres").unwrap().to_owned() + &self.name)
    }

    /// The one flag that the statement gives through the pooler.
    pub(crate) async fn pooled_flag(&self, statement: &str) -> bool {
        let options: PgConnectOptions = self.pooled_url().unwrap().parse().unwrap();
        let mut connection = options.extra_float_digits(None).connect().await.unwrap();
        let statement = AssertSqlSafe(statement.to_owned());
        let flag = sqlx::Row::get(&sqlx::raw_sql(statement).fetch_one(&mut connection).await.unwrap(), 0);
        connection.close().await.unwrap();
        flag
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

pub(crate) async fn run(connection: &mut PgConnection, statements: &str) {
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(connection).await.unwrap();
}

pub(crate) fn ring(newest: u8) -> KeyRing {
    let keys = (1..=newest).map(|number| (format!("k{number:04}").parse().unwrap(), Zeroizing::new([number; 32])));
    KeyRing::from_keys(keys).unwrap()
}

/// A store with one app.
pub(crate) async fn with_app(database: &Database) -> (PostgresStore, AppUid) {
    let store = database.store().await;
    let app = client::register(&store, samples::app("shop", "test", "api")).await;
    (store, app.state.app.uid)
}

/// Accepts the image of this tag.
pub(crate) async fn accept(store: &PostgresStore, app: AppUid, tag: &str) -> u64 {
    client::admit(store, app, samples::admission(samples::deploy(tag))).await.revision.get()
}

/// The commit of an accept on an app as it was loaded.
pub(crate) fn accept_on(loaded: &Loaded, admission: Admission) -> AppCommit {
    let mut change = Change::on(loaded.state.clone());
    samples::admit(&mut change, admission, loaded.now);
    client::put(change, loaded.version)
}
