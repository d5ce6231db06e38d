//! The API of a service: calls with its token, and answers in JSON.

use http::{
    HeaderMap, HeaderName, Method, Request, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rollhook_core::text::{escaped, json_values};
use rollhook_management::{notifications::ApiUrl, ports::DeliveryFailure};
use serde_json::Value;

use crate::{
    answer::{failure, foreign, is_final, retry_after},
    notifier::HttpNotifier,
};

/// The characters of a path's segment and of a query's value that stand for something else.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The longest explanation of a service that is repeated, in characters.
const EXPLANATION_MAX: usize = 200;
/// The most JSON values of an answer, each of which takes many times its bytes in memory: 30 deployments of GitHub have some
/// 4,500 where an app of GitHub's made them.
const VALUES_MAX: usize = 10_000;

/// Returns a text as a segment of a path, or as a value of a query.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// A service's API, opened by its token.
pub(crate) struct Api<'a> {
    pub(crate) notifier: &'a HttpNotifier,
    pub(crate) url: &'a ApiUrl,
    /// The headers of every call: the token, and the version of the API.
    pub(crate) headers: Vec<(HeaderName, String)>,
}

/// An answer of an API.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) host: String,
    /// Whether people may read what the host says.
    pub(crate) may_be_repeated: bool,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Api<'_> {
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, DeliveryFailure> {
        self.call(Method::GET, path, None, &[]).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Answer, DeliveryFailure> {
        self.call(Method::POST, path, Some(body), &[]).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Answer, DeliveryFailure> {
        self.call(Method::PUT, path, Some(body), &[]).await
    }

    /// Makes one call; `headers` replace those of every call.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(HeaderName, &str)],
    ) -> Result<Answer, DeliveryFailure> {
        let mut request = Request::builder().method(method).uri(self.url.join(path));
        let common = self.headers.iter().map(|(name, value)| (name, value.as_str()));
        let replaced = |name: &HeaderName| headers.iter().any(|(given, _)| given == name);
        for (name, value) in common.filter(|(name, _)| !replaced(name)) {
            request = request.header(name, value);
        }
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json; charset=utf-8");
        }
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = request.body(body).map_err(|_| failure("the API's URL, or the token, cannot be used"))?;
        let (host, answer) = self.notifier.exchange(request).await?;
        let (parts, body) = answer.into_parts();
        if parts.status.is_success() && json_values(&body) > VALUES_MAX {
            return Err(foreign(format!("{host} gave an answer of more than {VALUES_MAX} JSON values")));
        }
        let may_be_repeated = self.notifier.may_be_repeated(&host);
        Ok(Answer { host, may_be_repeated, status: parts.status, headers: parts.headers, body })
    }
}

/// The header that asks for JSON.
pub(crate) fn accepts(kind: &str) -> (HeaderName, String) {
    (ACCEPT, kind.to_owned())
}

impl Answer {
    /// The body as JSON; null if it is none, or has very many values.
    pub(crate) fn json(&self) -> Value {
        if json_values(&self.body) > VALUES_MAX {
            return Value::Null;
        }
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the answer if it is a success. `what` is what was asked for, as the end of "… to".
    pub(crate) fn succeeded(self, what: &str) -> Result<Self, DeliveryFailure> {
        if self.status.is_success() { Ok(self) } else { Err(self.failure(what)) }
    }

    /// Returns what a refusal means.
    pub(crate) fn failure(&self, what: &str) -> DeliveryFailure {
        let Self { host, status, .. } = self;
        let explanation = self.explanation().map(|text| format!(": {text}")).unwrap_or_default();
        DeliveryFailure {
            message: format!("{host} answered {status} to {what}{explanation}"),
            retry_after: retry_after(*status, &self.headers),
            is_final: is_final(*status),
        }
    }

    /// Returns the service's explanation of a refusal, in one line; `None` if people may not read it.
    fn explanation(&self) -> Option<String> {
        if !self.may_be_repeated {
            return None;
        }
        let body = self.json();
        let said = ["message", "error"].iter().map(|name| &body[*name]).find(|said| !said.is_null())?;
        let said = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
        Some(escaped(&said).chars().take(EXPLANATION_MAX).collect())
    }
}
