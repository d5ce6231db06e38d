//! The last calls of a webhook, as one process of the server answered them.

use std::net::IpAddr;

use rollhook_core::{deploy::Revision, time::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::openapi::schemas;

/// A call of an app's webhook, and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookCall {
    /// The time of the answer.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
    /// The caller's address.
    #[schemars(with = "String")]
    pub source: IpAddr,
    /// The kinds of credentials that it brought: `token`, `signature`, `message`, `identity`, `invalid`.
    pub credentials: Vec<String>,
    /// The HTTP status of the answer.
    pub status: u16,
    /// Why it was refused, in a word, such as `wrong-signature` or a problem's type; absent: it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it was refused, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The revision that was accepted, or repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub revision: Option<Revision>,
    /// The number of such calls of this caller, of which this is the last.
    pub times: u64,
}

/// The last calls of an app's webhook that reached this process of the server since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WebhookCallList {
    /// The calls, newest first.
    pub calls: Vec<WebhookCall>,
}

impl WebhookCallList {
    /// Returns the answer for these calls.
    pub fn of(calls: &[rollhook_management::WebhookCall]) -> Self {
        Self { calls: calls.iter().map(WebhookCall::of).collect() }
    }
}

impl WebhookCall {
    fn of(call: &rollhook_management::WebhookCall) -> Self {
        let answer = &call.answer;
        Self {
            at: call.at,
            source: call.source,
            credentials: call.credentials.iter().map(ToString::to_string).collect(),
            status: answer.status,
            reason: answer.reason.map(|(word, _)| word.to_owned()),
            detail: answer.reason.map(|(_, sentence)| sentence.to_owned()),
            revision: answer.revision,
            times: call.times,
        }
    }
}
