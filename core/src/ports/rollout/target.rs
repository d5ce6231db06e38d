//! The target of an app at its registration: the driver's request and answer.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::description::TEMPLATE;
use crate::{
    app::{AppId, AppUid, Settings, Target},
    image::ImageRef,
};

/// A target to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRequest {
    /// The app's name. It may name the target where the settings do not.
    pub app: AppId,
    /// The settings as a person gave them; may be empty.
    pub settings: Settings,
    /// The image to create the target with, if one was given.
    pub image: Option<ImageRef>,
    /// Whether the app's images are still to be built, so that creating the target needs no image now.
    pub built: bool,
    /// Whether the deploy id of another registration may be overwritten.
    pub take_over: bool,
    /// The registration whose target this is, if it is registered already and a setting of it is to be changed. Its own
    /// deploy id is no other's, and the settings by which the target is created come back in the answer.
    pub registered: Option<AppUid>,
    /// The other apps of the namespace, with the completed settings of their targets.
    pub others: Vec<(AppId, Settings)>,
}

impl TargetRequest {
    /// Returns the names, as refusals have them, of the settings by which a missing target is created.
    pub fn of_creation(&self) -> Vec<String> {
        let template = self.settings.get(TEMPLATE.trim_end_matches('.')).and_then(Value::as_object);
        let given = template.into_iter().flatten().filter(|(_, value)| !value.is_null());
        given.map(|(name, _)| format!("{TEMPLATE}{name}")).collect()
    }

    /// Returns whether a deploy id of this registration on the target is that of another one.
    pub fn is_foreign(&self, owner: AppUid) -> bool {
        self.registered != Some(owner)
    }
}

/// The answer to a [`TargetRequest`]. Its settings are complete: all defaults are filled in, and the driver finds the
/// target by them alone, in every later call. They are stored, and shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validated {
    /// The target exists. It stays as it is until the first deploy, and what runs is recorded as revision 1.
    Adopt {
        /// The settings, completed.
        settings: Settings,
        /// The image that runs.
        image: ImageRef,
        /// The registration whose deploy id the target carries, if any. Only a request that allows to take over gets
        /// this answer.
        take_over: Option<AppUid>,
        /// The names of those given settings that only say how a missing target is created, as refusals have them.
        unused: Vec<String>,
        /// What the person should know of this target's deploys, in sentences.
        notes: Vec<String>,
    },
    /// The target does not exist. The first deploy creates it.
    Create {
        /// The settings, with all that is needed to create it.
        settings: Settings,
        /// The registration that has left its deploy id where the target will be, if any, as by a first version that
        /// failed. Only a request that allows to take over gets this answer.
        take_over: Option<AppUid>,
        /// What the person should know of this target's deploys, in sentences.
        notes: Vec<String>,
    },
    /// The target cannot be registered with these settings.
    Invalid(InvalidTarget),
}

impl Validated {
    /// Returns the sentences for the person who registers the app.
    pub fn notes(&self) -> &[String] {
        match self {
            Self::Adopt { notes, .. } | Self::Create { notes, .. } => notes,
            Self::Invalid(_) => &[],
        }
    }
}

/// What the instances of a registered app are to be made with, as a change of its configuration asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsRequest {
    /// The app's name.
    pub app: AppId,
    /// The app's target.
    pub target: Target,
    /// All settings of the changed configuration, by name.
    pub settings: Settings,
}

/// The answer to a [`SettingsRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckedSettings {
    /// Instances can be made with these, in which all defaults are filled in. They are stored, and shown to people.
    Valid(Settings),
    /// One of the settings is not valid, or the target has no place for it. A setting is named `settings.NAME`.
    Invalid(InvalidTarget),
    /// No setting of such a target can be changed through this service: why, in a sentence.
    Unsupported(String),
}

/// Why a target cannot be registered. The texts are shown to the person who registers the app.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidTarget {
    /// A setting is missing, unknown or not valid.
    Setting {
        /// The name of the setting as people give it: in the API the settings are the member `workload`, so that the
        /// setting `directory` is `workload.directory`.
        name: String,
        /// The rule that it breaks, as a sentence that follows the name, without the value, which may be a secret:
        /// "must be an absolute path."
        rule: String,
    },
    /// The target cannot be deployed to as it is, or cannot be created: what is wrong and what to do, in a sentence.
    Unusable(String),
    /// The target carries the deploy id of another registration or is another app's, and the request does not allow to
    /// take it over: which one, in a sentence.
    Taken(String),
}

impl InvalidTarget {
    /// Returns the refusal of a setting; name and rule are as in [`InvalidTarget::Setting`].
    pub fn setting(name: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Setting { name: name.into(), rule: rule.into() }
    }

    /// Returns the value of a setting as a type, for drivers.
    ///
    /// # Errors
    /// [`InvalidTarget::Setting`], which says what the setting takes, without the value, which may be a secret.
    pub fn read<T: DeserializeOwned>(name: &str, value: &Value) -> Result<T, Self> {
        T::deserialize(value).map_err(|error| {
            let text = error.to_string();
            let expected =
                text.rfind(", expected ").map_or("another value", |start| &text[start + ", expected ".len()..]);
            let expected = match expected {
                "u16" => "a whole number up to 65535",
                "u32" | "u64" => "a whole number",
                "a sequence" => "a list",
                other => other,
            };
            Self::setting(name, format!("must be {expected}."))
        })
    }
}
