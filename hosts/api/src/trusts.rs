//! The pipelines that an app trusts instead of a secret.

use std::collections::BTreeMap;

use rollhook_core::{
    app::AppId,
    identity::{self, TEXT_MAX, TrustId},
    request::{Field, Refusal},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{app::field, path};

/// A request to trust a pipeline's id_tokens: the body of `POST …/webhook/trusts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["issuer", "claims"]))]
pub struct AddTrust {
    /// The URL of the party that issues the tokens, exactly as they have it (`iss`).
    pub issuer: String,
    /// The audience of the tokens (`aud`); absent: the server's base URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = TEXT_MAX))]
    pub audience: Option<String>,
    /// Claims and their exact texts: `repository_id` or `project_id`, and any others.
    pub claims: BTreeMap<String, String>,
}

impl AddTrust {
    /// Returns the trust; `base_url` is the audience of one that names none.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(self, base_url: &str) -> Result<identity::Trust, Refusal> {
        let issuer = field(Field::TrustIssuer, self.issuer.parse())?;
        identity::Trust::new(issuer, self.audience.as_deref().unwrap_or(base_url), self.claims)
    }
}

/// A pipeline whose id_tokens open an app's webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trust {
    /// The id, which follows from the content.
    #[schemars(with = "String")]
    pub id: TrustId,
    /// The URL of the party that issues the tokens.
    pub issuer: String,
    /// The audience that the tokens are for.
    pub audience: String,
    /// Claims and their exact texts.
    pub claims: BTreeMap<String, String>,
}

impl Trust {
    /// Returns the answer for a trust.
    pub fn of(trust: &identity::Trust) -> Self {
        Self {
            id: trust.id(),
            issuer: trust.issuer().to_string(),
            audience: trust.audience().to_owned(),
            claims: trust.claims().clone(),
        }
    }

    /// Returns the claims in one line, for people.
    pub fn claims_line(&self) -> String {
        self.claims.iter().map(|(name, text)| format!("{name}={text}")).collect::<Vec<_>>().join(" ")
    }
}

/// The pipelines that an app trusts, and the URL that they post to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrustList {
    /// The webhook's URL.
    pub url: String,
    /// The trusts, oldest first.
    pub trusts: Vec<Trust>,
}

impl TrustList {
    /// Returns the answer for an app's trusts, for a server that is reached at `base_url`.
    pub fn of(base_url: &str, id: &AppId, trusts: &[identity::Trust]) -> Self {
        let url = format!("{}{}", base_url.trim_end_matches('/'), path::webhook(id));
        Self { url, trusts: trusts.iter().map(Trust::of).collect() }
    }
}
