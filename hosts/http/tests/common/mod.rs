//! The real binary in a directory of its own, and the smallest client that can talk to it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "the real binary lives in real time")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};

/// A running server; killed when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub directory: tempfile::TempDir,
    pub admin: String,
    child: Child,
}

/// An app with its webhook enabled.
pub struct App {
    pub path: String,
    pub hook: String,
    pub token: String,
}

impl Server {
    /// On SQLite, with rollouts that take no time.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With further arguments.
    pub fn with(arguments: &[&str]) -> Self {
        Self::in_directory(tempfile::tempdir().unwrap(), arguments, &[])
    }

    /// With further arguments and environment variables, on what an earlier server left.
    pub fn in_directory(directory: tempfile::TempDir, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let path = |name: &str| directory.path().join(name).display().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rollhook-server"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ROLLHOOK_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        let log = fs::File::options().create(true).append(true).open(path("log")).unwrap();
        command
            .args(["--listen", "127.0.0.1:0", "--key-dir", &path("keys"), "--admin-token-file", &path("admin-token")])
            .env("ROLLHOOK_STORE", format!("sqlite:{}", path("rollhook.db")))
            .env("ROLLHOOK_DRIVER", "simulated:0ms")
            .args(arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").and_then(|address| address.parse().ok());
        let Some(address) = address else {
            panic!("the server did not start: {line:?} {}", fs::read_to_string(path("log")).unwrap())
        };
        let admin = fs::read_to_string(path("admin-token")).unwrap().trim().to_owned();
        Self { address, directory, admin, child }
    }

    /// A call without credentials.
    pub fn call(&self, method: &str, path: &str) -> Call {
        Call::to(self.address, method, path)
    }

    /// A manager's call.
    pub fn manage(&self, method: &str, path: &str) -> Call {
        self.call(method, path).header("authorization", &format!("Bearer {}", self.admin))
    }

    /// Registers `shop-test/{name}`, whose deploys need not settle, waits until it runs, and enables its webhook.
    pub fn app(&self, name: &str) -> App {
        self.app_with(name, json!({ "settle": "0s" }))
    }

    pub fn app_with(&self, name: &str, policy: Value) -> App {
        let create = json!({
            "project": "shop", "environment": "test", "app": name, "image": "r.example.com/api:v1", "policy": policy
        });
        self.manage("POST", "/api/v1/apps").json(&create).expect(201);
        let path = format!("/api/v1/apps/shop-test/{name}");
        let first = self.manage("GET", &format!("{path}/deploys/1")).header("prefer", "wait=20").expect(200).json();
        assert_eq!(first["status"], "succeeded");
        let webhook = self.manage("POST", &format!("{path}/webhook")).expect(200).json();
        let url = webhook["url"].as_str().unwrap();
        let hook = url.strip_prefix(&format!("http://{}", self.address)).unwrap().to_owned();
        App { path, hook, token: webhook["token"].as_str().unwrap().to_owned() }
    }

    /// CI's call.
    pub fn post(&self, app: &App, body: &Value) -> Call {
        self.call("POST", &app.hook).header("x-service-token", &app.token).json(body)
    }

    /// Everything that was logged so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.path().join("log")).unwrap()).into_owned()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Waits for the process to end by itself, and says whether it did so well.
    pub fn ended(&mut self, within: Duration) -> bool {
        let end = Instant::now() + within;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the server has not ended: {}", self.log())
    }

    /// Kills it; what it stored is left.
    pub fn stop(mut self) -> tempfile::TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- the server's log\n{}", self.log());
        }
    }
}

/// A call that is being put together.
#[derive(Clone)]
pub struct Call {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Call {
    /// A call without credentials.
    pub fn to(address: SocketAddr, method: &str, path: &str) -> Self {
        Self { address, method: method.into(), path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub fn header(self, name: &str, value: &str) -> Self {
        self.raw_header(name, value.as_bytes())
    }

    pub fn raw_header(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string().as_bytes())
    }

    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_owned();
        self
    }

    /// Signs the body as GitHub does.
    pub fn sign(self, token: &str) -> Self {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(token.as_bytes()).unwrap();
        mac.update(&self.body);
        let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        self.header("x-hub-signature-256", &format!("sha256={hex}"))
    }

    /// The bytes of the call's head, for a body of this length.
    pub fn head(&self, length: usize) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {}\r\n", self.method, self.path, self.address).into_bytes();
        for (name, value) in &self.headers {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
        if length > 0 || self.method != "GET" {
            head.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
        }
        head.extend_from_slice(b"connection: close\r\n\r\n");
        head
    }

    /// Sends the call and leaves the answer to be read.
    pub fn open(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(70))).unwrap();
        let mut bytes = self.head(self.body.len());
        bytes.extend_from_slice(&self.body);
        stream.write_all(&bytes).unwrap();
        stream
    }

    pub fn send(&self) -> Reply {
        Reply::read(self.open())
    }

    pub fn expect(&self, status: u16) -> Reply {
        let reply = self.send();
        assert_eq!(reply.status, status, "{} {}: {}", self.method, self.path, reply.text());
        reply
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    /// Reads until the server closes.
    pub fn read(mut stream: impl Read) -> Self {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        Self::parse(&bytes).unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&bytes)))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        if status == 100 {
            return Self::parse(&bytes[end + 4..]);
        }
        let headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        Some(Self { status, headers, body: bytes[end + 4..].to_owned() })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The problem's type without what stands before it.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body = self.json();
        assert_eq!(body["status"], self.status);
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"));
        body["type"].as_str().unwrap().strip_prefix("/problems/").unwrap().to_owned()
    }
}

/// A stream's events until it ends: each one's id and data.
pub fn events(stream: TcpStream) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    let mut id = String::new();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if let Some(given) = line.strip_prefix("id: ") {
            id = given.to_owned();
        } else if let Some(data) = line.strip_prefix("data: ") {
            events.push((id.clone(), serde_json::from_str(data).unwrap()));
        }
    }
    events
}

/// Asks again and again until it is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Reports a test that cannot run here.
pub fn skip(test: &str, reason: &str) {
    println!("SKIPPED {test}: {reason}");
    if let Some(file) = std::env::var_os("ROLLHOOK_SKIPS") {
        let mut file = fs::File::options().create(true).append(true).open(file).unwrap();
        writeln!(file, "SKIPPED {test}: {reason}").unwrap();
    }
}

/// A webhook call's body.
pub fn image(tag: &str) -> Value {
    json!({ "image": format!("r.example.com/api:{tag}"), "commit": tag })
}
