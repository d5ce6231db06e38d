//! Test beds: clusters, nodes, PostgreSQL servers and Docker engines that the test command lends by their state directories, and what
//! tests start on them.
//!
//! `ROLLHOOK_TEST_CLUSTER` simulates nodes and pods, which do what their image's name says
//! (`backends/kubernetes/testbed/cluster/stages.yaml`); `ROLLHOOK_TEST_NODE` runs real containers;
//! `ROLLHOOK_TEST_POSTGRES` is a PostgreSQL server; `ROLLHOOK_TEST_DOCKER` is a Docker engine.

mod cluster;
mod docker;
mod fleet;
mod kubectl;
mod namespace;
mod postgres;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub use cluster::{OwnCluster, own_cluster_of_process, service, shared_cluster};
pub use docker::Docker;
pub use fleet::{Fleet, Shared};
pub use kubectl::{Kubectl, Watch, merge, workload};
pub use namespace::{Bed, FIRST, is_over};
pub use postgres::Postgres;

use crate::skip;

/// A kind of test bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An API server with simulated nodes.
    Cluster,
    /// A node with real containers.
    Node,
    /// A PostgreSQL server.
    Postgres,
    /// A Docker engine.
    Docker,
}

impl Kind {
    /// Returns the state directory of the lent bed, or the reason why there is none.
    ///
    /// # Errors
    /// If none is lent.
    pub fn lent(self) -> Result<PathBuf, &'static str> {
        let (variable, reason) = match self {
            Self::Cluster => ("ROLLHOOK_TEST_CLUSTER", "no cluster is lent (ROLLHOOK_TEST_CLUSTER)"),
            Self::Node => ("ROLLHOOK_TEST_NODE", "no node is lent (ROLLHOOK_TEST_NODE)"),
            Self::Postgres => ("ROLLHOOK_TEST_POSTGRES", "no PostgreSQL is lent (ROLLHOOK_TEST_POSTGRES)"),
            Self::Docker => ("ROLLHOOK_TEST_DOCKER", "no Docker is lent (ROLLHOOK_TEST_DOCKER)"),
        };
        std::env::var_os(variable).filter(|state| !state.is_empty()).map(PathBuf::from).ok_or(reason)
    }

    /// Returns the state directory of the lent bed. If there is none, the test is reported as skipped.
    pub fn lent_for(self, test: &str) -> Option<PathBuf> {
        self.lent().inspect_err(|reason| skip(test, reason)).ok()
    }
}

/// A file of the Kubernetes test beds.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/kubernetes/testbed").join(name)
}

/// Runs a script of a test bed on a state directory; it must succeed.
fn run_script(script: &Path, state: &Path, arguments: &[&str]) {
    let status = Command::new(script).arg(state).args(arguments).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{} {} {arguments:?}", script.display(), state.display());
}
