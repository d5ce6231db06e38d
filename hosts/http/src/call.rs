//! A call with its whole body, and what its path, query, body and headers say.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, Uri};
use rollhook_api::endpoint::{Endpoint, Subject};
use rollhook_core::{
    app::AppId,
    request::{IdempotencyKey, KeyHeader},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    body::{self, Held},
    connections::InCall,
    error_reply::ErrorReply,
    headers, query,
    state::State,
};

/// A call with its whole body.
pub(crate) struct Call {
    pub(crate) state: Arc<State>,
    pub(crate) endpoint: Endpoint,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Held,
    /// The caller's address.
    pub(crate) client: IpAddr,
    /// Held by answers that are streamed.
    pub(crate) in_call: InCall,
}

impl Call {
    /// Returns what the path names.
    ///
    /// # Errors
    /// 404 if it can name nothing.
    pub(crate) fn subject<S: Subject>(&self) -> Result<S, ErrorReply> {
        let parameters = self.endpoint.parameters(self.uri.path());
        S::read(parameters.unwrap_or_default()).map_err(|(kind, detail)| ErrorReply::new(kind, detail))
    }

    /// Returns the app that the path names.
    ///
    /// # Errors
    /// 404 if it is not an app's name.
    pub(crate) fn app(&self) -> Result<AppId, ErrorReply> {
        self.subject()
    }

    /// Returns what the call sends: the query of a call that reads or removes, else the body.
    ///
    /// # Errors
    /// 415 or 400.
    pub(crate) fn input<T: DeserializeOwned + 'static>(&self) -> Result<T, ErrorReply> {
        if self.endpoint.has_query() {
            return query::read(self.uri.query());
        }
        if query::is_nothing::<T>() {
            return serde_json::from_value(Value::Null).map_err(|error| body::unreadable(&error));
        }
        if self.endpoint.has_optional_body && self.body.bytes().trim_ascii().is_empty() {
            return body::object(b"{}");
        }
        self.json()
    }

    /// Returns the body, which must be JSON of this type.
    ///
    /// # Errors
    /// 415 or 400.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, ErrorReply> {
        body::require_json(&self.headers)?;
        body::object(&self.body.bytes())
    }

    /// Returns the idempotency key of an operator's call.
    ///
    /// # Errors
    /// 422.
    pub(crate) fn key(&self) -> Result<Option<IdempotencyKey>, ErrorReply> {
        let Some(operation) = self.endpoint.key else { return Ok(None) };
        headers::key(&self.headers, &[KeyHeader::IdempotencyKey], operation, &self.body.bytes())
    }
}
