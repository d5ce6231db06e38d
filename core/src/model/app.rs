//! Apps: names, target, policy and holds of a registration.

mod url;

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    check::Check,
    deploy::{Commit, Revision},
    follow::Follow,
    image::{Digest, ImageRef, Repositories},
    lock::Locks,
    requirement::{Required, Requirement, RequirementCopies},
    source::GitSource,
    text::{checked_text, text_conversions, with_fields, words},
    time::{Timestamp, maybe_millis, millis},
};

/// The error of a text that breaks the rules of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {}: {rule}", crate::text::quoted(given))]
pub struct InvalidName {
    /// Which name was meant, such as "app" or "namespace".
    pub what: &'static str,
    /// The rejected text.
    pub given: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

impl InvalidName {
    /// Returns the error of a text, of which it keeps the beginning.
    pub fn new(what: &'static str, given: &str, rule: &'static str) -> Self {
        Self { what, given: given.chars().take(256).collect(), rule }
    }
}

pub use url::AppUrl;

/// The longest DNS-1123 label (RFC 1123 section 2.1), in bytes.
pub const LABEL_MAX: usize = 63;

/// Returns the text if it is a DNS-1123 label.
///
/// # Errors
/// The rule that it breaks; `what` names the thing that it was meant for.
pub fn label(what: &'static str, given: &str) -> Result<String, InvalidName> {
    let fail = |rule| Err(InvalidName::new(what, given, rule));
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

checked_text! {
    /// A project, such as `shop`: a DNS-1123 label.
    Project, InvalidName, |text| label("project", text)
}
checked_text! {
    /// An environment of a project, such as `test`: a DNS-1123 label.
    Environment, InvalidName, |text| label("environment", text)
}
checked_text! {
    /// Project and environment joined by a hyphen (`shop-test`): a DNS-1123 label of at most 63 characters.
    Namespace, InvalidName, |text| label("namespace", text)
}
checked_text! {
    /// An app's name within its namespace: a DNS-1123 label.
    AppName, InvalidName, |text| label("app", text)
}
checked_text! {
    /// The name of a group of apps of a namespace that share a database, so that one release command of them runs at a time:
    /// a DNS-1123 label.
    ReleaseGroup, InvalidName, |text| label("release group", text)
}

impl Namespace {
    /// Returns the namespace that a project and an environment spell.
    ///
    /// # Errors
    /// If both together are longer than 63 characters.
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
        let (namespace, name) =
            text.split_once('/').ok_or_else(|| InvalidName::new("app", text, "must be NAMESPACE/APP"))?;
        Ok(Self { namespace: namespace.parse()?, name: name.parse()? })
    }
}

/// The full name of an app, as people give it. Two pairs of project and environment may spell the namespace of an
/// [`AppId`], and only one of them is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullName {
    /// The project that the app belongs to.
    pub project: Project,
    /// The project's environment.
    pub environment: Environment,
    /// The app's name.
    pub name: AppName,
}

impl FullName {
    /// Returns the id that the name spells.
    ///
    /// # Errors
    /// If project and environment together are too long for a namespace.
    pub fn id(&self) -> Result<AppId, InvalidName> {
        Ok(AppId { namespace: Namespace::of(&self.project, &self.environment)?, name: self.name.clone() })
    }
}

impl fmt::Display for FullName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in project {}, environment {}", self.name, self.project, self.environment)
    }
}

/// The id of one registration. Token, fence and holds belong to it, so that a re-created app starts clean.
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
        let fail = || InvalidName::new("app uid", text, "must be 32 lower-case hexadecimal digits");
        if text.len() != 32 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(fail());
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| fail())
    }
}

text_conversions!(AppUid, InvalidName, |uid| uid.to_string());

/// Where an app's images come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Source {
    /// Images that CI builds; a deploy names one.
    Image,
    /// Images that rollhook builds from commits of a git repository.
    Git(GitSource),
}

/// Settings of a target: a JSON object that only the rollout driver reads.
pub type Settings = serde_json::Map<String, serde_json::Value>;

/// What a value of settings, or a member, takes in memory beside its text.
pub(crate) const VALUE_BYTES: usize = 100;

/// Returns roughly what settings take in memory.
pub(crate) fn settings_bytes(settings: &Settings) -> usize {
    fn bytes(value: &serde_json::Value) -> usize {
        VALUE_BYTES
            + match value {
                serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => 0,
                serde_json::Value::String(text) => text.len(),
                serde_json::Value::Array(values) => values.iter().map(bytes).sum::<usize>(),
                serde_json::Value::Object(members) => settings_bytes(members),
            }
    }
    settings.iter().map(|(name, value)| name.len() + bytes(value)).sum()
}

/// The workload that an app's deploys change. The rollout driver finds it by the settings.
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

/// The reaction to a failed rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The current image is rolled out again.
    #[default]
    Restore,
    /// The cluster is left as the failed rollout left it.
    Leave,
}

/// The deploys that a hold refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldPolicy {
    /// Deploys without a person's decision: changes found in git, late deliveries.
    #[default]
    Automatic,
    /// Deploys of CI as well.
    All,
}

/// Whether the tag of an image becomes a digest before its rollout, as the registry says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resolve {
    /// As far as the registry answers; else the platform finds the image by its tag.
    #[default]
    Auto,
    /// A deploy fails whose image's digest cannot be found out.
    Require,
    /// The registry is not asked.
    Off,
}

words! { Resolve: Auto = "auto", Require = "require", Off = "off", }

impl Resolve {
    /// All of them, the default first.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Require, Self::Off];
}

impl FromStr for Resolve {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|known| known.as_str() == text).ok_or("must be auto, require or off")
    }
}

/// The rule on a commit that is posted with an image whose label names another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitRule {
    /// Both are shown.
    #[default]
    Any,
    /// The deploy fails.
    MustMatch,
}

words! { CommitRule: Any = "any", MustMatch = "must-match", }

impl CommitRule {
    /// All of them, the default first.
    pub const ALL: [Self; 2] = [Self::Any, Self::MustMatch];
}

impl FromStr for CommitRule {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|known| known.as_str() == text).ok_or("must be any or must-match")
    }
}

/// An app's settings by its owner; every field has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Policy {
    /// The reaction to a failed rollout.
    pub on_failure: OnFailure,
    /// The deploys that a hold refuses.
    pub hold: HoldPolicy,
    /// How long the new pods must stay ready, without a restart, before a deploy counts as succeeded.
    #[serde(with = "millis", rename = "settle_ms")]
    pub settle: Duration,
    /// How long a failure may last that may heal by itself, such as a program that ends and is started again, before the
    /// deploy fails.
    #[serde(with = "millis", rename = "patience_ms", default = "patience_by_default")]
    pub patience: Duration,
    /// How long the app may be down for a new version: where the old instance has to stop before the new one can start, a
    /// deploy of which none gets ready within this time fails.
    #[serde(with = "millis", rename = "ready_within_ms", default = "ready_within_by_default")]
    pub ready_within: Duration,
    /// How long a rollout may take.
    #[serde(with = "millis", rename = "rollout_deadline_ms")]
    pub rollout_deadline: Duration,
    /// How long a build may take, at most [`BUILD_DEADLINE_MAX`].
    #[serde(serialize_with = "millis::serialize", deserialize_with = "build_deadline", rename = "build_deadline_ms")]
    pub build_deadline: Duration,
    /// The program, with its arguments, that each new image runs once before it is rolled out, such as a migration of a
    /// database; empty: none.
    // Written even if it is empty: see `poll`.
    #[serde(default)]
    pub release_command: Vec<String>,
    /// How long the release command may take.
    #[serde(with = "millis", rename = "release_deadline_ms", default = "release_deadline_by_default")]
    pub release_deadline: Duration,
    /// The apps of the namespace with which the release command takes turns; `None`: it waits for no other app's.
    // Written even if it is `None`: see `poll`.
    pub release_group: Option<ReleaseGroup>,
    /// How a deploy shows that it serves its users; by any of them that is enforced it may fail.
    // Written even if it is empty: see `poll`.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// How long a deploy is verified by its checks once its instances have settled, at most [`VERIFY_FOR_MAX`](crate::check::VERIFY_FOR_MAX).
    /// Zero: until each check has come to a verdict.
    #[serde(with = "millis", rename = "verify_for_ms", default)]
    pub verify_for: Duration,
    /// How long its checks go on to measure a version once its deploy has succeeded, at most [`WATCH_FOR_MAX`](crate::check::WATCH_FOR_MAX).
    /// Zero: they end with the deploy.
    #[serde(with = "millis", rename = "watch_for_ms", default)]
    pub watch_for: Duration,
    /// Whether a change of the configuration runs the release command as well.
    #[serde(default = "release_on_config_by_default")]
    pub release_on_config: bool,
    /// The address at which people reach the app; `None`: it has none, or it is not known.
    // Written even if it is `None`: see `poll`.
    pub url: Option<AppUrl>,
    /// Whether the registry is asked for the image's digest before a rollout.
    // Written even if it is the default: see `poll`.
    #[serde(default)]
    pub resolve: Resolve,
    /// The rule on a commit that is not the one of the image's label.
    // Written even if it is the default: see `poll`.
    #[serde(default)]
    pub commit: CommitRule,
    /// The image repositories that a webhook may deploy from; empty: any.
    pub repositories: Repositories,
    /// The number of the newest deploys that stay in the history; those that a rollback may need stay as well.
    #[serde(default = "keep_by_default")]
    pub keep: u32,
    /// The rule by which an image app's repository is followed; `None`: its images are posted.
    // Written even if it is `None`: see `poll`.
    pub follow: Option<Follow>,
    /// How long what following has found must stay the newest before it is deployed, so that images that are pushed one after
    /// the other make one deploy.
    #[serde(with = "millis", rename = "follow_settle_ms", default = "follow_settle_by_default")]
    pub follow_settle: Duration,
    /// The signatures that an image app's images must have before they are deployed; `None`: they need none.
    // Written even if it is `None`: see `poll`.
    pub signed: Option<Requirement>,
    /// How often the source is polled: a git app's branch, or the repository that an image app follows; `None`: never.
    // Written even if it is `None`: a store that keeps fields which a newer version has added keeps absent fields too.
    #[serde(with = "maybe_millis", rename = "poll_ms")]
    pub poll: Option<Duration>,
}

/// The bounds of [`Policy::keep`].
pub const KEEP: std::ops::RangeInclusive<u32> = 10..=10_000;

/// The longest [`Policy::build_deadline`]: a build keeps others waiting for its build slot as long.
pub const BUILD_DEADLINE_MAX: Duration = Duration::from_secs(4 * 3600);

/// Reads the deadline of builds; a longer one, which was allowed before, counts as the longest.
fn build_deadline<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    millis::deserialize(deserializer).map(|deadline| deadline.min(BUILD_DEADLINE_MAX))
}

/// Long enough for the fourth start of a container on Kubernetes, which waits 10, 20 and 40 s between them.
const fn patience_by_default() -> Duration {
    Duration::from_secs(60)
}

/// Long enough for an image of some hundred MB and the start of most programs: users are without the app meanwhile.
const fn ready_within_by_default() -> Duration {
    Duration::from_secs(60)
}

const fn release_deadline_by_default() -> Duration {
    Duration::from_secs(10 * 60)
}

/// What the command prepares may depend on the variables.
const fn release_on_config_by_default() -> bool {
    true
}

/// Long enough for the pushes of one pipeline.
const fn follow_settle_by_default() -> Duration {
    Duration::from_secs(30)
}

const fn keep_by_default() -> u32 {
    200
}

/// The shortest interval between two polls of a source, unless the operator says otherwise.
pub const POLL_MIN: Duration = Duration::from_secs(30);
/// The interval of an app that follows its repository, unless its owner says otherwise.
pub const FOLLOW_POLL: Duration = Duration::from_secs(5 * 60);
/// The longest [`Policy::follow_settle`].
pub const FOLLOW_SETTLE_MAX: Duration = Duration::from_secs(10 * 60);
/// The longest interval between two polls of a source.
pub const POLL_MAX: Duration = Duration::from_secs(24 * 3600);

impl Default for Policy {
    fn default() -> Self {
        Self {
            on_failure: OnFailure::Restore,
            hold: HoldPolicy::Automatic,
            settle: Duration::from_secs(10),
            patience: patience_by_default(),
            ready_within: ready_within_by_default(),
            rollout_deadline: Duration::from_secs(10 * 60),
            build_deadline: Duration::from_secs(30 * 60),
            release_command: Vec::new(),
            release_deadline: release_deadline_by_default(),
            release_group: None,
            checks: Vec::new(),
            verify_for: Duration::ZERO,
            watch_for: Duration::ZERO,
            release_on_config: release_on_config_by_default(),
            url: None,
            resolve: Resolve::Auto,
            commit: CommitRule::Any,
            repositories: Repositories::default(),
            keep: keep_by_default(),
            follow: None,
            follow_settle: follow_settle_by_default(),
            signed: None,
            poll: None,
        }
    }
}

with_fields!(Policy);

impl Policy {
    /// Returns for how long new instances settle beside the old ones, before they take their place. They settle in it
    /// again, like those of every deploy, and the deadline leaves the time for that.
    pub fn settle_aside(&self) -> Duration {
        self.settle.min(self.rollout_deadline.saturating_sub(self.settle) / 2)
    }
}

/// An image or commit that a person rolled away from; automation does not bring it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The revision of the rollback that set the hold.
    pub by: Revision,
    /// The held image.
    pub image: Option<ImageRef>,
    /// The held image's digest, if it was observed.
    pub digest: Option<Digest>,
    /// The held commit.
    pub commit: Option<Commit>,
}

impl Hold {
    /// Returns whether a deploy of this image or commit would bring back the held one.
    pub fn covers(&self, image: Option<&ImageRef>, commit: Option<&Commit>) -> bool {
        let held_image = self.image.as_ref().zip(image);
        let same_image = held_image.is_some_and(|(held, image)| held.same_bits(self.digest.as_ref(), image, None));
        let held_commit = self.commit.as_ref().zip(commit);
        let same_commit = image.is_none() && held_commit.is_some_and(|(held, commit)| held.may_be(commit));
        same_image || same_commit
    }
}

/// The registration of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// The app's name.
    pub id: AppId,
    /// The registration's id.
    pub uid: AppUid,
    /// The project that the app belongs to.
    pub project: Project,
    /// The project's environment.
    pub environment: Environment,
    /// The source of the app's images.
    pub source: Source,
    /// The workload that the app's deploys change.
    pub target: Target,
    /// The owner's settings.
    pub policy: Policy,
    /// The held images and commits, oldest first.
    pub holds: Vec<Hold>,
    /// The locks that refuse new deploys.
    pub locks: Locks,
    /// The requirements of the project and of the environment, which the policy cannot loosen.
    #[serde(default, skip_serializing_if = "RequirementCopies::is_empty")]
    pub requirements: RequirementCopies,
    /// The time of the registration.
    pub created_at: Timestamp,
}

impl App {
    /// Returns the app's full name.
    pub fn full_name(&self) -> FullName {
        let (project, environment) = (self.project.clone(), self.environment.clone());
        FullName { project, environment, name: self.id.name.clone() }
    }

    /// Returns the requirements that an image must meet before it is deployed, the widest first.
    pub fn required(&self) -> Vec<Required> {
        self.requirements.and(self.policy.signed.as_ref())
    }

    /// Returns whether an image must meet a requirement before it is deployed.
    pub fn requires_signatures(&self) -> bool {
        self.policy.signed.is_some() || self.requirements.in_force().next().is_some()
    }

    /// Returns how the tag of an image becomes a digest. A requirement is on the digest, so that it is looked up then.
    pub fn resolve(&self) -> Resolve {
        match self.policy.resolve {
            Resolve::Off if self.requires_signatures() => Resolve::Auto,
            resolve @ (Resolve::Auto | Resolve::Require | Resolve::Off) => resolve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settling_beside_the_old_instances_leaves_the_time_to_settle_in_their_place() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let aside = |settle| Policy { settle, rollout_deadline: minutes(10), ..Policy::default() }.settle_aside();
        assert_eq!((aside(minutes(0)), aside(minutes(3)), aside(minutes(6))), (minutes(0), minutes(3), minutes(2)));
        assert!(aside(minutes(9)) + minutes(9) < minutes(10));
    }

    #[test]
    fn stored_build_deadline_beyond_the_longest_is_read_as_the_longest() {
        let week = Policy { build_deadline: Duration::from_secs(168 * 3600), ..Policy::default() };
        let read = |policy: &Policy| serde_json::from_value::<Policy>(serde_json::to_value(policy).unwrap()).unwrap();
        assert_eq!(read(&week).build_deadline, BUILD_DEADLINE_MAX);
        assert_eq!(read(&Policy::default()), Policy::default());
    }
}
