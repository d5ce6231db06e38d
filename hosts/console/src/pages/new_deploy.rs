//! A deploy by a person: an image, or a commit to build.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    App, DeployAnswer, DeployPost, Kind, Rebuild,
    operations::{DeployApp, RebuildApp, ShowApp},
    snippets,
};
use rollhook_core::{
    app::{AppId, Source},
    text::escaped,
};

use crate::{
    console::{Call, status},
    host::Failure,
    reply::{self, Reply},
    view::{Frame, Head},
};

#[derive(Template)]
#[template(path = "deploy.html")]
struct DeployPage<'a> {
    frame: &'a Frame,
    form: &'a Form,
}

#[derive(Template)]
#[template(path = "_deploy.html")]
struct DeployPart<'a> {
    form: &'a Form,
}

/// The form of a deploy: its values, and the refusal of the last attempt.
struct Form {
    head: Head,
    is_git: bool,
    branch: String,
    image: String,
    commit: String,
    key: String,
    /// Whether a lock refuses deploys that give no reason.
    is_locked: bool,
    break_glass: String,
    error: Option<String>,
}

impl Form {
    fn new(call: &Call<'_>, app: &App) -> Self {
        let branch = match &app.source {
            Source::Git(git) => escaped(git.branch.as_str()),
            Source::Image => String::new(),
        };
        Self {
            head: Head::new(app, "deploys"),
            is_git: matches!(app.source, Source::Git(_)),
            branch,
            image: format!("{}:", snippets::repository(app)),
            commit: String::new(),
            key: call.new_key(),
            is_locked: !app.locks.is_empty() && call.access.permissions.may_administer,
            break_glass: String::new(),
            error: None,
        }
    }

    fn reply(&self, call: &Call<'_>, status: StatusCode) -> Reply {
        match call.request.is_partial() {
            true => reply::html(status, &DeployPart { form: self }),
            false => reply::html(status, &DeployPage { frame: &call.frame(), form: self }),
        }
    }
}

/// Answers `GET …/deploy`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let app = call.operations().call(ShowApp, id, ()).await?;
    Ok(Form::new(call, &app).reply(call, StatusCode::OK))
}

/// Answers `POST …/deploy`.
pub(crate) async fn submit(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let app = call.operations().call(ShowApp, id, ()).await?;
    let (image, commit) = (call.request.field("image"), call.request.field("commit"));
    let reason = call.request.field("break_glass").filter(|reason| !reason.is_empty());
    let accepted = match app.source {
        Source::Git(_) if reason.is_none() => {
            call.keyed("rebuild")?.call(RebuildApp, id, Rebuild { commit: commit.clone() }).await
        }
        Source::Image | Source::Git(_) => {
            let image = image.clone().filter(|_| app.source == Source::Image);
            let commit = commit.clone();
            let post = DeployPost { image, commit, break_glass: reason.clone(), ..DeployPost::default() };
            call.keyed("deploy")?.call(DeployApp, id, post).await
        }
    };
    let form = Form {
        image: image.unwrap_or_default(),
        commit: commit.unwrap_or_default(),
        break_glass: reason.unwrap_or_default(),
        ..Form::new(call, &app)
    };
    answer(call, id, form, accepted)
}

/// Builds the head of the branch of an app that was just registered.
pub(super) async fn build_head(call: &Call<'_>, app: &App) -> Result<Reply, Failure> {
    let name = format!("{}/{}", app.namespace, app.app);
    let id = name.parse::<AppId>().map_err(|invalid| Failure::new(Kind::InvalidField, format!("{invalid}.")))?;
    let accepted = call.keyed("rebuild")?.call(RebuildApp, &id, Rebuild::default()).await;
    answer(call, &id, Form::new(call, app), accepted)
}

/// Returns the app's page, or the form again with the refusal's sentence.
fn answer(call: &Call<'_>, id: &AppId, form: Form, accepted: Result<DeployAnswer, Failure>) -> Result<Reply, Failure> {
    match accepted {
        Ok(_) => Ok(reply::redirect(&format!("/apps/{}/{}", id.namespace, id.name))),
        Err(failure) if is_correctable(&failure) => {
            let form = Form { error: Some(escaped(&failure.problem.detail)), ..form };
            Ok(form.reply(call, status(&failure)))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns whether other values of the form, or the same ones later, may be accepted.
fn is_correctable(failure: &Failure) -> bool {
    (400..500).contains(&failure.problem.status) || failure.kind == Kind::SourceUnavailable
}
