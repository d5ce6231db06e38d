//! The HTTP client: small enough to send what no library would.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;

/// The time that an answer may take: longer than a waiting call waits.
const PATIENCE: Duration = Duration::from_secs(70);

/// A call that is being put together.
#[derive(Clone, Debug)]
pub struct Call {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Call {
    /// A call without credentials.
    #[must_use]
    pub fn to(address: SocketAddr, method: &str, path: &str) -> Self {
        Self { address, method: method.into(), path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(self, name: &str, value: &str) -> Self {
        self.raw_header(name, value.as_bytes())
    }

    /// Adds a header whose value need not be text.
    #[must_use]
    pub fn raw_header(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body to a document.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string().as_bytes())
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_owned();
        self
    }

    /// Signs the body as GitHub does.
    ///
    /// # Panics
    /// Never: a key may have any length.
    #[must_use]
    pub fn sign(self, token: &str) -> Self {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(token.as_bytes()).unwrap();
        mac.update(&self.body);
        let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        self.header("x-hub-signature-256", &format!("sha256={hex}"))
    }

    /// Returns the bytes of the call's head, for a body of this length, after which the connection is to be closed.
    #[must_use]
    pub fn head(&self, length: usize) -> Vec<u8> {
        self.head_with(length, "connection: close\r\n")
    }

    fn head_with(&self, length: usize, connection: &str) -> Vec<u8> {
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
        head.extend_from_slice(connection.as_bytes());
        head.extend_from_slice(b"\r\n");
        head
    }

    /// Sends the call and leaves the answer to be read.
    ///
    /// # Panics
    /// If nothing listens.
    #[must_use]
    pub fn open(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&[self.head(self.body.len()), self.body.clone()].concat()).unwrap();
        stream
    }

    /// Sends the call on a connection of its own, and reads the answer.
    #[must_use]
    pub fn send(&self) -> Reply {
        Reply::read(self.open())
    }

    /// Sends the call, which must be answered with this status.
    ///
    /// # Panics
    /// If the status is another one.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Reply {
        let reply = self.send();
        assert_eq!(reply.status, status, "{} {}: {}", self.method, self.path, reply.text());
        reply
    }

    /// Does what a CI job does with a call that has an idempotency key: repeats it until the deploy has ended.
    ///
    /// # Panics
    /// If the deploy does not end.
    #[must_use]
    pub fn repeat(self) -> Reply {
        let call = self.header("prefer", "wait=50");
        let ended = (0..6).map(|_| call.send()).find(|reply| reply.status != 202);
        ended.unwrap_or_else(|| panic!("the deploy does not end"))
    }
}

/// A connection that is kept for many calls.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// If nothing listens.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Self::open_for(address, PATIENCE)
    }

    /// Connects; no answer may take longer than this.
    ///
    /// # Errors
    /// If nothing listens.
    pub fn open_for(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a call and reads the answer.
    ///
    /// # Errors
    /// If the connection breaks or the answer is late: the call may have had its effect or not.
    pub fn send(&mut self, call: &Call) -> io::Result<Reply> {
        let head = call.head_with(call.body.len(), "");
        self.0.get_mut().write_all(&[head, call.body.clone()].concat())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if self.0.read_until(b'\n', &mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let mut reply = Reply::parse(&head).ok_or(io::ErrorKind::InvalidData)?;
        reply.body.resize(reply.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0), 0);
        self.0.read_exact(&mut reply.body)?;
        Ok(reply)
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The headers, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// Reads until the server closes the connection.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
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

    /// Returns the body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as a document.
    ///
    /// # Panics
    /// If the body is no JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    /// Returns a header's value by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the slug of the problem's type, after checking what every problem has.
    ///
    /// # Panics
    /// If the answer is no problem.
    #[must_use]
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body = self.json();
        assert_eq!(body["status"], self.status);
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"));
        body["type"].as_str().unwrap().strip_prefix("/problems/").unwrap().to_owned()
    }
}

/// Reads server-sent events until the stream ends: each one's id and data.
///
/// # Panics
/// If an event's data is no JSON.
#[must_use]
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
