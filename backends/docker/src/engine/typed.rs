//! Answers that are read into types while they arrive: what the type does not name costs no memory.

use std::io::{self, BufReader, Read};

use bytes::{Buf, Bytes};
use http::{Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::{Called, Engine};
use crate::error::Failure;

/// The most bytes of an answer; what is kept of it is what the type names.
const TYPED_MAX: usize = 1024 * 1024 * 1024;
/// The parts of an answer that arrived and are not read yet.
const PARTS: usize = 4;

impl Engine {
    /// Reads an answer into a type.
    pub(crate) async fn typed<T: DeserializeOwned + Send + 'static>(&self, path: &str) -> Called<T> {
        let answer = self.open(Method::GET, path, None, None).await?;
        let (parts, received) = mpsc::channel(PARTS);
        let read = tokio::task::spawn_blocking(move || {
            serde_json::from_reader(BufReader::new(Received { parts: received, part: Bytes::new() }))
        });
        let sent = send(answer, parts).await;
        let read = read.await.map_err(|ended| Failure::Broken(ended.into()))?;
        // Of an answer that broke off, what arrived is no JSON.
        sent?;
        read.map_err(Failure::Unreadable)
    }

    /// Reads an object into a type; `None` if there is none.
    pub(crate) async fn find_typed<T: DeserializeOwned + Send + 'static>(&self, path: &str) -> Called<Option<T>> {
        match self.typed(path).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

/// Sends the parts of an answer as they arrive, until its end, or until nothing reads them any more.
async fn send(answer: Response<Incoming>, parts: mpsc::Sender<Bytes>) -> Called<()> {
    let (mut body, mut left) = (answer.into_body(), TYPED_MAX);
    while let Some(frame) = body.frame().await {
        let Ok(part) = frame.map_err(|error| Failure::Broken(error.into()))?.into_data() else { continue };
        left = left.checked_sub(part.len()).ok_or(Failure::TooLarge("the engine's answer is larger than 1 GiB"))?;
        if parts.send(part).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The parts of an answer, as a thread reads them that may wait.
struct Received {
    parts: mpsc::Receiver<Bytes>,
    part: Bytes,
}

impl Read for Received {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.parts.blocking_recv() {
                Some(part) => self.part = part,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.part.len());
        self.part.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}
