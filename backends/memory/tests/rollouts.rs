//! The rollout suite, on the simulated cluster.

#[path = "../../conformance/tests/simulated/mod.rs"]
mod simulated;

use rollhook_conformance::block_on;
use simulated::Simulated;

rollhook_conformance::rollouts!(block_on, Simulated::fresh());
