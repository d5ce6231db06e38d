//! Configuration: the variables that an app's instances run with.

use rollhook_core::{action::Action, app::AppId, deploy::Revision};
use rollhook_management::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ConfigAnswer, ConfigKept, ConfigPatch, Configuration, Local, Operation, endpoint::Endpoint, query};

/// The query of a configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigQuery {
    /// The revision whose configuration is shown; by default the current one's, and what waits for the next deploy.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", extend("minimum" = 1, "maximum" = u64::MAX))]
    pub revision: Option<Revision>,
}

/// Shows the configuration of an app: names, lengths and fingerprints, and the values of plain variables.
pub struct ShowConfiguration;

impl Operation for ShowConfiguration {
    type Subject = AppId;
    type Input = ConfigQuery;
    type Answer = Configuration;

    const ENDPOINT: Endpoint =
        Endpoint::get("/api/v1/apps/{namespace}/{app}/config", "The variables of an app, without secret values");

    async fn perform(caller: &Local, id: &AppId, query: ConfigQuery) -> Result<Configuration, Refusal> {
        let access = caller.allow(id, Action::ReadConfiguration).await?;
        let _turn = caller.deployer().configuration_turn(&access).await;
        Ok(Configuration::of(&caller.deployer().configuration(&access, query.revision).await?))
    }
}

/// Changes the configuration of an app.
pub struct ChangeConfiguration;

impl Operation for ChangeConfiguration {
    type Subject = AppId;
    type Input = ConfigPatch;
    type Answer = ConfigAnswer;

    const ENDPOINT: Endpoint =
        Endpoint::new("PATCH", "/api/v1/apps/{namespace}/{app}/config", 202, "Set and remove variables")
            .keyed("config")
            .waiting();

    async fn perform(caller: &Local, id: &AppId, patch: ConfigPatch) -> Result<ConfigAnswer, Refusal> {
        let reason = patch.break_glass()?;
        let request = patch.parse(caller.key.clone())?;
        let management = &caller.management;
        let configured = management.configure(&caller.principal, id, request, reason.as_ref()).await?;
        Ok(ConfigAnswer::of(id, &configured))
    }
}

/// Withdraws the change of an app's configuration that waits for the next deploy.
pub struct DiscardConfiguration;

impl Operation for DiscardConfiguration {
    type Subject = AppId;
    type Input = ();
    type Answer = ConfigKept;

    const ENDPOINT: Endpoint = Endpoint::new(
        "DELETE",
        "/api/v1/apps/{namespace}/{app}/config/staged",
        200,
        "Withdraw the change of variables that waits for the next deploy",
    );

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<ConfigKept, Refusal> {
        let is_discarded = caller.management.discard_configuration(&caller.principal, id).await?;
        Ok(ConfigKept::discarded(id, is_discarded))
    }
}
