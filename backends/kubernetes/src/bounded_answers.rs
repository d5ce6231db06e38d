//! Answers of the API server that are read whole, up to a number of bytes: whoever writes in a namespace of apps decides
//! how large its objects are.

use std::{fmt, time::Duration};

use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use rollhook_core::slots::Slots;
use tower::BoxError;

/// The deadline of one answer. A server that stops in the middle of one must not keep the turn of others.
const DEADLINE: Duration = Duration::from_secs(9);

/// An answer that is longer than is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    /// The number of bytes that are read.
    pub(crate) most: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the answer is longer than {} KiB, and is not read", self.most >> 10)
    }
}

impl std::error::Error for TooLong {}

/// Whether a call failed because its answer is longer than is read.
pub(crate) fn too_long(error: &kube::Error) -> Option<TooLong> {
    let kube::Error::Service(error) = error else { return None };
    error.downcast_ref().copied()
}

/// The client, with answers of at most so many bytes, which are read in these turns of the namespaces. Watches are not
/// bounded: they are read line by line, and a line has one object.
pub(crate) fn bounded(client: &kube::Client, most: usize, turns: Slots<String>) -> kube::Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| answer(inner.clone(), request, most, turns.clone()));
    kube::Client::new(service, client.default_namespace())
}

async fn answer(
    client: kube::Client,
    request: Request<Body>,
    most: usize,
    turns: Slots<String>,
) -> Result<Response<Body>, BoxError> {
    if request.uri().query().is_some_and(|query| query.split('&').any(|part| part == "watch=true")) {
        return Ok(client.send(request).await?);
    }
    let _turn = turns.acquire(&namespace(request.uri().path())).await;
    tokio::time::timeout(DEADLINE, read(client, request, most)).await?
}

/// Returns the namespace of a path of the API; empty without one.
fn namespace(path: &str) -> String {
    path.split_once("/namespaces/").and_then(|(_, rest)| rest.split('/').next()).unwrap_or_default().to_owned()
}

async fn read(client: kube::Client, request: Request<Body>, most: usize) -> Result<Response<Body>, BoxError> {
    let (parts, body) = client.send(request).await?.into_parts();
    let read = Limited::new(body, most).collect().await;
    let read = read.map_err(|error| match error.is::<LengthLimitError>() {
        true => TooLong { most }.into(),
        false => error,
    })?;
    Ok(Response::from_parts(parts, Body::from(read.to_bytes())))
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Arc};

    use kube::core::Request as List;
    use rollhook_core::Error;
    use serde_json::json;
    use tokio::sync::{Semaphore, mpsc};

    use super::*;
    use crate::{client::Cluster, workload::WorkloadKind};

    /// An API server whose every answer is a Deployment with annotations of so many bytes.
    fn server(annotation: usize) -> kube::Client {
        let metadata = json!({"name": "api", "annotations": {"theirs": "x".repeat(annotation)}});
        let answer = json!({"metadata": metadata}).to_string().into_bytes();
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = answer.clone();
            async move { Ok::<_, Infallible>(Response::new(Body::from(answer))) }
        });
        kube::Client::new(service, "default")
    }

    #[tokio::test]
    async fn answer_that_is_too_long_is_not_read_unless_it_is_a_watch() {
        let client = bounded(&server(2000), 1000, Slots::new(1));
        let list = || List::new("/api/v1/pods");
        let failed = client.request_text(list().list(&Default::default()).unwrap()).await.unwrap_err();
        assert_eq!(too_long(&failed), Some(TooLong { most: 1000 }));
        assert!(client.request_text(list().watch(&Default::default(), "7").unwrap()).await.is_ok());
        let client = bounded(&server(100), 1000, Slots::new(1));
        assert!(client.request_text(list().list(&Default::default()).unwrap()).await.is_ok());
    }

    #[tokio::test]
    async fn pages_are_read_in_turns_of_the_namespaces() {
        let (read, mut reads) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        let (opened, begun) = (gate.clone(), read);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (gate, read) = (opened.clone(), begun.clone());
            async move {
                read.send(namespace(request.uri().path())).unwrap();
                gate.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec())))
            }
        });
        let client = bounded(&kube::Client::new(service, "default"), 1000, Slots::new(1));
        let list = |namespace: &str| {
            let list = List::new(format!("/api/v1/namespaces/{namespace}/pods")).list(&Default::default()).unwrap();
            let client = client.clone();
            async move { client.request_text(list).await.unwrap() }
        };
        let lists = futures_util::future::join_all(["a", "a", "a", "a", "b", "b"].map(list));
        let served = async {
            let mut order = Vec::new();
            for _ in 0..6 {
                order.push(reads.recv().await.unwrap());
                gate.add_permits(1);
            }
            order
        };
        let (_, order) = tokio::join!(lists, served);
        assert_eq!(order, ["a", "b", "a", "b", "a", "a"], "one with many pods holds up no other");
    }

    #[tokio::test]
    async fn objects_of_one_namespace_leave_room_to_those_of_others() {
        let (begun, mut reads) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            begun.send(namespace(request.uri().path())).unwrap();
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let cluster = Cluster::of(kube::Client::new(service, "default"));
        let read = |namespace: &'static str| {
            let cluster = cluster.clone();
            tokio::spawn(async move { cluster.workload(namespace, WorkloadKind::Deployment, "api").await.map(drop) })
        };
        let tasks: Vec<_> = (0..100).map(|_| read("a")).chain([read("b")]).collect();
        let mut order = Vec::new();
        while order.last().is_none_or(|namespace| namespace != "b") {
            order.push(reads.recv().await.unwrap());
        }
        assert!(order.len() <= 5, "{order:?}");
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn workload_that_is_too_large_is_refused_by_its_name() {
        let read = async |annotation| {
            Cluster::of(server(annotation)).workload("shop-test", WorkloadKind::Deployment, "api").await
        };
        assert!(read(100 << 10).await.unwrap().is_some());
        let Err(Error::Invalid { what, .. }) = read(2 << 20).await else { panic!("it is read") };
        assert_eq!(
            what,
            "the Deployment api in the namespace shop-test has more than 1024 KiB of JSON: make it smaller"
        );
    }
}
