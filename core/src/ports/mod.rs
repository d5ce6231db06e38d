//! The traits that backends implement; each one's documentation is its contract.
//!
//! Every promise in a list is a case of the conformance suite, under the name that stands in front of it.
//!
//! # How to write a store
//!
//! A store implements [`HistoryStore`] and [`TokenStore`], usually on one type, and
//! [`ConfigurationStore`] if variables can be set. For the management plane it keeps records as well (`RecordStore`, in
//! `rollhook-management`); a platform that judges its callers itself needs none.
//!
//! - **Documents and columns.** States and deploys are kept as JSON, unread: an [`AppState`](crate::ledger::AppState)
//!   as one document with its version, each archived deploy as one. Columns hold what queries need: of a state the uid,
//!   `app.id.namespace`, `app.id.name`, `app.project`, `app.environment`, `queued_at` and `lease` (as text:
//!   `name#boot`); of a deploy its revision, and whether it succeeded; of an idempotency key the app's uid, `header`
//!   (its serialized form) and `key`, beside its [`KeyUse`](crate::ledger::KeyUse).
//! - **Compare-and-swap.** A commit reads the app's version and writes all of its rows in one transaction, or under one
//!   lock, that no other commit of the app gets into. Versions only grow until the app is removed; no two registrations
//!   have one uid.
//! - **Order of checks.** The words in brackets are variants of [`Error`](crate::Error) and
//!   [`Entity`](crate::error::Entity). A registration: uid and exact name (`Conflict(App)`), then the namespace
//!   (`Conflict(Namespace)`). An update or a removal: the uid (`NotFound(App)`), the version (`Conflict(Version)`),
//!   then each key that is not marked to be replaced (`Conflict(IdempotencyKey)`). The first check that fails is the
//!   answer, and nothing is written.
//! - **When unsure.** `Unavailable` says that a commit may have been written; the service looks it up and repeats it. A
//!   store whose answer was lost returns it, and never guesses a success or a conflict. A document that cannot be read
//!   is `Corrupt` ([`Error::corrupt`](crate::Error::corrupt)); leaving it out, or starting empty, would lose history.
//! - **Time.** `now` comes from one clock for all replicas: the database's, or a [`WallClock`] on a single machine,
//!   which should be [`steady`]. Heartbeats of several processes are compared by the wall clock itself.
//! - **Hints.** [`HistoryStore::watch`] may send [`AppChange::Any`] after every commit of the process. Other processes'
//!   commits are found by polling.
//! - **Secrets.** Tokens are sealed before they are stored, for the uid that they belong to (`rollhook_sealing::token`,
//!   in the facade `rollhook::sealing::token`).
//! - **Proof.** `rollhook_conformance::stores!` generates one test per promise, and `rollhook_conformance::model!`
//!   compares random histories with a model; that crate's documentation shows the harness. `examples/own_backend` is a
//!   whole store in a JSON file.

mod addresses;
mod branches;
mod builds;
mod clock;
mod configurations;
mod history;
mod instances;
mod observer;
mod registry;
mod releases;
mod rollout;
mod signatures;
mod tokens;
mod verifier;

pub use addresses::{ADDRESSES_MAX, InstanceAddress, InstanceAddresses, ReadyInstances};
pub use branches::{BranchReader, LOGGED_MIN};
pub use builds::{BuildFailure, BuildSpec, BuildState, BuildTrigger, Started};
pub use clock::{Clock, Rng, WallClock, steady};
pub use configurations::{ConfigurationStore, StoredConfiguration};
pub use history::{
    AppChange, AppCommit, AppPage, AppRef, Binding, Committed, Heartbeat, HistoryStore, HistoryStoreExt, ListedApp,
    Loaded, Page, StoreLimits, UnreadableApp, Version, listed_id,
};
pub use instances::{
    InstanceLogPart, InstanceLogs, LOG_LINES, LOG_LINES_MAX, LogLine, LogPosition, LogQuery, LogReader, LoggedWorkload,
    TargetInstance,
};
pub use observer::{ConfirmedCommit, DeployObserver};
pub use registry::{Registry, Resolved, TagCursor, TagPage, TagQuery};
pub use releases::{CheckRun, ReleaseFailure, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState, RunId, RunKind};
pub use rollout::{
    ANSWER_WITHIN, Applied, AtRest, CheckedSettings, DeployId, Drift, DriverIdentity, Instances, InvalidTarget,
    Observation, PastLives, Phase, Purpose, References, RolloutDriver, RolloutFailure, RolloutFailureKind, RolloutSpec,
    SettingValue, SettingsRequest, StoredImages, TargetDescription, TargetReader, TargetRequest, TargetSetting,
    Validated, WorkloadState,
};
pub use signatures::{FOUND_MAX, ImageVerifier, Verified};
pub use tokens::{PreviousToken, Sealing, TokenMark, TokenMatcher, TokenStore, WebhookSecret};
pub use verifier::{CheckSetting, KindOfCheck, MeasureSpec, Measured, TimesBefore, Verifier};
