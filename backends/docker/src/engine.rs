//! The engine's API: HTTP on its socket, with objects as the JSON that they are.
//!
//! A container is not read into a type: the next one is made from what the engine tells of it, and what a type does not
//! know would be lost. Lists, and what is read of all images and containers, are: makers of images write labels as long as
//! they like, which are skipped while the answer arrives. Paths carry no version, so that reading and writing are of the
//! same one.

mod typed;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    body::{Body, Incoming},
    client::conn::http1::{Connection, SendRequest},
};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use rollhook_core::text::json_values;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::error::{Failure, shortened};

/// The largest answer that is read as it is, such as a part of a log.
const ANSWER_MAX: usize = 32 * 1024 * 1024;
/// The largest answer that is read as JSON, and kept.
const OBJECT_MAX: usize = 2 * 1024 * 1024;
/// The most values in it: each takes many times its two or three bytes in memory.
const OBJECT_VALUES_MAX: usize = 20_000;
/// The same of a container, which has what its image says, and the variables and labels that it was given beside that.
const CONTAINER_MAX: usize = 10 * 1024 * 1024;
const CONTAINER_VALUES_MAX: usize = 30_000;
/// The same of what is read without a slot: what inspecting an image or a container tells as a rule.
const USUAL_MAX: usize = 64 * 1024;
const USUAL_VALUES_MAX: usize = 4_000;
/// The largest refusal that is read.
const REFUSAL_MAX: usize = 1024 * 1024;
/// Characters that are escaped in a path; a slash of a name stays.
const IN_PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'?').add(b'#').add(b'%');

/// The engine of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    socket: PathBuf,
    /// The number of times that it could not be reached, or broke off.
    outages: Arc<AtomicU64>,
    /// Whether the caller holds a slot for objects that are larger than usual.
    reads_large: bool,
}

/// The outcome of a call.
pub(crate) type Called<T = Value> = Result<T, Failure>;

impl Engine {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket, outages: Arc::default(), reads_large: false }
    }

    /// Returns the engine for calls that hold a slot for objects that are larger than usual.
    pub(crate) fn reading_large(&self) -> Self {
        Self { reads_large: true, ..self.clone() }
    }

    /// Returns a number that has changed if the engine may have ended in between.
    pub(crate) fn outages(&self) -> u64 {
        self.outages.load(Ordering::Acquire)
    }

    /// Notes that the engine may have ended.
    pub(crate) fn broke_off(&self) {
        self.outages.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) async fn get(&self, path: &str) -> Called {
        self.call(Method::GET, path, None).await
    }

    /// Reads an object; `None` if there is none.
    pub(crate) async fn find(&self, path: &str) -> Called<Option<Value>> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(crate) async fn post(&self, path: &str, body: Option<&Value>) -> Called {
        self.call(Method::POST, path, body).await
    }

    /// Removes an object, which may be gone already.
    pub(crate) async fn delete(&self, path: &str) -> Called<()> {
        match self.call(Method::DELETE, path, None).await {
            Err(failure) if !failure.is_not_found() => Err(failure),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Called {
        let answer = self.open(method, path, body, None).await?;
        let what = What::of(path);
        let (bytes_max, values_max) = what.bounds(self.reads_large);
        let too_large = || what.too_large(self.reads_large);
        let is_longer = |failure: &Failure| matches!(failure, Failure::Broken(error) if error.is::<LengthLimitError>());
        let bytes = read(answer, bytes_max).await;
        let bytes = bytes.map_err(|failure| if is_longer(&failure) { too_large() } else { failure })?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        if json_values(&bytes) > values_max {
            return Err(too_large());
        }
        serde_json::from_slice(&bytes).map_err(Failure::Unreadable)
    }

    /// Calls, and returns the answer as it is.
    pub(crate) async fn bytes(&self, method: Method, path: &str, body: Option<&Value>) -> Called<Bytes> {
        let answer = self.open(method, path, body, None).await?;
        read(answer, ANSWER_MAX).await
    }

    /// Calls, and returns the answer before its body was read. `login` is the value of `X-Registry-Auth`.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        login: Option<&str>,
    ) -> Called<Response<Incoming>> {
        let broken = |error: hyper::Error| {
            self.broke_off();
            Failure::Broken(error.into())
        };
        let (mut sender, connection) = self.dial().await?;
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "docker");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(login) = login {
            request = request.header("x-registry-auth", login);
        }
        let bytes = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(bytes))).map_err(|error| Failure::Broken(error.into()))?;
        Self::accepted(sender.send_request(request).await.map_err(broken)?).await
    }

    /// Opens a connection, which the caller drives.
    pub(crate) async fn dial<B>(&self) -> Called<(SendRequest<B>, Connection<TokioIo<UnixStream>, B>)>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let stream = UnixStream::connect(&self.socket).await.map_err(|source| {
            self.broke_off();
            Failure::Connect { socket: self.socket.clone(), source }
        })?;
        let dialled = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        dialled.map_err(|error| Failure::Broken(error.into()))
    }

    /// Returns the answer, unless it is a refusal.
    pub(crate) async fn accepted(answer: Response<Incoming>) -> Called<Response<Incoming>> {
        let status = answer.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(answer);
        }
        let bytes = read(answer, REFUSAL_MAX).await?;
        let told: Option<Refusal> = serde_json::from_slice(&bytes).ok();
        let message = told.map(|told| told.message);
        let message = message.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
        Err(Failure::Status { status, message: shortened(&message) })
    }
}

async fn read(answer: Response<Incoming>, most: usize) -> Called<Bytes> {
    let body = Limited::new(answer.into_body(), most).collect().await.map_err(Failure::Broken)?;
    Ok(body.to_bytes())
}

/// The engine's refusal.
#[derive(Deserialize)]
struct Refusal {
    message: String,
}

/// The thing that an answer tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Image,
    Container,
    Other,
}

impl What {
    fn of(path: &str) -> Self {
        let is_inspection = path.ends_with("/json");
        match path {
            path if is_inspection && path.starts_with("/images/") => Self::Image,
            path if is_inspection && path.starts_with("/containers/") => Self::Container,
            _ => Self::Other,
        }
    }

    /// The most bytes of the answer, and the most values.
    const fn bounds(self, reads_large: bool) -> (usize, usize) {
        match self {
            Self::Image | Self::Container if !reads_large => (USUAL_MAX, USUAL_VALUES_MAX),
            Self::Container => (CONTAINER_MAX, CONTAINER_VALUES_MAX),
            Self::Image | Self::Other => (OBJECT_MAX, OBJECT_VALUES_MAX),
        }
    }

    const fn too_large(self, reads_large: bool) -> Failure {
        Failure::TooLarge(match self {
            Self::Image | Self::Container if !reads_large => return Failure::Large,
            Self::Image => {
                "the image's configuration is larger than 2 MiB, or has more than 20,000 values: shorten its labels and variables"
            }
            Self::Container => {
                "the container's configuration is larger than 10 MiB, or has more than 30,000 values: make it anew with fewer or \
                 shorter labels and variables"
            }
            Self::Other => "the engine's answer is larger than 2 MiB, or has more than 20,000 values",
        })
    }
}

/// A part of a path, such as the name of an image.
pub(crate) fn in_path(part: &str) -> String {
    utf8_percent_encode(part, IN_PATH).to_string()
}

/// A value of a query.
pub(crate) fn in_query(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}

/// The parameter that narrows a list.
pub(crate) fn filters(filters: &[(&str, &[String])]) -> String {
    let object: serde_json::Map<String, Value> =
        filters.iter().map(|(name, values)| ((*name).to_owned(), json!(values))).collect();
    format!("filters={}", in_query(&Value::Object(object).to_string()))
}

#[cfg(test)]
mod tests;
