//! Trusting a pipeline: its id_tokens open the webhook, without a secret.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    AddTrust, App, Kind, Pipeline,
    operations::{ShowApp, TrustPipeline},
};
use rollhook_core::{app::AppId, text::escaped};
use rollhook_management::keyless::CLAIMS_MAX;
use serde_json::Value;

use crate::{
    console::{Call, status},
    host::Failure,
    reply::{self, Reply},
    view::{Frame, Head, app_path},
};

/// The CI systems, as the form offers them; the last one is any other.
const SYSTEMS: [(&str, &str); 3] =
    [("github", "GitHub Actions"), ("gitlab", "GitLab CI"), ("other", "another, by its issuer and claims")];

#[derive(Template)]
#[template(path = "trust.html")]
struct TrustPage<'a> {
    frame: &'a Frame,
    head: &'a Head,
    form: Form,
    base_url: &'a str,
    /// The field that the error is about, as the form names it.
    field: String,
    error: Option<String>,
}

/// The values of the form.
#[derive(Default)]
struct Form {
    system: String,
    number: String,
    issuer: String,
    audience: String,
    claims: String,
}

impl Form {
    fn submitted(call: &Call<'_>) -> Self {
        let text = |name| call.request.field(name).unwrap_or_default();
        Self {
            system: text("system"),
            number: text("number"),
            issuer: text("issuer"),
            audience: text("audience"),
            claims: text("claims"),
        }
    }

    /// Returns the request, or the field that is wrong and why.
    fn request(&self) -> Result<AddTrust, (&'static str, String)> {
        let system = match self.system.as_str() {
            "github" => Some(Pipeline::Github),
            "gitlab" => Some(Pipeline::Gitlab),
            _ => None,
        };
        let number =
            || self.number.parse().map_err(|_| ("number", "The repository’s number is digits alone.".to_owned()));
        let pipeline = system.map(|system| number().map(|number| (system, number))).transpose()?;
        let claim = |line: &str| {
            let (name, text) = line.split_once('=')?;
            Some((name.trim().to_owned(), text.trim().to_owned()))
        };
        let lines = self.claims.lines().map(str::trim).filter(|line| !line.is_empty());
        if lines.clone().nth(CLAIMS_MAX).is_some() {
            return Err(("claims", format!("A trust has at most {CLAIMS_MAX} claims.")));
        }
        let claims = lines
            .map(|line| claim(line).ok_or(("claims", "Each claim is a line such as ref=refs/heads/main.".to_owned())));
        let claims: Vec<_> = claims.collect::<Result<_, _>>()?;
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        AddTrust::new(pipeline, given(&self.issuer), given(&self.audience), claims)
            .map_err(|name| ("claims", format!("The claim {name} is given twice.")))
    }
}

impl TrustPage<'_> {
    fn systems(&self) -> [(&'static str, &'static str); 3] {
        SYSTEMS
    }

    fn is_wrong(&self, field: &str) -> bool {
        self.field == field
    }
}

fn shown(call: &Call<'_>, app: &App, form: Form, wrong: Option<(String, String)>, status: StatusCode) -> Reply {
    let (field, error) = wrong.map_or((String::new(), None), |(field, error)| (field, Some(escaped(&error))));
    let page = TrustPage {
        frame: &call.frame(),
        head: &Head::new(app, "webhook"),
        form,
        base_url: call.console.host.base_url(),
        field,
        error,
    };
    reply::html(status, &page)
}

/// Answers `GET …/webhook/trust`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let app = call.operations().call(ShowApp, id, ()).await?;
    Ok(shown(call, &app, Form::default(), None, StatusCode::OK))
}

/// Answers `POST …/webhook/trust`.
pub(crate) async fn submit(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let (operations, form) = (call.operations(), Form::submitted(call));
    let app = operations.call(ShowApp, id, ()).await?;
    let request = match form.request() {
        Ok(request) => request,
        Err((field, error)) => {
            let wrong = Some((field.to_owned(), error));
            return Ok(shown(call, &app, form, wrong, StatusCode::UNPROCESSABLE_ENTITY));
        }
    };
    match operations.call(TrustPipeline, id, request).await {
        Ok(_) => Ok(reply::redirect(&format!("{}/webhook#trusts", app_path(&app)))),
        Err(failure) if matches!(failure.kind, Kind::Forbidden) => Err(failure),
        Err(failure) if (400..500).contains(&failure.problem.status) => {
            let about = failure.problem.members.get("field").and_then(Value::as_str).unwrap_or_default();
            let wrong = Some((about.to_owned(), failure.problem.detail.clone()));
            Ok(shown(call, &app, form, wrong, status(&failure)))
        }
        Err(failure) => Err(failure),
    }
}
