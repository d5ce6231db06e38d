//! Calls over HTTP: each is made, repeated if it may not have arrived, and its answer read.
//!
//! A call that got no answer is repeated with the same idempotency key, so that it takes effect once.

use std::{env, fs, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rollhook_api::{Kind, LoggedIn, Login, Problem, endpoint::open};
use rollhook_core::text::escaped;
use serde::de::DeserializeOwned;

use crate::{
    contexts::{Context, Contexts},
    exit::CliError,
    output::{message, user},
};

/// The most attempts of a call.
const ATTEMPTS: u32 = 5;
/// The pause before the second attempt; it doubles with each.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest time of one attempt.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes.
const ANSWER_MAX: usize = 64 << 20;

/// A client of a rollhook server.
pub(crate) struct Server {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    authorization: Option<HeaderValue>,
    actor: HeaderValue,
    /// Whether others on the way can read the token.
    is_unencrypted: bool,
}

/// A failed attempt, and the pause after which it may be repeated.
struct Failed {
    failure: CliError,
    again_after: Option<Duration>,
}

impl From<CliError> for Failed {
    fn from(failure: CliError) -> Self {
        Self { failure, again_after: None }
    }
}

impl Server {
    /// Returns a client of the server at this URL, with the token that the environment names.
    ///
    /// # Errors
    /// [`CliError::Usage`] if URL or token are missing or invalid.
    pub(crate) fn new(server: &str) -> Result<Self, CliError> {
        let client = Self::anonymous(server)?;
        let authorization = Some(bearer(&client.base)?);
        Ok(Self { authorization, ..client })
    }

    /// Returns a client of the server at this URL, with this token.
    ///
    /// # Errors
    /// As [`Server::new`].
    pub(crate) fn with_token(server: &str, token: &str) -> Result<Self, CliError> {
        Ok(Self { authorization: Some(header_of(token)?), ..Self::anonymous(server)? })
    }

    /// Redeems the code of a login.
    ///
    /// # Errors
    /// The server's refusal, or that it cannot be reached.
    pub(crate) async fn login(&self, login: &Login) -> Result<LoggedIn, CliError> {
        let body = serde_json::to_vec(login)
            .map_err(|error| CliError::Other(format!("The request cannot be written as JSON: {error}.")))?;
        let answer = self.counted(Method::POST, open::LOGIN.path, Some(body.into())).await;
        self.read(&answer.map_err(|(failure, _)| failure)?)
    }

    /// Returns a client of the server at this URL, without a credential.
    ///
    /// # Errors
    /// As [`Server::new`].
    pub(crate) fn anonymous(server: &str) -> Result<Self, CliError> {
        let base = server.trim_end_matches('/').to_owned();
        let uri: Uri = base
            .parse()
            .map_err(|_| CliError::Usage("--server: must be a URL, such as https://deploys.example.com.".to_owned()))?;
        let plain = match uri.scheme_str() {
            Some("http") => true,
            Some("https") => false,
            Some(_) | None => {
                return Err(CliError::Usage("--server: must start with https:// or http://.".to_owned()));
            }
        };
        if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) || uri.query().is_some() {
            return Err(CliError::Usage("--server: must be a URL without credentials and query.".to_owned()));
        }
        let tls = HttpsConnectorBuilder::new().with_native_roots();
        let tls =
            tls.map_err(|error| CliError::Other(format!("Reading the system's root certificates failed: {error}.")))?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = tls.https_or_http().enable_http1().wrap_connector(http);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let actor = HeaderValue::from_bytes(escaped(&user()).as_bytes());
        let actor = actor.unwrap_or_else(|_| HeaderValue::from_static("cli"));
        Ok(Self { client, base, authorization: None, actor, is_unencrypted: plain && !is_loopback(&uri) })
    }

    /// Warns a person whose token others may read on its way.
    pub(crate) fn warn_if_unencrypted(&self) {
        if self.is_unencrypted {
            message("warning: the API token goes to the server unencrypted; use https://");
        }
    }

    /// Makes a call whose answer may wait this long, and returns the body of its answer.
    pub(super) async fn waiting(&self, path: &str, limit: Duration) -> Result<Bytes, CliError> {
        let prefer = HeaderValue::from_str(&format!("wait={}", limit.as_secs()));
        let prefer = prefer.map_err(|error| CliError::Other(format!("The preference to wait: {error}.")))?;
        let added = ("prefer", &prefer);
        self.repeated(|| self.attempt(&Method::GET, path, None, Some(added))).await.map_err(|(failure, _)| failure)
    }

    /// Makes a call, and returns the body of its answer; a failure comes with the number of attempts.
    pub(super) async fn counted(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Bytes, (CliError, u32)> {
        let key = if method == Method::GET { None } else { Some(random_key().map_err(|failure| (failure, 0))?) };
        let key = key.as_ref().map(|key| ("idempotency-key", key));
        self.repeated(|| self.attempt(&method, path, body.clone(), key)).await
    }

    /// Makes attempts of a call until one is answered, or fails for good; a failure comes with the number of attempts.
    async fn repeated<F: Future<Output = Result<Bytes, Failed>> + Send>(
        &self,
        make: impl Fn() -> F + Send,
    ) -> Result<Bytes, (CliError, u32)> {
        let mut pause = PAUSE;
        let mut attempt = 1;
        loop {
            let failed = match make().await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let Some(wait) = failed.again_after.filter(|_| attempt < ATTEMPTS) else {
                return Err((failed.failure, attempt));
            };
            tokio::time::sleep(wait.max(pause)).await;
            pause *= 2;
            attempt += 1;
        }
    }

    async fn attempt(
        &self,
        method: &Method,
        path: &str,
        body: Option<Bytes>,
        added: Option<(&str, &HeaderValue)>,
    ) -> Result<Bytes, Failed> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("x-rollhook-actor", &self.actor)
            .header(header::ACCEPT, "application/json, text/plain")
            .header(header::USER_AGENT, concat!("rollhook/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        if let Some((name, value)) = added {
            request = request.header(name, value);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body.unwrap_or_default()));
        let request = request.map_err(|error| CliError::Usage(format!("--server: {error}.")))?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| self.unreachable(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_MAX).collect().await;
            let body = body.map_err(|error| self.unreachable(error.as_ref()))?.to_bytes();
            if head.status.is_success() { Ok(body) } else { Err(self.refused(&head, &body)) }
        };
        tokio::time::timeout(TIMEOUT, exchange).await.unwrap_or_else(|_| {
            let seconds = TIMEOUT.as_secs();
            let failure =
                CliError::Unreachable(format!("The server {} has not answered within {seconds} s.", self.base));
            Err(Failed { failure, again_after: Some(Duration::ZERO) })
        })
    }

    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> Failed {
        // The outer errors say that the call failed, the innermost one says why.
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let failure = CliError::Unreachable(format!("The server {} cannot be reached: {innermost}.", self.base));
        Failed { failure, again_after: Some(Duration::ZERO) }
    }

    /// Returns the failure that an answer without success means.
    fn refused(&self, head: &http::response::Parts, body: &[u8]) -> Failed {
        let status = head.status;
        let seconds = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let again_after = match status {
            StatusCode::TOO_MANY_REQUESTS => seconds.filter(|seconds| *seconds <= 5),
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Some(seconds.unwrap_or(0).min(5))
            }
            _ => None,
        };
        let failure = match serde_json::from_slice::<Problem>(body) {
            // The status of the answer counts, even if the body names another.
            Ok(problem) => CliError::Problem(Box::new(Problem { status: status.as_u16(), ..problem })),
            Err(_) => self.not_rollhook(head),
        };
        Failed { failure, again_after: again_after.map(Duration::from_secs) }
    }

    /// Returns the failure of an answer that is not a rollhook server's.
    fn not_rollhook(&self, head: &http::response::Parts) -> CliError {
        let answer = match head.headers.get(header::LOCATION).and_then(|value| value.to_str().ok()) {
            Some(location) => format!("{} and points to {location}; is --server right?", head.status),
            None => format!("{}, not as a rollhook server does; is --server right?", head.status),
        };
        let detail = format!("The server {} answered {answer}", self.base);
        let problem = Problem::new(Kind::Internal, detail);
        CliError::Problem(Box::new(Problem { status: head.status.as_u16(), ..problem }))
    }

    /// Makes a call whose effect must not be repeated if its answer is lost.
    pub(super) async fn once(&self, method: &Method, path: &str, body: Option<Bytes>) -> Result<Bytes, CliError> {
        self.attempt(method, path, body, None).await.map_err(|failed| failed.failure)
    }

    pub(super) fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, CliError> {
        serde_json::from_slice(body).map_err(|error| self.unreadable(&error))
    }

    /// Returns the failure of an answer that is not the expected JSON.
    pub(super) fn unreadable(&self, error: &serde_json::Error) -> CliError {
        CliError::Other(format!("The answer of the server {} cannot be read: {error}; is --server right?", self.base))
    }
}

/// Returns whether only this machine can reach the URL.
fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns the header with the token that the environment names, or that of a login at this server.
fn bearer(server: &str) -> Result<HeaderValue, CliError> {
    let token = match (env::var("ROLLHOOK_TOKEN"), env::var_os("ROLLHOOK_TOKEN_FILE")) {
        (Ok(token), _) if !token.is_empty() => token,
        (_, Some(file)) if !file.is_empty() => fs::read_to_string(&file).map_err(|error| {
            CliError::Usage(format!("ROLLHOOK_TOKEN_FILE: reading {} failed: {error}.", file.display()))
        })?,
        _ => {
            let contexts = Contexts::read()?;
            let at_server = |context: &&Context| context.server == server;
            let current = contexts.current().into_iter().chain(contexts.contexts.values()).find(at_server);
            current.map(Context::token).transpose()?.ok_or_else(|| {
                CliError::Usage(
                    "A server needs an API token: set ROLLHOOK_TOKEN, or ROLLHOOK_TOKEN_FILE to a file with it; or sign \
                     in with rollhook login URL."
                        .to_owned(),
                )
            })?
        }
    };
    header_of(&token)
}

fn header_of(token: &str) -> Result<HeaderValue, CliError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
        .map_err(|_| CliError::Usage("The API token is invalid: it has characters that no token has. Check ROLLHOOK_TOKEN and ROLLHOOK_TOKEN_FILE.".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns 64 random hexadecimal digits.
pub(crate) fn random_hex() -> Result<String, CliError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| CliError::Other(format!("The system gives no random bytes: {error}.")))?;
    Ok(rollhook_core::text::hex(&bytes))
}

/// Returns a random idempotency key.
fn random_key() -> Result<HeaderValue, CliError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| CliError::Other(format!("The system gives no random bytes: {error}.")))?;
    let text = format!("cli-{:032x}", u128::from_le_bytes(bytes));
    HeaderValue::from_str(&text).map_err(|error| CliError::Other(format!("The idempotency key: {error}.")))
}
