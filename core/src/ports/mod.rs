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
pub use builds::{BuildFailure, BuildOrder, BuildState, Builds, Started};
pub use clock::{Clock, Entropy};
pub use heads::Heads;
pub use history::{
    Admission, Admitted, Claim, Claimed, Draft, History, HistoryExt, Page, Record, Replica, UNFINISHED_MAX, View, Wake,
};
pub use rollout::{Applied, Found, FoundContainer, Observation, Order, Phase, Rollouts, Stamp, Trouble, TroubleKind};
pub use tokens::{Fits, Sealing, Tokens, WebhookSecret};
