//! Registering an app: one whose images CI builds, or one that is built from git.

use askama::Template;
use http::StatusCode;
use rollhook_api::{CreateApp, GitChoice};
use rollhook_core::{app::Settings, text::escaped};
use serde_json::Value;

use super::{git_fields::GitFields, new_deploy};
use crate::{
    console::{Call, status},
    host::Failure,
    reply::{self, Reply},
    view::Frame,
};

/// The kinds of workload, as the form offers them; the first is the default.
const KINDS: [&str; 4] = ["Deployment", "StatefulSet", "DaemonSet", "CronJob"];

#[derive(Template)]
#[template(path = "register.html")]
struct RegisterPage {
    frame: Frame,
    app: String,
    project: String,
    environment: String,
    image: String,
    kind: String,
    workload: String,
    container: String,
    is_git: bool,
    git: GitFields,
    /// Whether a git app's first build is begun at once.
    builds: bool,
    key: String,
    /// The field that the error is about, as the form names it.
    field: String,
    error: Option<String>,
}

impl GitFields {
    fn new(value: &impl Fn(&str) -> Option<String>) -> Self {
        let default = GitChoice::default();
        // A password that stands in the URL by mistake is not shown again.
        let has_password = |url: &String| url.starts_with("http") && url.contains('@');
        Self {
            url: value("url").filter(|url| !has_password(url)).unwrap_or_default(),
            branch: value("branch").unwrap_or(default.branch),
            dockerfile: value("dockerfile").unwrap_or(default.dockerfile),
            context: value("context").unwrap_or(default.context),
            image_repository: value("image_repository").unwrap_or_default(),
            credentials: value("credentials").unwrap_or_default(),
        }
    }
}

impl RegisterPage {
    /// Returns the form with these values.
    fn new(call: &Call<'_>, value: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name| value(name).unwrap_or_default();
        Self {
            frame: call.frame(),
            app: text("app"),
            project: text("project"),
            environment: text("environment"),
            image: text("image"),
            kind: text("kind"),
            workload: text("workload"),
            container: text("container"),
            is_git: is_git(&value),
            git: GitFields::new(&value),
            builds: value("build").is_some(),
            key: call.new_key(),
            field: String::new(),
            error: None,
        }
    }

    fn kinds(&self) -> [&'static str; 4] {
        KINDS
    }

    fn is_wrong(&self, field: &str) -> bool {
        self.field == field
    }
}

fn is_git(value: &impl Fn(&str) -> Option<String>) -> bool {
    value("source").is_some_and(|source| source == "git")
}

/// Returns the source of a git app that the form has, or `None` for an app whose images are posted.
fn source(field: &impl Fn(&str) -> Option<String>) -> Option<GitChoice> {
    let default = GitChoice::default();
    is_git(field).then(|| GitChoice {
        url: field("url").unwrap_or_default(),
        branch: field("branch").unwrap_or(default.branch),
        dockerfile: field("dockerfile").unwrap_or(default.dockerfile),
        context: field("context").unwrap_or(default.context),
        image_repository: field("image_repository").unwrap_or_default(),
        credentials: field("credentials"),
    })
}

/// Answers `GET /apps/new`.
pub(crate) fn page(call: &Call<'_>) -> Reply {
    let page = RegisterPage { builds: true, ..RegisterPage::new(call, |name| call.request.query(name)) };
    reply::html(StatusCode::OK, &page)
}

/// Answers `POST /apps/new`.
pub(crate) async fn submit(call: &Call<'_>) -> Result<Reply, Failure> {
    let field = |name: &str| call.request.field(name);
    let text = |name| field(name).unwrap_or_default();
    let mut workload = Settings::new();
    // Only what differs from the defaults is sent: they are the driver's to fill in.
    let kind = field("kind").filter(|kind| kind != KINDS[0]);
    workload.extend(kind.map(|kind| ("kind".to_owned(), Value::from(kind))));
    workload.extend(field("workload").map(|name| ("name".to_owned(), Value::from(name))));
    workload.extend(field("container").map(|name| ("containers".to_owned(), Value::from(vec![name]))));
    let wanted = CreateApp {
        project: text("project"),
        environment: text("environment"),
        app: text("app"),
        // A git app's workload is made with its first image.
        image: field("image").filter(|_| !is_git(&field)),
        git: source(&field),
        workload,
        ..CreateApp::default()
    };
    match call.keyed("register")?.create(wanted).await {
        Ok(registered) if registered.deploy.is_none() && field("build").is_some() => {
            new_deploy::build_head(call, &registered.app).await
        }
        Ok(registered) => Ok(reply::redirect(&format!("/apps/{}/{}", registered.app.namespace, registered.app.app))),
        Err(failure) if (400..500).contains(&failure.problem.status) => {
            let about = failure.problem.members.get("field").and_then(Value::as_str).unwrap_or_default();
            let page = RegisterPage {
                field: about.to_owned(),
                error: Some(escaped(&failure.problem.detail)),
                ..RegisterPage::new(call, |name| call.request.field(name))
            };
            Ok(reply::html(status(&failure), &page))
        }
        Err(failure) => Err(failure),
    }
}
