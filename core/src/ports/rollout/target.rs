//! What a rollout driver is asked, and answers, about the target of an app that is registered.

use crate::{
    app::{AppId, AppUid, Settings},
    image::ImageRef,
};

/// A target to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRequest {
    /// The app's name. It may name the target where the settings do not.
    pub app: AppId,
    /// The settings as a person gave them, which may be none at all.
    pub settings: Settings,
    /// The image to create the target with, if one was given.
    pub image: Option<ImageRef>,
    /// Whether the app's images are still to be built, so that creating the target needs none now.
    pub built: bool,
    /// Whether the deploy id of another registration may be overwritten.
    pub take_over: bool,
}

/// The answer to a [`TargetRequest`]. Its settings are complete: all defaults are filled in, and the driver finds the
/// target by them alone, in every later call. They are stored, and shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validated {
    /// The target exists. It stays as it is until the first deploy, and what runs is recorded as revision 1.
    Adopt {
        /// The settings.
        settings: Settings,
        /// The image that runs.
        image: ImageRef,
        /// The registration whose deploy id the target carries, if it carries one. Only a request that allows to take
        /// over is answered so.
        take_over: Option<AppUid>,
    },
    /// The target does not exist. The first deploy creates it.
    Create {
        /// The settings, with all that is needed to create it.
        settings: Settings,
    },
    /// The target cannot be registered so.
    Invalid(InvalidTarget),
}

/// Why a target cannot be registered. The texts are shown to the person who registers the app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidTarget {
    /// A setting is missing, unknown or not valid.
    Setting {
        /// The name of the setting as people give it: in the API the settings are the member `workload`, so that the
        /// setting `directory` is `workload.directory`.
        name: String,
        /// The rule that it breaks, as a sentence that follows the name: "must be an absolute path."
        rule: String,
    },
    /// The target cannot be deployed to as it is, or cannot be created: what is wrong and what to do, in a sentence.
    Unusable(String),
    /// The target carries the deploy id of another registration, and the request does not allow to take it over: which
    /// one, in a sentence.
    Taken(String),
}
