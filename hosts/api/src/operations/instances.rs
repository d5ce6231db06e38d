//! Instances of an app, and their logs.

use std::{fmt, str::FromStr};

use rollhook_core::{
    app::AppId,
    instance::InstanceName,
    ports::{self, LOG_LINES, LOG_LINES_MAX, LogPosition},
};
use rollhook_management::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{InstanceList, InstanceLog, Local, Operation, endpoint::Endpoint, query};

/// A number of lines, within the bounds of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines(usize);

impl Lines {
    /// Returns a number of lines, within the bounds.
    pub fn new(lines: usize) -> Self {
        Self(lines.clamp(1, LOG_LINES_MAX))
    }
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Lines {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let lines = text.parse().ok().filter(|lines| (1..=LOG_LINES_MAX).contains(lines));
        lines.map(Self).ok_or("must be from 1 to 1000")
    }
}

/// The query of an instance's log.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InstanceLogQuery {
    /// The log of its life before the last restart.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub previous: Option<bool>,
    /// At most this many lines; 100 unless it is given.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize", range(min = 1, max = LOG_LINES_MAX))]
    pub limit: Option<Lines>,
    /// The lines that follow this place, oldest first: `next` of an earlier part. Without it, the newest lines.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("pattern" = "^[0-9]{1,19}\\.[0-9]{1,9}$"))]
    pub after: Option<LogPosition>,
}

impl InstanceLogQuery {
    fn parse(&self) -> ports::LogQuery {
        ports::LogQuery {
            previous: self.previous.unwrap_or(false),
            lines: self.limit.map_or(LOG_LINES, |limit| limit.0),
            after: self.after,
        }
    }
}

/// The query of an app's instances.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InstancesQuery {
    /// Only those of this workload of an app that has several: `Deployment/worker`, or `worker` where no other is called so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub workload: Option<String>,
}

/// Lists the instances of an app.
pub struct ListInstances;

impl Operation for ListInstances {
    type Subject = AppId;
    type Input = InstancesQuery;
    type Answer = InstanceList;

    const ENDPOINT: Endpoint = Endpoint::get(
        "/api/v1/apps/{namespace}/{app}/instances",
        "The app's instances, those of the newest revision first",
    );

    async fn perform(caller: &Local, id: &AppId, query: InstancesQuery) -> Result<InstanceList, Refusal> {
        let (access, deployer) = (caller.open(id).await?, caller.deployer());
        let instances = deployer.instances(&access, query.workload.as_deref()).await?;
        Ok(InstanceList::of(instances, deployer.logged_workloads(&access).await?))
    }
}

/// Reads a part of an instance's log.
pub struct ReadInstanceLog;

impl Operation for ReadInstanceLog {
    type Subject = (AppId, InstanceName);
    type Input = InstanceLogQuery;
    type Answer = InstanceLog;

    const ENDPOINT: Endpoint = Endpoint::get(
        "/api/v1/apps/{namespace}/{app}/instances/{instance}/log",
        "The log of an instance: the newest lines, or those after a place",
    );

    async fn perform(
        caller: &Local,
        (id, instance): &(AppId, InstanceName),
        query: InstanceLogQuery,
    ) -> Result<InstanceLog, Refusal> {
        let access = caller.open(id).await?;
        Ok(InstanceLog::of(caller.deployer().instance_log(&access, instance, &query.parse()).await?))
    }
}
