//! Servers that stores need, from the repository's test beds.

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

use crate::Failure;

/// How long a namespace may take to go, with all that is in it.
const GOING: Duration = Duration::from_secs(300);

/// A PostgreSQL of this process's own; it goes down with this value, or with the process.
pub(crate) struct Postgres {
    directory: TempDir,
    url: String,
}

impl Postgres {
    /// Starts it. Its settings are PostgreSQL's defaults, those of what survives a crash among them.
    pub(crate) fn start() -> Result<Self, Failure> {
        let directory = tempfile::Builder::new().prefix("rollhook-benches.").tempdir()?;
        let up = Command::new(scripts().join("up.sh")).arg(directory.path()).arg(process::id().to_string()).output()?;
        if !up.status.success() {
            return Err(String::from_utf8_lossy(&up.stderr).trim().to_owned().into());
        }
        let url = String::from_utf8(up.stdout)?.trim().to_owned();
        Ok(Self { directory, url })
    }

    /// How to connect to a database that no bench uses.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Makes a database, and returns its URL.
    pub(crate) async fn database(&self, name: &str) -> Result<String, Failure> {
        let mut connection = PgConnection::connect(&self.url).await?;
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await?;
        let (server, _) = self.url.rsplit_once('/').ok_or("a URL without a database")?;
        Ok(format!("{server}/{name}"))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // What is left of it, the script that watches over this process removes.
        let _ = Command::new(scripts().join("down.sh")).arg(self.directory.path()).status();
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/postgres/testbed")
}

/// What a bench does on a cluster has a namespace of its own there.
pub(crate) struct Cluster {
    /// An administrator's.
    pub(crate) client: Client,
    /// A bench's own: with an environment `test` it spells the namespace.
    pub(crate) project: String,
    kubeconfig: Kubeconfig,
}

impl Cluster {
    /// Has a bench use the cluster that `ROLLHOOK_TEST_CLUSTER` names, and removes what it leaves there; none where there
    /// is no such cluster.
    pub(crate) async fn lend<T>(
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
        tokio::time::timeout(GOING, gone).await.map_err(|_| format!("namespace {name} does not go"))??;
        outcome.map(Some)
    }

    /// The namespace.
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
