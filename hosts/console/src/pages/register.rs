//! Registering an app: one whose images CI builds, or one that is built from git.

use askama::Template;
use http::StatusCode;
use rollhook_api::{CreateApp, GitChoice, Kind, Registered, operations::RegisterApp};
use rollhook_core::text::escaped;
use serde_json::Value;

use super::{
    git_fields::GitFields,
    new_deploy,
    target_fields::{self, TargetFields},
};
use crate::{
    console::{Call, status},
    host::Failure,
    reply::{self, Reply},
    view::{Frame, app_path},
};

#[derive(Template)]
#[template(path = "register.html")]
struct RegisterPage {
    frame: Frame,
    app: String,
    project: String,
    environment: String,
    image: String,
    target: TargetFields,
    is_git: bool,
    git: GitFields,
    /// Whether a git app's first build is begun at once.
    builds: bool,
    key: String,
    /// The field that the error is about, as the form names it.
    error_field: String,
    error: Option<String>,
    /// Whether a workload that exists is to be adopted, although the form says how a new one is made; `None` if that is
    /// no question.
    adopts: Option<bool>,
}

/// The app is registered, and its owner should know something of its deploys.
#[derive(Template)]
#[template(path = "registered.html")]
struct RegisteredPage {
    frame: Frame,
    app: String,
    environment: String,
    path: String,
    notes: Vec<String>,
}

impl RegisteredPage {
    fn new(call: &Call<'_>, registered: &Registered) -> Self {
        let app = &registered.app;
        Self {
            frame: call.frame(),
            app: escaped(&app.app),
            environment: escaped(&app.environment),
            path: app_path(app),
            notes: registered.notes.iter().map(|note| escaped(note)).collect(),
        }
    }
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
            target: TargetFields::new(&call.console.host.targets(), &value),
            is_git: is_git(&value),
            git: GitFields::new(&value),
            builds: value("build").is_some(),
            key: call.new_key(),
            error_field: String::new(),
            error: None,
            adopts: value("adopt").map(|_| true),
        }
    }

    /// Returns the form as it was submitted, with the reason of its refusal.
    fn refused(call: &Call<'_>, field: String, error: String) -> Self {
        Self { error_field: field, error: Some(error), ..Self::new(call, |name| call.request.field(name)) }
    }

    fn is_wrong(&self, field: &str) -> bool {
        self.error_field == field
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
    let wanted = CreateApp {
        project: text("project"),
        environment: text("environment"),
        app: text("app"),
        // A git app's workload is made with its first image.
        image: field("image").filter(|_| !is_git(&field)),
        git: source(&field),
        adopt: field("adopt").is_some(),
        ..CreateApp::default()
    };
    let described = call.console.host.targets();
    let wanted = match target_fields::fill_in(wanted, &described, &field) {
        Ok(wanted) => wanted,
        Err(invalid) => {
            let page = RegisterPage::refused(call, invalid.name, invalid.sentence);
            return Ok(reply::html(StatusCode::UNPROCESSABLE_ENTITY, &page));
        }
    };
    match call.keyed("register")?.call(RegisterApp, &(), wanted).await {
        Ok(registered) if registered.deploy.is_none() && field("build").is_some() => {
            new_deploy::build_head(call, &registered.app).await
        }
        Ok(registered) if !registered.notes.is_empty() => {
            Ok(reply::html(StatusCode::OK, &RegisteredPage::new(call, &registered)))
        }
        Ok(registered) => Ok(reply::redirect(&format!("/apps/{}/{}", registered.app.namespace, registered.app.app))),
        Err(failure) if (400..500).contains(&failure.problem.status) => {
            let about = failure.problem.members.get("field").and_then(Value::as_str).unwrap_or_default();
            let error = target_fields::in_words(&described, about, &failure.problem.detail);
            let mut page = RegisterPage::refused(call, about.to_owned(), error);
            if failure.problem.slug() == Kind::WorkloadExists.parts().0 {
                page.adopts.get_or_insert(false);
            }
            Ok(reply::html(status(&failure), &page))
        }
        Err(failure) => Err(failure),
    }
}
