//! The stores as the conformance suites want them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::{Can, Handles, Lack, Stores};
use rollhook_core::{app::AppUid, configuration::ConfigurationId, deploy::Revision};
use rollhook_postgres::PostgresStore;
use rollhook_testing::beds::Postgres;
use sqlx::Row;

use super::{Database, ring};

/// A fresh store for the suites.
pub(crate) struct Fresh {
    database: Database,
    url: String,
    /// Milliseconds by which the store's clock is ahead of the server's.
    ahead: AtomicI64,
}

impl Fresh {
    pub(crate) async fn direct() -> Can<Self> {
        Ok(Self::on(Postgres::lent().map_err(Lack::Skip)?).await)
    }

    /// One on a server that no other test uses, so that it can be killed.
    pub(crate) async fn on_own_server() -> Can<Self> {
        Ok(Self::on(Postgres::own().map_err(Lack::Skip)?).await)
    }

    async fn on(server: Postgres) -> Self {
        let database = Database::on(server).await;
        Self { url: database.url.clone(), database, ahead: AtomicI64::new(0) }
    }

    /// One whose handles connect through a pooler.
    pub(crate) async fn pooled() -> Can<Self> {
        let fresh = Self::direct().await?;
        let url = fresh.database.pooled_url().ok_or(Lack::Skip("there is no PgBouncer on this machine"))?;
        Ok(Self { url, ..fresh })
    }

    async fn change(&self, statement: String) -> Can {
        self.database.run(&statement).await;
        Ok(())
    }

    async fn move_clock(&self, millis: i64) -> Can {
        let ahead = self.ahead.fetch_add(millis, Ordering::SeqCst) + millis;
        self.change(format!(
            "CREATE OR REPLACE FUNCTION rollhook.clock() RETURNS bigint LANGUAGE sql VOLATILE AS \
             'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + {ahead}'"
        ))
        .await
    }
}

#[async_trait]
impl Stores for Fresh {
    async fn open(&self) -> Handles {
        let store = Arc::new(PostgresStore::connect(&self.url, ring(1)).await.unwrap());
        Handles {
            tokens: store.clone(),
            configurations: Some(store.clone()),
            records: Some(store.clone()),
            history: store,
        }
    }

    async fn reopen(&self) -> Can<Handles> {
        if !self.database.server.is_own() {
            return Err(Lack::NotApplicable("all tests share the server; `abrupt_end` kills one of its own"));
        }
        self.database.server.control("kill");
        self.database.server.control("start");
        Ok(self.open().await)
    }

    async fn pause(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn advance(&self, time: Duration) -> Can {
        self.move_clock(i64::try_from(time.as_millis()).unwrap()).await
    }

    async fn set_back(&self, time: Duration) -> Can {
        self.move_clock(-i64::try_from(time.as_millis()).unwrap()).await
    }

    async fn corrupt_state(&self, app: AppUid) -> Can {
        self.change(format!("UPDATE rollhook.apps SET document = '{{\"app\":' WHERE uid = '{app}'")).await
    }

    async fn corrupt_entry(&self, app: AppUid, revision: Revision) -> Can {
        self.change(format!(
            "UPDATE rollhook.deploys SET document = '{{\"id\":' WHERE app = '{app}' AND revision = {revision}"
        ))
        .await
    }

    /// Every table, as text.
    async fn raw_bytes(&self) -> Can<Vec<u8>> {
        let tables =
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'rollhook'::regnamespace AND relkind = 'r'";
        let mut bytes = Vec::new();
        for table in self.database.rows(tables).await {
            let dump = format!("SELECT t::text FROM rollhook.{} t", table.get::<&str, _>(0));
            for row in self.database.rows(&dump).await {
                bytes.extend(row.get::<&str, _>(0).as_bytes());
            }
        }
        // A column of bytes is text there as hexadecimal digits.
        for table in ["tokens", "configurations"] {
            let sealed = format!("SELECT encode(sealed, 'escape') FROM rollhook.{table}");
            for row in self.database.rows(&sealed).await {
                bytes.extend(row.get::<&str, _>(0).as_bytes());
            }
        }
        Ok(bytes)
    }

    async fn move_secret(&self, from: AppUid, to: AppUid) -> Can {
        self.change(format!(
            "UPDATE rollhook.tokens t SET sealed = o.sealed FROM rollhook.tokens o WHERE o.app = '{from}' AND t.app = '{to}'"
        ))
        .await
    }

    async fn move_configuration(&self, from: (AppUid, ConfigurationId), to: (AppUid, ConfigurationId)) -> Can {
        self.change(format!(
            "UPDATE rollhook.configurations c SET sealed = o.sealed FROM rollhook.configurations o \
             WHERE o.app = '{}' AND o.id = '{}' AND c.app = '{}' AND c.id = '{}'",
            from.0, from.1, to.0, to.1
        ))
        .await
    }
}

/// A runtime for one case.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
