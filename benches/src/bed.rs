//! The servers of stores, from the repository's test beds.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command},
    time::Duration,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{Failure, process::family_cpu};

/// The longest time for the removal of a namespace with its objects.
const REMOVAL: Duration = Duration::from_secs(600);

/// A PostgreSQL of this process's own, which is stopped with this value, or with the process.
pub(crate) struct Postgres {
    directory: TempDir,
    url: String,
}

impl Postgres {
    /// Starts a server with PostgreSQL's default settings, also for what survives a crash.
    pub(crate) fn start() -> Result<Self, Failure> {
        let directory = tempfile::Builder::new().prefix("rollhook-benches.").tempdir()?;
        let up = Command::new(scripts().join("up.sh")).arg(directory.path()).arg(process::id().to_string()).output()?;
        if !up.status.success() {
            return Err(String::from_utf8_lossy(&up.stderr).trim().to_owned().into());
        }
        let url = String::from_utf8(up.stdout)?.trim().to_owned();
        Ok(Self { directory, url })
    }

    /// The processor time of all processes of the server so far.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        let file = self.directory.path().join("home/data/postmaster.pid");
        let pid = fs::read_to_string(&file).map_err(|error| format!("reading {} failed: {error}", file.display()))?;
        family_cpu(pid.lines().next().unwrap_or_default().parse()?)
    }

    /// Does the server's housekeeping in a database now, which it would otherwise do at some later time.
    pub(crate) async fn tidy(&self, database: &str) -> Result<(), Failure> {
        let mut connection = PgConnection::connect(&self.url_of(database)?).await?;
        for statement in ["VACUUM ANALYZE", "CHECKPOINT"] {
            sqlx::query(statement).execute(&mut connection).await?;
        }
        Ok(connection.close().await?)
    }

    fn url_of(&self, database: &str) -> Result<String, Failure> {
        let (server, _) = self.url.rsplit_once('/').ok_or("a URL without a database")?;
        Ok(format!("{server}/{database}"))
    }

    /// Makes a database, and returns its URL.
    pub(crate) async fn database(&self, name: &str) -> Result<String, Failure> {
        let mut connection = PgConnection::connect(&self.url).await?;
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await?;
        self.url_of(name)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The server also stops by itself once this process has ended.
        let _ = Command::new(scripts().join("down.sh")).arg(self.directory.path()).status();
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/postgres/testbed")
}

/// A cluster, with a namespace for one bench.
pub(crate) struct Cluster {
    /// An administrator's client.
    pub(crate) client: Client,
    /// The bench's project, which spells the namespace with an environment `test`.
    pub(crate) project: String,
    kubeconfig: Kubeconfig,
}

impl Cluster {
    /// Runs a bench in a namespace of the cluster that `ROLLHOOK_TEST_CLUSTER` names, and removes the namespace.
    /// Returns `None` if there is no such cluster.
    pub(crate) async fn with_namespace<T>(
        name: &str,
        bench: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let Some(bed) = env::var_os("ROLLHOOK_TEST_CLUSTER") else { return Ok(None) };
        let kubeconfig = Kubeconfig::read_from(Path::new(&bed).join("kubeconfig"))?;
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let project = format!("bench-{name}-{}", process::id());
        let cluster = Self { client, project, kubeconfig };
        let (spaces, name) = (Api::<Namespace>::all(cluster.client.clone()), cluster.namespace());
        let space = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        spaces.create(&PostParams::default(), &space).await?;
        let outcome = bench(&cluster).await;
        spaces.delete(&name, &DeleteParams::default()).await?;
        let gone = async {
            while spaces.get_opt(&name).await?.is_some() {
                sleep(Duration::from_millis(500)).await;
            }
            Ok::<_, Failure>(())
        };
        tokio::time::timeout(REMOVAL, gone)
            .await
            .map_err(|_| format!("removing the namespace {name} takes too long"))??;
        outcome.map(Some)
    }

    /// The namespace of the bench.
    pub(crate) fn namespace(&self) -> String {
        format!("{}-test", self.project)
    }

    /// Writes a kubeconfig, with the namespace as the default.
    pub(crate) fn kubeconfig(&self, file: &Path) -> Result<(), Failure> {
        let mut config = self.kubeconfig.clone();
        let contexts = config.contexts.iter_mut().filter_map(|named| named.context.as_mut());
        contexts.for_each(|context| context.namespace = Some(self.namespace()));
        // JSON is YAML.
        Ok(fs::write(file, serde_json::to_vec(&config)?)?)
    }
}
