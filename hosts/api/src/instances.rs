//! Instances of an app, and their logs.

use rollhook_core::{
    deploy::Revision,
    instance::InstanceName,
    ports::{InstanceLogPart, LogPosition, TargetInstance},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::openapi::schemas;

/// An instance of an app: a pod's container, or a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Instance {
    /// The name, as the platform shows it.
    #[schemars(with = "String")]
    pub name: InstanceName,
    /// A name that stays for as long as the instance does.
    #[schemars(with = "String")]
    pub id: InstanceName,
    /// The revision that made it; absent: it was not made by a deploy of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub revision: Option<Revision>,
    /// The state in a line.
    pub state: String,
    /// Whether it is ready.
    pub ready: bool,
    /// The number of restarts.
    pub restarts: u32,
    /// The workload that it belongs to; absent if the app has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
}

/// The instances of an app, those of the newest revision first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceList {
    /// The instances; of an app with several workloads those of the one that was asked for, or of all.
    pub instances: Vec<Instance>,
    /// The names of the app's workloads; absent if it has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<String>,
}

impl InstanceList {
    /// Returns the answer for these instances of an app with these workloads.
    pub fn of(instances: Vec<TargetInstance>, workloads: Vec<String>) -> Self {
        let instance = |instance: TargetInstance| Instance {
            name: instance.name,
            id: instance.id,
            revision: instance.revision,
            state: instance.state,
            ready: instance.is_ready,
            restarts: instance.restarts,
            workload: instance.workload,
        };
        let workloads = if workloads.len() > 1 { workloads } else { Vec::new() };
        Self { instances: instances.into_iter().map(instance).collect(), workloads }
    }
}

/// A line of an instance's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceLogLine {
    /// The time at which the platform received it.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
    /// The text as the app wrote it: a terminal must not get its control characters.
    pub text: String,
}

/// A part of an instance's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceLog {
    /// The lines, oldest first.
    pub lines: Vec<InstanceLogLine>,
    /// The place behind the last line: `after` of the call that reads on.
    pub next: String,
    /// Whether more lines are there already.
    pub more: bool,
}

impl InstanceLog {
    /// Returns the answer for this part.
    pub fn of(part: InstanceLogPart) -> Self {
        let lines = part.lines.into_iter().map(|line| InstanceLogLine { at: line.at, text: line.text });
        Self { lines: lines.collect(), next: part.next.to_string(), more: part.has_more }
    }

    /// Returns the place behind the last line; that before the first one if a newer server writes it otherwise.
    pub fn position(&self) -> LogPosition {
        self.next.parse().unwrap_or_default()
    }
}
