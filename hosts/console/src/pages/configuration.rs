//! An app's configuration: its variables, setting one, removing one, and discarding a change that waits.
//!
//! The forms carry no idempotency key, whose stored hash would be made of the value: repeated, they change nothing, or find that
//! another revision is current.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    App, ConfigAnswer, ConfigPatch, Variable,
    configuration::{PostedVariables, setting_text},
    operations::{ChangeConfiguration, ConfigQuery, DiscardConfiguration, ShowApp, ShowConfiguration},
};
use rollhook_core::{
    app::{AppId, Settings},
    configuration,
    deploy::Revision,
    text::escaped,
};

use super::confirm::Question;
use crate::{
    console::{Call, status},
    host::Failure,
    reply::{self, Reply},
    view::{Frame, Head, app_path},
};

#[derive(Template)]
#[template(path = "configuration.html")]
struct ConfigurationPage<'a> {
    frame: &'a Frame,
    form: &'a Form,
}

/// The page's contents. The form's value is not among them: a page that is shown again has none.
struct Form {
    head: Head,
    lists: Vec<List>,
    name: String,
    if_current: Option<Revision>,
    /// Whether a lock refuses changes that give no reason.
    is_locked: bool,
    break_glass: String,
    notice: Option<String>,
    error: Option<String>,
}

/// A list of variables.
struct List {
    id: &'static str,
    title: String,
    help: &'static str,
    variables: Vec<Row>,
    /// What containers are made with beside them: names and values.
    settings: Vec<(String, String)>,
    /// Whether the next change begins from these.
    is_next: bool,
}

/// A variable's row.
struct Row {
    name: String,
    value: Option<String>,
    length: usize,
    fingerprint: String,
}

fn settings(settings: &Settings) -> Vec<(String, String)> {
    settings.iter().map(|(name, value)| (escaped(name), escaped(&setting_text(value)))).collect()
}

fn rows(variables: &[Variable]) -> Vec<Row> {
    let row = |variable: &Variable| Row {
        name: escaped(&variable.name),
        value: variable.value.as_deref().map(escaped),
        length: variable.length,
        fingerprint: escaped(&variable.fingerprint),
    };
    variables.iter().map(row).collect()
}

impl Form {
    async fn read(call: &Call<'_>, id: &AppId) -> Result<(App, Self), Failure> {
        let operations = call.operations();
        let app = operations.call(ShowApp, id, ()).await?;
        let shown = operations.call(ShowConfiguration, id, ConfigQuery::default()).await?;
        let mut lists = vec![List {
            id: "current",
            title: match shown.revision {
                Some(revision) => format!("Variables of revision {revision}, which is current"),
                None => "Variables".to_owned(),
            },
            help: "What the app runs with, beside what others have set. Deploys keep it, and so do rollbacks unless asked.",
            variables: rows(&shown.variables),
            settings: settings(&shown.settings),
            is_next: shown.staged.is_none(),
        }];
        lists.extend(shown.staged.map(|staged| List {
            id: "staged",
            title: "Variables of the next deploy".to_owned(),
            help: "A change waits for the next deploy, which runs with these.",
            variables: rows(&staged),
            settings: settings(&shown.staged_settings.unwrap_or_default()),
            is_next: true,
        }));
        let form = Self {
            head: Head::new(&app, "config"),
            lists,
            name: String::new(),
            if_current: app.current.as_ref().map(|deploy| deploy.revision),
            is_locked: !app.locks.is_empty() && call.access.permissions.may_administer,
            break_glass: String::new(),
            notice: None,
            error: None,
        };
        Ok((app, form))
    }

    fn reply(&self, call: &Call<'_>, status: StatusCode) -> Reply {
        reply::html(status, &ConfigurationPage { frame: &call.frame(), form: self })
    }
}

/// Answers `GET …/config`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    Ok(Form::read(call, id).await?.1.reply(call, StatusCode::OK))
}

/// Answers `POST …/config`.
pub(crate) async fn submit(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let field = |name| call.request.field(name).unwrap_or_default();
    // Browsers send line ends as two characters.
    let value = field("value").replace("\r\n", "\n");
    let name = field("name");
    let variable = configuration::Variable::new(value, call.request.field("plain").is_some());
    let patch = ConfigPatch {
        set: PostedVariables::new([(name.clone(), variable)]),
        staged: call.request.field("staged").is_some(),
        if_current: call.request.field("if_current").and_then(|text| text.parse().ok()),
        break_glass: call.request.field("break_glass").filter(|reason| !reason.is_empty()),
        ..ConfigPatch::default()
    };
    change(call, id, patch, &name).await
}

/// Makes a change, and shows the deploys if it is one, and else the configuration.
async fn change(call: &Call<'_>, id: &AppId, patch: ConfigPatch, name: &str) -> Result<Reply, Failure> {
    let reason = patch.break_glass.clone().unwrap_or_default();
    match call.operations().call(ChangeConfiguration, id, patch).await {
        Ok(answer) => changed(call, id, answer).await,
        Err(failure) if is_shown(&failure) => {
            // The page shows what is current by now: to submit it again is to have seen that.
            let error = Some(escaped(&failure.problem.detail));
            let form =
                Form { name: escaped(name), break_glass: escaped(&reason), error, ..Form::read(call, id).await?.1 };
            Ok(form.reply(call, status(&failure)))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns whether a refusal is shown on the form that it refuses.
fn is_shown(failure: &Failure) -> bool {
    matches!(failure.problem.status, 409 | 413 | 422 | 423 | 429)
}

async fn changed(call: &Call<'_>, id: &AppId, answer: ConfigAnswer) -> Result<Reply, Failure> {
    match answer {
        ConfigAnswer::Deploy(_) => Ok(reply::redirect(&format!("/apps/{}/{}", id.namespace, id.name))),
        ConfigAnswer::Kept(kept) => {
            let form = Form { notice: Some(escaped(&kept.message)), ..Form::read(call, id).await?.1 };
            Ok(form.reply(call, StatusCode::OK))
        }
    }
}

/// Returns the question whether a variable is to be removed.
fn unsetting<'a>(form: &'a Form, path: String, name: &str, reason: String) -> Question<'a> {
    let if_current = form.if_current.map(|revision| ("if_current", revision.to_string()));
    Question {
        head: Some(&form.head),
        title: format!("Unset {name}?"),
        consequences: vec![
            "The image that runs is deployed once more without it.".to_owned(),
            "A rollback to an earlier revision with its configuration brings it back.".to_owned(),
        ],
        action: format!("{path}/unset"),
        back: path,
        button: format!("Unset {name}"),
        hidden: [("name", name.to_owned())].into_iter().chain(if_current).collect(),
        tick: Some(("revoked", "The value has leaked: a rollback that would bring it back asks first")),
        reason: form.is_locked.then_some(reason),
        ..Question::default()
    }
}

/// Answers `GET …/config/unset?name=NAME`.
pub(crate) async fn confirm_unset(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let (app, form) = Form::read(call, id).await?;
    // A name that is none is refused by the change.
    let name = escaped(&call.request.query("name").unwrap_or_default());
    Ok(unsetting(&form, format!("{}/config", app_path(&app)), &name, String::new()).reply(call))
}

/// Answers `POST …/config/unset`.
pub(crate) async fn unset(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let name = call.request.field("name").unwrap_or_default();
    let reason = call.request.field("break_glass").filter(|reason| !reason.is_empty());
    let patch = ConfigPatch {
        unset: vec![name.clone()],
        revoked: call.request.field("revoked").is_some(),
        if_current: call.request.field("if_current").and_then(|text| text.parse().ok()),
        break_glass: reason.clone(),
        ..ConfigPatch::default()
    };
    match call.operations().call(ChangeConfiguration, id, patch).await {
        Ok(answer) => changed(call, id, answer).await,
        Err(failure) if is_shown(&failure) => {
            let (app, form) = Form::read(call, id).await?;
            let (path, reason) = (format!("{}/config", app_path(&app)), escaped(&reason.unwrap_or_default()));
            Ok(unsetting(&form, path, &escaped(&name), reason).refused(call, &failure))
        }
        Err(failure) => Err(failure),
    }
}

/// Answers `GET …/config/discard`.
pub(crate) async fn confirm_discard(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let (app, form) = Form::read(call, id).await?;
    let path = format!("{}/config", app_path(&app));
    let question = Question {
        head: Some(&form.head),
        title: "Discard what waits for the next deploy?".to_owned(),
        consequences: vec![
            "The next deploy runs with what the app runs with now.".to_owned(),
            "The values that wait are removed. A deploy that has begun with them goes on.".to_owned(),
        ],
        action: format!("{path}/discard"),
        back: path,
        button: "Discard".to_owned(),
        ..Question::default()
    };
    Ok(question.reply(call))
}

/// Answers `POST …/config/discard`.
pub(crate) async fn discard(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let kept = call.operations().call(DiscardConfiguration, id, ()).await?;
    changed(call, id, ConfigAnswer::Kept(kept)).await
}
