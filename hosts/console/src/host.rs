//! The console's view of its host: authentication, operations, time and randomness.

use std::time::Duration;

use async_trait::async_trait;
use rollhook_api::{Kind, Operations, Problem};
use rollhook_core::{
    app::AppId,
    request::{IdempotencyKey, Refusal},
    service::Operator,
    time::Timestamp,
};
use zeroize::Zeroizing;

/// The operations of one caller, whose failures are shown in the server's own words.
pub type CallerOperations = Box<dyn Operations<Error = Failure>>;

/// The program that the console is part of.
#[async_trait]
pub trait Host: Send + Sync {
    /// Checks a token that a person has pasted, and returns the principal that it proves; the history shows `name`.
    ///
    /// # Errors
    /// [`Kind::Unauthorized`], or that the store is away.
    async fn authenticate(&self, token: &str, name: &str) -> Result<Principal, Failure>;

    /// Returns what a principal may do by what the store says now: to this app, or, without an app, to any.
    ///
    /// # Errors
    /// [`Kind::Unauthorized`] once the principal's token is gone; or that the store is away.
    async fn confirm(&self, principal: &Principal, app: Option<&AppId>) -> Result<Access, Failure>;

    /// Returns whether this process knows the principal's token as a valid one, without a read of the store.
    fn recognizes(&self, principal: &Principal) -> bool;

    /// Returns the operations of a caller, repeatable under this key.
    fn operations(&self, access: &Access, key: Option<IdempotencyKey>) -> CallerOperations;

    /// Begins to watch an app.
    ///
    /// # Errors
    /// That there is no such app, or that the store is away.
    async fn watch(&self, access: &Access, id: &AppId) -> Result<Box<dyn Watch>, Failure>;

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

/// The person of a session, and the token that proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The SHA-256 of the token.
    pub token: [u8; 32],
    /// The name that the history shows.
    pub name: String,
}

/// The rights of a caller.
#[derive(Clone, Debug)]
pub struct Access {
    /// The proof that the core's calls need.
    pub operator: Operator,
    /// The actions that pages offer.
    pub permissions: Permissions,
}

/// The actions that pages offer. The core decides; a page leaves out what would be refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Deploys, rebuilds, rolls back, cancels and releases holds.
    pub may_deploy: bool,
    /// Enables, shows and disables webhooks.
    pub may_manage_webhooks: bool,
    /// Registers, changes and deletes apps.
    pub may_administer: bool,
}

impl Permissions {
    /// The permissions of an administrator.
    pub const ALL: Self = Self { may_deploy: true, may_manage_webhooks: true, may_administer: true };
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
