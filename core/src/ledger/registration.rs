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

/// The target of a new app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTarget {
    /// The target.
    pub target: Target,
    /// The image of the first revision: the running one, or the given one; `None` for a git app whose first build creates
    /// the target.
    pub image: Option<ImageRef>,
    /// Whether the target existed.
    pub adopted: bool,
    /// The names of the given settings that were not used, as the target existed.
    pub unused: Vec<String>,
    /// What the person should know of this target's deploys, in sentences.
    pub notes: Vec<String>,
}

/// Returns the target of a new app. A request that describes a new target contradicts one that exists: the deploys of one
/// app would run on the data of another. It is refused, unless the request says that the target is adopted all the same.
///
/// # Errors
/// The refusal for the caller.
pub fn target(wanted: &Registration, validated: Validated) -> Result<NewTarget, Refusal> {
    match validated {
        Validated::Adopt { settings, image, take_over, unused, notes } => {
            let is_other = |given: &&ImageRef| !given.same_bits(None, &image, None);
            let unused_image = wanted.image.as_ref().filter(is_other).map(|_| Field::Image.to_string());
            let unused: Vec<String> = unused_image.into_iter().chain(unused).collect();
            if !unused.is_empty() && !wanted.adopt {
                return Err(Refusal::WorkloadExists { image, unused });
            }
            let target = Target { settings, requested: None, take_over };
            Ok(NewTarget { target, image: Some(image.or_latest()), adopted: true, unused, notes })
        }
        Validated::Create { settings, take_over, notes } => {
            let image = wanted.image.clone();
            if let Some(image) = image.as_ref().filter(|image| image.tag().is_none() && image.digest().is_none()) {
                return Err(Refusal::InvalidField(Field::Image, format!("{image} names neither a tag nor a digest.")));
            }
            let target = Target { settings, requested: Some(wanted.target.clone()), take_over };
            Ok(NewTarget { target, image, adopted: false, unused: Vec::new(), notes })
        }
        Validated::Invalid(invalid) => Err(refusal(invalid)),
    }
}

/// Returns the target of an app whose settings were changed.
///
/// # Errors
/// The refusal for the caller.
pub fn changed_target(before: &Target, validated: Validated) -> Result<Target, Refusal> {
    match validated {
        // The answer says how to make a target that this app never made: its own is only away.
        Validated::Create { .. } if before.requested.is_none() => Err(Refusal::Workload(
            "The workload does not exist now, and the app did not make it: change it once it is back.".to_owned(),
        )),
        Validated::Adopt { settings, take_over, .. } | Validated::Create { settings, take_over, .. } => {
            Ok(Target { settings, requested: before.requested.clone(), take_over: take_over.or(before.take_over) })
        }
        Validated::Invalid(invalid) => Err(refusal(invalid)),
    }
}

/// Returns the refusal of an invalid target, or of one of its settings.
pub(crate) fn refusal(invalid: InvalidTarget) -> Refusal {
    match invalid {
        InvalidTarget::Setting { name, rule } => Refusal::InvalidSetting(name, rule),
        InvalidTarget::Unusable(why) => Refusal::Workload(why),
        InvalidTarget::Taken(why) => Refusal::WorkloadTaken(why),
    }
}
