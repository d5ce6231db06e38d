//! A cluster that nobody else uses, for a test that takes parts of it away.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use super::{lent, script};

/// A cluster of simulated nodes; it goes down when it is dropped.
pub struct OwnCluster {
    /// Its state directory.
    pub state: PathBuf,
}

impl OwnCluster {
    /// Brings one up beside the lent one; none where none is lent, which is said.
    pub fn up(test: &str) -> Option<Self> {
        let name = format!("cluster-{}.{}", test.replace("::", "-"), std::process::id());
        let own = Self { state: lent("ROLLHOOK_TEST_CLUSTER", test)?.with_file_name(name) };
        let up = Command::new(script("cluster/up.sh")).arg(&own.state).stdout(Stdio::null()).status().unwrap();
        assert!(up.success(), "{} did not come up", own.state.display());
        Some(own)
    }

    /// Does something to one of its processes, as `service.sh` has it.
    pub fn service(&self, name: &str, what: &str) {
        let done = Command::new(script("service.sh")).arg(&self.state).args([name, what]).status().unwrap();
        assert!(done.success(), "service.sh {name} {what}");
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        let _ = Command::new(script("cluster/down.sh")).arg(&self.state).status();
    }
}
