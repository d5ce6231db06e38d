//! The console's view of its host: authentication, operations, time and randomness.

use std::time::Duration;

use async_trait::async_trait;
use rollhook_api::{Kind, Local, Operation, Problem};
use rollhook_core::{
    app::AppId,
    ports::TargetDescription,
    request::{IdempotencyKey, Refusal as CoreRefusal},
    time::Timestamp,
};
use rollhook_management::{
    Refusal,
    access::{Action, Principal, SessionSecret},
    ports::{RecordKey, SignInRequest},
};
use zeroize::Zeroizing;

/// The operations of one caller, whose failures are shown in the server's own words.
pub struct CallerOperations(Local);

impl CallerOperations {
    /// Returns the operations of this caller.
    pub fn new(caller: Local) -> Self {
        Self(caller)
    }

    /// Performs an operation.
    ///
    /// # Errors
    /// The operation's refusal.
    pub async fn call<O: Operation>(
        &self,
        _operation: O,
        subject: &O::Subject,
        input: O::Input,
    ) -> Result<O::Answer, Failure> {
        Ok(O::perform(&self.0, subject, input).await?)
    }
}

/// The program that the console is part of.
#[async_trait]
pub trait Host: Send + Sync {
    /// Begins a session for a token that a person has pasted. The history shows `name` if people share the token.
    ///
    /// # Errors
    /// [`Kind::Unauthorized`], or that the store is away.
    async fn begin_session(&self, token: &str, name: Option<&str>) -> Result<SessionSecret, Failure>;

    /// The name of the provider at which people sign in; `None`: by tokens alone.
    fn provider_name(&self) -> Option<&str> {
        None
    }

    /// Begins a sign-in at the provider.
    ///
    /// # Errors
    /// That the provider is away, or that there is none.
    async fn begin_sign_in(&self) -> Result<SignInRequest, Failure> {
        Err(Failure::new(Kind::NotFound, "This server has no provider of sign-ins."))
    }

    /// Begins a session for the person whom the provider's code stands for, by the secrets of the request.
    ///
    /// # Errors
    /// [`Kind::Unauthorized`] if the code proves nothing; that the provider or the store is away.
    async fn finish_sign_in(&self, code: &str, nonce: &str, verifier: &str) -> Result<Welcome, Failure> {
        let _ = (code, nonce, verifier);
        Err(Failure::new(Kind::NotFound, "This server has no provider of sign-ins."))
    }

    /// Returns a code that buys a command line a session like this one; `challenge` is the SHA-256 of its secret.
    ///
    /// # Errors
    /// [`Kind::Unauthorized`] once the session has ended; or that the store is away.
    async fn lend_session(&self, secret: &str, challenge: &RecordKey) -> Result<SessionSecret, Failure>;

    /// Returns the person of a session, and what the store lets it do now.
    ///
    /// # Errors
    /// [`Kind::Unauthorized`] once the session or its token has ended; or that the store is away.
    async fn session(&self, secret: &str) -> Result<Access, Failure>;

    /// Notes that a person uses a session, which ends if it is not used. A failure is logged: the next use makes up for
    /// it.
    async fn keep_session(&self, secret: &str);

    /// Ends a session, or all that stand for the same token and name.
    ///
    /// # Errors
    /// That the store is away.
    async fn end_session(&self, secret: &str, which: Ended) -> Result<(), Failure>;

    /// Returns whether this process knows the session as a valid one, without a read of the store.
    fn recognizes(&self, secret: &str) -> bool;

    /// Returns what a principal may do with an app.
    ///
    /// # Errors
    /// That there is no such app, also if the principal has no role on it; or that the store is away.
    async fn permissions(&self, principal: &Principal, id: &AppId) -> Result<Permissions, Failure>;

    /// Returns the operations of a caller, repeatable under this key.
    fn operations(&self, principal: &Principal, key: Option<IdempotencyKey>) -> CallerOperations;

    /// Begins to watch an app.
    ///
    /// # Errors
    /// That there is no such app, or that the store is away.
    async fn watch(&self, principal: &Principal, id: &AppId) -> Result<Box<dyn Watch>, Failure>;

    /// The sentences that every page of this caller shows; `None` for none.
    fn notice(&self, principal: &Principal) -> Option<String>;

    /// The words and settings of what is deployed to.
    fn targets(&self) -> TargetDescription;

    /// The address at which callers reach the server.
    fn base_url(&self) -> &str;

    /// Returns the wall clock's time.
    fn now(&self) -> Timestamp;

    /// Returns a new secret of at least 128 random bits in letters and digits.
    fn random(&self) -> Zeroizing<String>;
}

/// A watched app.
#[async_trait]
pub trait Watch: Send + Sync {
    /// Returns whether the app has changed since the last call, as soon as it has, or after `limit`.
    ///
    /// # Errors
    /// That the app was deleted, or that the store is away.
    async fn changed(&mut self, limit: Duration) -> Result<bool, Failure>;
}

/// The outcome of a sign-in at the provider.
#[derive(Clone, Debug)]
pub enum Welcome {
    /// The secret of the person's session.
    Session(SessionSecret),
    /// None of the person's groups has a role.
    NoRole {
        /// The person's name, as the provider states it.
        name: String,
    },
}

/// The sessions that a sign-out ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The one of this browser.
    This,
    /// All of this person.
    All,
}

/// A person who is signed in.
#[derive(Clone, Debug)]
pub struct Access {
    /// The proof that the core's calls need.
    pub principal: Principal,
    /// The actions that pages offer to the person.
    pub permissions: Permissions,
}

/// The actions that pages offer. The core decides; a page leaves out what would be refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Deploys, rebuilds, rolls back, cancels and releases holds.
    pub may_deploy: bool,
    /// Enables webhooks, and shows their tokens.
    pub may_read_tokens: bool,
    /// Reads the last calls of webhooks.
    pub may_read_calls: bool,
    /// Registers, changes and deletes apps; disables webhooks.
    pub may_administer: bool,
    /// Reads the audit, and manages the API tokens of some realm. Only known where no app is asked for.
    pub may_see_access: bool,
}

impl Permissions {
    /// Returns the permissions on an app, and what the person may do beside it.
    pub(crate) fn on_app(self, app: Self) -> Self {
        Self { may_see_access: self.may_see_access, ..app }
    }

    /// Returns what a proof or a role lets its holder do.
    pub fn of(may: impl Fn(Action) -> bool) -> Self {
        Self {
            may_deploy: may(Action::Deploy),
            may_read_tokens: may(Action::ReadToken),
            may_read_calls: may(Action::ReadCalls),
            may_administer: may(Action::Change),
            may_see_access: may(Action::ReadAudit),
        }
    }
}

/// The failure of an operation, in the server's words.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: Kind,
    /// The problem as the API would answer it.
    pub problem: Box<Problem>,
}

impl Failure {
    /// Returns a failure of this kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, problem: Box::new(Problem::new(kind, detail)) }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { kind: Kind::of(&refusal), problem: Box::new(Problem::of(&refusal)) }
    }
}

impl From<CoreRefusal> for Failure {
    fn from(refusal: CoreRefusal) -> Self {
        Refusal::from(refusal).into()
    }
}
