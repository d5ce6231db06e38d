//! The ledger: an app's state, and every rule by which it changes. Pure: time is an argument, and nothing is read or
//! written here.
//!
//! ```text
//!   AppState ── Change::on ──▶ admit · record · recover · built · configure · lock · lease · forget ──▶ Change: the new state, and what to write
//!                                                                                │ one commit, valid for one version
//!                                                                                ▼
//!                                                                     ports::HistoryStore
//! ```
//!
//! A state holds the unfinished deploys in full; a deploy that ends leaves it for the archive. [`admission`] decides
//! what a caller's request is accepted as, [`push`] what a git host's call asks for, [`releases`] which deploys run a
//! release command, [`release_turns`] which of several apps runs its own first, [`rollback`] which version a rollback means, [`redeploy`] whether what runs is deployed once more,
//! [`configuration`] which configuration a deploy runs with, [`stop`] whether it is stopped or started, `runs` when a command by hand may begin, `sequence` which deploy of a webhook came too late, [`decision`] whether a person may decide in the place of checks, [`restore`] whether a failed rollout is
//! put right and by which entry, `watch` which versions are watched after their deploys, [`retention`] which archived deploys may go,
//! [`transitions`] what a status may become, [`history`] joins state and archive, and [`check`] shows whether a history
//! keeps the rules. Nothing else in the workspace knows these rules.

pub mod admission;
pub mod check;
pub mod configuration;
pub mod decision;
pub mod following;
pub mod history;
pub mod push;
pub mod redeploy;
pub mod registration;
pub mod release_turns;
pub mod releases;
pub mod restore;
pub mod retention;
pub mod rollback;
pub mod stop;
pub mod transitions;

mod admit;
mod built;
mod change;
mod record;
mod recovery;
mod runs;
mod sequence;
mod state;
mod watch;

#[cfg(test)]
mod tests;

pub use admit::{Admission, Admitted, Brought, ExpectedLatest, NewDeploy, OtherDeploys, UNFINISHED_MAX};
pub use built::Built;
pub use change::{Change, KeyLookup, KeyUse, KeyWrite};
pub use configuration::{Revoked, StagedKey};
pub use record::{Record, Refused};
pub use recovery::{RECOVERIES_MAX, Recovery};
pub use release_turns::ReleaseTurn;
pub use releases::Released;
pub use runs::{Begun, NewRun, NextRun, RUNS_MAX, Runs};
pub use sequence::HighestSequence;
pub use state::AppState;
pub use watch::WATCHES_MAX;

/// The most holds kept per app; the oldest goes first.
pub const HOLDS_MAX: usize = 100;
