//! The suite of release commands, on the simulated cluster.

use rollhook_conformance::block_on;

use crate::simulated::Simulated;

rollhook_conformance::releases!(block_on, Simulated::fresh());
