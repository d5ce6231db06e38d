//! The traits that backends implement; each one's documentation is its contract.
//!
//! Every promise in a list is a case of the conformance suite, under the name that stands in front of it.

mod branches;
mod builds;
mod clock;
mod history;
mod rollout;
mod tokens;

pub use branches::BranchReader;
pub use builds::{BuildFailure, BuildSpec, BuildState, BuildTrigger, Started};
pub use clock::{Clock, Rng, WallClock};
pub use history::{
    AppChange, AppCommit, AppPage, AppRef, Committed, Heartbeat, HistoryStore, HistoryStoreExt, Loaded, Page,
    StoreLimits, Version,
};
pub use rollout::{
    ANSWER_WITHIN, Applied, DeployId, InvalidTarget, Observation, Phase, RolloutDriver, RolloutFailure,
    RolloutFailureKind, RolloutSpec, TargetRequest, Validated,
};
pub use tokens::{Sealing, TokenMatcher, TokenStore, WebhookSecret};
