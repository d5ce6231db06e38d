//! A reading of the repository that an app follows.

use rollhook_core::{
    engine::following::Standing,
    service::{self, ListedTag, Place},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration;

/// A reading of the repository that an app follows, at the time of the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Following {
    /// The rule, such as `semver:^1.4`.
    pub rule: String,
    /// The repository: that of the app's current version.
    pub repository: String,
    /// The interval at which the server reads it.
    pub every: String,
    /// The image that following has decided on last; absent: none yet, or there was no tag that it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<String>,
    /// The newest image now; absent: no tag is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    /// Whether the server deploys that image at one of its next readings, unless something newer comes.
    pub deploys: bool,
    /// The outcome for that image, in a sentence.
    pub outcome: String,
    /// The tags, the newest first; behind those that the rule follows the others.
    pub tags: Vec<FollowedTag>,
    /// The number of tags that are not listed.
    pub left_off: usize,
}

/// A tag of a repository that is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FollowedTag {
    /// The tag.
    pub tag: String,
    /// Whether the rule follows it.
    pub followed: bool,
    /// Why it is the newest or not, in a few words.
    pub why: String,
}

impl Following {
    /// Returns the answer for a reading.
    pub fn of(found: service::Following) -> Self {
        let newest = found.newest.as_ref().and_then(|image| image.tag()).unwrap_or_default();
        Self {
            rule: found.rule.to_string(),
            repository: found.repository.to_string(),
            every: duration::format(found.every),
            deploys: found.standing == Standing::Newer,
            outcome: outcome(&found.standing, newest, found.decided.as_ref().and_then(|image| image.tag())),
            decided: found.decided.map(|image| image.to_string()),
            tags: found.tags.iter().map(|listed| FollowedTag::of(listed, newest)).collect(),
            left_off: found.left_off,
            newest: found.newest.map(|image| image.to_string()),
        }
    }
}

impl FollowedTag {
    fn of(listed: &ListedTag, newest: &str) -> Self {
        let why = match listed.place {
            Place::Newest => "the newest".to_owned(),
            Place::Equal => format!("as new as {newest}"),
            Place::Older if newest.is_empty() => "older than one that was removed meanwhile".to_owned(),
            Place::Older => format!("older than {newest}"),
            Place::Unfollowed(why) => why.to_string(),
        };
        let followed = !matches!(listed.place, Place::Unfollowed(_));
        Self { tag: listed.tag.to_string(), followed, why }
    }
}

fn outcome(standing: &Standing, newest: &str, decided: Option<&str>) -> String {
    match standing {
        Standing::Begins => {
            "Nothing is deployed: following has just begun, and the next reading only notes what is there.".to_owned()
        }
        Standing::Nothing => "Nothing is deployed: the rule follows no tag that is there.".to_owned(),
        Standing::Followed => match decided.filter(|decided| *decided != newest) {
            Some(decided) => format!(
                "Nothing is deployed: {newest} is the same image as {decided}, which was decided on before, or is no newer."
            ),
            None => format!(
                "Nothing is deployed: {newest} was there when the rule was set, or is no newer than what was decided on since."
            ),
        },
        Standing::NoNewer(image) => {
            format!("Nothing is deployed: {newest} is no newer than {image}, which was deployed already.")
        }
        Standing::Deployed(revision) => {
            format!(
                "Nothing is deployed: the history has the image of {newest} already, as revision {revision}, and following deploys no \
                 image twice: deploy it yourself to have it again."
            )
        }
        Standing::Held(by) => {
            format!("Nothing is deployed: rollback {by} holds the image of {newest}. Something newer is deployed.")
        }
        Standing::Newer => {
            format!("{newest} is newer: it is deployed once it has stayed the newest for the time to settle.")
        }
    }
}
