//! The target of a registration, and its first image.

use crate::{
    app::{App, Source, Target},
    image::ImageRef,
    ports::{InvalidTarget, Validated},
    request::{Field, Refusal, Registration},
};

/// Returns whether an app has neither a running target nor an entry until its first build.
pub fn waits_for_a_build(app: &App) -> bool {
    matches!(app.source, Source::Git(_)) && app.target.requested.is_some()
}

/// Returns whether an app is the one that a registration asks for.
pub fn made(app: &App, wanted: &Registration) -> bool {
    (&app.project, &app.environment) == (&wanted.project, &wanted.environment)
        && app.source == wanted.source
        && app.policy == wanted.policy
        && wanted.image.is_none()
        && app.target.requested.as_ref() == Some(&wanted.target)
}

/// Returns the target of a new app, and the image of its first revision: the running one, or the given one. Returns no
/// image for a git app whose first build creates the target.
///
/// # Errors
/// The refusal for the caller.
pub fn target(wanted: &Registration, validated: Validated) -> Result<(Target, Option<ImageRef>), Refusal> {
    match validated {
        Validated::Adopt { settings, image, take_over, .. } => {
            Ok((Target { settings, requested: None, take_over }, Some(image.or_latest())))
        }
        Validated::Create { settings, take_over, .. } => {
            let image = wanted.image.clone();
            if let Some(image) = image.as_ref().filter(|image| image.tag().is_none() && image.digest().is_none()) {
                return Err(Refusal::InvalidField(Field::Image, format!("{image} names neither a tag nor a digest.")));
            }
            Ok((Target { settings, requested: Some(wanted.target.clone()), take_over }, image))
        }
        Validated::Invalid(InvalidTarget::Setting { name, rule }) => Err(Refusal::InvalidSetting(name, rule)),
        Validated::Invalid(InvalidTarget::Unusable(why)) => Err(Refusal::Workload(why)),
        Validated::Invalid(InvalidTarget::Taken(why)) => Err(Refusal::WorkloadTaken(why)),
    }
}
