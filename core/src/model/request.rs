//! The requests of callers, parsed, and the refusals.

mod refusal;

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

pub use refusal::{Hint, Refusal, RefusalKind};

use crate::{
    app::{Environment, FOLLOW_POLL, FullName, Policy, Project, Settings, Source},
    configuration::VariablesChange,
    deploy::{Actor, Commit, Order, Revision, Scale, Trigger},
    image::ImageRef,
    requirement::{Attestation, Requirement, RequirementCopies, Signer},
    source::{Branch, CredentialsName, GitSource, GitUrl, ImageRepository, RelativePath},
    text::{with_fields, words},
    time::Timestamp,
};

/// A key under which repeating a call does not repeat its effect. Header and text identify it, not the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IdempotencyKey {
    /// The header that carried it; the same text in another header is another key.
    pub header: KeyHeader,
    /// The key's text.
    pub key: String,
    /// SHA-256 of the request: the operation and the raw body.
    pub request: [u8; 32],
}

/// The headers that carry an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyHeader {
    /// `Idempotency-Key`, as our snippets and clients send it.
    IdempotencyKey,
    /// `webhook-id` of Standard Webhooks.
    WebhookId,
    /// The id under which a git host repeats a delivery.
    Delivery,
}

impl KeyHeader {
    /// The word for it, which is part of what a key is bound to.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IdempotencyKey => "idempotency-key",
            Self::WebhookId => "webhook-id",
            Self::Delivery => "delivery",
        }
    }

    /// How long keys of this header are kept: as long as the sender may repeat.
    pub const fn kept_for(self) -> Duration {
        match self {
            Self::IdempotencyKey => Duration::from_secs(24 * 3600),
            Self::WebhookId | Self::Delivery => Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// The longest idempotency key, in bytes.
pub const KEY_MAX: usize = 255;

/// The error of a text that is not an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key must be 1 to 255 visible ASCII characters")]
pub struct InvalidKey;

impl IdempotencyKey {
    /// Returns the key of a header's text, quoted (RFC 8941 string) or bare, for a request whose SHA-256 is `request`.
    ///
    /// # Errors
    /// If the text is empty, too long, or not visible ASCII.
    pub fn new(header: KeyHeader, text: &str, request: [u8; 32]) -> Result<Self, InvalidKey> {
        let text = text.trim();
        let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
        let valid = (1..=KEY_MAX).contains(&bare.len()) && bare.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if valid { Ok(Self { header, key: bare.to_owned(), request }) } else { Err(InvalidKey) }
    }
}

/// A request of a webhook, a person or the service to deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeployRequest {
    /// The image; required for an image app.
    pub image: Option<ImageRef>,
    /// The commit; required for a git app.
    pub commit: Option<Commit>,
    /// The time of the commit.
    pub committed_at: Option<Timestamp>,
    /// The order among the deploys of the app's webhook; of every other deploy, it is ignored.
    pub order: Order,
    /// The idempotency key.
    pub key: Option<IdempotencyKey>,
}

with_fields!(DeployRequest, RedeployRequest, ScaleRequest, RollbackRequest, PromoteRequest, Registration);

impl DeployRequest {
    /// Returns the request to deploy an image.
    pub const fn image(image: ImageRef) -> Self {
        Self { image: Some(image), commit: None, committed_at: None, order: Order::Unstated, key: None }
    }

    /// Returns the request to build and deploy a commit of a git app.
    pub const fn commit(commit: Commit) -> Self {
        Self { image: None, commit: Some(commit), committed_at: None, order: Order::Unstated, key: None }
    }

    /// Returns the request for a commit of this time, if it is known.
    #[must_use]
    pub fn at(self, committed_at: impl Into<Option<Timestamp>>) -> Self {
        Self { committed_at: committed_at.into(), ..self }
    }

    /// Returns the request of these texts, as they stand in a body.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(
        image: Option<&str>,
        commit: Option<&str>,
        committed_at: Option<&str>,
        key: Option<IdempotencyKey>,
    ) -> Result<Self, Refusal> {
        let (image, commit) = (optional(Field::Image, image)?, optional(Field::Commit, commit)?);
        let committed_at = optional(Field::CommittedAt, committed_at)?;
        Ok(Self { image, commit, committed_at, order: Order::Unstated, key })
    }

    /// Returns the request of a webhook with this order among its deploys, as it stands in a body: a number, or `none` for a
    /// deploy that has no place.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn in_order(self, sequence: Option<&str>) -> Result<Self, Refusal> {
        Ok(Self { order: optional(Field::Sequence, sequence)?.unwrap_or_default(), ..self })
    }
}

fn optional<T: FromStr<Err: fmt::Display>>(field: Field, given: Option<&str>) -> Result<Option<T>, Refusal> {
    given.map(str::parse).transpose().map_err(|why: T::Err| Refusal::InvalidField(field, format!("{why}.")))
}

/// A person's request to deploy the current version once more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedeployRequest {
    /// The revision that the person believes to be current; the redeploy is refused if another one is.
    pub if_current: Option<Revision>,
    /// The idempotency key.
    pub key: Option<IdempotencyKey>,
}

/// A person's request to change an app's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigureRequest {
    /// The variables to set and to remove.
    pub change: VariablesChange,
    /// Whether the change waits for the next deploy; otherwise it is a deploy of its own.
    pub staged: bool,
    /// Whether the values of the variables to remove are revoked, as they have leaked: no rollback brings them back unasked.
    pub revoked: bool,
    /// The revision that the person believes to be current; the call is refused if another one is.
    pub if_current: Option<Revision>,
    /// The idempotency key.
    pub key: Option<IdempotencyKey>,
}

/// A person's request to run a command by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunRequest {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The time that the command may take; without one, an hour.
    pub deadline: Option<Duration>,
    /// The idempotency key.
    pub key: Option<IdempotencyKey>,
}

/// A person's request to stop or start an app.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScaleRequest {
    /// Whether the app is stopped or started.
    pub scale: Scale,
    /// The revision that the person believes to be current; the call is refused if another one is.
    pub if_current: Option<Revision>,
    /// The idempotency key.
    pub key: Option<IdempotencyKey>,
}

with_fields!(RunRequest, ConfigureRequest);

impl RunRequest {
    /// Returns the request to run this program with its arguments.
    pub const fn new(command: Vec<String>) -> Self {
        Self { command, deadline: None, key: None }
    }
}

impl ScaleRequest {
    /// Returns the request to stop or start an app, whatever is current.
    pub const fn new(scale: Scale) -> Self {
        Self { scale, if_current: None, key: None }
    }
}

/// A person's request to roll back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RollbackRequest {
    /// The revision to return to; without one, the last good version before what is on the cluster.
    pub revision: Option<Revision>,
    /// The revision that the person believes to be current; the rollback is refused if another one is.
    pub if_current: Option<Revision>,
    /// Whether the version's configuration is brought back as well; otherwise the current one stays.
    pub with_configuration: bool,
    /// Whether the person goes back past revisions whose release commands may have run.
    pub past_releases: bool,
    /// Whether the person returns to a version whose release command did not succeed.
    pub without_release: bool,
    /// Whether the configuration may come back with values that were revoked.
    pub with_revoked: bool,
    /// The idempotency key.
    pub key: Option<IdempotencyKey>,
}

/// A person's request to promote what another environment's app runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromoteRequest {
    /// The app whose image is deployed.
    pub from: FullName,
    /// The revision that the person believes to be current there; the promotion is refused if another one is.
    pub if_current: Option<Revision>,
    /// Whether the image is deployed without variables that the app there has and this one lacks; otherwise the promotion is
    /// refused, and the refusal names them.
    pub without_variables: bool,
    /// The idempotency key.
    pub key: Option<IdempotencyKey>,
}

impl PromoteRequest {
    /// Returns the request to promote what the app runs, whatever that is.
    pub const fn new(from: FullName) -> Self {
        Self { from, if_current: None, without_variables: false, key: None }
    }
}

/// A person's request to register an app.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registration {
    /// The project that the app belongs to.
    pub project: Project,
    /// The project's environment.
    pub environment: Environment,
    /// The app's name within its namespace.
    pub name: crate::app::AppName,
    /// The source of the app's images.
    pub source: Source,
    /// The settings of the target, as the person gave them: the rollout driver fills in the rest.
    pub target: Settings,
    /// The image to start with if the target has to be created.
    pub image: Option<ImageRef>,
    /// The owner's settings.
    pub policy: Policy,
    /// Whether the deploy id of another registration on the target may be overwritten.
    pub take_over: bool,
    /// Whether a target that exists is adopted as it is, although the request says how a new one is made.
    pub adopt: bool,
    /// The requirements of the project and the environment, which the app has from the start.
    pub requirements: RequirementCopies,
}

impl Registration {
    /// Returns the registration of an image app with the default policy and the rollout driver's default target.
    pub fn new(project: Project, environment: Environment, name: crate::app::AppName) -> Self {
        Self {
            project,
            environment,
            name,
            source: Source::Image,
            target: Settings::new(),
            image: None,
            policy: Policy::default(),
            take_over: false,
            adopt: false,
            requirements: RequirementCopies::default(),
        }
    }

    /// Builds the app's images from git.
    #[must_use]
    pub fn git(self, source: GitSource) -> Self {
        Self { source: Source::Git(source), ..self }
    }

    /// Names the target by settings that the rollout driver understands.
    #[must_use]
    pub fn target(self, target: Settings) -> Self {
        Self { target, ..self }
    }

    /// Starts with this image if the target has to be created.
    #[must_use]
    pub fn image(self, image: ImageRef) -> Self {
        Self { image: Some(image), ..self }
    }

    /// Sets the policy.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Allows overwriting the deploy id of another registration on the target.
    #[must_use]
    pub fn take_over(self) -> Self {
        Self { take_over: true, ..self }
    }

    /// Adopts a target that exists as it is, although the request says how a new one is made.
    #[must_use]
    pub fn adopt(self) -> Self {
        Self { adopt: true, ..self }
    }
}

/// A change of parts of an app's policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyChange {
    /// The new [`Policy::on_failure`].
    pub on_failure: Option<crate::app::OnFailure>,
    /// The new [`Policy::hold`].
    pub hold: Option<crate::app::HoldPolicy>,
    /// The new [`Policy::settle`].
    pub settle: Option<Duration>,
    /// The new [`Policy::patience`].
    pub patience: Option<Duration>,
    /// The new [`Policy::ready_within`].
    pub ready_within: Option<Duration>,
    /// The new [`Policy::rollout_deadline`].
    pub rollout_deadline: Option<Duration>,
    /// The new [`Policy::build_deadline`].
    pub build_deadline: Option<Duration>,
    /// The new [`Policy::release_command`]; an empty one removes it.
    pub release_command: Option<Vec<String>>,
    /// The new [`Policy::release_deadline`].
    pub release_deadline: Option<Duration>,
    /// The new [`Policy::release_group`]; `Some(None)` removes it.
    pub release_group: Option<Option<crate::app::ReleaseGroup>>,
    /// The new [`Policy::checks`], all of them.
    pub checks: Option<Vec<crate::check::Check>>,
    /// The new [`Policy::verify_for`].
    pub verify_for: Option<Duration>,
    /// The new [`Policy::watch_for`].
    pub watch_for: Option<Duration>,
    /// The new [`Policy::release_on_config`].
    pub release_on_config: Option<bool>,
    /// The new [`Policy::url`]; `Some(None)` removes it.
    pub url: Option<Option<crate::app::AppUrl>>,
    /// The new [`Policy::resolve`].
    pub resolve: Option<crate::app::Resolve>,
    /// The new [`Policy::commit`].
    pub commit: Option<crate::app::CommitRule>,
    /// The new [`Policy::repositories`].
    pub repositories: Option<crate::image::Repositories>,
    /// The new [`Policy::keep`].
    pub keep: Option<u32>,
    /// The new [`Policy::follow`]; `Some(None)` ends it, and polling.
    pub follow: Option<Option<crate::follow::Follow>>,
    /// The new [`Policy::follow_settle`].
    pub follow_settle: Option<Duration>,
    /// The new signers of [`Policy::signed`]; empty: its images need no signature.
    pub signers: Option<Vec<Signer>>,
    /// The new attestation of [`Policy::signed`]; `Some(None)`: its images need none.
    pub attestation: Option<Option<Attestation>>,
    /// The new [`Policy::poll`]; `Some(None)` ends polling.
    pub poll: Option<Option<Duration>>,
}

/// A change of parts of a git app's source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceChange {
    /// The new [`GitSource::url`].
    pub url: Option<GitUrl>,
    /// The new [`GitSource::branch`].
    pub branch: Option<Branch>,
    /// The new [`GitSource::dockerfile`].
    pub dockerfile: Option<RelativePath>,
    /// The new [`GitSource::context`].
    pub context: Option<RelativePath>,
    /// The new [`GitSource::image_repository`].
    pub image_repository: Option<ImageRepository>,
    /// The new [`GitSource::credentials`]; `Some(None)` removes them.
    pub credentials: Option<Option<CredentialsName>>,
}

/// A person's change of an app's target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetChange {
    /// The settings to replace; null removes one. They must not name another target, but may add workloads to it.
    pub settings: Settings,
    /// Whether deploys of the app may overwrite the deploy id of another registration that the target carries now.
    pub take_over: bool,
}

impl TargetChange {
    /// Returns the settings with the change made.
    #[must_use]
    pub fn apply(&self, mut settings: Settings) -> Settings {
        for (name, value) in self.settings.clone() {
            if value.is_null() {
                settings.remove(&name)
            } else {
                settings.insert(name, value)
            };
        }
        settings
    }
}

impl SourceChange {
    /// Returns the source with the change made.
    #[must_use]
    pub fn apply(self, source: GitSource) -> GitSource {
        GitSource {
            url: self.url.unwrap_or(source.url),
            branch: self.branch.unwrap_or(source.branch),
            dockerfile: self.dockerfile.unwrap_or(source.dockerfile),
            context: self.context.unwrap_or(source.context),
            image_repository: self.image_repository.unwrap_or(source.image_repository),
            credentials: self.credentials.unwrap_or(source.credentials),
        }
    }
}

impl PolicyChange {
    /// Returns the policy with the change made.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`] if nobody signs an attestation that the policy would require.
    pub fn apply(self, policy: Policy) -> Result<Policy, Refusal> {
        let field =
            if self.attestation.is_some() { Field::PolicyRequireAttestation } else { Field::PolicyRequireSignature };
        let signed = Requirement::changed(policy.signed, self.signers, self.attestation)
            .map_err(|invalid| Refusal::InvalidField(field, format!("{}.", invalid.rule)))?;
        Ok(Policy {
            on_failure: self.on_failure.unwrap_or(policy.on_failure),
            hold: self.hold.unwrap_or(policy.hold),
            settle: self.settle.unwrap_or(policy.settle),
            patience: self.patience.unwrap_or(policy.patience),
            ready_within: self.ready_within.unwrap_or(policy.ready_within),
            rollout_deadline: self.rollout_deadline.unwrap_or(policy.rollout_deadline),
            build_deadline: self.build_deadline.unwrap_or(policy.build_deadline),
            release_command: self.release_command.unwrap_or(policy.release_command),
            release_deadline: self.release_deadline.unwrap_or(policy.release_deadline),
            release_group: self.release_group.unwrap_or(policy.release_group),
            checks: self.checks.unwrap_or(policy.checks),
            verify_for: self.verify_for.unwrap_or(policy.verify_for),
            watch_for: self.watch_for.unwrap_or(policy.watch_for),
            release_on_config: self.release_on_config.unwrap_or(policy.release_on_config),
            url: self.url.unwrap_or(policy.url),
            resolve: self.resolve.unwrap_or(policy.resolve),
            commit: self.commit.unwrap_or(policy.commit),
            repositories: self.repositories.unwrap_or(policy.repositories),
            keep: self.keep.unwrap_or(policy.keep),
            poll: self.poll.unwrap_or(match &self.follow {
                Some(Some(_)) => policy.poll.or(Some(FOLLOW_POLL)),
                Some(None) => None,
                None => policy.poll,
            }),
            follow: self.follow.unwrap_or(policy.follow),
            follow_settle: self.follow_settle.unwrap_or(policy.follow_settle),
            signed,
        })
    }
}

/// The cause of a request: the trigger and the actor that the history names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The trigger of the deploy.
    pub trigger: Trigger,
    /// The actor of the deploy.
    pub actor: Actor,
}

impl From<Actor> for Cause {
    /// The cause of what a person or program asks for by hand.
    fn from(actor: Actor) -> Self {
        Self { trigger: Trigger::Manual, actor }
    }
}

/// Declares the fields of requests.
macro_rules! fields {
    ($($field:ident = $name:literal,)*) => {
        /// A field of a request, as a refusal names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Field {
            $(
                #[doc = concat!("The field `", $name, "`.")]
                $field,
            )*
        }

        words! { Field: $($field = $name,)* }
    };
}

fields! {
    TokenName = "name",
    TokenRole = "role",
    Expires = "expires",
    LockReason = "reason",
    BreakGlass = "break_glass",
    Same = "same",
    IfCurrent = "if_current",
    Set = "set",
    Unset = "unset",
    Revoked = "revoked",
    Command = "command",
    Deadline = "deadline",
    Overlap = "overlap",
    Project = "project",
    Environment = "environment",
    Namespace = "namespace",
    App = "app",
    Image = "image",
    Commit = "commit",
    CommittedAt = "committed_at",
    Sequence = "sequence",
    FromProject = "from.project",
    FromEnvironment = "from.environment",
    PolicyOnFailure = "policy.on_failure",
    PolicyHold = "policy.hold",
    PolicySettle = "policy.settle",
    PolicyPatience = "policy.patience",
    PolicyReadyWithin = "policy.ready_within",
    PolicyRolloutDeadline = "policy.rollout_deadline",
    PolicyBuildDeadline = "policy.build_deadline",
    PolicyReleaseCommand = "policy.release_command",
    PolicyReleaseDeadline = "policy.release_deadline",
    PolicyChecks = "policy.checks",
    PolicyVerifyFor = "policy.verify_for",
    PolicyWatchFor = "policy.watch_for",
    CheckKind = "kind",
    CheckSecret = "secret",
    CheckMode = "mode",
    CheckEvery = "every",
    CheckTimeout = "timeout",
    CheckWithoutVerdict = "without_verdict",
    Verdict = "verdict",
    PolicyReleaseGroup = "policy.release_group",
    PolicyUrl = "policy.url",
    PolicyRepositories = "policy.repositories",
    PolicyKeep = "policy.keep",
    PolicyFollow = "policy.follow",
    PolicyResolve = "policy.resolve",
    PolicyFollowSettle = "policy.follow_settle",
    PolicyRequireSignature = "policy.require_signature",
    PolicyRequireAttestation = "policy.require_attestation",
    PolicyPoll = "policy.poll",
    RequireSignature = "require_signature",
    RequireAttestation = "require_attestation",
    GitUrl = "git.url",
    GitBranch = "git.branch",
    GitDockerfile = "git.dockerfile",
    GitContext = "git.context",
    GitImageRepository = "git.image_repository",
    GitCredentials = "git.credentials",
    SourceUrl = "source.url",
    SourceBranch = "source.branch",
    SourceDockerfile = "source.dockerfile",
    SourceContext = "source.context",
    SourceImageRepository = "source.image_repository",
    SourceCredentials = "source.credentials",
    TrustIssuer = "issuer",
    TrustAudience = "audience",
    TrustClaims = "claims",
    ReceiverName = "name",
    ReceiverKind = "kind",
    ReceiverUrl = "url",
    ReceiverChannel = "channel",
    ReceiverRepository = "repository",
    ReceiverSecret = "secret",
    ReceiverEvents = "events",
}
