//! The decision whether a request becomes a deploy.

use super::NewDeploy;
use crate::{
    app::{App, Hold, HoldPolicy, Resolve, Source},
    deploy::{Actor, Commit, Deploy, Order, Origin, Scale, Trigger},
    image::ImageRef,
    request::{Cause, DeployRequest, Field, Refusal},
};

/// A deploy that was accepted, and the fields of the request that have no part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The deploy to be accepted.
    pub deploy: NewDeploy,
    /// The given fields that do not apply to the app.
    pub ignored: Vec<Field>,
}

/// Decides a request to deploy an image or commit.
///
/// # Errors
/// The refusal for the caller.
pub fn deploy(app: &App, request: &DeployRequest, cause: &Cause) -> Result<Decided, Refusal> {
    let (image, ignored) = match &app.source {
        Source::Image => (Some(posted_image(app, request, cause)?), Vec::new()),
        Source::Git(_) => {
            posted_commit(request)?;
            (None, if request.image.is_some() { vec![Field::Image] } else { Vec::new() })
        }
    };
    held(app, image.as_ref(), request.commit.as_ref(), cause.trigger)?;
    let commit = request.commit.clone();
    // A time without a commit says nothing.
    let committed_at = request.committed_at.filter(|_| commit.is_some());
    // What a person asks for is in order whenever it comes.
    let order = if cause.trigger == Trigger::Webhook { request.order } else { Order::Unstated };
    let deploy = NewDeploy { image, commit, committed_at, order, ..NewDeploy::new(cause) };
    Ok(Decided { deploy, ignored })
}

/// Decides a promotion: the image that another environment's app runs, deployed here.
///
/// # Errors
/// The refusal for the caller.
pub fn promotion(
    app: &App,
    image: ImageRef,
    commit: Option<Commit>,
    from: Origin,
    cause: &Cause,
) -> Result<NewDeploy, Refusal> {
    if app.source != Source::Image {
        return Err(Refusal::WrongKind(format!(
            "{} builds its images from git; promotion needs an image app.",
            app.id
        )));
    }
    held(app, Some(&image), commit.as_ref(), cause.trigger)?;
    Ok(NewDeploy { image: Some(image), commit, from: Some(from), ..NewDeploy::new(cause) })
}

/// Returns whether the source of a git app is asked, before a deploy begins, if an earlier one is newer: that of a commit which CI
/// posts without a word on its order. The push of a git host is judged as it comes.
pub fn is_to_be_ordered(app: &App, deploy: &NewDeploy) -> bool {
    let is_posted = deploy.trigger == Trigger::Webhook && !matches!(deploy.actor, Actor::GitHost { .. });
    let is_to_be_built = matches!(app.source, Source::Git(_)) && deploy.image.is_none();
    is_posted && is_to_be_built && deploy.order == Order::Unstated
}

/// Returns whether the image of a deploy is looked up at its registry before anything begins: one that somebody names, if the
/// app's policy does not say otherwise. What ran before, and what was built for the app, is known; where signatures are required,
/// so is a version that has succeeded, or was found signed, and no other.
pub fn is_to_be_resolved(app: &App, deploy: &NewDeploy) -> bool {
    if app.requires_signatures() && is_unverified(deploy) {
        return deploy.image.is_some();
    }
    let is_named = match deploy.trigger {
        Trigger::Webhook | Trigger::Manual | Trigger::Promotion | Trigger::Registry => true,
        Trigger::Rollback | Trigger::Git | Trigger::Config => false,
    };
    let is_known = match &deploy.from {
        Some(Origin::Revision(_) | Origin::Same(_) | Origin::Built(_)) => true,
        Some(Origin::Promoted { .. }) | None => deploy.adopted,
    };
    let is_looked_up = app.source == Source::Image && app.resolve() != Resolve::Off;
    is_looked_up && is_named && !is_known && deploy.image.is_some()
}

/// Returns whether a deploy returns to what was never found to meet the requirements: a version that has not succeeded, or one
/// whose digest is not known, so that other bits may come. A restore keeps what runs, and a stop runs nothing.
fn is_unverified(deploy: &NewDeploy) -> bool {
    let is_restore = deploy.trigger == Trigger::Rollback && deploy.actor.is_service();
    let has_digest = deploy.image.as_ref().is_some_and(|image| image.digest().is_some());
    let runs_anew = !deploy.adopted && !is_restore && deploy.scale != Scale::Stop;
    deploy.is_unproven || !has_digest && runs_anew
}

/// Returns whether a deploy with an image must not begin, as that was not found to meet what is required now: it was built here,
/// or resolved before the requirement was set. Returns, redeploys and changed configurations are decided on as they are accepted.
pub(crate) fn is_unmet(app: &App, deploy: &Deploy) -> bool {
    let is_new = match deploy.trigger {
        Trigger::Webhook | Trigger::Manual | Trigger::Promotion | Trigger::Git | Trigger::Registry => true,
        Trigger::Rollback | Trigger::Config => false,
    };
    let is_asked = is_new && !deploy.adopted && !deploy.is_redeploy() && deploy.image.is_some();
    is_asked && app.requires_signatures() && !deploy.has_met(&app.required())
}

fn posted_image(app: &App, request: &DeployRequest, cause: &Cause) -> Result<ImageRef, Refusal> {
    let image = request.image.clone().ok_or_else(|| {
        Refusal::InvalidField(Field::Image, "an image app is deployed by its image; post a full reference.".to_owned())
    })?;
    if image.tag().is_none() && image.digest().is_none() {
        return Err(Refusal::InvalidField(
            Field::Image,
            format!(
                "{image} names neither a tag nor a digest; post one, so that the history says which version was deployed."
            ),
        ));
    }
    if cause.trigger == Trigger::Webhook && !app.policy.repositories.allow(&image) {
        let allowed = app.policy.repositories.as_slice().to_vec();
        return Err(Refusal::ImageNotAllowed { image, allowed });
    }
    Ok(image)
}

fn posted_commit(request: &DeployRequest) -> Result<(), Refusal> {
    match (&request.commit, &request.image) {
        (Some(commit), _) if commit.is_sha() => Ok(()),
        (Some(_), _) => Err(Refusal::InvalidField(
            Field::Commit,
            "a git app is built from a commit: 40 or 64 hexadecimal digits, or a prefix of 7 or more.".to_owned(),
        )),
        (None, Some(_)) => Err(Refusal::WrongKind(
            "This app builds its images from git: post the commit to build, or register an image app to deploy images."
                .to_owned(),
        )),
        (None, None) => Err(Refusal::InvalidField(Field::Commit, "a git app is deployed by its commit.".to_owned())),
    }
}

/// Returns the hold that covers an image or commit.
pub(super) fn hold_of<'a>(app: &'a App, image: Option<&ImageRef>, commit: Option<&Commit>) -> Option<&'a Hold> {
    app.holds.iter().rev().find(|hold| hold.covers(image, commit))
}

/// A hold refuses what polling found, and pushes of git hosts ([`super::push`]), as neither is a person's
/// decision; CI if the app's policy says so; a person never.
pub(crate) fn held(
    app: &App,
    image: Option<&ImageRef>,
    commit: Option<&Commit>,
    trigger: Trigger,
) -> Result<(), Refusal> {
    let binding = match trigger {
        Trigger::Git | Trigger::Registry => true,
        Trigger::Webhook => app.policy.hold == HoldPolicy::All,
        Trigger::Manual | Trigger::Promotion | Trigger::Rollback | Trigger::Config => false,
    };
    match hold_of(app, image, commit).filter(|_| binding) {
        Some(hold) => {
            let what = match (image, commit) {
                (Some(image), _) => image.to_string(),
                (None, Some(commit)) => commit.to_string(),
                (None, None) => "This".to_owned(),
            };
            Err(Refusal::ImageHeld { by: hold.by, what })
        }
        None => Ok(()),
    }
}
