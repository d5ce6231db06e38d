//! The real binary as something that is killed and started again, and clients that outlive it.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "the real binary lives in real time")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// How a server is started.
pub struct Start<'a> {
    /// Everything that it keeps lies here.
    pub directory: &'a Path,
    pub address: SocketAddr,
    pub driver: &'a str,
    /// A program and its arguments that the server is started by; it must become the server, so that its process id is
    /// the server's.
    pub by: &'a [&'a str],
}

/// A running server; killed with SIGKILL, by its own process id, at the latest when it is dropped.
pub struct Process {
    pub address: SocketAddr,
    directory: PathBuf,
    child: Child,
}

impl Start<'_> {
    pub fn run(&self) -> Process {
        let path = |name: &str| self.directory.join(name).display().to_string();
        let server = env!("CARGO_BIN_EXE_rollhook-server");
        let mut command = match self.by {
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(server);
                command
            }
            [] => Command::new(server),
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ROLLHOOK_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        let log = fs::File::options().create(true).append(true).open(path("log")).unwrap();
        command
            .args(["--listen", &self.address.to_string(), "--driver", self.driver, "--rate-limit", "off"])
            .args(["--store", &format!("sqlite:{}", path("rollhook.db"))])
            .args(["--key-dir", &path("keys"), "--admin-token-file", &path("admin-token")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").and_then(|address| address.parse().ok());
        // The child is in a `Process` before anything can fail, so that it is killed then too.
        let process = Process { address: self.address, directory: self.directory.to_owned(), child };
        let Some(address) = address else { panic!("the server did not start: {line:?} {}", process.log()) };
        Process { address, ..process.moved() }
    }
}

impl Process {
    fn moved(self) -> Moved {
        Moved
    }
}
