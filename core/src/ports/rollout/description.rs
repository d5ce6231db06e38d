//! The description of a driver's targets, for the forms and texts of hosts.

/// The description of the targets that a driver deploys to, in the words of its platform.
///
/// Hosts offer these settings in forms and name the platform by these words. The driver itself checks settings, in
/// [`validate`](super::RolloutDriver::validate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetDescription {
    /// The platform, as in "the deploy has touched the cluster".
    pub platform: &'static str,
    /// The instances of a target, as in "the new pods are ready".
    pub instances: &'static str,
    /// The values of the setting `kind`, the default first, each with its name for people; empty if there is no such
    /// setting. An empty value leaves the choice to the driver.
    pub kinds: &'static [(&'static str, &'static str)],
    /// The further settings, in the order in which people think of them.
    pub settings: &'static [TargetSetting],
    /// The beginnings of the names of variables by which a proxy, or another tool of the platform, leads requests to instances.
    /// Who may change the app sets and removes them, as a value may lead another app's requests here.
    pub steering_variables: &'static [&'static str],
}

/// A setting of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetSetting {
    /// The name as in a refusal, such as `replace`; `template.port` for a setting of targets that are to be created.
    pub name: &'static str,
    /// The name for people.
    pub label: &'static str,
    /// A sentence that helps people to fill it in; may be empty.
    pub help: &'static str,
    /// The values that it takes.
    pub value: SettingValue,
}

/// The values that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// A text.
    Text,
    /// A whole number.
    Number,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// Names with a text for each.
    Pairs,
}

/// The prefix of the names of settings by which a missing target is created.
pub(super) const TEMPLATE: &str = "template.";

impl TargetDescription {
    /// The description by a driver that tells nothing of its settings.
    pub const UNKNOWN: Self =
        Self { platform: "target", instances: "instances", kinds: &[], settings: &[], steering_variables: &[] };

    /// Returns whether a variable of this name leads requests to instances.
    pub fn steers(&self, variable: &str) -> bool {
        self.steering_variables.iter().any(|start| variable.starts_with(start))
    }
}

impl TargetSetting {
    /// Returns the setting's name within the template of a target that is to be created; `None` for a setting of all
    /// targets.
    pub fn in_template(&self) -> Option<&'static str> {
        self.name.strip_prefix(TEMPLATE)
    }
}
