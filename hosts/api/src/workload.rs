//! Changes of an app's workload that its owner may make after the registration.

use rollhook_core::{app::Settings, request::TargetChange};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A change of the workload's settings; absent members stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadPatch {
    /// Path that answers with 2xx or 3xx once the container is ready; an empty one removes path and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_path: Option<String>,
    /// Port of the container that answers there; by default the only one that it exposes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub readiness_port: Option<u16>,
}

impl WorkloadPatch {
    /// Returns whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the change, for the rollout driver to check.
    pub fn parse(self, take_over: bool) -> TargetChange {
        let is_removed = self.readiness_path.as_deref() == Some("");
        let path = self.readiness_path.map(|path| if is_removed { Value::Null } else { path.into() });
        let port = self.readiness_port.map(Value::from).or(is_removed.then_some(Value::Null));
        let given = [("readiness_path", path), ("readiness_port", port)];
        let settings: Settings =
            given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        TargetChange { settings, take_over }
    }
}
