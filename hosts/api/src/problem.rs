//! Problems (RFC 9457); a client can act on their `type` alone.

use std::time::Duration;

use rollhook_core::request::{Field, Refusal as CoreRefusal};
use rollhook_management::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Lock, Released, hints};

/// The detail for callers who are not authenticated yet, in place of a store's message to its operator.
pub const STORE_REFUSES: &str = "The store refuses this call for now; the server's log says why.";

/// A problem's body, `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The problem's type: `/problems/<slug>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The title of the problem's type.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The cause of this problem, and what to do.
    pub detail: String,
    /// The id of the call in the server's log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// Further members, such as `held_by`, `current`, `expected`, `deploy` or `restore`.
    #[serde(flatten)]
    pub members: Map<String, Value>,
}

impl Problem {
    /// Returns a problem of this kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let (slug, status, title) = kind.parts();
        Self {
            kind: format!("/problems/{slug}"),
            title: title.to_owned(),
            status,
            detail: detail.into(),
            request_id: String::new(),
            members: Map::new(),
        }
    }

    /// Returns the problem of a refusal.
    pub fn of(refusal: &Refusal) -> Self {
        let hint = if let Refusal::Core(refusal) = refusal { refusal.hint().and_then(hints::sentence) } else { None };
        let detail = hint.map_or_else(|| refusal.to_string(), |hint| format!("{refusal} {hint}"));
        let mut problem = Self::new(Kind::of(refusal), detail);
        problem.members = members(refusal);
        problem
    }

    /// Returns the problem with one more member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Returns the last part of the type.
    pub fn slug(&self) -> &str {
        self.kind.rsplit('/').next().unwrap_or_default()
    }
}

/// Returns the facts that a client may act on without reading the detail.
#[allow(clippy::wildcard_enum_match_arm, reason = "most refusals have none, and a new one may")]
fn members(refusal: &Refusal) -> Map<String, Value> {
    let Refusal::Core(refusal) = refusal else { return Map::new() };
    let members = match refusal {
        CoreRefusal::ImageHeld { by, .. } => json!({ "held_by": by }),
        CoreRefusal::Locked(locked) => json!({ "lock": Lock::of(locked.scope, &locked.lock) }),
        CoreRefusal::CurrentChanged { expected, current } => json!({ "expected": expected, "current": current }),
        CoreRefusal::InvalidField(field, _) => json!({ "field": field.as_str() }),
        CoreRefusal::InvalidSetting(setting, _) => json!({ "field": setting }),
        CoreRefusal::SourceNotAllowed(_) => json!({ "field": Field::SourceUrl.as_str() }),
        CoreRefusal::ImageNotAllowed { image, allowed } => json!({ "image": image, "allowed": allowed }),
        CoreRefusal::WorkloadExists { image, unused } => json!({ "image": image, "unused": unused }),
        CoreRefusal::StoreUnavailable { maybe_recorded } => json!({ "maybe_recorded": maybe_recorded }),
        CoreRefusal::NotReleased { target } => json!({ "target": target }),
        CoreRefusal::ReleaseBetween { target, released } => {
            let released: Vec<_> = released.iter().map(Released::of).collect();
            json!({ "target": target, "released": released })
        }
        CoreRefusal::VariablesMissing { from, variables } => {
            json!({ "from": from.to_string(), "variables": variables })
        }
        CoreRefusal::ConfigurationRevoked { target, variables } => json!({ "target": target, "variables": variables }),
        CoreRefusal::DecidedAlready(revision, decision) => json!({
            "revision": revision, "verdict": decision.ruling.as_str(), "by": decision.by.to_string(),
        }),
        CoreRefusal::NotAwaited { revision, .. }
        | CoreRefusal::AlreadyEnded(revision)
        | CoreRefusal::DeployUnfinished(revision)
        | CoreRefusal::RevisionNotFound(revision)
        | CoreRefusal::ConfigurationForgotten(revision)
        | CoreRefusal::NoBuildLog(revision)
        | CoreRefusal::NoReleaseLog(revision) => {
            json!({ "revision": revision })
        }
        CoreRefusal::RunUnfinished(run)
        | CoreRefusal::RunNotFound(run)
        | CoreRefusal::RunEnded(run)
        | CoreRefusal::NoRunLog(run) => json!({ "run": run }),
        CoreRefusal::ImageNotFound { image, repository_missing, nearest } => {
            json!({ "image": image, "repository_missing": repository_missing, "nearest": nearest })
        }
        CoreRefusal::RegistryDenied(host) | CoreRefusal::RegistryUnavailable { host, .. } => {
            json!({ "registry": host })
        }
        CoreRefusal::CheckNotFound(check) => json!({ "check": check }),
        CoreRefusal::NamespaceTaken { project, environment, .. } => {
            json!({ "project": project, "environment": environment })
        }
        _ => Value::Null,
    };
    members.as_object().cloned().unwrap_or_default()
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $slug:literal, $status:literal, $title:literal;)*) => {
        /// The kinds of problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            /// The kinds, in the order of their status.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns slug, HTTP status and title.
            pub const fn parts(self) -> (&'static str, u16, &'static str) {
                match self {
                    $(Self::$name => ($slug, $status, $title),)*
                }
            }
        }
    };
}

kinds! {
    /// The request or its body cannot be read.
    Malformed = "malformed", 400, "The request cannot be read";
    /// The credentials prove nothing.
    Unauthorized = "unauthorized", 401, "Not authorized";
    /// The caller's roles do not allow it.
    Forbidden = "forbidden", 403, "Not allowed";
    /// Nothing is at this path.
    NotFound = "not-found", 404, "Not found";
    /// No such app.
    AppNotFound = "app-not-found", 404, "No such app";
    /// No such entry.
    RevisionNotFound = "revision-not-found", 404, "No such revision";
    /// The values of the revision's configuration are no longer stored.
    ConfigurationForgotten = "configuration-forgotten", 404, "The configuration is no longer kept";
    /// There is no log of a build.
    NoBuildLog = "no-build-log", 404, "No build log";
    /// There is no log of a release command.
    NoReleaseLog = "no-release-log", 404, "No log of a release command";
    /// No such run by hand.
    RunNotFound = "run-not-found", 404, "No such run";
    /// There is no log of a run by hand.
    NoRunLog = "no-run-log", 404, "No log of the run";
    /// No such check.
    CheckNotFound = "check-not-found", 404, "No such check";
    /// No such instance.
    NoSuchInstance = "no-such-instance", 404, "No such instance";
    /// No such workload of the app.
    NoSuchWorkload = "no-such-workload", 404, "No such workload";
    /// The platform keeps no logs of instances.
    NoInstanceLogs = "no-instance-logs", 404, "No logs of instances";
    /// The registry has no such image.
    ImageNotFound = "image-not-found", 404, "No such image";
    /// No such API token.
    TokenNotFound = "token-not-found", 404, "No such API token";
    /// No such session.
    SessionNotFound = "session-not-found", 404, "No such session";
    /// No such trust.
    TrustNotFound = "trust-not-found", 404, "No such trust";
    /// No such receiver.
    ReceiverNotFound = "receiver-not-found", 404, "No such receiver";
    /// The webhook is not enabled.
    NoWebhook = "no-webhook", 404, "The webhook is not enabled";
    /// The path does not take this method.
    MethodNotAllowed = "method-not-allowed", 405, "Method not allowed";
    /// The body did not come in time.
    SlowBody = "slow-body", 408, "The body came too slowly";
    /// The name is taken.
    AppExists = "app-exists", 409, "The app is registered already";
    /// An API token has the name.
    TokenExists = "token-exists", 409, "The API token exists already";
    /// A receiver has the name, or there are as many as there may be.
    ReceiverExists = "receiver-exists", 409, "The receiver exists already";
    /// There are as many apps of the environment or the project as there may be.
    TooManyApps = "too-many-apps", 409, "Too many apps";
    /// The app trusts as many pipelines as it may.
    TooManyTrusts = "too-many-trusts", 409, "Too many trusts";
    /// There are as many locks of environments as there may be.
    TooManyLocks = "too-many-locks", 409, "Too many locks";
    /// There are as many requirements on projects and environments as there may be.
    TooManyRequirements = "too-many-requirements", 409, "Too many requirements";
    /// The namespace is another pair's.
    NamespaceTaken = "namespace-taken", 409, "The namespace is taken";
    /// The call does not fit the app's kind.
    WrongKind = "wrong-kind", 409, "The call does not fit the app's kind";
    /// A rollback holds it.
    ImageHeld = "image-held", 409, "The image is held";
    /// There is no version to return to, or to promote.
    NothingToRollBackTo = "nothing-to-roll-back-to", 409, "Nothing to roll back to";
    /// No version runs that could be deployed once more, or another one is on the cluster or on its way to it.
    NotRedeployable = "not-redeployable", 409, "What runs cannot be redeployed, stopped or started now";
    /// The app that is to be started is not stopped.
    NotStopped = "not-stopped", 409, "The app is not stopped";
    /// The workload, or its platform, can be neither stopped nor started.
    CannotBeStopped = "cannot-be-stopped", 409, "The app cannot be stopped";
    /// The environment of the workload cannot be set, or no configuration can be stored.
    CannotBeConfigured = "cannot-be-configured", 409, "The app cannot be configured";
    /// The configurations of the environment's apps have all the bytes that they may have.
    ConfigurationsFull = "configurations-full", 409, "The configurations of the environment are too large together";
    /// The release command of the version to return to did not succeed.
    NotReleased = "not-released", 409, "The release command of that revision did not succeed";
    /// The rollback goes back past release commands.
    ReleaseBetween = "release-between", 409, "Release commands ran since that revision";
    /// The app lacks variables that the one which is promoted from has.
    VariablesMissing = "variables-missing", 409, "The app lacks variables that the promoted one has";
    /// The rollback would bring revoked values of variables back.
    ConfigurationRevoked = "configuration-revoked", 409, "Revoked values would come back";
    /// The token before is still let in.
    RotatedAlready = "rotated-already", 409, "The token was rotated already";
    /// Another revision is current than the caller believed.
    CurrentChanged = "current-changed", 409, "Another revision is current";
    /// The app is to get other workloads, and a deploy rolls out.
    DeployUnfinished = "deploy-unfinished", 409, "A deploy rolls out";
    /// The deploy has ended.
    AlreadyEnded = "already-ended", 409, "The deploy has ended already";
    /// The deploy waits for no decision of a person.
    NotAwaited = "decision-not-awaited", 409, "No decision is waited for";
    /// Another decision was made.
    DecidedAlready = "decided-already", 409, "The deploy was decided on already";
    /// Another command by hand has not ended.
    RunUnfinished = "run-unfinished", 409, "A command by hand has not ended";
    /// The run by hand has ended.
    RunEnded = "run-ended", 409, "The run has ended already";
    /// No version runs whose image a command could be run with.
    NothingRuns = "nothing-runs", 409, "No version runs";
    /// The platform runs no commands.
    NoCommands = "no-commands", 409, "The platform runs no commands";
    /// The registry does not let the server read the image.
    RegistryDenied = "registry-denied", 409, "The registry does not let the server read";
    /// The server reads no registries.
    NoRegistry = "no-registry", 409, "No registries are read";
    /// The workload exists, and the request says how a new one is made.
    WorkloadExists = "workload-exists", 409, "The workload exists already";
    /// The workload is another registration's.
    WorkloadTaken = "workload-taken", 409, "The workload belongs to another registration";
    /// The body is too large.
    BodyTooLarge = "body-too-large", 413, "The body is too large";
    /// The body is not JSON by its type.
    UnsupportedMediaType = "unsupported-media-type", 415, "The body must be application/json";
    /// The body is encoded for its way in another form than `chunked`.
    UnsupportedTransferCoding =
        "unsupported-transfer-coding", 501, "The body's transfer coding is not understood";
    /// The image is missing or cannot be read.
    InvalidImage = "invalid-image", 422, "The image is not valid";
    /// The image is of a repository that the webhook may not deploy from.
    ImageNotAllowed = "image-not-allowed", 422, "The image is not allowed";
    /// The commit is missing or cannot be read.
    InvalidCommit = "invalid-commit", 422, "The commit is not valid";
    /// Another field is missing or cannot be read.
    InvalidField = "invalid-field", 422, "A field is not valid";
    /// The idempotency key cannot be read.
    InvalidKey = "invalid-idempotency-key", 422, "The idempotency key is not valid";
    /// The idempotency key belongs to another request.
    KeyReused = "idempotency-key-reused", 422, "The idempotency key was used for another request";
    /// The workload cannot be used as it is.
    InvalidWorkload = "invalid-workload", 422, "The workload cannot be used";
    /// A lock refuses new deploys.
    Locked = "locked", 423, "Deploys are locked";
    /// The deploy that was waited for ended otherwise than well.
    DeployFailed = "deploy-failed", 424, "The deploy failed";
    /// The deploy that was waited for was rolled back.
    DeployRolledBack = "deploy-rolled-back", 424, "The deploy was rolled back";
    /// Too many calls.
    RateLimited = "rate-limited", 429, "Too many calls";
    /// Too many unfinished deploys.
    TooManyUnfinished = "too-many-unfinished", 429, "Too many unfinished deploys";
    /// The headers are too large.
    HeadersTooLarge = "headers-too-large", 431, "The headers are too large";
    /// The server has a defect.
    Internal = "internal", 500, "Something is broken on this side";
    /// Others kept changing the app.
    Busy = "busy", 503, "The app is being changed by others";
    /// The store is away.
    StoreUnavailable = "store-unavailable", 503, "The store is not available";
    /// The store does not let the service do it.
    StoreRefused = "store-refused", 503, "The store refuses";
    /// The cluster is away.
    ClusterUnavailable = "cluster-unavailable", 503, "The cluster is not available";
    /// The builder is away.
    BuilderUnavailable = "builder-unavailable", 503, "The builder is not available";
    /// The source of a git app is away.
    SourceUnavailable = "source-unavailable", 503, "The source cannot be read";
    /// The registry is away, or answers with something else.
    RegistryUnavailable = "registry-unavailable", 503, "The registry is not available";
    /// The issuer of an id_token is away.
    IssuerUnavailable = "issuer-unavailable", 503, "The issuer of the id_token is not available";
    /// The cluster that knows the caller is away.
    ReviewUnavailable = "review-unavailable", 503, "The caller's rights cannot be asked for";
    /// The provider of sign-ins is away.
    ProviderUnavailable = "provider-unavailable", 503, "The provider of sign-ins is not available";
    /// The server stops.
    ShuttingDown = "shutting-down", 503, "The server is stopping";
}

impl Kind {
    /// Returns the kind of a refusal.
    pub fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Core(refusal) => Self::of_core(refusal),
            Refusal::Forbidden(..) | Refusal::ForbiddenVariable(..) | Refusal::NotGranted(_) | Refusal::NoSession => {
                Self::Forbidden
            }
            Refusal::ReviewUnavailable => Self::ReviewUnavailable,
            Refusal::TokenExists(_) | Refusal::TooManyTokens(..) => Self::TokenExists,
            Refusal::TokenNotFound(_) => Self::TokenNotFound,
            Refusal::SessionNotFound(_) => Self::SessionNotFound,
            Refusal::ReceiverExists(_) | Refusal::TooManyReceivers(..) => Self::ReceiverExists,
            Refusal::ReceiverNotFound(_) => Self::ReceiverNotFound,
            Refusal::TooManyApps(..) => Self::TooManyApps,
            Refusal::TooManyTrusts => Self::TooManyTrusts,
            Refusal::TooManyTests(_)
            | Refusal::TooManyLooks(_)
            | Refusal::TooManyLockChanges(_)
            | Refusal::TooManyRequirementChanges(_)
            | Refusal::TooManyReports
            | Refusal::TooManyConfigurationChanges(_)
            | Refusal::TooManyRegistrations(..)
            | Refusal::TooManyIdTokens(..) => Self::RateLimited,
            Refusal::TooManyLocks(..) => Self::TooManyLocks,
            Refusal::TooManyRequirements(..) => Self::TooManyRequirements,
            Refusal::TrustNotFound(_) => Self::TrustNotFound,
            Refusal::IssuerUnavailable => Self::IssuerUnavailable,
        }
    }

    fn of_core(refusal: &CoreRefusal) -> Self {
        match refusal {
            CoreRefusal::Unauthorized => Self::Unauthorized,
            CoreRefusal::NotAllowed(_) => Self::Forbidden,
            CoreRefusal::AppNotFound(_) | CoreRefusal::AppNotFoundIn(_) => Self::AppNotFound,
            CoreRefusal::RevisionNotFound(_) => Self::RevisionNotFound,
            CoreRefusal::ConfigurationForgotten(_) => Self::ConfigurationForgotten,
            CoreRefusal::NoWebhook => Self::NoWebhook,
            CoreRefusal::RotatedAlready => Self::RotatedAlready,
            CoreRefusal::AppExists(_) => Self::AppExists,
            CoreRefusal::NamespaceTaken { .. } => Self::NamespaceTaken,
            CoreRefusal::WrongKind(_) | CoreRefusal::NoBuilder => Self::WrongKind,
            CoreRefusal::InvalidField(Field::Image, _) => Self::InvalidImage,
            CoreRefusal::InvalidField(Field::Commit, _) => Self::InvalidCommit,
            CoreRefusal::InvalidField(..) | CoreRefusal::InvalidSetting(..) | CoreRefusal::SourceNotAllowed(_) => {
                Self::InvalidField
            }
            CoreRefusal::ImageNotAllowed { .. } => Self::ImageNotAllowed,
            CoreRefusal::ImageHeld { .. } => Self::ImageHeld,
            CoreRefusal::Locked(_) => Self::Locked,
            CoreRefusal::KeyReused => Self::KeyReused,
            CoreRefusal::TooManyUnfinished => Self::TooManyUnfinished,
            CoreRefusal::NothingToRollBackTo(_) => Self::NothingToRollBackTo,
            CoreRefusal::NotRedeployable(_) => Self::NotRedeployable,
            CoreRefusal::NotStopped => Self::NotStopped,
            CoreRefusal::CannotBeStopped(_) => Self::CannotBeStopped,
            CoreRefusal::CannotBeConfigured(_) => Self::CannotBeConfigured,
            CoreRefusal::ConfigurationsFull => Self::ConfigurationsFull,
            CoreRefusal::NotReleased { .. } => Self::NotReleased,
            CoreRefusal::ReleaseBetween { .. } => Self::ReleaseBetween,
            CoreRefusal::VariablesMissing { .. } => Self::VariablesMissing,
            CoreRefusal::ConfigurationRevoked { .. } => Self::ConfigurationRevoked,
            CoreRefusal::NoReleaseLog(_) => Self::NoReleaseLog,
            CoreRefusal::RunUnfinished(_) => Self::RunUnfinished,
            CoreRefusal::RunNotFound(_) => Self::RunNotFound,
            CoreRefusal::RunEnded(_) => Self::RunEnded,
            CoreRefusal::NothingRuns(_) => Self::NothingRuns,
            CoreRefusal::NoCommands => Self::NoCommands,
            CoreRefusal::ImageNotFound { .. } => Self::ImageNotFound,
            CoreRefusal::RegistryDenied(_) => Self::RegistryDenied,
            CoreRefusal::RegistryUnavailable { .. } => Self::RegistryUnavailable,
            CoreRefusal::NoRegistry => Self::NoRegistry,
            CoreRefusal::NoRunLog(_) => Self::NoRunLog,
            CoreRefusal::CheckNotFound(_) => Self::CheckNotFound,
            CoreRefusal::NoSuchInstance(_) => Self::NoSuchInstance,
            CoreRefusal::NoSuchWorkload { .. } => Self::NoSuchWorkload,
            CoreRefusal::NoInstanceLogs => Self::NoInstanceLogs,
            CoreRefusal::CurrentChanged { .. } => Self::CurrentChanged,
            CoreRefusal::DeployUnfinished(_) => Self::DeployUnfinished,
            CoreRefusal::AlreadyEnded(_) => Self::AlreadyEnded,
            CoreRefusal::NotAwaited { .. } => Self::NotAwaited,
            CoreRefusal::DecidedAlready(..) => Self::DecidedAlready,
            CoreRefusal::Workload(_) => Self::InvalidWorkload,
            CoreRefusal::WorkloadTaken(_) => Self::WorkloadTaken,
            CoreRefusal::WorkloadExists { .. } => Self::WorkloadExists,
            CoreRefusal::Busy => Self::Busy,
            CoreRefusal::StoreUnavailable { .. } => Self::StoreUnavailable,
            CoreRefusal::StoreRefused(_) => Self::StoreRefused,
            CoreRefusal::ClusterUnavailable | CoreRefusal::ClusterDenied(_) => Self::ClusterUnavailable,
            CoreRefusal::BuilderUnavailable => Self::BuilderUnavailable,
            CoreRefusal::SourceUnavailable { .. } => Self::SourceUnavailable,
            CoreRefusal::NoBuildLog(_) => Self::NoBuildLog,
            CoreRefusal::Internal => Self::Internal,
        }
    }

    /// Returns the kind of this slug, or `None` if only a newer server knows it.
    pub fn of_slug(slug: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.parts().0 == slug)
    }

    /// Returns the time after which to try again, or `None` if time alone does not help.
    pub fn retry_after(self) -> Option<Duration> {
        let seconds = match self.parts() {
            ("too-many-unfinished", ..) => 10,
            // Where the lock has no end of its own.
            (_, 423, _) => 300,
            (_, 429, _) => 1,
            (_, 503, _) => 2,
            _ => return None,
        };
        Some(Duration::from_secs(seconds))
    }
}
