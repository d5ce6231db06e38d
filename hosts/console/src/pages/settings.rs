//! An app's settings: source, policy, holds, and its deletion.

use std::str::FromStr;

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    App, AppPatch, Kind, Policy, PolicyPatch, RequirementOnApp, SourcePatch, WorkloadPatch,
    operations::{ChangeApp, DeleteApp, ReleaseHold, ShowApp},
    words::{command, command_line, short_image},
};
use rollhook_core::{
    app::{AppId, HoldPolicy, OnFailure, Source},
    text::escaped,
};

use super::{confirm::Question, deploys::held_from, further, git_fields::GitFields, target_fields::in_words};
use crate::{
    console::{Call, status},
    host::Failure,
    reply::{self, Reply},
    request::values,
    view::{Frame, Head, When, and, app_path},
};

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage<'a> {
    frame: &'a Frame,
    head: &'a Head,
    policy: Form,
    /// The requirements of the project and of the environment, in words.
    requirements: Vec<String>,
    source: Option<GitFields>,
    holds: Vec<String>,
    held_from: &'static str,
    /// The settings by which the workload is made, a line each.
    template: Vec<String>,
    registered: When,
    uid: String,
    namespace: String,
    warning: Option<String>,
    error: Option<String>,
    source_error: Option<String>,
    workloads: Option<WorkloadsForm>,
    notes: Vec<String>,
    has_saved: bool,
}

/// The form of the further workloads.
struct WorkloadsForm {
    lines: String,
    help: &'static str,
    error: Option<String>,
}

/// The policy, each value by the policy's own name.
#[derive(Default)]
struct Form {
    on_failure: String,
    hold: String,
    settle: String,
    patience: String,
    ready_within: String,
    rollout_deadline: String,
    build_deadline: String,
    release_command: String,
    release_deadline: String,
    release_group: String,
    verify_for: String,
    watch_for: String,
    release_on_config: String,
    url: String,
    resolve: String,
    commit: String,
    repositories: String,
    keep: String,
    follow: String,
    follow_settle: String,
    /// The signers, between empty lines; `None`: the form has no field for them.
    require_signature: Option<String>,
    require_attestation: Option<String>,
    poll: String,
}

impl Form {
    fn of(policy: &Policy) -> Self {
        Self {
            on_failure: match policy.on_failure {
                OnFailure::Restore => "restore",
                OnFailure::Leave => "leave",
            }
            .to_owned(),
            hold: match policy.hold {
                HoldPolicy::Automatic => "automatic",
                HoldPolicy::All => "all",
            }
            .to_owned(),
            settle: policy.settle.clone(),
            patience: policy.patience.clone(),
            ready_within: policy.ready_within.clone(),
            rollout_deadline: policy.rollout_deadline.clone(),
            build_deadline: policy.build_deadline.clone(),
            release_command: command_line(&policy.release_command),
            release_deadline: policy.release_deadline.clone(),
            release_group: policy.release_group.clone(),
            verify_for: policy.verify_for.clone(),
            watch_for: policy.watch_for.clone(),
            release_on_config: if policy.release_on_config { "on" } else { "off" }.to_owned(),
            url: policy.url.clone(),
            resolve: policy.resolve.as_str().to_owned(),
            commit: policy.commit.as_str().to_owned(),
            repositories: policy.repositories.join("\n"),
            keep: policy.keep.to_string(),
            follow: policy.follow.clone(),
            follow_settle: policy.follow_settle.clone(),
            require_signature: Some(
                policy.demands.require_signature.iter().map(|signer| signer.trim()).collect::<Vec<_>>().join("\n\n"),
            ),
            require_attestation: Some(policy.demands.require_attestation.trim().to_owned()),
            poll: policy.poll.clone(),
        }
    }

    fn submitted(call: &Call<'_>) -> Self {
        let text = |name| call.request.field(name).unwrap_or_default();
        Self {
            on_failure: text("on_failure"),
            hold: text("hold"),
            settle: text("settle"),
            patience: text("patience"),
            ready_within: text("ready_within"),
            rollout_deadline: text("rollout_deadline"),
            build_deadline: text("build_deadline"),
            release_command: text("release_command"),
            release_deadline: text("release_deadline"),
            release_group: text("release_group"),
            verify_for: text("verify_for"),
            watch_for: text("watch_for"),
            release_on_config: text("release_on_config"),
            url: text("url"),
            resolve: text("resolve"),
            commit: text("commit"),
            repositories: text("repositories"),
            keep: text("keep"),
            follow: text("follow"),
            follow_settle: text("follow_settle"),
            require_signature: call.request.field("require_signature"),
            require_attestation: call.request.field("require_attestation"),
            poll: text("poll"),
        }
    }

    fn patch(&self) -> Result<PolicyPatch, Failure> {
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        let keep = given(&self.keep).map(|text| text.parse().map_err(|_| invalid("keep must be a whole number.")));
        let repositories = self.repositories.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
        Ok(PolicyPatch {
            on_failure: given(&self.on_failure),
            hold: given(&self.hold),
            settle: given(&self.settle),
            patience: given(&self.patience),
            ready_within: given(&self.ready_within),
            rollout_deadline: given(&self.rollout_deadline),
            build_deadline: given(&self.build_deadline),
            release_command: Some(command(&self.release_command).map_err(|rule| invalid(&rule))?),
            release_deadline: given(&self.release_deadline),
            release_group: Some(self.release_group.trim().to_owned()),
            verify_for: given(&self.verify_for),
            watch_for: given(&self.watch_for),
            release_on_config: on_or_off(&self.release_on_config)?,
            url: Some(self.url.trim().to_owned()),
            resolve: choice("resolve", &self.resolve)?,
            commit: choice("commit", &self.commit)?,
            repositories: Some(repositories.map(str::to_owned).collect()),
            keep: keep.transpose()?,
            // An app that begins or ends to follow has its interval of polling set with it.
            poll: given(&self.poll).filter(|poll| self.follow.is_empty() || self.follow != "off" && poll != "off"),
            follow: given(&self.follow),
            follow_settle: given(&self.follow_settle),
            require_signature: self.require_signature.as_deref().map(blocks),
            require_attestation: self.require_attestation.as_ref().map(|text| text.trim().to_owned()),
        })
    }
}

/// Returns the parts of a text that empty lines part: a key has lines of its own.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in text.lines().map(str::trim) {
        match blocks.last_mut() {
            Some(block) if !line.is_empty() => {
                block.push_str(line);
                block.push('\n');
            }
            Some(_) | None => blocks.push(String::new()),
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

fn on_or_off(text: &str) -> Result<Option<bool>, Failure> {
    match text {
        "" => Ok(None),
        "on" => Ok(Some(true)),
        "off" => Ok(Some(false)),
        _ => Err(invalid("release-on-config must be on or off.")),
    }
}

/// Reads a choice of words, of which a form may have none.
fn choice<T: FromStr<Err = &'static str>>(name: &str, text: &str) -> Result<Option<T>, Failure> {
    let given = (!text.is_empty()).then(|| text.parse());
    given.transpose().map_err(|rule| invalid(&format!("{name} {rule}.")))
}

fn invalid(detail: &str) -> Failure {
    Failure::new(Kind::InvalidField, detail)
}

impl GitFields {
    fn of(source: &Source) -> Option<Self> {
        let Source::Git(git) = source else { return None };
        Some(Self {
            url: git.url.to_string(),
            branch: git.branch.to_string(),
            dockerfile: git.dockerfile.to_string(),
            context: git.context.to_string(),
            image_repository: git.image_repository.to_string(),
            credentials: git.credentials.as_ref().map(ToString::to_string).unwrap_or_default(),
        })
    }
}

/// Returns a requirement of the app's project or environment, in words.
fn required(of: &RequirementOnApp) -> String {
    escaped(&format!("The {} requires that images are {}.", of.on, of.demands))
}

fn settings<'a>(app: &App, head: &'a Head, frame: &'a Frame) -> SettingsPage<'a> {
    SettingsPage {
        frame,
        head,
        policy: Form::of(&app.policy),
        requirements: app.requirements.iter().map(required).collect(),
        source: GitFields::of(&app.source),
        holds: app
            .holds
            .iter()
            .map(|hold| {
                let image = hold.image.as_ref().map(|image| short_image(&image.to_string()));
                let what = image.or_else(|| hold.commit.as_ref().map(ToString::to_string)).unwrap_or_default();
                format!("{}, since rollback #{}", escaped(&what), hold.by)
            })
            .collect(),
        held_from: held_from(app.policy.hold),
        template: app.template_lines().iter().map(|line| escaped(line)).collect(),
        registered: When::new(app.created_at, frame.now),
        uid: escaped(&app.uid),
        namespace: escaped(&app.namespace),
        warning: app.warning.as_deref().map(escaped),
        error: None,
        source_error: None,
        workloads: further::lines(app, &frame.targets).map(|(lines, help)| WorkloadsForm {
            lines: escaped_lines(&lines),
            help,
            error: None,
        }),
        notes: Vec::new(),
        has_saved: false,
    }
}

/// Answers `GET …/settings`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let app = call.operations().call(ShowApp, id, ()).await?;
    let (frame, head) = (call.frame(), Head::new(&app, "settings"));
    let page = SettingsPage { has_saved: call.request.query("saved").is_some(), ..settings(&app, &head, &frame) };
    Ok(reply::html(StatusCode::OK, &page))
}

fn saved(id: &AppId) -> Reply {
    reply::redirect(&format!("/apps/{}/{}/settings?saved=1", id.namespace, id.name))
}

/// Answers `POST …/settings`.
pub(crate) async fn change_policy(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let (operations, form) = (call.operations(), Form::submitted(call));
    let changed = match form.patch() {
        Ok(policy) => operations.call(ChangeApp, id, AppPatch { policy, ..AppPatch::default() }).await,
        Err(failure) => Err(failure),
    };
    match changed {
        Ok(_) => Ok(saved(id)),
        Err(failure) if failure.problem.status == 422 => {
            let app = operations.call(ShowApp, id, ()).await?;
            let (frame, head) = (call.frame(), Head::new(&app, "settings"));
            let error = Some(escaped(&failure.problem.detail));
            let page = SettingsPage { policy: form, error, ..settings(&app, &head, &frame) };
            Ok(reply::html(status(&failure), &page))
        }
        Err(failure) => Err(failure),
    }
}

/// Answers `POST …/settings/source`.
pub(crate) async fn change_source(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let operations = call.operations();
    // A field that is sent empty is meant to be empty.
    let text = |name| values(&call.request.body, name).into_iter().next();
    let source = SourcePatch {
        url: text("url"),
        branch: text("branch"),
        dockerfile: text("dockerfile"),
        context: text("context"),
        image_repository: text("image_repository"),
        credentials: text("credentials"),
    };
    match operations.call(ChangeApp, id, AppPatch { source, ..AppPatch::default() }).await {
        Ok(_) => Ok(saved(id)),
        Err(failure) if matches!(failure.problem.status, 409 | 422) => {
            let app = operations.call(ShowApp, id, ()).await?;
            let (frame, head) = (call.frame(), Head::new(&app, "settings"));
            let source_error = Some(escaped(&failure.problem.detail));
            Ok(reply::html(status(&failure), &SettingsPage { source_error, ..settings(&app, &head, &frame) }))
        }
        Err(failure) => Err(failure),
    }
}

fn escaped_lines(lines: &str) -> String {
    lines.lines().map(escaped).collect::<Vec<_>>().join("\n")
}

/// Answers `POST …/settings/workloads`.
pub(crate) async fn change_workloads(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    // An empty list is meant to be empty.
    let lines = values(&call.request.body, further::FIELD).into_iter().next().unwrap_or_default();
    let workload = WorkloadPatch { also: Some(further::list(&app, &lines)) };
    let frame = call.frame();
    match operations.call(ChangeApp, id, AppPatch { workload, ..AppPatch::default() }).await {
        Ok(changed) if changed.notes.is_empty() => Ok(saved(id)),
        Ok(changed) => {
            let notes = changed.notes.iter().map(|note| escaped(note)).collect();
            let app = operations.call(ShowApp, id, ()).await?;
            let head = Head::new(&app, "settings");
            let page = SettingsPage { notes, has_saved: true, ..settings(&app, &head, &frame) };
            Ok(reply::html(StatusCode::OK, &page))
        }
        Err(failure) if matches!(failure.problem.status, 409 | 422) => {
            let head = Head::new(&app, "settings");
            let error = in_words(&frame.targets, further::FIELD, &failure.problem.detail);
            let page = settings(&app, &head, &frame);
            let form = |form| WorkloadsForm { lines: escaped_lines(&lines), error: Some(error), ..form };
            Ok(reply::html(status(&failure), &SettingsPage { workloads: page.workloads.map(form), ..page }))
        }
        Err(failure) => Err(failure),
    }
}

/// Answers `GET …/release-hold`.
pub(crate) async fn confirm_release(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let app = call.operations().call(ShowApp, id, ()).await?;
    let path = app_path(&app);
    let names: Vec<String> = app
        .holds
        .iter()
        .filter_map(|hold| hold.image.as_ref().map(|image| escaped(&short_image(&image.to_string()))))
        .collect();
    let held = if names.is_empty() { "The held image".to_owned() } else { and(&names) };
    let question = Question {
        head: Some(&Head::new(&app, "deploys")),
        title: "Release the hold?".to_owned(),
        consequences: vec![
            format!("{held} may be deployed again by polling, git hosts and CI."),
            "Nothing is deployed by the release itself.".to_owned(),
        ],
        action: format!("{path}/release-hold"),
        back: path,
        button: "Release the hold".to_owned(),
        ..Question::default()
    };
    Ok(question.reply(call))
}

/// Answers `POST …/release-hold`.
pub(crate) async fn release(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    call.operations().call(ReleaseHold, id, ()).await?;
    Ok(reply::redirect(&format!("/apps/{}/{}", id.namespace, id.name)))
}

fn deletion<'a>(app: &App, head: &'a Head) -> Question<'a> {
    let path = app_path(app);
    Question {
        head: Some(head),
        title: format!("Delete {} in {}?", escaped(&app.app), escaped(&app.environment)),
        consequences: vec![
            "Its history and its webhook's token are removed, and cannot be brought back.".to_owned(),
            "Deploys that have not ended are cancelled.".to_owned(),
            "The workload stays as it is, and goes on running.".to_owned(),
        ],
        action: format!("{path}/delete"),
        back: format!("{path}/settings"),
        button: "Delete this app".to_owned(),
        typed: Some(escaped(&app.app)),
        ..Question::default()
    }
}

/// Answers `GET …/delete`.
pub(crate) async fn confirm_delete(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let app = call.operations().call(ShowApp, id, ()).await?;
    Ok(deletion(&app, &Head::new(&app, "settings")).reply(call))
}

/// Answers `POST …/delete`.
pub(crate) async fn delete(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let operations = call.operations();
    if call.request.field("typed").is_none_or(|typed| typed != id.name.as_str()) {
        let app = operations.call(ShowApp, id, ()).await?;
        let failure = invalid("Type the app's name as it is written. Nothing was deleted.");
        return Ok(deletion(&app, &Head::new(&app, "settings")).refused(call, &failure));
    }
    operations.call(DeleteApp, id, ()).await?;
    Ok(reply::redirect("/"))
}
