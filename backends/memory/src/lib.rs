//! rollhook's stores in memory, a simulated cluster, builder and verifier: for demonstrations, and for tests under
//! simulated time.
//!
//! ```text
//!   MemoryStore       HistoryStore · TokenStore · RecordStore ── one lock, plain maps; time is a function handed in
//!   SimulatedCluster  RolloutDriver                           ── workloads that follow scripts, by the Clock port
//!   SimulatedBuilds   BuildTrigger · BranchReader             ── builds that follow scripts, likewise
//!   SimulatedVerifier Verifier                                ── checks whose readings a test sets, likewise
//!   SimulatedRegistry Registry                                ── images that a test pushes, and failures that it sets
//!   SimulatedImageVerifier ImageVerifier                      ── images that a test signs, and an outage that it sets
//! ```
//!
//! The contents of a [`MemoryStore`] end with the process. Otherwise it keeps every promise of the ports, and clones of
//! one `Arc` are replicas that share a store.

mod builds;
mod cluster;
mod configurations;
mod history;
mod notifier;
#[cfg(feature = "management")]
mod records;
mod registry;
mod signatures;
mod store;
mod tokens;
mod verifier;

pub use builds::{Begun, BuildScript, SimulatedBuilds};
pub use cluster::{Effect, Pod, Refused, ReleaseBegun, Script, SimulatedCluster};
pub use registry::{Answering, SimulatedRegistry};
pub use signatures::SimulatedImageVerifier;
pub use store::MemoryStore;
pub use verifier::{Reached, Reading, SimulatedVerifier};

use sha2::{Digest as _, Sha256};

/// Returns the hexadecimal digits of a text's SHA-256.
fn sha256(text: &str) -> String {
    rollhook_core::text::hex(&Sha256::digest(text))
}
