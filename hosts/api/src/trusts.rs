//! The pipelines that an app trusts instead of a secret.

use std::collections::BTreeMap;

use rollhook_core::{
    app::AppId,
    request::{Field, Refusal},
};
use rollhook_management::keyless::{self, Issuer, TEXT_MAX, TrustId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{app::field, endpoint::open};

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
    /// Claims and their exact texts: `repository_id` or `project_id`, and any others. With GitLab's `ref` belong `ref_type`
    /// and `ref_protected`, or `ref_path` alone; with GitHub's `ref` one of `event_name`, `environment` and
    /// `job_workflow_ref`.
    pub claims: BTreeMap<String, String>,
}

/// A CI system whose pipelines prove themselves by id_tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipeline {
    /// GitHub Actions.
    Github,
    /// GitLab CI.
    Gitlab,
}

impl Pipeline {
    /// The issuer of the tokens at the system's own site.
    pub const fn issuer(self) -> &'static str {
        match self {
            Self::Github => Issuer::GITHUB,
            Self::Gitlab => Issuer::GITLAB,
        }
    }

    /// The claim that has the number of a repository, which is never given out again.
    pub const fn identifying_claim(self) -> &'static str {
        match self {
            Self::Github => "repository_id",
            Self::Gitlab => "project_id",
        }
    }
}

impl AddTrust {
    /// Returns the request to trust the pipelines of the repository of this number, with further claims, and those that
    /// bind a named branch or environment; the issuer is that of the system unless another one is named.
    ///
    /// # Errors
    /// The name of a claim that is given twice.
    pub fn new(
        pipeline: Option<(Pipeline, u64)>,
        issuer: Option<String>,
        audience: Option<String>,
        claims: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, String> {
        let issuer = issuer.or_else(|| pipeline.map(|(system, _)| system.issuer().to_owned())).unwrap_or_default();
        let identifying = pipeline.map(|(system, id)| (system.identifying_claim().to_owned(), id.to_string()));
        let mut all = BTreeMap::new();
        for (name, text) in identifying.into_iter().chain(claims) {
            if all.insert(name.clone(), text).is_some() {
                return Err(name);
            }
        }
        if pipeline.is_some() {
            let binding = keyless::binding_claims(&all);
            all.extend(binding.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())));
        }
        Ok(Self { issuer, audience, claims: all })
    }

    /// Returns the trust; `base_url` is the audience of one that names none.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(self, base_url: &str) -> Result<keyless::Trust, Refusal> {
        let issuer = field(Field::TrustIssuer, self.issuer.parse())?;
        keyless::Trust::new(issuer, self.audience.as_deref().unwrap_or(base_url), self.claims)
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
    /// The jobs that the trust lets in beside those that its claims seem to name, and the claims to add; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_wide: Option<String>,
}

impl Trust {
    /// Returns the answer for a trust.
    pub fn of(trust: &keyless::Trust) -> Self {
        Self {
            id: trust.id(),
            issuer: trust.issuer().to_string(),
            audience: trust.audience().to_owned(),
            claims: trust.claims().clone(),
            too_wide: trust.too_wide().map(|too_wide| too_wide.to_string()),
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
    pub fn of(base_url: &str, id: &AppId, trusts: &[keyless::Trust]) -> Self {
        let url = format!("{}{}", base_url.trim_end_matches('/'), open::WEBHOOK.path_of(id));
        Self { url, trusts: trusts.iter().map(Trust::of).collect() }
    }
}
