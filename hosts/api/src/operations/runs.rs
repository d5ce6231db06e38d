//! Commands by hand.

use std::time::Duration;

use rollhook_core::{app::AppId, run::RunNumber};
use rollhook_management::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LogText;
use crate::{Local, Operation, Run, RunList, RunPost, endpoint::Endpoint, query};

/// Runs a command once with the app's current image.
pub struct StartRun;

impl Operation for StartRun {
    type Subject = AppId;
    type Input = RunPost;
    type Answer = Run;

    const ENDPOINT: Endpoint = Endpoint::new(
        "POST",
        "/api/v1/apps/{namespace}/{app}/runs",
        201,
        "Run a command by hand with the app's current image",
    )
    .keyed("run");

    async fn perform(caller: &Local, id: &AppId, post: RunPost) -> Result<Run, Refusal> {
        let request = post.parse(caller.key.clone())?;
        let accepted = caller.management.begin_run(&caller.principal, id, request).await?;
        Ok(Run { replayed: accepted.replayed, ..Run::of(id, &accepted.run) })
    }
}

/// Lists an app's runs by hand, newest first.
pub struct ListRuns;

impl Operation for ListRuns {
    type Subject = AppId;
    type Input = ();
    type Answer = RunList;

    const ENDPOINT: Endpoint =
        Endpoint::get("/api/v1/apps/{namespace}/{app}/runs", "The commands that were run by hand, newest first");

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<RunList, Refusal> {
        let runs = caller.deployer().runs(&caller.open(id).await?).await?;
        Ok(RunList { runs: runs.iter().map(|run| Run::of(id, run)).collect() })
    }
}

/// Shows a run by hand.
pub struct ShowRun;

impl Operation for ShowRun {
    type Subject = (AppId, RunNumber);
    type Input = ();
    type Answer = Run;

    const ENDPOINT: Endpoint =
        Endpoint::get("/api/v1/apps/{namespace}/{app}/runs/{run}", "One command that was run by hand").waiting();

    async fn perform(caller: &Local, (id, number): &(AppId, RunNumber), (): ()) -> Result<Run, Refusal> {
        let access = caller.open(id).await?;
        Ok(Run::of(id, &*caller.deployer().wait_for_run(&access, *number, Duration::ZERO).await?))
    }
}

/// The query of a run's log.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunLogQuery {
    /// Only what follows this many bytes.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", extend("maximum" = u64::MAX))]
    pub from: Option<u64>,
    /// Answer with what is written until the run has ended.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub follow: Option<bool>,
}

/// Reads the log of a run as it is now.
pub struct ReadRunLog;

impl Operation for ReadRunLog {
    type Subject = (AppId, RunNumber);
    type Input = RunLogQuery;
    type Answer = LogText;

    const ENDPOINT: Endpoint =
        Endpoint::get("/api/v1/apps/{namespace}/{app}/runs/{run}/log", "The log of a command that was run by hand");

    fn read(answer: &[u8]) -> serde_json::Result<LogText> {
        Ok(LogText(answer.to_vec()))
    }

    async fn perform(
        caller: &Local,
        (id, number): &(AppId, RunNumber),
        query: RunLogQuery,
    ) -> Result<LogText, Refusal> {
        let access = caller.open(id).await?;
        let part = caller.deployer().run_log(&access, *number, query.from.unwrap_or(0), false).await?;
        Ok(LogText(part.bytes))
    }
}

/// Asks for the end of a run.
pub struct CancelRun;

impl Operation for CancelRun {
    type Subject = (AppId, RunNumber);
    type Input = ();
    type Answer = Run;

    const ENDPOINT: Endpoint =
        Endpoint::new("POST", "/api/v1/apps/{namespace}/{app}/runs/{run}/cancel", 200, "End a command by hand");

    async fn perform(caller: &Local, (id, number): &(AppId, RunNumber), (): ()) -> Result<Run, Refusal> {
        Ok(Run::of(id, &caller.management.cancel_run(&caller.principal, id, *number).await?))
    }
}
