//! The commands that were run by hand: the list, and one of them with its log, which goes on as it is written.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    Kind, Run,
    operations::{ListRuns, LogText, ReadRunLog, RunLogQuery, ShowApp, ShowRun},
    words::command_line,
};
use rollhook_core::{
    app::AppId,
    run::{RunNumber, RunStatus},
    text::escaped,
};

use super::entry::{Log, shown};
use crate::{
    console::Call,
    host::{CallerOperations, Failure},
    reply::{self, Reply},
    view::{Frame, Head, Image, Mark, When},
};

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage<'a> {
    frame: &'a Frame,
    head: &'a Head,
    runs: Vec<Row>,
    is_unfinished: bool,
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage<'a> {
    frame: &'a Frame,
    head: &'a Head,
    run: Row,
    image: Image,
    deadline: String,
    ended: Option<When>,
    message: Option<String>,
    log: Option<Log>,
}

/// A run, as the list shows it.
struct Row {
    number: RunNumber,
    href: String,
    command: String,
    mark: Mark,
    exit_code: Option<i32>,
    who: String,
    when: When,
    cancelled_by: Option<String>,
    is_unfinished: bool,
}

impl Row {
    fn new(path: &str, run: &Run, frame: &Frame) -> Self {
        Self {
            number: run.number,
            href: format!("{path}/runs/{}", run.number),
            command: escaped(&command_line(&run.command)),
            mark: mark(run.status),
            exit_code: run.exit_code,
            who: escaped(&run.actor),
            when: When::new(run.created_at, frame.now),
            cancelled_by: run.cancelled_by.as_deref().map(escaped),
            is_unfinished: !run.is_ended(),
        }
    }
}

fn mark(status: RunStatus) -> Mark {
    match status {
        RunStatus::Preparing | RunStatus::Running => Mark::busy(status.as_str()),
        RunStatus::Succeeded => Mark::answer(200, status.as_str().to_owned()),
        RunStatus::Failed => Mark::answer(400, status.as_str().to_owned()),
        RunStatus::Cancelled => Mark::nothing(status.as_str()),
        RunStatus::Unknown => Mark::warning(status.as_str()),
    }
}

/// Answers `GET …/runs`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    let list = operations.call(ListRuns, id, ()).await?;
    let (frame, head) = (call.frame(), Head::new(&app, "runs"));
    let runs: Vec<Row> = list.runs.iter().map(|run| Row::new(&head.path, run, &frame)).collect();
    let is_unfinished = runs.iter().any(|run| run.is_unfinished);
    Ok(reply::html(StatusCode::OK, &RunsPage { frame: &frame, head: &head, runs, is_unfinished }))
}

/// Answers `GET …/runs/{run}`.
pub(crate) async fn show(call: &Call<'_>, id: &AppId, number: RunNumber) -> Result<Reply, Failure> {
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    let run = operations.call(ShowRun, &(id.clone(), number), ()).await?;
    let log = run_log(&operations, id, &run, 0).await?;
    let (frame, head) = (call.frame(), Head::new(&app, "runs"));
    let page = RunPage {
        frame: &frame,
        head: &head,
        run: Row::new(&head.path, &run, &frame),
        image: Image::new(&run.image),
        deadline: run.deadline.clone(),
        ended: run.is_ended().then(|| When::new(run.updated_at, frame.now)),
        message: run.message.as_deref().map(escaped),
        log,
    };
    Ok(reply::html(StatusCode::OK, &page))
}

/// Answers `GET …/runs/{run}/log`: the log's continuation from a byte on.
pub(crate) async fn log(call: &Call<'_>, id: &AppId, number: RunNumber) -> Result<Reply, Failure> {
    let operations = call.operations();
    let run = operations.call(ShowRun, &(id.clone(), number), ()).await?;
    let from = call.request.query("from").and_then(|from| from.parse().ok()).unwrap_or(0);
    let log = run_log(&operations, id, &run, from).await?;
    Ok(reply::html(StatusCode::OK, &log.unwrap_or(Log { html: String::new(), next: None })))
}

/// Returns a run's log from a byte on; `None` if there is none.
async fn run_log(operations: &CallerOperations, id: &AppId, run: &Run, from: u64) -> Result<Option<Log>, Failure> {
    let goes_on = !run.is_ended();
    let query = RunLogQuery { from: Some(from), follow: None };
    let is_away = |kind| matches!(kind, Kind::NoRunLog | Kind::BuilderUnavailable | Kind::ClusterUnavailable);
    let bytes = match operations.call(ReadRunLog, &(id.clone(), run.number), query).await {
        Ok(LogText(bytes)) => bytes,
        // The command may begin yet, and its platform come back.
        Err(failure) if is_away(failure.kind) && goes_on => Vec::new(),
        Err(failure) if is_away(failure.kind) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let (html, next) = shown(&bytes, from, goes_on);
    let path = format!("/apps/{}/{}/runs/{}/log", id.namespace, id.name, run.number);
    Ok(Some(Log { html, next: next.map(|from| format!("{path}?from={from}")) }))
}
