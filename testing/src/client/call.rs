//! Calls.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;

use super::{PATIENCE, Reply};

/// A call that is being put together.
#[derive(Clone, Debug)]
pub struct Call {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

impl Call {
    /// A call without credentials.
    pub fn to(address: SocketAddr, method: &str, path: &str) -> Self {
        Self { address, method: method.into(), path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a header.
    pub fn header(self, name: &str, value: &str) -> Self {
        self.raw_header(name, value.as_bytes())
    }

    /// Adds a header whose value need not be text.
    pub fn raw_header(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body to a document.
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string().as_bytes())
    }

    /// Sets the body.
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

    /// Returns the bytes of the call's head, for a body of this length, after which the connection is to be closed.
    pub fn head(&self, length: usize) -> Vec<u8> {
        self.head_with(length, "connection: close\r\n")
    }

    pub(super) fn head_with(&self, length: usize, connection: &str) -> Vec<u8> {
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
    pub fn open(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&[self.head(self.body.len()), self.body.clone()].concat()).unwrap();
        stream
    }

    /// Sends the call on a connection of its own, and reads the answer.
    pub fn send(&self) -> Reply {
        Reply::read(self.open())
    }

    /// Sends the call, which must be answered with this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Reply {
        let reply = self.send();
        assert_eq!(reply.status, status, "{} {}: {}", self.method, self.path, reply.text());
        reply
    }

    /// Does what a CI job does with a call that has an idempotency key: repeats it until the deploy has ended.
    pub fn repeat(self) -> Reply {
        let call = self.header("prefer", "wait=50");
        let ended = (0..6).map(|_| call.send()).find(|reply| reply.status != 202);
        ended.unwrap_or_else(|| panic!("the deploy does not end"))
    }
}
