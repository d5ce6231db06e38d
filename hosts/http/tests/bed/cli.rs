//! The command line tool, which is another package's program: it lies beside the server once it was built.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Bed, lacks};

/// The `rollhook` command as a person runs it against the test's server.
pub struct Cli<'a> {
    bed: &'a Bed,
    program: PathBuf,
}

impl<'a> Cli<'a> {
    /// On the bed's project and environment; none where the tool was not built, which is said.
    pub fn of(bed: &'a Bed, test: &str) -> Option<Self> {
        let program = Path::new(env!("CARGO_BIN_EXE_rollhook-server")).with_file_name("rollhook");
        if program.exists() {
            return Some(Self { bed, program });
        }
        lacks(test, "the command line tool is not built (cargo build -p rollhook-cli)");
        None
    }

    /// What a command prints; it must succeed.
    pub fn run(&self, words: &str) -> String {
        let output = Command::new(&self.program)
            .args(words.split_whitespace())
            .env_clear()
            .env("HOME", self.bed.server().directory.path())
            .env("USER", "ada")
            .env("ROLLHOOK_SERVER", format!("http://{}", self.bed.server().address))
            .env("ROLLHOOK_TOKEN", &self.bed.server().admin)
            .env("ROLLHOOK_PROJECT", &self.bed.project)
            .env("ROLLHOOK_ENVIRONMENT", &self.bed.environment)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "rollhook {words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}
