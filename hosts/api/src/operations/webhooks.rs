//! Webhooks: their tokens and last calls, and the pipelines that they trust.

use rollhook_core::{action::Action, app::AppId, ports::WebhookSecret};
use rollhook_management::{Refusal, keyless::TrustId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    AddTrust, Local, Operation, Rotate, Trust, TrustList, Webhook, WebhookCallList, endpoint::Endpoint, query,
};

/// The query of a webhook.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookQuery {
    /// Leave the token out: `token` and `signing_key` are empty. Needs the role of a viewer only.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub masked: Option<bool>,
}

impl WebhookQuery {
    /// The query of a webhook without its token.
    pub const MASKED: Self = Self { masked: Some(true) };
}

fn with_token(caller: &Local, id: &AppId, secret: &WebhookSecret) -> Webhook {
    Webhook::of(&caller.base_url, id, secret, caller.deployer().sealing(), caller.deployer().time())
}

/// Gives an app's webhook a new token.
pub struct EnableWebhook;

impl Operation for EnableWebhook {
    type Subject = AppId;
    type Input = ();
    type Answer = Webhook;

    const ENDPOINT: Endpoint =
        Endpoint::new("POST", "/api/v1/apps/{namespace}/{app}/webhook", 200, "Enable the webhook with a new token");

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<Webhook, Refusal> {
        let access = caller.allow(id, Action::EnableWebhook).await?;
        Ok(with_token(caller, id, &caller.deployer().enable_webhook(&access).await?))
    }
}

/// Gives an app's webhook a new token, and lets the present one in for a time.
pub struct RotateWebhook;

impl Operation for RotateWebhook {
    type Subject = AppId;
    type Input = Rotate;
    type Answer = Webhook;

    const ENDPOINT: Endpoint = Endpoint::new(
        "POST",
        "/api/v1/apps/{namespace}/{app}/webhook/rotate",
        200,
        "Give the webhook a new token; the present one is let in for a time",
    )
    .with_optional_body()
    .once();

    async fn perform(caller: &Local, id: &AppId, rotate: Rotate) -> Result<Webhook, Refusal> {
        let overlap = rotate.parse()?;
        let access = caller.allow(id, Action::EnableWebhook).await?;
        Ok(with_token(caller, id, &caller.deployer().rotate_webhook(&access, overlap).await?))
    }
}

/// Shows an app's webhook, with its token or without.
pub struct ShowWebhook;

impl Operation for ShowWebhook {
    type Subject = AppId;
    type Input = WebhookQuery;
    type Answer = Webhook;

    const ENDPOINT: Endpoint =
        Endpoint::get("/api/v1/apps/{namespace}/{app}/webhook", "Show the webhook and its token");

    async fn perform(caller: &Local, id: &AppId, query: WebhookQuery) -> Result<Webhook, Refusal> {
        if query.masked == Some(true) {
            let times = caller.deployer().webhook_times(&caller.open(id).await?).await?;
            return Ok(Webhook::masked(&caller.base_url, id, times, caller.deployer().sealing()));
        }
        Ok(with_token(caller, id, &caller.deployer().webhook(&caller.allow(id, Action::ReadToken).await?).await?))
    }
}

/// Closes an app's webhook.
pub struct DisableWebhook;

impl Operation for DisableWebhook {
    type Subject = AppId;
    type Input = ();
    type Answer = ();

    const ENDPOINT: Endpoint =
        Endpoint::delete("/api/v1/apps/{namespace}/{app}/webhook", "Disable the webhook: token and trusts are gone");

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<(), Refusal> {
        caller.management.disable_webhook(&caller.principal, id).await
    }
}

/// Lists the last calls of an app's webhook that reached this process.
pub struct ListWebhookCalls;

impl Operation for ListWebhookCalls {
    type Subject = AppId;
    type Input = ();
    type Answer = WebhookCallList;

    const ENDPOINT: Endpoint = Endpoint::get(
        "/api/v1/apps/{namespace}/{app}/webhook/calls",
        "The webhook's last calls that reached this process of the server",
    );

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<WebhookCallList, Refusal> {
        Ok(WebhookCallList::of(&caller.management.webhook_calls(&caller.principal, id).await?))
    }
}

/// Lists the pipelines that an app trusts.
pub struct ListTrusts;

impl Operation for ListTrusts {
    type Subject = AppId;
    type Input = ();
    type Answer = TrustList;

    const ENDPOINT: Endpoint =
        Endpoint::get("/api/v1/apps/{namespace}/{app}/webhook/trusts", "List the pipelines that the webhook trusts");

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<TrustList, Refusal> {
        Ok(TrustList::of(&caller.base_url, id, &caller.management.trusts(&caller.principal, id).await?))
    }
}

/// Lets a pipeline call an app's webhook by its id_tokens.
pub struct TrustPipeline;

impl Operation for TrustPipeline {
    type Subject = AppId;
    type Input = AddTrust;
    type Answer = Trust;

    const ENDPOINT: Endpoint =
        Endpoint::new("POST", "/api/v1/apps/{namespace}/{app}/webhook/trusts", 200, "Trust a pipeline's id_tokens");

    async fn perform(caller: &Local, id: &AppId, trust: AddTrust) -> Result<Trust, Refusal> {
        let trust = trust.parse(caller.base_url.trim_end_matches('/'))?;
        let added = Trust::of(&trust);
        caller.management.add_trust(&caller.principal, id, trust).await?;
        Ok(added)
    }
}

/// Ends the trust in a pipeline.
pub struct EndTrust;

impl Operation for EndTrust {
    type Subject = (AppId, TrustId);
    type Input = ();
    type Answer = ();

    const ENDPOINT: Endpoint =
        Endpoint::delete("/api/v1/apps/{namespace}/{app}/webhook/trusts/{trust}", "End the trust in a pipeline");

    async fn perform(caller: &Local, (id, trust): &(AppId, TrustId), (): ()) -> Result<(), Refusal> {
        caller.management.remove_trust(&caller.principal, id, trust).await
    }
}
