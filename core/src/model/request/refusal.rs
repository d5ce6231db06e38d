//! Refusals: the reason, the class, and the way on.

use std::{fmt, time::Duration};

use super::Field;
use crate::{
    action::Action,
    app::{AppId, Environment, FullName, Project},
    check::CheckName,
    configuration::{self, VariableName, listed},
    deploy::{Decision, Revision},
    image::{ImageRef, Tag},
    instance::InstanceName,
    ledger::{RUNS_MAX, Released, releases},
    lock::Locked,
    run::RunNumber,
    source::{Branch, SourceRefused},
};

/// The reason why a request was refused: nothing was recorded and nothing was changed.
///
/// [`Refusal::kind`] says what its caller can do, [`Refusal::hint`] what a person can, and the text what is wrong. A
/// program matches on the kind: reasons come with every capability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The credentials prove nothing. The answer is the same for unknown apps, so that it does not reveal which apps
    /// exist.
    #[error("The credentials are missing or not valid for this resource.")]
    Unauthorized,
    /// The proof of the caller is of other actions.
    #[error("The caller may not {0} here.")]
    NotAllowed(Action),
    /// The app is unknown (only authenticated callers get this answer).
    #[error("There is no app {0}.")]
    AppNotFound(AppId),
    /// The app is unknown in this project and environment; another pair may spell the same namespace.
    #[error("There is no app {0}.")]
    AppNotFoundIn(FullName),
    /// The values of this revision's configuration are no longer stored.
    #[error("The configuration of revision {0} is no longer kept.")]
    ConfigurationForgotten(Revision),
    /// The history has no such entry.
    #[error("There is no revision {0} of this app.")]
    RevisionNotFound(Revision),
    /// The webhook is disabled.
    #[error("The app's webhook is not enabled; enable makes a token.")]
    NoWebhook,
    /// The token before is still let in: a second rotation would end it early.
    #[error(
        "The token was rotated a moment ago, and the one before is still let in; read the new token, or make another at once."
    )]
    RotatedAlready,
    /// An app of this name is registered already.
    #[error("The app {0} is registered already.")]
    AppExists(AppId),
    /// Another project and environment spell the same namespace.
    #[error(
        "The namespace {} is project {project}, environment {environment} already; choose names that spell another one.",
        .id.namespace
    )]
    NamespaceTaken {
        /// The refused app.
        id: AppId,
        /// The project that has it.
        project: Project,
        /// The environment that has it.
        environment: Environment,
    },
    /// The call does not fit the app's kind, or a field that the kind needs is missing.
    #[error("{0}")]
    WrongKind(String),
    /// A commit is to be built, and this process has no builder.
    #[error("This process has no builder, so that nothing would build the commit: call a server that builds.")]
    NoBuilder,
    /// The operator does not let apps be built from this source.
    #[error("{}: {}", Field::SourceUrl, .0.rule())]
    SourceNotAllowed(SourceRefused),
    /// A field is missing or cannot be read, for the reason in this sentence.
    #[error("{0}: {1}")]
    InvalidField(Field, String),
    /// A setting of the target is missing or not valid, by the rollout driver's word; the first is its name.
    #[error("{0}: {1}")]
    InvalidSetting(String, String),
    /// The app's policy does not let webhooks deploy from this repository.
    #[error("{image} is not from a repository that this app's webhook may deploy: {}.", .allowed.join(", "))]
    ImageNotAllowed {
        /// The refused image.
        image: ImageRef,
        /// The allowed repositories.
        allowed: Vec<String>,
    },
    /// A rollback holds this image or commit.
    #[error(
        "{what} is held since rollback {by} went away from it. Deploy another image, release the hold, or deploy \
         it by hand."
    )]
    ImageHeld {
        /// The rollback that set the hold.
        by: Revision,
        /// The held image or commit, in a person's words.
        what: String,
    },
    /// A lock refuses new deploys.
    #[error("{0}")]
    Locked(Box<Locked>),
    /// The key was used for another request.
    #[error("The idempotency key was used for another request; use a new one.")]
    KeyReused,
    /// Too many deploys of the app are unfinished.
    #[error("100 deploys of this app are unfinished; wait until some of them have ended.")]
    TooManyUnfinished,
    /// There is no version to return to.
    #[error("{0}")]
    NothingToRollBackTo(String),
    /// No version runs that could be deployed once more, or another one is on the cluster or on its way to it.
    #[error("{0}")]
    NotRedeployable(String),
    /// The app that is to be started is not stopped.
    #[error("The app is not stopped; to start its instances anew, redeploy what runs.")]
    NotStopped,
    /// The app's target cannot be stopped and started.
    #[error("{0}")]
    CannotBeStopped(String),
    /// The app's variables cannot be set here.
    #[error("{0}")]
    CannotBeConfigured(String),
    /// The configurations of the environment's apps have all the bytes that they may have.
    #[error(
        "The configurations of this environment's apps have {} MiB together, which is the most they may have: unset what no app \
         needs, or delete apps that are not used.",
        configuration::ENVIRONMENT_BYTES_MAX >> 20
    )]
    ConfigurationsFull,
    /// The release command of the version to return to did not succeed, and the caller did not say that it goes without.
    #[error(
        "The release command of revision {target} did not succeed, and a rollback runs none: deploy the image again instead, which \
         runs it."
    )]
    NotReleased {
        /// The version to return to.
        target: Revision,
    },
    /// The rollback goes back past revisions whose release commands may have run, and the caller did not say so.
    #[error(fmt = release_between)]
    ReleaseBetween {
        /// The version to return to.
        target: Revision,
        /// The revisions above it whose release commands may have run, ascending.
        released: Vec<Released>,
    },
    /// The app lacks variables that the one which is promoted from has, and the caller did not say so.
    #[error(fmt = variables_missing)]
    VariablesMissing {
        /// The app that is promoted from.
        from: AppId,
        /// The names of the variables, sorted.
        variables: Vec<VariableName>,
    },
    /// The rollback would bring revoked values of variables back, and the caller did not say so.
    #[error(fmt = configuration_revoked)]
    ConfigurationRevoked {
        /// The version to return to.
        target: Revision,
        /// The names of the variables.
        variables: Vec<VariableName>,
    },
    /// Another revision is current than the caller believed.
    #[error(fmt = current_changed)]
    CurrentChanged {
        /// The revision that the caller believed to be current.
        expected: Revision,
        /// The current revision.
        current: Option<Revision>,
    },
    /// A deploy rolls out, and the app is to get other workloads.
    #[error(
        "Revision {0} rolls out. The list of workloads stays as it is until its end: one that is taken off would be left out of \
         its restore. Wait for it, or cancel it."
    )]
    DeployUnfinished(Revision),
    /// The deploy has ended; nothing is left to cancel.
    #[error("Revision {0} has ended already.")]
    AlreadyEnded(Revision),
    /// No decision of a person on the deploy is waited for.
    #[error(fmt = not_awaited)]
    NotAwaited {
        /// The deploy.
        revision: Revision,
        /// Whether its checks are measured now.
        is_verified: bool,
    },
    /// A person has decided on the deploy.
    #[error("Revision {0} was {1} already.")]
    DecidedAlready(Revision, Box<Decision>),
    /// The target exists, and the request says how a new one is made.
    #[error(
        "The workload exists already and runs {image}; it would be registered as it is, without {}.", .unused.join(", ")
    )]
    WorkloadExists {
        /// The image that runs.
        image: ImageRef,
        /// The names of the settings that say how a new one is made.
        unused: Vec<String>,
    },
    /// The target cannot be used as it is.
    #[error("{0}")]
    Workload(String),
    /// The target carries the deploy id of another registration.
    #[error("{0}")]
    WorkloadTaken(String),
    /// Others kept changing the app; the caller may try again.
    #[error("Others kept changing this app at the same time; try again.")]
    Busy,
    /// The store is unavailable.
    #[error("The store is not available; {}", if *.maybe_recorded { MAYBE_RECORDED } else { "nothing was recorded. Try again." })]
    StoreUnavailable {
        /// Whether the write may have happened.
        maybe_recorded: bool,
    },
    /// The store refuses the operation or cannot do it at present; the text tells the operator what to do.
    #[error("{0}")]
    StoreRefused(String),
    /// The cluster is unavailable and the answer needs it.
    #[error("The cluster cannot be reached, and the answer needs a look at it.")]
    ClusterUnavailable,
    /// The cluster does not grant a permission that the answer needs, for now or for long (registration only).
    #[error(
        "The cluster denies what registering an app needs: {0}. Grant it, or try again if the cluster has just started."
    )]
    ClusterDenied(String),
    /// The builder is unavailable and the answer needs it (logs only).
    #[error("The builder cannot be reached; try again.")]
    BuilderUnavailable,
    /// The source does not name its branch's head now, and the answer needs it.
    #[error(
        "The head of branch {branch} cannot be read now: {why}. Nothing was recorded; try again, or name the commit."
    )]
    SourceUnavailable {
        /// The branch.
        branch: Branch,
        /// The failure, in the branch reader's words.
        why: String,
    },
    /// The build has no known log.
    #[error("There is no build log of revision {0}: it was not built by this server, or its log is gone by now.")]
    NoBuildLog(Revision),
    /// The release command has no known log.
    #[error("There is no log of a release command of revision {0}: it ran none, or the log is gone by now.")]
    NoReleaseLog(Revision),
    /// A command that was begun by hand has not ended.
    #[error(
        "Run {0} of this app has not ended, and one command runs by hand at a time: wait for its end, or cancel it."
    )]
    RunUnfinished(RunNumber),
    /// The app has no such run by hand, or it is forgotten.
    #[error("There is no run {0} of this app; of those that ended, the last {max} are kept.", max = RUNS_MAX)]
    RunNotFound(RunNumber),
    /// The run by hand has ended; nothing is left to cancel.
    #[error("Run {0} has ended already.")]
    RunEnded(RunNumber),
    /// No version runs whose image a command could be run with, or which a check could be tried out on.
    #[error("No deploy of {0} has succeeded yet, so that no version of it runs. Deploy one first.")]
    NothingRuns(AppId),
    /// The platform runs no commands.
    #[error("The platform that the app runs on runs no commands.")]
    NoCommands,
    /// The run by hand has no known log.
    #[error("There is no log of run {0}: its command never began, or the log is gone by now.")]
    NoRunLog(RunNumber),
    /// The app has no check of this name.
    #[error("The app has no check {0}; list its checks.")]
    CheckNotFound(CheckName),
    /// The app has no instance of this name.
    #[error("The app has no instance {0}: it is gone by now, or never was; list the instances.")]
    NoSuchInstance(InstanceName),
    /// The app has no workload of this name.
    #[error(fmt = no_such_workload)]
    NoSuchWorkload {
        /// The app.
        app: AppId,
        /// The name that was given.
        given: String,
        /// The names of its workloads.
        known: Vec<String>,
    },
    /// The platform keeps no logs of instances.
    #[error("The platform that the app runs on keeps no logs that rollhook can read.")]
    NoInstanceLogs,
    /// The registry has no such image.
    #[error(fmt = image_not_found)]
    ImageNotFound {
        /// The image that was looked up.
        image: ImageRef,
        /// Whether its repository is missing too.
        repository_missing: bool,
        /// The tags of the repository that are spelt most like the missing one, the nearest first.
        nearest: Vec<Tag>,
    },
    /// The registry on this host does not let this process read.
    #[error(
        "{0} does not let this server read the repository: it has no login for it, or the login may not read it. Some registries answer so of a repository that does not exist, too."
    )]
    RegistryDenied(String),
    /// The registry does not answer, or not with an image.
    #[error("{host} cannot be asked about the image now: {why}. Try again.")]
    RegistryUnavailable {
        /// The host.
        host: String,
        /// The failure, in the words of the reader of registries.
        why: String,
        /// The time for which the registry asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// An image is to be looked up, and this process reads no registries.
    #[error("This process reads no registries, so that it looks up no images.")]
    NoRegistry,
    /// A fault of the service that an operator must look at; the log has the details.
    #[error("The service could not read what it stored; its log says more.")]
    Internal,
}

/// The way on from a refusal. Each host names it in its own words: a command, a flag, a button.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Releasing the app's holds, or deploying by hand.
    ReleaseHold,
    /// Deploying in spite of the lock.
    BreakGlass,
    /// Reading the webhook's token, or replacing it.
    ReadToken,
    /// Giving the process a builder.
    OpenBuilder,
    /// Allowing sources on this machine.
    AllowLocalSources,
    /// Allowing the host of the source.
    AllowSourceHost,
    /// Adopting the workload as it is, or naming another one.
    AdoptWorkload,
    /// Confirming that the rollback returns to a version whose release command did not succeed.
    GoWithoutRelease,
    /// Confirming that the rollback goes past release commands.
    PassReleases,
    /// Confirming that the image is promoted without variables.
    PassVariables,
    /// Confirming that the rollback brings revoked values back.
    BringRevoked,
    /// Following the unfinished run by hand, or ending it.
    EndRun,
}

/// The class of a refusal: what its caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalKind {
    /// The caller has to prove who it is.
    Unauthorized,
    /// The caller is known, and may not do this.
    Forbidden,
    /// What the call is about does not exist.
    NotFound,
    /// The call does not fit what is stored by now: the caller looks, and decides again.
    Conflict,
    /// The request itself is at fault: one with other contents may be accepted.
    Invalid,
    /// A person has locked deploys.
    Locked,
    /// There is too much at once.
    TooMany,
    /// Something that the answer needs is away, or others were faster.
    Unavailable,
    /// The service has a defect; its log says more.
    Internal,
}

impl RefusalKind {
    /// Returns whether the same call may succeed later, though its caller changes nothing. It is repeated with the same
    /// idempotency key, as it may have been recorded.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Locked | Self::TooMany | Self::Unavailable)
    }

    /// Returns the status of an answer over HTTP.
    pub const fn status(self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::Invalid => 422,
            Self::Locked => 423,
            Self::TooMany => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }
}

impl Refusal {
    /// Returns the class.
    pub const fn kind(&self) -> RefusalKind {
        match self {
            Self::Unauthorized => RefusalKind::Unauthorized,
            Self::NotAllowed(_) => RefusalKind::Forbidden,
            Self::AppNotFound(_)
            | Self::AppNotFoundIn(_)
            | Self::RevisionNotFound(_)
            | Self::ConfigurationForgotten(_)
            | Self::NoWebhook
            | Self::NoBuildLog(_)
            | Self::NoReleaseLog(_)
            | Self::RunNotFound(_)
            | Self::NoRunLog(_)
            | Self::CheckNotFound(_)
            | Self::NoSuchInstance(_)
            | Self::NoSuchWorkload { .. }
            | Self::NoInstanceLogs
            | Self::ImageNotFound { .. } => RefusalKind::NotFound,
            Self::RotatedAlready
            | Self::AppExists(_)
            | Self::NamespaceTaken { .. }
            | Self::WrongKind(_)
            | Self::NoBuilder
            | Self::ImageHeld { .. }
            | Self::NothingToRollBackTo(_)
            | Self::NotRedeployable(_)
            | Self::NotStopped
            | Self::CannotBeStopped(_)
            | Self::CannotBeConfigured(_)
            | Self::ConfigurationsFull
            | Self::NotReleased { .. }
            | Self::ReleaseBetween { .. }
            | Self::VariablesMissing { .. }
            | Self::ConfigurationRevoked { .. }
            | Self::CurrentChanged { .. }
            | Self::DeployUnfinished(_)
            | Self::AlreadyEnded(_)
            | Self::NotAwaited { .. }
            | Self::DecidedAlready(..)
            | Self::RunUnfinished(_)
            | Self::RunEnded(_)
            | Self::NothingRuns(_)
            | Self::NoCommands
            | Self::NoRegistry
            | Self::RegistryDenied(_)
            | Self::WorkloadExists { .. }
            | Self::WorkloadTaken(_) => RefusalKind::Conflict,
            Self::SourceNotAllowed(_)
            | Self::InvalidField(..)
            | Self::InvalidSetting(..)
            | Self::ImageNotAllowed { .. }
            | Self::KeyReused
            | Self::Workload(_) => RefusalKind::Invalid,
            Self::Locked(_) => RefusalKind::Locked,
            Self::TooManyUnfinished => RefusalKind::TooMany,
            Self::Busy
            | Self::StoreUnavailable { .. }
            | Self::StoreRefused(_)
            | Self::ClusterUnavailable
            | Self::ClusterDenied(_)
            | Self::BuilderUnavailable
            | Self::SourceUnavailable { .. }
            | Self::RegistryUnavailable { .. } => RefusalKind::Unavailable,
            Self::Internal => RefusalKind::Internal,
        }
    }

    /// Returns whether the same call may succeed later, as [`RefusalKind::is_retryable`].
    pub const fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }

    /// Returns the time after which the same call may be repeated, where what it needs has named one.
    pub const fn retry_after(&self) -> Option<Duration> {
        if let Self::RegistryUnavailable { retry_after, .. } = self { *retry_after } else { None }
    }

    /// Returns the way on, if there is one that a host can name.
    #[allow(clippy::wildcard_enum_match_arm, reason = "most refusals have none, and a new one may")]
    pub const fn hint(&self) -> Option<Hint> {
        match self {
            Self::ImageHeld { .. } => Some(Hint::ReleaseHold),
            Self::Locked(_) => Some(Hint::BreakGlass),
            Self::RotatedAlready => Some(Hint::ReadToken),
            Self::NoBuilder => Some(Hint::OpenBuilder),
            Self::SourceNotAllowed(SourceRefused::Local) => Some(Hint::AllowLocalSources),
            Self::SourceNotAllowed(SourceRefused::Host) => Some(Hint::AllowSourceHost),
            Self::WorkloadExists { .. } => Some(Hint::AdoptWorkload),
            Self::NotReleased { .. } => Some(Hint::GoWithoutRelease),
            Self::ReleaseBetween { .. } => Some(Hint::PassReleases),
            Self::VariablesMissing { .. } => Some(Hint::PassVariables),
            Self::ConfigurationRevoked { .. } => Some(Hint::BringRevoked),
            Self::RunUnfinished(_) => Some(Hint::EndRun),
            _ => None,
        }
    }
}

/// The end of [`Refusal::StoreUnavailable`] if the write may have happened.
const MAYBE_RECORDED: &str = "the call may have been recorded. Repeat it with the same Idempotency-Key.";

fn no_such_workload(app: &AppId, given: &String, known: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{app} has no workload {given:?}")?;
    match known {
        [] => f.write_str(": the platform that it runs on has no names for them."),
        known => write!(f, "; it has: {}.", known.join(", ")),
    }
}

fn image_not_found(
    image: &ImageRef,
    repository_missing: &bool,
    nearest: &[Tag],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    if *repository_missing {
        return write!(
            f,
            "{} has no repository of {image}: check its spelling, and that something was pushed to it.",
            image.registry()
        );
    }
    write!(f, "{} has no {image}", image.registry())?;
    match nearest {
        [] => f.write_str("."),
        nearest => write!(f, "; nearest: {}.", nearest.iter().map(Tag::as_str).collect::<Vec<_>>().join(", ")),
    }
}

fn not_awaited(revision: &Revision, is_verified: &bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "Revision {revision} waits for no decision: ")?;
    match is_verified {
        true => f.write_str("its checks are still measured."),
        false => f.write_str("its checks are not measured yet."),
    }
}

fn release_between(target: &Revision, released: &[Released], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let commands = releases::named(released);
    write!(
        f,
        "The {commands} ran, or may have run, since revision {target}: what they changed, such as the schema of a database, \
         stays as it is, and revision {target} has to work with it."
    )
}

fn variables_missing(from: &AppId, variables: &[VariableName], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let names = listed(variables.iter().map(VariableName::as_str));
    write!(
        f,
        "{from} has variables that this app lacks: {names}. A promotion carries the image alone, which would run without them."
    )
}

fn configuration_revoked(target: &Revision, variables: &[VariableName], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let names = listed(variables.iter().map(VariableName::as_str));
    write!(f, "The configuration of revision {target} has values that were revoked, of {names}: they would come back.")
}

fn current_changed(expected: &Revision, current: &Option<Revision>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match current {
        Some(current) => {
            write!(f, "Revision {current} is current by now, not {expected}; look at the history and decide again.")
        }
        None => write!(f, "No revision is current, not {expected} either; look at the history and decide again."),
    }
}
