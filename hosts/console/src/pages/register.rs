//! Registering an app whose images CI builds.

use askama::Template;
use http::StatusCode;
use rollhook_api::CreateApp;
use rollhook_core::{app::Settings, text::escaped};
use serde_json::Value;

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
    key: String,
    /// The field that the error is about, as the form names it.
    field: String,
    error: Option<String>,
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

/// Answers `GET /apps/new`.
pub(crate) fn page(call: &Call<'_>) -> Reply {
    let page = RegisterPage::new(call, |name| call.request.query(name));
    reply::html(StatusCode::OK, &page)
}

/// Answers `POST /apps/new`.
pub(crate) async fn submit(call: &Call<'_>) -> Result<Reply, Failure> {
    let field = |name| call.request.field(name);
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
        image: field("image"),
        workload,
        ..CreateApp::default()
    };
    match call.keyed("register")?.create(wanted).await {
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
