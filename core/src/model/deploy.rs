//! History entries and the states that they go through.

mod decision;
mod resolution;
mod scale;
mod sequence;
mod state;
mod verification;
mod watch;

use std::{fmt, num::NonZeroU64, str::FromStr};

use serde::{Deserialize, Serialize};

pub use decision::{Decision, Ruling};
pub use resolution::Resolution;
pub(crate) use resolution::bounded_lines;
pub use scale::{Scale, Stopped};
pub use sequence::{Order, SEQUENCE_MAX, Sequence};
pub use state::{Evidence, Newer, Outage, Paused, ReleaseMark, State, Status, WorkloadEnd, WorkloadEvidence};
pub use verification::{CheckResult, MEASUREMENTS_MAX, Verification};
pub use watch::{CheckFail, Watch, WatchEnd, WatchRestore};

use crate::{
    app::{App, AppId, InvalidName},
    configuration::ConfigurationId,
    delivery::GitHost,
    image::{Digest, ImageLabels, ImageRef, Platform},
    requirement::{Required, RequirementHash},
    text::{checked_text, numbered, random_id, words},
    time::Timestamp,
    trace::TraceParent,
};

numbered! {
    /// The number of a history entry: positive, per app, without gaps, never reused; higher is newer.
    Revision, "revision"
}

checked_text! {
    /// A commit as it was posted: at most 128 printable characters; for an image app a label.
    Commit, InvalidName, commit
}

impl Commit {
    /// Returns whether the text is written as git writes a commit: 40 or 64 hexadecimal digits, or a prefix of 7 or
    /// more.
    pub fn is_sha(&self) -> bool {
        (7..=64).contains(&self.0.len()) && self.0.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Returns whether both may mean one commit: they are the same, or one is the other's prefix.
    pub fn may_be(&self, other: &Self) -> bool {
        let (one, two) = (self.0.to_ascii_lowercase(), other.0.to_ascii_lowercase());
        self == other || (self.is_sha() && other.is_sha() && (one.starts_with(&two) || two.starts_with(&one)))
    }
}

/// The most characters of a message of a driver, such as that of an end.
pub(crate) const MESSAGE_MAX: usize = 4_000;

/// The longest commit or label, in characters.
pub const COMMIT_MAX: usize = 128;

fn commit(text: &str) -> Result<String, InvalidName> {
    let fail = |rule| Err(InvalidName::new("commit", text, rule));
    if text.is_empty() {
        return fail("must not be empty");
    }
    if text.chars().count() > COMMIT_MAX {
        return fail("must be at most 128 characters");
    }
    if text != crate::text::escaped(text) || text.trim() != text {
        return fail("must be printable characters, without spaces around them");
    }
    Ok(text.to_owned())
}

/// The kind of cause of a deploy.
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
    /// A change of the source that polling found.
    Git,
    /// A newer image, which polling found at the registry.
    Registry,
    /// A person changed the app's configuration.
    Config,
}

words! { Trigger:
    Webhook = "webhook",
    Manual = "manual",
    Promotion = "promotion",
    Rollback = "rollback",
    Git = "git",
    Registry = "registry",
    Config = "config",
}

/// The party that caused a deploy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[non_exhaustive]
pub enum Actor {
    /// The service itself: a restore, or a change that polling found. Shown as `auto`.
    Service,
    /// The holder of an app's webhook token. Shown as `ci`.
    Ci,
    /// A git host that reported a push. Shown as `HOST: octocat`.
    GitHost {
        /// The git host that sent the report.
        host: GitHost,
        /// The user who pushed, as the host names them.
        pusher: Option<String>,
    },
    /// A pipeline that proved itself by an id_token. Shown as `ISSUER shop/api run 4711 (ada)`.
    Pipeline {
        /// The issuer's short name, or its host.
        issuer: String,
        /// The repository's name, as the issuer states it.
        repository: String,
        /// The run or pipeline.
        run: Option<String>,
        /// The person who started it.
        person: Option<String>,
    },
    /// A person or a platform, by name.
    Person {
        /// The name, with control characters escaped, at most 128 characters.
        name: String,
    },
}

impl Actor {
    /// Returns a person or a platform by name; control characters are escaped and the length is bounded.
    pub fn person(name: &str) -> Self {
        Self::Person { name: bounded(name) }
    }

    /// Returns a git host, and the user who pushed if the host names one.
    pub fn git_host(host: GitHost, pusher: Option<&str>) -> Self {
        let pusher = pusher.map(str::trim).filter(|pusher| !pusher.is_empty()).map(bounded);
        Self::GitHost { host, pusher }
    }

    /// Returns a pipeline of this issuer; texts from outside are escaped and bounded.
    pub fn pipeline(issuer: &str, repository: &str, run: Option<&str>, person: Option<&str>) -> Self {
        let (run, person) = (run.map(bounded), person.map(bounded));
        Self::Pipeline { issuer: bounded(issuer), repository: bounded(repository), run, person }
    }

    /// Returns whether this is the service itself.
    pub const fn is_service(&self) -> bool {
        matches!(self, Self::Service)
    }
}

fn bounded(name: &str) -> String {
    crate::text::escaped(name).chars().take(128).collect()
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service => f.pad("auto"),
            Self::Ci => f.pad("ci"),
            Self::GitHost { host, pusher: None } => host.fmt(f),
            Self::GitHost { host, pusher: Some(pusher) } => write!(f, "{host}: {pusher}"),
            Self::Pipeline { issuer, repository, run, person } => {
                write!(f, "{issuer} {repository}")?;
                run.as_ref().map_or(Ok(()), |run| write!(f, " run {run}"))?;
                person.as_ref().map_or(Ok(()), |person| write!(f, " ({person})"))
            }
            Self::Person { name } => f.pad(name),
        }
    }
}

/// The origin of a deploy's image that was not posted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The revision of this app that was rolled back to.
    Revision(Revision),
    /// The revision of this app that the image was built as: a restore took the cluster during the build, and the image
    /// was entered anew behind it.
    Built(Revision),
    /// The revision of this app that was current, and is deployed once more; for another configuration also the one that failed
    /// last where none has succeeded.
    Same(Revision),
    /// The app and revision that was promoted.
    Promoted {
        /// The app that ran the image.
        app: AppId,
        /// The promoted revision of that app.
        revision: Revision,
    },
}

/// A short code for how a deploy ended: Kubernetes' own word if there is one (`ImagePullBackOff`), else one of ours in
/// kebab-case (`cluster-unreachable`). A client can act on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reason(String);

impl Reason {
    /// The rollout took longer than the app's deadline.
    pub const DEADLINE: &'static str = "rollout-deadline-exceeded";
    /// The cluster, or the builder, could not be reached for an hour.
    pub const UNREACHABLE: &'static str = "cluster-unreachable";
    /// The app was deleted while the deploy was unfinished.
    pub const APP_DELETED: &'static str = "app-deleted";
    /// A person cancelled the deploy.
    pub const CANCELLED: &'static str = "cancelled";
    /// The Deployment is paused, so that nothing would roll out.
    pub const PAUSED: &'static str = "workload-paused";
    /// The workload is configured so that no new revision would roll out.
    pub const UNSUPPORTED: &'static str = "workload-unsupported";
    /// The target carries the deploy id of another registration.
    pub const FOREIGN_TARGET: &'static str = "foreign-target";
    /// The target does not exist, and the app does not say how to create it.
    pub const TARGET_MISSING: &'static str = "workload-not-found";
    /// Something else changed the target while it rolled out.
    pub const REVERTED: &'static str = "workload-changed-by-another";
    /// The disk that images are stored on is nearly full, so that none was pulled.
    pub const DISK_FULL: &'static str = "disk-full";
    /// The cluster refused the change.
    pub const REFUSED: &'static str = "cluster-refused";
    /// Containers of the new revision restarted again and again while they should have stayed ready.
    pub const RESTARTING: &'static str = "containers-restarting";
    /// Instances are not ready: the old one had to stop first and no new one got ready within the app's time for that, or
    /// those of the current version were not for longer than the app's patience.
    pub const NOT_READY: &'static str = "not-ready";
    /// The build ran and failed; its log says why.
    pub const BUILD_FAILED: &'static str = "build-failed";
    /// The build took longer than the app's deadline.
    pub const BUILD_DEADLINE: &'static str = "build-deadline-exceeded";
    /// The builder does not know a build that it had begun.
    pub const BUILD_LOST: &'static str = "build-lost";
    /// The builder refused the build.
    pub const BUILD_REFUSED: &'static str = "build-refused";
    /// The release command failed; its log says why.
    pub const RELEASE_FAILED: &'static str = "release-failed";
    /// Whether the release command ran to its end is not known.
    pub const RELEASE_UNKNOWN: &'static str = "release-unknown";
    /// A check of the app failed: so many measurements in a row as its settings say.
    pub const CHECK_FAILED: &'static str = "check-failed";
    /// The release command took longer than the app's deadline, and was ended.
    pub const RELEASE_DEADLINE: &'static str = "release-deadline-exceeded";
    /// The command of a run by hand failed; its log says why.
    pub const COMMAND_FAILED: &'static str = "command-failed";
    /// Whether the command of a run by hand ran to its end is not known.
    pub const COMMAND_UNKNOWN: &'static str = "command-unknown";
    /// The command of a run by hand took longer than its deadline, and was ended.
    pub const COMMAND_DEADLINE: &'static str = "command-deadline-exceeded";
    /// The values of the deploy's configuration are no longer stored.
    pub const CONFIGURATION_MISSING: &'static str = "configuration-missing";
    /// Another party has set a variable of the app's configuration in the target too.
    pub const CONFIGURATION_CONFLICT: &'static str = "configuration-conflict";
    /// The registry has no such image.
    pub const IMAGE_NOT_FOUND: &'static str = "image-not-found";
    /// The image was rolled away from, and is held.
    pub const IMAGE_HELD: &'static str = "image-held";
    /// The image's label names another commit than the posted one, and the app's policy has them match.
    pub const COMMIT_MISMATCH: &'static str = "commit-mismatch";
    /// The digest of the image could not be found out, and the app's policy requires it.
    pub const IMAGE_NOT_RESOLVED: &'static str = "image-not-resolved";
    /// The image lacks a signature or an attestation that the app's policy requires.
    pub const IMAGE_NOT_SIGNED: &'static str = "image-not-signed";
    /// The source has no such commit.
    pub const COMMIT_NOT_FOUND: &'static str = "commit-not-found";
    /// More than one commit of the source begins with the posted prefix.
    pub const COMMIT_AMBIGUOUS: &'static str = "commit-ambiguous";
    /// The app's source was changed while the commit was built.
    pub const SOURCE_CHANGED: &'static str = "source-changed";
    /// The source cannot be reached.
    pub const SOURCE_UNREACHABLE: &'static str = "source-unreachable";
    /// The source does not let the builder read it.
    pub const SOURCE_DENIED: &'static str = "source-denied";

    /// Returns the reason of a code: a word of letters, digits and hyphens; other characters are dropped.
    pub fn new(code: &str) -> Self {
        let word: String = code.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
        Self(if word.is_empty() { "unknown".to_owned() } else { word })
    }

    /// The reason's code.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

random_id! {
    /// The random id of an accept: 128 bits, by which the accept is found again after the store's answer was lost.
    AdmissionId, "accept"
}

/// One entry of an app's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deploy {
    /// The id of the accept that made the entry.
    pub id: AdmissionId,
    /// The number of the entry.
    pub revision: Revision,
    /// The image that is rolled out; `None` for a git app until it is built.
    pub image: Option<ImageRef>,
    /// The commit, or for an image app a label.
    pub commit: Option<Commit>,
    /// The time of the commit, if whoever asked for the deploy has said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<Timestamp>,
    /// The place of the deploy among those of the app's webhook, if the caller has said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    /// The kind of cause.
    pub trigger: Trigger,
    /// The party that caused the deploy.
    pub actor: Actor,
    /// The origin of the image, if it was not posted.
    pub from: Option<Origin>,
    /// The effective revision: the entry's own, or the one that a rollback finally returns to, or a redeploy repeats.
    pub effective: Revision,
    /// Whether the entry records the image that ran when the app was registered, so that nothing is patched.
    pub adopted: bool,
    /// The change of the number of instances: of a stop or a start, of a deploy that superseded one, and of the restore of one.
    #[serde(default, skip_serializing_if = "Scale::is_keep")]
    pub scale: Scale,
    /// The configuration that the deploy runs with, which is decided once it begins; `None`: none was set through this
    /// service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationId>,
    /// Whether the deploy was accepted to bring its configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub configures: bool,
    /// The state that the deploy is in.
    pub state: State,
    /// Whether the deploy may have changed the cluster; recorded before the patch.
    pub touched: bool,
    /// The mark of the release command; `None` if the command never began, or there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseMark>,
    /// Whether the entry returns to a version, or repeats one, whose release command did not succeed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreleased: bool,
    /// The verification by the app's checks; `None` before it begins, and where the app has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Box<Verification>>,
    /// The resolution of the image at its registry; `None` where the image is not looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Box<Resolution>>,
    /// The digest of the image: the one that its registry named before the rollout, or else the one that was observed running.
    pub digest: Option<Digest>,
    /// The number of changes of the entry since it was accepted.
    pub step: u32,
    /// The time of the accept.
    pub created_at: Timestamp,
    /// The time of the last change; for a terminal entry, of its end.
    pub updated_at: Timestamp,
    /// The end of the time in which a repeated call may ask for the entry by its idempotency key; `None` without a key.
    #[serde(default)]
    pub kept_until: Option<Timestamp>,
    /// The caller's place in a trace that the deploy is a part of, if it has named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
}

impl Deploy {
    /// The status: the state in one word.
    pub const fn status(&self) -> Status {
        let is_verified = matches!(self.state, State::RollingOut { .. }) && self.verification.is_some();
        if is_verified { Status::Verifying } else { self.state.status() }
    }

    /// Returns why a deploy that succeeded is not verified, or not by all of its enforced checks, as a clause.
    pub fn not_verified(&self) -> Option<String> {
        let verification = self.verification.as_ref().filter(|_| self.status() == Status::Succeeded)?;
        verification.gap()
    }

    /// Returns the verification of a deploy that waits for a person's decision, with the time since when it waits.
    pub fn awaited_decision(&self) -> Option<(&Verification, Timestamp)> {
        let verification = self.verification.as_deref().filter(|_| self.status() == Status::Verifying)?;
        Some((verification, verification.awaited_since.filter(|_| verification.decision.is_none())?))
    }

    /// Returns whether the deploy has ended.
    pub const fn is_terminal(&self) -> bool {
        self.status().is_terminal()
    }

    /// Returns whether the deploy came after one that is newer, by its sequence or its commit: it ended by that, and changed nothing.
    pub const fn is_out_of_order(&self) -> bool {
        matches!(self.state, State::Superseded { newer: Some(_), .. })
    }

    /// Returns whether the service made the entry to put a failed rollout right.
    pub fn is_restore(&self) -> bool {
        self.trigger == Trigger::Rollback && self.actor.is_service()
    }

    /// Returns whether the entry deploys the image once more that was current: as it is, to stop or start the app, or with
    /// another configuration, also that of a first version which failed.
    pub const fn is_redeploy(&self) -> bool {
        matches!(self.from, Some(Origin::Same(_)))
    }

    /// Returns whether the image ran before with its release command, or records what ran: it does not run the command.
    pub const fn has_run_before(&self) -> bool {
        let repeats = self.is_redeploy() && !matches!(self.trigger, Trigger::Config);
        matches!(self.trigger, Trigger::Rollback) || repeats || self.adopted
    }

    /// Returns whether the version's release command did not succeed, as far as is known: it failed, or was not seen to have
    /// ended well. A return to the version does not run it.
    pub fn lacks_release(&self) -> bool {
        match self.release {
            Some(ReleaseMark::Done) => false,
            Some(ReleaseMark::MayHaveRun) => true,
            None => self.unreleased || self.state.has_failed_to_release(),
        }
    }

    /// Returns whether both stand for one version: the same image and the same configuration.
    pub fn same_version(&self, other: &Self) -> bool {
        self.effective == other.effective && self.configuration == other.configuration
    }

    /// Returns whether the deploy failed because another party changed, paused or removed the target while it rolled out: what
    /// is there now is as that party wants it.
    pub fn was_changed_by_another(&self) -> bool {
        let State::Failed { reason, .. } = &self.state else { return false };
        matches!(reason.as_str(), Reason::REVERTED | Reason::PAUSED | Reason::UNSUPPORTED | Reason::TARGET_MISSING)
    }

    /// The revision that the image was built as: an earlier one if the image was entered anew behind a restore.
    pub const fn built_as(&self) -> Revision {
        match &self.from {
            Some(Origin::Built(first)) => *first,
            Some(Origin::Revision(_) | Origin::Same(_) | Origin::Promoted { .. }) | None => self.revision,
        }
    }

    /// Returns whether the entry is another one's image, entered anew: no caller asked for it by itself.
    pub fn is_entered_anew(&self) -> bool {
        self.built_as() != self.revision
    }

    /// Returns the image with the observed digest, so that a moving tag does not change its meaning.
    pub fn pinned_image(&self) -> Option<ImageRef> {
        let image = self.image.clone()?;
        Some(match self.digest.clone() {
            Some(digest) => image.pinned(digest),
            None => image,
        })
    }

    /// Returns the image that is rolled out: by its digest, if the registry has named it or a command ran with it.
    pub fn wanted_image(&self) -> Option<ImageRef> {
        if self.is_resolved() || self.release.is_some() { self.pinned_image() } else { self.image.clone() }
    }

    /// Returns the digest once this one was observed. The one that the registry has named stays: a platform may report that of
    /// its own part of the image.
    pub fn digest_beside(&self, observed: Option<Digest>) -> Option<Digest> {
        let known = self.digest.clone();
        if self.is_resolved() { known.or(observed) } else { observed.or(known) }
    }

    /// Returns whether the deploy has an image and has not ended.
    pub const fn is_ready(&self) -> bool {
        self.image.is_some() && !self.is_terminal()
    }

    /// Returns whether the deploy waits for the answer of its image's registry, or of the source of its commit.
    pub fn is_to_be_resolved(&self) -> bool {
        self.resolution.as_deref() == Some(&Resolution::Pending) && !self.is_terminal()
    }

    /// Returns whether the deploy is of a commit whose source has not said yet whether it is older than what came before.
    pub fn is_to_be_ordered(&self) -> bool {
        self.image.is_none() && self.is_to_be_resolved()
    }

    /// Returns whether the branch came to the deploy's commit as it was accepted: an image that was entered anew came before, and the
    /// branch had left a commit that was out of order.
    pub fn moves_branch(&self) -> bool {
        !self.is_entered_anew() && !self.is_out_of_order()
    }

    /// Returns whether the source of the deploy's commit may have been asked whether that is older than what came before.
    pub fn may_have_been_ordered(&self) -> bool {
        self.trigger == Trigger::Webhook && self.sequence.is_none() && self.commit.is_some()
    }

    /// Returns whether the registry has named the image's digest, so that it is the one that is deployed.
    pub fn is_resolved(&self) -> bool {
        matches!(self.resolution.as_deref(), Some(Resolution::Resolved { .. }))
    }

    /// The platforms that the image is for, as far as its registry was asked and has named them.
    pub fn platforms(&self) -> &[Platform] {
        match self.resolution.as_deref() {
            Some(Resolution::Resolved { platforms, .. }) => platforms,
            Some(Resolution::Pending | Resolution::Unresolved { .. }) | None => &[],
        }
    }

    /// The labels by which the image says where it comes from; `None` if its registry was not asked, or names none.
    pub fn labels(&self) -> Option<&ImageLabels> {
        match self.resolution.as_deref() {
            Some(Resolution::Resolved { labels, .. }) => Some(labels).filter(|labels| !labels.is_empty()),
            Some(Resolution::Pending | Resolution::Unresolved { .. }) | None => None,
        }
    }

    /// Returns the commit to show: the posted one, or else the one that the image's label names: its builder's word.
    pub fn shown_commit(&self) -> Option<Commit> {
        self.commit.clone().or_else(|| self.labels()?.commit())
    }

    /// The signers of the image, each as a line; empty unless signatures were asked for and found.
    pub fn signed_by(&self) -> &[String] {
        match self.resolution.as_deref() {
            Some(Resolution::Resolved { signed_by, .. }) => signed_by,
            Some(Resolution::Pending | Resolution::Unresolved { .. }) | None => &[],
        }
    }

    /// Returns whether the version may be returned to without a look at its signatures: it has succeeded, or was found to meet
    /// what its app has to meet.
    pub fn is_proven(&self, app: &App) -> bool {
        self.status() == Status::Succeeded || self.has_met(&app.required())
    }

    /// Returns whether the deploy's image was found to meet these requirements, of which there are some; it may meet others too.
    pub fn has_met(&self, required: &[Required]) -> bool {
        let meets = match self.resolution.as_deref() {
            Some(Resolution::Resolved { meets, .. }) => meets.as_slice(),
            Some(Resolution::Pending | Resolution::Unresolved { .. }) | None => &[],
        };
        let is_met = |required: &Required| meets.contains(&RequirementHash::of(&required.requirement));
        !required.is_empty() && required.iter().all(is_met)
    }

    /// Returns whether the deploy may begin to roll out: it has an image, and waits for no registry.
    pub fn may_begin(&self) -> bool {
        self.is_ready() && !self.is_to_be_resolved()
    }

    /// Returns whether the deploy's release command may be running.
    pub const fn may_be_releasing(&self) -> bool {
        matches!(self.state, State::Releasing { .. }) && self.release.is_some()
    }

    /// Returns whether the deploy waits for a build to begin or to end.
    pub const fn is_to_be_built(&self) -> bool {
        self.image.is_none() && !self.is_terminal()
    }

    /// Returns whether both run the same bits, as far as is known.
    pub fn same_image(&self, other: &Self) -> bool {
        let images = self.image.as_ref().zip(other.image.as_ref());
        images.is_some_and(|(one, two)| one.same_bits(self.digest.as_ref(), two, other.digest.as_ref()))
    }

    /// Returns whether both run the same bits with the same configuration, so that a verdict over one is a verdict over the
    /// other.
    pub fn runs_as(&self, other: &Self) -> bool {
        self.same_image(other) && self.configuration == other.configuration
    }

    /// Returns the entry without its evidence, and with the last measurement of each check alone, as states keep it.
    #[must_use]
    pub fn without_evidence(&self) -> Self {
        let mut slim = self.clone();
        slim.verification.iter_mut().for_each(|verification| **verification = verification.short());
        if let State::Failed { evidence, .. } = &mut slim.state {
            *evidence = None;
        }
        slim
    }

    /// Returns the entry as lists and notifications need it: without its evidence but for the states of several workloads.
    #[must_use]
    pub fn without_logs(&self) -> Self {
        let mut slim = self.without_evidence();
        if let (State::Failed { evidence, .. }, State::Failed { evidence: whole, .. }) = (&mut slim.state, &self.state)
        {
            *evidence = whole.as_ref().and_then(Evidence::of_workloads);
        }
        slim
    }

    /// Returns the states of several workloads when the deploy failed; empty for every other entry.
    pub fn workloads(&self) -> &[WorkloadEvidence] {
        match &self.state {
            State::Failed { evidence: Some(evidence), .. } => &evidence.workloads,
            State::Failed { evidence: None, .. }
            | State::Queued
            | State::Building { .. }
            | State::Releasing { .. }
            | State::RollingOut { .. }
            | State::Succeeded { .. }
            | State::Superseded { .. }
            | State::Cancelled { .. } => &[],
        }
    }

    /// Returns the entry with the texts of its end cut to what an entry may hold: they may come from outside.
    #[must_use]
    pub(crate) fn bounded(mut self) -> Self {
        self.verification = self.verification.map(|verification| Box::new(verification.bounded()));
        match &mut self.state {
            State::Failed { message, evidence, .. } => {
                crate::text::cut(message, MESSAGE_MAX);
                *evidence = evidence.take().map(Evidence::bounded);
            }
            State::Succeeded { note: Some(note) } => crate::text::cut(note, MESSAGE_MAX),
            State::Cancelled { message, .. } => crate::text::cut(message, MESSAGE_MAX),
            State::Queued
            | State::Building { .. }
            | State::Releasing { .. }
            | State::RollingOut { .. }
            | State::Succeeded { .. }
            | State::Superseded { .. } => {}
        }
        self
    }

    /// Returns the entry in its next state.
    #[must_use]
    pub fn moved(&self, state: State) -> Self {
        Self { state, step: self.step.saturating_add(1), ..self.clone() }
    }
}
