//! An app's instances, and the log of one of them, which goes on as it is written.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    Instance, InstanceLog, Kind,
    operations::{InstanceLogQuery, InstancesQuery, Lines, ListInstances, ReadInstanceLog, ShowApp},
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
    /// The workloads to choose from; empty for an app with one.
    choices: Vec<Choice>,
    /// The part of a query that names the chosen workload, begun with `&`; empty for all.
    chosen: String,
}

/// A workload whose instances can be shown alone, or all of them.
struct Choice {
    name: String,
    /// The part of a query that chooses it, begun with `?`; empty for all.
    query: String,
    is_shown: bool,
}

/// The instances that a call asks for.
struct Found {
    instances: Vec<Instance>,
    /// The names of several workloads.
    workloads: Vec<String>,
    /// The workload that was asked for; `None`: all.
    chosen: Option<String>,
    /// Why no instances can be shown.
    none: Option<String>,
}

/// Returns the text as it stands in a query.
fn in_query(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

impl Found {
    fn choices(&self) -> Vec<Choice> {
        let choice = |name: &String| Choice {
            name: escaped(name),
            query: format!("?workload={}", in_query(name)),
            is_shown: self.chosen.as_ref() == Some(name),
        };
        let all = Choice { name: "All".to_owned(), query: String::new(), is_shown: self.chosen.is_none() };
        let all = (!self.workloads.is_empty()).then_some(all);
        all.into_iter().chain(self.workloads.iter().map(choice)).collect()
    }

    /// Returns what further paths carry of the choice.
    fn query(&self) -> String {
        self.chosen.as_ref().map(|name| format!("&workload={}", in_query(name))).unwrap_or_default()
    }
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
    let found = instances(call, &operations, id).await?;
    let instances = &found.instances;
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
    let list = List::new(&head.path, &found, shown_id.map(|instance| &instance.id));
    Ok(reply::html(StatusCode::OK, &LogsPage { frame: &frame, head: &head, list: &list, shown }))
}

/// Answers `GET …/logs/list`: the list as it is by now.
pub(crate) async fn list(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let found = instances(call, &call.operations(), id).await?;
    let path = format!("/apps/{}/{}", id.namespace, id.name);
    let shown = Asked::of(call).map(|asked| asked.instance);
    Ok(reply::html(StatusCode::OK, &List::new(&path, &found, shown.as_ref())))
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

/// Returns the instances of the workload that the call's query names, or of all; or why none can be shown. A workload that the
/// app does not have any more is none that was asked for.
async fn instances(call: &Call<'_>, operations: &CallerOperations, id: &AppId) -> Result<Found, Failure> {
    let found = |instances, workloads, chosen, none: Option<&str>| Found {
        instances,
        workloads,
        chosen,
        none: none.map(str::to_owned),
    };
    let asked = call.request.query("workload").filter(|asked| !asked.is_empty());
    let listed = operations.call(ListInstances, id, InstancesQuery { workload: asked.clone() }).await;
    let (listed, chosen) = match listed {
        Err(failure) if failure.kind == Kind::NoSuchWorkload => {
            (operations.call(ListInstances, id, InstancesQuery::default()).await, None)
        }
        listed => (listed, asked),
    };
    match listed {
        Ok(list) => {
            let none = list.instances.is_empty();
            let none = none.then_some("There are no instances: nothing was started yet, or all are gone.");
            Ok(found(list.instances, list.workloads, chosen, none))
        }
        Err(failure) if matches!(failure.kind, Kind::NoInstanceLogs | Kind::ClusterUnavailable) => {
            Ok(found(Vec::new(), Vec::new(), None, Some(&failure.problem.detail)))
        }
        Err(failure) => Err(failure),
    }
}

impl List {
    fn new(path: &str, found: &Found, shown: Option<&InstanceName>) -> Self {
        let row = |instance: &Instance| Row {
            name: escaped(instance.name.as_str()),
            id: instance.id.clone(),
            revision: instance.revision.map(|revision| revision.get()),
            state: escaped(&instance.state),
            is_ready: instance.ready,
            restarts: instance.restarts,
            is_shown: shown == Some(&instance.id),
        };
        let chosen = found.query();
        let query = match shown {
            Some(shown) => format!("?instance={shown}{chosen}"),
            None => chosen.replacen('&', "?", 1),
        };
        Self {
            path: path.to_owned(),
            next: Some(format!("{path}/logs/list{query}")),
            instances: found.instances.iter().map(row).collect(),
            none: found.none.clone(),
            choices: found.choices(),
            chosen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(workloads: &[&str], chosen: Option<&str>) -> String {
        let instance = Instance {
            name: "worker-1".parse().unwrap(),
            id: "worker-1".parse().unwrap(),
            revision: None,
            state: String::new(),
            ready: true,
            restarts: 1,
            workload: None,
        };
        let found = Found {
            instances: vec![instance],
            workloads: workloads.iter().map(|name| (*name).to_owned()).collect(),
            chosen: chosen.map(str::to_owned),
            none: None,
        };
        List::new("/apps/shop-test/api", &found, None).render().unwrap()
    }

    #[test]
    fn workloads_of_several_are_a_choice_that_further_links_keep() {
        let html = list(&["Deployment/web", "Deployment/worker"], Some("Deployment/worker"));
        let logs = "/apps/shop-test/api/logs";
        for part in [
            format!(r#"<a href="{logs}">All</a>"#),
            format!(r#"<a href="{logs}?workload=Deployment%2Fweb">Deployment/web</a>"#),
            format!(r#"<a href="{logs}?workload=Deployment%2Fworker" aria-current="true">Deployment/worker</a>"#),
            format!(r#"hx-get="{logs}/list?workload=Deployment%2Fworker""#),
        ] {
            assert!(html.contains(&part), "{part}: {html}");
        }
        assert_eq!(html.matches("workload=Deployment%2Fworker\"").count(), 4, "both links of the instance too: {html}");
        let all = list(&["Deployment/web", "Deployment/worker"], None);
        assert!(all.contains(&format!(r#"<a href="{logs}" aria-current="true">All</a>"#)), "{all}");
    }

    #[test]
    fn app_with_one_workload_has_no_choice() {
        let html = list(&[], None);
        assert!(!html.contains("Workloads") && !html.contains("workload="), "{html}");
    }
}
