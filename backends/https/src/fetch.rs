//! Reads documents over https: bounded in time, size and addresses, and never led elsewhere by a redirect.

use std::{
    any::Any,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, LazyLock, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{HttpConnector, dns::Name},
    },
    rt::TokioExecutor,
};
use rollhook_core::{source::is_local_address, text::json_values};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tower::Service;

/// The longest document, in bytes.
const DOCUMENT_MAX: usize = 256 * 1024;
/// The most JSON values of a document: in memory they take many times the document's bytes.
const VALUES_MAX: usize = 4_000;
/// The names that are resolved at once, by all clients of the process but those that have look-ups of their own. A name server that does not answer keeps a thread for
/// longer than any caller waits, and the process has few.
const LOOKUPS: usize = 128;
/// The longest time of connecting.
const CONNECT_TIME: Duration = Duration::from_secs(3);

static RESOLVING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LOOKUPS)));

type Connector = HttpsConnector<HttpConnector<Resolver>>;

/// A client that reads small documents. Redirects are failures.
#[derive(Clone)]
pub struct Fetch {
    local: LocalAddresses,
    /// The turns of those who resolve names.
    lookups: Arc<Semaphore>,
    /// Made for the first call, and shared by clones.
    client: Arc<OnceLock<Client<Connector, Full<Bytes>>>>,
}

/// Whether local addresses may be called, and the flag by which the operator allows it.
#[derive(Clone, Copy)]
struct LocalAddresses {
    allowed: bool,
    flag: &'static str,
}

/// The reason why a call was not made, or a document not read.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL cannot be read.
    #[error("must be a URL with a host")]
    Invalid,
    /// The URL is not https.
    #[error("must begin with https://, unless the operator allows local addresses ({0})")]
    Plain(&'static str),
    /// The address is one that only the operator may let a server call.
    #[error(
        "must not be on this machine, at a link-local address or a cloud's metadata service, unless the operator allows \
         local addresses ({0})"
    )]
    Local(&'static str),
    /// The system's root certificates cannot be read.
    #[error("the system's root certificates cannot be read")]
    Roots(#[source] io::Error),
    /// The call failed.
    #[error("calling {0} failed")]
    Call(String, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer has another status than 200.
    #[error("{0} answered {1}")]
    Status(String, StatusCode),
    /// The document is not the one that was expected.
    #[error("the answer of {0} cannot be read")]
    Document(String, #[source] serde_json::Error),
    /// The document has more values than any that is expected.
    #[error("the answer of {0} has more than {VALUES_MAX} values")]
    TooManyValues(String),
    /// The description is another issuer's.
    #[error("its description is of another issuer")]
    OtherIssuer,
    /// No answer came in time.
    #[error("no answer came in time")]
    TimedOut,
}

tokio::task_local! {
    /// What a call holds until the look-ups of its names have ended, though nobody may wait for them any more.
    static HELD: Arc<dyn Any + Send + Sync>;
}

/// Makes calls that hold something, such as a turn, for as long as a name is looked up for them: a look-up goes on when its caller
/// has given up.
pub async fn holding<T>(held: Arc<dyn Any + Send + Sync>, calls: impl Future<Output = T>) -> T {
    HELD.scope(held, calls).await
}

impl Fetch {
    /// Returns a client; `allows_local` lets it call this machine, link-local addresses and plain http, which is what
    /// the flag of this name is for.
    pub fn new(allows_local: bool, flag: &'static str) -> Self {
        let lookups = Arc::clone(&RESOLVING);
        Self { local: LocalAddresses { allowed: allows_local, flag }, lookups, client: Arc::default() }
    }

    /// Returns the client with so many look-ups of names at once of its own: those that tenants cause must not keep others waiting.
    #[must_use]
    pub fn with_own_lookups(self, most: usize) -> Self {
        Self { lookups: Arc::new(Semaphore::new(most)), client: Arc::default(), ..self }
    }

    /// Returns `Ok` if a URL may be called, as far as its text says.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn check(&self, url: &str) -> Result<(), FetchError> {
        self.uri(url).map(drop)
    }

    fn uri(&self, url: &str) -> Result<Uri, FetchError> {
        let uri: Uri = url.parse().map_err(|_| FetchError::Invalid)?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(FetchError::Invalid)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
        if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(FetchError::Invalid);
        }
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if self.local.allowed => {}
            Some("http") => return Err(FetchError::Plain(self.local.flag)),
            Some(_) | None => return Err(FetchError::Invalid),
        }
        let is_local =
            host == "localhost" || host.ends_with(".localhost") || host.parse::<IpAddr>().is_ok_and(is_local_address);
        if is_local && !self.local.allowed { Err(FetchError::Local(self.local.flag)) } else { Ok(uri) }
    }

    /// Returns the JSON document at a URL.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn json<T: DeserializeOwned>(&self, url: &str) -> Result<T, FetchError> {
        self.json_of(url, DOCUMENT_MAX).await
    }

    /// Returns the JSON document at a URL, which has at most so many bytes.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn json_of<T: DeserializeOwned>(&self, url: &str, most: usize) -> Result<T, FetchError> {
        let request = Request::get(url).header(header::ACCEPT, "application/json").body(Vec::new());
        let answer = self.sent(request.map_err(|_| FetchError::Invalid)?, most).await?;
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Status(url.to_owned(), answer.status()));
        }
        document(url, answer.body())
    }

    /// Makes one call. It may last as long as the server likes: the caller bounds its time, and [checks](check_values) a
    /// JSON text before it is read.
    ///
    /// # Errors
    /// [`FetchError`]; an answer of any status is none.
    pub async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, FetchError> {
        self.sent(request, DOCUMENT_MAX).await
    }

    async fn sent(&self, request: Request<Vec<u8>>, most: usize) -> Result<Response<Vec<u8>>, FetchError> {
        let uri = self.uri(&request.uri().to_string())?;
        let (parts, body) = self.answer(&uri, request).await?.into_parts();
        let body = Limited::new(body, most).collect().await.map_err(|error| failed(&uri, error))?.to_bytes();
        Ok(Response::from_parts(parts, body.into()))
    }

    /// Makes one call, and returns the head of the answer: the body is not read, however long or slow it is. The caller
    /// bounds the time.
    ///
    /// # Errors
    /// [`FetchError`]; an answer of any status is none.
    pub async fn send_for_head(&self, request: Request<Vec<u8>>) -> Result<Response<()>, FetchError> {
        let uri = self.uri(&request.uri().to_string())?;
        Ok(self.answer(&uri, request).await?.map(drop))
    }

    /// Makes one call, and returns its answer, of whose body nothing is read yet. The caller bounds the time.
    ///
    /// # Errors
    /// [`FetchError`]; an answer of any status is none.
    pub async fn send_and_read(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, FetchError> {
        let uri = self.uri(&request.uri().to_string())?;
        Ok(self.answer(&uri, request).await?.map(|body| Body { uri, body }))
    }

    async fn answer(&self, uri: &Uri, request: Request<Vec<u8>>) -> Result<Response<Incoming>, FetchError> {
        let mut request = request.map(|body| Full::new(Bytes::from(body)));
        let agent = header::HeaderValue::from_static(concat!("rollhook/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(header::USER_AGENT, agent);
        self.client()?.request(request).await.map_err(|error| failed(uri, error.into()))
    }

    fn client(&self) -> Result<&Client<Connector, Full<Bytes>>, FetchError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let mut http =
            HttpConnector::new_with_resolver(Resolver { local: self.local, lookups: Arc::clone(&self.lookups) });
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_TIME));
        let tls = HttpsConnectorBuilder::new().with_native_roots().map_err(FetchError::Roots)?;
        let connector = tls.https_or_http().enable_http1().wrap_connector(http);
        // A kept connection would outlive the check of its address.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(self.client.get_or_init(|| client))
    }
}

/// The body of an answer, which is read as far as its reader wants.
pub struct Body {
    uri: Uri,
    body: Incoming,
}

/// The start of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyStart {
    /// The bytes that were read.
    pub bytes: Vec<u8>,
    /// Whether they are the whole body.
    pub is_whole: bool,
}

impl Body {
    /// Reads at most so many bytes.
    ///
    /// # Errors
    /// [`FetchError::Call`] if the connection ends before.
    pub async fn start(mut self, most: usize) -> Result<BodyStart, FetchError> {
        let mut bytes = Vec::new();
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| failed(&self.uri, error.into()))?;
            let Ok(part) = frame.into_data() else { continue };
            let room = most.saturating_sub(bytes.len());
            bytes.extend(part.iter().take(room));
            if part.len() > room {
                return Ok(BodyStart { bytes, is_whole: false });
            }
        }
        Ok(BodyStart { bytes, is_whole: true })
    }
}

impl FetchError {
    /// Returns whether this machine has refused the call, or could not begin it: nothing is known of the server then.
    pub fn is_refused_here(&self) -> bool {
        let Self::Call(_, cause) = self else {
            return matches!(self, Self::Invalid | Self::Plain(_) | Self::Local(_) | Self::Roots(_));
        };
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&**cause);
        while let Some(error) = cause {
            // What an io::Error was made of is no source of it.
            let made_of = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            if made_of.is_some_and(|inner| inner.is::<Self>()) {
                return true;
            }
            cause = made_of.map(|inner| inner as &(dyn std::error::Error + 'static)).or_else(|| error.source());
        }
        false
    }
}

/// Refuses a JSON text of very many values, before it is read. `url` is where it came from.
///
/// # Errors
/// [`FetchError::TooManyValues`].
pub fn check_values(url: &str, text: &[u8]) -> Result<(), FetchError> {
    if json_values(text) > VALUES_MAX { Err(FetchError::TooManyValues(url.to_owned())) } else { Ok(()) }
}

/// Reads a JSON document, unless it has very many values.
fn document<T: DeserializeOwned>(url: &str, body: &[u8]) -> Result<T, FetchError> {
    check_values(url, body)?;
    serde_json::from_slice(body).map_err(|error| FetchError::Document(url.to_owned(), error))
}

/// Returns the failure of a call. A query may hold a secret; the place alone is told.
fn failed(uri: &Uri, error: Box<dyn std::error::Error + Send + Sync>) -> FetchError {
    let host = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    FetchError::Call(format!("{host}{}", uri.path()), error)
}

/// Resolves names, and refuses those that lead where only the operator may let a server call. The connection is made to
/// the addresses that were checked.
#[derive(Clone)]
struct Resolver {
    local: LocalAddresses,
    lookups: Arc<Semaphore>,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (LocalAddresses { allowed, flag }, lookups) = (self.local, Arc::clone(&self.lookups));
        let held = HELD.try_with(Arc::clone).ok();
        Box::pin(async move {
            let turn = lookups.acquire_owned().await.map_err(io::Error::other)?;
            // The turn ends with the thread, and not with a caller that waits no longer.
            let resolving = tokio::spawn(async move {
                let found = tokio::net::lookup_host((name.as_str(), 0)).await.map(Iterator::collect::<Vec<_>>);
                drop((turn, held));
                found
            });
            let found = resolving.await.map_err(io::Error::other)??;
            if !allowed && found.iter().any(|address| is_local_address(address.ip())) {
                return Err(io::Error::other(FetchError::Local(flag)));
            }
            Ok(found.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_elsewhere_is_called_unless_the_operator_allows_more() {
        let (strict, open) = (Fetch::new(false, "--flag"), Fetch::new(true, "--flag"));
        for url in ["https://gitlab.com", "https://10.0.0.7:8443/x", "https://[2001:db8::1]/"] {
            assert!(strict.check(url).is_ok() && open.check(url).is_ok(), "{url}");
        }
        for url in [
            "http://gitlab.com",
            "https://localhost",
            "https://LOCALHOST./x",
            "https://a.localhost",
            "https://127.0.0.1",
            "https://169.254.169.254/latest",
            "https://[::1]:8443",
            "https://[::ffff:127.0.0.1]",
            "https://[fd00:ec2::254]/",
            "https://0.0.0.0",
        ] {
            assert!(strict.check(url).is_err() && open.check(url).is_ok(), "{url}");
        }
        for url in ["", "gitlab.com", "ftp://gitlab.com", "https://", "https://a@gitlab.com", "file:///etc/passwd"] {
            assert!(strict.check(url).is_err() && open.check(url).is_err(), "{url}");
        }
    }

    #[test]
    fn document_of_very_many_values_is_not_read() {
        let read =
            |values: usize| document::<Vec<u8>>("https://a.example", format!("[1{}]", ",1".repeat(values)).as_bytes());
        assert_eq!(read(VALUES_MAX - 2).unwrap().len(), VALUES_MAX - 1);
        assert!(matches!(read(VALUES_MAX - 1), Err(FetchError::TooManyValues(_))));
    }

    #[tokio::test]
    async fn name_that_leads_to_this_machine_is_told_from_a_server_that_is_away() {
        let mut strict =
            Resolver { local: LocalAddresses { allowed: false, flag: "--flag" }, lookups: Arc::clone(&RESOLVING) };
        let refused = strict.call("localhost".parse().unwrap()).await.unwrap_err();
        let refused = failed(&Uri::from_static("https://a.example/"), io::Error::other(refused).into());
        assert!(refused.is_refused_here(), "{refused:?}");
        // No server listens at the port.
        let request = Request::get("http://127.0.0.1:1/").body(Vec::new()).unwrap();
        let away = Fetch::new(true, "--flag").send_for_head(request).await.unwrap_err();
        assert!(!away.is_refused_here(), "{away:?}");
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_not_called() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let resolver =
            |allowed| Resolver { local: LocalAddresses { allowed, flag: "--flag" }, lookups: Arc::clone(&RESOLVING) };
        // Resolvers read shortened addresses, which look like names.
        for text in ["127.1", "localhost"] {
            let mut strict = resolver(false);
            assert!(strict.call(name(text)).await.is_err(), "{text}");
        }
        assert!(resolver(true).call(name("localhost")).await.is_ok());
    }
}
