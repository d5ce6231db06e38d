//! An app's instances, and the log of one of them, which goes on as it is written.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    Instance, InstanceLog, Kind,
    operations::{InstanceLogQuery, Lines, ListInstances, ReadInstanceLog, ShowApp},
};
use rollhook_core::{
    app::AppId,
    instance::InstanceName,
    ports::{LOG_LINES, LOG_LINES_MAX, LogPosition},
    text::escaped,
};

use super::entry::Log;
use crate::{
    ansi,
    console::Call,
    host::{CallerOperations, Failure},
    reply::{self, Reply},
    view::{Frame, Head},
};

/// The most lines that a page adds to its log by itself: a browser keeps all of them.
const FOLLOWED_MAX: usize = 20_000;

#[derive(Template)]
#[template(path = "logs.html")]
struct LogsPage<'a> {
    frame: &'a Frame,
    head: &'a Head,
    list: &'a List,
    shown: Option<Shown>,
}

/// The instances.
#[derive(Template)]
#[template(path = "_instances.html")]
struct List {
    /// The path of the page.
    path: String,
    /// The path of the list's next state.
    next: Option<String>,
    instances: Vec<Row>,
    /// Why there are none.
    none: Option<String>,
}

/// An instance of the list.
struct Row {
    name: String,
    id: InstanceName,
    revision: Option<u64>,
    state: String,
    is_ready: bool,
    restarts: u32,
    is_shown: bool,
}

/// The instance whose log is shown.
struct Shown {
    name: String,
    previous: bool,
    has_text: bool,
    log: Log,
}

/// The part of a log that is asked for.
struct Asked {
    instance: InstanceName,
    previous: bool,
    after: Option<LogPosition>,
    /// The lines that the page has already.
    read: usize,
}

impl Asked {
    /// Returns what the call's query asks for; `None` if it names no instance.
    fn of(call: &Call<'_>) -> Option<Self> {
        let query = |name: &str| call.request.query(name);
        Some(Self {
            instance: query("instance")?.parse().ok()?,
            previous: query("previous").is_some(),
            after: query("after").and_then(|after| after.parse().ok()),
            read: query("read").and_then(|read| read.parse().ok()).unwrap_or(0),
        })
    }

    /// Returns the part as HTML, with the path of the next one.
    fn shown(&self, path: &str, part: &InstanceLog) -> Log {
        let text: String = part.lines.iter().map(|line| format!("{}\n", line.text)).collect();
        let read = self.read.saturating_add(part.lines.len());
        let goes_on = !self.previous && read < FOLLOWED_MAX;
        let mut html = ansi::html(&text);
        if !self.previous && !goes_on {
            html.push_str("[The page does not follow the log any further: load it again.]\n");
        }
        let next = format!("{path}/logs/more?instance={}&after={}&read={read}", self.instance, part.next);
        Log { html, next: goes_on.then_some(next) }
    }

    async fn read(&self, operations: &CallerOperations, id: &AppId) -> Result<InstanceLog, Failure> {
        let query = InstanceLogQuery {
            previous: self.previous.then_some(true),
            limit: Some(Lines::new(if self.after.is_some() { LOG_LINES_MAX } else { LOG_LINES })),
            after: self.after,
        };
        operations.call(ReadInstanceLog, &(id.clone(), self.instance.clone()), query).await
    }
}

/// Answers `GET …/logs`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    let (frame, head) = (call.frame(), Head::new(&app, "logs"));
    let (instances, none) = instances(&operations, id).await?;
    let asked = Asked::of(call);
    let shown = match &asked {
        Some(asked) => instances.iter().find(|instance| instance.id == asked.instance),
        // What is in trouble is looked at first.
        None => instances.iter().find(|instance| !instance.ready).or(instances.first()),
    };
    let shown = match shown {
        Some(instance) => {
            let previous = asked.is_some_and(|asked| asked.previous);
            let asked = Asked { instance: instance.id.clone(), previous, after: None, read: 0 };
            match asked.read(&operations, id).await {
                Ok(part) => Some(Shown {
                    name: escaped(instance.name.as_str()),
                    previous,
                    has_text: !part.lines.is_empty(),
                    log: asked.shown(&head.path, &part),
                }),
                // It is gone since it was listed.
                Err(failure) if failure.kind == Kind::NoSuchInstance => None,
                Err(failure) => return Err(failure),
            }
        }
        None => None,
    };
    let shown_id = shown.as_ref().and_then(|shown| instances.iter().find(|it| it.name.as_str() == shown.name));
    let list = List::new(&head.path, &instances, shown_id.map(|instance| &instance.id), none);
    Ok(reply::html(StatusCode::OK, &LogsPage { frame: &frame, head: &head, list: &list, shown }))
}

/// Answers `GET …/logs/list`: the list as it is by now.
pub(crate) async fn list(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let (instances, none) = instances(&call.operations(), id).await?;
    let path = format!("/apps/{}/{}", id.namespace, id.name);
    let shown = Asked::of(call).map(|asked| asked.instance);
    Ok(reply::html(StatusCode::OK, &List::new(&path, &instances, shown.as_ref(), none)))
}

/// Answers `GET …/logs/more`: the log's continuation behind a place.
pub(crate) async fn more(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let path = format!("/apps/{}/{}", id.namespace, id.name);
    let asked = Asked::of(call).map(|asked| Asked { after: Some(asked.after.unwrap_or_default()), ..asked });
    let gone = || Log { html: "[The instance is gone: choose another one.]\n".to_owned(), next: None };
    let Some(asked) = asked else { return Ok(reply::html(StatusCode::OK, &gone())) };
    let log = match asked.read(&call.operations(), id).await {
        Ok(part) => asked.shown(&path, &part),
        Err(failure) if failure.kind == Kind::NoSuchInstance => gone(),
        // The cluster may come back.
        Err(failure) if failure.kind == Kind::ClusterUnavailable => {
            let (lines, more) = (Vec::new(), false);
            let next = asked.after.unwrap_or_default().to_string();
            asked.shown(&path, &InstanceLog { lines, next, more })
        }
        Err(failure) => return Err(failure),
    };
    Ok(reply::html(StatusCode::OK, &log))
}

/// Returns the instances, or why none can be shown.
async fn instances(operations: &CallerOperations, id: &AppId) -> Result<(Vec<Instance>, Option<String>), Failure> {
    match operations.call(ListInstances, id, ()).await {
        Ok(list) if list.instances.is_empty() => {
            Ok((Vec::new(), Some("There are no instances: nothing was started yet, or all are gone.".to_owned())))
        }
        Ok(list) => Ok((list.instances, None)),
        Err(failure) if matches!(failure.kind, Kind::NoInstanceLogs | Kind::ClusterUnavailable) => {
            Ok((Vec::new(), Some(failure.problem.detail)))
        }
        Err(failure) => Err(failure),
    }
}

impl List {
    fn new(path: &str, instances: &[Instance], shown: Option<&InstanceName>, none: Option<String>) -> Self {
        let row = |instance: &Instance| Row {
            name: escaped(instance.name.as_str()),
            id: instance.id.clone(),
            revision: instance.revision.map(|revision| revision.get()),
            state: escaped(&instance.state),
            is_ready: instance.ready,
            restarts: instance.restarts,
            is_shown: shown == Some(&instance.id),
        };
        let query = shown.map(|shown| format!("?instance={shown}")).unwrap_or_default();
        Self {
            path: path.to_owned(),
            next: Some(format!("{path}/logs/list{query}")),
            instances: instances.iter().map(row).collect(),
            none,
        }
    }
}
