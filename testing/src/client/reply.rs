//! Answers.

use std::{
    io::{BufRead, BufReader, Read},
    net::TcpStream,
};

use serde_json::Value;

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
    pub fn read(mut stream: impl Read) -> Self {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        Self::parse(&bytes).unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&bytes)))
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
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
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as a document.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    /// Returns a header's value by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the slug of the problem's type, after checking what every problem has.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body = self.json();
        assert_eq!(body["status"], self.status);
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"));
        body["type"].as_str().unwrap().strip_prefix("/problems/").unwrap().to_owned()
    }
}

/// Reads server-sent events until the stream ends: each one's id and data.
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
