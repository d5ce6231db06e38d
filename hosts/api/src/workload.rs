//! Changes of an app's workload that its owner may make after the registration, and the states of several.

use rollhook_core::{app::Settings, deploy::Revision, ports, request::TargetChange};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::openapi::schemas;

/// A change of the workload's settings; absent members stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadPatch {
    /// The workloads beside the first one that deploys change too, in their order: `KIND/NAME` or `KIND/NAME:CONTAINER,…`, with
    /// a `+` before those that go together with the one before; or as an app shows them. It replaces the list, and deploys
    /// nothing. One with a `command`, a list of words, is made where it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::also")]
    pub also: Option<Vec<Value>>,
}

impl WorkloadPatch {
    /// Returns whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the change, for the rollout driver to check.
    pub fn parse(self, take_over: bool) -> TargetChange {
        let also = self.also.map(|also| ("also".to_owned(), Value::from(also)));
        let settings: Settings = also.into_iter().collect();
        TargetChange { settings, take_over }
    }
}

/// The state of one of an app's several workloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadState {
    /// The workload, such as `Deployment/worker`.
    pub name: String,
    /// The revision that it carries; absent if it carries none of this app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub revision: Option<Revision>,
    /// Whether it runs what the app's newest deploy brought, and all of its instances are ready.
    pub complete: bool,
    /// Its state, in a clause.
    pub message: String,
}

impl WorkloadState {
    /// Returns the state as it is on the wire.
    pub fn of(state: &ports::WorkloadState) -> Self {
        let (name, message) = (state.name.clone(), state.message.clone());
        Self { name, revision: state.deploy.map(|deploy| deploy.revision), complete: state.is_complete, message }
    }
}
