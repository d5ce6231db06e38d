//! The apps: what runs where, by project, with the environments side by side.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use http::StatusCode;
use rollhook_api::{App, AppList, openapi, words::short_image};
use rollhook_core::{deploy::Status, ports::AppPage, text::escaped};

use crate::{
    console::Call,
    host::{CallerOperations, Failure},
    reply::{self, Reply},
    view::{Frame, Image, Mark, When, app_path},
};

/// The most apps that the page shows.
const SHOWN: usize = 600;

/// Names of environments in the order in which versions usually pass them; others come between, by name.
const FIRST: [&str; 6] = ["dev", "development", "ci", "test", "testing", "int"];
const LAST: [&str; 6] = ["qa", "stage", "staging", "preprod", "prod", "production"];

/// A project with its apps.
struct Project {
    name: String,
    environments: Vec<String>,
    rows: Vec<Row>,
}

/// An app in the environments of its project.
struct Row {
    name: String,
    cells: Vec<Option<Cell>>,
}

/// An app in one environment.
struct Cell {
    environment: String,
    href: String,
    label: String,
    image: Option<Image>,
    mark: Mark,
    when: Option<When>,
    notes: Vec<Mark>,
}

#[derive(Template)]
#[template(path = "apps.html")]
struct AppsPage<'a> {
    frame: &'a Frame,
    list: &'a Listed,
    base_url: &'a str,
}

#[derive(Template)]
#[template(path = "_apps.html")]
struct AppsPart<'a> {
    list: &'a Listed,
}

/// The apps that match a search, by project.
struct Listed {
    query: String,
    projects: Vec<Project>,
    unreadable: Vec<String>,
    /// The number of apps that match the search.
    found: usize,
    total: usize,
    has_more: bool,
}

impl Listed {
    /// Returns the sentence about the search that assistive technology hears.
    fn spoken(&self) -> String {
        let plural = if self.found == 1 { "" } else { "s" };
        match self.query.as_str() {
            "" => format!("{} app{plural}", self.found),
            query => format!("{} app{plural} found for {query}", self.found),
        }
    }
}

/// Answers `GET /`.
pub(crate) async fn page(call: &Call<'_>) -> Result<Reply, Failure> {
    let query = call.request.query("q").unwrap_or_default();
    let frame = call.frame();
    let all = all(&call.operations()).await?;
    let list = listed(&all, &query, &frame);
    Ok(match call.request.is_partial() {
        true => reply::html(StatusCode::OK, &AppsPart { list: &list }),
        false => {
            let base_url = call.console.host.base_url();
            reply::html(StatusCode::OK, &AppsPage { frame: &frame, list: &list, base_url })
        }
    })
}

/// Returns all apps.
async fn all(operations: &CallerOperations) -> Result<AppList, Failure> {
    let mut all = AppList::default();
    loop {
        let after = all.next.as_deref().and_then(|next| next.parse().ok());
        let page = operations.apps(AppPage { namespace: None, after, limit: openapi::PAGE_MAX }).await?;
        all.apps.extend(page.apps);
        all.unreadable.extend(page.unreadable);
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}

fn listed(all: &AppList, query: &str, frame: &Frame) -> Listed {
    let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
    let found: Vec<&App> = all.apps.iter().filter(|app| matches(app, &words)).collect();
    let mut by_project: BTreeMap<&str, Vec<&App>> = BTreeMap::new();
    for app in found.iter().take(SHOWN) {
        by_project.entry(&app.project).or_default().push(app);
    }
    Listed {
        query: escaped(query),
        projects: by_project.iter().map(|(name, apps)| project(name, apps, frame)).collect(),
        unreadable: all.unreadable.iter().map(|name| escaped(name)).collect(),
        found: found.len(),
        total: all.apps.len() + all.unreadable.len(),
        has_more: found.len() > SHOWN,
    }
}

fn matches(app: &App, words: &[String]) -> bool {
    let image = app.current.as_ref().and_then(|deploy| deploy.image.as_deref()).unwrap_or_default();
    let text = format!("{} {} {} {image}", app.app, app.project, app.environment).to_lowercase();
    words.iter().all(|word| text.contains(word.as_str()))
}

fn project(name: &str, apps: &[&App], frame: &Frame) -> Project {
    let mut environments: Vec<&str> = apps.iter().map(|app| app.environment.as_str()).collect();
    environments.sort_by_key(|name| (rank(name), *name));
    environments.dedup();
    let names: BTreeSet<&str> = apps.iter().map(|app| app.app.as_str()).collect();
    let cell = |app: &str, environment: &str| {
        let found = apps.iter().find(|known| known.app == app && known.environment == environment);
        found.map(|app| cell(app, frame))
    };
    let row = |app: &&str| Row {
        name: escaped(app),
        cells: environments.iter().map(|environment| cell(app, environment)).collect(),
    };
    Project {
        name: escaped(name),
        rows: names.iter().map(row).collect(),
        environments: environments.into_iter().map(escaped).collect(),
    }
}

fn rank(environment: &str) -> usize {
    let first = FIRST.iter().position(|name| *name == environment);
    let last = LAST.iter().position(|name| *name == environment).map(|place| FIRST.len() + 1 + place);
    first.or(last).unwrap_or(FIRST.len())
}

fn cell(app: &App, frame: &Frame) -> Cell {
    let running = app.current.as_ref();
    let last = app.on_cluster.as_ref().filter(|deploy| !deploy.current);
    let beside =
        app.unfinished.iter().filter(|revision| Some(**revision) != last.map(|deploy| deploy.revision)).count();
    let mark = match (last, running) {
        (Some(last), _) => {
            let mark = Mark::of(last);
            let place = if last.status == Status::Failed { " on cluster" } else { "" };
            Mark { word: format!("#{} {}{place}", last.revision, mark.word), ..mark }
        }
        (None, _) if beside > 0 => Mark::busy(match app.unfinished.last() {
            Some(revision) => format!("#{revision} on its way"),
            None => "on its way".to_owned(),
        }),
        (None, Some(running)) => Mark { word: format!("#{} current", running.revision), ..Mark::of(running) },
        (None, None) => Mark::nothing("never deployed"),
    };
    let mut notes = Vec::new();
    if let Some(drift) = &app.drift {
        notes.push(Mark::warning(match drift.image.as_deref() {
            Some(image) => format!("drift: {} runs", Image::new(&short_image(image)).name),
            None => "drift: changed by another".to_owned(),
        }));
    }
    if !app.locks.is_empty() {
        notes.push(Mark::held("locked"));
    }
    if !app.holds.is_empty() {
        notes.push(Mark::held("hold"));
    }
    Cell {
        environment: escaped(&app.environment),
        href: app_path(app),
        label: escaped(&format!("{} in {}", app.app, app.environment)),
        image: running.and_then(|deploy| deploy.image.as_deref()).map(Image::new),
        mark,
        when: last.or(running).map(|deploy| When::new(deploy.created_at, frame.now)),
        notes,
    }
}

#[cfg(test)]
mod tests {
    use rollhook_core::time::Timestamp;

    use super::*;
    use crate::pages::tests::app;

    fn in_environment(name: &str, environment: &str) -> App {
        let namespace = format!("shop-{environment}");
        app(serde_json::json!({ "app": name, "environment": environment, "namespace": namespace }))
    }

    fn page(all: &AppList, query: &str) -> String {
        let frame = Frame::signed_out(Timestamp::from_millis(1_767_323_045_678));
        AppsPart { list: &listed(all, query, &frame) }.render().unwrap()
    }

    #[test]
    fn environments_stand_side_by_side_in_the_order_of_promotion() {
        let names = ["prod", "eu-west", "test", "staging", "dev"];
        let apps = names.iter().map(|name| in_environment("api", name)).chain([in_environment("web", "prod")]);
        let all = AppList { apps: apps.collect(), ..AppList::default() };
        let frame = Frame::signed_out(Timestamp::from_millis(0));
        let list = listed(&all, "", &frame);
        assert_eq!(list.projects[0].environments, ["dev", "test", "eu-west", "staging", "prod"]);
        let present: Vec<Vec<bool>> =
            list.projects[0].rows.iter().map(|row| row.cells.iter().map(Option::is_some).collect()).collect();
        assert_eq!(present, [vec![true; 5], vec![false, false, false, false, true]]);
    }

    #[test]
    fn drift_holds_and_unreadable_apps_are_named() {
        let drift = serde_json::json!({ "image": "r.example.com/api:hot", "message": "kubectl" });
        let drifted =
            app(serde_json::json!({ "drift": drift, "holds": [{ "image": "r.example.com/api:bad", "by": 3 }] }));
        let all = AppList { apps: vec![drifted], unreadable: vec!["shop-test/<b>".to_owned()], next: None };
        let shown = page(&all, "");
        for told in ["drift: api:hot runs", "hold", "shop-test/&#60;b&#62; cannot be read", "never deployed"] {
            assert!(shown.contains(told), "{told}: {shown}");
        }
        assert!(page(&all, "API shop").contains("1 app found for API shop"));
        assert!(page(&all, "web").contains("Nothing found"));
    }
}
