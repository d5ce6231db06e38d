//! The apps: what runs where, by project, with the environments side by side.

use std::collections::BTreeMap;

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    App, AppList, openapi,
    operations::{AppsQuery, ListApps},
    query::PageSize,
};
use rollhook_core::text::escaped;

use super::matrix::{Matrix, Project, within};
use crate::{
    console::Call,
    host::{CallerOperations, Failure},
    reply::{self, Reply},
    view::Frame,
};

/// The words of a search that count: each is looked for in every app.
const WORDS: usize = 16;
/// The most apps that the page shows.
const SHOWN: usize = 600;
/// The most cells of the page's tables: of 600 apps, each in an environment of its own, there would be 360,000.
const CELLS_MAX: usize = 20_000;

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
    let _turn = call.console.host.turn_of_all_apps(&call.access.principal).await;
    let all = all(&call.operations()).await?;
    let list = listed(&all, &query, &frame, &|environment| call.may_promote_to(environment));
    Ok(match call.request.is_partial() {
        true => reply::html(StatusCode::OK, &AppsPart { list: &list }),
        false => {
            let base_url = call.console.host.base_url();
            reply::html(StatusCode::OK, &AppsPage { frame: &frame, list: &list, base_url })
        }
    })
}

/// Returns all apps that the caller may read, with what pages show of each: who holds them has the turn of it.
pub(crate) async fn all(operations: &CallerOperations) -> Result<AppList, Failure> {
    let mut all = AppList::default();
    loop {
        let after = all.next.as_deref().and_then(|next| next.parse().ok());
        let page = operations
            .call(ListApps, &(), AppsQuery { namespace: None, after, limit: Some(PageSize::new(openapi::PAGE_MAX)) })
            .await?;
        all.apps.extend(page.apps.into_iter().map(in_short));
        all.unreadable.extend(page.unreadable);
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}

/// Returns an app without the long parts of its policy, and with one of its holds.
fn in_short(mut app: App) -> App {
    // That there is one is shown.
    app.policy.release_command.truncate(1);
    app.policy.release_command.iter_mut().for_each(String::clear);
    app.policy.repositories.clear();
    app.holds.truncate(1);
    app
}

fn listed(all: &AppList, query: &str, frame: &Frame, may_promote_to: &dyn Fn(&App) -> bool) -> Listed {
    let words: Vec<String> = query.split_whitespace().take(WORDS).map(str::to_lowercase).collect();
    let found: Vec<&App> = all.apps.iter().filter(|app| matches(app, &words)).collect();
    let mut by_project: BTreeMap<&str, Vec<&App>> = BTreeMap::new();
    for app in found.iter().take(SHOWN) {
        by_project.entry(&app.project).or_default().push(app);
    }
    let matrix = Matrix::new(&all.apps, frame, may_promote_to);
    let (mut projects, mut cells, mut shown) = (Vec::new(), 0, 0);
    for (name, apps) in by_project {
        let (apps, more) = within(&apps, CELLS_MAX - cells);
        cells += more;
        shown += apps.len();
        if !apps.is_empty() {
            projects.push(matrix.project(name, &apps));
        }
    }
    Listed {
        query: escaped(query),
        projects,
        unreadable: all.unreadable.iter().map(|name| escaped(name)).collect(),
        found: found.len(),
        total: all.apps.len() + all.unreadable.len(),
        has_more: found.len() > shown,
    }
}

fn matches(app: &App, words: &[String]) -> bool {
    let image = app.current.as_ref().and_then(|deploy| deploy.image.as_deref()).unwrap_or_default();
    let text = format!("{} {} {} {image}", app.app, app.project, app.environment).to_lowercase();
    words.iter().all(|word| text.contains(word.as_str()))
}

#[cfg(test)]
mod tests {
    use rollhook_core::time::Timestamp;

    use super::*;
    use crate::pages::tests::app;

    fn page(all: &AppList, query: &str) -> String {
        let frame = Frame::signed_out(Timestamp::from_millis(1_767_323_045_678));
        AppsPart { list: &listed(all, query, &frame, &|_| false) }.render().unwrap()
    }

    #[test]
    fn drift_holds_and_unreadable_apps_are_named() {
        let drift = serde_json::json!({ "image": "r.example.com/api:hot", "message": "kubectl" });
        let since = "2026-01-02T03:04:05.678Z";
        let degraded = serde_json::json!({ "reason": "CrashLoopBackOff", "message": "it exited", "since": since });
        let holds = serde_json::json!([{ "image": "r.example.com/api:bad", "by": 3 }]);
        let drifted = app(serde_json::json!({ "drift": drift, "degraded": degraded, "holds": holds }));
        let all = AppList { apps: vec![drifted], unreadable: vec!["shop-test/<b>".to_owned()], next: None };
        let shown = page(&all, "");
        for told in [
            "drift: api:hot runs",
            "degraded: CrashLoopBackOff",
            "hold",
            "shop-test/&#60;b&#62; cannot be read",
            "never deployed",
        ] {
            assert!(shown.contains(told), "{told}: {shown}");
        }
        assert!(page(&all, "API shop").contains("1 app found for API shop"));
        assert!(page(&all, "web").contains("Nothing found"));
    }

    #[test]
    fn page_of_very_many_environments_shows_a_part_and_says_so() {
        let named = |number: usize, environment: &str| {
            let (name, namespace) = (format!("app-{number:03}"), format!("shop-{environment}"));
            app(serde_json::json!({ "app": name, "environment": environment, "namespace": namespace }))
        };
        let apps: Vec<App> = (0..SHOWN).map(|number| named(number, &format!("e-{number:03}"))).collect();
        let all = AppList { apps, unreadable: Vec::new(), next: None };
        let more = "There are more; search for a name, project or environment to narrow them down.";
        let shown = page(&all, "");
        let cells = shown.matches("<td ").count();
        // 141 apps in as many environments.
        assert_eq!((cells, shown.contains(more)), (141 * 141, true));
        assert!(cells <= CELLS_MAX && !shown.contains("app-141"));
        let searched = page(&all, "app-599");
        assert!(searched.contains("app-599") && !searched.contains(more));
        let in_one: Vec<App> = (0..SHOWN).map(|number| named(number, "test")).collect();
        let shown = page(&AppList { apps: in_one, unreadable: Vec::new(), next: None }, "");
        assert!(shown.contains("app-599") && !shown.contains(more));
    }

    #[test]
    fn words_of_a_search_beyond_the_first_few_do_not_count() {
        let all = AppList { apps: vec![app(serde_json::json!({}))], ..AppList::default() };
        let words = |count: usize| "api ".repeat(count);
        assert!(page(&all, &format!("{}web", words(WORDS - 1))).contains("Nothing found"));
        assert!(page(&all, &format!("{}web", words(WORDS))).contains("1 app found"));
    }
}
