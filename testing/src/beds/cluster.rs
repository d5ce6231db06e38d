//! Clusters of simulated nodes.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use super::{Kind, run_script, script};

/// A cluster for a test that takes parts of it away; it goes down when this is dropped.
#[derive(Debug)]
pub struct OwnCluster {
    /// The state directory.
    pub state: PathBuf,
}

impl OwnCluster {
    /// Brings up a cluster. Without a lent one the test is reported as skipped.
    pub fn up(test: &str) -> Option<Self> {
        Kind::Cluster.lent_for(test)?;
        Some(Self::named(test).unwrap())
    }

    /// Brings up a cluster of this name, beside the lent one if there is one.
    ///
    /// # Errors
    /// The reason why it cannot be brought up.
    pub fn named(name: &str) -> Result<Self, &'static str> {
        let name = name.rsplit('/').next().unwrap_or(name).replace("::", "-");
        Ok(Self { state: bring_up(&name)? })
    }

    /// Acts on one of the processes: `stop`, `start`, `pause` or `resume` for `apiserver`, `etcd`, …
    pub fn service(&self, name: &str, action: &str) {
        service(&self.state, name, action);
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        let _ = Command::new(script("cluster/down.sh")).arg(&self.state).status();
    }
}

/// Acts on one of the processes of the cluster of this state directory, which only one test uses at the moment: `stop`,
/// `start`, `pause` or `resume` for `apiserver`, `etcd`, …
pub fn service(state: &Path, name: &str, action: &str) {
    run_script(&script("service.sh"), state, &[name, action]);
}

/// Returns the state directory of the lent cluster, or of one that is brought up for the tests of this process.
///
/// # Errors
/// The reason why there is none.
pub fn shared_cluster() -> Result<&'static Path, &'static str> {
    static SHARED: OnceLock<Result<PathBuf, &'static str>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| Kind::Cluster.lent().or_else(|_| bring_up("shared")));
    shared.as_deref().map_err(|reason| *reason)
}

/// Returns the state directory of a cluster that only the tests of this process use.
///
/// # Errors
/// The reason why there is none.
pub fn own_cluster_of_process() -> Result<&'static Path, &'static str> {
    static OWN: OnceLock<Result<PathBuf, &'static str>> = OnceLock::new();
    OWN.get_or_init(|| bring_up("own")).as_deref().map_err(|reason| *reason)
}

/// Brings up a cluster, which goes down with this process at the latest.
fn bring_up(name: &str) -> Result<PathBuf, &'static str> {
    let directory = match Kind::Cluster.lent() {
        Ok(lent) => lent.parent().map(Path::to_owned).unwrap_or_default(),
        Err(_) if is_built() => env::temp_dir(),
        Err(_) => {
            return Err("no cluster is lent (ROLLHOOK_TEST_CLUSTER), and none is built (testbed/cluster/build.sh)");
        }
    };
    let state = directory.join(format!("cluster-{name}.{}", std::process::id()));
    run_script(&script("cluster/up.sh"), &state, &[]);
    let reaper = format!(
        "while kill -0 {} 2> /dev/null; do sleep 1; done; exec '{}' '{}'",
        std::process::id(),
        script("cluster/down.sh").display(),
        state.display()
    );
    let background = "setsid bash -c \"$0\" > /dev/null 2>&1 < /dev/null &";
    assert!(Command::new("bash").args(["-c", background, &reaper]).status().unwrap().success());
    Ok(state)
}

fn is_built() -> bool {
    let cache =
        env::var_os("XDG_CACHE_HOME").map_or_else(|| env::home_dir().unwrap_or_default().join(".cache"), PathBuf::from);
    let built = |entry: fs::DirEntry| entry.path().join("kube-apiserver").exists();
    env::var_os("CLUSTER_BIN").is_some()
        || fs::read_dir(cache.join("rollhook-cluster")).into_iter().flatten().flatten().any(built)
}
