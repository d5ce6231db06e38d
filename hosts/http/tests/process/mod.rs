//! The real binary as something that is killed and started again, and clients that outlive it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "the real binary lives in real time")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
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
    log: PathBuf,
    child: Child,
    /// Open for as long as it lives: whatever writes into a closed pipe ends.
    stdout: Option<ChildStdout>,
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
        without_settings(&mut command);
        command
            .args(["--listen", &self.address.to_string(), "--driver", self.driver, "--rate-limit", "off"])
            .args(["--store", &format!("sqlite:{}", path("rollhook.db"))])
            .args(["--key-dir", &path("keys"), "--admin-token-file", &path("admin-token")]);
        Process::start(command, self.address, self.directory, "log")
    }
}

/// Takes away what the runner's environment would have the server do.
pub fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ROLLHOOK_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
}

impl Process {
    /// Starts a command that becomes a server on this address, and waits until it says that it listens. What it keeps
    /// lies in the directory, and its log there under this name.
    pub fn start(mut command: Command, address: SocketAddr, directory: &Path, log: &str) -> Self {
        let log = directory.join(log);
        let stderr = fs::File::options().create(true).append(true).open(&log).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let child = command.spawn().unwrap();
        // Killed from here on, whatever fails.
        let mut process = Self { address, directory: directory.to_owned(), log, child, stdout: None };
        let mut stdout = BufReader::new(process.child.stdout.take().unwrap());
        let listening = format!("listening on http://{address}");
        let said = stdout.by_ref().lines().map_while(Result::ok).any(|line| line == listening);
        assert!(said, "it does not start: {}", process.log());
        process.stdout = Some(stdout.into_inner());
        process
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a power cut does, with nothing put in order.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends it a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Everything that was logged so far, by every server in this directory.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap()).into_owned()
    }

    /// What a manager's calls are authorized by.
    pub fn admin(&self) -> String {
        format!("Bearer {}", fs::read_to_string(self.directory.join("admin-token")).unwrap().trim())
    }

    /// Registers `shop-test/{name}`, whose deploys need not settle, and enables its webhook.
    pub fn app(&self, name: &str) -> App {
        let admin = self.admin();
        let mut connection = Connection::open(self.address).unwrap();
        let mut manage = |method, path: &str, body: &str, status| {
            let headers = [("authorization", admin.as_str()), ("prefer", "wait=50")];
            let answer = connection.call(method, path, &headers, body).unwrap();
            assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
            answer.body
        };
        let create = json!({
            "project": "shop", "environment": "test", "app": name, "image": "r.example.com/api:first",
            "policy": { "settle": "0s" }
        });
        manage("POST", "/api/v1/apps", &create.to_string(), 201);
        let path = format!("/api/v1/apps/shop-test/{name}");
        assert_eq!(manage("GET", &format!("{path}/deploys/1"), "", 200)["status"], "succeeded");
        let webhook = manage("POST", &format!("{path}/webhook"), "", 200);
        App {
            name: name.to_owned(),
            hook: format!("/api/v1/webhook/shop-test/{name}"),
            token: webhook["token"].as_str().unwrap().to_owned(),
            path,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(20_000);
            eprintln!("--- the end of the server's log\n{}", log.get(from..).unwrap_or(&log));
        }
    }
}

/// Sends a process a signal, such as `STOP`.
pub fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

/// An app with its webhook enabled.
pub struct App {
    pub name: String,
    pub path: String,
    pub hook: String,
    pub token: String,
}

/// A connection that is kept for many calls.
pub struct Connection(BufReader<TcpStream>);

/// An answer; its body is null where there is none.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub replayed: bool,
    pub body: Value,
}

impl Connection {
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Self::open_for(address, Duration::from_secs(70))
    }

    /// A connection on which no answer takes longer than this.
    pub fn open_for(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Calls, and reads the answer; any error means that it is not known what came of the call.
    pub fn call(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> io::Result<Answer> {
        let mut call = format!("{method} {path} HTTP/1.1\r\nhost: rollhook\r\ncontent-type: application/json\r\n");
        for (name, value) in headers {
            call.push_str(&format!("{name}: {value}\r\n"));
        }
        call.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        self.0.get_mut().write_all(call.as_bytes())?;
        let status = self.line()?.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(Self::broken())?;
        let (mut length, mut replayed) = (0, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse().map_err(|_| Self::broken())?,
                Some(("idempotent-replayed", _)) => replayed = true,
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(Answer { status, replayed, body: serde_json::from_slice(&body).unwrap_or_default() })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(Self::broken());
        }
        Ok(line.trim_end().to_owned())
    }

    fn broken() -> io::Error {
        io::ErrorKind::UnexpectedEof.into()
    }
}

/// An address that is still free after a restart: below the ports that the kernel hands out, so that no other test is
/// given it meanwhile.
pub fn address() -> SocketAddr {
    const FIRST: u16 = 20_000;
    const PORTS: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = u16::try_from(std::process::id() * 131 % u32::from(PORTS)).unwrap();
    (0..PORTS)
        .map(|_| FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS) % PORTS)
        .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
        .find(|address| TcpListener::bind(address).is_ok())
        .unwrap()
}

/// A Python program that has said that it is ready, and ends when its standard input is closed: another process, to be
/// in the server's way.
pub struct Other {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Other {
    /// None where there is no Python.
    pub fn run(program: &str, arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", program]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let stdin = child.stdin.take();
        let mut other = Self { child, stdin };
        let mut line = String::new();
        BufReader::new(other.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(other)
    }

    /// Tells it to end, and waits until it has.
    pub fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
