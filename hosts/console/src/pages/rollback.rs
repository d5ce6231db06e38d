//! The rollback: from which image to which, what is held, and what ends.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    App, Deploy, Kind, Rollback,
    configuration::signed_differences,
    operations::{ConfigQuery, DeployQuery, RollBack, ShowApp, ShowConfiguration, ShowDeploy},
    words::{self, short_image},
};
use rollhook_core::{
    app::{AppId, HoldPolicy},
    deploy::{Revision, Status},
    text::escaped,
};

use crate::{
    console::{Call, status},
    host::Failure,
    reply::{self, Reply},
    view::{Entry, Frame, Head, and},
};

/// The most revisions that the page names because their release commands ran, and the most variables.
const NAMED_MAX: usize = 5;

#[derive(Template)]
#[template(path = "rollback.html")]
struct RollbackPage<'a> {
    frame: &'a Frame,
    plan: &'a Plan,
}

#[derive(Template)]
#[template(path = "_rollback.html")]
struct RollbackPart<'a> {
    plan: &'a Plan,
}

/// The effects of a rollback, before it begins.
struct Plan {
    head: Head,
    from: Option<Entry>,
    to: Entry,
    /// A reason to think twice.
    caution: Option<String>,
    /// Why the version goes without its release command.
    not_released: Option<String>,
    /// The release commands that ran since the version to return to.
    released: Option<String>,
    held: Option<String>,
    held_from: &'static str,
    superseded: Option<String>,
    /// The variables in which the version's configuration differs from that of what is current.
    variables: Option<String>,
    is_current: bool,
    if_current: Option<Revision>,
    key: String,
    error: Option<String>,
    /// Whether the configuration would bring revoked values back, as the call was refused for.
    is_revoked: bool,
    /// Whether the configuration was to come back in the request that was refused.
    with_config: bool,
}

impl Plan {
    fn new(call: &Call<'_>, app: &App, target: &Deploy) -> Self {
        let frame = call.frame();
        let from = app.on_cluster.as_ref().filter(|deploy| deploy.revision != target.revision);
        let names: Vec<String> = app.unfinished.iter().map(|revision| format!("#{revision}")).collect();
        Self {
            head: Head::new(app, "deploys"),
            from: from.map(|deploy| Entry::new(app, deploy, &frame)),
            to: Entry::new(app, target, &frame),
            caution: caution(target),
            not_released: words::not_released(target).map(upper),
            released: released(app, target.revision),
            held: from.and_then(held),
            held_from: match app.policy.hold {
                HoldPolicy::Automatic => "polling and git hosts do not bring it back; a call of CI does",
                HoldPolicy::All => "polling, git hosts and CI do not bring it back",
            },
            superseded: (!names.is_empty()).then(|| and(&names)),
            variables: None,
            is_current: target.current,
            if_current: app.current.as_ref().map(|deploy| deploy.revision),
            key: call.new_key(),
            error: None,
            is_revoked: false,
            with_config: false,
        }
    }

    fn reply(&self, call: &Call<'_>, status: StatusCode) -> Reply {
        match call.request.is_partial() {
            true => reply::html(status, &RollbackPart { plan: self }),
            false => reply::html(status, &RollbackPage { frame: &call.frame(), plan: self }),
        }
    }
}

/// Returns the plan with the variables in which the version's configuration differs, if it is still kept.
async fn planned(call: &Call<'_>, id: &AppId, app: &App, target: &Deploy) -> Plan {
    let plan = Plan::new(call, app, target);
    let current = app.current.as_ref();
    if current.is_none_or(|current| current.configuration == target.configuration) {
        return plan;
    }
    let operations = call.operations();
    let of = |revision| operations.call(ShowConfiguration, id, ConfigQuery { revision });
    let (Ok(from), Ok(to)) = (of(None).await, of(Some(target.revision)).await) else { return plan };
    let names: Vec<String> = signed_differences(&from, &to).iter().map(|name| escaped(name)).collect();
    Plan { variables: (!names.is_empty()).then(|| first(&names)), ..plan }
}

/// Returns a clause as a sentence.
fn upper(clause: &str) -> String {
    let (first, rest) = clause.split_at(clause.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}.", first.to_uppercase())
}

pub(super) fn caution(target: &Deploy) -> Option<String> {
    if let Some(revoked) = words::revocation(target.revoked.as_ref()) {
        return Some(escaped(&upper(&revoked)));
    }
    let why = match target.status {
        Status::Succeeded => return None,
        Status::Failed => "This revision failed",
        Status::Queued
        | Status::Building
        | Status::Releasing
        | Status::RollingOut
        | Status::Verifying
        | Status::Superseded
        | Status::Cancelled => "This revision never succeeded",
    };
    let message = target.message.as_deref().map(|message| format!(": {}", escaped(message))).unwrap_or_default();
    Some(format!("{why}{message}"))
}

/// Returns a sentence about the release commands that ran since a revision; `None` if there are none.
pub(super) fn released(app: &App, target: Revision) -> Option<String> {
    let since = rollhook_api::time::absolute(app.released_since(target).next()?.at);
    let newest: Vec<String> = app.released_since(target).rev().map(|it| format!("#{}", it.revision)).collect();
    let names = first(&newest);
    let commands = if newest.len() == 1 { "command" } else { "commands" };
    Some(format!("The release {commands} of {names} ran, or may have run, since {since}."))
}

/// Returns the first of these names, and the number of the others.
pub(super) fn first(names: &[String]) -> String {
    let (named, others) = names.split_at(names.len().min(NAMED_MAX));
    if others.is_empty() { and(named) } else { format!("{} and {} more", named.join(", "), others.len()) }
}

fn held(from: &Deploy) -> Option<String> {
    let image = from.image.as_deref().map(short_image);
    Some(escaped(&image.or_else(|| from.commit.clone())?))
}

fn target(text: Option<String>) -> Result<Revision, Failure> {
    let revision = text.and_then(|text| text.parse().ok());
    revision.ok_or_else(|| Failure::new(Kind::RevisionNotFound, "There is no such revision of this app."))
}

/// Answers `GET …/rollback?to=N`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let revision = target(call.request.query("to"))?;
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    let entry = operations.call(ShowDeploy, &(id.clone(), revision), DeployQuery::default()).await?;
    Ok(planned(call, id, &app, &entry).await.reply(call, StatusCode::OK))
}

/// Answers `POST …/rollback`.
pub(crate) async fn submit(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let revision = target(call.request.field("to"))?;
    let if_current = call.request.field("if_current").and_then(|text| text.parse().ok());
    let past_releases = call.request.field("past_releases").is_some();
    let without_release = call.request.field("without_release").is_some();
    let with_config = call.request.field("with_config").is_some();
    let with_revoked = call.request.field("with_revoked").is_some();
    let named = Some(revision);
    let rollback = Rollback { revision: named, if_current, past_releases, without_release, with_config, with_revoked };
    match call.keyed("rollback")?.call(RollBack, id, rollback).await {
        Ok(_) => Ok(reply::redirect(&format!("/apps/{}/{}", id.namespace, id.name))),
        Err(failure) if matches!(failure.problem.status, 409 | 422) => {
            let operations = call.operations();
            let app = operations.call(ShowApp, id, ()).await?;
            let entry = operations.call(ShowDeploy, &(id.clone(), revision), DeployQuery::default()).await?;
            // The plan shows what is current by now: to submit it again is to have seen that.
            let plan = planned(call, id, &app, &entry).await;
            let is_revoked = failure.problem.slug() == Kind::ConfigurationRevoked.parts().0;
            // As of an earlier return to such a version.
            let is_refused = failure.problem.slug() == Kind::NotReleased.parts().0;
            let unknown = || "Its release command did not succeed and will not be run: deploy the image again instead.";
            let not_released = plan.not_released.clone().or_else(|| is_refused.then(unknown).map(ToOwned::to_owned));
            let error = Some(escaped(&failure.problem.detail));
            let plan = Plan { error, is_revoked, not_released, with_config, ..plan };
            Ok(plan.reply(call, status(&failure)))
        }
        Err(failure) => Err(failure),
    }
}
