//! The facts of a notification that every kind of receiver is told, in its own form.

use rollhook_core::{
    app::App,
    deploy::{Commit, Deploy, Origin, State, Trigger},
    time::Timestamp,
};
use serde_json::{Map, Value, json};

/// Returns the time as RFC 3339 text in UTC, with milliseconds.
pub(crate) fn time(time: Timestamp) -> String {
    let bounds = if time.as_millis() < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    format!("{:.3}", jiff::Timestamp::from_millisecond(time.as_millis()).unwrap_or(bounds))
}

/// Returns the path of an app in the API.
pub(crate) fn app_path(app: &App) -> String {
    format!("/api/v1/apps/{}", app.id)
}

/// Returns the names of an app.
pub(crate) fn app(app: &App) -> Map<String, Value> {
    let names = json!({
        "app": app.id.to_string(),
        "project": app.project.as_str(),
        "environment": app.environment.as_str(),
    });
    object(names)
}

/// Returns an entry without its evidence, but for the states of several workloads: a log may hold secrets, and is read in the
/// console.
pub(crate) fn deploy(deploy: &Deploy) -> Map<String, Value> {
    let mut facts = object(json!({
        "revision": deploy.revision,
        "status": deploy.status().as_str(),
        "image": deploy.image.as_ref().map(ToString::to_string),
        "digest": deploy.digest.as_ref().map(ToString::to_string),
        "commit": deploy.shown_commit().map(|commit| commit.to_string()),
        "trigger": deploy.trigger.as_str(),
        "actor": deploy.actor.to_string(),
        "restore": deploy.is_restore(),
        "created_at": time(deploy.created_at),
        "updated_at": time(deploy.updated_at),
    }));
    if let Some(labels) = deploy.labels() {
        facts.insert("labels".to_owned(), json!(labels));
    }
    match &deploy.from {
        Some(Origin::Revision(revision)) => facts.insert("from_revision".to_owned(), json!(revision)),
        Some(Origin::Same(revision)) if deploy.trigger == Trigger::Config => {
            facts.insert("image_of".to_owned(), json!(revision))
        }
        Some(Origin::Same(revision)) => facts.insert("same_as".to_owned(), json!(revision)),
        Some(Origin::Built(revision)) => facts.insert("built_as".to_owned(), json!(revision)),
        Some(Origin::Promoted { app, revision }) => {
            let from = json!({ "app": app.to_string(), "revision": revision });
            facts.insert("promoted_from".to_owned(), from)
        }
        None => None,
    };
    if deploy.configures {
        facts.insert("configures".to_owned(), json!(true));
    }
    if !deploy.scale.is_keep() {
        facts.insert("scale".to_owned(), json!(deploy.scale.as_str()));
    }
    if let Some(sequence) = deploy.sequence {
        facts.insert("sequence".to_owned(), json!(sequence));
    }
    match &deploy.state {
        State::Failed { reason, message, .. } | State::Cancelled { reason, message } => {
            facts.insert("reason".to_owned(), json!(reason.as_str()));
            facts.insert("message".to_owned(), json!(message));
        }
        State::Superseded { by, .. } => drop(facts.insert("superseded_by".to_owned(), json!(by))),
        State::Succeeded { note: Some(note) } => drop(facts.insert("message".to_owned(), json!(note))),
        State::RollingOut { .. } => {
            let gap = deploy.awaited_decision().and_then(|(asking, _)| asking.gap());
            gap.into_iter()
                .for_each(|gap| drop(facts.insert("message".to_owned(), json!(format!("no verdict: {gap}")))));
        }
        State::Succeeded { note: None } | State::Queued | State::Building { .. } | State::Releasing { .. } => {}
    }
    let workloads: Vec<Value> = deploy.workloads().iter().map(|workload| json!(workload)).collect();
    if !workloads.is_empty() {
        facts.insert("workloads".to_owned(), workloads.into());
    }
    facts.retain(|_, value| !value.is_null());
    facts
}

/// The commit by which a git host finds a deploy.
pub(crate) struct NamedCommit {
    pub(crate) commit: Commit,
    /// Whether the image's label alone names the commit: its builder may have meant one of another repository.
    pub(crate) is_labelled: bool,
}

impl NamedCommit {
    /// The reason why a host has no place for a deploy whose label names a commit that it does not know.
    pub(crate) const UNKNOWN: &str =
        "the commit that the image's label names is not in the repository, or the token may not read it";

    /// Returns the commit of a deploy; `None` if there is none, or only a label that is no SHA: a host reads it as a branch.
    pub(crate) fn of(deploy: &Deploy) -> Option<Self> {
        let commit = deploy.shown_commit()?;
        let is_labelled = deploy.commit.is_none();
        (!is_labelled || commit.is_sha()).then_some(Self { commit, is_labelled })
    }

    /// Returns whether a commit that the host has is the one that is named: hosts read a label of digits as a tag or a branch too.
    pub(crate) fn is(&self, sha: &str) -> bool {
        !self.is_labelled || sha.starts_with(self.commit.as_str())
    }
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
