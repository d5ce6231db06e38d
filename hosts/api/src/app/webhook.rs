//! An app's webhook as it is on the wire, and its rotation.

use std::{fmt, time::Duration};

use rollhook_core::{
    app::AppId,
    ports::{Sealing, WebhookSecret},
    request::{Field, Refusal},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::invalid;
use crate::{duration, endpoint::open, openapi::schemas};

/// A request for a new token beside the present one: the body of `POST …/webhook/rotate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rotate {
    /// The time for which the present token is let in too, such as `1h`, which is the default; at most `168h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub overlap: Option<String>,
}

/// The overlap of a rotation that names none.
const OVERLAP: Duration = Duration::from_secs(3600);

impl Rotate {
    /// Returns the overlap.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`].
    pub fn parse(&self) -> Result<Duration, Refusal> {
        match &self.overlap {
            None => Ok(OVERLAP),
            Some(text) => duration::parse(text).ok_or_else(|| invalid(Field::Overlap, duration::RULE)),
        }
    }
}

/// An app's webhook with its secret; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Webhook {
    /// The URL that CI posts to.
    pub url: String,
    /// The secret token; empty where it is masked.
    pub token: String,
    /// The signing key that follows from the token, `whsec_` and base64, for git hosts that sign as Standard Webhooks
    /// does. The key is as secret as the token.
    #[serde(default)]
    pub signing_key: String,
    /// The time at which the token was made.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub created_at: Timestamp,
    /// The time until which the token before is let in too, after a rotation.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::maybe")]
    #[schemars(schema_with = "schemas::time")]
    pub previous_until: Option<Timestamp>,
    /// The protection of the stored token: `sealed`, `cluster` or `memory`.
    #[schemars(schema_with = "schemas::sealing")]
    pub sealing: String,
    /// A caution about that protection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Webhook {
    /// Returns a webhook as it is on the wire, for a server that is reached at `base_url`.
    pub fn of(base_url: &str, id: &AppId, secret: &WebhookSecret, sealing: Sealing, now: Timestamp) -> Self {
        let times = (secret.created_at, secret.previous_at(now).map(|previous| previous.until));
        Self {
            token: secret.token.expose().to_owned(),
            signing_key: secret.token.signing_key().expose().to_string(),
            ..Self::masked(base_url, id, times, sealing)
        }
    }

    /// Returns a webhook without its secrets; the times are that of the token, and the end of the one before.
    pub fn masked(
        base_url: &str,
        id: &AppId,
        (created_at, previous_until): (Timestamp, Option<Timestamp>),
        sealing: Sealing,
    ) -> Self {
        let (word, note) = match sealing {
            Sealing::Sealed => ("sealed", None),
            Sealing::Cluster => (
                "cluster",
                Some(
                    "The token is kept as the cluster keeps Secrets: it is sealed only if the cluster encrypts them at rest.",
                ),
            ),
            Sealing::Memory => ("memory", Some("The token is kept in memory only and is gone when the server stops.")),
        };
        Self {
            url: format!("{}{}", base_url.trim_end_matches('/'), open::WEBHOOK.path_of(id)),
            token: String::new(),
            signing_key: String::new(),
            created_at,
            previous_until,
            sealing: word.to_owned(),
            note: note.map(str::to_owned),
        }
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("url", &self.url)
            .field("created_at", &self.created_at)
            .field("sealing", &self.sealing)
            .finish_non_exhaustive()
    }
}
