//! The refusals of the management plane.

use rollhook_core::{
    configuration::VariableName,
    request::{Refusal as CoreRefusal, RefusalKind},
};

use crate::{
    access::{Action, Realm, Role, SessionId, TokenName},
    keyless::{CLAIMS_BYTES_MAX, TRUSTS_MAX, TrustId},
    notifications::ReceiverName,
};

/// The result of a call to the management plane.
pub type Outcome<T> = Result<T, Refusal>;

/// The reason why a request was refused: nothing was recorded and nothing was changed.
///
/// [`Refusal::kind`] says what its caller can do, and the text what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The deployer's refusal.
    #[error(transparent)]
    Core(#[from] CoreRefusal),
    /// The caller is known, and its role, if it has one there, does not allow the action.
    #[error("You may not {0} here: that takes the role {needed}{yours}.", needed = .0.least_role(), yours = yours(*.1))]
    Forbidden(Action, Option<Role>),
    /// The caller's role, if it has one there, does not let it set or remove this variable.
    #[error(
        "You may not set or unset {0} here: a proxy leads requests to the app by it, and that takes the role {needed}{yours}.",
        needed = Action::Change.least_role(), yours = yours(*.1)
    )]
    ForbiddenVariable(VariableName, Option<Role>),
    /// The caller is known to the cluster, which does not let it do the action.
    #[error("You may not {0} here: in the cluster, that takes {permission} of rollhook's API group.", permission = .0.permission())]
    NotGranted(Action),
    /// The cluster that knows the caller does not answer, so that nothing can be said of its rights now.
    #[error("The cluster cannot be asked for the caller and its rights now; nothing was done. Try again.")]
    ReviewUnavailable,
    /// The token of a cluster is presented where a session is to begin.
    #[error("A cluster's token begins no session: sign in with an API token, or at your organisation.")]
    NoSession,
    /// A valid API token has this name.
    #[error("An API token is named {0} already; choose another name.")]
    TokenExists(TokenName),
    /// A realm has as many API tokens as it may.
    #[error("There are {0} API tokens of {1}; revoke some first.")]
    TooManyTokens(usize, Realm),
    /// A realm has as many apps as it may.
    #[error("There are {0} apps of {1}, or about to be; delete some first.")]
    TooManyApps(usize, Realm),
    /// As many registrations of a realm wait for their turn as may.
    #[error("{0} registrations of {1} wait for their turn already; try again in some seconds.")]
    TooManyRegistrations(usize, Realm),
    /// No valid API token of the caller's realms has this name.
    #[error("There is no API token {0}.")]
    TokenNotFound(TokenName),
    /// No session of this id is the caller's own or, for an admin of everything, anybody's.
    #[error("There is no session {0}.")]
    SessionNotFound(SessionId),
    /// The app trusts as many pipelines as it may.
    #[error(
        "An app trusts at most {TRUSTS_MAX} pipelines, with {CLAIMS_BYTES_MAX} bytes of claims in all; remove one first."
    )]
    TooManyTrusts,
    /// The pipelines of an app, an environment or a project have used as many id_tokens as they may for now.
    #[error(
        "The pipelines of this {1} may use {0} id_tokens in a day, half of them at once, and have used what they may by now; try \
         again in a minute, or call with the webhook's token."
    )]
    TooManyIdTokens(u32, &'static str),
    /// The app has no such trust.
    #[error("The app has no trust {0}.")]
    TrustNotFound(TrustId),
    /// A receiver has this name.
    #[error("There is a receiver {0} already; remove it, or choose another name.")]
    ReceiverExists(ReceiverName),
    /// A realm has as many receivers as it may.
    #[error("There are {0} receivers of {1}; remove one first.")]
    TooManyReceivers(usize, Realm),
    /// The receivers or the checks of a realm are tested too often.
    #[error("Tests of {0} are asked for too often; try again in some seconds.")]
    TooManyTests(Realm),
    /// Images are looked up too often in an environment.
    #[error("Images of {0} are looked up too often; try again in some seconds.")]
    TooManyLooks(Realm),
    /// Reports over the histories of all apps are asked for too often.
    #[error("Reports are asked for too often; try again in some seconds.")]
    TooManyReports,
    /// An environment is locked and unlocked too often.
    #[error("{0} is locked and unlocked too often; try again in some seconds.")]
    TooManyLockChanges(Realm),
    /// The requirement on a project or an environment is changed too often.
    #[error("The requirement on {0} is changed too often; try again in some seconds.")]
    TooManyRequirementChanges(Realm),
    /// The configurations of an environment's apps are changed too often.
    #[error("The configurations of {0} are changed too often; try again in some seconds.")]
    TooManyConfigurationChanges(Realm),
    /// A realm has as many locks of environments as it may, beside those of environments with apps.
    #[error(
        "There are {0} locks of environments of {1}, and this environment has no app: end some first. An ended one counts for \
         an hour, or 30 days where there are apps."
    )]
    TooManyLocks(usize, Realm),
    /// A realm has as many requirements as it may, beside those of realms with apps.
    #[error(
        "There are {0} requirements on {1}, and this one would be where no app is: end some first. An ended one counts for an hour, \
         or 30 days where there are apps."
    )]
    TooManyRequirements(usize, Realm),
    /// No receiver of the caller's realms has this name.
    #[error("There is no receiver {0}.")]
    ReceiverNotFound(ReceiverName),
    /// The issuer of the caller's id_token does not answer, so that the token cannot be verified now.
    #[error("The issuer of the id_token cannot be reached; nothing was recorded. Try again.")]
    IssuerUnavailable,
}

impl Refusal {
    /// The credentials prove nothing.
    pub const UNAUTHORIZED: Self = Self::Core(CoreRefusal::Unauthorized);

    /// Others kept changing a record.
    pub const BUSY: Self = Self::Core(CoreRefusal::Busy);

    /// Something that was stored could not be read.
    pub const INTERNAL: Self = Self::Core(CoreRefusal::Internal);

    /// Returns the class.
    pub const fn kind(&self) -> RefusalKind {
        match self {
            Self::Core(refusal) => refusal.kind(),
            Self::Forbidden(..) | Self::ForbiddenVariable(..) | Self::NotGranted(_) | Self::NoSession => {
                RefusalKind::Forbidden
            }
            Self::TokenNotFound(_) | Self::SessionNotFound(_) | Self::TrustNotFound(_) | Self::ReceiverNotFound(_) => {
                RefusalKind::NotFound
            }
            Self::TokenExists(_)
            | Self::TooManyTokens(..)
            | Self::TooManyApps(..)
            | Self::TooManyTrusts
            | Self::ReceiverExists(_)
            | Self::TooManyReceivers(..)
            | Self::TooManyLocks(..)
            | Self::TooManyRequirements(..) => RefusalKind::Conflict,
            Self::TooManyTests(_)
            | Self::TooManyLooks(_)
            | Self::TooManyLockChanges(_)
            | Self::TooManyRequirementChanges(_)
            | Self::TooManyReports
            | Self::TooManyConfigurationChanges(_)
            | Self::TooManyRegistrations(..)
            | Self::TooManyIdTokens(..) => RefusalKind::TooMany,
            Self::ReviewUnavailable | Self::IssuerUnavailable => RefusalKind::Unavailable,
        }
    }

    /// Returns whether the same call may succeed later, as [`RefusalKind::is_retryable`].
    pub const fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }
}

fn yours(role: Option<Role>) -> String {
    role.map_or_else(|| ", and you have none there".to_owned(), |role| format!(", and yours is {role}"))
}
