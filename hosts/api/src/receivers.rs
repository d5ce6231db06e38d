//! Receivers of notifications.

use std::{fmt::Display, str::FromStr};

use rollhook_core::{
    app::LABEL_MAX,
    request::{Field, Refusal},
    time::Timestamp,
};
use rollhook_management::{
    access::Realm,
    notifications::{
        self, Destination, EventKind, Events, NewReceiver, ReceiverApps, ReceiverSecret, ReceiverStatus, SECRET_MAX,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    app::{field, optional},
    openapi::schemas,
};

/// A request to add a receiver: the body of `POST /api/v1/receivers`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "kind"]))]
pub struct AddReceiver {
    /// The name.
    #[schemars(extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub name: String,
    /// The kind.
    #[schemars(schema_with = "schemas::receiver_kind")]
    pub kind: String,
    /// The URL that a `webhook`'s CloudEvents, or `cdevents`, are posted to. Of the others, the URL of the service's API; absent: the
    /// usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The channel of `slack`: its id, or `#` and its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The repository of `github`, `OWNER/REPOSITORY`; the project of `gitlab`, its number or its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The secret of a `webhook`'s or of `cdevents`' signatures, `whsec_` and base64; absent: one is made. Of the others, the token that the
    /// service has given, which they need.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SECRET_MAX))]
    pub secret: Option<String>,
    /// The events; none: all but `building`, `releasing`, `rolling_out` and `verifying`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::events")]
    pub events: Vec<String>,
    /// The project of the apps; absent: every project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The environment of the apps; absent: every one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The one app; absent: every app of the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
}

impl AddReceiver {
    /// Returns the request.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(self) -> Result<NewReceiver, Refusal> {
        let project = optional(Field::Project, self.project.as_deref())?;
        let environment = optional(Field::Environment, self.environment.as_deref())?;
        let realm = field(Field::Environment, Realm::of(project, environment))?;
        let app = optional(Field::App, self.app.as_deref())?;
        let destination = self.destination()?;
        let events = self.events.iter().map(|event| field(Field::ReceiverEvents, event.parse::<EventKind>()));
        let secret = self.secret.as_deref().map(str::parse::<ReceiverSecret>).transpose();
        Ok(NewReceiver {
            name: field(Field::ReceiverName, self.name.parse())?,
            apps: field(Field::App, ReceiverApps::new(realm, app))?,
            destination,
            events: Events::new(events.collect::<Result<Vec<_>, _>>()?),
            secret: field(Field::ReceiverSecret, secret)?,
        })
    }

    fn destination(&self) -> Result<Destination, Refusal> {
        let api = |usual| needed(Field::ReceiverUrl, Some(self.url.as_deref().unwrap_or(usual)));
        let (channel, repository) = (self.channel.as_ref(), self.repository.as_ref());
        if self.kind != "slack" {
            absent(Field::ReceiverChannel, channel)?;
        }
        if matches!(self.kind.as_str(), "webhook" | "cdevents" | "slack") {
            absent(Field::ReceiverRepository, repository)?;
        }
        let repository = repository.map(String::as_str);
        Ok(match self.kind.as_str() {
            "webhook" => Destination::Webhook { url: needed(Field::ReceiverUrl, self.url.as_deref())? },
            "cdevents" => Destination::CdEvents { url: needed(Field::ReceiverUrl, self.url.as_deref())? },
            "slack" => Destination::Slack {
                api: api(Destination::SLACK_API)?,
                channel: needed(Field::ReceiverChannel, channel.map(String::as_str))?,
            },
            "github" => Destination::GitHub {
                api: api(Destination::GITHUB_API)?,
                repository: needed(Field::ReceiverRepository, repository)?,
            },
            "gitlab" => Destination::GitLab {
                api: api(Destination::GITLAB_API)?,
                project: needed(Field::ReceiverRepository, repository)?,
            },
            _ => {
                let rule = format!("must be one of {}.", Destination::KINDS.join(", "));
                return Err(Refusal::InvalidField(Field::ReceiverKind, rule));
            }
        })
    }
}

/// Returns the value of a field that the kind of receiver needs.
fn needed<T: FromStr<Err: Display>>(name: Field, text: Option<&str>) -> Result<T, Refusal> {
    let text =
        text.ok_or_else(|| Refusal::InvalidField(name, "must be given for this kind of receiver.".to_owned()))?;
    field(name, text.parse())
}

/// Checks that a field is absent that the kind of receiver does not have.
fn absent(name: Field, value: Option<&String>) -> Result<(), Refusal> {
    match value {
        Some(_) => Err(Refusal::InvalidField(name, "must not be given for this kind of receiver.".to_owned())),
        None => Ok(()),
    }
}

impl std::fmt::Debug for AddReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddReceiver").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A receiver, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Receiver {
    /// The name.
    pub name: String,
    /// The kind.
    #[schemars(schema_with = "schemas::receiver_kind")]
    pub kind: String,
    /// The place that it is told at.
    pub place: String,
    /// The events that it is told of.
    #[schemars(schema_with = "schemas::events")]
    pub events: Vec<String>,
    /// The project of the apps; absent: every project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The environment of the apps; absent: every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The one app; absent: every app of the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// The party that added it.
    pub added_by: String,
    /// The time at which it was added: it is told of deploys that were accepted since.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub added_at: Timestamp,
    /// The time of the last delivery, with an error of up to half a minute; absent: there was none.
    #[serde(default, with = "crate::time::maybe", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub last_delivered_at: Option<Timestamp>,
    /// The time of the first failure since the last delivery; absent: it does not fail.
    #[serde(default, with = "crate::time::maybe", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub failing_since: Option<Timestamp>,
    /// The last failure since the last delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The number of apps with something to tell while it fails.
    #[serde(default)]
    pub waiting: usize,
}

impl Receiver {
    /// Returns the answer for a receiver.
    pub fn of(receiver: &notifications::Receiver, status: &ReceiverStatus) -> Self {
        let realm = &receiver.apps.realm;
        Self {
            name: receiver.name.to_string(),
            kind: receiver.destination.kind().to_owned(),
            place: receiver.destination.place(),
            events: receiver.events.iter().map(|event| event.to_string()).collect(),
            project: realm.project().map(ToString::to_string),
            environment: realm.environment().map(ToString::to_string),
            app: receiver.apps.app.as_ref().map(ToString::to_string),
            added_by: receiver.added_by.to_string(),
            added_at: receiver.added_at,
            last_delivered_at: status.last_delivered_at,
            failing_since: status.failing_since,
            failure: status.failure.clone(),
            waiting: status.waiting,
        }
    }

    /// Returns the apps that it is told of, in words.
    pub fn apps(&self) -> String {
        let parts: Vec<_> =
            [&self.project, &self.environment, &self.app].into_iter().flatten().map(String::as_str).collect();
        if parts.is_empty() { "everything".to_owned() } else { parts.join(", ") }
    }
}

/// A receiver that was just added: the only answer that has its secret, if that was made here.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddedReceiver {
    /// The receiver without its secret.
    #[serde(flatten)]
    pub receiver: Receiver,
    /// The secret of signatures; absent: the caller has given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl AddedReceiver {
    /// Returns the answer for a receiver that was just added.
    pub fn of(receiver: &notifications::Receiver, secret: Option<&ReceiverSecret>) -> Self {
        let secret = secret.map(|secret| secret.expose().to_owned());
        Self { receiver: Receiver::of(receiver, &ReceiverStatus::default()), secret }
    }
}

impl std::fmt::Debug for AddedReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddedReceiver").field("receiver", &self.receiver).finish_non_exhaustive()
    }
}

/// A request to replace a receiver's secret: the body of `POST /api/v1/receivers/{receiver}/rotate`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RotateReceiver {
    /// The new secret; absent: one is made, for a `webhook` and `cdevents`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SECRET_MAX))]
    pub secret: Option<String>,
}

impl RotateReceiver {
    /// Returns the secret.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(&self) -> Result<Option<ReceiverSecret>, Refusal> {
        field(Field::ReceiverSecret, self.secret.as_deref().map(str::parse).transpose())
    }
}

impl std::fmt::Debug for RotateReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RotateReceiver").finish_non_exhaustive()
    }
}

/// A receiver's secret that was just replaced.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RotatedReceiver {
    /// The new secret, shown this once; absent: the caller has given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl std::fmt::Debug for RotatedReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RotatedReceiver").finish_non_exhaustive()
    }
}

/// The receivers that a caller may manage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiverList {
    /// The receivers, newest first.
    pub receivers: Vec<Receiver>,
}

/// The outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TestedReceiver {
    /// Whether the receiver has taken the test.
    pub delivered: bool,
    /// The receiver's answer, or the reason why it has not taken the test.
    pub answer: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_faulty_field() {
        let good = AddReceiver {
            name: "ops".to_owned(),
            kind: "webhook".to_owned(),
            url: Some("https://hooks.example.com/".to_owned()),
            ..AddReceiver::default()
        };
        let text = |text: &str| Some(text.to_owned());
        let of = |kind: &str| AddReceiver { kind: kind.to_owned(), url: None, ..good.clone() };
        for request in [
            good.clone(),
            AddReceiver { channel: text("#deploys"), ..of("slack") },
            AddReceiver { repository: text("shop/api"), ..of("github") },
            AddReceiver { repository: text("17"), url: text("https://gitlab.example.com/api/v4"), ..of("gitlab") },
        ] {
            assert!(request.clone().parse().is_ok(), "{request:?}");
        }
        for (request, expected) in [
            (AddReceiver { name: "Ops".to_owned(), ..good.clone() }, Field::ReceiverName),
            (AddReceiver { kind: "pager".to_owned(), ..good.clone() }, Field::ReceiverKind),
            (AddReceiver { url: text("hooks.example.com"), ..good.clone() }, Field::ReceiverUrl),
            (AddReceiver { url: None, ..good.clone() }, Field::ReceiverUrl),
            (AddReceiver { repository: text("shop/api"), ..good.clone() }, Field::ReceiverRepository),
            (AddReceiver { channel: text("# deploys"), ..of("slack") }, Field::ReceiverChannel),
            (of("slack"), Field::ReceiverChannel),
            (AddReceiver { repository: text("shop"), ..of("github") }, Field::ReceiverRepository),
            (AddReceiver { repository: text("a/b"), url: text("https://h/?x"), ..of("gitlab") }, Field::ReceiverUrl),
            (AddReceiver { repository: text("a/b"), channel: text("#x"), ..of("gitlab") }, Field::ReceiverChannel),
            (AddReceiver { secret: text("a b"), ..good.clone() }, Field::ReceiverSecret),
            (AddReceiver { events: vec!["deployed".to_owned()], ..good.clone() }, Field::ReceiverEvents),
            (AddReceiver { environment: text("test"), ..good.clone() }, Field::Environment),
            (AddReceiver { project: text("shop"), app: text("api"), ..good }, Field::App),
        ] {
            assert!(matches!(request.parse(), Err(Refusal::InvalidField(field, _)) if field == expected));
        }
    }
}
