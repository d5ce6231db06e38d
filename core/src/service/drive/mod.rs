//! Driving apps: which replica drives which, and the effects of the engine's steps.

mod asked_instances;
mod at_rest;
mod commands;
mod driver;
pub(crate) mod following;
mod lease;
mod log;
mod measuring;
mod ordering;
mod poll_results;
mod polling;
mod release_turns;
mod resolving;
mod retention;
mod run;
mod start;
mod stored_images;
mod work_queue;

pub use at_rest::Condition;
pub use poll_results::{PollOutcome, Polled};
pub use start::StartError;

pub(crate) use at_rest::KnownConditions;
pub(crate) use commands::{COMMANDS, EndingRuns, WaitingCommands, WhenDropped};
pub(crate) use measuring::{MEASUREMENTS, RoundRate};
pub(crate) use poll_results::PollResults;
pub(crate) use polling::sentence;
pub(crate) use release_turns::GroupReads;
pub(crate) use resolving::RESOLVING;
pub(crate) use run::TTL;
pub(crate) use stored_images::DueDiscards;
pub(crate) use work_queue::WorkQueue;
