//! The suite of instances' logs, on the simulated cluster.

use rollhook_conformance::block_on;

use crate::simulated::Simulated;

rollhook_conformance::instances!(block_on, Simulated::fresh());
