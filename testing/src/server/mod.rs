//! The `rollhook-server` binary as a process.

mod apps;
mod start;

pub use apps::{App, git_source, registration, registration_in};
pub use start::{Start, free_address};

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::PathBuf,
    process::{ChildStdout, ExitStatus},
    thread,
};

use crate::{
    client::Call,
    process::{self, Running},
    until,
};

/// A [`Start`] of the server: in tests of its package by the path that cargo gives to them, in others by that of
/// [`program`](crate::process::program).
#[macro_export]
macro_rules! server {
    () => {
        $crate::Start::new(match option_env!("CARGO_BIN_EXE_rollhook-server") {
            Some(path) => path.into(),
            None => $crate::process::program("rollhook-server", "rollhook-server"),
        })
    };
}

/// A running server; killed with SIGKILL, by its own process id, at the latest when it is dropped.
pub struct Server {
    /// The address on which it listens.
    pub address: SocketAddr,
    /// The admin token.
    pub admin: String,
    start: Start,
    process: Running,
    /// Kept open: a process that writes into a closed pipe ends.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    fn launch(start: Start) -> Self {
        let log = fs::File::options().create(true).append(true).open(start.log_file()).unwrap();
        let mut process = Running(start.server_command().stderr(log).spawn().unwrap());
        let mut stdout = BufReader::new(process.0.stdout.take().unwrap());
        let address = |line: String| line.strip_prefix("listening on http://")?.parse().ok();
        let Some(address) = stdout.by_ref().lines().map_while(Result::ok).find_map(address) else {
            panic!("the server does not start: {}", start.log())
        };
        let admin = fs::read_to_string(start.file("admin-token")).unwrap().trim().to_owned();
        Self { address, admin, start, process, _stdout: stdout }
    }

    /// The recipe of this server, to start another one in its directory.
    pub fn recipe(&self) -> Start {
        self.start.clone()
    }

    /// Kills the server as a power cut does, and returns its recipe: running that again finds what is left.
    pub fn kill(self) -> Start {
        self.recipe()
    }

    /// Kills the server, which stays away until [`Server::restart`].
    pub fn down(&mut self) {
        self.process.kill();
    }

    /// Kills the server and starts it again in its directory.
    pub fn restart(&mut self) {
        self.process.kill();
        *self = self.start.run();
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        process::signal(self.pid(), name);
    }

    /// Waits for the process to end by itself, and returns whether it succeeded.
    pub fn ended(&mut self) -> bool {
        self.exit_status().success()
    }

    /// Waits for the process to end by itself, and returns how it did.
    pub fn exit_status(&mut self) -> ExitStatus {
        until("the server ends", || self.process.0.try_wait().unwrap())
    }

    /// Everything that was logged so far, by every server of this recipe.
    pub fn log(&self) -> String {
        self.start.log()
    }

    /// A file of the server's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.start.file(name)
    }

    /// A call without credentials.
    pub fn call(&self, method: &str, path: &str) -> Call {
        Call::to(self.address, method, path)
    }

    /// A manager's call.
    pub fn manage(&self, method: &str, path: &str) -> Call {
        self.call(method, path).header("authorization", &format!("Bearer {}", self.admin))
    }

    /// The value that the server has counted for a series, given by its name and labels; 0 if there is none yet.
    pub fn counted(&self, series: &str) -> u64 {
        let text = self.call("GET", "/metrics").expect(200).text();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill();
        if thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(20_000);
            eprintln!("--- the end of the server's log\n{}", log.get(from..).unwrap_or(&log));
        }
    }
}
