//! The program as people run it: a process of its own, in a home of its own.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

/// A home directory, and with it the default store and keys.
pub struct Home {
    directory: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

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

impl Home {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    /// The same home, with another variable in each command's environment.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// `rollhook` with these words, of an app of project shop, environment test.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rollhook"));
        command
            .args(words.split_whitespace())
            .env_clear()
            .env("HOME", self.path())
            .env("USER", "ada")
            .env("ROLLHOOK_PROJECT", "shop")
            .env("ROLLHOOK_ENVIRONMENT", "test")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &str) -> Ended {
        self.command(words).output().unwrap().into()
    }

    /// With the simulated driver taking no time, which is as good as any for most tests.
    pub fn fast() -> Self {
        Self::new().with("ROLLHOOK_DRIVER", "simulated:10ms")
    }

    /// An app of three good revisions.
    pub fn with_history(self) -> Self {
        self.run("app create api --image r.example.com/api:one --settle 0s").ok();
        self.run("app deploy api --image r.example.com/api:two --commit two").ok();
        self.run("app deploy api --image r.example.com/api:three --commit three").ok();
        self
    }
}
