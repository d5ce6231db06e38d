//! A store for one bench, and a directory for what its servers keep beside it: keys, management token, logs.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use kube::Client;
use rollhook_core::ports::{HistoryStore, TokenStore};
use rollhook_kubernetes::KubernetesStore;
use rollhook_postgres::PostgresStore;
use rollhook_sealing::KeyRing;
use rollhook_sqlite::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{Failure, bed::Cluster, process::Process};

/// Where a port of the kernel's choice is listened on.
pub(crate) const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What is written to before a server starts: any store.
pub(crate) trait Store: HistoryStore + TokenStore {}

impl<T: HistoryStore + TokenStore> Store for T {}

/// Which store.
enum Kind {
    Sqlite,
    /// By its URL.
    Postgres(String),
    /// Through an administrator's client, as what the servers are told by a kubeconfig.
    Kubernetes {
        client: Client,
        namespace: String,
    },
}

/// The directory, gone with this value, and the store.
pub(crate) struct Place {
    directory: TempDir,
    kind: Kind,
    servers: AtomicU32,
}

impl Place {
    /// SQLite, with its database in the directory.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::of(Kind::Sqlite)
    }

    /// A database of PostgreSQL.
    pub(crate) fn postgres(url: String) -> Result<Self, Failure> {
        Self::of(Kind::Postgres(url))
    }

    /// The cluster itself, with what belongs to no app in the bench's namespace. Servers are to be told of it by a
    /// kubeconfig.
    pub(crate) fn kubernetes(cluster: &Cluster) -> Result<Self, Failure> {
        Self::of(Kind::Kubernetes { client: cluster.client.clone(), namespace: cluster.namespace() })
    }

    fn of(kind: Kind) -> Result<Self, Failure> {
        let directory = tempfile::Builder::new().prefix("rollhook-benches.").tempdir()?;
        let place = Self { directory, kind, servers: AtomicU32::new(0) };
        // Servers on a store that they share do not make a key by themselves.
        place.ring()?;
        Ok(place)
    }

    /// A file in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn ring(&self) -> Result<KeyRing, Failure> {
        Ok(KeyRing::load_or_create(&self.path("keys"))?)
    }

    /// The store that the server will find.
    pub(crate) async fn open(&self) -> Result<Box<dyn Store>, Failure> {
        Ok(match &self.kind {
            Kind::Sqlite => Box::new(self.sqlite().await?),
            Kind::Postgres(url) => Box::new(PostgresStore::connect(url, self.ring()?).await?),
            Kind::Kubernetes { client, namespace } => {
                Box::new(KubernetesStore::new(client.clone(), namespace, self.ring()?))
            }
        })
    }

    /// The same, where it is SQLite.
    pub(crate) async fn sqlite(&self) -> Result<SqliteStore, Failure> {
        Ok(SqliteStore::open(self.path("rollhook.db"), self.ring()?).await?)
    }

    /// SQLite's file, for what its API does not do.
    pub(crate) fn connection(&self) -> Result<Connection, Failure> {
        Ok(Connection::open(self.path("rollhook.db"))?)
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

    /// Starts a server on the store, without rate limits.
    pub(crate) async fn serve(&self, server: &Path, driver: &str) -> Result<Process, Failure> {
        self.serve_at(ANY, server, driver, None).await
    }

    /// The same at this address, which makes a part of the replica's name; with a cluster, where it needs one.
    pub(crate) async fn serve_at(
        &self,
        listen: SocketAddr,
        server: &Path,
        driver: &str,
        kubeconfig: Option<&Path>,
    ) -> Result<Process, Failure> {
        let store = match &self.kind {
            Kind::Sqlite => format!("sqlite:{}", self.path("rollhook.db").display()),
            Kind::Postgres(url) => url.clone(),
            Kind::Kubernetes { .. } => "kubernetes".to_owned(),
        };
        let (keys, admin) = (self.path("keys").display().to_string(), self.path("admin-token").display().to_string());
        let arguments = [
            ("--listen", listen.to_string().as_str()),
            ("--driver", driver),
            ("--key-dir", &keys),
            ("--admin-token-file", &admin),
            ("--rate-limit", "off"),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value.to_owned()])
        .collect::<Vec<_>>();
        let mut environment = vec![("ROLLHOOK_STORE", Path::new(&store))];
        environment.extend(kubeconfig.map(|file| ("KUBECONFIG", file)));
        let log = format!("server-{}.log", self.servers.fetch_add(1, Ordering::Relaxed));
        Process::start(server, &arguments, &environment, &self.path(&log)).await
    }
}
