//! A client whose credentials are read again from where they came from, once the API server does not accept them: a token
//! in a kubeconfig is replaced while the server runs.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use kube::{Client, Config, client::Body};
use rollhook_core::Result;
use tokio::time::Instant;
use tower::Service;

use crate::lock;

/// Reads the configuration.
pub(crate) type Read = Arc<dyn Fn() -> BoxFuture<'static, Result<Config>> + Send + Sync>;
/// Makes a client of a configuration.
pub(crate) type Make = Arc<dyn Fn(Config) -> Result<Client> + Send + Sync>;

/// Returns a client that reads its configuration again where the API server answers 401, at most once in each `pause`.
///
/// # Errors
/// If the configuration cannot be read or used now.
pub(crate) async fn renewed(read: Read, make: Make, pause: Duration) -> Result<Client> {
    let config = read().await?;
    let namespace = config.default_namespace.clone();
    let present = Mutex::new(Present { client: make(config)?, read_at: Instant::now(), is_refused: false });
    Ok(Client::new(Renewed(Arc::new(Shared { present, read, make, pause })), namespace))
}

#[derive(Clone)]
struct Renewed(Arc<Shared>);

struct Shared {
    present: Mutex<Present>,
    read: Read,
    make: Make,
    pause: Duration,
}

struct Present {
    client: Client,
    read_at: Instant,
    /// Whether the last credentials were not accepted: said once.
    is_refused: bool,
}

impl Service<Request<Body>> for Renewed {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Response<Body>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = self.0.clone();
        Box::pin(async move { shared.send(request).await })
    }
}

impl Shared {
    async fn send(&self, request: Request<Body>) -> kube::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        // A read has no body, and is sent again at once; the callers of writes repeat them.
        let again = (parts.method == Method::GET).then(|| Request::from_parts(parts.clone(), Body::empty()));
        let answer = self.client().send(Request::from_parts(parts, body)).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            lock(&self.present).is_refused = false;
            return Ok(answer);
        }
        let is_renewed = self.renew().await;
        match again.filter(|_| is_renewed) {
            Some(again) => self.client().send(again).await,
            None => Ok(answer),
        }
    }

    fn client(&self) -> Client {
        lock(&self.present).client.clone()
    }

    /// Returns whether the configuration was read again.
    async fn renew(&self) -> bool {
        {
            let mut present = lock(&self.present);
            if present.read_at.elapsed() < self.pause {
                return false;
            }
            present.read_at = Instant::now();
            if !std::mem::replace(&mut present.is_refused, true) {
                tracing::info!(
                    "reading the cluster's configuration again: the API server does not accept its credentials"
                );
            }
        }
        let made = (self.read)().await.and_then(|config| (self.make)(config));
        match made {
            Ok(client) => {
                lock(&self.present).client = client;
                true
            }
            Err(error) => {
                tracing::debug!(error = %error.chain(), "reading the cluster's configuration again failed");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use k8s_openapi::api::core::v1::Namespace;
    use kube::Api;
    use tower::service_fn;

    use super::*;

    /// A client whose token is that of the configuration's namespace; the API server accepts `token-2` alone.
    fn client(config: Config) -> Result<Client> {
        let token = config.default_namespace;
        let service = service_fn(move |_: Request<Body>| {
            let is_accepted = token == "token-2";
            async move {
                let (status, body) = if is_accepted {
                    (200, r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#)
                } else {
                    (401, r#"{"kind":"Status","status":"Failure","reason":"Unauthorized","message":"no","code":401}"#)
                };
                let answer = Response::builder().status(status).body(Body::from(body.as_bytes().to_vec()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        Ok(Client::new(service, "default"))
    }

    /// A configuration that has another token each time, and the number of times that it was read.
    fn replaced_each_time() -> (Read, Arc<AtomicUsize>) {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let read: Read = Arc::new(move || {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
                config.default_namespace = format!("token-{number}");
                Ok(config)
            }
            .boxed()
        });
        (read, reads)
    }

    #[tokio::test]
    async fn replaced_token_is_read_again() {
        let (read, reads) = replaced_each_time();
        let namespaces: Api<Namespace> = Api::all(renewed(read, Arc::new(client), Duration::ZERO).await.unwrap());
        assert!(namespaces.get("a").await.is_err(), "the first token is refused, and the second one");
        assert!(namespaces.get("a").await.is_ok(), "the third one is accepted, within the same call");
        assert!(namespaces.get("a").await.is_ok());
        assert_eq!(reads.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn configuration_is_not_read_at_each_refusal() {
        let (read, reads) = replaced_each_time();
        let hour = Duration::from_secs(3600);
        let namespaces: Api<Namespace> = Api::all(renewed(read, Arc::new(client), hour).await.unwrap());
        for _ in 0..3 {
            assert!(namespaces.get("a").await.is_err());
        }
        assert_eq!(reads.load(Ordering::SeqCst), 1);
    }
}
