//! Locking an app or its environment, and ending a lock.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    App, LockRequest,
    operations::{LockApp, LockEnvironment, ShowApp, UnlockApp, UnlockEnvironment},
};
use rollhook_core::{
    app::{AppId, Environment, Project},
    text::escaped,
};

use super::confirm::Question;
use crate::{
    console::{Call, status},
    host::Failure,
    reply::{self, Reply},
    view::{Frame, Head, app_path},
};

/// The times that a lock may be given, and their words.
const TIMES: [(&str, &str); 5] = [
    ("", "until it is unlocked"),
    ("1h", "for 1 hour"),
    ("12h", "for 12 hours"),
    ("3d", "for 3 days"),
    ("14d", "for 2 weeks"),
];

#[derive(Template)]
#[template(path = "lock.html")]
struct LockPage<'a> {
    frame: &'a Frame,
    form: &'a Form,
}

#[derive(Template)]
#[template(path = "_lock.html")]
struct LockPart<'a> {
    form: &'a Form,
}

/// The form.
struct Form {
    head: Head,
    reason: String,
    error: Option<String>,
}

impl Form {
    fn new(app: &App) -> Self {
        Self { head: Head::new(app, "deploys"), reason: String::new(), error: None }
    }

    fn reply(&self, call: &Call<'_>, status: StatusCode) -> Reply {
        match call.request.is_partial() {
            true => reply::html(status, &LockPart { form: self }),
            false => reply::html(status, &LockPage { frame: &call.frame(), form: self }),
        }
    }
}

/// Answers `GET …/lock`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let app = call.operations().call(ShowApp, id, ()).await?;
    Ok(Form::new(&app).reply(call, StatusCode::OK))
}

/// Answers `POST …/lock`.
pub(crate) async fn lock(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    let field = |name| call.request.field(name).unwrap_or_default();
    let (reason, expires) = (field("reason"), Some(field("expires")).filter(|text| !text.is_empty()));
    let request = LockRequest { reason: reason.clone(), expires };
    let locked = match environment(call, &app) {
        Some((project, environment)) => {
            operations.call(LockEnvironment, &(project.clone(), environment.clone()), request).await.map(drop)
        }
        None => operations.call(LockApp, id, request).await.map(drop),
    };
    match locked {
        Ok(()) => Ok(reply::redirect(&app_path(&app))),
        Err(failure) if matches!(failure.problem.status, 403 | 422) => {
            let form = Form { reason, error: Some(escaped(&failure.problem.detail)), ..Form::new(&app) };
            Ok(form.reply(call, status(&failure)))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns the app's environment, if that is what the call is about.
fn environment(call: &Call<'_>, app: &App) -> Option<(Project, Environment)> {
    let on = call.request.field("on").or_else(|| call.request.query("on"))?;
    (on == "environment").then(|| Some((app.project.parse().ok()?, app.environment.parse().ok()?))).flatten()
}

/// Answers `GET …/unlock`.
pub(crate) async fn confirm_unlock(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let app = call.operations().call(ShowApp, id, ()).await?;
    let path = app_path(&app);
    let (what, on) = match environment(call, &app) {
        Some(_) => (format!("all apps of {} in {}", escaped(&app.project), escaped(&app.environment)), "environment"),
        None => (format!("{} in {}", escaped(&app.app), escaped(&app.environment)), "app"),
    };
    let question = Question {
        head: Some(&Head::new(&app, "deploys")),
        title: "End the lock?".to_owned(),
        consequences: vec![
            format!("CI, git hosts and people deploy to {what} again."),
            "Nothing is deployed by this itself; a polled branch is deployed at its next reading.".to_owned(),
        ],
        action: format!("{path}/unlock?on={on}"),
        back: path,
        button: "End the lock".to_owned(),
        ..Question::default()
    };
    Ok(question.reply(call))
}

/// Answers `POST …/unlock`.
pub(crate) async fn unlock(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    match environment(call, &app) {
        Some((project, environment)) => {
            operations.call(UnlockEnvironment, &(project.clone(), environment.clone()), ()).await?
        }
        None => operations.call(UnlockApp, id, ()).await.map(drop)?,
    }
    Ok(reply::redirect(&app_path(&app)))
}
