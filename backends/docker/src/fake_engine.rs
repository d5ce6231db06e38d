//! An engine for tests, which answers what it is told to.

use std::{path::PathBuf, sync::Arc};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
    sync::watch,
};

/// An engine that answers calls by a function of method and path; a call without an answer hangs.
pub(crate) struct FakeEngine {
    _directory: tempfile::TempDir,
    pub(crate) socket: PathBuf,
    /// The calls so far, each with method and path.
    pub(crate) calls: watch::Receiver<Vec<String>>,
}

impl FakeEngine {
    pub(crate) fn new(answer: impl Fn(&str) -> Option<Value> + Send + Sync + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let (made, calls) = watch::channel(Vec::new());
        let (made, answer) = (Arc::new(made), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (made, answer) = (made.clone(), answer.clone());
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    let call = String::from_utf8(head).unwrap();
                    let call = call.split(" HTTP/").next().unwrap().to_owned();
                    let given = answer(&call);
                    made.send_modify(|calls| calls.push(call));
                    let Some(given) = given else { return std::future::pending().await };
                    let body = given.to_string();
                    let status = if given.is_null() { "404 Not Found" } else { "200 OK" };
                    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
                    stream.write_all((head + &body).as_bytes()).await.unwrap();
                });
            }
        });
        Self { _directory: directory, socket, calls }
    }

    /// Returns the number of calls with this in their paths.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.calls.borrow().iter().filter(|call| call.contains(part)).count()
    }

    /// Waits for so many calls with this in their paths.
    pub(crate) async fn called(&self, part: &str, count: usize) {
        let called = |calls: &Vec<String>| calls.iter().filter(|call| call.contains(part)).count() >= count;
        self.calls.clone().wait_for(called).await.unwrap();
    }
}
