//! The `rollhook` binary as people run it: a process of its own, in a home of its own.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
};

use tempfile::TempDir;

/// A [`Cli`](crate::Cli) of the command line of the surrounding package.
#[macro_export]
macro_rules! cli {
    () => {
        $crate::Cli::new(env!("CARGO_BIN_EXE_rollhook"))
    };
}

/// The command line in a home directory, with a store there and the default keys.
#[derive(Clone, Debug)]
pub struct Cli {
    program: PathBuf,
    home: Arc<TempDir>,
    variables: Vec<(String, String)>,
}

impl Cli {
    /// This program in a new home, for apps of project `shop`, environment `test`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", home.path().join("rollhook.db").display());
        let cli = Self { program: program.into(), home: Arc::new(home), variables: Vec::new() };
        cli.with("ROLLHOOK_STORE", &store)
            .with("USER", "ada")
            .with("ROLLHOOK_PROJECT", "shop")
            .with("ROLLHOOK_ENVIRONMENT", "test")
    }

    /// The same home, with another variable in each command's environment.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The simulated driver takes no time.
    pub fn fast(self) -> Self {
        self.with("ROLLHOOK_DRIVER", "simulated:10ms")
    }

    /// An app of three good revisions.
    pub fn with_history(self) -> Self {
        self.run("app create api --image r.example.com/api:one --settle 0s --patience 10s").ok();
        self.run("app deploy api --image r.example.com/api:two --commit two").ok();
        self.run("app deploy api --image r.example.com/api:three --commit three").ok();
        self
    }

    /// The home directory.
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// `rollhook` with these words.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words.split_whitespace()).env_clear().env("HOME", self.path()).stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs `rollhook` with these words.
    pub fn run(&self, words: &str) -> Ended {
        self.command(words).output().unwrap().into()
    }
}

/// The end of a command.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ended {
    /// Checks that the command succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits(0)
    }

    /// Checks the exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Returns standard output as a document.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
