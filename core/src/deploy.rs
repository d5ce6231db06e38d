//! One history entry and the states it goes through.

use std::{fmt, num::NonZeroU64, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    app::{AppId, InvalidName},
    image::{Digest, ImageRef},
    source::Fingerprint,
    time::{Timestamp, millis},
};

/// An entry's number: positive, per app, without gaps, never reused; higher is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(NonZeroU64);

impl Revision {
    /// The first revision of every app.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The revision of this number; none for zero.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The one that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The one that follows the newest, where there is any.
    pub fn following(last: Option<Self>) -> Self {
        last.map_or(Self::FIRST, Self::next)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Revision {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok().and_then(Self::new)).flatten().ok_or_else(|| InvalidName {
            what: "revision",
            given: text.chars().take(32).collect(),
            rule: "must be a positive whole number",
        })
    }
}

/// A commit as it was posted: at most 128 printable characters; for an image app a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Commit(String);

impl Commit {
    /// The commit's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is written as git writes a commit: 40 or 64 hexadecimal digits, or a prefix of 7 or more.
    pub fn is_sha(&self) -> bool {
        (7..=64).contains(&self.0.len()) && self.0.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Whether both may mean one commit: they are the same, or one is the other's prefix.
    pub fn may_be(&self, other: &Self) -> bool {
        let (one, two) = (self.0.to_ascii_lowercase(), other.0.to_ascii_lowercase());
        self == other || (self.is_sha() && other.is_sha() && (one.starts_with(&two) || two.starts_with(&one)))
    }
}

impl FromStr for Commit {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let fail = |rule| Err(InvalidName { what: "commit", given: text.chars().take(129).collect(), rule });
        if text.is_empty() {
            return fail("must not be empty");
        }
        if text.chars().count() > 128 {
            return fail("must be at most 128 characters");
        }
        if text != crate::text::escaped(text) || text.trim() != text {
            return fail("must be printable characters, without spaces around them");
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Commit {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<Commit> for String {
    fn from(commit: Commit) -> String {
        commit.0
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What caused a deploy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A call of the app's webhook.
    Webhook,
    /// A person, through the CLI, the console or the API.
    Manual,
    /// Another environment's current image was brought here.
    Promotion,
    /// A return to an earlier revision, by a person or by a restore.
    Rollback,
    /// A change of the source that the service found itself.
    Git,
}

impl Trigger {
    /// The word that the history shows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Manual => "manual",
            Self::Promotion => "promotion",
            Self::Rollback => "rollback",
            Self::Git => "git",
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who caused a deploy: a person's name, `ci`, or `auto` for the service itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Actor(String);

impl Actor {
    /// The service itself, putting a failed rollout right.
    pub fn auto() -> Self {
        Self("auto".to_owned())
    }

    /// The holder of an app's webhook token.
    pub fn ci() -> Self {
        Self("ci".to_owned())
    }

    /// A person or a platform, by name; control characters are escaped and the length is bounded.
    pub fn named(name: &str) -> Self {
        Self(crate::text::escaped(name).chars().take(128).collect())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the service itself.
    pub fn is_auto(&self) -> bool {
        self.0 == "auto"
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a deploy's image was taken from, where it was not posted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The revision of this app that was rolled back to.
    Revision(Revision),
    /// The app and revision that was promoted.
    Promoted {
        /// The app.
        app: AppId,
        /// Its revision.
        revision: Revision,
    },
}

/// A short code for how a deploy ended: Kubernetes' own word where there is one (`ImagePullBackOff`), else ours in
/// kebab-case (`cluster-unreachable`). A client can act on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reason(String);

impl Reason {
    /// The rollout took longer than the app's deadline.
    pub const DEADLINE: &'static str = "rollout-deadline-exceeded";
    /// The cluster could not be reached for an hour.
    pub const UNREACHABLE: &'static str = "cluster-unreachable";
    /// The app was deleted while the deploy was unfinished.
    pub const APP_DELETED: &'static str = "app-deleted";
    /// A person cancelled it.
    pub const CANCELLED: &'static str = "cancelled";
    /// The Deployment is paused, so that nothing would roll out.
    pub const PAUSED: &'static str = "workload-paused";
    /// The workload carries another registration's stamp.
    pub const FOREIGN_STAMP: &'static str = "foreign-stamp";
    /// The workload does not exist, and the app does not say how to make one.
    pub const WORKLOAD_MISSING: &'static str = "workload-not-found";
    /// Something else changed the workload while it rolled out.
    pub const REVERTED: &'static str = "workload-changed-by-another";
    /// The cluster refused the change.
    pub const REFUSED: &'static str = "cluster-refused";
    /// Containers of the new revision restarted again and again while they should have stayed ready.
    pub const RESTARTING: &'static str = "containers-restarting";
    /// The build ran and failed; its log says why.
    pub const BUILD_FAILED: &'static str = "build-failed";
    /// The build took longer than the app's deadline.
    pub const BUILD_DEADLINE: &'static str = "build-deadline-exceeded";
    /// The builder knows nothing of a build that it had begun.
    pub const BUILD_LOST: &'static str = "build-lost";
    /// The builder will not build it.
    pub const BUILD_REFUSED: &'static str = "build-refused";
    /// The source has no such commit.
    pub const COMMIT_NOT_FOUND: &'static str = "commit-not-found";
    /// More than one commit of the source begins so.
    pub const COMMIT_AMBIGUOUS: &'static str = "commit-ambiguous";
    /// The app's source was changed while the commit was built.
    pub const SOURCE_CHANGED: &'static str = "source-changed";
    /// The source cannot be reached.
    pub const SOURCE_UNREACHABLE: &'static str = "source-unreachable";
    /// The source does not let the builder read it.
    pub const SOURCE_DENIED: &'static str = "source-denied";

    /// The reason of this code, which is a word of letters, digits and hyphens; others are dropped.
    pub fn new(code: &str) -> Self {
        let word: String = code.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
        Self(if word.is_empty() { "unknown".to_owned() } else { word })
    }

    /// The code.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What was seen of a failed rollout, taken before anything was put right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// The container that failed.
    pub container: Option<String>,
    /// The pod it was seen in.
    pub pod: Option<String>,
    /// The container's state in one line, such as "waiting: ImagePullBackOff" or "terminated: exit code 1".
    pub state: Option<String>,
    /// The last events, oldest first, at most 10, each one line.
    pub events: Vec<String>,
    /// The last lines that the container logged, oldest first, at most 50 of at most 500 characters.
    pub log: Vec<String>,
}

/// Time that a deadline does not count, such as that in which the cluster could not be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outage {
    /// Since when it lasts, where it does now.
    pub since: Option<Timestamp>,
    /// What is over of it.
    #[serde(with = "millis", rename = "past_ms")]
    pub past: Duration,
}

impl Outage {
    /// All of it up to `now`.
    pub fn total(&self, now: Timestamp) -> Duration {
        self.past + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// The same, lasting on from `now` or over by then.
    #[must_use]
    pub fn set(self, lasts: bool, now: Timestamp) -> Self {
        match (self.since, lasts) {
            (None, true) => Self { since: Some(now), ..self },
            (Some(_), false) => Self { since: None, past: self.total(now) },
            (None, false) | (Some(_), true) => self,
        }
    }
}

/// Time in which a build could not go on, for no reason of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Paused {
    /// The builder could not be reached.
    pub away: Outage,
    /// It waited until the builder had room for it.
    pub waiting: Outage,
}

/// Where a deploy stands; each variant holds what is valid in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum State {
    /// Accepted and waiting for its turn.
    Queued,
    /// Its commit is being built (git apps), or is built, where there is an image, and waits to be rolled out.
    Building {
        /// Since when.
        since: Timestamp,
        /// The source that it is built from.
        #[serde(default)]
        source: Fingerprint,
        /// Time that its deadline does not count.
        #[serde(default)]
        paused: Paused,
    },
    /// The cluster is being brought to it.
    RollingOut {
        /// Since when.
        since: Timestamp,
        /// Time in which the cluster was out of reach.
        outage: Outage,
    },
    /// It was observed running, and stayed so.
    Succeeded {
        /// A remark, such as "0 replicas: no pod runs".
        note: Option<String>,
    },
    /// It ended without running.
    Failed {
        /// The code.
        reason: Reason,
        /// A sentence that a person can act on.
        message: String,
        /// What was seen.
        evidence: Option<Evidence>,
    },
    /// A newer revision took its place.
    Superseded {
        /// The newer one.
        by: Revision,
        /// Whether that one is a rollback.
        rollback: bool,
    },
    /// Somebody ended it.
    Cancelled {
        /// The code.
        reason: Reason,
        /// Who, and what that means.
        message: String,
    },
}

/// A state without its contents: the word that people see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted.
    Queued,
    /// Being built.
    Building,
    /// Being rolled out.
    RollingOut,
    /// Runs, or ran.
    Succeeded,
    /// Ended without running.
    Failed,
    /// Ended because of a newer one.
    Superseded,
    /// Ended by somebody.
    Cancelled,
}

impl Status {
    /// The word that the history shows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Building => "building",
            Self::RollingOut => "rolling_out",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Superseded => "superseded",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing follows it.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Superseded | Self::Cancelled)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl State {
    /// The state's word.
    pub const fn status(&self) -> Status {
        match self {
            Self::Queued => Status::Queued,
            Self::Building { .. } => Status::Building,
            Self::RollingOut { .. } => Status::RollingOut,
            Self::Succeeded { .. } => Status::Succeeded,
            Self::Failed { .. } => Status::Failed,
            Self::Superseded { .. } => Status::Superseded,
            Self::Cancelled { .. } => Status::Cancelled,
        }
    }
}

/// The name that an accept gives itself, by which it is found again when the store's answer was lost: 128 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdmissionId(pub u128);

impl Serialize for AdmissionId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for AdmissionId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

/// One entry of an app's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deploy {
    /// The accept that made it.
    pub id: AdmissionId,
    /// Its number.
    pub revision: Revision,
    /// What is rolled out; none for a git app until it is built.
    pub image: Option<ImageRef>,
    /// The commit, or for an image app a label.
    pub commit: Option<Commit>,
    /// What caused it.
    pub trigger: Trigger,
    /// Who caused it.
    pub actor: Actor,
    /// Where its image was taken from, where it was not posted.
    pub from: Option<Origin>,
    /// The revision that it stands for: its own, or the one that a rollback finally returns to.
    pub effective: Revision,
    /// Whether it records what already ran when the app was registered, so that nothing is patched.
    pub adopted: bool,
    /// Where it stands.
    pub state: State,
    /// Whether it may have changed the cluster; recorded before the patch.
    pub touched: bool,
    /// The digest that was observed running.
    pub digest: Option<Digest>,
    /// How often the entry was changed since it was accepted.
    pub step: u32,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it last changed; for a terminal one, when it ended.
    pub updated_at: Timestamp,
}

impl Deploy {
    /// Where it stands, in a word.
    pub const fn status(&self) -> Status {
        self.state.status()
    }

    /// Whether nothing follows.
    pub const fn is_terminal(&self) -> bool {
        self.status().is_terminal()
    }

    /// Whether a service, not a person, made it to put a failed rollout right.
    pub fn is_restore(&self) -> bool {
        self.trigger == Trigger::Rollback && self.actor.is_auto()
    }

    /// The image with the digest that was observed, so that a moving tag does not change what is meant.
    pub fn pinned_image(&self) -> Option<ImageRef> {
        let image = self.image.clone()?;
        Some(match &self.digest {
            Some(digest) => image.pinned(digest.clone()),
            None => image,
        })
    }

    /// Whether it waits for a build, or for one to end.
    pub const fn is_to_be_built(&self) -> bool {
        self.image.is_none() && !self.is_terminal()
    }

    /// Whether both run the same bits, as far as can be known.
    pub fn same_image(&self, other: &Self) -> bool {
        match (&self.image, &other.image) {
            (Some(one), Some(two)) => one.same_bits(self.digest.as_ref(), two, other.digest.as_ref()),
            (Some(_) | None, None) | (None, Some(_)) => false,
        }
    }

    /// The entry in its next state.
    #[must_use]
    pub fn moved(&self, state: State) -> Self {
        Self { state, step: self.step.saturating_add(1), ..self.clone() }
    }
}
