//! Deploys: the history, and every operation that adds an entry to it or ends one.

use std::{fmt, str::FromStr, time::Duration};

use rollhook_core::{
    action::Action,
    app::AppId,
    deploy::{Revision, Scale},
    lock::LockReason,
    ports::Page,
    request::{self, PromoteRequest, ScaleRequest},
    service::{Authorized, Deployer, LogPart},
    text::words,
};
use rollhook_management::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Deploy, DeployAnswer, DeployList, DeployPost, Local, Operation, Promote, Rebuild, Rollback, RollbackAnswer,
    RolledBackTo, ScalePost, Standing, Until, VerdictPost,
    endpoint::{Credentials, Endpoint},
    openapi::{PAGE_MAX, schemas},
    query::{self, PageSize},
};

/// The number of entries of a page, unless the query has another.
const PAGE: usize = 20;

/// The query of a history.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeploysQuery {
    /// At most this many.
    #[serde(with = "query::page_size", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize", range(min = 1, max = PAGE_MAX))]
    pub limit: Option<PageSize>,
    /// Only revisions below this one: `next` of the part before.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", extend("minimum" = 1, "maximum" = u64::MAX))]
    pub before: Option<Revision>,
}

impl DeploysQuery {
    /// Returns the query of at most so many entries before a revision.
    pub fn page(before: Option<Revision>, limit: usize) -> Self {
        Self { limit: Some(PageSize::new(limit)), before }
    }
}

/// The query of an entry.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeployQuery {
    /// With `Prefer`: answer already once the entry's `step` is above this number, or the progress of its rollout has
    /// changed.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", extend("maximum" = u32::MAX))]
    pub seen: Option<u32>,
    /// With `seen`: the `mark` of the progress that the caller knows, so that what was observed since is answered at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
}

impl DeployQuery {
    /// Returns the query for what follows this reading of an entry.
    pub fn after(last: &Deploy) -> Self {
        let mark = last.progress.as_ref().and_then(|progress| progress.mark.clone());
        Self { seen: Some(last.step), mark }
    }

    /// Returns the condition that the caller waits for.
    pub fn until(&self) -> Until<'_> {
        self.seen.map_or(Until::Ended, |seen| Until::Changed(seen, self.mark.as_deref()))
    }
}

/// A step of a deploy that writes a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStep {
    /// The build of a git app's commit.
    #[default]
    Build,
    /// The release command.
    Release,
}

words! { LogStep:
    Build = "build",
    Release = "release",
}

impl FromStr for LogStep {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let step = [Self::Build, Self::Release].into_iter().find(|step| step.as_str() == text);
        step.ok_or("must be build or release")
    }
}

impl LogStep {
    /// Returns a part of the step's log, as [`Deployer::build_log`] and [`Deployer::release_log`].
    ///
    /// # Errors
    /// As these.
    pub async fn read(
        self,
        deployer: &Deployer,
        access: &Authorized,
        (revision, from): (Revision, u64),
        follow: bool,
    ) -> Result<LogPart, request::Refusal> {
        match self {
            Self::Build => deployer.build_log(access, revision, from, follow).await,
            Self::Release => deployer.release_log(access, revision, from, follow).await,
        }
    }
}

/// The query of a log.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogQuery {
    /// The step whose log it is: `build`, or `release` for the release command.
    #[serde(with = "query::log_step", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::log_step")]
    pub step: Option<LogStep>,
    /// Only what follows this many bytes.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", extend("maximum" = u64::MAX))]
    pub from: Option<u64>,
    /// Answer with what is written until the step has ended.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub follow: Option<bool>,
}

/// The log of a build or a release command: plain text on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct LogText(pub Vec<u8>);

/// Lists an app's history, newest first and without evidence.
pub struct ListDeploys;

impl Operation for ListDeploys {
    type Subject = AppId;
    type Input = DeploysQuery;
    type Answer = DeployList;

    const ENDPOINT: Endpoint = Endpoint::get("/api/v1/apps/{namespace}/{app}/deploys", "The history, newest first");

    async fn perform(caller: &Local, id: &AppId, query: DeploysQuery) -> Result<DeployList, Refusal> {
        let limit = query.limit.map_or(PAGE, PageSize::get);
        let access = caller.open(id).await?;
        let page = Page::newest(limit).below(query.before);
        let _turn = caller.deployer().history_turn(&access, limit).await;
        let (state, entries) = caller.deployer().history(&access, page).await?;
        let oldest = entries.last().map(|entry| entry.revision);
        let next = oldest.filter(|oldest| entries.len() == limit && *oldest > Revision::FIRST);
        let restorations = caller.deployer().restorations(&state, &entries).await?;
        let deploy = |(entry, restoration)| {
            Deploy::shown(caller.deployer(), &state, entry).restored(restoration).without_evidence()
        };
        let deploys = entries.iter().zip(&restorations).map(deploy).collect();
        Ok(DeployList { deploys, next })
    }
}

/// Shows an entry with its evidence.
pub struct ShowDeploy;

impl Operation for ShowDeploy {
    type Subject = (AppId, Revision);
    type Input = DeployQuery;
    type Answer = Deploy;

    const ENDPOINT: Endpoint =
        Endpoint::get("/api/v1/apps/{namespace}/{app}/deploys/{revision}", "One entry with its evidence")
            .with(Credentials::ApiTokenOrServiceToken)
            .waiting();

    async fn perform(
        caller: &Local,
        (id, revision): &(AppId, Revision),
        query: DeployQuery,
    ) -> Result<Deploy, Refusal> {
        let access = caller.open(id).await?;
        Ok(Deploy::read(caller.deployer(), &access, *revision, (query.until(), Duration::ZERO)).await?)
    }
}

/// Deploys an image, builds a commit of a git app, or deploys what is current once more.
pub struct DeployApp;

impl Operation for DeployApp {
    type Subject = AppId;
    type Input = DeployPost;
    type Answer = DeployAnswer;

    const ENDPOINT: Endpoint = Endpoint::new("POST", "/api/v1/apps/{namespace}/{app}/deploys", 202, "Deploy by hand")
        .keyed("deploy")
        .waiting();

    async fn perform(caller: &Local, id: &AppId, post: DeployPost) -> Result<DeployAnswer, Refusal> {
        let redeploy = post.redeploy(caller.key.clone())?;
        let request = post.parse(caller.key.clone())?;
        let access = allow(caller, id, post.break_glass()?).await?;
        let accepted = match redeploy {
            Some(redeploy) => caller.deployer().redeploy(&access, redeploy).await?,
            None => caller.deployer().submit(&access, request).await?,
        };
        Ok(DeployAnswer::accepted(id, &accepted))
    }
}

/// Stops an app: no instance is left, until it is started.
pub struct StopApp;

impl Operation for StopApp {
    type Subject = AppId;
    type Input = ScalePost;
    type Answer = DeployAnswer;

    const ENDPOINT: Endpoint = Endpoint::new("POST", "/api/v1/apps/{namespace}/{app}/stop", 202, "Stop an app")
        .keyed("stop")
        .waiting()
        .with_optional_body();

    async fn perform(caller: &Local, id: &AppId, post: ScalePost) -> Result<DeployAnswer, Refusal> {
        scale(caller, id, post, Scale::Stop).await
    }
}

/// Starts an app that is stopped, with as many instances as there were.
pub struct StartApp;

impl Operation for StartApp {
    type Subject = AppId;
    type Input = ScalePost;
    type Answer = DeployAnswer;

    const ENDPOINT: Endpoint =
        Endpoint::new("POST", "/api/v1/apps/{namespace}/{app}/start", 202, "Start a stopped app")
            .keyed("start")
            .waiting()
            .with_optional_body();

    async fn perform(caller: &Local, id: &AppId, post: ScalePost) -> Result<DeployAnswer, Refusal> {
        scale(caller, id, post, Scale::Start).await
    }
}

async fn scale(caller: &Local, id: &AppId, post: ScalePost, scale: Scale) -> Result<DeployAnswer, Refusal> {
    let request = ScaleRequest::new(scale).with(|request| {
        request.if_current = post.if_current;
        request.key = caller.key.clone();
    });
    let access = allow(caller, id, post.break_glass()?).await?;
    Ok(DeployAnswer::accepted(id, &caller.deployer().scale(&access, request).await?))
}

/// Returns the proof that the caller may deploy, also in spite of a lock with a reason for that.
async fn allow(caller: &Local, id: &AppId, reason: Option<LockReason>) -> Result<Authorized, Refusal> {
    match reason {
        Some(reason) => caller.management.break_glass(&caller.principal, id, &reason).await,
        None => caller.allow(id, Action::Deploy).await,
    }
}

/// Builds a commit of a git app again; without a commit, the head of its branch.
pub struct RebuildApp;

impl Operation for RebuildApp {
    type Subject = AppId;
    type Input = Rebuild;
    type Answer = DeployAnswer;

    const ENDPOINT: Endpoint =
        Endpoint::new("POST", "/api/v1/apps/{namespace}/{app}/rebuild", 202, "Build a commit of a git app")
            .keyed("rebuild")
            .waiting()
            .with_optional_body();

    async fn perform(caller: &Local, id: &AppId, rebuild: Rebuild) -> Result<DeployAnswer, Refusal> {
        let commit = rebuild.parse()?;
        let access = caller.allow(id, Action::Rebuild).await?;
        Ok(DeployAnswer::accepted(id, &caller.deployer().rebuild(&access, commit, caller.key.clone()).await?))
    }
}

/// Reads the log of a build or a release command as it is now.
pub struct ReadBuildLog;

impl Operation for ReadBuildLog {
    type Subject = (AppId, Revision);
    type Input = LogQuery;
    type Answer = LogText;

    const ENDPOINT: Endpoint = Endpoint::get(
        "/api/v1/apps/{namespace}/{app}/deploys/{revision}/log",
        "The log of a git app's build, or of the release command",
    );

    fn read(answer: &[u8]) -> serde_json::Result<LogText> {
        Ok(LogText(answer.to_vec()))
    }

    async fn perform(caller: &Local, (id, revision): &(AppId, Revision), query: LogQuery) -> Result<LogText, Refusal> {
        let access = caller.open(id).await?;
        let position = (*revision, query.from.unwrap_or(0));
        let part = query.step.unwrap_or_default().read(caller.deployer(), &access, position, false).await?;
        Ok(LogText(part.bytes))
    }
}

/// Ends an unfinished deploy.
pub struct CancelDeploy;

impl Operation for CancelDeploy {
    type Subject = (AppId, Revision);
    type Input = ();
    type Answer = Deploy;

    const ENDPOINT: Endpoint =
        Endpoint::new("POST", "/api/v1/apps/{namespace}/{app}/deploys/{revision}/cancel", 200, "End a deploy at once");

    async fn perform(caller: &Local, subject: &(AppId, Revision), (): ()) -> Result<Deploy, Refusal> {
        let (id, revision) = subject;
        caller.deployer().cancel(&caller.allow(id, Action::Cancel).await?, *revision).await?;
        caller.call(ShowDeploy, subject, DeployQuery::default()).await
    }
}

/// Decides on a deploy in the place of checks that came to no verdict. The same decision of the same person may be repeated.
pub struct DecideDeploy;

impl Operation for DecideDeploy {
    type Subject = (AppId, Revision);
    type Input = VerdictPost;
    type Answer = Deploy;

    const ENDPOINT: Endpoint = Endpoint::new(
        "POST",
        "/api/v1/apps/{namespace}/{app}/deploys/{revision}/verdict",
        200,
        "Decide in the place of checks without a verdict",
    );

    async fn perform(caller: &Local, subject: &(AppId, Revision), post: VerdictPost) -> Result<Deploy, Refusal> {
        let (id, revision) = subject;
        let ruling = post.parse()?;
        caller.deployer().decide(&caller.allow(id, Action::Decide).await?, *revision, ruling).await?;
        caller.call(ShowDeploy, subject, DeployQuery::default()).await
    }
}

/// Returns an app to an earlier revision.
pub struct RollBack;

impl Operation for RollBack {
    type Subject = AppId;
    type Input = Rollback;
    type Answer = RollbackAnswer;

    const ENDPOINT: Endpoint = Endpoint::new("POST", "/api/v1/apps/{namespace}/{app}/rollback", 202, "Roll back")
        .keyed("rollback")
        .with_optional_body();

    async fn perform(caller: &Local, id: &AppId, rollback: Rollback) -> Result<RollbackAnswer, Refusal> {
        let request = rollback.parse(caller.key.clone());
        Ok(RollbackAnswer::of(id, &caller.management().roll_back(&caller.principal, id, request).await?))
    }
}

/// The query of a planned rollback.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RollbackQuery {
    /// The rollback that brings the version's configuration back as well, of which another version may be the last good one.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub with_config: Option<bool>,
    /// The revision that the rollback names; by default, it goes to the last good version.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", extend("minimum" = 1, "maximum" = u64::MAX))]
    pub revision: Option<Revision>,
}

/// Shows the version that a rollback would return to.
pub struct PlanRollback;

impl Operation for PlanRollback {
    type Subject = AppId;
    type Input = RollbackQuery;
    type Answer = RolledBackTo;

    const ENDPOINT: Endpoint =
        Endpoint::get("/api/v1/apps/{namespace}/{app}/rollback", "The version that a rollback returns to");

    async fn perform(caller: &Local, id: &AppId, query: RollbackQuery) -> Result<RolledBackTo, Refusal> {
        let with_config = query.with_config.unwrap_or_default();
        let request = Rollback { revision: query.revision, with_config, ..Rollback::default() }.parse(None);
        // Its search takes the turns of rollbacks.
        let access = caller.allow(id, Action::Rollback).await?;
        let target = caller.deployer().rollback_target(&access, &request).await?;
        let standing = Standing::read(caller.deployer(), &access).await?;
        let revoked = Deploy::of(id, &target, &standing).revoked;
        Ok(RolledBackTo { revoked, ..RolledBackTo::of(&target, with_config) })
    }
}

/// Deploys the current image of another environment's app.
pub struct PromoteApp;

impl Operation for PromoteApp {
    type Subject = AppId;
    type Input = Promote;
    type Answer = DeployAnswer;

    const ENDPOINT: Endpoint =
        Endpoint::new("POST", "/api/v1/apps/{namespace}/{app}/promote", 202, "Deploy what another environment runs")
            .keyed("promote")
            .waiting();

    async fn perform(caller: &Local, id: &AppId, promote: Promote) -> Result<DeployAnswer, Refusal> {
        let (from, key) = (promote.parse(id)?, caller.key.clone());
        let request = PromoteRequest::new(from).with(|request| {
            request.if_current = promote.if_current;
            request.without_variables = promote.without_variables;
            request.key = key;
        });
        Ok(DeployAnswer::accepted(id, &caller.management.promote(&caller.principal, id, request).await?))
    }
}
