//! rollhook's stores in memory, a simulated cluster and a simulated builder: for trying it out, and for tests under simulated time.
//!
//! ```text
//!   MemoryStore       Apps · Tokens · History   ── one lock, plain maps; time is a function handed in
//!   SimulatedCluster  Rollouts                  ── workloads that follow scripts, by the Clock port
//!   SimulatedBuilds   Builds                    ── builds that follow scripts, likewise
//! ```
//!
//! Nothing here is written anywhere: what [`MemoryStore`] holds ends with the process. Otherwise it keeps every promise
//! of the ports, and clones of one `Arc` are replicas that share a store.

mod apps;
mod builds;
mod claims;
mod cluster;
mod entries;
mod history;
mod keys;
mod store;
mod tokens;
mod wakes;

pub use builds::{Begun, BuildScript, SimulatedBuilds};
pub use cluster::{Effect, Refused, Script, SimulatedCluster};
pub use store::{MemoryStore, Now};
