//! A git host with a repository, and a reader of its branches.

#![allow(unreachable_pub, reason = "a test program's module")]

use std::{path::PathBuf, time::Duration};

use rollhook_conformance::samples;
use rollhook_core::source::{AllowedSources, GitSource};
use rollhook_git::{GitBranchReader, Settings};
use rollhook_testing::fixtures::{GitHost, GitRepository};

/// What a host that wants credentials wants to be sent: `ada:hunter2`.
pub const AUTHORIZATION: &str = "Basic YWRhOmh1bnRlcjI=";

/// Everything that a test of the reader needs; gone when it is dropped.
pub struct Bench {
    pub directory: tempfile::TempDir,
    pub host: GitHost,
    pub repository: GitRepository,
    pub settings: Settings,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(None)
    }

    /// With a host that wants this `Authorization`.
    pub fn with(authorization: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let host = GitHost::start_with(authorization);
        let repository = host.repository("api");
        let settings =
            Settings { sources: AllowedSources::all(), silence: Duration::from_secs(2), ..Settings::default() };
        Self { directory, host, repository, settings }
    }

    pub fn reader(&self) -> GitBranchReader {
        GitBranchReader::open(self.settings.clone()).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn source(&self) -> GitSource {
        GitSource { url: self.host.url("api").parse().unwrap(), ..samples::git_source() }
    }
}
