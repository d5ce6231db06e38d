//! API tokens, the audit, and who the caller is.

use rollhook_management::{Refusal, access::TokenName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ApiToken, AuditList, CreateToken, CreatedToken, Local, Operation, TokenList, Whoami,
    access::AuditPlace,
    endpoint::Endpoint,
    openapi::PAGE_MAX,
    query::{self, PageSize},
};

/// The number of entries of a page of the audit, unless the query has another.
const PAGE: usize = 50;

/// The query of the audit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditQuery {
    /// At most this many.
    #[serde(with = "query::page_size", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize", range(min = 1, max = PAGE_MAX))]
    pub limit: Option<PageSize>,
    /// Only entries after this one: `next` of the part before.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("pattern" = AuditPlace::PATTERN))]
    pub after: Option<AuditPlace>,
}

impl AuditQuery {
    /// Returns the query of at most so many entries after a place.
    pub fn page(after: Option<AuditPlace>, limit: usize) -> Self {
        Self { limit: Some(PageSize::new(limit)), after }
    }
}

/// Makes an API token.
pub struct CreateApiToken;

impl Operation for CreateApiToken {
    type Subject = ();
    type Input = CreateToken;
    type Answer = CreatedToken;

    const ENDPOINT: Endpoint =
        Endpoint::new("POST", "/api/v1/tokens", 201, "Make an API token, which is shown this once");

    async fn perform(caller: &Local, _: &(), token: CreateToken) -> Result<CreatedToken, Refusal> {
        let (api_token, token) = caller.management.create_api_token(&caller.principal, token.parse()?).await?;
        Ok(CreatedToken::of(&api_token, &token))
    }
}

/// Lists the API tokens that the caller may manage.
pub struct ListApiTokens;

impl Operation for ListApiTokens {
    type Subject = ();
    type Input = ();
    type Answer = TokenList;

    const ENDPOINT: Endpoint = Endpoint::get("/api/v1/tokens", "List the API tokens");

    async fn perform(caller: &Local, _: &(), (): ()) -> Result<TokenList, Refusal> {
        let tokens = caller.management.api_tokens(&caller.principal).await?;
        Ok(TokenList { tokens: tokens.iter().map(ApiToken::of).collect() })
    }
}

/// Revokes an API token.
pub struct RevokeApiToken;

impl Operation for RevokeApiToken {
    type Subject = TokenName;
    type Input = ();
    type Answer = ();

    const ENDPOINT: Endpoint = Endpoint::delete("/api/v1/tokens/{name}", "Revoke an API token");

    async fn perform(caller: &Local, name: &TokenName, (): ()) -> Result<(), Refusal> {
        caller.management.revoke_api_token(&caller.principal, name).await
    }
}

/// Reads the audit, newest first.
pub struct ReadAudit;

impl Operation for ReadAudit {
    type Subject = ();
    type Input = AuditQuery;
    type Answer = AuditList;

    const ENDPOINT: Endpoint = Endpoint::get("/api/v1/audit", "The audit, newest first");

    async fn perform(caller: &Local, _: &(), query: AuditQuery) -> Result<AuditList, Refusal> {
        let limit = query.limit.map_or(PAGE, PageSize::get);
        let after = query.after.map(|after| after.0);
        let (entries, next) = caller.management.audited(&caller.principal, after, limit).await?;
        Ok(AuditList::of(&entries, next.as_ref()))
    }
}

/// Shows the caller, as its credentials prove.
pub struct ShowCaller;

impl Operation for ShowCaller {
    type Subject = ();
    type Input = ();
    type Answer = Whoami;

    const ENDPOINT: Endpoint = Endpoint::get("/api/v1/whoami", "The caller and its roles");

    async fn perform(caller: &Local, _: &(), (): ()) -> Result<Whoami, Refusal> {
        Ok(Whoami::of(&caller.principal))
    }
}
