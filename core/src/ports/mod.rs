//! The traits that backends implement; each one's documentation is its contract.
//!
//! Every promise in a list is a case of the conformance suite, under the name that stands in front of it.

mod apps;
mod builds;
mod clock;
mod heads;
mod history;
mod rollout;
mod tokens;

pub use apps::{AppPage, Apps};
pub use builds::{BuildFailure, BuildSpec, BuildState, BuildTrigger, Started};
pub use clock::{Clock, Rng};
pub use heads::BranchReader;
pub use history::{
    Admission, Admitted, Claim, Claimed, History, HistoryExt, NewDeploy, Page, Record, Replica, UNFINISHED_MAX, View,
    Wake,
};
pub use rollout::{
    ANSWER_WITHIN, Applied, DeployId, InvalidTarget, Observation, Phase, RolloutDriver, RolloutFailure,
    RolloutFailureKind, RolloutSpec, TargetRequest, Validated,
};
pub use tokens::{Sealing, TokenMatcher, TokenStore, WebhookSecret};
