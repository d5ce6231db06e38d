//! What is deployed: an app, where it runs and what its owner decided about it.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    deploy::{Commit, Revision},
    image::{Digest, ImageRef, Repositories},
    source::GitSource,
    time::{Timestamp, maybe_millis, millis},
};

/// Why a text is not the name it was taken for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {}: {rule}", crate::text::quoted(given))]
pub struct InvalidName {
    /// Which name was meant, such as "app" or "namespace".
    pub what: &'static str,
    /// What was given.
    pub given: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// The longest DNS-1123 label (RFC 1123 section 2.1), in bytes.
pub const LABEL_MAX: usize = 63;

fn label(what: &'static str, given: &str) -> Result<String, InvalidName> {
    let fail = |rule| Err(InvalidName { what, given: given.chars().take(LABEL_MAX + 1).collect(), rule });
    let bytes = given.as_bytes();
    if bytes.is_empty() {
        return fail("must not be empty");
    }
    if bytes.len() > LABEL_MAX {
        return fail("must be at most 63 characters");
    }
    if !bytes.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
        return fail("must be lower-case letters, digits and hyphens (a DNS-1123 label)");
    }
    if bytes.first() == Some(&b'-') || bytes.last() == Some(&b'-') {
        return fail("must start and end with a letter or a digit");
    }
    Ok(given.to_owned())
}

macro_rules! label_type {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                label($what, text).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

label_type! {
    /// A project, such as `shop`: a DNS-1123 label.
    Project, "project"
}
label_type! {
    /// An environment of a project, such as `test`: a DNS-1123 label.
    Environment, "environment"
}
label_type! {
    /// Project and environment joined by a hyphen (`shop-test`): a DNS-1123 label of at most 63 characters.
    Namespace, "namespace"
}
label_type! {
    /// An app's name within its namespace: a DNS-1123 label.
    AppName, "app"
}

impl Namespace {
    /// The namespace that a project and an environment spell.
    ///
    /// # Errors
    /// Where both together are longer than 63 characters.
    pub fn of(project: &Project, environment: &Environment) -> Result<Self, InvalidName> {
        format!("{project}-{environment}").parse()
    }
}

/// `{namespace}/{app}`: how people and URLs name an app.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AppId {
    /// Project and environment, joined.
    pub namespace: Namespace,
    /// The app's name.
    pub name: AppName,
}

impl fmt::Display for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for AppId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let (namespace, name) = text.split_once('/').ok_or_else(|| InvalidName {
            what: "app",
            given: text.chars().take(LABEL_MAX + 1).collect(),
            rule: "must be NAMESPACE/APP",
        })?;
        Ok(Self { namespace: namespace.parse()?, name: name.parse()? })
    }
}

/// Made at registration: what token, fence and holds belong to, so that a re-created app starts clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AppUid(u128);

impl AppUid {
    /// The uid of 128 random bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The 128 bits.
    pub const fn as_bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for AppUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for AppUid {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let fail = || InvalidName {
            what: "app uid",
            given: text.chars().take(33).collect(),
            rule: "must be 32 lower-case hexadecimal digits",
        };
        if text.len() != 32 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(fail());
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| fail())
    }
}

impl TryFrom<String> for AppUid {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<AppUid> for String {
    fn from(uid: AppUid) -> String {
        uid.to_string()
    }
}

/// Where an app's images come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Source {
    /// CI builds them; a deploy names one.
    Image,
    /// rollhook builds them from a commit.
    Git(GitSource),
}

/// Settings of a target: a JSON object that only the rollout driver reads.
pub type Settings = serde_json::Map<String, serde_json::Value>;

/// What an app's deploys change. The rollout driver finds it by the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The settings with all defaults filled in, as [`validate`](crate::ports::RolloutDriver::validate) returned them.
    pub settings: Settings,
    /// The settings as the registration asked for them, if nothing ran at that time, so that the first deploy creates
    /// the target. A repeated registration is recognised by them.
    pub requested: Option<Settings>,
    /// The uid of another registration whose deploy id this app may overwrite, as `--take-over` recorded it.
    pub take_over: Option<AppUid>,
}

/// What happens after a rollout failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The current image is rolled out again.
    #[default]
    Restore,
    /// The cluster is left as the failed rollout left it.
    Leave,
}

/// What a held image or commit is refused to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldPolicy {
    /// Only triggers that no person decided on: changes found in git, late deliveries.
    #[default]
    Automatic,
    /// CI's calls as well.
    All,
}

/// What an app's owner decided; every field has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// After a failed rollout.
    pub on_failure: OnFailure,
    /// What a rollback's hold refuses.
    pub hold: HoldPolicy,
    /// How long the new pods must stay ready, without a restart, before a deploy counts as succeeded.
    #[serde(with = "millis", rename = "settle_ms")]
    pub settle: Duration,
    /// How long a rollout may take.
    #[serde(with = "millis", rename = "rollout_deadline_ms")]
    pub rollout_deadline: Duration,
    /// How long a build may take.
    #[serde(with = "millis", rename = "build_deadline_ms")]
    pub build_deadline: Duration,
    /// The image repositories that a webhook may deploy from; empty: any.
    pub repositories: Repositories,
    /// How often a git app's branch is looked at for changes that nobody told of; none: never.
    // Written where it is none as well: a store that keeps what a newer version has added keeps what is absent.
    #[serde(with = "maybe_millis", rename = "poll_ms")]
    pub poll: Option<Duration>,
}

/// The shortest time between two looks at a branch, unless the operator says otherwise.
pub const POLL_MIN: Duration = Duration::from_secs(30);
/// The longest.
pub const POLL_MAX: Duration = Duration::from_secs(24 * 3600);

impl Default for Policy {
    fn default() -> Self {
        Self {
            on_failure: OnFailure::Restore,
            hold: HoldPolicy::Automatic,
            settle: Duration::from_secs(10),
            rollout_deadline: Duration::from_secs(10 * 60),
            build_deadline: Duration::from_secs(30 * 60),
            repositories: Repositories::default(),
            poll: None,
        }
    }
}

/// What a person rolled away from; automation does not bring it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The rollback that set it.
    pub by: Revision,
    /// The image that ran.
    pub image: Option<ImageRef>,
    /// Its digest, where it was observed.
    pub digest: Option<Digest>,
    /// The commit that ran.
    pub commit: Option<Commit>,
}

impl Hold {
    /// Whether a deploy of this image or commit would bring back what is held.
    pub fn covers(&self, image: Option<&ImageRef>, commit: Option<&Commit>) -> bool {
        let same_image = match (&self.image, image) {
            (Some(held), Some(image)) => held.same_bits(self.digest.as_ref(), image, None),
            (None, _) | (_, None) => false,
        };
        let same_commit = image.is_none()
            && match (&self.commit, commit) {
                (Some(held), Some(commit)) => held.may_be(commit),
                (None, _) | (_, None) => false,
            };
        same_image || same_commit
    }
}

/// One registration: an app as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// How people name it.
    pub id: AppId,
    /// Which registration of that name this is.
    pub uid: AppUid,
    /// The project it belongs to.
    pub project: Project,
    /// The project's environment.
    pub environment: Environment,
    /// Where its images come from.
    pub source: Source,
    /// What its deploys change.
    pub target: Target,
    /// What its owner decided.
    pub policy: Policy,
    /// What people rolled away from, oldest first.
    pub holds: Vec<Hold>,
    /// When it was registered.
    pub created_at: Timestamp,
}
