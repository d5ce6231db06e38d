//! The real helm on the repository's chart.

use std::{
    env,
    ffi::OsString,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use rollhook_testing::{beds::Kubectl, documents::root, process::tool};

/// The chart.
pub(crate) fn chart() -> PathBuf {
    root().join("packaging/helm/rollhook")
}

/// helm on one cluster.
pub(crate) struct Helm {
    program: PathBuf,
    state: PathBuf,
}

impl Helm {
    /// Without helm the test is reported as skipped.
    pub(crate) fn on(kubectl: &Kubectl, test: &str) -> Option<Self> {
        let program = tool("bin/helm", test)?;
        Some(Self { program, state: kubectl.state.clone() })
    }

    /// The PATH of programs that call helm.
    pub(crate) fn path(&self) -> OsString {
        let inherited = env::var_os("PATH").unwrap_or_default();
        let own = self.program.parent().map(PathBuf::from);
        env::join_paths(own.into_iter().chain(env::split_paths(&inherited))).unwrap()
    }

    /// A helm command; its own files are beside the cluster's.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KUBECONFIG", self.state.join("kubeconfig")).stdin(Stdio::null());
        for place in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(place, self.state.join(place));
        }
        command
    }

    /// Returns what a command prints; it must succeed.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        assert!(status.success(), "helm {arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// Returns what a command says when it fails, which it must.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        assert!(!status.success(), "helm {arguments:?}");
        String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned()
    }
}
