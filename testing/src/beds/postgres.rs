//! PostgreSQL servers.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{Kind, run_script};

/// A server of the test bed.
#[derive(Debug)]
pub struct Postgres {
    /// The state directory.
    pub state: PathBuf,
    /// Present if the server is the test's own; it goes down when this is dropped, or with the test's process.
    own: Option<TempDir>,
}

impl Postgres {
    /// Returns the server that all tests share, or the reason why there is none.
    ///
    /// # Errors
    /// If none is lent.
    pub fn lent() -> Result<Self, &'static str> {
        Ok(Self { state: Kind::Postgres.lent()?, own: None })
    }

    /// Starts a server that a test may stop.
    ///
    /// # Errors
    /// If none is lent, which says whether the machine has PostgreSQL.
    pub fn own() -> Result<Self, &'static str> {
        Kind::Postgres.lent()?;
        let directory = tempfile::tempdir().unwrap();
        let server = Self { state: directory.path().to_owned(), own: Some(directory) };
        server.script("up.sh", &[&std::process::id().to_string()]);
        Ok(server)
    }

    /// Returns whether no other test uses the server, so that it may be stopped.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Acts on the server: `stop` is orderly and cuts calls off, `kill` is not orderly, `start` starts it again.
    pub fn control(&self, action: &str) {
        self.script("server.sh", &[action]);
    }

    /// Returns how to connect: `url`, or `pooler-url` if there is a pooler.
    pub fn url(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.state.join(name)).ok()?.trim().to_owned())
    }

    /// Runs a script of the test bed.
    pub fn script(&self, name: &str, arguments: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/postgres/testbed").join(name);
        run_script(&script, &self.state, arguments);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.own.is_some() {
            self.script("down.sh", &[]);
        }
    }
}
