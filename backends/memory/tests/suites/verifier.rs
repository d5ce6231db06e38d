//! The simulated verifier.

use rollhook_conformance::block_on;

use super::simulated_verifier::SimulatedProvider;

rollhook_conformance::verifiers!(block_on, SimulatedProvider::fresh());
