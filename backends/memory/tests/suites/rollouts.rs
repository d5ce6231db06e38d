//! The rollout suite, on the simulated cluster.

use rollhook_conformance::block_on;

use crate::simulated::Simulated;

rollhook_conformance::rollouts!(block_on, Simulated::fresh());
