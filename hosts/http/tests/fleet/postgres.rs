//! A PostgreSQL that nobody else uses.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::bed::lacks;

/// A running server; it goes down when this is dropped, or with the test's process.
pub struct Postgres {
    /// How to connect to it.
    pub url: String,
    /// The state directory of its scripts.
    state: tempfile::TempDir,
}

impl Postgres {
    /// Starts one; none where the machine is not said to have PostgreSQL, which is said.
    pub fn up(test: &str) -> Option<Self> {
        if env::var_os("ROLLHOOK_TEST_POSTGRES").is_none_or(|lent| lent.is_empty()) {
            lacks(test, "no PostgreSQL is lent (ROLLHOOK_TEST_POSTGRES)");
            return None;
        }
        let state = tempfile::tempdir().unwrap();
        let mut up = Command::new(script("up.sh"));
        let output = up.arg(state.path()).arg(std::process::id().to_string()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Some(Self { url: String::from_utf8(output.stdout).unwrap().trim().to_owned(), state })
    }

    /// `stop` is orderly and cuts calls off, `kill` is without any farewell; `start` starts it again.
    pub fn server(&self, what: &str) {
        let done = Command::new(script("server.sh")).arg(self.state.path()).arg(what).stdout(Stdio::null()).status();
        assert!(done.unwrap().success(), "server.sh {what}");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = Command::new(script("down.sh")).arg(self.state.path()).status();
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../backends/postgres/testbed").join(name)
}
