//! Commands by hand: requests and answers.

use rollhook_core::{
    app::AppId,
    request::{Field, IdempotencyKey, Refusal, RunRequest},
    run::{self, RunNumber, RunStatus},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration, openapi::schemas, operation::Operation, operations::ShowRun};

/// A request to run a command by hand: the body of `POST …/runs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunPost {
    /// The program and its arguments, as they are: no shell reads them. At most 64, with 4096 bytes in all. The audit keeps
    /// them, so that secrets do not belong there.
    #[schemars(extend("minItems" = 1, "maxItems" = 64))]
    pub command: Vec<String>,
    /// The time that the command may take, from `1s` to `4h`; by default `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub deadline: Option<String>,
}

impl RunPost {
    /// Returns the request.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(&self, key: Option<IdempotencyKey>) -> Result<RunRequest, Refusal> {
        let deadline = match &self.deadline {
            Some(text) => Some(
                duration::parse(text)
                    .ok_or_else(|| Refusal::InvalidField(Field::Deadline, format!("{}.", duration::RULE)))?,
            ),
            None => None,
        };
        Ok(RunRequest::new(self.command.clone()).with(|request| {
            request.deadline = deadline;
            request.key = key;
        }))
    }
}

/// A run of a command by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Project and environment, joined by a hyphen.
    pub namespace: String,
    /// The app's name.
    pub app: String,
    /// The run's number, which is no revision.
    #[schemars(with = "u64")]
    pub number: RunNumber,
    /// The status.
    #[schemars(schema_with = "schemas::run_status")]
    pub status: RunStatus,
    /// The program and its arguments; of an ended run, the first 200 characters of them.
    pub command: Vec<String>,
    /// The image that runs it: the one that was current at the accept, by its digest if that is known.
    pub image: String,
    /// The person who started it.
    pub actor: String,
    /// The time that it may take.
    pub deadline: String,
    /// The time of the accept.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub created_at: Timestamp,
    /// The time of the last change; of an ended run, of its end.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub updated_at: Timestamp,
    /// Whether the command may have begun.
    pub may_have_begun: bool,
    /// The command's exit code, once it ended with one that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The person who asked for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// The reason of the end, as a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason of the end, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The path of the run, relative to the server's base URL.
    pub url: String,
    /// Whether an earlier call under the same key made it; on the wire, the header `Idempotent-Replayed`.
    #[serde(skip)]
    pub replayed: bool,
}

impl Run {
    /// Returns the answer for a run.
    pub fn of(id: &AppId, run: &run::Run) -> Self {
        let failure = run.state.failure();
        Self {
            namespace: id.namespace.to_string(),
            app: id.name.to_string(),
            number: run.number,
            status: run.status(),
            command: run.command.clone(),
            image: run.image.to_string(),
            actor: run.actor.to_string(),
            deadline: duration::format(run.deadline),
            created_at: run.created_at,
            updated_at: run.updated_at,
            may_have_begun: run.may_have_begun(),
            exit_code: run.exit_code(),
            cancelled_by: run.cancelled.as_ref().map(|cancel| cancel.by.to_string()),
            reason: failure.map(|end| end.reason.to_string()),
            message: failure.map(|end| end.message.clone()),
            url: ShowRun::ENDPOINT.path_of(&(id.clone(), run.number)),
            replayed: false,
        }
    }

    /// Returns whether the run has ended.
    pub const fn is_ended(&self) -> bool {
        !matches!(self.status, RunStatus::Preparing | RunStatus::Running)
    }
}

/// The runs by hand of an app, newest first: the unfinished one, and the last 20 that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunList {
    /// The runs.
    pub runs: Vec<Run>,
}
