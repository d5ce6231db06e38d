//! The checks of an app: the list, a form for each kind, a test, and removing one.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    App, Check, CheckKind, Kind, SetCheck, TestedCheck, check_setting_text,
    operations::{ListChecks, PutCheck, RemoveCheck, ShowApp, TestCheck},
    words::command,
};
use rollhook_core::{
    app::AppId,
    check::{CheckKind as CoreKind, CheckName, Verdict},
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
#[template(path = "checks.html")]
struct ChecksPage<'a> {
    frame: &'a Frame,
    head: &'a Head,
    verify_for: String,
    watch_for: String,
    checks: Vec<Row>,
    forms: Vec<Form>,
    tested: Option<Tested>,
}

/// A check's row.
struct Row {
    name: String,
    kind: String,
    /// Its settings, a line each.
    settings: Vec<String>,
    mode: String,
    rule: String,
    without_verdict: String,
}

/// The form for a check of a kind.
struct Form {
    kind: String,
    about: String,
    name: String,
    fields: Vec<Field>,
    /// What the secret of such a check is; it is never shown.
    secret: Option<String>,
    observes: bool,
    without_verdict: String,
    every: String,
    failures: String,
    timeout: String,
    usual_timeout: String,
    longest_timeout: String,
    error: Option<String>,
}

struct Field {
    name: String,
    label: String,
    about: String,
    is_required: bool,
    value: String,
}

/// A measurement that a person asked for.
struct Tested {
    name: String,
    verdict: &'static str,
    tone: &'static str,
    /// Name and value of each line.
    lines: Vec<(&'static str, String)>,
}

impl Row {
    fn of(check: &Check) -> Self {
        let line = |(name, value)| escaped(&format!("{name}: {}", check_setting_text(value)));
        Self {
            name: escaped(&check.name),
            kind: escaped(&check.kind),
            settings: check.settings.iter().map(line).collect(),
            mode: check.mode.to_string(),
            rule: format!("every {}, fails after {} in a row", check.every, check.failures),
            without_verdict: check.without_verdict.to_string(),
        }
    }
}

impl Form {
    fn of(kind: &CheckKind) -> Self {
        let field = |setting: &rollhook_api::CheckSetting| Field {
            name: setting.name.clone(),
            label: setting.name.replace('_', "-"),
            about: setting.about.clone(),
            is_required: setting.required,
            value: String::new(),
        };
        Self {
            kind: kind.kind.clone(),
            about: kind.about.clone(),
            name: String::new(),
            fields: kind.settings.iter().map(field).collect(),
            secret: kind.secret.clone(),
            observes: false,
            without_verdict: String::new(),
            every: String::new(),
            failures: String::new(),
            timeout: String::new(),
            usual_timeout: kind.timeout.clone(),
            longest_timeout: kind.longest_timeout.clone(),
            error: None,
        }
    }

    /// Returns the form as it was submitted, and refused.
    fn refused(self, call: &Call<'_>, failure: &Failure) -> Self {
        let text = |name: &str| call.request.field(name).map(|text| escaped(&text)).unwrap_or_default();
        let fields = self.fields.into_iter().map(|field| Field { value: text(&setting(&field.name)), ..field });
        Self {
            name: text("name"),
            fields: fields.collect(),
            observes: text("mode") == "observe",
            without_verdict: text("without_verdict"),
            every: text("every"),
            failures: text("failures"),
            timeout: text("timeout"),
            error: Some(escaped(&failure.problem.detail)),
            ..self
        }
    }
}

impl Tested {
    fn of(name: &CheckName, tested: &TestedCheck) -> Self {
        let (verdict, tone) = match tested.verdict {
            Verdict::Pass => ("passes", "good"),
            Verdict::Fail => ("fails", "bad"),
            Verdict::None => ("comes to no verdict", "warn"),
        };
        let lines = [
            ("Request", Some(tested.request.clone())),
            ("Condition", Some(tested.condition.clone())),
            ("Value", tested.value.clone()),
            ("Samples", tested.samples.map(|samples| samples.to_string())),
            ("Message", Some(tested.message.clone())),
        ];
        let lines = lines.into_iter().filter_map(|(name, value)| Some((name, escaped(&value?)))).collect();
        Self { name: name.to_string(), verdict, tone, lines }
    }
}

/// Returns the name of a setting's field.
fn setting(name: &str) -> String {
    format!("set.{name}")
}

async fn shown(
    call: &Call<'_>,
    id: &AppId,
    status: StatusCode,
    change: impl FnOnce(&mut ChecksPage<'_>),
) -> Result<Reply, Failure> {
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    let list = operations.call(ListChecks, id, ()).await?;
    let (frame, head) = (call.frame(), Head::new(&app, "settings"));
    let mut page = ChecksPage {
        frame: &frame,
        head: &head,
        verify_for: list.verify_for,
        watch_for: list.watch_for,
        checks: list.checks.iter().map(Row::of).collect(),
        forms: list.kinds.iter().map(Form::of).collect(),
        tested: None,
    };
    change(&mut page);
    Ok(reply::html(status, &page))
}

/// Answers `GET …/settings/checks`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    shown(call, id, StatusCode::OK, |_| {}).await
}

/// Answers `POST …/settings/checks`.
pub(crate) async fn set(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let kind = call.request.field("kind").unwrap_or_default();
    match submitted(call, id, &kind).await {
        Ok(()) => Ok(reply::redirect(&path(id))),
        Err(failure) if failure.problem.status == 422 => {
            let refused = |page: &mut ChecksPage<'_>| {
                let forms = std::mem::take(&mut page.forms).into_iter();
                let refused = |form: Form| if form.kind == kind { form.refused(call, &failure) } else { form };
                page.forms = forms.map(refused).collect();
            };
            shown(call, id, status(&failure), refused).await
        }
        Err(failure) => Err(failure),
    }
}

async fn submitted(call: &Call<'_>, id: &AppId, kind: &str) -> Result<(), Failure> {
    let text = |name: &str| call.request.field(name).filter(|text| !text.trim().is_empty());
    let name = text("name").unwrap_or_default().parse::<CheckName>();
    let name = name.map_err(|error| invalid(&error.to_string()))?;
    let failures = text("failures").map(|text| text.trim().parse::<u32>()).transpose();
    let operations = call.operations();
    let kinds = operations.call(ListChecks, id, ()).await?.kinds;
    let known = kinds.iter().find(|known| known.kind == kind);
    let settings = known.iter().flat_map(|known| &known.settings);
    let given = settings.filter_map(|known| Some((known.name.clone(), text(&setting(&known.name))?)));
    let value = |(name, text): (String, String)| match kind {
        CoreKind::COMMAND => Ok((name, command(&text)?.into())),
        _ => Ok((name, text.into())),
    };
    let settings: Result<_, String> = given.map(value).collect();
    let check = SetCheck {
        kind: kind.to_owned(),
        settings: settings.map_err(|rule| invalid(&rule))?,
        mode: text("mode"),
        every: text("every"),
        failures: failures.map_err(|_| invalid("failures must be a number."))?,
        timeout: text("timeout"),
        without_verdict: text("without_verdict"),
        secret: text("secret").map(|secret| secret.trim().to_owned()),
    };
    operations.call(PutCheck, &(id.clone(), name), check).await.map(drop)
}

fn invalid(detail: &str) -> Failure {
    Failure::new(Kind::InvalidField, detail)
}

fn path(id: &AppId) -> String {
    format!("/apps/{}/{}/settings/checks", id.namespace, id.name)
}

/// Returns the check that the query names.
fn named(call: &Call<'_>) -> Result<CheckName, Failure> {
    let name = call.request.query("check").and_then(|name| name.parse().ok());
    name.ok_or_else(|| Failure::new(Kind::CheckNotFound, "The app has no check of this name."))
}

/// Answers `POST …/settings/checks/test?check=NAME`.
pub(crate) async fn test(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let name = named(call)?;
    let tested = call.operations().call(TestCheck, &(id.clone(), name.clone()), ()).await?;
    shown(call, id, StatusCode::OK, |page| page.tested = Some(Tested::of(&name, &tested))).await
}

fn removal<'a>(app: &App, head: &'a Head, name: &CheckName) -> Question<'a> {
    let path = app_path(app);
    Question {
        head: Some(head),
        title: format!("Remove the check {name}?"),
        consequences: vec!["Deploys are no longer verified by it.".to_owned()],
        action: format!("{path}/settings/checks/remove?check={name}"),
        back: format!("{path}/settings/checks"),
        button: "Remove the check".to_owned(),
        ..Question::default()
    }
}

/// Answers `GET …/settings/checks/remove?check=NAME`.
pub(crate) async fn confirm_remove(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let name = named(call)?;
    let app = call.operations().call(ShowApp, id, ()).await?;
    Ok(removal(&app, &Head::new(&app, "settings"), &name).reply(call))
}

/// Answers `POST …/settings/checks/remove?check=NAME`.
pub(crate) async fn remove(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    call.operations().call(RemoveCheck, &(id.clone(), named(call)?), ()).await?;
    Ok(reply::redirect(&path(id)))
}
