//! A directory for one bench: database, keys, management token, log.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rollhook_sealing::KeyRing;
use rollhook_sqlite::SqliteStore;
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use crate::{Failure, process::Process};

/// The directory; gone with this value.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self(tempfile::Builder::new().prefix("rollhook-benches.").tempdir()?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The store that the server will find.
    pub(crate) async fn store(&self) -> Result<SqliteStore, Failure> {
        Ok(SqliteStore::open(self.path("rollhook.db"), KeyRing::load_or_create(&self.path("keys"))?).await?)
    }

    /// The store's file, for what its API does not do.
    pub(crate) async fn connection(&self) -> Result<SqliteConnection, Failure> {
        let options = SqliteConnectOptions::new().filename(self.path("rollhook.db"));
        Ok(SqliteConnection::connect_with(&options).await?)
    }

    /// Makes the management token, and returns its text.
    pub(crate) fn admin_token(&self, server: &Path) -> Result<String, Failure> {
        let file = self.path("admin-token");
        let made = Command::new(server).args(["admin-token", "new"]).arg(&file).output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned().into());
        }
        Ok(fs::read_to_string(file)?.trim().to_owned())
    }

    /// Starts the server on the store, without rate limits.
    pub(crate) async fn serve(&self, server: &Path, driver: &str) -> Result<Process, Failure> {
        self.serve_with(server, driver, &[]).await
    }

    /// The same, with these environment variables.
    pub(crate) async fn serve_with(
        &self,
        server: &Path,
        driver: &str,
        environment: &[(&str, &Path)],
    ) -> Result<Process, Failure> {
        let database = format!("sqlite:{}", self.path("rollhook.db").display());
        let (keys, admin) = (self.path("keys").display().to_string(), self.path("admin-token").display().to_string());
        let arguments = [
            ("--listen", "127.0.0.1:0"),
            ("--store", &database),
            ("--driver", driver),
            ("--key-dir", &keys),
            ("--admin-token-file", &admin),
            ("--rate-limit", "off"),
        ];
        let arguments: Vec<String> =
            arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect();
        Process::start(server, &arguments, environment, &self.path("server.log")).await
    }
}
