//! Receivers of notifications: the list and how deliveries go, a new one, a test, a new secret.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    AddReceiver, Receiver, RotateReceiver,
    operations::{ListReceivers, RegisterReceiver, RemoveReceiver, ReplaceSecret, TestReceiver},
};
use rollhook_core::text::escaped;
use rollhook_management::notifications::{Destination, EventKind, ReceiverName};
use serde_json::Value;
use zeroize::Zeroizing;

use super::confirm::Question;
use crate::{
    console::{Call, status},
    host::Failure,
    reply::{self, Reply},
    request::values,
    view::{Frame, When},
};

#[derive(Template)]
#[template(path = "receivers.html")]
struct ReceiversPage {
    frame: Frame,
    receivers: Vec<Row>,
    form: Form,
    outcome: Option<Outcome>,
    error: Option<String>,
}

/// A receiver's row.
struct Row {
    name: String,
    kind: String,
    place: String,
    apps: String,
    events: String,
    delivered: Option<When>,
    failing: Option<Failing>,
}

/// The failures of a receiver since its last delivery.
struct Failing {
    since: When,
    failure: String,
    waiting: usize,
}

/// The outcome of the call that the page answers.
enum Outcome {
    /// Its secret was set. Only this page shows the text, and only if the server made it.
    Secret { name: String, secret: Option<Zeroizing<String>> },
    /// A test was sent.
    Tested { name: String, delivered: bool, answer: String },
}

/// The values of the form for a new receiver. Its secret is not among them: a page that is shown again has none.
#[derive(Default)]
struct Form {
    name: String,
    kind: String,
    url: String,
    channel: String,
    repository: String,
    events: Vec<String>,
    project: String,
    environment: String,
    app: String,
    /// The field that the error is about.
    field: String,
}

impl Form {
    fn kinds(&self) -> [(&'static str, &'static str); Destination::KINDS.len()] {
        Destination::KINDS.map(|kind| (kind, kind_in_words(kind)))
    }

    fn is_kind(&self, kind: &str) -> bool {
        if self.kind.is_empty() { kind == Destination::KINDS[0] } else { kind == self.kind }
    }

    fn all_events(&self) -> [(&'static str, String); EventKind::ALL.len()] {
        EventKind::ALL.map(|event| (event.as_str(), event.as_str().replace('_', " ")))
    }

    fn has_event(&self, event: &str) -> bool {
        self.events.iter().any(|chosen| chosen == event)
    }

    fn is_wrong(&self, field: &str) -> bool {
        self.field == field
    }
}

fn kind_in_words(kind: &str) -> &'static str {
    match kind {
        "cdevents" => "CDEvents",
        "slack" => "Slack",
        "github" => "GitHub",
        "gitlab" => "GitLab",
        _ => "URL",
    }
}

impl Row {
    fn of(receiver: &Receiver, frame: &Frame) -> Self {
        let when = |time| When::new(time, frame.now);
        let events: Vec<_> = receiver.events.iter().map(|event| event.replace('_', " ")).collect();
        Self {
            name: escaped(&receiver.name),
            kind: kind_in_words(&receiver.kind).to_owned(),
            place: escaped(&receiver.place),
            apps: escaped(&receiver.apps()),
            events: escaped(&events.join(", ")),
            delivered: receiver.last_delivered_at.map(when),
            failing: receiver.failing_since.map(|since| Failing {
                since: when(since),
                failure: escaped(receiver.failure.as_deref().unwrap_or_default()),
                waiting: receiver.waiting,
            }),
        }
    }
}

async fn read(call: &Call<'_>) -> Result<ReceiversPage, Failure> {
    let frame = call.frame();
    let listed = call.operations().call(ListReceivers, &(), ()).await?;
    let receivers = listed.receivers.iter().map(|receiver| Row::of(receiver, &frame)).collect();
    Ok(ReceiversPage { frame, receivers, form: Form::default(), outcome: None, error: None })
}

/// Answers `GET /receivers`.
pub(crate) async fn page(call: &Call<'_>) -> Result<Reply, Failure> {
    Ok(reply::html(StatusCode::OK, &read(call).await?))
}

/// Answers `POST /receivers`.
pub(crate) async fn add(call: &Call<'_>) -> Result<Reply, Failure> {
    let field = |name| call.request.field(name);
    let text = |name| field(name).unwrap_or_default();
    let kind = text("kind");
    // The form has the fields of every kind; those of the others are hidden, and not meant.
    let of = |kinds: &[&str], name| if kinds.contains(&kind.as_str()) { field(name) } else { None };
    let wanted = AddReceiver {
        name: text("name"),
        url: field("url"),
        channel: of(&["slack"], "channel"),
        repository: of(&["github", "gitlab"], "repository"),
        secret: field("secret"),
        events: values(&call.request.body, "event"),
        project: field("project"),
        environment: field("environment"),
        app: field("app"),
        kind,
    };
    match call.operations().call(RegisterReceiver, &(), wanted.clone()).await {
        Ok(added) => {
            let name = escaped(&added.receiver.name);
            shown(call, Outcome::Secret { name, secret: added.secret.map(Zeroizing::new) }, StatusCode::CREATED).await
        }
        Err(failure) if (400..500).contains(&failure.problem.status) => {
            let about = failure.problem.members.get("field").and_then(Value::as_str).unwrap_or_default();
            let form = Form {
                name: wanted.name,
                kind: wanted.kind,
                url: text("url"),
                channel: text("channel"),
                repository: text("repository"),
                events: wanted.events,
                project: text("project"),
                environment: text("environment"),
                app: text("app"),
                field: about.to_owned(),
            };
            let page = ReceiversPage { form, error: Some(escaped(&failure.problem.detail)), ..read(call).await? };
            Ok(reply::html(status(&failure), &page))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns the list with what was just done.
async fn shown(call: &Call<'_>, outcome: Outcome, status: StatusCode) -> Result<Reply, Failure> {
    // What was done stays done, and a new secret is shown, also if the list cannot be read just now.
    let page = read(call).await.unwrap_or_else(|_| ReceiversPage {
        frame: call.frame(),
        receivers: Vec::new(),
        form: Form::default(),
        outcome: None,
        error: None,
    });
    Ok(reply::with_secret(reply::html(status, &ReceiversPage { outcome: Some(outcome), ..page })))
}

/// Answers `POST /receivers/{name}/test`.
pub(crate) async fn test(call: &Call<'_>, name: &ReceiverName) -> Result<Reply, Failure> {
    let tested = call.operations().call(TestReceiver, name, ()).await?;
    let outcome =
        Outcome::Tested { name: escaped(name.as_str()), delivered: tested.delivered, answer: escaped(&tested.answer) };
    shown(call, outcome, StatusCode::OK).await
}

fn rotation(name: &ReceiverName) -> Question<'static> {
    Question {
        title: format!("A new secret for {name}?"),
        consequences: vec![
            "The next notification has the new secret.".to_owned(),
            "A receiver that does not know it yet refuses, and gets the notification again later.".to_owned(),
        ],
        action: format!("/receivers/{name}/rotate"),
        back: "/receivers".to_owned(),
        button: "Replace the secret".to_owned(),
        secret: Some("The token of Slack, GitHub or GitLab; of a URL, leave it empty and one is made."),
        ..Question::default()
    }
}

/// Answers `GET /receivers/{name}/rotate`.
pub(crate) fn confirm_rotate(call: &Call<'_>, name: &ReceiverName) -> Reply {
    rotation(name).reply(call)
}

/// Answers `POST /receivers/{name}/rotate`.
pub(crate) async fn rotate(call: &Call<'_>, name: &ReceiverName) -> Result<Reply, Failure> {
    match call.operations().call(ReplaceSecret, name, RotateReceiver { secret: call.request.field("secret") }).await {
        Ok(rotated) => {
            let outcome = Outcome::Secret { name: escaped(name.as_str()), secret: rotated.secret.map(Zeroizing::new) };
            shown(call, outcome, StatusCode::OK).await
        }
        Err(failure) if failure.problem.status == 422 => Ok(rotation(name).refused(call, &failure)),
        Err(failure) => Err(failure),
    }
}

/// Answers `GET /receivers/{name}/remove`.
pub(crate) fn confirm_remove(call: &Call<'_>, name: &ReceiverName) -> Reply {
    Question {
        title: format!("Remove {name}?"),
        consequences: vec![
            "It gets no more notifications, also about deploys that run now.".to_owned(),
            "Its secret is deleted.".to_owned(),
        ],
        action: format!("/receivers/{name}/remove"),
        back: "/receivers".to_owned(),
        button: "Remove the receiver".to_owned(),
        ..Question::default()
    }
    .reply(call)
}

/// Answers `POST /receivers/{name}/remove`.
pub(crate) async fn remove(call: &Call<'_>, name: &ReceiverName) -> Result<Reply, Failure> {
    call.operations().call(RemoveReceiver, name, ()).await?;
    Ok(reply::redirect("/receivers"))
}
