//! A proxy that counts the calls of an API server by the measured servers.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Write as _,
    fs,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use serde_json::json;
use tokio::{net::TcpListener, task::AbortHandle};

use crate::Failure;

type Seen = Arc<Mutex<Calls>>;
type Answer = Response<Either<Body, Full<Bytes>>>;

/// The number of calls by method and resource.
#[derive(Clone, Default)]
pub(crate) struct Calls(BTreeMap<String, u64>);

impl Calls {
    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The number of calls of other resources than this one.
    pub(crate) fn but(&self, resource: &str) -> u64 {
        self.0.iter().filter(|(call, _)| !call.ends_with(resource)).map(|(_, count)| count).sum()
    }

    /// The calls with their numbers divided by this divisor.
    pub(crate) fn summary(&self, divisor: f64) -> String {
        self.0.iter().fold(String::new(), |mut text, (call, count)| {
            let comma = if text.is_empty() { "" } else { ", " };
            // Writing to a string does not fail.
            let _ = write!(text, "{comma}{call} {:.2}", *count as f64 / divisor);
            text
        })
    }
}

/// The proxy, which is stopped with this value.
pub(crate) struct ApiCounter {
    address: SocketAddr,
    seen: Seen,
    task: AbortHandle,
}

impl ApiCounter {
    /// Starts a proxy to the API server of this client, with the client's rights.
    pub(crate) async fn start(client: Client) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, seen) = (listener.local_addr()?, Seen::default());
        let task = tokio::spawn(accept(listener, client, Arc::clone(&seen))).abort_handle();
        Ok(Self { address, seen, task })
    }

    /// Writes a kubeconfig that leads to the proxy, with this namespace as the default.
    pub(crate) fn kubeconfig(&self, file: &Path, namespace: &str) -> Result<(), Failure> {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "counter", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "counter", "user": {}}],
            "contexts": [{"name": "counter", "context": {"cluster": "counter", "user": "counter", "namespace": namespace}}],
            "current-context": "counter",
        });
        Ok(fs::write(file, config.to_string())?)
    }

    /// Returns the calls since the last time.
    pub(crate) fn take(&self) -> Calls {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ApiCounter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, client: Client, seen: Seen) {
    while let Ok((stream, _)) = listener.accept().await {
        // Without this, small answers would wait for the acknowledgement of earlier ones.
        let _ = stream.set_nodelay(true);
        let (client, seen) = (client.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            let pass = service_fn(|request| pass_on(request, client.clone(), &seen));
            // An error means that the client has gone away.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), pass).await;
        });
    }
}

async fn pass_on(request: Request<Incoming>, client: Client, seen: &Seen) -> Result<Answer, Infallible> {
    let call = name(&request);
    *seen.lock().unwrap_or_else(PoisonError::into_inner).0.entry(call).or_default() += 1;
    let (head, body) = request.into_parts();
    let answer = match body.collect().await {
        Ok(body) => client.send(Request::from_parts(head, Body::from(body.to_bytes().to_vec()))).await.ok(),
        Err(_) => None,
    };
    Ok(answer.map_or_else(bad_gateway, |answer| answer.map(Either::Left)))
}

fn bad_gateway() -> Answer {
    let mut answer = Response::new(Either::Right(Full::new(Bytes::new())));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}

/// Names a call, such as `GET secrets` or `watch apps`, without the names of objects.
fn name(request: &Request<Incoming>) -> String {
    let watches = request.uri().query().is_some_and(|query| query.split('&').any(|part| part.starts_with("watch=")));
    let method = if watches { "watch" } else { request.method().as_str() };
    let mut parts = request.uri().path().trim_start_matches('/').split('/').skip_while(|part| *part != "v1").skip(1);
    let resource = match parts.next() {
        Some("namespaces") => match (parts.next(), parts.next()) {
            (Some(_), Some(resource)) => resource,
            _ => "namespaces",
        },
        Some(resource) => resource,
        None => "others",
    };
    let subresource = parts.nth(1).map(|name| format!("/{name}")).unwrap_or_default();
    format!("{method} {resource}{subresource}")
}
