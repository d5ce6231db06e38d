//! The store of one bench, and a directory for the other files of its servers: keys, admin token, logs.

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
use tempfile::TempDir;

use crate::{Failure, bed::Cluster, process::Process};

/// Loopback, with a port of the kernel's choice.
pub(crate) const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A store that a bench fills and reads beside the server.
pub(crate) trait Store: HistoryStore + TokenStore {}

impl<T: HistoryStore + TokenStore> Store for T {}

/// The kind of a store.
enum Kind {
    Sqlite,
    /// The URL of a database.
    Postgres(String),
    /// An administrator's client; servers use a kubeconfig instead.
    Kubernetes {
        client: Client,
        namespace: String,
    },
}

/// The directory, which is removed with this value, and the store.
pub(crate) struct Fixture {
    directory: TempDir,
    kind: Kind,
    servers: AtomicU32,
}

impl Fixture {
    /// SQLite, with its database in the directory.
    pub(crate) fn sqlite() -> Result<Self, Failure> {
        Self::of(Kind::Sqlite)
    }

    /// A PostgreSQL database.
    pub(crate) fn postgres(url: String) -> Result<Self, Failure> {
        Self::of(Kind::Postgres(url))
    }

    /// The cluster itself; objects that belong to no app lie in the bench's namespace. Servers need a kubeconfig.
    pub(crate) fn kubernetes(cluster: &Cluster) -> Result<Self, Failure> {
        Self::of(Kind::Kubernetes { client: cluster.client.clone(), namespace: cluster.namespace() })
    }

    fn of(kind: Kind) -> Result<Self, Failure> {
        let directory = tempfile::Builder::new().prefix("rollhook-benches.").tempdir()?;
        let fixture = Self { directory, kind, servers: AtomicU32::new(0) };
        // On a store that replicas share, a server makes no key by itself.
        fixture.ring()?;
        Ok(fixture)
    }

    /// A file in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The file of SQLite.
    pub(crate) fn database(&self) -> PathBuf {
        self.path("rollhook.db")
    }

    fn ring(&self) -> Result<KeyRing, Failure> {
        Ok(KeyRing::load_or_create(&self.path("keys"))?)
    }

    /// Opens the store that the servers use.
    pub(crate) async fn open(&self) -> Result<Box<dyn Store>, Failure> {
        Ok(match &self.kind {
            Kind::Sqlite => Box::new(SqliteStore::open(self.database(), self.ring()?).await?),
            Kind::Postgres(url) => Box::new(PostgresStore::connect(url, self.ring()?).await?),
            Kind::Kubernetes { client, namespace } => {
                Box::new(KubernetesStore::new(client.clone(), namespace, self.ring()?))
            }
        })
    }

    /// Makes the admin token, and returns the text.
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

    /// Starts a server at this address, which is a part of the replica's name, with a cluster if one is given.
    pub(crate) async fn serve_at(
        &self,
        listen: SocketAddr,
        server: &Path,
        driver: &str,
        kubeconfig: Option<&Path>,
    ) -> Result<Process, Failure> {
        let store = match &self.kind {
            Kind::Sqlite => format!("sqlite:{}", self.database().display()),
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
